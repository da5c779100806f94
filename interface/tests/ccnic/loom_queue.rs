//! The ring under every schedule and every ordering that C11 allows; and that each of its edges is needed.
//!
//! | edge | signal, packing | configuration in which it is the only one | weakened by |
//! |---|---|---|---|
//! | slot full, published as a line | `Clear`, `Phase`; grouped, padded | any ring | `RelaxedPublish`, `SignalFirst`; `RelaxedLoad` by the consumer |
//! | slot full, word by word | `Clear`, `Phase`; any | any ring | `RelaxedStore` by the producer; `RelaxedLoad` by the consumer |
//! | slot empty, cleared | `Clear`; any | one slot, two packets | `RelaxedStore` by the consumer; `RelaxedLoad` by the producer |
//! | slots empty, seen by the last of an eighth | `Clear`; any | sixteen slots, full, two cleared | the same |
//! | slots empty, credit | `Phase`; any | one slot, two packets | `RelaxedStore` and `RelaxedLoad` of `credit` |
//! | slots empty, head register | `Register`; any | one slot, two packets | the same |
//! | slots full, tail register | `Register`; any | any ring | `RelaxedStore` and `RelaxedLoad` of `tail` |
//! | retained payload read | `Clear`; `Phase`, `Register` | more slots than packets, one buffer | as for a cleared slot; as for a credit |
//! | payload in two lines | `Clear`, `Phase`; grouped, padded | two slots | `RelaxedPublish`, `SignalFirst`; `RelaxedLoad` by the consumer |
//!
//! Two orderings are stronger than they need be, and nothing can catch their weakening alone: the release of a payload's
//! second line (its reader comes by the first, which is published later), and the second acquire of a packed slot's word 0
//! (it was acquired when it was seen to be full). The seam has nothing weaker for a synchronising word.

use conic_check::{Caught, Exploration, LoomMemory, Mutation, Weaken, catches, explore, spawn};
use conic_fabric::{Address, Core, Home, Layout, Line, SynchronisingWords};
use conic_interface::ccnic::{Compiled, Consumer, Descriptor, Flags, Packing, Policy, Producer, RingMap, Signal};

/// Where the things of these models lie.
#[derive(Clone, Copy)]
struct Places {
    ring: RingMap,
    /// Lines that the producer sends from, one a packet.
    payload: Address,
    /// Lines that the consumer receives into.
    landing: Address,
}

fn layout<P: Policy>(slots: u64) -> (Layout, Places) {
    let words = match (P::SIGNAL, P::PACKING) {
        (Signal::Register, _) => SynchronisingWords::NONE,
        (_, Packing::Packed) => SynchronisingWords::EVERY_DESCRIPTOR,
        _ => SynchronisingWords::FIRST,
    };
    let mut layout = Layout::new();
    let ring = layout.add("ring", slots * P::SLOT_BYTES, 64, Home::Host, words);
    let credit = layout.add("credit", 64, 64, Home::Host, SynchronisingWords::FIRST);
    let doorbell = layout.add("tail", 64, 64, Home::Host, SynchronisingWords::FIRST);
    let payload = layout.add("payload", 4096, 64, Home::Host, SynchronisingWords::NONE);
    let landing = layout.add("landing", 4096, 64, Home::Host, SynchronisingWords::NONE);
    (layout, Places { ring: RingMap { ring, slots, credit, doorbell }, payload, landing })
}

/// What the producer does.
#[derive(Clone, Copy, Debug)]
struct Script {
    slots: u64,
    /// Packets of each call; each has a payload of its own.
    bursts: &'static [u64],
    /// All packets from one buffer, retained: it is written again once the packet before has been released.
    one_buffer: bool,
    /// Slots that were filled, and of which all are received but none released, before the two sides part.
    filled: u64,
}

impl Script {
    const fn new(slots: u64, bursts: &'static [u64]) -> Script {
        Script { slots, bursts, one_buffer: false, filled: 0 }
    }
}

