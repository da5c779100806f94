//! Pushes into the host's cache, on the modelled machine: what they save, the gate that turns them off, and lines that are taken out
//! of the cache again.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Core, Home, Layout, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::cxl::{Homes, Host, PushControl, Receiver, Requests, Shape, Signal};
use conic_sim::Role;
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::platform::Platform;

/// How long the host's read of each of three packets' first words takes, in nanoseconds, 10 us after it came. Each packet is of one
/// byte, which is checked. Pushed packets are written back after so many cycles of the device's clock, of 2.5 ns.
fn reads(pushes: bool, write_back: Option<u32>) -> Vec<f64> {
    let machine = Platform::<CxlParameters>::load_as("agilex7").expect("a platform that comes").parameters().clone();
    let mut layout = Layout::new();
    let homes = Homes { rx_buffers: Home::Nic, ..Homes::HOST };
    let queues = Shape { homes, ..Shape::for_packets(256) }.place(&mut layout).expect("a shape that can be");
    let mut simulation = CxlSimulation::new(&machine, &layout);
    let taken = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        let mut host = Host::new(queues, *core, Signal::Descriptor);
        let mut control = PushControl::new(*core, vec![queues]);
        control.allow(pushes);
        control.write_back_after(write_back.unwrap_or(0));
        for number in 1..=3_u64 {
            core.wait_until(Time::from_nanoseconds(100_000 * number + 10_000));
            let mut packets = [Packet::BLANK];
            assert_eq!(host.rx_burst(&mut packets), 1);
            let start = core.now();
            assert_eq!(core.load(packets[0].address()), 0x0101_0101_0101_0101 * number);
            into.borrow_mut().push(core.now().since(start).picoseconds() as f64 / 1000.0);
            // The same buffer comes again: it was freed last.
            host.buf_free(&[packets[0].address()]);
        }
    });
    simulation.device("NIC", Role::Service, move |device| {
        let mut receiver = Receiver::new(queues, *device, Requests::PUSHED, 4);
        for number in 1..=3_u64 {
            device.wait_until(Time::from_nanoseconds(100_000 * number));
            assert_eq!(receiver.deliver(&[[number as u8; 256]]), 1);
            // Until the next packet comes.
            let until = Time::from_nanoseconds(100_000 * (number + 1));
            while let Some(due) = receiver.next_due().filter(|due| *due < until) {
                device.wait_until(due);
                receiver.prefetch();
            }
        }
        device.wait_until(Time::NEVER);
    });
    simulation.run().expect("it ends");
    drop(simulation);
    taken.take()
}

#[test]
fn a_pushed_packet_is_read_out_of_the_cache_and_another_over_the_link() {
    assert!(reads(true, None).iter().all(|time| *time < 60.0), "{:?}", reads(true, None));
    assert!(reads(false, None).iter().all(|time| *time > 350.0), "{:?}", reads(false, None));
}

#[test]
fn a_packet_that_was_taken_out_of_the_cache_is_read_over_the_link_and_right() {
    let soon = reads(true, Some(1_200));
    assert!(soon.iter().all(|time| *time > 350.0), "{soon:?}");
    // Later than the host reads: the push still serves.
    let late = reads(true, Some(6_000));
    assert!(late.iter().all(|time| *time < 60.0), "{late:?}");
}

#[test]
fn a_buffer_that_was_pushed_anew_is_not_overwritten_by_what_it_held() {
    // Due after the next packet into it has come.
    for time in reads(true, Some(42_000)) {
        assert!(time < 60.0);
    }
}
