//! vhost-user with stock frontends: DPDK's virtio driver, as client and as server, and a virtual machine with Linux.

use std::sync::{Mutex, MutexGuard};

use crate::support::machine::Machine;
use crate::support::network::detail;
use crate::support::testpmd::{PLAIN, Testpmd, exchange, frame};
use conic_fabric::Time;
use conic_native::{clock, yield_core};
use conic_port::offload::checksum;
use conic_port::{MAX_FRAME, Port, PortSpec, Receive, Role, Transmit, VhostOptions, VhostUser, VirtioUser};

/// DPDK's memory without huge pages is not sealed.
fn options(folder: &tempfile::TempDir) -> VhostOptions {
    VhostOptions { unsealed: true, ..VhostOptions::new(folder.path().join("socket").to_str().unwrap()) }
}

pub(crate) fn assert_no_faults(port: &impl Port) {
    for name in ["fault_index", "fault_flags", "fault_number", "fault_bounds", "fault_chain", "requests_failed"] {
        assert_eq!(detail(port, name), 0, "{name}");
    }
}

/// Goes on with a port as another process would.
fn handed_over(mut port: VhostUser, options: &VhostOptions) -> VhostUser {
    assert!(port.can_bequeath());
    let legacy = port.bequeath().expect("vhost-user can");
    drop(port);
    VhostUser::inherit(options, vec![legacy]).unwrap().remove(0)
}

/// Starts testpmd, and looks at the port meanwhile: its driver waits for answers.
fn start(port: &mut impl Port, device: &str, more: &[&str]) -> Option<Testpmd> {
    std::thread::scope(|scope| {
        let starts = scope.spawn(|| Testpmd::start(device, more));
        while !starts.is_finished() {
            port.receive(clock::now(), &mut [0; MAX_FRAME]).unwrap();
            conic_native::yield_core();
        }
        starts.join().unwrap()
    })
}

/// Looks until nobody is there.
fn see_it_go(port: &mut impl Port) {
    let begun = clock::now();
    while port.is_up() && clock::now().since(begun).seconds() < 10.0 {
        port.receive(clock::now(), &mut [0; MAX_FRAME]).unwrap();
    }
    assert!(!port.is_up(), "{}", port.description());
}

#[test]
fn stock_dpdk_attaches_in_each_of_its_ways_and_again_when_it_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder);
    let mut port = VhostUser::open(&options).unwrap();
    let split = ["", ",mrg_rxbuf=0", ",in_order=0", ",queue_size=64", ",vectorized=1"];
    let packed = ["", ",mrg_rxbuf=0", ",in_order=0,queue_size=64", ",mrg_rxbuf=0,in_order=0,vectorized=1"];
    let packed = packed.map(|more| format!("{more},packed_vq=1"));
    for more in split.into_iter().chain(packed.iter().map(String::as_str)) {
        let device = format!("net_virtio_user0,path={}{more}", options.socket);
        let Some(testpmd) = start(&mut port, &device, &[]) else { return };
        exchange(&mut port, PLAIN, 10_000);
        let kind = if more.contains("packed") { "1 rings in and 1 out, packed" } else { "1 rings in and 1 out, " };
        assert!(port.description().contains(kind), "{}", port.description());
        drop(testpmd);
        see_it_go(&mut port);
    }
    assert_no_faults(&port);
}

#[test]
fn stock_dpdk_attaches_with_several_queues() {
    let folder = tempfile::tempdir().unwrap();
    let options = VhostOptions { queues: 4, ..options(&folder) };
    let mut port = VhostUser::open(&options).unwrap();
    let device = format!("net_virtio_user0,path={},queues=2", options.socket);
    let Some(_testpmd) = start(&mut port, &device, &["--rxq=2", "--txq=2"]) else { return };
    exchange(&mut port, PLAIN, 5_000);
    assert!(port.description().contains("2 rings in and 2 out"), "{}", port.description());
    assert_no_faults(&port);
}

/// Frames of each thread of a test.
const FRAMES: usize = 2_000;

/// Which frames of all threads have come, and how many of each.
struct Came {
    frames: Vec<bool>,
    of: Vec<usize>,
}

