//! The switch: clients' queues and ports, joined as a network's mode says.
//!
//! | file | what is there |
//! |---|---|
//! | `limit` | how much a client may send |
//! | `counters` | what clients, ports and trunks are counted by |
//! | `crowd` | who loses frames at a receiver without room, and leaves the last places to the others |
//! | `looks` | how long queues wait between two looks at them |
//! | `rest` | queues that have nothing to say are not looked at |
//! | `table` | where addresses were seen last |
//! | `mirror` | copies of what somebody sends and gets |
//! | `join` | frames of one flow as one packet |
//! | `offload` | what is left to do for a packet, and what receivers are told of it |
//! | `pin` | flows that go to a client, or a queue of it, whatever was learned |
//! | `pinned` | those flows by what their patterns name |
//! | `circuit` | places that are connected to each other and to nobody else |
//! | `header` | what a frame says of itself, read from a private copy |
//! | `member` | a client with its queues; what it may do, and what it did |
//! | `forward` | from where a frame goes on to where |
//! | `retag` | a VLAN tag that goes in or out while a frame is copied |
//! | `deliver` | in which form, and into which queue |
//! | `fdb` | what ports forward to each other before anybody here sees it |
//! | `port` | a port, and what it is told of; ports that come and go |
//! | `away` | who is served by the network's other threads, each with a switch of its own |
//! | `parts` | a port whose queues several threads serve |
//! | `across` | frames that go to them and come from them |
//! | `stray` | frames for stations that nobody is known to have |
//! | `trunk` | two rings between two threads |
//! | `record` | what stands before a frame there |
//! | `held` | ports that wait where that is nearly full |
//!
//! A client's memory is read once. The first lines of a frame are copied out, decided upon, and what is delivered is that copy; the
//! rest is copied from the client's region to the other's without a look at it. What a client changes meanwhile is its own frame.
//!
//! It reads no clock and starts no thread: [`Switch::step`] is told the time.

mod across;
mod away;
mod circuit;
mod counters;
mod crowd;
mod deliver;
mod fdb;
mod forward;
mod header;
mod held;
mod join;
mod limit;
mod looks;
mod member;
mod mirror;
mod offload;
mod parts;
mod pin;
mod pinned;
mod port;
mod record;
mod rest;
mod retag;
mod stray;
mod table;
mod trunk;

use std::os::fd::BorrowedFd;

use conic_fabric::{Core, Time};
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Descriptor, Map, NicFaults};
use conic_port::Port;
use conic_port::offload::rss::Toeplitz;
use conic_port::offload::segment::LONGEST;
use conic_port::offload::vlan::TAG_BYTES;

pub use away::Away;
pub use circuit::{Circuit, Party, PassedEnd};
pub use conic_interface::metadata::Offloads;
pub use counters::{MemberCounters, PortCounters, TrunkCounters};
pub use header::Header;
pub use limit::{Bucket, RateLimit};
pub use looks::Looks;
pub use member::{Rules, Suspended};
pub use mirror::{Mirror, MirrorCounters};
pub use parts::Parts;
pub use pin::{Mac, Pattern, Pin, Prefix};
pub use port::{PortReport, SwitchPort};
pub use table::{Place, Station, Table};
pub use trunk::{Trunk, TrunkMap};

use away::AwayEnd;
use circuit::Wired;
use fdb::Fdb;
use member::Member;
use mirror::Mirrored;
use pinned::PinnedFlows;
use port::{Bequeathed, PortEnd};

/// Frames that are taken from one queue or port at a time.
pub(crate) const BURST: usize = 32;

/// Bytes of the longest packet, which may stand for several, and a VLAN tag.
pub(crate) const ROOM: usize = LONGEST + TAG_BYTES;

/// Steps between two looks at what clients did wrong.
const STEPS_BETWEEN_AUDITS: u64 = 64;

/// Steps between two looks at whether resting queues were called.
const STEPS_BETWEEN_CALLS: u64 = 8;

/// How a network joins its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By address: a bridge that learns.
    Bridge,
    /// Each client's frames come back to the queue that they came from.
    Loopback,
}

