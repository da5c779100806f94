//! Ports that forward frames to each other by themselves, in the kernel (an FDB offload): they are told where stations are, and to which
//! ports the way is open, and say which stations they have seen.
//!
//! | what | when |
//! |---|---|
//! | a station that moved is taken out | at the end of the step in which it was heard elsewhere |
//! | a way is closed, or opened again: a mirror, a circuit, a pin, a port that goes | before whoever asked for it is answered |
//! | stations that are new, or forgotten, are copied | at most [`COPY`] later |
//! | which stations were seen is asked, and those too old are forgotten | eight times in the time for which a station is remembered |
//! | how long frames may be, and whether an interface is up and takes frames of drivers | once in [`LOOK`] |
//!
//! What goes the short way is what the bridge would do with it and nobody else would see: an untagged frame from a station to another,
//! between two ports without a VLAN, a circuit or a mirror, on a network of one thread without pinned flows. A frame takes no step more
//! for this: of what is done here, a step without news pays for a look at a flag.

use std::collections::BTreeMap;

use conic_fabric::{Core, Time};
use conic_port::{Egress, FORWARDING_PORTS, Forwarding};

use super::circuit::Party;
use super::table::{Place, Station, Table};
use super::{Mode, PortReport, Switch};

/// The time between two copies of new stations.
const COPY: Time = Time::from_nanoseconds(20_000_000);

/// The time between two looks at interfaces.
const LOOK: Time = Time::from_nanoseconds(1_000_000_000);

/// Stations that one copy takes out, or puts in, at most: the rest waits for the next one, and frames meanwhile.
const COPIED_AT_ONCE: usize = 256;

/// How often stations are asked for within the time for which one is remembered.
const ASKED: u64 = 8;

/// A port that forwards by itself.
struct End {
    /// The port's number in the network.
    number: usize,
    forwarding: Box<dyn Forwarding>,
    egress: Result<Egress, String>,
    /// The ports to which the way is open, and the longest frame that goes there.
    ways: BTreeMap<u32, u32>,
    /// What it has counted towards each port until now.
    counted: BTreeMap<u32, (u64, u64)>,
    totals: Forwarded,
    /// It was said that it takes no frames of drivers.
    is_remarked: bool,
}

/// What was forwarded past the switch from a port, and to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Forwarded {
    in_frames: u64,
    in_bytes: u64,
    out_frames: u64,
    out_bytes: u64,
}

impl Forwarded {
    fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("kernel_forwarded_in_frames", self.in_frames),
            ("kernel_forwarded_in_bytes", self.in_bytes),
            ("kernel_forwarded_out_frames", self.out_frames),
            ("kernel_forwarded_out_bytes", self.out_bytes),
        ]
    }
}

/// Those of a switch, by their places in it.
pub(super) struct Fdb {
    ends: BTreeMap<u32, End>,
    /// The stations that all of them know, and behind which each is.
    known: BTreeMap<u64, u32>,
    /// What the table was when it was last copied whole.
    copied: Option<u64>,
    next_copy: Time,
    next_ask: Time,
    next_look: Time,
    ask: Time,
    remarks: Vec<String>,
}

impl Fdb {
    /// Of a switch that remembers stations for so long.
    pub(super) fn new(age: Time) -> Fdb {
        Fdb {
            ends: BTreeMap::new(),
            known: BTreeMap::new(),
            copied: None,
            next_copy: Time::ZERO,
            next_ask: Time::ZERO,
            next_look: Time::ZERO,
            ask: Time::from_picoseconds(age.picoseconds() / ASKED),
            remarks: Vec::new(),
        }
    }

    /// Whether there is something to do.
    #[inline(always)]
    pub(super) fn is_due(&self, now: Time, table: &Table) -> bool {
        !self.ends.is_empty() && (table.has_moves() || self.next_due(table).is_some_and(|due| now >= due))
    }

    /// When there is something to do next, if no station moves.
    pub(super) fn next_due(&self, table: &Table) -> Option<Time> {
        let looks = self.next_ask.min(self.next_look);
        let next = if self.copied == Some(table.version()) { looks } else { looks.min(self.next_copy) };
        (!self.ends.is_empty()).then_some(next)
    }

