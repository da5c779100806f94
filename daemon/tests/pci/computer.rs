//! A virtual machine with NICs on its PCI bus and a daemon.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use conic_check::skipped;
use conic_native::yield_core;
use serde_json::{Value, json};

use super::machine::{Files, Machine};
use super::waiting::{try_until, wait_until};
use super::wire::{ALL, Wire};

/// What user space reaches devices through, in the order in which it is loaded.
const MODULES: [&str; 8] = [
    "virt/lib/irqbypass",
    "drivers/uio/uio",
    "drivers/uio/uio_pci_generic",
    "drivers/vfio/vfio_virqfd",
    "drivers/vfio/vfio",
    "drivers/vfio/vfio_iommu_type1",
    "drivers/vfio/pci/vfio-pci-core",
    "drivers/vfio/pci/vfio-pci",
];

/// What DPDK loads when it starts: of all drivers those of QEMU's NICs. The last one is for its pools.
const DRIVERS: [&str; 5] = ["bus_pci", "net_virtio", "net_e1000", "net_vmxnet3", "mempool_ring"];

/// What the machine does: each line at its console is a command. Nobody else may write to its first folder, or DPDK loads nothing. The one
/// who reads has no children that end meanwhile, which would cost it what it is reading.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
chmod 755 /
for module in /modules/*.ko; do insmod $module; done
stty -F /dev/ttyS0 -echo
echo THE MACHINE IS UP
sh -c 'while read -r line; do eval "$line" </dev/null 2>&1; echo DONE; done </dev/ttyS0'
"#;

/// A machine with a daemon, and the other ends of its NICs' wires.
pub struct Computer {
    machine: Machine,
    monitor: UnixStream,
    wires: Vec<Wire>,
    /// Daemons that were started so far.
    daemons: usize,
    _folder: tempfile::TempDir,
}

impl Computer {
    /// Starts it with these NICs and other devices before them; `None`, with a word about it, where it cannot be.
    pub fn start(kind: &str, words: &str, nics: &[&str], board: &[String]) -> Option<Computer> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("monitor");
        let mut arguments: Vec<String> = ["-M", kind, "-m", "512", "-smp", "2"].map(str::to_owned).to_vec();
        let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        add("-chardev", format!("socket,id=monitor,path={},server=on,wait=off", path.display()));
        add("-mon", "chardev=monitor".to_owned());
        board.iter().for_each(|device| add("-device", device.clone()));
        let mut wires = Vec::new();
        for (number, nic) in nics.iter().enumerate() {
            let wire = Wire::new(folder.path(), number);
            add("-netdev", wire.argument(folder.path(), number));
            add("-device", argument(nic, number));
            wires.push(wire);
        }
        let machine = Machine::run(files()?, words, &arguments)?;
        machine.boot(yield_core);
        let monitor = UnixStream::connect(path).expect("it listens");
        let mut heard = monitor.try_clone().expect("a descriptor");
        std::thread::spawn(move || while heard.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {});
        Some(Computer { machine, monitor, wires, daemons: 0, _folder: folder })
    }

    /// What its shell says to a line.
    pub fn tell(&mut self, line: &str) -> String {
        let before = self.machine.said().len();
        self.machine.write(line);
        let mut answer = String::new();
        wait_until(line, || {
            answer = self.machine.said().split_off(before);
            yield_core();
            answer.contains("DONE\n")
        });
        answer.replace("DONE\n", "").trim().to_owned()
    }

    /// Waits until its shell says to a line what it is waited for.
    fn wait(&mut self, line: &str, what: impl Fn(&str) -> bool) -> String {
        let mut said = String::new();
        let waited = try_until(line, || {
            said = self.tell(line);
            what(&said)
        });
        waited.unwrap_or_else(|why| panic!("{why}\n{said}\n{}", self.tell("dmesg | tail -n 5")));
        said
    }

    /// Tells the one who plays the machine.
    fn order(&mut self, order: &str) {
        writeln!(self.monitor, "{order}").expect("it listens");
    }

    /// Gives a device to a driver.
    pub fn bind(&mut self, address: &str, driver: &str) {
        let device = format!("/sys/bus/pci/devices/{address}");
        self.tell(&format!("echo {driver} > {device}/driver_override; echo {address} > /sys/bus/pci/drivers_probe"));
        let bound = self.tell(&format!("readlink {device}/driver"));
        assert!(bound.ends_with(driver), "{address}: {bound}\n{}", self.tell("dmesg | tail -n 5"));
    }

    /// Starts a daemon; what it says first.
    fn begin(&mut self, role: &str, threads: usize, ports: &[String]) -> String {
        self.daemons += 1;
        let (log, ports) = (format!("/tmp/log{}", self.daemons), ports.join(" "));
        self.tell(&format!("(/bin/nic {role} /tmp/nic.sock {threads} {ports} > {log} 2>&1 &)"));
        self.wait(&format!("cat {log}"), |said| said.contains("listening") || said.contains("ended"))
    }

    pub fn try_serve(&mut self, threads: usize, ports: &[String]) -> String {
        self.begin("serve", threads, ports)
    }

    pub fn serve(&mut self, threads: usize, ports: &[String]) {
        let said = self.begin("serve", threads, ports);
        assert!(said.contains("listening"), "{said}");
        self.meet();
    }

    /// What the daemon answers.
    fn ask(&mut self, question: &Value) -> Value {
        let said = self.tell(&format!("/bin/nic ask /tmp/nic.sock '{question}'"));
        // QEMU writes to the same place.
        let answer = said.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    fn ports(&mut self) -> Vec<Value> {
        let list = self.ask(&json!({ "ask": "list" }));
        list["networks"][0]["ports"].as_array().expect("ports").clone()
    }

    /// Each device with its driver and its own address.
    pub fn says_who_they_are(&mut self, addresses: &[&str], drivers: &[&str]) {
        // Some links take half a second.
        wait_until("all are up", || self.ports().iter().all(|port| port["up"] == json!(true)));
        for (number, port) in self.ports().iter().enumerate() {
            let (address, driver) = (addresses[number], drivers[number]);
            let expected = format!("DPDK device {address} ({driver}, 52:54:00:00:00:{number:02x})");
            assert_eq!(port["description"], json!(expected));
        }
    }

    /// Lets the switch learn who is behind which NIC, and waits until frames pass.
    fn meet(&mut self) {
        for (number, wire) in self.wires.iter().enumerate() {
            let to = &self.wires[(number + 1) % self.wires.len()];
            wait_until("a NIC's first frame passes", || {
                wire.try_send(&wire.frame(ALL, 60, 0));
                to.is_called(wire.station, 20)
            });
        }
    }

    /// Frames of these lengths pass from one wire to another, in order and unchanged, and nothing else comes.
    pub fn passes(&mut self, from: usize, to: usize, lengths: &[usize]) {
        let [from, to] = [from, to].map(|number| &self.wires[number]);
        let frames: Vec<_> =
            lengths.iter().zip(1..).map(|(&length, number)| from.frame(to.station, length, number)).collect();
        for burst in frames.chunks(16) {
            burst.iter().for_each(|frame| from.send(frame));
            for frame in burst {
                let came = to.receive(5000);
                assert!(came.as_ref() == Some(frame), "{} bytes: {:?}", frame.len(), came.map(|frame| frame.len()));
            }
        }
        assert_eq!(to.receive(1), None);
    }

    /// Waits until nothing passes any more; the ports then.
    fn rests(&mut self) -> Vec<Value> {
        let mut ports = Vec::new();
        wait_until("it is quiet", || {
            let before = std::mem::replace(&mut ports, self.ports());
            before == ports
        });
        ports
    }

    /// From each NIC to the next.
    pub fn passes_every_size(&mut self) {
        let lengths: Vec<usize> = (60..=1514).collect();
        let count = self.wires.len();
        let before = self.rests();
        for number in 0..count {
            self.passes(number, (number + 1) % count, &lengths);
        }
        for (port, was) in self.ports().iter().zip(before) {
            let of = |port: &Value, name: &str| port["counters"][name].as_u64().expect("a count");
            for name in ["received_frames", "transmitted_frames", "device_received", "device_transmitted"] {
                assert_eq!(of(port, name) - of(&was, name), lengths.len() as u64, "{name}: {port}");
            }
        }
    }

    /// A NIC whose cable is pulled is down, and up when it is back.
    pub fn follows_a_link(&mut self) {
        for (order, up) in [("off", false), ("on", true)] {
            self.order(&format!("set_link nic0 {order}"));
            wait_until("the link is seen", || self.ports()[0]["up"] == json!(up));
            // The others notice nothing.
            self.passes(1, 2, &[60; 100]);
        }
        self.meet();
        self.passes(0, 1, &[60; 100]);
        self.passes(1, 0, &[60; 100]);
    }

    /// Another daemon takes over: it opens the devices when the first has closed them.
    pub fn is_replaced(&mut self, threads: usize, ports: &[String]) {
        let before = self.daemons;
        let said = self.begin("adopt", threads, ports);
        assert!(said.contains("listening"), "{said}");
        self.wait(&format!("cat /tmp/log{before}"), |said| said.contains("ended"));
        self.meet();
        let last = self.wires.len() - 1;
        self.passes(0, last, &[60; 100]);
        self.passes(last, 0, &[60; 100]);
    }

    /// A NIC is pulled out while frames come from it. Its port says so and is closed, so that the system has the device back; the others
    /// serve on. When it is put in again it is attached again.
    pub fn loses_a_device_and_gets_it_again(
        &mut self,
        number: usize,
        nic: &str,
        port: &str,
        driver: &str,
        address: &str,
    ) {
        let (log, device) = (format!("/tmp/log{}", self.daemons), format!("/sys/bus/pci/devices/{address}"));
        let neighbour = (number + 1) % self.wires.len();
        self.order(&format!("device_del nic{number}"));
        let mut sent = 0;
        wait_until("the port says so", || {
            let wire = &self.wires[number];
            let frame = wire.frame(self.wires[neighbour].station, 60, 7);
            sent += (0..100).filter(|_| wire.try_send(&frame)).count();
            self.tell(&format!("cat {log}")).contains("was taken away")
        });
        assert!(sent > 0, "frames come meanwhile");
        self.wait(&format!("ls {device}"), |said| said.contains("No such file"));
        self.wires.iter().for_each(Wire::forget);
        let gone = self.ports().remove(number);
        let description = gone["description"].as_str().expect("a text");
        assert!(gone["up"] == json!(false) && description.ends_with(", gone"), "{gone}");
        assert_eq!(self.tell(&format!("grep -c failed: {log}")), "1", "it is said once");
        let detached = self.ask(&json!({ "ask": "detach_port", "port": number }));
        assert_eq!(detached["done"], true, "{detached}");

        self.order(&format!("device_add {}", argument(nic, number)));
        self.wait(&format!("ls {device}"), |said| said.contains("driver_override"));
        self.bind(address, driver);
        let attached = self.ask(&json!({ "ask": "attach_port", "port": port }));
        assert!(attached["port"].is_u64(), "{attached}");
        self.meet();
        self.passes(number, neighbour, &[60; 100]);
        self.passes(neighbour, number, &[60; 100]);
    }
}

/// A NIC at the end of a wire, with an address that says which it is.
fn argument(nic: &str, number: usize) -> String {
    format!("{nic},netdev=net{number},id=nic{number},mac=52:54:00:00:00:{number:02x},romfile=")
}

/// The machine's files: this program, DPDK's drivers, and the libraries that they need. `None`, with a word about it, where they are not here.
fn files() -> Option<Files> {
    let mut files = Files::new(INIT, &MODULES)?;
    files.link("lib", "usr/lib");
    files.link("lib64", "usr/lib64");
    let program = std::env::current_exe().expect("this program has a path");
    files.add("bin/nic", &std::fs::read(&program).expect("this program"));
    let mut needed = libraries(&program);
    for (driver, folder) in DRIVERS.map(|name| (format!("librte_{name}.so."), drivers())) {
        let Some(path) = folder.and_then(|folder| named(&folder, &driver)) else {
            skipped("NICs on a PCI bus: DPDK's drivers are not where it has them on Debian");
            return None;
        };
        needed.extend(libraries(&path));
        // DPDK loads what is in its folder of drivers. What one driver needs of another is the same file, not another one like it.
        let library = library(&path);
        files.link(&inside(&path), &format!("/{}", inside(&library)));
        needed.insert(library);
    }
    for path in needed {
        files.add(&inside(&path), &std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
    }
    Some(files)
}

/// Where DPDK looks for its drivers.
fn drivers() -> Option<PathBuf> {
    let said = Command::new("pkg-config").args(["--variable=libdir", "libdpdk"]).output().ok()?;
    named(&Path::new(String::from_utf8(said.stdout).ok()?.trim()).join("dpdk"), "pmds-")
}

/// What begins with a name in a folder; of a library the name with its whole version.
fn named(folder: &Path, begin: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let begins =
        |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(begin));
    entries.filter(begins).max()
}

/// A driver as a library of others: above its folder, and named with the first number of its version.
fn library(driver: &Path) -> PathBuf {
    let name = driver.file_stem().expect("it has a name");
    driver.ancestors().nth(3).expect("it lies below the libraries").join(name)
}

/// The libraries that a program or another one needs.
fn libraries(path: &Path) -> BTreeSet<PathBuf> {
    let said = Command::new("ldd").arg(path).output().expect("the system has it");
    let said = String::from_utf8(said.stdout).expect("text");
    let paths = said.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// A path in the machine.
fn inside(path: &Path) -> String {
    let path = path.to_str().expect("text").trim_start_matches('/');
    if path.starts_with("lib") { format!("usr/{path}") } else { path.to_owned() }
}
