//! Gates of the link, each at its picosecond, and the rates that its formulas publish.

use super::*;

/// 16 lanes at 16 GT/s with 128b/130b coding; a tenth of it, nearly, for acknowledgements and flow control.
pub(super) fn gen4() -> PcieParameters {
    PcieParameters {
        megabits_per_second: 252_062,
        crossing: 150_000,
        max_payload: 256,
        max_read_request: 512,
        read_completion_boundary: 64,
        write_overhead: 24,
        read_overhead: 24,
        completion_overhead: 20,
        link_layer_permille: 98,
        tags: 256,
        posted_credits: 64,
        root_to_home: 60_000,
        core_to_root: 80_000,
        register_read: 300_000,
        uncached_store: 150_000,
        write_combining_flush: 300_000,
        access_bytes: 64,
    }
}

pub(super) fn gen5() -> PcieParameters {
    PcieParameters { megabits_per_second: 504_123, ..gen4() }
}

/// Time of so many bytes on the wire, from the parameters, rounded down to picoseconds.
pub(super) fn wire_time(p: &PcieParameters, bytes: u64) -> u64 {
    let bits_per_second = u128::from(p.megabits_per_second) * 1000 * u128::from(1000 - p.link_layer_permille);
    (u128::from(bytes) * 8 * 1_000_000_000_000 / bits_per_second) as u64
}

#[test]
fn on_an_idle_link_a_tlp_takes_its_wire_time_and_the_crossing() {
    let p = gen4();
    let now = 5_000_000;
    let takes = |bytes| wire_time(&p, bytes) + p.crossing;
    assert_eq!(PcieLink::new(&p).post_write(256, 0, now), Sent::Arrives(now + takes(256 + 24)));
    assert_eq!(PcieLink::new(&p).request_read(0, now), Sent::Arrives(now + takes(24)));
    assert_eq!(PcieLink::new(&p).complete_register_read(8, 0, now), Sent::Arrives(now + takes(8 + 20)));
    assert_eq!(PcieLink::new(&p).post_register_write(4, now), now + takes(4 + 24));
    assert_eq!(PcieLink::new(&p).request_register_read(now), now + takes(24));
    assert_eq!(PcieLink::new(&p).complete(0, 64, now, |_, _| ()), now + takes(64 + 20));
    assert_eq!(
        PcieLink::new(&p).complete(0, 512, now, |_, _| ()),
        now + takes(2 * (256 + 20)),
        "the last of two completions"
    );
    assert_eq!(PcieLink::new(&p).wire_time(280), wire_time(&p, 280));
}

#[test]
fn a_tlp_waits_while_the_wire_is_taken_and_not_a_picosecond_longer() {
    let p = gen4();
    let first = wire_time(&p, 256 + 24);
    for (ready, starts) in [(0, first), (first - 1, first), (first + 1, first + 1)] {
        let mut link = PcieLink::new(&p);
        link.post_write(256, 0, 0);
        assert_eq!(link.free_from(Way::ToRoot), first);
        let Sent::Arrives(arrival) = link.request_read(1, ready) else { panic!("credits are free") };
        // Where it follows at once, the part of a picosecond that the first left is its own.
        let carried = u64::from(starts == first) * (wire_time(&p, 280 + 24) - first - wire_time(&p, 24));
        assert_eq!(arrival, starts + wire_time(&p, 24) + carried + p.crossing, "ready at {ready}");
    }
}

#[test]
fn directions_do_not_wait_for_each_other() {
    let p = gen4();
    let mut link = PcieLink::new(&p);
    for _ in 0..10 {
        link.post_write(256, 0, 0);
    }
    assert_eq!(link.free_from(Way::ToDevice), 0);
    assert_eq!(link.post_register_write(4, 0), wire_time(&p, 28) + p.crossing);
}