    /// Begins with a port.
    fn enter(&mut self, (place, number): (u32, usize), forwarding: Box<dyn Forwarding>) {
        let egress = forwarding.egress();
        let (ways, counted, totals) = (BTreeMap::new(), BTreeMap::new(), Forwarded::default());
        let mut end = End { number, forwarding, egress, ways, counted, totals, is_remarked: false };
        // Who finds no room is the socket's.
        self.known.iter().for_each(|(&station, &port)| _ = end.forwarding.place(station, Some(port)));
        self.ends.insert(place, end);
        self.copied = None;
    }

    /// Ends with a port: nobody forwards to it, and nobody knows who is behind it.
    fn leave(&mut self, place: u32) {
        self.count();
        if self.ends.remove(&place).is_none() {
            return;
        }
        let behind: Vec<u64> = self.known.iter().filter(|(_, at)| **at == place).map(|(station, _)| *station).collect();
        for end in self.ends.values_mut() {
            end.set_way(place, 0, 0);
        }
        behind.into_iter().for_each(|station| self.take_out(station));
    }

    fn take_out(&mut self, station: u64) {
        if self.known.remove(&station).is_some() {
            self.ends.values_mut().for_each(|end| _ = end.forwarding.forget(station));
        }
    }

    fn put_in(&mut self, station: u64, port: u32) {
        let place =
            |(&own, end): (&u32, &mut End)| end.forwarding.place(station, (own != port).then_some(port)).is_ok();
        self.known.insert(station, port);
        if !self.ends.iter_mut().all(place) {
            // There is no room.
            self.take_out(station);
        }
    }

    /// Copies what is new in the table, and takes out what is not there any more.
    fn copy(&mut self, now: Time, table: &Table) {
        let behind = |(station, place): (Station, Place)| match place {
            Place::Port(port) if station.vlan == 0 && self.ends.contains_key(&port) => Some((station.mac, port)),
            _ => None,
        };
        let wanted: BTreeMap<u64, u32> = table.stations(now).into_iter().filter_map(behind).collect();
        let gone = self.known.iter().filter(|(station, port)| wanted.get(station) != Some(port));
        let gone: Vec<u64> = gone.map(|(station, _)| *station).take(COPIED_AT_ONCE).collect();
        let is_new = |(station, _): &(u64, u32)| !self.known.contains_key(station);
        let new: Vec<(u64, u32)> = wanted.into_iter().filter(is_new).take(COPIED_AT_ONCE).collect();
        let is_whole = gone.len().max(new.len()) < COPIED_AT_ONCE;
        gone.into_iter().for_each(|station| self.take_out(station));
        new.into_iter().for_each(|(station, port)| self.put_in(station, port));
        self.copied = is_whole.then_some(table.version());
        self.next_copy = now + COPY;
    }

    /// Has the table know which stations were seen.
    fn ask(&mut self, now: Time, table: &mut Table) {
        for (&mac, &port) in &self.known {
            let Some(end) = self.ends.get_mut(&port) else { continue };
            if end.forwarding.was_seen(mac).unwrap_or(false) {
                table.learn(now, Station { mac, vlan: 0 }, Place::Port(port));
            }
        }
        // Some may be too old.
        self.copied = None;
        self.next_copy = now;
        self.next_ask = now + self.ask;
    }

    fn look(&mut self, now: Time) {
        self.ends.values_mut().for_each(|end| end.egress = end.forwarding.egress());
        self.next_look = now + LOOK;
    }

    /// Adds up what was forwarded.
    fn count(&mut self) {
        let places: Vec<u32> = self.ends.keys().copied().collect();
        for from in places {
            let Some(end) = self.ends.get_mut(&from) else { continue };
            let (mut more, mut sent) = (Vec::new(), (0, 0));
            for (&to, counted) in &mut end.counted {
                let Ok((frames, bytes)) = end.forwarding.forwarded(to) else { continue };
                let new = (frames.saturating_sub(counted.0), bytes.saturating_sub(counted.1));
                *counted = (frames, bytes);
                sent = (sent.0 + new.0, sent.1 + new.1);
                more.push((to, new));
            }
            end.totals.in_frames += sent.0;
            end.totals.in_bytes += sent.1;
            for (to, (frames, bytes)) in more {
                let Some(other) = self.ends.get_mut(&to) else { continue };
                other.totals.out_frames += frames;
                other.totals.out_bytes += bytes;
            }
        }
    }