/// Locks without sleeping, which sanitizers misjudge.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        if let Ok(guard) = mutex.try_lock() {
            return guard;
        }
        assert!(!mutex.is_poisoned(), "another thread has failed");
        yield_core();
    }
}

fn length_of(number: usize) -> usize {
    PLAIN[number % PLAIN.len()]
}

/// Sends a thread's frames by its parts, and takes whatever comes, until all have come.
fn exchange_all(came: &Mutex<Came>, thread: usize, parts: &mut [impl Port]) {
    let (mut sent, mut buffer, begun) = (0, [0; MAX_FRAME], clock::now());
    loop {
        let now = clock::now();
        let under_way = {
            let came = locked(came);
            if came.of.iter().all(|&count| count == FRAMES) {
                return;
            }
            sent - came.of[thread]
        };
        for part in &mut *parts {
            for number in thread * FRAMES + sent..thread * FRAMES + FRAMES.min(sent + 16) {
                if under_way > 48
                    || part.transmit(now, &frame(length_of(number), number as u32)).unwrap() != Transmit::Accepted
                {
                    break;
                }
                sent += 1;
            }
            part.flush(now).unwrap();
            while let Receive::Frame { length, .. } = part.receive(now, &mut buffer).unwrap() {
                let number = u32::from_be_bytes(buffer[20..24].try_into().unwrap()) as usize;
                assert!(buffer[..length] == frame(length_of(number), number as u32), "frame {number} is changed");
                let mut came = locked(came);
                assert!(!std::mem::replace(&mut came.frames[number], true), "frame {number} comes twice");
                came.of[number / FRAMES] += 1;
            }
        }
        assert!(clock::now().since(begun).seconds() < 20.0, "testpmd does not answer: {sent} sent");
    }
}

/// Exchanges frames with testpmd by all parts of a port, which so many threads serve.
fn exchange_on_threads(mut parts: Vec<impl Port>, device: &str, queues: usize, threads: usize) {
    let asked = [format!("--rxq={queues}"), format!("--txq={queues}")];
    let Some(_testpmd) = start(&mut parts[0], device, &asked.each_ref().map(String::as_str)) else { return };
    let begun = clock::now();
    while !parts[0].description().contains(&format!("{queues} rings in and {queues} out")) {
        parts[0].receive(clock::now(), &mut [0; MAX_FRAME]).unwrap();
        assert!(clock::now().since(begun).seconds() < 10.0, "{}", parts[0].description());
    }
    let mut dealt: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
    parts.into_iter().enumerate().for_each(|(number, part)| dealt[number % threads].push(part));
    let came = Mutex::new(Came { frames: vec![false; threads * FRAMES], of: vec![0; threads] });
    std::thread::scope(|scope| {
        let mut serving = Vec::new();
        for (thread, parts) in dealt.iter_mut().enumerate() {
            let came = &came;
            serving.push(scope.spawn(move || exchange_all(came, thread, parts)));
        }
        serving.into_iter().for_each(|thread| thread.join().unwrap());
    });
    dealt.iter().flatten().for_each(|part| assert_no_faults(part));
    let counters = || dealt.iter().flatten().map(Port::counters);
    let (received, transmitted) =
        counters().fold((0, 0), |sum, own| (sum.0 + own.received_frames, sum.1 + own.transmitted_frames));
    assert_eq!((received, transmitted), ((threads * FRAMES) as u64, (threads * FRAMES) as u64));
}

