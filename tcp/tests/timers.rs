//! What waits for time, to the picosecond: acknowledgements that are owed, what is under way, and what is sent against a window that is
//! closed. The clock is the test's, and so is the peer: it makes each segment by hand.

use std::cell::Cell;

use crate::common::{Ground, Over, SMALL, TimedCore, connections, segment};
use conic_fabric::{Address, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::Features;
use conic_interface::fastforward::Sender;
use conic_load::FarEnd;
use conic_native::NativeCore;
use conic_tcp::segment::Segment;
use conic_tcp::{Acknowledge, Clients, FastPath, Load, Notice, Shape, Timeouts};

/// What round trips are counted in.
const TICK: Time = Time::from_nanoseconds(1024);
/// How long an acknowledgement may wait for data.
const DELAY: Time = Time::from_nanoseconds(20_000);
const HALF: Time = Time::from_nanoseconds(10_000);
/// For how long something may be under way before a round trip was measured, and how much longer than that at least afterwards.
const TIMEOUT: Time = Time::from_nanoseconds(1024 * 1000);

type Queue<'a> = Box<dyn HostQueue<Core = TimedCore<'a, NativeCore<'a>>> + 'a>;

/// One connection of a fast-path thread; its application and its peer are the test.
struct Bench<'a> {
    ground: &'a Ground,
    fast_path: FastPath<Queue<'a>>,
    nic: Box<dyn NicQueue + 'a>,
    application: Sender<NativeCore<'a>>,
    now: &'a Cell<Time>,
    sleeps_until: &'a Cell<Time>,
    /// The next segment of the peer's; what it acknowledges is what it was sent.
    next: Segment,
}

impl<'a> Bench<'a> {
    fn new(ground: &'a Ground, [now, sleeps_until]: &'a [Cell<Time>; 2]) -> Bench<'a> {
        let core = TimedCore::new(ground.core(), now, sleeps_until);
        let queues = vec![ground.host_of(core, 0)];
        Bench {
            fast_path: FastPath::new(queues, &ground.service, 0, Acknowledge::Delayed(DELAY)).with_timeouts(timeouts()),
            nic: ground.nic(0),
            application: ground.service.context(0, 0).down.sender(ground.core()),
            next: segment(&ground.connections[0], 0),
            ground,
            now,
            sleeps_until,
        }
    }

    /// What is sent until there is nothing to do, at this time.
    fn at(&mut self, now: Time) -> Vec<Segment> {
        assert!(self.now.replace(now) <= now);
        let (mut sent, mut into) = (Vec::new(), vec![0; 2048]);
        while self.fast_path.step() > 0 {}
        while let Some(length) = self.nic.take_frame(&mut into) {
            let frame = Segment::of_frame(&into[..length]).expect("a segment");
            let end = frame.sequence.wrapping_add(frame.payload_bytes.into());
            if end.wrapping_sub(self.next.acknowledged) as i32 > 0 {
                self.next.acknowledged = end;
            }
            sent.push(frame);
        }
        sent
    }

    /// The peer sends so many bytes, so far behind what it sent last.
    fn peer_sends(&mut self, bytes: u16, behind: u32) {
        let sequence = self.next.sequence.wrapping_add(behind);
        let frame = Segment { sequence, ..self.next }.frame(&vec![7; bytes.into()]);
        assert!(self.nic.deliver_frame(&frame));
        if behind == 0 {
            self.next.sequence = sequence.wrapping_add(bytes.into());
        }
    }

    /// The peer says that it has everything, and room for so many bytes more.
    fn peer_has_room_for(&mut self, window: u16) {
        self.next.window = window;
        self.peer_sends(0, 0);
    }

    fn application_says(&mut self, received: u32, transmit: u32) {
        let word = Notice { flow: 0, received, transmit }.word();
        assert!(self.application.try_send(&[word, 0, 0, 0, 0, 0, 0]));
    }

    /// Bytes of the peer's that a segment acknowledges.
    fn acknowledged(&self, segment: &Segment) -> u32 {
        segment.acknowledged.wrapping_sub(self.ground.connections[0].received)
    }

    /// Asserts that what was sent is an acknowledgement alone, of so many bytes.
    fn assert_acknowledges(&self, sent: &[Segment], bytes: u32) {
        let [one] = sent else { panic!("not one segment: {sent:?}") };
        assert_eq!((one.payload_bytes, self.acknowledged(one)), (0, bytes));
    }
}

/// At most five times as long as the shortest.
fn timeouts() -> Timeouts {
    Timeouts::new(TIMEOUT, TIMEOUT, ticks(5000))
}

