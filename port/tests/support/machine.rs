//! A virtual machine with Linux: stock QEMU, Debian's kernel and busybox, which `.ci/tools` brings.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
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
for module in /modules/*.ko; do insmod $module; done
for word in $(cat /proc/cmdline); do case $word in ADDRESS=*) address=${word#ADDRESS=};; esac; done
ip link set eth0 up
ip address add $address/24 dev eth0
echo THE MACHINE IS UP
while true; do sleep 1000; done
";

/// A machine that runs; killed when dropped.
pub struct Machine {
    child: Child,
    input: ChildStdin,
    said: Arc<Mutex<String>>,
    _folder: tempfile::TempDir,
}

impl Machine {
    /// Starts a machine of one core whose card is behind a socket, with further arguments for the card; `None`, with a word about it, where
    /// there is none to start.
    pub fn start(socket: &str, address: &str, queues: usize, card: &str) -> Option<Machine> {
        Machine::start_with(socket, address, queues, card, &[])
    }

    /// The same, with further arguments of QEMU.
    pub fn start_with(socket: &str, address: &str, queues: usize, card: &str, more: &[String]) -> Option<Machine> {
        let mut arguments = vec!["-m".to_owned(), "128".to_owned()];
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("-object", "memory-backend-memfd,id=memory,size=128M,share=on".to_owned());
        add("-numa", "node,memdev=memory".to_owned());
        add("-chardev", format!("socket,id=card,path={socket},reconnect=1"));
        add("-netdev", format!("vhost-user,id=net,chardev=card,queues={queues}"));
        // Without interrupts of its own kind: QEMU 7.2 falls over those where a vhost-user card meets a processor that it plays itself.
        add("-device", format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:02,vectors=0,romfile={card}"));
        arguments.extend_from_slice(more);
        Machine::run(Files::new(INIT, &MODULES)?, &format!("ADDRESS={address}"), &arguments)
    }

    /// Starts a machine with these files, words for its kernel, and arguments of QEMU; `None`, with a word about it, where there is no QEMU.
    pub fn run(files: Files, words: &str, arguments: &[String]) -> Option<Machine> {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("files.cpio");
        let kernel = files.kernel.join("vmlinuz");
        std::fs::write(&archive, files.end()).unwrap();
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-cpu", "max", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]);
        command.arg("-kernel").arg(kernel).arg("-initrd").arg(archive);
        command.args(["-append", &format!("console=ttyS0 quiet panic=-1 {words}")]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                let input = child.stdin.take().unwrap();
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                let said = Arc::new(Mutex::new(String::new()));
                let hears = Arc::clone(&said);
                std::thread::spawn(move || {
                    lines.map_while(Result::ok).for_each(|line| *hears.lock().unwrap() += &(line + "\n"));
                });
                Some(Machine { child, input, said, _folder: folder })
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

    /// Types a line at its console.
    pub fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine's files, as an archive that its kernel unpacks (newc).
pub struct Files {
    /// The folder of the kernel with its modules.
    kernel: PathBuf,
    archive: Vec<u8>,
    folders: BTreeSet<PathBuf>,
}

impl Files {
    /// What the machine does when it is up, busybox, and modules of its kernel in the order in which they are loaded; `None`, with a word
    /// about it, where they are not here.
    pub fn new(init: &str, modules: &[&str]) -> Option<Files> {
        // A build for other processors has a folder within the build's.
        let folders = Path::new(env!("CARGO_TARGET_TMPDIR")).ancestors().skip(1).take(2);
        let Some(kernel) = folders.map(|folder| folder.join("machine")).find(|folder| folder.join("vmlinuz").exists())
        else {
            skipped("there is no kernel for a virtual machine here: `.ci/tools`, as root on Debian, brings one");
            return None;
        };
        let Ok(busybox) = std::fs::read("/bin/busybox").or_else(|_| std::fs::read("/usr/bin/busybox")) else {
            skipped("there is no busybox for a virtual machine here");
            return None;
        };
        let mut files = Files { kernel, archive: Vec::new(), folders: BTreeSet::new() };
        for folder in ["proc", "sys", "dev", "tmp"] {
            files.folder(Path::new(folder));
        }
        files.add("bin/busybox", &busybox);
        files.add("init", init.as_bytes());
        for (number, module) in modules.iter().enumerate() {
            let bytes = std::fs::read(files.kernel.join("modules").join(module).with_extension("ko")).unwrap();
            files.add(&format!("modules/{number:02}.ko"), &bytes);
        }
        Some(files)
    }

    /// A file that may be executed, in folders that are made.
    pub fn add(&mut self, path: &str, bytes: &[u8]) {
        self.folder(Path::new(path).parent().unwrap());
        self.entry(path, 0o100_755, bytes);
    }

    /// A name for another file.
    pub fn link(&mut self, path: &str, to: &str) {
        self.folder(Path::new(path).parent().unwrap());
        self.entry(path, 0o120_777, to.as_bytes());
    }

    fn folder(&mut self, path: &Path) {
        if path.as_os_str().is_empty() || !self.folders.insert(path.to_owned()) {
            return;
        }
        self.folder(path.parent().unwrap());
        self.entry(path.to_str().unwrap(), 0o040_755, &[]);
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        let archive = &mut self.archive;
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

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.archive
    }
}