#[test]
fn threads_serve_the_pairs_of_stock_dpdk() {
    // Fewer pairs than parts, so that a thread has no ring of its own; more than threads.
    for (offered, queues, threads) in [(3, 2, 3), (4, 4, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let options = VhostOptions { queues: offered, ..options(&folder) };
        let device = format!("net_virtio_user0,path={},queues={queues}", options.socket);
        exchange_on_threads(VhostUser::open_queues(&options).unwrap(), &device, queues, threads);
    }
    let folder = tempfile::tempdir().unwrap();
    let options = VhostOptions { role: Role::Client, queues: 4, ..options(&folder) };
    let device = format!("net_vhost0,iface={},queues=4", options.socket);
    exchange_on_threads(VirtioUser::open_queues(&options).unwrap(), &device, 4, 3);
}

#[test]
fn stock_dpdk_is_connected_to_where_it_listens() {
    let folder = tempfile::tempdir().unwrap();
    let options = VhostOptions { role: Role::Client, ..options(&folder) };
    let mut port = VhostUser::open(&options).unwrap();
    let device = format!("net_virtio_user0,path={},server=1", options.socket);
    let Some(_testpmd) = start(&mut port, &device, &[]) else { return };
    exchange(&mut port, PLAIN, 10_000);
    assert_no_faults(&port);
}

#[test]
fn stock_dpdk_notices_nothing_when_its_backend_goes_on_in_another_process() {
    ["", ",packed_vq=1"].into_iter().for_each(goes_on_in_another_process);
}

fn goes_on_in_another_process(more: &str) {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder);
    let mut port = VhostUser::open(&options).unwrap();
    let device = format!("net_virtio_user0,path={}{more}", options.socket);
    let Some(_testpmd) = start(&mut port, &device, &[]) else { return };
    for _ in 0..5 {
        exchange(&mut port, PLAIN, 2_000);
        port = handed_over(port, &options);
        assert!(port.is_up(), "{}", port.description());
    }
    exchange(&mut port, PLAIN, 2_000);
    assert_eq!((detail(&port, "sessions"), detail(&port, "sessions_ended")), (1, 0), "{}", port.description());
    assert_no_faults(&port);
}

#[test]
fn stock_dpdk_is_the_backend_of_a_frontend_whoever_listens() {
    for (role, its) in [(Role::Client, ""), (Role::Server, ",client=1")] {
        let folder = tempfile::tempdir().unwrap();
        let options = VhostOptions { role, queues: 2, ..options(&folder) };
        let device = format!("net_vhost0,iface={}{its},queues=2", options.socket);
        let mut port = VirtioUser::open(&options).unwrap();
        let Some(testpmd) = start(&mut port, &device, &["--rxq=2", "--txq=2"]) else { return };
        exchange(&mut port, PLAIN, 10_000);
        assert!(port.description().contains("2 rings in and 2 out"), "{}", port.description());
        assert_no_faults(&port);
        drop(testpmd);
        see_it_go(&mut port);
    }
}

/// Addresses of this side and of the machine, Ethernet's and IP's.
const OWN: ([u8; 6], [u8; 4]) = ([2, 0, 0, 0, 0, 1], [10, 77, 0, 1]);
pub(crate) const MACHINE: ([u8; 6], [u8; 4]) = ([0x52, 0x54, 0, 0, 0, 2], [10, 77, 0, 2]);

/// Who has the machine's address?
fn question() -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &OWN.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend([&OWN.0[..], &OWN.1, &[0; 6], &MACHINE.1].concat());
    frame.resize(60, 0);
    frame
}