    /// Opens the ways between ports of which `may` says so, as far as their interfaces allow, and closes all others.
    fn set_ways(&mut self, may: impl Fn(u32) -> bool) {
        let others: Vec<(u32, u32, Result<Egress, String>)> =
            self.ends.iter().map(|(&place, end)| (place, end.forwarding.device(), end.egress.clone())).collect();
        for (&from, end) in &mut self.ends {
            let is_in_driver = end.forwarding.is_in_driver();
            for (to, device, egress) in &others {
                let reaches = |egress: &&Egress| from != *to && (egress.from_drivers || !is_in_driver);
                let longest = egress.as_ref().ok().filter(reaches).map_or(0, |egress| egress.longest);
                end.set_way(*to, *device, if may(from) && may(*to) { longest } else { 0 });
            }
        }
        self.remark();
    }

    /// Says once of each port that the others cannot forward to it.
    fn remark(&mut self) {
        let several = self.ends.len() > 1 && self.ends.values().any(|end| end.forwarding.is_in_driver());
        for end in self.ends.values_mut() {
            let takes_none = several && end.egress.as_ref().is_ok_and(|egress| !egress.from_drivers);
            if takes_none && !end.is_remarked {
                let number = end.number;
                self.remarks.push(format!("what is for port:{number} is not forwarded in the kernel: {TAKES_NONE}"));
            }
            end.is_remarked = takes_none;
        }
    }

    /// What a port's report says of this.
    fn add_to(&self, place: u32, report: &mut PortReport) {
        let Some(end) = self.ends.get(&place) else { return };
        report.own.extend(end.totals.named());
        let why = match &end.egress {
            Err(why) => why,
            Ok(egress) if !egress.from_drivers && end.is_remarked => TAKES_NONE,
            Ok(_) => return,
        };
        report.description += &format!(" (nothing to it: {why})");
    }
}

/// Why nothing is forwarded to an interface that others' drivers cannot reach.
const TAKES_NONE: &str = "its driver takes no frames of other drivers (of veth it does where the other end has GRO: ethtool -K NEIGHBOUR \
                          gro on; `generic` needs no driver)";

impl End {
    fn set_way(&mut self, to: u32, device: u32, longest: u32) {
        if self.ways.get(&to).copied().unwrap_or(0) == longest {
            return;
        }
        // One that cannot be opened is tried again with the next look.
        if self.forwarding.open(to, device, longest).is_ok() {
            if longest == 0 {
                self.ways.remove(&to);
            } else {
                self.ways.insert(to, longest);
                self.counted.entry(to).or_default();
            }
        }
    }
}

impl<C: Core> Switch<C> {
    /// Begins with what a port forwards by itself, if it does.
    pub(super) fn enter_forwarding(&mut self, index: usize) {
        let forwarding = self.ports[index].queues.first().and_then(|queue| queue.forwarding());
        if let (Some(forwarding), true) = (forwarding, index < FORWARDING_PORTS as usize) {
            self.table.note_moves();
            let number = self.ports[index].parts.port();
            self.fdb.enter((index as u32, number), forwarding);
        }
    }

    /// Ends with it, before the port goes.
    pub(super) fn leave_forwarding(&mut self, index: usize) {
        self.fdb.leave(index as u32);
        if self.fdb.ends.is_empty() {
            self.table.note_no_moves();
        }
    }

    /// Lets go of it for another process, which goes on with the port: until that begins, the kernel forwards what it did.
    pub(super) fn pass_forwarding_on(&mut self, index: usize) {
        self.fdb.ends.remove(&(index as u32));
        // Should this switch go on with it all the same, its tables are empty then, and each station is placed anew.
        self.fdb.known.clear();
    }