fn ticks(count: u64) -> Time {
    Time::from_nanoseconds(1024 * count)
}

fn before(time: Time) -> Time {
    Time::from_picoseconds(time.picoseconds() - 1)
}

fn ground() -> Ground {
    Ground::new(Over::CcNic(Features::best()), Shape { threads: 2, ..SMALL }, [5, 6])
}

#[test]
fn what_is_owed_is_sent_alone_in_its_time_and_once() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(TICK), []);
    assert_eq!(bench.sleeps_until.get(), TICK + DELAY);
    bench.peer_sends(10, 0);
    assert_eq!(bench.at(before(TICK + DELAY)), []);
    let sent = bench.at(TICK + DELAY);
    bench.assert_acknowledges(&sent, 74);
    assert_eq!(bench.at(TIMEOUT + TIMEOUT), [], "all was acknowledged by the one");
    assert_eq!(bench.sleeps_until.get(), Time::NEVER);
}

/// What went with data is owed no more; what comes behind that has its own time, and not the old one's.
#[test]
fn what_went_with_data_is_not_sent_again_and_what_is_owed_behind_it_not_too_early() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    let (half, due) = (TICK + HALF, TICK + DELAY);
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(TICK), []);
    bench.application_says(64, 64);
    let sent = bench.at(TICK);
    let [answer] = &sent[..] else { panic!("not one segment: {sent:?}") };
    assert_eq!((answer.payload_bytes, bench.acknowledged(answer)), (64, 64));
    // Half of the time later there is more.
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(half), []);
    assert_eq!(bench.at(due), [], "what was owed by then went with the answer");
    assert_eq!(bench.at(before(half + DELAY)), []);
    assert_eq!(bench.sleeps_until.get(), half + DELAY);
    let sent = bench.at(half + DELAY);
    bench.assert_acknowledges(&sent, 128);
    assert_eq!(bench.at(TIMEOUT + TIMEOUT), []);
    assert_eq!(bench.fast_path.counted().acknowledgements, 1);
}

#[test]
fn what_was_said_at_once_of_data_behind_a_gap_is_not_said_again_in_time() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    let (half, due) = (TICK + HALF, TICK + DELAY);
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(TICK), []);
    bench.peer_sends(64, 64);
    let sent = bench.at(half);
    bench.assert_acknowledges(&sent, 64);
    assert_eq!(bench.at(due), [], "it was said with the other");
    // The gap is filled: that is owed from then on.
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(due), []);
    let sent = bench.at(due + DELAY);
    bench.assert_acknowledges(&sent, 192);
    assert_eq!(bench.fast_path.counted().acknowledgements, 2);
}

#[test]
fn what_went_with_a_window_that_opens_is_not_said_again_in_time() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    bench.peer_sends(1024, 0);
    assert_eq!(bench.at(TICK), []);
    bench.application_says(1024, 0);
    let sent = bench.at(TICK + HALF);
    bench.assert_acknowledges(&sent, 1024);
    assert_eq!(sent[0].window, 1024);
    assert_eq!(bench.at(TICK + DELAY), []);
}

/// While what was lost is sent again, a segment without data still has the number behind all that was ever sent (RFC 9293, section 3.10.7.4):
/// before that a peer that has all of it takes the segment for an old one, and does not read what it acknowledges.
#[test]
fn an_acknowledgement_alone_has_the_number_behind_all_that_was_sent() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    let begun = bench.next.acknowledged;
    bench.application_says(0, 1000);
    assert_eq!(bench.at(TICK).iter().map(|sent| sent.payload_bytes).sum::<u16>(), 1000);
    // The peer's acknowledgements are lost, but for one that leaves less room: a part is sent again.
    (bench.next.acknowledged, bench.next.window) = (begun, 100);
    bench.peer_sends(0, 0);
    let late = TICK + TIMEOUT + TIMEOUT;
    assert_eq!(bench.at(late).iter().map(|sent| sent.payload_bytes).sum::<u16>(), 100);
    bench.next.acknowledged = begun;
    // Behind a gap, which is answered at once; and in order, which is in its time.
    bench.peer_sends(64, 64);
    bench.peer_sends(64, 0);
    let sent = [bench.at(late), bench.at(late + DELAY)].concat();
    let numbers = sent.iter().map(|sent| (sent.payload_bytes, sent.sequence.wrapping_sub(begun)));
    assert_eq!(numbers.collect::<Vec<_>>(), [(0, 1000), (0, 1000)], "{sent:?}");
}

