//! The switches of a network's threads, joined, played by one thread of a test.

use std::collections::BTreeMap;
use std::sync::Arc;

use conic_fabric::Time;
use conic_interface::ccnic::NicFaults;
use conic_native::{KeptCore, Memory, Pages};
use conic_nicd::switch::{
    Away, Circuit, MemberCounters, Parts, Party, Pin, PortReport, Rules, Switch, SwitchOptions, SwitchPort, Trunk,
    TrunkCounters, TrunkMap,
};

use super::clients::Client;

/// Lines of a way between two threads: a few of the longest frames.
pub const LINES: u64 = 1 << 12;

/// The switches, and who is where.
pub struct Threads {
    pub switches: Vec<Switch<KeptCore>>,
    clients: BTreeMap<u64, usize>,
}

impl Threads {
    /// So many, with ways as long as a test wants them that does not fill one.
    pub fn bridge(count: usize, ports: Vec<SwitchPort>) -> Threads {
        Threads::new(count, LINES, &SwitchOptions::default(), ports)
    }

    /// So many, whose ways to each other hold so many lines; ports' queues are dealt in turn.
    pub fn new(count: usize, lines: u64, options: &SwitchOptions, ports: Vec<SwitchPort>) -> Threads {
        let mut aways = Vec::new();
        let mut dealt: Vec<Vec<(Parts, SwitchPort)>> = (0..count).map(|_| Vec::new()).collect();
        for (number, SwitchPort { queues, vlan, circuit }) in ports.into_iter().enumerate() {
            let parts = Parts::new(number, queues.len(), count);
            let rules = Rules { vlan, circuit, ..Rules::default() };
            for thread in (0..count).filter(|thread| parts.way_from(*thread) != *thread) {
                let party = Party::Port(number);
                aways.push((thread, Away { thread: parts.way_from(thread), party, rules: rules.clone() }));
            }
            for (thread, queues) in parts.deal(queues) {
                dealt[thread].push((parts, SwitchPort { queues, vlan, circuit }));
            }
        }
        let switch = |(thread, ports)| Switch::with_parts(SwitchOptions { thread, ..options.clone() }, ports);
        let mut switches: Vec<Switch<KeptCore>> = dealt.into_iter().enumerate().map(switch).collect();
        let map = TrunkMap::with_lines(lines);
        for (near, far) in (0..count).flat_map(|far| (0..far).map(move |near| (near, far))) {
            let memory = Arc::new(Memory::create(&map.layout, Pages::Plain).expect("memory"));
            switches[near].join(Trunk::new(KeptCore::new(Arc::clone(&memory)), &map, near, far));
            switches[far].join(Trunk::new(KeptCore::new(memory), &map, far, near));
        }
        aways.into_iter().for_each(|(thread, away)| switches[thread].enter_away(Time::ZERO, away));
        Threads { switches, clients: BTreeMap::new() }
    }

    /// A port of a number that none has had comes to the threads that have a part of it, one after the other, and the others are told.
    pub fn attach_port(&mut self, now: Time, number: usize, port: SwitchPort) {
        let SwitchPort { queues, vlan, circuit } = port;
        let parts = Parts::new(number, queues.len(), self.switches.len());
        let mut dealt: BTreeMap<usize, Vec<_>> = parts.deal(queues).into_iter().collect();
        for (thread, switch) in self.switches.iter_mut().enumerate() {
            match dealt.remove(&thread) {
                Some(queues) => switch.attach_port(parts, SwitchPort { queues, vlan, circuit }),
                None => {
                    let rules = Rules { vlan, circuit, ..Rules::default() };
                    switch.enter_away(now, Away { thread: parts.way_from(thread), party: Party::Port(number), rules });
                }
            }
        }
    }

    /// It goes; how many queues it had.
    pub fn detach_port(&mut self, number: usize) -> usize {
        let detach = |switch: &mut Switch<KeptCore>| {
            switch.forget_away(Party::Port(number));
            switch.detach_port(number).map_or(0, |queues| queues.len())
        };
        self.switches.iter_mut().map(detach).sum()
    }

    /// A client comes to a thread.
    pub fn attach(&mut self, thread: usize, now: Time, session: u64, queues: u32, rules: Rules) -> Client {
        for (other, switch) in self.switches.iter_mut().enumerate() {
            if other != thread {
                switch.enter_away(now, Away { thread, party: Party::Client(session), rules: rules.clone() });
            }
        }
        self.clients.insert(session, thread);
        Client::attach(&mut self.switches[thread], now, session, queues, rules)
    }

    /// Clients 1, 2, 3, ... come to threads 0, 1, 2, ... and to the first again, with so many queues each.
    pub fn attach_all(&mut self, count: u64, queues: u32, rules: impl Fn(u64) -> Rules) -> Vec<Client> {
        let threads = self.switches.len() as u64;
        let place = |number| ((number - 1) % threads) as usize;
        (1..=count).map(|number| self.attach(place(number), Time::ZERO, number, queues, rules(number))).collect()
    }

    pub fn detach(&mut self, session: u64) -> Option<(MemberCounters, NicFaults)> {
        let thread = self.clients.remove(&session)?;
        self.switches.iter_mut().for_each(|switch| switch.forget_away(Party::Client(session)));
        self.switches[thread].detach(session)
    }

    pub fn step(&mut self, now: Time) -> usize {
        self.switches.iter_mut().map(|switch| switch.step(now)).sum()
    }

    /// Steps until nothing moves.
    pub fn settle(&mut self, now: Time) {
        self.answer_calls();
        let mut steps = 0;
        while self.step(now) > 0 {
            steps += 1;
            assert!(steps < 10_000, "frames go round and round");
        }
    }

    pub fn answer_calls(&mut self) {
        self.switches.iter_mut().for_each(Switch::answer_calls);
    }

    /// A client gets another address; whether it is there.
    pub fn set_mac(&mut self, now: Time, session: u64, mac: [u8; 6]) -> bool {
        self.switches.iter_mut().all(|switch| switch.set_mac(now, session, mac))
    }

    /// Whether somebody knows the party.
    pub fn connect(&mut self, party: Party, circuit: Option<Circuit>) -> bool {
        self.switches.iter_mut().all(|switch| switch.connect(party, circuit))
    }

    pub fn pin(&mut self, session: u64, pin: &Pin) -> bool {
        self.switches.iter_mut().all(|switch| switch.pin(session, pin.clone()))
    }

    pub fn clients(&self) -> impl Iterator<Item = (u64, MemberCounters, NicFaults)> {
        self.switches.iter().flat_map(Switch::clients)
    }

    /// What was counted of a client.
    pub fn counters(&self, session: u64) -> MemberCounters {
        self.clients().find(|(own, ..)| *own == session).expect("a client").1
    }

    /// What thread `from` counted of its way to thread `to`.
    pub fn trunk(&self, from: usize, to: usize) -> TrunkCounters {
        self.switches[from].trunks().find(|(other, _)| *other == to).expect("a way").1
    }

    /// The first port, with all its parts.
    pub fn first_port(&self) -> PortReport {
        let mut parts = self.switches.iter().flat_map(Switch::ports).filter(|part| part.number == 0);
        let mut port = parts.next().expect("a port");
        parts.for_each(|part| port.join(part));
        port
    }
}
