//! The way between two threads of a network: two rings of records in private memory, one each way.
//!
//! A record is a line that says what it is, and the lines of its frame behind it, all in one piece: where that does not fit before the
//! ring's end, filler does, and the record begins anew.
//!
//! # Lines
//!
//! | line | written by | read by | synchronising words |
//! |---|---|---|---|
//! | records | the sender | the receiver | none |
//! | put | the sender: lines that were put, ever | the receiver | word 0 |
//! | taken | the receiver: lines that were taken, ever | the sender | word 0 |
//! | wish | as in [`notify`](conic_interface::ccnic::notify): the receiver is about to sleep | the sender | all |
//!
//! A line is the sender's while `put - taken` does not count it, the receiver's from the put that counts it until the taken that does.
//!
//! # Visibility
//!
//! | step | store | makes visible | to |
//! |---|---|---|---|
//! | publish, once a burst | put, release | every line of the records | the receiver that acquires it |
//! | let go, once a burst | taken, release | that these lines were read | the sender that acquires it |
//!
//! Both sides are threads of one process, and neither checks what the other writes.

use std::collections::VecDeque;

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords};
use conic_interface::ccnic::notify::{Notices, PACKETS};

use super::counters::TrunkCounters;
use super::record::Record;
use super::table::Station;

/// Lines of a ring: one MiB, fifteen of the longest packets, or eight thousand of the shortest frames.
const LINES: u64 = 1 << 14;

/// Lines that are asked for ahead of those that are taken: about as many as a core can have on their way at once.
const AHEAD: u64 = 16;

/// Stations that wait to be told of, at most.
const MOST_UNTOLD: usize = 4096;

/// Pointers lie this far apart, in bytes: a line each, and never two in a pair of lines that is fetched together.
const SPACING: u64 = 2 * LINE_BYTES;

/// One way.
#[derive(Clone, Copy, Debug)]
struct Way {
    put: Address,
    taken: Address,
    records: Address,
    /// Lines, a power of two.
    count: u64,
}

impl Way {
    fn place(layout: &mut Layout, count: u64) -> Way {
        let mut add = |name, bytes, words| layout.add(name, bytes, SPACING, Home::Host, words);
        let put = add("trunk put", LINE_BYTES, SynchronisingWords::FIRST);
        let taken = add("trunk taken", LINE_BYTES, SynchronisingWords::FIRST);
        let records = add("trunk records", count * LINE_BYTES, SynchronisingWords::NONE);
        Way { put, taken, records, count }
    }

    fn at(&self, line: u64) -> Address {
        self.records.lines(line & (self.count - 1))
    }
}

/// Where everything of a trunk lies in its memory.
#[derive(Clone, Debug)]
pub struct TrunkMap {
    /// The memory's layout.
    pub layout: Layout,
    ways: [Way; 2],
    notices: Notices,
}

impl TrunkMap {
    /// A trunk whose rings hold a MiB each.
    pub fn new() -> TrunkMap {
        TrunkMap::with_lines(LINES)
    }

    /// One whose rings hold so many lines, a power of two: the longest packet that is sent must fit.
    pub fn with_lines(lines: u64) -> TrunkMap {
        let mut layout = Layout::new();
        let ways = [Way::place(&mut layout, lines), Way::place(&mut layout, lines)];
        let notices = Notices::place(&mut layout, ways.len());
        TrunkMap { layout, ways, notices }
    }
}

impl Default for TrunkMap {
    fn default() -> TrunkMap {
        TrunkMap::new()
    }
}

/// A thread's end of a trunk.
pub struct Trunk<C> {
    core: C,
    /// The number of the thread at the other end.
    pub(super) thread: usize,
    out: Way,
    into: Way,
    notices: Notices,
    /// The way that comes in, as notices number it.
    own: usize,
    /// Lines that were put, those that the other knows of, and up to where there was room when that was looked at last.
    put: u64,
    published: u64,
    room_until: u64,
    /// Lines that were taken, those that the other knows of, and up to where some were put when that was looked at last.
    taken: u64,
    let_go: u64,
    put_until: u64,
    /// Stations of which the other is still to be told, and behind which port of the network each is.
    untold: VecDeque<(Station, Option<u32>)>,
    /// The other was asked to ring.
    is_armed: bool,
    pub(super) counters: TrunkCounters,
}

impl<C: Core> Trunk<C> {
    /// The end of thread `own`, whose other end thread `other` has, over zeroed memory of the map's layout.
    pub fn new(core: C, map: &TrunkMap, own: usize, other: usize) -> Trunk<C> {
        let [first, second] = map.ways;
        let (out, into, own) = if own < other { (first, second, 1) } else { (second, first, 0) };
        Trunk {
            core,
            thread: other,
            out,
            into,
            notices: map.notices,
            own,
            put: 0,
            published: 0,
            room_until: out.count,
            taken: 0,
            let_go: 0,
            put_until: 0,
            untold: VecDeque::new(),
            is_armed: false,
            counters: TrunkCounters::default(),
        }
    }