/// A producer and a consumer, with payloads of one word.
fn exchange<P: Policy>(memory: &LoomMemory, places: Places, script: Script) {
    let (sender, receiver) = (memory.core("producer"), memory.core("consumer"));
    let mut producer = Producer::<P>::new(places.ring);
    let mut consumer = Consumer::<P>::new(places.ring, false, true);
    let mut out = [Descriptor::BLANK; 4];
    let filler = Descriptor::new(places.landing, 8);
    for _ in 0..script.filled {
        assert_eq!(producer.send(&sender, &[filler]), 1);
        assert_eq!(consumer.receive(&receiver, &mut out[..1], || None), 1);
    }
    let thread = spawn(move || {
        let mut number = 0;
        for &burst in script.bursts {
            let first = number;
            let packets = [0, 1, 2, 3].map(|index| {
                let buffer = if script.one_buffer { 0 } else { first + index };
                Descriptor::new(places.payload.lines(buffer), 8).with_metadata(first + index)
            });
            for packet in &packets[..burst as usize] {
                while script.one_buffer && producer.released(&sender) < number {
                    sender.spin();
                }
                sender.store(packet.address(), number + 1);
                number += 1;
            }
            let mut sent = 0;
            while sent < burst as usize {
                let count = producer.send(&sender, &packets[sent..burst as usize]);
                sent += count;
                if count == 0 {
                    sender.spin();
                }
            }
        }
        assert_eq!(producer.faults(), Default::default());
    });
    if script.filled > 0 {
        consumer.release(&receiver);
    }
    let packets: u64 = script.bursts.iter().sum();
    let mut number = 0;
    while number < packets {
        let count = consumer.receive(&receiver, &mut out, || None);
        for packet in &out[..count] {
            assert_eq!((packet.metadata, packet.length()), (number, 8));
            assert_eq!(receiver.load(packet.address()), number + 1);
            number += 1;
        }
        if count > 0 {
            consumer.release(&receiver);
        } else {
            receiver.spin();
        }
    }
    thread.join().expect("the producer ends");
}

fn passes<P: Policy>(exploration: Exploration, script: Script) -> u64 {
    let (layout, places) = layout::<P>(script.slots);
    let executions = explore(&layout, exploration, move |memory| exchange::<P>(memory, places, script));
    println!("{:?} {:?} {script:?}: {executions} executions", P::SIGNAL, P::PACKING);
    executions
}

fn races<P: Policy>(script: Script, mutation: Mutation) {
    let (layout, places) = layout::<P>(script.slots);
    let exploration = Exploration::full().weakened(mutation.clone());
    let Caught { message, .. } = catches(&layout, exploration, move |memory| exchange::<P>(memory, places, script));
    // Where only the last slot of several is looked at, nothing else orders the clear of a slot before the packet that is
    // written there next: the clear may come later, and the consumer waits in vain.
    let in_vain = script.filled > 0 && message.contains("maximum number of branches");
    let caught = message.contains("Causality violation") || in_vain;
    assert!(caught, "{:?} {:?} {mutation:?}: {message}", P::SIGNAL, P::PACKING);
}

const ONE_SLOT: Script = Script::new(1, &[1, 1]);
const TWO_SLOTS: Script = Script::new(2, &[1, 1, 1]);
const BURST: Script = Script::new(2, &[3, 2]);
const FOUR_PACKETS: Script = Script::new(2, &[1, 1, 1, 1]);
const ONE_BUFFER: Script = Script { one_buffer: true, ..Script::new(4, &[1, 1]) };
const EIGHTH: Script = Script { filled: 16, ..Script::new(16, &[1, 1]) };