/// The one segment that says that a window has opened may be lost: in time a byte is sent, and again after ever longer times, until there
/// is room.
#[test]
fn against_a_window_that_stays_closed_a_byte_is_sent_each_time() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    bench.next.window = 100;
    bench.peer_sends(0, 0);
    bench.application_says(0, 300);
    assert_eq!(bench.at(TICK).iter().map(|sent| sent.payload_bytes).sum::<u16>(), 100);
    bench.peer_has_room_for(0);
    let closed = TICK + TICK;
    assert_eq!(bench.at(closed), []);
    let kept = bench.next.acknowledged;
    // Beside the round trip, which was a tick.
    let mut due = closed;
    for waited in [1001, 2002, 4004, 5000, 5000] {
        due += ticks(waited);
        assert_eq!(bench.at(before(due)), []);
        let sent = bench.at(due);
        assert_eq!(sent.iter().map(|sent| (sent.sequence, sent.payload_bytes)).collect::<Vec<_>>(), [(kept, 1)]);
        // There is no room for it.
        bench.next.acknowledged = kept;
        bench.peer_has_room_for(0);
        assert_eq!(bench.at(due), []);
    }
    // Now there was; and a closed window was no sign of a network that bears less.
    bench.next.acknowledged = kept.wrapping_add(1);
    bench.peer_has_room_for(1000);
    let sent = bench.at(due + TICK);
    let rest = (kept.wrapping_add(1), 199);
    assert_eq!(sent.iter().map(|sent| (sent.sequence, sent.payload_bytes)).collect::<Vec<_>>(), [rest]);
    assert_eq!(bench.fast_path.counted().timeouts, 5);
}

/// Sends 64 bytes at this time, and has them acknowledged so many ticks later.
fn round_trip(bench: &mut Bench<'_>, at: Time, takes: u64) {
    bench.application_says(0, 64);
    assert_eq!(bench.at(at).len(), 1);
    if takes > 0 {
        assert_eq!(bench.at(before(at + ticks(takes))), []);
    }
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(at + ticks(takes)), []);
    assert_eq!(bench.fast_path.counted().timeouts, 0);
}

#[test]
fn what_is_under_way_is_sent_again_in_the_time_that_its_round_trips_say() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    // Before any is known.
    bench.application_says(0, 64);
    assert_eq!(bench.at(TICK).len(), 1);
    assert_eq!(bench.sleeps_until.get(), TICK + TIMEOUT);
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(ticks(801)), []);
    // SRTT 800 ticks and RTTVAR 400; then 7/8 * 800 + 1/8 * 1600 = 900 and 3/4 * 400 + 1/4 * 800 = 500.
    round_trip(&mut bench, ticks(10_000), 1600);
    bench.application_says(0, 64);
    let sent = ticks(20_000);
    assert_eq!(bench.at(sent).len(), 1);
    assert_eq!(bench.sleeps_until.get(), sent + ticks(900 + 4 * 500));
    assert_eq!(bench.at(before(sent + ticks(2900))), []);
    let again = bench.at(sent + ticks(2900));
    assert_eq!(again.iter().map(|segment| segment.payload_bytes).collect::<Vec<_>>(), [64]);
    assert_eq!(
        bench.sleeps_until.get(),
        sent + ticks(2900 + 5000),
        "twice as long, but no longer than is waited at most"
    );
}

/// Karn's rule, in a thread: what was sent twice is not measured, and what was doubled stays so until something was that was sent once.
#[test]
fn what_was_sent_twice_says_nothing_of_round_trips() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    round_trip(&mut bench, TICK, 0);
    let waits = 1000 + 1;
    bench.application_says(0, 64);
    let sent = ticks(10_000);
    assert_eq!(bench.at(sent).len(), 1);
    assert_eq!(bench.at(sent + ticks(waits)).len(), 1);
    assert_eq!(bench.sleeps_until.get(), sent + ticks(waits) + ticks(2 * waits));
    // A tick behind the second, a thousand behind the first.
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(sent + ticks(waits + 1)), []);
    bench.application_says(0, 64);
    let next = ticks(20_000);
    assert_eq!(bench.at(next).len(), 1);
    assert_eq!(bench.sleeps_until.get(), next + ticks(2 * waits));
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(next), []);
    bench.application_says(0, 64);
    assert_eq!(bench.at(ticks(30_000)).len(), 1);
    assert_eq!(bench.sleeps_until.get(), ticks(30_000 + waits), "one that was sent once was measured");
}