    /// Puts a record, and its frame as `write` does it; counts it if there is no room.
    #[inline]
    pub(super) fn offer(&mut self, record: &Record, write: impl FnOnce(&C, Address)) -> bool {
        let lines = record.lines();
        let behind = self.out.count - (self.put & (self.out.count - 1));
        let filler = if behind < lines { behind } else { 0 };
        let end = self.put + filler + lines;
        if end > self.room_until {
            // Acquire: pairs with the release of `let_go`: what lay there was read.
            self.room_until = self.core.load_acquire(self.out.taken) + self.out.count;
            if end > self.room_until {
                self.counters.dropped_full += u64::from(record.length > 0);
                return false;
            }
        }
        if filler > 0 {
            self.core.write_line(self.out.at(self.put), &Record::filler(filler));
        }
        let at = self.out.at(self.put + filler);
        self.core.write_line(at, &record.to_line());
        write(&self.core, at.lines(1));
        self.put = end;
        if record.length > 0 {
            self.counters.sent_frames += 1;
            self.counters.sent_bytes += record.length as u64;
        }
        true
    }

    /// Tells the other that stations are here, and behind which port of the network each is; what finds no room now is told with the
    /// next.
    pub(super) fn tell(&mut self, stations: &[(Station, Option<u32>)]) {
        // Who is not told asks everybody.
        let room = MOST_UNTOLD - self.untold.len();
        self.untold.extend(&stations[..stations.len().min(room)]);
        while let Some(&(station, behind)) = self.untold.front()
            && self.offer(&Record::news(station, behind), |_, _| {})
        {
            self.untold.pop_front();
        }
    }

