//! What may be chosen of a design: every choice, the designs that have each value of it, and in what two designs differ.

use conic_fabric::{Home, StateHint};
use conic_interface::cxl::{MOST_IN_A_BATCH, Signal, Store};

use super::Design;

const NC: StateHint = StateHint::NonCacheable;
const PUSH: StateHint = StateHint::NonCacheablePush;
const SHARED: StateHint = StateHint::CacheableShared;
pub(super) const OWNED: StateHint = StateHint::CacheableOwned;

/// A hint's name in the paper.
pub fn hint_name(hint: StateHint) -> &'static str {
    match hint {
        StateHint::NonCacheable => "NC",
        StateHint::NonCacheablePush => "NC-P",
        StateHint::CacheableShared => "CS",
        StateHint::CacheableOwned => "CO",
    }
}

/// Which half of a NIC a choice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// From the device to the host.
    Receive,
    /// From the host to the device.
    Transmit,
}

/// What is searched together: choices that bear on each other more than on the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    ReceivePackets,
    ReceiveDescriptors,
    TransmitPackets,
    TransmitDescriptors,
}

impl Group {
    pub(super) const ALL: [Group; 4] =
        [Group::ReceivePackets, Group::ReceiveDescriptors, Group::TransmitPackets, Group::TransmitDescriptors];

    pub(super) fn half(self) -> Half {
        match self {
            Group::ReceivePackets | Group::ReceiveDescriptors => Half::Receive,
            Group::TransmitPackets | Group::TransmitDescriptors => Half::Transmit,
        }
    }
}

/// One thing that may be chosen: its name, what a design has of it, and how a design takes it from another.
pub(super) struct Choice {
    pub(super) what: &'static str,
    pub(super) half: Half,
    pub(super) of: fn(&Design) -> String,
    pub(super) take: fn(&mut Design, &Design),
    /// A design with each value that may be chosen.
    values: fn(Design) -> Vec<Design>,
}

fn home_name(home: Home) -> &'static str {
    if home == Home::Host { "host memory" } else { "device memory" }
}

fn count_name(count: usize) -> String {
    count.to_string()
}

fn kept_name(hint: Option<StateHint>) -> &'static str {
    hint.map_or("as prefetched", hint_name)
}

fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::Descriptor => "descriptor",
        Signal::Tail => "tail in memory",
        Signal::Doorbell => "doorbell",
    }
}

/// Request types of what the device reads, and of what it writes.
const READS: [StateHint; 3] = [NC, SHARED, OWNED];
const WRITES: [StateHint; 3] = [NC, PUSH, OWNED];
/// The same of the descriptor that is read again when its packet has come, or not.
const AGAIN: [Option<StateHint>; 4] = [None, Some(NC), Some(SHARED), Some(OWNED)];
const SIGNALS: [Signal; 3] = [Signal::Descriptor, Signal::Tail, Signal::Doorbell];
const HOMES: [Home; 2] = [Home::Host, Home::Nic];
/// Packets of a batch.
const RECEIVED: std::ops::RangeInclusive<usize> = 1..=MOST_IN_A_BATCH;
const TRANSMITTED: std::ops::RangeInclusive<usize> = 1..=128;

/// A [`Choice`] of a request type, of a structure's home or of a batch: the field of a design that it is.
macro_rules! choice {
    ($half:ident, $what:literal, $name:path, $values:expr, $($field:ident).+) => {
        Choice {
            what: $what,
            half: Half::$half,
            of: |design| $name(design.$($field).+).to_string(),
            take: |design, from| design.$($field).+ = from.$($field).+,
            values: |design| {
                let values: Vec<_> = $values.into_iter().collect();
                each(&[design], &values, |design, value| design.$($field).+ = *value)
            },
        }
    };
}

pub(super) const CHOICES: &[Choice] = &[
    choice!(Receive, "descriptor prefetch", hint_name, READS, requests.rx_prefetch),
    choice!(Receive, "receive descriptor", kept_name, AGAIN, requests.rx_descriptor),
    choice!(Receive, "receive packet", hint_name, WRITES, requests.rx_packet),
    choice!(Receive, "receive completion", hint_name, WRITES, requests.rx_completion),
    choice!(Receive, "receive ring", home_name, HOMES, homes.rx_ring),
    choice!(Receive, "receive buffers", home_name, HOMES, homes.rx_buffers),
    choice!(Receive, "receive batch", count_name, RECEIVED, receive_batch),
    choice!(Transmit, "signal of a packet", signal_name, SIGNALS, requests.tx_signal),
    choice!(Transmit, "polling for it", hint_name, READS, requests.tx_poll),
    choice!(Transmit, "further descriptors", hint_name, READS, requests.tx_descriptor),
    choice!(Transmit, "transmit packet", hint_name, READS, requests.tx_packet),
    choice!(Transmit, "transmit completion", hint_name, WRITES, requests.tx_completion),
    choice!(Transmit, "transmit ring", home_name, HOMES, homes.tx_ring),
    Choice {
        what: "transmit buffers",
        half: Half::Transmit,
        of: |design| {
            let store = if design.store == Store::Cached { "cached stores" } else { "non-temporal stores" };
            let bias = if design.device_bias { ", device-bias" } else { "" };
            format!("{}, {store}{bias}", home_name(design.homes.tx_buffers))
        },
        take: |design, from| {
            design.homes.tx_buffers = from.homes.tx_buffers;
            (design.store, design.device_bias) = (from.store, from.device_bias);
        },
        values: |design| each(&[design], &transmit_buffers(true), place_transmit_buffers),
    },
    choice!(Transmit, "transmit batch", count_name, TRANSMITTED, transmit_batch),
];

