//! What a host asks for before it is read, and how much it works.

use std::cell::{Cell, RefCell};

use conic_check::{CrashMemory, Does, ToldCore};
use conic_fabric::Address;
use conic_interface::ccnic::{Descriptor, Features, Flags, Host, Map, Nic, PhaseCredit, prepare};
use conic_interface::work;

use crate::common::geometry;

/// Receives four packets, and then three; how many of their payloads were asked for, and how many other lines.
fn payloads_asked_for(leaves: bool) -> (usize, usize) {
    let map = Map::new(geometry(64, [64, 64, 4], 0), Features::best()).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    let asked = RefCell::new(Vec::new());
    let core = ToldCore::new(memory.core("host"), |does| {
        if let Does::Prefetch(at) = does {
            asked.borrow_mut().push(at);
        }
    });
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    if leaves {
        host.leave_payloads();
    }
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let mut received = Vec::new();
    for count in [4, 3] {
        let frames: Vec<_> = (0..count).map(|_| Descriptor::new(nic.rx_alloc(64).expect("a full pool"), 64)).collect();
        assert_eq!(nic.rx_burst(&frames), count);
        let mut out = [Descriptor::BLANK; 8];
        assert_eq!(host.rx_burst(&mut out), count);
        received.extend(out[..count].iter().map(|packet| packet.address()));
    }
    let asked = asked.borrow();
    let payloads = asked.iter().filter(|at| received.contains(at)).count();
    (payloads, asked.len() - payloads)
}

#[test]
fn payloads_are_asked_for_but_by_who_leaves_them() {
    let (payloads, others) = payloads_asked_for(false);
    assert_eq!(payloads, 7);
    assert!(others > 0, "no slot of the ring was asked for");
    assert_eq!(payloads_asked_for(true), (0, others));
}

/// The work of sending so many packets, and of learning that they were read.
fn work_of_sending(features: Features, flags: u8) -> [u32; 2] {
    let map = Map::new(geometry(64, [64, 64, 4], 4096), features).expect("a geometry that can be");
    let memory = CrashMemory::new(&map.layout);
    prepare(&memory.core("builder"), &map);
    let worked = Cell::new(0);
    let core = ToldCore::new(memory.core("host"), |does| {
        if let Does::Work(cycles) = does {
            worked.set(worked.get() + cycles);
        }
    });
    let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
    let mut nic = Nic::<_, PhaseCredit>::new(memory.core("nic"), &map, 0);
    let mut buffers = [Address(0); 4];
    assert_eq!(host.buf_alloc(1000, &mut buffers), 4);
    worked.set(0);
    let packets = buffers.map(|at| Descriptor::new(at, 200).with(flags));
    assert_eq!(host.tx_burst(&packets), 4);
    let sending = worked.take();
    let mut polled = [Descriptor::BLANK; 8];
    assert_eq!(nic.poll_tx(&mut polled), 4);
    nic.complete_tx(&polled[..4]);
    // Who finds nothing gives the credits back that are there.
    assert_eq!(nic.poll_tx(&mut polled), 0);
    host.completions(&mut [Descriptor::BLANK; 8]);
    [sending, worked.take()]
}

#[test]
fn what_comes_back_is_remembered_and_recalled_for_as_much_work_as_a_rings_descriptors() {
    let records = 4 * work::RECORD;
    let plain = work_of_sending(Features::best(), 0);
    assert_eq!(plain[1], 0, "none comes back");
    assert_eq!(work_of_sending(Features::best(), Flags::RETAIN), [plain[0] + records, records]);
    // All of a host's that manages the pool alone.
    let [sending, after] = work_of_sending(Features { shared_pool: false, ..Features::best() }, 0);
    assert_eq!(sending, plain[0] + records);
    assert!(after > records, "with the pool's");
}