#[test]
fn nothing_passes_a_posted_write_on_a_random_run_with_few_credits() {
    let mut link = PcieLink::new(&PcieParameters { posted_credits: 3, ..gen4() });
    let mut arrived: Vec<(u32, u64)> = Vec::new();
    let mut number = 1;
    let mut waited = 0;
    let tlps = 20_000;
    for id in 0..tlps {
        number = crate::link::mix(number);
        let now = u64::from(id) * 1_500;
        let bytes = (number >> 8) as u32 % 64 * 4;
        let sent = match number % 3 {
            0 => link.post_write(bytes, id, now),
            1 => link.request_read(id, now),
            _ => link.complete_register_read(bytes, id, now),
        };
        match sent {
            Sent::Arrives(arrival) => arrived.push((id, arrival)),
            Sent::Waits => waited += 1,
        }
        if (number >> 32).is_multiple_of(3) && link.write_credits().taken() > 0 {
            link.give_write_credit(now, |id, arrival| arrived.push((id, arrival)));
        }
    }
    while link.waiting() > 0 {
        link.give_write_credit(u64::from(tlps) * 1_500, |id, arrival| arrived.push((id, arrival)));
    }
    assert!(arrived.iter().map(|&(id, _)| id).eq(0..tlps), "a TLP was lost or passed another");
    assert!(arrived.is_sorted_by_key(|&(_, arrival)| arrival), "a TLP arrived before one that left earlier");
    assert!(waited > 1_000, "only {waited} TLPs waited: the run hardly tested it");
}

#[test]
fn towards_the_device_nothing_passes_a_posted_write_either() {
    let p = gen4();
    let mut link = PcieLink::new(&p);
    let write = wire_time(&p, 64 + 24);
    assert_eq!(link.post_register_write(64, 0), write + p.crossing);
    let completion = wire_time(&p, 64 + 24 + 64 + 20);
    assert_eq!(link.complete(0, 64, 0, |_, _| ()), completion + p.crossing);
    assert_eq!(link.request_register_read(0), wire_time(&p, 64 + 24 + 64 + 20 + 24) + p.crossing);
}

#[test]
fn a_write_waits_for_a_credit_and_everything_behind_it_waits_too() {
    let p = PcieParameters { posted_credits: 2, ..gen4() };
    let mut link = PcieLink::new(&p);
    assert!(matches!(link.post_write(64, 0, 0), Sent::Arrives(_)));
    assert!(matches!(link.request_read(1, 0), Sent::Arrives(_)), "a read needs no write credit");
    assert!(matches!(link.post_write(64, 2, 0), Sent::Arrives(_)));
    assert!(matches!(link.request_read(3, 0), Sent::Arrives(_)), "credits are gone, but no write waits");
    assert_eq!(link.post_write(64, 4, 0), Sent::Waits);
    assert_eq!(link.request_read(5, 0), Sent::Waits);
    assert_eq!(link.complete_register_read(8, 6, 0), Sent::Waits);
    assert_eq!(link.post_write(64, 7, 0), Sent::Waits);
    assert_eq!(link.request_read(8, 0), Sent::Waits);
    assert_eq!(link.waiting(), 5);

    let mut sent = Vec::new();
    let now = 1_000_000;
    link.give_write_credit(now, |id, arrival| sent.push((id, arrival)));
    let on_wire = |bytes: u64| now + wire_time(&p, bytes) + p.crossing;
    assert_eq!(sent, [(4, on_wire(88)), (5, on_wire(88 + 24)), (6, on_wire(88 + 24 + 28))]);
    sent.clear();
    link.give_write_credit(2_000_000, |id, _| sent.push((id, 0)));
    assert_eq!(sent, [(7, 0), (8, 0)]);
    link.give_write_credit(3_000_000, |_, _| panic!("nothing waits"));
    assert_eq!(link.write_credits().taken(), 1);
}