/// Everything that a policy must stand, and the edges that it needs.
fn check<P: Policy>() {
    for script in [ONE_SLOT, ONE_BUFFER, TWO_SLOTS] {
        assert!(passes::<P>(Exploration::full(), script) > 1);
    }
    for script in [BURST, FOUR_PACKETS] {
        assert!(passes::<P>(Exploration::bounded(3), script) > 1);
    }
    let by_line = P::PACKING != Packing::Packed && P::WHOLE_LINE;
    // The way there.
    match P::SIGNAL {
        Signal::Register => {
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedStore).of("tail"));
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedLoad).of("tail"));
        }
        _ if by_line => {
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedPublish).of("ring"));
            races::<P>(ONE_SLOT, Mutation::new(Weaken::SignalFirst).of("ring"));
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedLoad).of("ring").by("consumer"));
        }
        _ => {
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedStore).of("ring").by("producer"));
            races::<P>(ONE_SLOT, Mutation::new(Weaken::RelaxedLoad).of("ring").by("consumer"));
        }
    }
    // The way back: the slot is written again, or the payload that was retained.
    for script in [ONE_SLOT, ONE_BUFFER] {
        let segment = if P::SIGNAL == Signal::Clear { "ring" } else { "credit" };
        races::<P>(script, Mutation::new(Weaken::RelaxedStore).of(segment).by("consumer"));
        races::<P>(script, Mutation::new(Weaken::RelaxedLoad).of(segment).by("producer"));
    }
    if P::SIGNAL == Signal::Clear {
        assert!(passes::<P>(Exploration::bounded(2), EIGHTH) > 1);
        races::<P>(EIGHTH, Mutation::new(Weaken::RelaxedStore).of("ring").by("consumer"));
        races::<P>(EIGHTH, Mutation::new(Weaken::RelaxedLoad).of("ring").by("producer"));
    }
}

#[test]
fn cleared_grouped() {
    check::<Compiled<0, 0, true>>();
}

#[test]
fn cleared_grouped_word_by_word() {
    check::<Compiled<0, 0, false>>();
}

#[test]
fn cleared_packed() {
    check::<Compiled<0, 1, true>>();
}

#[test]
fn cleared_padded() {
    check::<Compiled<0, 2, true>>();
}

#[test]
fn phase_grouped() {
    check::<Compiled<1, 0, true>>();
}

#[test]
fn phase_grouped_word_by_word() {
    check::<Compiled<1, 0, false>>();
}

#[test]
fn phase_packed() {
    check::<Compiled<1, 1, true>>();
}

#[test]
fn phase_padded() {
    check::<Compiled<1, 2, true>>();
}

#[test]
fn register_grouped() {
    check::<Compiled<2, 0, true>>();
}

#[test]
fn register_packed() {
    check::<Compiled<2, 1, true>>();
}

#[test]
fn register_padded() {
    check::<Compiled<2, 2, true>>();
}

/// A chain of two or three segments on a ring of one descriptor a slot: whole, or not there.
fn chain<P: Policy>(memory: &LoomMemory, places: Places, segments: u64) {
    let (sender, receiver) = (memory.core("producer"), memory.core("consumer"));
    let mut producer = Producer::<P>::new(places.ring);
    let mut consumer = Consumer::<P>::new(places.ring, false, true);
    let thread = spawn(move || {
        let mut packet = [Descriptor::BLANK; 4];
        for index in 0..segments {
            let at = places.payload.lines(index);
            sender.store(at, index + 1);
            let goes_on = if index + 1 < segments { Flags::NEXT } else { 0 };
            packet[index as usize] = Descriptor::new(at, 8).with(goes_on);
        }
        assert_eq!(producer.send(&sender, &packet[..segments as usize]), segments as usize);
    });
    let mut out = [Descriptor::BLANK; 4];
    let count = loop {
        match consumer.receive(&receiver, &mut out, || None) {
            0 => receiver.spin(),
            count => break count,
        }
    };
    assert_eq!(count as u64, segments, "a part of a packet was seen");
    for (index, segment) in out[..count].iter().enumerate() {
        assert_eq!(receiver.load(segment.address()), index as u64 + 1);
        assert_eq!(segment.has(Flags::NEXT), index + 1 < count);
    }
    thread.join().expect("the producer ends");
}