/// What a switch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOptions {
    /// How members are joined.
    pub mode: Mode,
    /// Stations that are remembered at least.
    pub stations: usize,
    /// How long a station is remembered that is not seen.
    pub age: Time,
    /// Faults after which a client is to be detached.
    pub most_faults: u64,
    /// How long nothing has come from a queue that is no longer looked at.
    pub rest_after: Time,
    /// So many queues are looked at whatever they say.
    pub always_awake: usize,
    /// Which of its network's threads it is of, from 0.
    pub thread: usize,
}

/// Who sleeps and is to be rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// A client that waits for one of its queues.
    Client {
        /// Its session.
        session: u64,
        /// The queue.
        queue: u32,
    },
    /// Another thread of the network, by its number.
    Thread(usize),
}

impl Default for SwitchOptions {
    /// A bridge of 4096 stations, forgotten after five minutes (IEEE 802.1D's default); a client is detached after 64 faults;
    /// queues rest after a tenth of a millisecond.
    fn default() -> SwitchOptions {
        let age = Time::from_nanoseconds(300_000_000_000);
        let rest_after = Time::from_nanoseconds(100_000);
        SwitchOptions {
            mode: Mode::Bridge,
            stations: 4096,
            age,
            most_faults: 64,
            rest_after,
            always_awake: 0,
            thread: 0,
        }
    }
}

/// Clients and ports, and what joins them.
pub struct Switch<C> {
    options: SwitchOptions,
    members: Vec<Option<Member<C>>>,
    ports: Vec<PortEnd>,
    /// Queues that somebody else goes on with, and nobody uses here.
    bequeathed: Vec<Bequeathed>,
    /// Queues from which no more will come, by port and queue, until whoever sleeps on them has been told.
    finished: Vec<(usize, usize)>,
    table: Table,
    /// The member and the port whose turn it is.
    turn: usize,
    steps: u64,
    looks: Looks,
    polled: Vec<Descriptor>,
    /// A frame that cannot go from region to region in one piece, or comes from a port.
    frame: Box<[u8]>,
    /// One that is being cut.
    packet: Box<[u8]>,
    /// Queues to which something waits to be delivered.
    dirty: Vec<(u32, u32)>,
    /// Some client has frames joined.
    has_joiners: bool,
    offenders: Vec<Offender>,
    /// Queues from which nothing has come for long.
    drowsy: Vec<(u32, u32)>,
    /// Bytes that the frames for several of the burst at hand were copied beside the first copy of each.
    flooded: u64,
    /// Who waits and is to be rung.
    rings: Vec<Ring>,
    /// Some member or port has a VLAN.
    has_vlans: bool,
    /// Who is in a circuit.
    wired: Vec<Wired>,
    /// Who is looked into.
    mirrors: Vec<Mirrored>,
    /// Flows that clients get whatever they are addressed to.
    pinned: PinnedFlows,
    /// The ways to the network's other threads.
    trunks: Vec<Trunk<C>>,
    /// Who is served by them.
    aways: Vec<Option<AwayEnd>>,
    /// Some client is told what needs a look at whole frames.
    has_lookers: bool,
    /// Somebody takes packets for which work is left.
    has_unfinished: bool,
    /// What ports forward by themselves.
    fdb: Fdb,
    toeplitz: Toeplitz,
}

/// A client that is to be detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offender {
    /// Its session.
    pub session: u64,
    /// What it did.
    pub faults: NicFaults,
}

impl<C: Core> Switch<C> {
    /// A switch without clients, of a network of one thread; ports are numbered in their order.
    pub fn new(options: SwitchOptions, ports: Vec<SwitchPort>) -> Switch<C> {
        let numbered = |(number, port): (usize, SwitchPort)| (Parts::new(number, port.queues.len(), 1), port);
        Switch::with_parts(options, ports.into_iter().enumerate().map(numbered).collect())
    }

