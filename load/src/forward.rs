//! Packets that the NIC receives, the host looks at and the NIC sends on: what a middlebox does (CC-NIC section 6). The NIC
//! stands for the network on both sides: it makes packets, delivers them, and checks what comes back.

use conic_fabric::{Core, LINE_BYTES, Line, Time, lines_of};
use conic_interface::burst::{HostQueue, NicQueue, Packet, fetch_ahead};

use crate::account::pattern;
use crate::closed_loop::{MOST, WORK_A_PACKET};
use crate::pace::Pace;
use crate::{Account, Traffic};

/// What the host does to a packet that it sends on, in the same buffer.
///
/// The first three words of a packet are a time stamp, its sequence number, and a word that the host raises by one, as a
/// router changes a header; all others are the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Touch {
    /// It reads the first line and changes it.
    #[default]
    Header,
    /// It reads all lines and changes the first.
    Whole,
    /// It reads and changes all lines.
    Rewrite,
}

/// The word of a packet that the host raises.
const HOPS: usize = 2;
/// Words before the payload.
const HEADER: usize = 3;

/// An application that sends on what it receives.
#[derive(Debug)]
pub struct Forwarder<Q> {
    queue: Q,
    touch: Touch,
    burst: usize,
    fetch_ahead: bool,
    /// Packets that were looked at and did not fit into the ring.
    waiting: Box<[Packet; MOST]>,
    count: usize,
    /// Room for a packet.
    lines: Vec<Line>,
}

impl<Q: HostQueue> Forwarder<Q> {
    /// An application on a queue, which receives up to `burst` packets at once; `fetch_ahead` if it asks for the lines
    /// of the packet after the one that it looks at, where it looks at all of them.
    pub fn new(queue: Q, touch: Touch, burst: usize, fetch_ahead: bool) -> Forwarder<Q> {
        let (burst, waiting) = (burst.clamp(1, MOST), Box::new([Packet::BLANK; MOST]));
        Forwarder { queue, touch, burst, fetch_ahead, waiting, count: 0, lines: Vec::new() }
    }

    /// Receives a burst, unless one waits, looks at it and sends it on; returns how many packets were sent.
    pub fn step(&mut self) -> usize {
        if self.count == 0 {
            self.count = self.queue.rx_burst(&mut self.waiting[..self.burst]);
            self.queue.core().work(WORK_A_PACKET * self.count as u32);
            for index in 0..self.count {
                if self.fetch_ahead
                    && self.touch != Touch::Header
                    && let Some(next) = self.waiting[..self.count].get(index + 1)
                {
                    fetch_ahead(self.queue.core(), next);
                }
                self.look_at(self.waiting[index]);
            }
        }
        let sent = self.queue.tx_burst(&self.waiting[..self.count]);
        self.waiting.copy_within(sent..self.count, 0);
        self.count -= sent;
        if sent == 0 {
            self.queue.core().spin();
        }
        sent
    }

    /// Reads what is to be read, and changes what is to be changed. A packet that is not as it was sent keeps its header, so
    /// that whoever made it sees that.
    fn look_at(&mut self, packet: Packet) {
        let (core, at) = (self.queue.core(), packet.address());
        let words = usize::from(packet.length()) / 8;
        let lines = if self.touch == Touch::Header { 1 } else { lines_of(packet.length().into()) };
        self.lines.resize(lines as usize, Line::ZERO);
        core.read_lines(at, &mut self.lines);
        let [stamp, sequence, ..] = self.lines[0].0;
        let word = pattern(sequence, stamp);
        let payload = self.lines.iter_mut().flat_map(|line| &mut line.0).take(words).skip(HEADER);
        let (mut good, change) = (true, if self.touch == Touch::Rewrite { u64::MAX } else { 0 });
        for lane in payload {
            good &= *lane == word;
            *lane ^= change;
        }
        let hops = &mut self.lines[0].0[HOPS];
        *hops = hops.wrapping_add(u64::from(good));
        let changed = if self.touch == Touch::Rewrite { &self.lines[..] } else { &self.lines[..1] };
        core.write_lines(at, changed);
    }
}