/// An echo request of so many bytes.
pub(crate) fn ping(length: usize, number: u16) -> Vec<u8> {
    let mut frame = [&MACHINE.0[..], &OWN.0, &[8, 0, 0x45, 0], &(length as u16 - 14).to_be_bytes()].concat();
    frame.extend([0, 0, 0x40, 0, 64, 1, 0, 0]);
    frame.extend([OWN.1, MACHINE.1].concat());
    frame.extend([8, 0, 0, 0, 0, 1]);
    frame.extend(number.to_be_bytes());
    frame.extend((42..length).map(|at| at as u8 ^ number as u8));
    for (from, to, at) in [(14, 34, 24), (34, length, 36)] {
        let sum = !checksum::fold(checksum::sum(&frame[from..to], 0));
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// The next frame of the machine that is for this side, of this protocol, within so many seconds.
fn heard(port: &mut VhostUser, protocol: u16, seconds: f64) -> Option<Vec<u8>> {
    let mut frame = [0; MAX_FRAME];
    let begun = clock::now();
    while clock::now().since(begun).seconds() < seconds {
        if let Receive::Frame { length, .. } = port.receive(clock::now(), &mut frame).unwrap()
            && frame[..6] == OWN.0
            && frame[12..14] == protocol.to_be_bytes()
        {
            return Some(frame[..length].to_vec());
        }
    }
    None
}

/// The same of one that must come.
fn answer(port: &mut VhostUser, machine: &Machine, protocol: u16) -> Vec<u8> {
    let said = |port: &VhostUser| {
        let (description, counters, details) = (port.description(), port.counters(), port.details());
        format!("{description}: {counters:?} {details:?}\n{}", machine.said())
    };
    heard(port, protocol, 20.0).unwrap_or_else(|| panic!("{}", said(port)))
}

fn send(port: &mut VhostUser, frame: &[u8]) {
    assert_eq!(port.transmit(clock::now(), frame).unwrap(), Transmit::Accepted, "{}", port.description());
    port.flush(clock::now()).unwrap();
}

/// The machine answers to requests of every size, each with what it was asked with.
pub(crate) fn answers(port: &mut VhostUser, machine: &Machine) {
    // Asked again, as everybody does: Linux drops what it sends in the moment before it has seen that its card has a carrier.
    let told = (0..20).find_map(|_| {
        send(port, &question());
        heard(port, 0x0806, 1.0)
    });
    assert_eq!(told.expect("the machine's address")[6..12], MACHINE.0);
    for number in 0..200 {
        let length = [60, 98, 512, 1514][usize::from(number) % 4];
        let asked = ping(length, number);
        send(port, &asked);
        let said = answer(port, machine, 0x0800);
        assert_eq!((said.len(), said[34], &said[38..]), (length, 0, &asked[38..]), "request {number}");
    }
}

#[test]
fn a_virtual_machine_is_reached_and_is_served_on_by_another_process_and_by_one_that_comes_later() {
    let Some((port, machine, options, _folder)) = served_on_by_another_process(",mq=on") else { return };
    // It goes, and another comes: QEMU tries again once in a second.
    drop(port);
    let mut port = VhostUser::open(&options).unwrap();
    let begun = clock::now();
    while !port.is_up() {
        let _ = port.receive(clock::now(), &mut [0; MAX_FRAME]).unwrap();
        assert!(clock::now().since(begun).seconds() < 30.0, "{}\n{}", port.description(), machine.said());
    }
    answers(&mut port, &machine);
    assert_no_faults(&port);
}

#[test]
fn a_virtual_machine_is_reached_by_packed_rings_and_is_served_on_by_another_process() {
    let Some((port, ..)) = served_on_by_another_process(",mq=on,packed=on") else { return };
    assert!(port.description().contains("out, packed"), "{}", port.description());
}

/// A machine whose card has these properties, and its port, which has been another process's.
fn served_on_by_another_process(card: &str) -> Option<(VhostUser, Machine, VhostOptions, tempfile::TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    // Sealed, as QEMU does by itself.
    let options = VhostOptions { unsealed: false, queues: 2, offload: true, ..options(&folder) };
    let mut port = VhostUser::open(&options).unwrap();
    let machine = Machine::start(&options.socket, "10.77.0.2", options.queues, card)?;
    machine.boot(|| {
        let _ = port.receive(clock::now(), &mut [0; MAX_FRAME]).unwrap();
    });
    answers(&mut port, &machine);
    port = handed_over(port, &options);
    answers(&mut port, &machine);
    assert_no_faults(&port);
    Some((port, machine, options, folder))
}

#[test]
fn a_text_says_what_the_port_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let spec: PortSpec = format!("vhost-user:{},queues=2,offload", path.display()).parse().unwrap();
    let mut ports = spec.open().unwrap();
    assert_eq!((ports.len(), ports[0].takes_unfinished(), path.exists()), (2, true, true));
    assert!(ports[0].description().starts_with("vhost-user server at"), "{}", ports[0].description());
    assert_eq!(ports[0].receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::None);
    drop(ports);
    assert!(!path.exists(), "the socket's file goes with its port");
    let wrong = ["vhost-user:", "vhost-user:a,role=x", "vhost-user:a,queues=0", "vhost-user:a,id=3"];
    assert!(wrong.into_iter().all(|text| text.parse::<PortSpec>().is_err()));
}
