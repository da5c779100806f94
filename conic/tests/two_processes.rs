//! The loopback between two processes: the application here, the NIC in a process that gets the region over a socket.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use conic::process::{NicProcess, ProcessError};
use conic_fabric::{Address, Core, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Features, Geometry, Host, Map, Packing, Policy, Signal, prepare};
use conic_interface::with_policy;
use conic_load::{ClosedLoop, Workload};
use conic_native::{Memory, NativeCore, Pages};

/// The tests count this process's descriptors and mappings, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

const WORKLOAD: Workload =
    Workload { packet_size: 64, window: 128, transmit_burst: 32, receive_burst: 32, fetch_ahead: true };

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.arg("nic-process");
    command
}

fn features() -> Vec<Features> {
    let mut sets = vec![Features::paper()];
    for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
        for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
            for whole_line in [true, false] {
                sets.push(Features { signal, packing, whole_line, ..Features::best() });
            }
        }
    }
    sets.push(Features { recycling: false, scattered: false, small_buffers: false, ..Features::paper() });
    sets
}

struct Region {
    map: Map,
    memory: Memory,
}

impl Region {
    fn new(features: Features) -> Region {
        let geometry = Geometry { buffers: [1024, 512, 16], ..Geometry::default() };
        let map = Map::new(geometry, features).expect("a geometry that can be");
        let memory = Memory::create(&map.layout, Pages::Plain).expect("a region of plain pages");
        prepare(&NativeCore::new(&memory), &map);
        Region { map, memory }
    }

    fn start(&self) -> NicProcess {
        NicProcess::start(command(), &self.memory, &self.map, None).expect("a NIC in a process of its own")
    }

    /// Every buffer is in the pool or on the host's stack.
    fn assert_whole<P: Policy>(&self, host: &Host<NativeCore<'_>, P>, when: &str) {
        let free = self.map.pool.free(host.core());
        let held = host.allocator().held();
        let total: Vec<u64> = free.iter().zip(held).map(|(free, held)| free + held).collect();
        assert_eq!(total, self.map.geometry.buffers, "{when}, {}", self.map.features);
    }
}

/// A host that an application borrows, so that it is there when the application is gone.
struct Lent<'host, C, P>(&'host mut Host<C, P>);

impl<C: Core, P: Policy> HostQueue for Lent<'_, C, P> {
    type Core = C;
    fn core(&self) -> &C {
        self.0.core()
    }
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        self.0.buf_alloc(bytes, out)
    }
    fn buf_free(&mut self, buffers: &[Address]) {
        self.0.buf_free(buffers);
    }
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        self.0.tx_burst(packets)
    }
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        self.0.rx_burst(out)
    }
    fn bytes_to_end(&self, at: Address) -> u64 {
        HostQueue::bytes_to_end(self.0, at)
    }
}

/// What this process has open: descriptors, and mappings of regions.
fn open() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
    (descriptors, maps.lines().filter(|line| line.contains("memfd:conic")).count())
}

fn exchange<P: Policy>(features: Features, packets: u64, packet_size: u16) {
    let region = Region::new(features);
    let nic = region.start();
    let mut host = Host::<_, P>::new(NativeCore::new(&region.memory), &region.map, 0);
    let mut application = ClosedLoop::new(Lent(&mut host), Workload { packet_size, ..WORKLOAD });
    while application.account().received() < packets {
        application.step();
    }
    let patience = Time::from_nanoseconds(5_000_000_000);
    let deadline = application.queue().core().now() + patience;
    application.drain(deadline);
    let received = application.account().received();
    assert_eq!((application.account().lost(), application.account().corrupt()), (0, 0), "{features}");
    let report = nic.stop().expect("a NIC that ends in order");
    assert_eq!((report.turned_around, report.dropped, report.refused), (received, 0, 0), "{features}");
    region.assert_whole(&host, "after the end");
}

#[test]
fn over_a_million_packets_pass_with_every_feature_set_and_none_is_lost_or_changed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open();
    for features in features() {
        with_policy!(features, P => {
            exchange::<P>(features, 60_000, 64);
            exchange::<P>(features, 3_000, 1500);
        });
    }
    assert_eq!(open(), before, "descriptors and mappings");
}

/// A NIC's process killed at a random moment: what had come is sound, the pool becomes whole, and a new one goes on.
fn kill<P: Policy>(features: Features, kills: u32, random: &mut fastrand::Rng) {
    let region = Region::new(features);
    let mut host = Host::<_, P>::new(NativeCore::new(&region.memory), &region.map, 0);
    let (mut passed, mut lost_buffers) = (0, 0);
    for _ in 0..kills {
        let nic = region.start();
        let mut application = ClosedLoop::new(Lent(&mut host), WORKLOAD);
        // Some die before their first packet, the others between any two instructions of the loop.
        let packets = if random.u8(..8) == 0 { 0 } else { random.u64(..4096) };
        while application.account().received() < packets {
            application.step();
        }
        for _ in 0..random.u8(..) {
            application.step();
        }
        assert_eq!(
            (application.account().lost(), application.account().corrupt()),
            (0, 0),
            "before the kill, {features}"
        );
        nic.kill().expect("a process that can be killed");
        // What the NIC had delivered whole comes out, in order; the rest of what was in flight is lost with it.
        let deadline = application.queue().core().now() + Time::from_nanoseconds(200_000);
        application.drain(deadline);
        assert_eq!(application.account().corrupt(), 0, "after the kill, {features}");
        assert!(
            application.account().lost() <= WORKLOAD.window,
            "{} packets are lost, {features}",
            application.account().lost()
        );
        passed += application.account().received();
        drop(application);
        let (recovered, lost) = host.recover(&region.map, 0, []);
        host = recovered;
        lost_buffers += lost;
        region.assert_whole(&host, "after recovery");
    }
    assert!(passed > 0, "no NIC was at work, {features}");
    // Without recycling a NIC may hold nothing at that moment: it takes buffers for a burst and gives them back together.
    assert!(lost_buffers > 0 || !features.recycling, "no NIC was killed with buffers, {features}");
    assert_eq!(host.faults(), Default::default(), "{features}");
}

#[test]
fn a_killed_nic_leaves_nothing_that_recovery_does_not_mend() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open();
    let seed = 2024;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for features in features() {
        with_policy!(features, P => kill::<P>(features, 15, &mut random));
    }
    assert_eq!(open(), before, "descriptors and mappings");
}

#[test]
fn a_process_that_plays_no_nic_is_an_error_and_no_hang() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open();
    let region = Region::new(Features::best());
    let start = |program: &str| NicProcess::start(Command::new(program), &region.memory, &region.map, None);
    assert!(matches!(start("/does/not/exist"), Err(ProcessError::System { .. })));
    assert!(matches!(start("true"), Err(ProcessError::Peer(_) | ProcessError::System { .. })));
    let nowhere = NicProcess::start(command(), &region.memory, &region.map, Some(100_000));
    assert!(matches!(nowhere, Err(ProcessError::Peer(_))), "a core that does not exist: {nowhere:?}");
    drop(region);
    assert_eq!(open(), before, "descriptors and mappings");
}

#[test]
fn a_nic_whose_host_is_gone_ends() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = command().stdin(std::process::Stdio::null()).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("conic itself starts this command"), "{text}");
}
