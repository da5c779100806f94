//! NICs on the PCI bus as ports of a daemon, under DPDK's drivers: those that QEMU plays, in virtual machines whose other ends of the wires
//! are here. Behind no IOMMU (`uio_pci_generic`, huge pages) and behind one (`vfio-pci`, plain pages): frames of every size by content,
//! links that go down, daemons that take over, devices that are taken away under traffic and come again.
//!
//! The machines' processors are played, too: they have fewer instructions than this one may have, and this program, which plays the
//! daemons in there (`serve SOCKET THREADS PORT...`, `adopt ...`, `ask SOCKET QUESTION`), is built for those
//! (`.ci/dpdk`). Needs no root.

mod computer;
mod wire;

#[path = "../../../port/tests/support/machine.rs"]
#[allow(dead_code, reason = "the tests of ports use the rest")]
mod machine;
#[path = "../support/waiting.rs"]
mod waiting;

use std::path::Path;
use std::time::Duration;

use computer::Computer;
use conic_check::skipped;
use conic_client::Operator;
use conic_daemon::{Daemon, Event, Stop};
use conic_nicd::config::{Config, NetworkConfig, PortConfig};
use serde_json::json;

/// Plays a daemon.
fn serve(role: &str, socket: &str, threads: &str, ports: &[String]) {
    let begin = if role == "adopt" { Daemon::adopt } else { Daemon::start };
    let ports = ports.iter().map(|spec| PortConfig { spec: spec.clone(), vlan: None }).collect();
    let threads = threads.parse().expect("a number");
    let networks = vec![NetworkConfig { threads, ports, ..NetworkConfig::default() }];
    let config = Config { socket: socket.into(), networks, ..Config::default() }.checked().expect("sound");
    let log = Box::new(|event: &Event| match event {
        Event::PortFailed { text, .. } => println!("failed: {text}"),
        Event::Listening { .. } => println!("listening"),
        _ => {}
    });
    match begin(config, Stop::new().expect("a descriptor"), log) {
        Ok(daemon) => _ = daemon.run().expect("the system lets it"),
        Err(error) => println!("error: {error}"),
    }
    println!("ended");
}

/// Plays an operator.
fn ask(socket: &str, question: &str) {
    let operator = Operator::connect(Path::new(socket), Duration::from_secs(20)).expect("it listens");
    println!("{}", operator.ask(question).expect("it answers"));
}

/// Three NICs without an IOMMU.
fn on_plain_addresses() -> Option<()> {
    let devices = ["virtio-net-pci,addr=4", "e1000,addr=5", "vmxnet3,addr=6"];
    let mut computer = Computer::start("pc", "hugepages=72", &devices, &[])?;
    let addresses = ["0000:00:04.0", "0000:00:05.0", "0000:00:06.0"];
    for address in addresses {
        computer.bind(address, "uio_pci_generic");
    }
    // Their drivers write to physical addresses, which plain pages do not have for good.
    let refused = computer.try_serve(1, &["dpdk:0000:00:04.0,memory=64".to_owned()]);
    assert!(refused.contains("must be bound to vfio-pci") && refused.contains("needs huge pages (huge)"), "{refused}");
    let ports = addresses.map(|address| format!("dpdk:{address},memory=64,frames=256,huge"));
    computer.serve(1, &ports);
    computer.says_who_they_are(&addresses, &["net_virtio", "net_e1000_em", "net_vmxnet3"]);
    computer.passes_every_size();
    computer.passes(0, 1, &[2000, 4000, 9000, 9600]);
    computer.passes(1, 0, &[2000, 4000, 9000, 9600]);
    computer.follows_a_link();
    computer.is_replaced(1, &ports);
    computer.loses_a_device_and_gets_it_again(2, "vmxnet3,addr=6", &ports[2], "uio_pci_generic", addresses[2]);
    Some(())
}

/// Two NICs behind an IOMMU: no physical address is known to anybody, and none is needed.
fn on_addresses_of_their_own() -> Option<()> {
    let devices = ["e1000e,bus=slot0", "virtio-net-pci,bus=slot1,disable-legacy=on,iommu_platform=on"];
    let slots = (0..2).map(|slot| format!("pcie-root-port,id=slot{slot},chassis={slot},slot={slot},bus=pcie.0"));
    let board: Vec<String> = std::iter::once("intel-iommu,intremap=on".to_owned()).chain(slots).collect();
    let mut computer = Computer::start("q35", "intel_iommu=on", &devices, &board)?;
    let addresses = ["0000:01:00.0", "0000:02:00.0"];
    for address in addresses {
        computer.bind(address, "vfio-pci");
    }
    let ports = addresses.map(|address| format!("dpdk:{address},memory=64,frames=256"));
    computer.serve(2, &ports);
    computer.says_who_they_are(&addresses, &["net_e1000_em", "net_virtio"]);
    computer.passes_every_size();
    computer.is_replaced(2, &ports);
    computer.loses_a_device_and_gets_it_again(0, devices[0], &ports[0], "vfio-pci", addresses[0]);
    Some(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [role, socket, threads, ports @ ..] if role == "serve" || role == "adopt" => {
            return serve(role, socket, threads, ports);
        }
        [role, socket, question] if role == "ask" => return ask(socket, question),
        _ => {}
    }
    if cfg!(target_feature = "avx512f") {
        return skipped("NICs on a PCI bus: this program is built for more than QEMU's processor has (.ci/dpdk)");
    }
    let done = on_plain_addresses().and_then(|()| on_addresses_of_their_own());
    if done.is_some() {
        println!("{}", json!({ "pci": "passed" }));
    }
}
