//! What waits for time, to the picosecond: acknowledgements that are owed, and what is sent against a window that is closed. The clock is
//! the test's, and so is the peer: it makes each segment by hand.

use std::cell::Cell;

use crate::common::{Ground, Over, SMALL, TimedCore, connections, segment};
use conic_fabric::{Address, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::ccnic::Features;
use conic_interface::fastforward::Sender;
use conic_load::FarEnd;
use conic_native::NativeCore;
use conic_tcp::segment::Segment;
use conic_tcp::{Acknowledge, Clients, FastPath, Load, Notice, Shape};

const MICROSECOND: Time = Time::from_nanoseconds(1000);
/// How long an acknowledgement may wait for data.
const DELAY: Time = Time::from_nanoseconds(20_000);
const HALF: Time = Time::from_nanoseconds(10_000);
/// For how long something may be under way.
const TIMEOUT: Time = Time::from_nanoseconds(1_000_000);

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
            fast_path: FastPath::new(queues, &ground.service, 0, Acknowledge::Delayed(DELAY)).with_timeout(TIMEOUT),
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
    assert_eq!(bench.at(MICROSECOND), []);
    assert_eq!(bench.sleeps_until.get(), MICROSECOND + DELAY);
    bench.peer_sends(10, 0);
    assert_eq!(bench.at(before(MICROSECOND + DELAY)), []);
    let sent = bench.at(MICROSECOND + DELAY);
    bench.assert_acknowledges(&sent, 74);
    assert_eq!(bench.at(TIMEOUT + TIMEOUT), [], "all was acknowledged by the one");
    assert_eq!(bench.sleeps_until.get(), Time::NEVER);
}

/// What went with data is owed no more; what comes behind that has its own time, and not the old one's.
#[test]
fn what_went_with_data_is_not_sent_again_and_what_is_owed_behind_it_not_too_early() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    let (half, due) = (MICROSECOND + HALF, MICROSECOND + DELAY);
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(MICROSECOND), []);
    bench.application_says(64, 64);
    let sent = bench.at(MICROSECOND);
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
    let (half, due) = (MICROSECOND + HALF, MICROSECOND + DELAY);
    bench.peer_sends(64, 0);
    assert_eq!(bench.at(MICROSECOND), []);
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
    assert_eq!(bench.at(MICROSECOND), []);
    bench.application_says(1024, 0);
    let sent = bench.at(MICROSECOND + HALF);
    bench.assert_acknowledges(&sent, 1024);
    assert_eq!(sent[0].window, 1024);
    assert_eq!(bench.at(MICROSECOND + DELAY), []);
}

/// The one segment that says that a window has opened may be lost: in time a byte is sent, and again, until there is room.
#[test]
fn against_a_window_that_stays_closed_a_byte_is_sent_each_time() {
    let (ground, clock) = (ground(), Default::default());
    let mut bench = Bench::new(&ground, &clock);
    bench.next.window = 100;
    bench.peer_sends(0, 0);
    bench.application_says(0, 300);
    assert_eq!(bench.at(MICROSECOND).iter().map(|sent| sent.payload_bytes).sum::<u16>(), 100);
    bench.peer_has_room_for(0);
    let closed = MICROSECOND + MICROSECOND;
    assert_eq!(bench.at(closed), []);
    let kept = bench.next.acknowledged;
    let mut due = closed + TIMEOUT;
    for _ in 0..5 {
        assert_eq!(bench.at(before(due)), []);
        let sent = bench.at(due);
        assert_eq!(sent.iter().map(|sent| (sent.sequence, sent.payload_bytes)).collect::<Vec<_>>(), [(kept, 1)]);
        // There is no room for it.
        bench.next.acknowledged = kept;
        bench.peer_has_room_for(0);
        assert_eq!(bench.at(due), []);
        due += TIMEOUT;
    }
    // Now there was.
    bench.next.acknowledged = kept.wrapping_add(1);
    bench.peer_has_room_for(1000);
    let sent = bench.at(before(due));
    let rest = (kept.wrapping_add(1), 199);
    assert_eq!(sent.iter().map(|sent| (sent.sequence, sent.payload_bytes)).collect::<Vec<_>>(), [rest]);
    assert_eq!(bench.fast_path.counted().timeouts, 5);
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
    assert_eq!(bench.at(MICROSECOND), []);
    // The timer finds nothing that is under way.
    assert_eq!(bench.at(MICROSECOND + TIMEOUT), []);
    let closed = MICROSECOND + TIMEOUT + MICROSECOND;
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
    let mut clients = Clients::new(&[connection], 1024, load, 3).with_timeout(TIMEOUT);
    let frames = clients.packets(MICROSECOND).to_vec();
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
    clients.came_back(&said.frame(&[]), MICROSECOND);
    assert_eq!(clients.packets(MICROSECOND), &[] as &[Vec<u8>]);
    // The timer finds nothing that is under way.
    let looked = MICROSECOND + TIMEOUT;
    assert_eq!(clients.packets(looked), &[] as &[Vec<u8>]);
    assert_eq!(clients.next_due(), Time::NEVER);
    // The answer comes, and there is no room for the next request.
    let answered = looked + MICROSECOND;
    clients.came_back(&said.frame(&frames[0][54..]), answered);
    assert_eq!((clients.account().received(), clients.account().corrupt()), (1, 0));
    let frames = clients.packets(answered).to_vec();
    clients.delivered(frames.len());
    assert!(frames.iter().all(|frame| Segment::of_frame(frame).expect("a segment").payload_bytes == 0), "{frames:?}");
    assert_eq!(clients.next_due(), answered + TIMEOUT);
    assert_eq!(clients.packets(before(answered + TIMEOUT)), &[] as &[Vec<u8>]);
    let frames = clients.packets(answered + TIMEOUT).to_vec();
    let bytes = frames.iter().map(|frame| Segment::of_frame(frame).expect("a segment").payload_bytes);
    assert_eq!(bytes.collect::<Vec<_>>(), [1]);
}