/// Who is behind the NIC: makes packets and checks what comes back; whoever has it moves them.
pub trait FarEnd {
    /// The packets to deliver now: those that were not taken before, or as many new ones as are due.
    fn packets(&mut self, now: Time) -> &[Vec<u8>];
    /// Says that so many of those, from the front, were delivered.
    fn delivered(&mut self, count: usize);
    /// Checks a packet that has come back.
    fn came_back(&mut self, frame: &[u8], now: Time);
    /// Until when nothing need be made.
    fn next_due(&self) -> Time;
    /// Packets at once, at most.
    fn burst(&self) -> usize;
    /// Bytes of the largest packet that comes back.
    fn most_bytes(&self) -> usize;
    /// What became of the packets.
    fn account(&self) -> &Account;
    /// The same, to forget a warm-up's latencies.
    fn account_mut(&mut self) -> &mut Account;
    /// Packets are due one `interval` after the other from `start` on, and latency counts from then.
    fn pace(&mut self, start: Time, interval: Time);
}

/// Makes packets that are sent on as they are, but for what the host does to them, and checks them.
#[derive(Debug)]
pub struct Generator {
    touch: Touch,
    window: u64,
    account: Account,
    pace: Option<Pace>,
    /// Packets that were made and not taken, of so many that there is room for.
    frames: Vec<Vec<u8>>,
    made: usize,
}

impl Generator {
    /// A generator of packets of `size` bytes, 24 at least, with `window` in flight at most, `burst` at once, for a host
    /// that does `touch` to them.
    pub fn new(size: u16, window: u64, burst: usize, touch: Touch) -> Generator {
        let frame = vec![0; usize::from(size).max(8 * HEADER)];
        let frames = vec![frame; burst.clamp(1, MOST)];
        Generator { touch, window: window.max(1), account: Account::default(), pace: None, frames, made: 0 }
    }
}

impl FarEnd for Generator {
    fn account(&self) -> &Account {
        &self.account
    }
    fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }
    fn burst(&self) -> usize {
        self.frames.len()
    }
    fn most_bytes(&self) -> usize {
        self.frames[0].len()
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.pace = Some(Pace::new(start, self.account.sent, interval));
    }
    fn next_due(&self) -> Time {
        self.pace.map_or(Time::NEVER, |pace| Time::from_picoseconds(pace.due(self.account.sent)))
    }
    fn packets(&mut self, now: Time) -> &[Vec<u8>] {
        let now = now.picoseconds();
        if self.made == 0 {
            let due = self.pace.map_or(usize::MAX, |pace| pace.waiting(self.account.sent, now));
            let room = self.window.saturating_sub(self.account.in_flight()) as usize;
            self.made = room.min(due).min(self.frames.len());
            for frame in &mut self.frames[..self.made] {
                let sequence = self.account.sent;
                let stamp = self.pace.map_or(now, |pace| pace.due(sequence));
                let word = pattern(sequence, stamp).to_ne_bytes();
                frame.chunks_mut(8).for_each(|bytes| bytes.copy_from_slice(&word[..bytes.len()]));
                frame[..8].copy_from_slice(&stamp.to_ne_bytes());
                frame[8..16].copy_from_slice(&sequence.to_ne_bytes());
                self.account.sent += 1;
            }
        }
        &self.frames[..self.made]
    }
    fn delivered(&mut self, count: usize) {
        self.frames[..self.made].rotate_left(count);
        self.made -= count;
    }
    fn came_back(&mut self, frame: &[u8], now: Time) {
        let mut words = frame.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight bytes")));
        let (stamp, sequence, hops) = (words.next(), words.next(), words.next());
        let (Some(stamp), Some(sequence), Some(hops)) = (stamp, sequence, hops) else {
            return self.account.spoilt();
        };
        let word = pattern(sequence, stamp);
        let payload = if self.touch == Touch::Rewrite { !word } else { word };
        self.account.enter(sequence);
        if frame.len() != self.frames[0].len() || hops != word.wrapping_add(1) || words.any(|other| other != payload) {
            self.account.spoilt();
        }
        self.account.took(stamp, now.picoseconds(), 1);
    }
}