    /// A switch without clients, of one of a network's threads, with the ports of which that has a part.
    pub fn with_parts(options: SwitchOptions, ports: Vec<(Parts, SwitchPort)>) -> Switch<C> {
        let table = Table::new(options.stations, options.age);
        let fdb = Fdb::new(options.age);
        let mut switch = Switch {
            options,
            members: Vec::new(),
            ports: ports.into_iter().map(PortEnd::new).collect(),
            bequeathed: Vec::new(),
            finished: Vec::new(),
            table,
            turn: 0,
            steps: 0,
            looks: Looks::default(),
            polled: vec![Descriptor::BLANK; BURST],
            frame: vec![0; ROOM].into_boxed_slice(),
            packet: vec![0; ROOM].into_boxed_slice(),
            dirty: Vec::new(),
            has_joiners: false,
            offenders: Vec::new(),
            drowsy: Vec::new(),
            flooded: 0,
            rings: Vec::new(),
            has_vlans: false,
            wired: Vec::new(),
            mirrors: Vec::new(),
            pinned: PinnedFlows::default(),
            trunks: Vec::new(),
            aways: Vec::new(),
            has_lookers: false,
            has_unfinished: false,
            fdb,
            toeplitz: Toeplitz::default(),
        };
        (0..switch.ports.len()).for_each(|index| switch.enter_forwarding(index));
        switch.rewire();
        switch
    }

    /// Lets a client in, whose region is ready: its queues are served from the next step on. `cores` gives a view of the region
    /// for each queue.
    pub fn attach(&mut self, now: Time, session: u64, rules: Rules, map: (&Map, Notices), cores: impl FnMut() -> C) {
        self.enter(now, Member::new(now, session, rules, map, cores));
    }