/// Homes that a structure may have.
fn homes(memory: bool) -> Vec<Home> {
    if memory { HOMES.to_vec() } else { vec![Home::Host] }
}

/// Where transmit buffers may lie, how the host stores them, and whether the device asks before it reads them. Device-bias needs
/// stores that leave the host no copy.
fn transmit_buffers(memory: bool) -> Vec<(Home, Store, bool)> {
    let mut all = vec![(Home::Host, Store::Cached, false), (Home::Host, Store::Nontemporal, false)];
    if memory {
        all.extend([
            (Home::Nic, Store::Cached, false),
            (Home::Nic, Store::Nontemporal, false),
            (Home::Nic, Store::Nontemporal, true),
        ]);
    }
    all
}

fn place_transmit_buffers(design: &mut Design, (home, store, device_bias): &(Home, Store, bool)) {
    design.homes.tx_buffers = *home;
    (design.store, design.device_bias) = (*store, *device_bias);
}

/// Designs of one group, the rest as in `base`.
pub(super) fn designs(group: Group, base: Design, memory: bool, batches: &[usize]) -> Vec<Design> {
    let mut all = vec![base];
    match group {
        Group::ReceivePackets => {
            all = each(&all, &WRITES, |design, hint| design.requests.rx_packet = *hint);
            all = each(&all, &WRITES, |design, hint| design.requests.rx_completion = *hint);
            all = each(&all, &homes(memory), |design, home| design.homes.rx_ring = *home);
            all = each(&all, &homes(memory), |design, home| design.homes.rx_buffers = *home);
            all = each(&all, batches, |design, batch| design.receive_batch = *batch);
        }
        Group::ReceiveDescriptors => {
            all = each(&all, &READS, |design, hint| design.requests.rx_prefetch = *hint);
            all = each(&all, &AGAIN, |design, hint| design.requests.rx_descriptor = *hint);
        }
        Group::TransmitPackets => {
            all = each(&all, &READS, |design, hint| design.requests.tx_poll = *hint);
            all = each(&all, &READS, |design, hint| design.requests.tx_packet = *hint);
            all = each(&all, &homes(memory), |design, home| design.homes.tx_ring = *home);
            all = each(&all, &transmit_buffers(memory), place_transmit_buffers);
            all = each(&all, batches, |design, batch| design.transmit_batch = *batch);
        }
        Group::TransmitDescriptors => {
            all = each(&all, &SIGNALS, |design, signal| design.requests.tx_signal = *signal);
            all = each(&all, &READS, |design, hint| design.requests.tx_descriptor = *hint);
            all = each(&all, &WRITES, |design, hint| design.requests.tx_completion = *hint);
        }
    }
    all
}

/// Each of some designs with each of some values.
fn each<T>(designs: &[Design], values: &[T], set: impl Fn(&mut Design, &T)) -> Vec<Design> {
    let with = |design: &Design, value: &T| {
        let mut design = *design;
        set(&mut design, value);
        design
    };
    designs.iter().flat_map(|design| values.iter().map(|value| with(design, value)).collect::<Vec<_>>()).collect()
}

/// A design with the receive half of one and the transmit half of another.
pub(super) fn joined(receive: &Design, transmit: &Design) -> Design {
    let mut design = *transmit;
    for choice in CHOICES.iter().filter(|choice| choice.half == Half::Receive) {
        (choice.take)(&mut design, receive);
    }
    design
}

/// The choices in which a design differs from another, and the design with the other's choice.
pub(super) fn differences<'a>(
    design: &'a Design,
    from: &'a Design,
) -> impl Iterator<Item = (&'static Choice, Design)> + 'a {
    CHOICES.iter().filter(|choice| (choice.of)(design) != (choice.of)(from)).map(|choice| {
        let mut other = *design;
        (choice.take)(&mut other, from);
        (choice, other)
    })
}

/// What a design has of everything that may be chosen.
pub fn described(design: &Design) -> Vec<(&'static str, String)> {
    CHOICES.iter().map(|choice| (choice.what, (choice.of)(design))).collect()
}

/// A design with another choice of one thing, both by the names that [`described`] gives them; hyphens may stand for their spaces.
///
/// # Errors
///
/// What there is to choose from, where there is no such thing or no such choice.
pub fn choose(design: &Design, what: &str, chosen: &str) -> Result<Design, String> {
    let is = |name: &str, given: &str| name.replace('-', " ") == given.replace('-', " ");
    let Some(choice) = CHOICES.iter().find(|choice| is(choice.what, what)) else {
        let all: Vec<&str> = CHOICES.iter().map(|choice| choice.what).collect();
        return Err(format!("there is no choice of \"{what}\": give one of {}", all.join(", ")));
    };
    let values = (choice.values)(*design);
    let found = values.iter().find(|design| is(&(choice.of)(design), chosen));
    found.copied().ok_or_else(|| {
        let all: Vec<String> = values.iter().map(choice.of).collect();
        let all = match &all[..] {
            [first, .., last] if all.len() > 8 => format!("{first} to {last}"),
            _ => format!("one of {}", all.join("; ")),
        };
        let what = choice.what;
        format!("\"{chosen}\" is no choice of {what}: give {all}")
    })
}
