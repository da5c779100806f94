//! A virtual machine with Linux: stock QEMU, Debian's kernel and busybox, which `.ci/tools` brings.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use conic_check::skipped;
use conic_native::clock;

/// What Linux needs for a card of virtio's, in the order in which it is loaded.
const MODULES: [&str; 8] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "drivers/net/virtio_net",
];

/// What the machine does: it has the address that its command line says, and answers.
const INIT: &str = r"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /lib/*.ko; do insmod $module; done
for word in $(cat /proc/cmdline); do case $word in ADDRESS=*) address=${word#ADDRESS=};; esac; done
ip link set eth0 up
ip address add $address/24 dev eth0
echo THE MACHINE IS UP
while true; do sleep 1000; done
";

/// A machine that runs; killed when dropped.
pub struct Machine {
    child: Child,
    said: Arc<Mutex<String>>,
    _folder: tempfile::TempDir,
}

impl Machine {
    /// Starts a machine of one core whose card is behind a socket, with further arguments for the card; `None`, with a word about it, where
    /// there is none to start.
    pub fn start(socket: &str, address: &str, queues: usize, card: &str) -> Option<Machine> {
        let Some(kernel) = kernel() else {
            skipped("there is no kernel for a virtual machine here: `.ci/tools`, as root on Debian, brings one");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files.cpio");
        let Some(archive) = root(&kernel) else {
            skipped("there is no busybox for a virtual machine here");
            return None;
        };
        std::fs::write(&files, archive).unwrap();
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", "max", "-m", "128", "-nographic", "-no-reboot", "-nodefaults"]);
        command.args(["-serial", "stdio", "-kernel"]).arg(kernel.join("vmlinuz")).arg("-initrd").arg(files);
        command.args(["-append", &format!("console=ttyS0 quiet panic=-1 ADDRESS={address}")]);
        command.args(["-object", "memory-backend-memfd,id=memory,size=128M,share=on", "-numa", "node,memdev=memory"]);
        command.args(["-chardev", &format!("socket,id=card,path={socket},reconnect=1")]);
        command.args(["-netdev", &format!("vhost-user,id=net,chardev=card,queues={queues}")]);
        // Without interrupts of its own kind: QEMU 7.2 falls over those where a vhost-user card meets a processor that it plays itself.
        command.args(["-device", &format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:02,vectors=0,romfile={card}")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                let said = Arc::new(Mutex::new(String::new()));
                let hears = Arc::clone(&said);
                std::thread::spawn(move || {
                    lines.map_while(Result::ok).for_each(|line| *hears.lock().unwrap() += &(line + "\n"));
                });
                Some(Machine { child, said, _folder: folder })
            }
            Err(error) => {
                skipped(&format!("there is no qemu-system-x86_64 here ({error})"));
                None
            }
        }
    }

    /// Does something again and again until the machine is up.
    pub fn boot(&self, mut meanwhile: impl FnMut()) {
        let begun = clock::now();
        while !self.said().contains("THE MACHINE IS UP") {
            assert!(clock::now().since(begun).seconds() < 120.0, "it does not boot: {}", self.said());
            meanwhile();
        }
    }

    /// What it has written to its console.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of the kernel with its modules.
fn kernel() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("machine");
    folder.join("vmlinuz").exists().then_some(folder)
}

/// The machine's files, as an archive that its kernel unpacks (newc).
fn root(kernel: &Path) -> Option<Vec<u8>> {
    let busybox = std::fs::read("/bin/busybox").or_else(|_| std::fs::read("/usr/bin/busybox")).ok()?;
    let mut archive = Vec::new();
    for folder in ["bin", "lib", "proc", "sys"] {
        add(&mut archive, folder, 0o040_755, &[]);
    }
    add(&mut archive, "bin/busybox", 0o100_755, &busybox);
    add(&mut archive, "init", 0o100_755, INIT.as_bytes());
    for (number, module) in MODULES.iter().enumerate() {
        let bytes = std::fs::read(kernel.join("modules").join(module).with_extension("ko")).ok()?;
        add(&mut archive, &format!("lib/{number}.ko"), 0o100_644, &bytes);
    }
    add(&mut archive, "TRAILER!!!", 0, &[]);
    Some(archive)
}

fn add(archive: &mut Vec<u8>, name: &str, mode: u32, bytes: &[u8]) {
    let mut words = [0; 13];
    (words[0], words[1], words[4]) = (archive.len() as u32 + 1, mode, 1);
    (words[6], words[11]) = (bytes.len() as u32, name.len() as u32 + 1);
    archive.extend(b"070701");
    words.iter().for_each(|word| archive.extend(format!("{word:08x}").bytes()));
    archive.extend(name.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(bytes);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