/// The clock is looked at in time for what waits for less than others, and for less than it did.
#[test]
fn what_waits_for_less_than_it_did_is_looked_at_earlier() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    bench.application_says(0, 64);
    // Nobody answers until the timeout is at its longest.
    let due = [1, 1001, 3001, 7001];
    for at in due {
        assert_eq!(bench.at(ticks(at)).len(), 1, "{at}");
    }
    assert_eq!(bench.sleeps_until.get(), ticks(7001 + 5000));
    // The answer, and two segments more: the first of them is acknowledged at once.
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(ticks(7002)), []);
    bench.application_says(0, 64);
    let first = bench.at(ticks(7010));
    bench.application_says(0, 64);
    assert_eq!(bench.at(ticks(7010)).len(), 1);
    bench.next.acknowledged = first[0].sequence.wrapping_add(64);
    bench.peer_sends(0, 0);
    assert_eq!(bench.at(ticks(7011)), []);
    assert_eq!(bench.sleeps_until.get(), ticks(7011 + 1001));
    assert_eq!(bench.at(before(ticks(7011 + 1001))), []);
    assert_eq!(bench.at(ticks(7011 + 1001)).len(), 1);
}

/// What waits for a buffer has no timer; where a window closes meanwhile it waits for that, and must have one.
#[test]
fn a_window_that_closes_while_nothing_is_under_way_is_tried_in_time() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    // Somebody else has all large buffers.
    let mut other = ground.host(1);
    let mut taken = Vec::new();
    let mut more = [Address(0); 32];
    loop {
        match other.buf_alloc(1500, &mut more) {
            0 => break,
            count => taken.extend_from_slice(&more[..count]),
        }
    }
    bench.application_says(0, 1000);
    assert_eq!(bench.at(TICK), []);
    // The timer finds nothing that is under way.
    assert_eq!(bench.at(TICK + TIMEOUT), []);
    let closed = TICK + TIMEOUT + TICK;
    bench.peer_has_room_for(0);
    assert_eq!(bench.at(closed), []);
    // There is room again for what is to be sent, and nobody ever hears that the window is open.
    other.buf_free(&taken);
    assert_eq!(bench.at(before(closed + TIMEOUT)), []);
    assert_eq!(bench.sleeps_until.get(), closed + TIMEOUT);
    let sent = bench.at(closed + TIMEOUT);
    assert_eq!(sent.iter().map(|sent| sent.payload_bytes).collect::<Vec<_>>(), [1]);
    bench.peer_has_room_for(1000);
    let sent = bench.at(closed + TIMEOUT);
    assert_eq!(sent.iter().map(|sent| sent.payload_bytes).collect::<Vec<_>>(), [999]);
}

/// The same of a client: its service closes the window with the answer, when nothing is under way.
#[test]
fn a_client_tries_a_window_that_closes_while_nothing_is_under_way() {
    let connection = connections(SMALL, [5, 6])[0];
    let load = Load { window: 1, requests_a_segment: 1 };
    let mut clients = Clients::new(&[connection], 1024, load, 3).with_timeouts(timeouts());
    let frames = clients.packets(TICK).to_vec();
    clients.delivered(frames.len());
    let request = Segment::of_frame(&frames[0]).expect("a segment");
    assert_eq!((frames.len(), request.payload_bytes), (1, 64));
    let said = Segment {
        from: request.to,
        to: request.from,
        sequence: request.acknowledged,
        acknowledged: request.sequence.wrapping_add(64),
        window: 0,
        payload_bytes: 0,
        ..request
    };
    clients.came_back(&said.frame(&[]), TICK);
    assert_eq!(clients.packets(TICK), &[] as &[Vec<u8>]);
    // The timer finds nothing that is under way.
    let looked = TICK + TIMEOUT;
    assert_eq!(clients.packets(looked), &[] as &[Vec<u8>]);
    assert_eq!(clients.next_due(), Time::NEVER);
    // The answer comes, and there is no room for the next request.
    let answered = looked + TICK;
    clients.came_back(&said.frame(&frames[0][54..]), answered);
    assert_eq!((clients.account().received(), clients.account().corrupt()), (1, 0));
    let frames = clients.packets(answered).to_vec();
    clients.delivered(frames.len());
    assert!(frames.iter().all(|frame| Segment::of_frame(frame).expect("a segment").payload_bytes == 0), "{frames:?}");
    // Its round trip was shorter than a tick.
    let due = answered + TIMEOUT + TICK;
    assert_eq!(clients.next_due(), due);
    assert_eq!(clients.packets(before(due)), &[] as &[Vec<u8>]);
    let frames = clients.packets(due).to_vec();
    let bytes = frames.iter().map(|frame| Segment::of_frame(frame).expect("a segment").payload_bytes);
    assert_eq!(bytes.collect::<Vec<_>>(), [1]);
}
