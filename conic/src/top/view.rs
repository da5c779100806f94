//! Two samples made rows: rates, drops by reason.

use serde::Serialize;

use super::sample::{Client, Counts, Identity, Port, Sample, ticks_a_second};
use super::wait::Wait;

/// What is shown.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// For programs.
    pub schema: &'static str,
    /// The daemon's process.
    pub process: i32,
    /// Seconds between the two samples.
    pub seconds: f64,
    /// Networks, in their order.
    pub networks: Vec<NetworkRow>,
    /// Clients.
    pub clients: Vec<ClientRow>,
    /// Ports, network by network.
    pub ports: Vec<PortRow>,
    /// What was dropped or refused, the most at this moment first.
    pub drops: Vec<DropRow>,
}

/// Frames and bits, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Frames a second.
    pub frames: f64,
    /// Bits a second, of frames without their check sequence.
    pub bits: f64,
}

/// A network.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkRow {
    /// Its name.
    pub name: String,
    /// How it joins its members.
    pub mode: String,
    /// Its clients.
    pub clients: usize,
    /// Their queue pairs.
    pub queues: u32,
    /// Its ports.
    pub ports: usize,
    /// Frames that its members gave it.
    pub rate: Rate,
    /// The part of a core that its threads used, if that is known.
    pub core: Option<f64>,
    /// How long what comes waits for a look, on all its threads together; nothing where none was awake.
    pub wait: Option<Wait>,
    /// The same of each of its threads.
    pub threads: Vec<ThreadRow>,
}

/// A thread of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Its number.
    pub thread: usize,
    /// How long what comes waits for a look.
    pub wait: Option<Wait>,
}

/// A client.
#[derive(Clone, Debug, Serialize)]
pub struct ClientRow {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// What it sent.
    pub sent: Rate,
    /// What it received.
    pub received: Rate,
    /// Frames dropped, since it attached.
    pub drops: u64,
    /// What it did that it should not have, since it attached.
    pub faults: u64,
}

/// A port.
#[derive(Clone, Debug, Serialize)]
pub struct PortRow {
    /// Its number in the network, if that is known.
    pub number: Option<usize>,
    /// What it was asked to be.
    pub spec: String,
    /// Its network.
    pub network: String,
    /// Whether there is somebody at the other end.
    pub up: bool,
    /// What left by it.
    pub sent: Rate,
    /// What came by it.
    pub received: Rate,
    /// Frames dropped or refused, since it was opened.
    pub drops: u64,
}

/// A reason for which frames or buffers were dropped or refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DropRow {
    /// Whose: a client or a port.
    pub of: String,
    /// The counter's name.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// How many a second.
    pub rate: f64,
}

/// By what clients are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Session,
    Sent,
    Received,
    Drops,
}

impl Order {
    /// The one after this.
    pub fn next(self) -> Order {
        match self {
            Order::Session => Order::Sent,
            Order::Sent => Order::Received,
            Order::Received => Order::Drops,
            Order::Drops => Order::Session,
        }
    }
}

/// Counters that say that something was lost.
fn is_loss(name: &str) -> bool {
    ["dropped_", "skipped_", "refused_"].iter().any(|kind| name.starts_with(kind)) || name == "missed"
}

fn losses(counts: &Counts) -> u64 {
    counts.iter().filter(|(name, _)| is_loss(name)).map(|(_, count)| count).sum()
}

/// What a counter gained in a second. One that is less than before belongs to somebody new, and began at zero.
fn gain(before: Option<&Counts>, now: &Counts, name: &str, seconds: f64) -> f64 {
    let was = before.and_then(|counts| counts.get(name)).copied().unwrap_or(0);
    let is = now.get(name).copied().unwrap_or(0);
    let gained = if is >= was { is - was } else { is };
    if seconds > 0.0 { gained as f64 / seconds } else { 0.0 }
}

fn rate(before: Option<&Counts>, now: &Counts, kind: &str, seconds: f64) -> Rate {
    let of = |what| gain(before, now, &format!("{kind}_{what}"), seconds);
    Rate { frames: of("frames"), bits: 8.0 * of("bytes") }
}

/// The same of several kinds together.
fn whole_rate(before: Option<&Counts>, now: &Counts, kinds: [&str; 2], seconds: f64) -> Rate {
    let [one, other] = kinds.map(|kind| rate(before, now, kind, seconds));
    Rate { frames: one.frames + other.frames, bits: one.bits + other.bits }
}