fn chains<P: Policy>() {
    for segments in 2..=4 {
        let (layout, places) = layout::<P>(4);
        assert!(explore(&layout, Exploration::full(), move |memory| chain::<P>(memory, places, segments)) > 1);
    }
}

#[test]
fn a_chain_is_seen_whole_or_not_at_all() {
    chains::<Compiled<0, 0, true>>();
    chains::<Compiled<0, 1, true>>();
    chains::<Compiled<0, 2, true>>();
    chains::<Compiled<1, 0, true>>();
    chains::<Compiled<1, 1, true>>();
    chains::<Compiled<1, 2, true>>();
    chains::<Compiled<2, 0, true>>();
    chains::<Compiled<2, 1, true>>();
    chains::<Compiled<2, 2, true>>();
}

/// Payloads of these lengths inside the ring; each sent from the same buffer, which is the producer's again at once.
fn in_the_ring<P: Policy>(memory: &LoomMemory, places: Places, lengths: &'static [u16]) {
    let (sender, receiver) = (memory.core("producer"), memory.core("consumer"));
    let mut producer = Producer::<P>::new(places.ring);
    let mut consumer = Consumer::<P>::new(places.ring, true, true);
    let thread = spawn(move || {
        for (number, &length) in (1u64..).zip(lengths) {
            for line in 0..u64::from(length).div_ceil(64) {
                sender.write_line(places.payload.lines(line), &Line([number; 8]));
            }
            let packet = Descriptor::new(places.payload, length).with_metadata(number);
            while !producer.send_inline(&sender, packet) {
                sender.spin();
            }
        }
    });
    let mut number = 0;
    while number < lengths.len() {
        let mut out = [Descriptor::BLANK; 1];
        if consumer.receive(&receiver, &mut out, || Some(places.landing.lines(2 * number as u64))) == 0 {
            receiver.spin();
            continue;
        }
        let length = lengths[number];
        number += 1;
        assert_eq!((out[0].length(), out[0].metadata), (length, number as u64));
        for word in 0..usize::from(length).div_ceil(8) {
            assert_eq!(receiver.load(out[0].address().word(word)), number as u64, "word {word} of packet {number}");
        }
        consumer.release(&receiver);
    }
    thread.join().expect("the producer ends");
}

fn inlines<P: Policy>() {
    for (slots, lengths, exploration) in [
        (1, &[48, 48][..], Exploration::full()),
        (2, &[104, 104], Exploration::full()),
        // The second line of the second packet, and of the third, lies at the ring's start.
        (2, &[16, 56, 104], Exploration::full()),
        (4, &[104, 8, 104], Exploration::full()),
    ] {
        let (layout, places) = layout::<P>(slots);
        let executions = explore(&layout, exploration, move |memory| in_the_ring::<P>(memory, places, lengths));
        println!("{:?} {:?} {lengths:?} on {slots} slots: {executions} executions", P::SIGNAL, P::PACKING);
        assert!(executions > 1);
    }
    let back = if P::SIGNAL == Signal::Clear { "ring" } else { "credit" };
    for mutation in [
        Mutation::new(Weaken::RelaxedPublish).of("ring"),
        Mutation::new(Weaken::SignalFirst).of("ring"),
        Mutation::new(Weaken::RelaxedLoad).of("ring").by("consumer"),
        Mutation::new(Weaken::RelaxedStore).of(back).by("consumer"),
        Mutation::new(Weaken::RelaxedLoad).of(back).by("producer"),
    ] {
        let (layout, places) = layout::<P>(2);
        let exploration = Exploration::full().weakened(mutation.clone());
        let caught = catches(&layout, exploration, move |memory| in_the_ring::<P>(memory, places, &[104, 104]));
        assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
    }
}

#[test]
fn payloads_in_the_ring_cleared() {
    inlines::<Compiled<0, 0, true>>();
    inlines::<Compiled<0, 2, true>>();
}

#[test]
fn payloads_in_the_ring_by_phase() {
    inlines::<Compiled<1, 0, true>>();
    inlines::<Compiled<1, 2, true>>();
}