    fn enter(&mut self, now: Time, member: Member<C>) {
        let slot = self.members.iter().position(Option::is_none).unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() - 1
        });
        let rules = &member.rules;
        let station = Station::new(rules.mac, rules.vlan.unwrap_or(0));
        self.table.fix(now, station, Place::Client(slot as u32));
        self.members[slot] = Some(member);
        self.rewire();
    }

    /// Goes on with a client that another switch has stopped serving; false if it cannot have stopped there.
    #[must_use]
    pub fn resume(&mut self, now: Time, suspended: Suspended, map: (&Map, Notices), cores: impl FnMut() -> C) -> bool {
        match Member::resume(now, suspended, map, cores) {
            Some(member) => {
                self.enter(now, member);
                true
            }
            None => false,
        }
    }

    /// Stops serving all clients: their queues are as if nobody had ever looked at them but up to a point. A client that cannot be
    /// stopped is left out; it finds its daemon gone.
    pub fn suspend(&mut self) -> Vec<Suspended> {
        for member in self.members.iter_mut().flatten() {
            member.flush_and_ring(&mut self.rings);
        }
        self.dirty.clear();
        self.members.drain(..).flatten().filter_map(Member::suspend).collect()
    }

    /// Forgets where clients were that it has stopped serving, behind [`Switch::suspend`]: nobody else has gone on with them, and they are
    /// resumed here.
    pub fn take_up(&mut self) {
        self.drowsy.clear();
        self.table.forget_clients();
        self.rewire();
    }

    /// Limits what a client sends from here on, or does not.
    pub fn limit(&mut self, now: Time, session: u64, limit: Option<RateLimit>) {
        let member = self.slot_of(session).and_then(|slot| self.members[slot].as_mut());
        if let Some(member) = member {
            member.rules.limit = limit;
            member.bucket = limit.map(|limit| Bucket::new(now, limit));
        }
    }

    /// From here on gives a client no packet that stands for several and is longer than so many bytes: what is, is cut.
    pub fn limit_packets(&mut self, session: u64, longest: u32) {
        if let Some(member) = self.slot_of(session).and_then(|slot| self.members[slot].as_mut()) {
            member.limit_packets(longest);
        }
    }

    /// Lets a client go: from here on nothing of its region is touched. Gives what it did, if there is such a client.
    pub fn detach(&mut self, session: u64) -> Option<(MemberCounters, NicFaults)> {
        let slot = self.slot_of(session)?;
        let member = self.members[slot].take()?;
        self.unmirror(Party::Client(session));
        self.dirty.retain(|&(client, _)| client as usize != slot);
        self.drowsy.retain(|&(client, _)| client as usize != slot);
        self.rings.retain(|ring| !matches!(ring, Ring::Client { session: client, .. } if *client == session));
        let place = Place::Client(slot as u32);
        self.table.forget(place);
        // Who has its place next has crowded nobody out.
        self.members.iter_mut().flatten().for_each(|other| other.crowd.forget(place));
        self.rewire();
        Some((member.counters(), member.faults()))
    }

    fn slot_of(&self, session: u64) -> Option<usize> {
        self.members.iter().position(|member| member.as_ref().is_some_and(|member| member.session == session))
    }

    /// Moves a burst from each port and from each client that may send, and returns how many frames, and ports that wait for room on the
    /// way to another thread: after 0 there is nothing to do. `now` must not go backwards.
    pub fn step(&mut self, now: Time) -> usize {
        self.looks.note(now);
        let mut moved = 0;
        for port in 0..self.ports.len() {
            moved += self.serve_port(now, port);
        }
        for trunk in 0..self.trunks.len() {
            moved += self.serve_trunk(now, trunk);
        }
        let count = self.members.len();
        // Without a division, which would be most of an idle step.
        for slot in (self.turn..count).chain(0..self.turn.min(count)) {
            moved += self.serve_member(now, slot);
        }
        self.turn = if self.turn + 1 < count { self.turn + 1 } else { 0 };
        self.steps += 1;
        if !self.drowsy.is_empty() {
            self.put_to_rest();
        }
        if self.steps.is_multiple_of(STEPS_BETWEEN_CALLS) {
            self.answer_calls();
        }
        if self.steps.is_multiple_of(STEPS_BETWEEN_AUDITS) {
            self.audit();
        }
        if self.fdb.is_due(now, &self.table) {
            self.keep_fdb(now);
        }
        moved
    }

    /// Looks at what clients did wrong, at whether they still crowd each other out, and whether ports still wait for room.
    fn audit(&mut self) {
        self.forget_held();
        for member in self.members.iter_mut().flatten() {
            member.forgive();
            let faults = member.faults();
            if faults.total() > self.options.most_faults && !member.accused {
                member.accused = true;
                self.offenders.push(Offender { session: member.session, faults });
            }
        }
    }

    /// Clients that are to be detached, each given once.
    pub fn take_offenders(&mut self) -> Vec<Offender> {
        std::mem::take(&mut self.offenders)
    }

    /// What each client did: session, counters, faults.
    pub fn clients(&self) -> impl Iterator<Item = (u64, MemberCounters, NicFaults)> {
        self.members.iter().flatten().map(|member| (member.session, member.counters(), member.faults()))
    }

    /// What was learned.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// When something is to be done next that no client and no descriptor announces: a port's frame is due, or a client
    /// may send again.
    pub fn next_due(&self) -> Option<Time> {
        let ports = self.live_queues().filter_map(|queue| queue.next_due());
        let members = self.members.iter().flatten().filter(|member| !member.awake.is_empty());
        let members = members.filter_map(|member| Some(member.bucket.as_ref()?.opens_at()));
        ports.chain(members).chain(self.fdb.next_due(&self.table)).min()
    }

    /// Begins with what comes from now on, where another switch has had the same frames from its own end of a port until now.
    pub fn forget_received(&mut self) {
        self.ports.iter_mut().flat_map(|end| &mut end.queues).for_each(|queue| queue.forget_received());
    }

    /// Says to the ports that their descriptors are about to be slept on. Behind it comes one more [`Switch::step`], and the sleep
    /// only if that moved nothing.
    pub fn arm(&mut self) {
        for end in &mut self.ports {
            for (queue, ended) in end.queues.iter_mut().zip(&end.ended) {
                if !ended {
                    queue.arm();
                }
            }
        }
        self.trunks.iter_mut().for_each(Trunk::arm);
    }

    /// What is readable when a port may have something; see [`Port::descriptor`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.live_queues().filter_map(|queue| queue.descriptor())
    }

    /// Shows the descriptors of ports from which no more will come, each once: that of an interface which was removed is readable for
    /// ever, and nobody is to be woken by it.
    pub fn show_finished(&mut self, mut show: impl FnMut(BorrowedFd<'_>)) {
        for (port, queue) in self.finished.drain(..) {
            let queue = self.ports[port].queues.get(queue);
            queue.and_then(|queue| queue.descriptor()).into_iter().for_each(&mut show);
        }
    }

    /// Whether it has a port of which something may come.
    pub fn has_live_ports(&self) -> bool {
        self.live_queues().next().is_some()
    }

    fn live_queues(&self) -> impl Iterator<Item = &dyn Port> {
        let queues = self.ports.iter().flat_map(|end| end.queues.iter().zip(&end.ended));
        queues.filter(|(_, ended)| !**ended).map(|(queue, _)| &**queue)
    }
}