/// A NIC core with a far end: the network on both sides of a queue pair.
#[derive(Debug)]
pub struct Network<C, Q, E = Generator> {
    core: C,
    queue: Q,
    far_end: E,
    frame: Vec<u8>,
}

impl<C: Core, Q: NicQueue, E: FarEnd> Network<C, Q, E> {
    /// A network at the NIC's half of a queue pair.
    pub fn new(core: C, queue: Q, far_end: E) -> Network<C, Q, E> {
        let frame = vec![0; far_end.most_bytes().next_multiple_of(LINE_BYTES as usize)];
        Network { core, queue, far_end, frame }
    }

    /// Who is behind the NIC.
    pub fn far_end(&self) -> &E {
        &self.far_end
    }
}

impl<C: Core, Q: NicQueue, E: FarEnd> Traffic for Network<C, Q, E> {
    fn step(&mut self) -> usize {
        let mut taken = 0;
        while taken < self.far_end.burst()
            && let Some(length) = self.queue.take_frame(&mut self.frame)
        {
            self.far_end.came_back(&self.frame[..length], self.core.now());
            taken += 1;
        }
        let packets = self.far_end.packets(self.core.now());
        let delivered = if packets.is_empty() { 0 } else { self.queue.deliver_frames(packets) };
        self.far_end.delivered(delivered);
        if taken + delivered == 0 {
            match self.far_end.next_due() {
                Time::NEVER => self.core.spin(),
                until => self.core.spin_until(until),
            }
        }
        taken
    }
    fn account(&self) -> &Account {
        self.far_end.account()
    }
    fn account_mut(&mut self) -> &mut Account {
        self.far_end.account_mut()
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.far_end.pace(start, interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes back of a packet whose words were changed so.
    fn judged(touch: Touch, change: impl Fn(&mut Vec<u8>)) -> (u64, u64) {
        let mut generator = Generator::new(100, 1, 1, touch);
        let mut frame = generator.packets(Time::ZERO)[0].clone();
        generator.delivered(1);
        let hops = u64::from_ne_bytes(frame[16..24].try_into().expect("eight bytes")).wrapping_add(1);
        frame[16..24].copy_from_slice(&hops.to_ne_bytes());
        if touch == Touch::Rewrite {
            frame[24..96].iter_mut().for_each(|byte| *byte = !*byte);
        }
        change(&mut frame);
        generator.came_back(&frame, Time::from_nanoseconds(1));
        (generator.account().received(), generator.account().corrupt())
    }

    #[test]
    fn a_packet_is_judged_by_header_payload_and_length() {
        for touch in [Touch::Header, Touch::Whole, Touch::Rewrite] {
            assert_eq!(judged(touch, |_| ()), (1, 0));
            assert_eq!(judged(touch, |frame| frame[16] ^= 1), (1, 1), "a header that the host did not change");
            assert_eq!(judged(touch, |frame| frame[0] ^= 1), (1, 1), "a time stamp");
            assert_eq!(judged(touch, |frame| frame[95] ^= 1), (1, 1), "the last whole word");
            assert_eq!(judged(touch, |frame| frame.truncate(96)), (1, 1), "a length");
            assert_eq!(judged(touch, |frame| frame[8] ^= 1), (0, 2), "a sequence number, and with it all else");
            assert_eq!(judged(touch, |frame| frame.truncate(20)), (0, 1), "not even a header");
        }
    }

    #[test]
    fn packets_that_were_not_taken_are_offered_again_in_order() {
        let mut generator = Generator::new(64, 8, 4, Touch::Header);
        let sequences = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame[8]).collect::<Vec<_>>();
        assert_eq!(sequences(generator.packets(Time::ZERO)), [0, 1, 2, 3]);
        generator.delivered(1);
        assert_eq!(sequences(generator.packets(Time::ZERO)), [1, 2, 3]);
        generator.delivered(3);
        assert_eq!(sequences(generator.packets(Time::ZERO)), [4, 5, 6, 7]);
        generator.delivered(4);
        assert!(generator.packets(Time::ZERO).is_empty(), "the window is full");
    }
}
