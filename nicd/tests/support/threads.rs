//! The switches of a network's threads, joined, played by one thread of a test.

use std::collections::BTreeMap;
use std::sync::Arc;

use conic_fabric::Time;
use conic_interface::ccnic::NicFaults;
use conic_native::{KeptCore, Memory, Pages};
use conic_nicd::switch::{
    Away, Circuit, MemberCounters, Party, Pin, PortReport, Rules, Switch, SwitchOptions, SwitchPort, Trunk,
    TrunkCounters, TrunkMap,
};

use crate::clients::Client;

/// The switches, and who is where.
pub struct Threads {
    pub switches: Vec<Switch<KeptCore>>,
    clients: BTreeMap<u64, usize>,
}

impl Threads {
    /// So many, whose ways to each other hold so many lines; ports are dealt in turn.
    pub fn new(count: usize, lines: u64, options: &SwitchOptions, ports: Vec<SwitchPort>) -> Threads {
        let mut aways = Vec::new();
        let mut dealt: Vec<Vec<SwitchPort>> = (0..count).map(|_| Vec::new()).collect();
        for (number, port) in ports.into_iter().enumerate() {
            let rules = Rules { vlan: port.vlan, circuit: port.circuit, ..Rules::default() };
            aways.push(Away { thread: number % count, party: Party::Port(number), rules });
            dealt[number % count].push(port);
        }
        let switch = |(thread, ports)| Switch::new(SwitchOptions { thread, threads: count, ..options.clone() }, ports);
        let mut switches: Vec<Switch<KeptCore>> = dealt.into_iter().enumerate().map(switch).collect();
        let map = TrunkMap::with_lines(lines);
        for (near, far) in (0..count).flat_map(|far| (0..far).map(move |near| (near, far))) {
            let memory = Arc::new(Memory::create(&map.layout, Pages::Plain).expect("memory"));
            switches[near].join(Trunk::new(KeptCore::new(Arc::clone(&memory)), &map, near, far));
            switches[far].join(Trunk::new(KeptCore::new(memory), &map, far, near));
        }
        for away in aways {
            let others = switches.iter_mut().enumerate().filter(|(thread, _)| *thread != away.thread);
            others.for_each(|(_, switch)| switch.enter_away(Time::ZERO, away.clone()));
        }
        Threads { switches, clients: BTreeMap::new() }
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

    /// The first port.
    pub fn first_port(&self) -> PortReport {
        self.switches[0].ports().next().expect("a port")
    }
}