    /// Lets the other have what was put; whether it must be rung.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.put {
            return false;
        }
        // Release: the records were written before.
        self.core.store_release(self.out.put, self.put);
        self.published = self.put;
        self.notices.must_ring(&self.core, 1 - self.own, PACKETS)
    }

    /// The next record, and where its frame lies until this end lets go.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Record, Address)> {
        loop {
            if self.taken == self.put_until {
                // Acquire: pairs with the release of `publish`: the records are there.
                self.put_until = self.core.load_acquire(self.into.put);
                if self.taken == self.put_until {
                    return None;
                }
            }
            let at = self.into.at(self.taken);
            match Record::of_line(&self.core.read_line(at)) {
                Ok(record) => {
                    let lines = record.lines();
                    self.taken += lines;
                    self.fetch_ahead(lines);
                    return Some((record, at.lines(1)));
                }
                Err(filler) => self.taken += filler,
            }
        }
    }

    /// Asks for lines that are to be taken soon, as many as were taken just now: the other's core has them.
    #[inline(always)]
    fn fetch_ahead(&self, lines: u64) {
        for line in self.taken..self.taken + lines.min(AHEAD) {
            if line + AHEAD < self.put_until {
                self.core.prefetch_read(self.into.at(line + AHEAD));
            }
        }
    }

    /// Lets the other overwrite what was taken.
    pub(super) fn let_go(&mut self) {
        if self.let_go == self.taken {
            return;
        }
        // Release: what lay there was read before.
        self.core.store_release(self.into.taken, self.taken);
        self.let_go = self.taken;
        if std::mem::take(&mut self.is_armed) {
            self.notices.wish_no_more(&self.core, self.own);
        }
    }

    /// Asks the other to ring when it has put something; one more look follows.
    pub(super) fn arm(&mut self) {
        self.notices.wish_for(&self.core, self.own, PACKETS);
        self.is_armed = true;
    }

    /// The memory's core, for what lies where a record says.
    pub(super) fn core(&self) -> &C {
        &self.core
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conic_interface::metadata::Metadata;
    use conic_native::{KeptCore, Memory, Pages};

    use super::super::record::To;
    use super::*;

    /// A frame of so many bytes for a client whose number it is.
    fn record(number: u64, length: usize) -> Record {
        let to = To::Client { session: number, queue: None };
        Record { to, length, vlan: None, known: Metadata::NONE, work: None, behind: None }
    }

    /// Both ends of a way of so many lines.
    fn pair(lines: u64) -> (Trunk<KeptCore>, Trunk<KeptCore>) {
        let map = TrunkMap::with_lines(lines);
        let memory = Arc::new(Memory::create(&map.layout, Pages::Plain).expect("memory"));
        let near = Trunk::new(KeptCore::new(Arc::clone(&memory)), &map, 0, 1);
        (near, Trunk::new(KeptCore::new(memory), &map, 1, 0))
    }

    #[test]
    fn what_could_not_be_told_is_told_with_the_next() {
        let (mut near, mut far) = pair(4);
        let station = |number| Station::new([2, 0, 0, 0, 0, number], 7);
        let told = |number| (station(number), Some(u32::from(number)));
        assert!(near.offer(&record(1, 3 * 64), |_, _| {}), "it fits, and nothing beside it");
        near.tell(&[told(1), told(2)]);
        near.publish();
        assert_eq!(far.take().map(|(record, _)| record.length), Some(3 * 64));
        far.let_go();
        assert!(far.take().is_none());
        near.tell(&[told(3)]);
        near.publish();
        let heard: Vec<Record> = std::iter::from_fn(|| Some(far.take()?.0)).collect();
        assert_eq!(heard, [1, 2, 3].map(|number| Record::news(station(number), Some(number.into()))));
        assert_eq!(near.counters.dropped_full, 0, "it is no frame");
    }

    #[test]
    fn no_more_wait_to_be_told_than_may() {
        let (mut near, mut far) = pair(4);
        assert!(near.offer(&record(1, 3 * 64), |_, _| {}), "it fits, and nothing beside it");
        let stations = (0..3000).map(|number: u32| {
            let [.., high, low] = number.to_be_bytes();
            (Station::new([2, 0, 0, 0, high, low], 0), None)
        });
        let stations: Vec<_> = stations.collect();
        (0..2).for_each(|_| near.tell(&stations));
        let mut heard = 0;
        loop {
            near.publish();
            let before = heard;
            while let Some((record, _)) = far.take() {
                heard += usize::from(matches!(record.to, To::News(_)));
            }
            far.let_go();
            near.tell(&[]);
            if heard == before && heard > 0 {
                break;
            }
        }
        assert_eq!(heard, MOST_UNTOLD);
    }

    #[test]
    fn records_of_every_size_cross_in_order_and_a_full_ring_takes_none() {
        let (mut near, mut far) = pair(64);
        let mut random = fastrand::Rng::with_seed(3);
        let (mut put, mut taken, mut full) = (Vec::new(), Vec::new(), 0);
        for round in 0..2000_u64 {
            let length = random.usize(1..1500);
            let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            if near.offer(&record(round, length), |core, at| core.write_bytes(at, &content)) {
                put.push((round, content));
            } else {
                full += 1;
            }
            near.publish();
            for _ in 0..random.u8(..3) {
                let Some((record, at)) = far.take() else { break };
                let mut content = vec![0; record.length];
                far.core.read_bytes(at, &mut content);
                let To::Client { session, .. } = record.to else { panic!("{record:?}") };
                taken.push((session, content));
            }
            far.let_go();
        }
        assert_eq!((near.counters.dropped_full, near.counters.sent_frames), (full, put.len() as u64));
        assert_eq!(near.counters.sent_bytes, put.iter().map(|(_, content)| content.len() as u64).sum::<u64>());
        assert!(full > 100 && taken.len() > 1000, "{full} were too many, {} crossed", taken.len());
        assert_eq!(taken[..], put[..taken.len()]);
        assert!(put.len() - taken.len() <= 64, "what is left fits the ring");
    }

    /// Under every schedule. Sanitizers leave out what has this name.
    mod loom {
        use conic_check::loom::thread;
        use conic_check::{Exploration, LoomMemory, Mutation, Weaken, catches, explore};

        use super::*;

        /// One thread puts so many records of a line of frame each, the other takes them.
        fn exchange(memory: &LoomMemory, map: &TrunkMap, records: u64) {
            let mut near = Trunk::new(memory.core("sender"), map, 0, 1);
            let mut far = Trunk::new(memory.core("receiver"), map, 1, 0);
            let thread = thread::spawn(move || {
                for number in 1..=records {
                    while !near.offer(&record(number, 64), |core, at| core.store(at, number)) {
                        near.core.spin();
                    }
                    near.publish();
                }
            });
            for number in 1..=records {
                let (taken, at) = loop {
                    match far.take() {
                        Some(taken) => break taken,
                        None => far.core.spin(),
                    }
                };
                assert_eq!((taken, far.core.load(at)), (record(number, 64), number));
                far.let_go();
            }
            thread.join().expect("the sender ends");
        }

        #[test]
        fn records_cross_under_every_schedule() {
            let map = TrunkMap::with_lines(2);
            let layout = map.layout.clone();
            let executions = explore(&layout, Exploration::full(), move |memory| exchange(memory, &map, 3));
            assert!(executions > 10, "the model has shrunk: {executions} executions");
        }

        #[test]
        fn what_was_put_and_taken_must_be_released_and_acquired() {
            for (word, writer, reader) in [("trunk put", "sender", "receiver"), ("trunk taken", "receiver", "sender")] {
                for mutation in
                    [Mutation::new(Weaken::RelaxedStore).by(writer), Mutation::new(Weaken::RelaxedLoad).by(reader)]
                {
                    let map = TrunkMap::with_lines(2);
                    let (layout, weakened) =
                        (map.layout.clone(), Exploration::full().weakened(mutation.clone().of(word)));
                    let caught = catches(&layout, weakened, move |memory| exchange(memory, &map, 2));
                    assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
                }
            }
        }
    }
}