impl View {
    /// What happened between two samples.
    pub fn of(before: &Sample, now: &Sample, order: Order) -> View {
        let seconds = now.at.since(before.at).seconds();
        let mut view = View {
            schema: "conic.top/1",
            process: now.process,
            seconds,
            networks: Vec::new(),
            clients: Vec::new(),
            ports: Vec::new(),
            drops: Vec::new(),
        };
        // A daemon that was started anew begins at zero.
        let same = before.process == now.process;
        for client in &now.list.clients {
            let earlier =
                before.list.clients.iter().find(|one| same && one.identity.session == client.identity.session);
            view.add_client(earlier, client, seconds);
        }
        for network in &now.list.networks {
            let earlier = before.list.networks.iter().find(|one| same && one.name == network.name);
            for (index, port) in network.ports.iter().enumerate() {
                // Ports come and go: where they are numbered, their numbers are nobody else's.
                let earlier = earlier.and_then(|network| match port.number {
                    Some(_) => network.ports.iter().find(|one| one.number == port.number),
                    None => network.ports.get(index),
                });
                let earlier = earlier.filter(|one| one.spec == port.spec);
                view.add_port(earlier, port, &network.name, seconds);
            }
        }
        view.add_networks(before, now, same);
        view.drops.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.count.cmp(&a.count)));
        view.sort(order);
        view
    }

    /// Sorts clients; those that are equal by their session.
    pub fn sort(&mut self, order: Order) {
        self.clients.sort_by_key(|client| client.identity.session);
        match order {
            Order::Session => {}
            Order::Sent => self.clients.sort_by(|a, b| b.sent.frames.total_cmp(&a.sent.frames)),
            Order::Received => self.clients.sort_by(|a, b| b.received.frames.total_cmp(&a.received.frames)),
            Order::Drops => self.clients.sort_by_key(|client| std::cmp::Reverse(client.drops)),
        }
    }

    fn add_networks(&mut self, before: &Sample, now: &Sample, same: bool) {
        for (index, network) in now.list.networks.iter().enumerate() {
            let members = || self.clients.iter().filter(|client| client.identity.network == network.name);
            let given = members().map(|client| client.sent);
            let given =
                given.chain(self.ports.iter().filter(|port| port.network == network.name).map(|port| port.received));
            let sum = |a: Rate, b: Rate| Rate { frames: a.frames + b.frames, bits: a.bits + b.bits };
            let core = match (before.ran.get(&index), now.ran.get(&index)) {
                (Some(was), Some(is)) if same && self.seconds > 0.0 => {
                    Some(is.saturating_sub(*was) as f64 / ticks_a_second() as f64 / self.seconds)
                }
                _ => None,
            };
            let earlier = before.list.networks.iter().find(|one| same && one.name == network.name);
            let earlier = earlier.map_or(&[][..], |one| &one.looks);
            let threads = network.looks.iter().map(|looks| ThreadRow {
                thread: looks.thread,
                wait: Wait::between(earlier, std::slice::from_ref(looks)),
            });
            self.networks.push(NetworkRow {
                wait: Wait::between(earlier, &network.looks),
                threads: threads.collect(),
                name: network.name.clone(),
                mode: network.mode.clone(),
                clients: members().count(),
                queues: members().map(|client| client.identity.queues).sum(),
                ports: network.ports.len(),
                rate: given.fold(Rate::default(), sum),
                core,
            });
        }
    }

    fn add_client(&mut self, before: Option<&Client>, now: &Client, seconds: f64) {
        let mut identity = now.identity.clone();
        if identity.name.is_empty() {
            identity.name.push('-');
        }
        let (counters, faults) = (before.map(|one| &one.counters), before.map(|one| &one.faults));
        let of = format!("client {} {}", identity.session, identity.name);
        self.add_drops(&of, counters, &now.counters, seconds, is_loss);
        self.add_drops(&of, faults, &now.faults, seconds, |_| true);
        self.clients.push(ClientRow {
            identity,
            sent: rate(counters, &now.counters, "sent", seconds),
            received: rate(counters, &now.counters, "received", seconds),
            drops: losses(&now.counters),
            faults: now.faults.values().sum(),
        });
    }

    fn add_port(&mut self, before: Option<&Port>, now: &Port, network: &str, seconds: f64) {
        let (own, switch) = (before.map(|one| &one.counters), before.map(|one| &one.switch));
        let of = format!("port {}", now.spec);
        self.add_drops(&of, own, &now.counters, seconds, is_loss);
        self.add_drops(&of, switch, &now.switch, seconds, is_loss);
        self.ports.push(PortRow {
            number: now.number,
            spec: now.spec.clone(),
            network: network.to_owned(),
            up: now.up,
            sent: whole_rate(own, &now.counters, ["transmitted", "kernel_forwarded_out"], seconds),
            received: whole_rate(own, &now.counters, ["received", "kernel_forwarded_in"], seconds),
            drops: losses(&now.counters) + losses(&now.switch),
        });
    }

    fn add_drops(&mut self, of: &str, before: Option<&Counts>, now: &Counts, seconds: f64, counts: fn(&str) -> bool) {
        for (reason, &count) in now.iter().filter(|(reason, count)| **count > 0 && counts(reason)) {
            let rate = gain(before, now, reason, seconds);
            self.drops.push(DropRow { of: of.to_owned(), reason: reason.clone(), count, rate });
        }
    }
}