#[test]
fn a_read_takes_a_tag_for_each_request_and_waits_without_being_on_the_wire() {
    let p = PcieParameters { tags: 3, ..gen4() };
    let mut link = PcieLink::new(&p);
    let requests: Vec<_> = link.tlps().reads(0, 1500).collect();
    assert_eq!(requests.len(), 3);
    for _ in &requests {
        assert!(link.tags().take(1, 0));
        link.request_read(1, 0);
    }
    assert!(!link.tags().take(2, 0), "the fourth read has no tag");
    let behind = wire_time(&p, 3 * 24);
    assert_eq!(
        link.post_write(64, 3, 0),
        Sent::Arrives(behind + wire_time(&p, 72 + 88) - wire_time(&p, 72) + p.crossing)
    );
    assert_eq!(link.tags().give(900_000), Some(2));
}

/// Gigabits of data a second in one direction, of many writes or reads of `size` bytes, back to back.
fn saturated(p: &PcieParameters, size: u64, read: bool) -> f64 {
    let mut link = PcieLink::new(&PcieParameters { posted_credits: 1_000_000, ..p.clone() });
    let accesses = 10_000;
    let mut last = 0;
    for _ in 0..accesses {
        let (writes, reads) = (link.tlps().writes(0, size), link.tlps().reads(0, size));
        if read {
            for (at, bytes) in reads {
                last = link.complete(at, bytes, 0, |_, _| ());
            }
        } else {
            for (at, bytes) in writes {
                let sent = link.post_write(Tlps::data_bytes(at, bytes), 0, 0);
                let Sent::Arrives(arrival) = sent else { panic!("there are credits for all") };
                last = arrival;
            }
        }
    }
    (accesses * size * 8) as f64 / (last - p.crossing) as f64 * 1000.0
}

#[test]
fn saturated_links_reach_the_published_rates() {
    // The rates of the pcie-model of pcie-bench, x16, MPS 256: 227.4 and 454.8 Gb/s for TLPs after the link layer.
    for (p, size, write, read) in [
        (gen4(), 64, 165.4, 173.3),
        (gen4(), 256, 207.9, 210.9),
        (gen5(), 64, 330.8, 346.5),
        (gen5(), 256, 415.8, 421.8),
    ] {
        for (is_read, published) in [(false, write), (true, read)] {
            let rate = saturated(&p, size, is_read);
            assert!((rate - published).abs() <= 0.1, "{size} bytes, read {is_read}: {rate}, published {published}");
        }
    }
}

#[test]
fn other_payloads_come_near_the_published_rates() {
    // The share of acknowledgements falls with the payload, which a constant share leaves out: within 2 %.
    for (max_payload, write, read) in [(512, 438.0, 441.0), (128, 376.0, 386.0)] {
        let p = PcieParameters { max_payload, ..gen5() };
        for (is_read, published) in [(false, write), (true, read)] {
            let rate = saturated(&p, u64::from(max_payload), is_read);
            assert!((rate / published - 1.0).abs() < 0.02, "MPS {max_payload}: {rate}, published {published}");
        }
    }
}

#[test]
fn counters_hold_what_was_carried() {
    let mut link = PcieLink::new(&gen4());
    link.post_write(256, 0, 0);
    link.request_read(0, 0);
    link.complete(0, 512, 0, |_, _| ());
    link.post_register_write(4, 0);
    let expected = WireCounters { writes: 1, reads: 1, completions: 0, data_bytes: 256, wire_bytes: 280 + 24 };
    assert_eq!(link.counters(Way::ToRoot), expected);
    let expected = WireCounters { writes: 1, reads: 0, completions: 2, data_bytes: 516, wire_bytes: 552 + 28 };
    assert_eq!(link.counters(Way::ToDevice), expected);
}

#[test]
#[should_panic(expected = "pcie.link_layer_permille is 1000")]
fn a_link_layer_that_takes_everything_is_refused() {
    PcieLink::new(&PcieParameters { link_layer_permille: 1000, ..gen4() });
}
