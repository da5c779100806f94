//! The way between two threads of a network: two rings of records in private memory, one each way.
//!
//! A record is a line that says what it is, and the lines of its frame behind it, all in one piece: where that does not fit before the
//! ring's end, filler does, and the record begins anew. Frames of one burst of which the same is said stand behind one such line, up to
//! nine of them, each in one piece.
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

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, SynchronisingWords, lines_of};
use conic_interface::ccnic::notify::{Notices, PACKETS};

use super::counters::TrunkCounters;
use super::held::Turn;
use super::record::{Further, MOST_FURTHER, Record};
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

/// Frames behind one line, of which the same is said.
struct Group {
    record: Record,
    /// Bytes of the first; none for a record without a frame.
    length: usize,
    further: Further,
    /// How many further ones there are.
    count: u32,
}

impl Group {
    /// Of one frame.
    fn of(record: &Record, length: usize) -> Group {
        Group { record: *record, length, further: 0, count: 0 }
    }

    #[inline(always)]
    fn takes(&self, record: &Record, length: usize) -> bool {
        let has_place = self.count < MOST_FURTHER && (1..=usize::from(u16::MAX)).contains(&length);
        has_place && self.length > 0 && self.record == *record
    }

    #[inline(always)]
    fn add(&mut self, length: usize) {
        self.further |= (length as Further) << (16 * self.count);
        self.count += 1;
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
    /// What the line that is kept free for it will say, and which line that is: it is written when nothing more is to be said by it.
    open: Option<(Group, u64)>,
    /// Lines that were taken, those that the other knows of, and up to where some were put when that was looked at last.
    taken: u64,
    let_go: u64,
    put_until: u64,
    /// What was said last, and of which further frames.
    said: Record,
    further: Further,
    /// Stations of which the other is still to be told, and behind which port of the network each is.
    untold: VecDeque<(Station, Option<u32>)>,
    /// The other was asked to ring.
    is_armed: bool,
    /// Who may put frames, while a port waits for room.
    pub(super) turn: Turn,
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
            open: None,
            taken: 0,
            let_go: 0,
            put_until: 0,
            said: Record::NONE,
            further: 0,
            untold: VecDeque::new(),
            is_armed: false,
            turn: Turn::Everybody,
            counters: TrunkCounters::default(),
        }
    }

    /// Puts a record, and its frame of so many bytes as `write` does it; counts it if there is no room.
    #[inline]
    pub(super) fn offer(&mut self, record: &Record, length: usize, write: impl FnOnce(&C, Address)) -> bool {
        self.offer_but(0, record, length, write)
    }

    /// The same for what a port gave.
    pub(super) fn offer_of_port(&mut self, record: &Record, length: usize, write: impl FnOnce(&C, Address)) {
        let before = self.put;
        self.offer_but(0, record, length, write);
        self.turn.port_has_put(self.put - before);
    }

    /// The same for a client's frame: in the ports' turn, what is left to them is no room.
    #[inline]
    pub(super) fn offer_of_client(&mut self, record: &Record, length: usize, write: impl FnOnce(&C, Address)) {
        if self.turn == Turn::Everybody {
            self.offer_but(0, record, length, write);
        } else {
            self.offer_in_turn(record, length, write);
        }
    }

    #[inline(never)]
    fn offer_in_turn(&mut self, record: &Record, length: usize, write: impl FnOnce(&C, Address)) {
        let left = if matches!(self.turn, Turn::Ports { .. }) { self.turn_lines() } else { 0 };
        let before = self.put;
        self.offer_but(left, record, length, write);
        self.turn.client_has_put(self.put - before);
    }

    /// The same, so many lines left free.
    #[inline(always)]
    fn offer_but(&mut self, left: u64, record: &Record, length: usize, write: impl FnOnce(&C, Address)) -> bool {
        let frame = lines_of(length as u64);
        let joins = frame <= self.behind() && self.open.as_ref().is_some_and(|(group, _)| group.takes(record, length));
        let lines = frame + u64::from(!joins);
        let filler = self.filler_before(lines);
        let end = self.put + filler + lines;
        if !self.has_room(end + left) {
            self.counters.dropped_full += u64::from(length > 0);
            return false;
        }
        if let Some((group, _)) = self.open.as_mut().filter(|_| joins) {
            group.add(length);
        } else {
            self.close();
            if filler > 0 {
                self.core.write_line(self.out.at(self.put), &Record::filler(filler));
            }
            self.open = Some((Group::of(record, length), self.put + filler));
        }
        write(&self.core, self.out.at(end - frame));
        self.put = end;
        if length > 0 {
            self.counters.sent_frames += 1;
            self.counters.sent_bytes += length as u64;
        }
        true
    }

    /// Whether what is put may end there.
    #[inline(always)]
    fn has_room(&mut self, end: u64) -> bool {
        if end > self.room_until {
            // Acquire: pairs with the release of `let_go`: what lay there was read.
            self.room_until = self.core.load_acquire(self.out.taken) + self.out.count;
        }
        end <= self.room_until
    }

    /// Lines from where the next is put to the ring's end.
    #[inline(always)]
    fn behind(&self) -> u64 {
        self.out.count - (self.put & (self.out.count - 1))
    }

    /// Lines of filler before so many that lie in one piece.
    #[inline(always)]
    fn filler_before(&self, lines: u64) -> u64 {
        let behind = self.behind();
        if behind < lines { behind } else { 0 }
    }

    /// Whether a packet of so many bytes finds room whatever is said of it. It does where nothing is under way: a ring holds the longest.
    pub(super) fn has_room_for(&mut self, length: usize) -> bool {
        let lines = lines_of(length as u64) + 1;
        self.has_room(self.put + self.filler_before(lines) + lines) || self.room_until == self.put + self.out.count
    }

    /// How long a turn is, in lines: the longest packet has room in it wherever the ring's end is.
    fn turn_lines(&self) -> u64 {
        self.out.count / 4
    }

    /// Whether a port may give a frame of up to so many bytes; counts it if not.
    pub(super) fn lets_port(&mut self, longest: usize) -> bool {
        let has_room = self.has_room_for(longest);
        self.turn = self.turn.look(has_room, self.turn_lines());
        let lets = has_room && !matches!(self.turn, Turn::Clients { .. });
        self.counters.held += u64::from(!lets);
        lets
    }

    /// Writes what is said of the frames that were put last.
    fn close(&mut self) {
        if let Some((group, at)) = self.open.take() {
            self.core.write_line(self.out.at(at), &group.record.to_line(group.length, group.further));
        }
    }

    /// Tells the other that stations are here, and behind which port of the network each is; what finds no room now is told with the
    /// next.
    pub(super) fn tell(&mut self, stations: &[(Station, Option<u32>)]) {
        // Who is not told asks everybody.
        let room = MOST_UNTOLD - self.untold.len();
        self.untold.extend(&stations[..stations.len().min(room)]);
        while let Some(&(station, behind)) = self.untold.front()
            && self.offer(&Record::news(station, behind), 0, |_, _| {})
        {
            self.untold.pop_front();
        }
    }

    /// Lets the other have what was put; whether it must be rung.
    pub(super) fn publish(&mut self) -> bool {
        if self.published == self.put {
            return false;
        }
        self.close();
        // Release: the records were written before.
        self.core.store_release(self.out.put, self.put);
        self.published = self.put;
        self.notices.must_ring(&self.core, 1 - self.own, PACKETS)
    }

    /// What is said of the next frame, its bytes, and where it lies until this end lets go.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Record, usize, Address)> {
        let begun = self.taken;
        let length = if self.further == 0 {
            self.take_record()?
        } else {
            let length = usize::from(self.further as u16);
            self.further >>= 16;
            length
        };
        let at = self.into.at(self.taken);
        self.taken += lines_of(length as u64);
        self.fetch_ahead(self.taken - begun);
        Some((self.said, length, at))
    }

    /// Takes the next record's line, if there is one; the bytes of its first frame.
    #[inline(always)]
    fn take_record(&mut self) -> Option<usize> {
        loop {
            if self.taken == self.put_until {
                // Acquire: pairs with the release of `publish`: the records are there.
                self.put_until = self.core.load_acquire(self.into.put);
                if self.taken == self.put_until {
                    return None;
                }
            }
            match Record::of_line(&self.core.read_line(self.into.at(self.taken))) {
                Ok((record, length, further)) => {
                    self.taken += 1;
                    (self.said, self.further) = (record, further);
                    return Some(length);
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

    /// A frame for a client whose number it is.
    fn record(number: u64) -> Record {
        let to = To::Client { session: number, queue: None };
        Record { to, vlan: None, known: Metadata::NONE, work: None, behind: None }
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
        assert!(near.offer(&record(1), 3 * 64, |_, _| {}), "it fits, and nothing beside it");
        near.tell(&[told(1), told(2)]);
        near.publish();
        assert_eq!(far.take().map(|(_, length, _)| length), Some(3 * 64));
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
        assert!(near.offer(&record(1), 3 * 64, |_, _| {}), "it fits, and nothing beside it");
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
            while let Some((record, ..)) = far.take() {
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
        // Each with a line of its own, and several behind one.
        for share in [1, 3, 40] {
            cross(share);
        }
    }

    /// Frames cross, of which so many in turn are for one client.
    fn cross(share: u64) {
        let (mut near, mut far) = pair(64);
        let mut random = fastrand::Rng::with_seed(3);
        let (mut put, mut taken, mut full) = (Vec::new(), Vec::new(), 0);
        for round in 0..4000_u64 {
            let length = if random.bool() { random.usize(1..1500) } else { random.usize(1..130) };
            let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            if near.offer(&record(round / share), length, |core, at| core.write_bytes(at, &content)) {
                put.push((round / share, content));
            } else {
                full += 1;
            }
            if random.u8(..) < 80 {
                near.publish();
            }
            for _ in 0..random.u8(..3) {
                let Some((record, length, at)) = far.take() else { break };
                let mut content = vec![0; length];
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

    #[test]
    fn one_line_is_said_of_up_to_nine_frames_of_a_burst() {
        let (mut near, mut far) = pair(64);
        // Lines that are put, for so many frames of a line each in one burst.
        for (frames, lines) in [(1, 2), (2, 3), (9, 10), (10, 12), (18, 20)] {
            let before = near.put;
            (0..frames).for_each(|_| assert!(near.offer(&record(7), 60, |_, _| {})));
            near.publish();
            let mut crossed = 0;
            while let Some(taken) = far.take() {
                assert_eq!((taken.0, taken.1), (record(7), 60));
                crossed += 1;
            }
            far.let_go();
            // Filler stands before the ring's end at most once, as one line.
            let end = near.put - before - lines;
            assert!(crossed == frames && end <= 1, "{frames} frames, {crossed} crossed, {end} lines too many");
        }
        // What was published is said, and nothing is added to it.
        near.offer(&record(7), 60, |_, _| {});
        near.publish();
        assert!(far.take().is_some() && far.take().is_none());
        near.offer(&record(7), 60, |_, _| {});
        assert!(far.take().is_none(), "it is not published");
        near.publish();
        assert!(far.take().is_some());
    }

    #[test]
    fn what_differs_in_anything_but_length_has_a_line_of_its_own() {
        let (one, group) = (record(1), Group::of(&record(1), 60));
        let begun = conic_interface::metadata::Begun { start: 34, offset: 16 };
        assert!(group.takes(&one, 1) && group.takes(&one, 65_535));
        // Lengths that have no place beside others, and none at all.
        assert!(!group.takes(&one, 65_536) && !group.takes(&one, 0) && !Group::of(&one, 0).takes(&one, 60));
        for other in [
            record(2),
            Record { vlan: Some(0), ..one },
            Record { known: Metadata::NONE.with(Metadata::TRANSPORT_GOOD), ..one },
            Record { work: Some((begun, None)), ..one },
            Record { behind: Some(0), ..one },
            Record { to: To::Client { session: 1, queue: Some(0) }, ..one },
        ] {
            assert!(!group.takes(&other, 60), "{other:?}");
        }
    }

    /// Under every schedule. Sanitizers leave out what has this name.
    mod loom {
        use conic_check::loom::thread;
        use conic_check::{Exploration, LoomMemory, Mutation, Weaken, catches, explore};

        use super::*;

        /// One thread puts so many records of a line of frame each, the other takes them; `burst` of them are published at once, behind
        /// one line.
        fn exchange(memory: &LoomMemory, map: &TrunkMap, records: u64, burst: u64) {
            let mut near = Trunk::new(memory.core("sender"), map, 0, 1);
            let mut far = Trunk::new(memory.core("receiver"), map, 1, 0);
            let thread = thread::spawn(move || {
                for number in 1..=records {
                    let record = record((number - 1) / burst);
                    while !near.offer(&record, 64, |core, at| core.store(at, number)) {
                        near.core.spin();
                    }
                    if number % burst == 0 {
                        near.publish();
                    }
                }
            });
            for number in 1..=records {
                let (taken, _, at) = loop {
                    match far.take() {
                        Some(taken) => break taken,
                        None => far.core.spin(),
                    }
                };
                assert_eq!((taken, far.core.load(at)), (record((number - 1) / burst), number));
                far.let_go();
            }
            thread.join().expect("the sender ends");
        }

        #[test]
        fn records_cross_under_every_schedule() {
            for (lines, records, burst) in [(2, 3, 1), (4, 4, 2)] {
                let map = TrunkMap::with_lines(lines);
                let layout = map.layout.clone();
                let executions =
                    explore(&layout, Exploration::full(), move |memory| exchange(memory, &map, records, burst));
                assert!(executions > 10, "the model has shrunk: {executions} executions");
            }
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
                    let caught = catches(&layout, weakened, move |memory| exchange(memory, &map, 2, 1));
                    assert!(caught.message.contains("Causality violation"), "{mutation:?}: {}", caught.message);
                }
            }
        }
    }
}