    /// Does what is due.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_fdb(&mut self, now: Time) {
        for station in self.table.take_moves() {
            if station.vlan == 0 {
                self.fdb.take_out(station.mac);
            }
        }
        if now >= self.fdb.next_look {
            self.fdb.look(now);
            self.set_ways();
        }
        if now >= self.fdb.next_ask {
            self.fdb.ask(now, &mut self.table);
        }
        if self.fdb.copied != Some(self.table.version()) && now >= self.fdb.next_copy {
            self.fdb.copy(now, &self.table);
        }
    }

    /// Opens and closes ways as policies now say.
    pub(super) fn set_ways(&mut self) {
        if self.fdb.ends.is_empty() {
            return;
        }
        let is_plain = self.options.mode == Mode::Bridge && self.trunks.is_empty() && self.pinned.is_empty();
        let may = |(index, end): (usize, &super::PortEnd)| {
            let place = Place::Port(index as u32);
            let is_mirrored = self.mirrors.iter().any(|one| one.is_of(Party::Port(end.parts.port())));
            let is_whole = !end.is_gone && !end.ended.iter().any(|ended| *ended);
            let is_alone = end.circuit.is_some() || self.circuit_of(place).is_some();
            is_plain && is_whole && end.vlan.is_none() && !is_alone && !is_mirrored
        };
        let may: Vec<bool> = self.ports.iter().enumerate().map(may).collect();
        self.fdb.set_ways(|port| may.get(port as usize).copied().unwrap_or(false));
    }

    /// Adds up what was forwarded past the switch until now, which [`Switch::ports`] then tells.
    pub fn count_forwarded(&mut self) {
        self.fdb.count();
    }

    /// What is to be said of ports that were asked to forward by themselves, since this was asked last.
    pub fn take_remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.fdb.remarks)
    }

    /// Adds to a port's report what it forwards by itself.
    pub(super) fn with_forwarded(&self, index: usize, mut report: PortReport) -> PortReport {
        self.fdb.add_to(index as u32, &mut report);
        report
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use conic_native::KeptCore;
    use conic_port::{Counters, Port, PortError, Receive, Transmit};

    use super::super::{Parts, SwitchOptions, SwitchPort};
    use super::*;

    /// A port whose driver takes no frames of others.
    struct Alone(Counters);

    impl Forwarding for Alone {
        fn device(&self) -> u32 {
            1
        }
        fn is_in_driver(&self) -> bool {
            true
        }
        fn egress(&self) -> Result<Egress, String> {
            Ok(Egress { longest: 1514, from_drivers: false })
        }
        fn open(&mut self, _: u32, _: u32, _: u32) -> io::Result<()> {
            Ok(())
        }
        fn place(&mut self, _: u64, _: Option<u32>) -> io::Result<()> {
            Ok(())
        }
        fn forget(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn was_seen(&mut self, _: u64) -> io::Result<bool> {
            Ok(false)
        }
        fn forwarded(&self, _: u32) -> io::Result<(u64, u64)> {
            Ok((0, 0))
        }
    }

    impl Port for Alone {
        fn receive(&mut self, _: Time, _: &mut [u8]) -> Result<Receive, PortError> {
            Ok(Receive::None)
        }
        fn transmit(&mut self, _: Time, _: &[u8]) -> Result<Transmit, PortError> {
            Ok(Transmit::Accepted)
        }
        fn next_due(&self) -> Option<Time> {
            None
        }
        fn counters(&self) -> &Counters {
            &self.0
        }
        fn forwarding(&self) -> Option<Box<dyn Forwarding>> {
            Some(Box::new(Alone(Counters::default())))
        }
    }

    /// A switch with such ports, of these numbers in the network.
    fn switch(numbers: [usize; 2]) -> Switch<KeptCore> {
        let port = |number| {
            let queues: Vec<Box<dyn Port>> = vec![Box::new(Alone(Counters::default()))];
            (Parts::new(number, 1, 1), SwitchPort { queues, vlan: None, circuit: None })
        };
        Switch::with_parts(SwitchOptions::default(), numbers.map(port).into())
    }

    #[test]
    fn nothing_is_noted_any_more_when_the_last_port_that_forwards_is_gone() {
        let mut switch = switch([0, 1]);
        let moves = |switch: &mut Switch<KeptCore>| {
            for place in [Place::Port(0), Place::Port(1)] {
                switch.table.learn(Time::ZERO, Station::new([2; 6], 0), place);
            }
            switch.table.has_moves()
        };
        assert!(moves(&mut switch));
        assert!(switch.detach_port(0).is_some());
        assert!(moves(&mut switch), "one is left");
        assert!(switch.detach_port(1).is_some());
        assert!(!switch.table.has_moves() && !moves(&mut switch), "nobody would ever take them");
    }

    #[test]
    fn an_operator_reads_the_number_that_a_port_has_in_the_network() {
        let mut switch = switch([3, 8]);
        switch.set_ways();
        let remarks = switch.take_remarks();
        assert_eq!(remarks.len(), 2);
        for (remark, number) in remarks.iter().zip([3, 8]) {
            assert!(remark.starts_with(&format!("what is for port:{number} is not forwarded")), "{remark}");
        }
    }
}
