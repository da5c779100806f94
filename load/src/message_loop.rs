//! The loopback workload over message queues: packets go by value, in as many of a queue's messages as they need.

use conic_fabric::{Core, Line, Time};
use conic_interface::{cachable_queue, fastforward};

use crate::account::pattern;
use crate::pace::Pace;
use crate::{Account, Traffic};

mod line_pair;

pub use line_pair::{LinePairReceiver, LinePairSender, line_pair_ends};

/// The end of a message queue that sends.
pub trait SendPacket {
    /// The core it runs on.
    type Core: Core;
    /// The core it runs on.
    fn core(&self) -> &Self::Core;
    /// Sends a packet; false if it does not fit yet. Then the same packet must be offered again: a part of it may have gone.
    fn try_send(&mut self, packet: &[u64]) -> bool;
}

/// The end of a message queue that receives.
pub trait ReceivePacket {
    /// Receives a packet; false if it is not whole yet.
    fn try_receive(&mut self, packet: &mut [u64]) -> bool;
}

/// Words of a cachable queue's message that carry payload, for packets of `words` words: word 0 is the queue's.
fn lines_of_words(words: usize) -> usize {
    (words + 1).div_ceil(8)
}

/// Lines of a cachable queue's message that holds a packet of so many bytes.
pub fn message_lines(packet_size: u16) -> u64 {
    lines_of_words(words_of(packet_size)) as u64
}

/// Slots of a FastForward queue that hold a packet of so many bytes.
pub fn slots_of(packet_size: u16) -> u64 {
    words_of(packet_size).div_ceil(7) as u64
}

/// Words that hold a packet: its bytes rounded up, and a time stamp and a sequence number at least.
fn words_of(packet_size: u16) -> usize {
    usize::from(packet_size).div_ceil(8).max(2)
}

/// A cachable queue's sender with the message it puts together.
#[derive(Debug)]
pub struct CachableSender<C> {
    queue: cachable_queue::Sender<C>,
    message: Vec<Line>,
}

impl<C: Core> CachableSender<C> {
    /// A sender of packets of so many bytes; the queue's messages have [`message_lines`].
    pub fn new(queue: cachable_queue::Sender<C>, packet_size: u16) -> CachableSender<C> {
        CachableSender { queue, message: vec![Line::ZERO; message_lines(packet_size) as usize] }
    }
}

impl<C: Core> SendPacket for CachableSender<C> {
    type Core = C;
    fn core(&self) -> &C {
        self.queue.core()
    }
    #[inline(always)]
    fn try_send(&mut self, packet: &[u64]) -> bool {
        for (index, word) in (1..).zip(packet) {
            self.message[index / 8].0[index % 8] = *word;
        }
        self.queue.try_send(&self.message)
    }
}

/// A cachable queue's receiver with the message it takes apart.
#[derive(Debug)]
pub struct CachableReceiver<C> {
    queue: cachable_queue::Receiver<C>,
    message: Vec<Line>,
}

impl<C: Core> CachableReceiver<C> {
    /// A receiver of packets of so many bytes; the queue's messages have [`message_lines`].
    pub fn new(queue: cachable_queue::Receiver<C>, packet_size: u16) -> CachableReceiver<C> {
        CachableReceiver { queue, message: vec![Line::ZERO; message_lines(packet_size) as usize] }
    }
}

impl<C: Core> ReceivePacket for CachableReceiver<C> {
    #[inline(always)]
    fn try_receive(&mut self, packet: &mut [u64]) -> bool {
        if !self.queue.try_receive(&mut self.message) {
            return false;
        }
        for (index, word) in (1..).zip(packet) {
            *word = self.message[index / 8].0[index % 8];
        }
        true
    }
}

/// A FastForward sender with how much of its packet has gone.
#[derive(Debug)]
pub struct FastForwardSender<C> {
    queue: fastforward::Sender<C>,
    gone: usize,
}

impl<C: Core> FastForwardSender<C> {
    /// A sender of packets.
    pub fn new(queue: fastforward::Sender<C>) -> FastForwardSender<C> {
        FastForwardSender { queue, gone: 0 }
    }
}

impl<C: Core> SendPacket for FastForwardSender<C> {
    type Core = C;
    fn core(&self) -> &C {
        self.queue.core()
    }
    #[inline(always)]
    fn try_send(&mut self, packet: &[u64]) -> bool {
        while self.gone < packet.len() {
            let rest = &packet[self.gone..];
            let words = rest.len().min(7);
            let mut payload = [0; 7];
            payload[..words].copy_from_slice(&rest[..words]);
            if !self.queue.try_send(&payload) {
                return false;
            }
            self.gone += words;
        }
        self.gone = 0;
        true
    }
}

/// A FastForward receiver with how much of its packet has come.
#[derive(Debug)]
pub struct FastForwardReceiver<C> {
    queue: fastforward::Receiver<C>,
    come: usize,
    packet: Vec<u64>,
}

impl<C: Core> FastForwardReceiver<C> {
    /// A receiver of packets of so many bytes.
    pub fn new(queue: fastforward::Receiver<C>, packet_size: u16) -> FastForwardReceiver<C> {
        FastForwardReceiver { queue, come: 0, packet: vec![0; words_of(packet_size)] }
    }
}

impl<C: Core> ReceivePacket for FastForwardReceiver<C> {
    #[inline(always)]
    fn try_receive(&mut self, packet: &mut [u64]) -> bool {
        while self.come < self.packet.len() {
            let Some(payload) = self.queue.try_receive() else { return false };
            let space = &mut self.packet[self.come..];
            let words = space.len().min(7);
            space[..words].copy_from_slice(&payload[..words]);
            self.come += words;
        }
        packet.copy_from_slice(&self.packet);
        self.come = 0;
        true
    }
}

/// An application that keeps packets in flight through two message queues, and checks each that comes back.
///
/// As [`crate::ClosedLoop`], without buffers: what is sent and received is copied.
#[derive(Debug)]
pub struct MessageLoop<S, R> {
    sender: S,
    receiver: R,
    window: u64,
    /// Packets sent, and received, in one step at most.
    bursts: [usize; 2],
    packet: Vec<u64>,
    come: Vec<u64>,
    /// Whether `packet` has been written and has not gone.
    waiting: bool,
    account: Account,
    pace: Option<Pace>,
}

impl<S: SendPacket, R: ReceivePacket> MessageLoop<S, R> {
    /// An application on two queues, which sends, and receives, so many packets in one step at most.
    pub fn new(sender: S, receiver: R, packet_size: u16, window: u64, bursts: [usize; 2]) -> MessageLoop<S, R> {
        let words = words_of(packet_size);
        MessageLoop {
            sender,
            receiver,
            window: window.max(1),
            bursts: bursts.map(|burst| burst.max(1)),
            packet: vec![0; words],
            come: vec![0; words],
            waiting: false,
            account: Account::default(),
            pace: None,
        }
    }

    /// What became of its packets.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The same, to forget a warm-up's latencies.
    pub fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    /// Sends what the window allows, receives what has come, and returns how many came.
    #[inline(always)]
    pub fn step(&mut self) -> usize {
        let sent = self.send();
        let received = self.receive();
        if sent + received == 0 {
            self.sender.core().spin();
        }
        received
    }

    /// No packet becomes due any more; one that was keeps its time, however late it is sent.
    pub fn end_pace(&mut self) {
        let now = self.sender.core().now().picoseconds();
        if let Some(pace) = &mut self.pace {
            pace.end(now);
        }
    }

    /// Packets that were due and have not come back. In a closed loop none is due.
    pub fn behind(&self) -> u64 {
        let now = self.sender.core().now().picoseconds();
        let due = |pace: Pace| pace.waiting(self.account.sent, now) as u64 + self.account.in_flight();
        self.pace.map_or(0, due)
    }

    /// Receives what is still in flight until nothing is or `deadline` has passed; what has not come by then is lost.
    pub fn drain(&mut self, deadline: Time) {
        let keep = std::mem::replace(&mut self.window, 0);
        while self.waiting || self.account.in_flight() > 0 {
            if self.step() == 0 && self.account.gives_up(self.sender.core().now(), deadline) {
                break;
            }
        }
        self.window = keep;
    }

    #[inline(always)]
    fn send(&mut self) -> usize {
        let mut room = self.window.saturating_sub(self.account.in_flight()).min(self.bursts[0] as u64);
        if room == 0 && !self.waiting {
            return 0;
        }
        let now = self.sender.core().now().picoseconds();
        if let Some(pace) = self.pace {
            room = room.min(pace.waiting(self.account.sent, now) as u64);
            if room == 0 && !self.waiting {
                return 0;
            }
        }
        let mut count = 0;
        loop {
            if !self.waiting {
                // One that had waited may have gone where there is room for none.
                if count >= room as usize {
                    return count;
                }
                let sequence = self.account.sent;
                let word = pattern(sequence, now);
                self.packet[..2].copy_from_slice(&[now, sequence]);
                self.packet[2..].fill(word);
                self.account.sent += 1;
                self.waiting = true;
            }
            if !self.sender.try_send(&self.packet) {
                return count;
            }
            self.waiting = false;
            count += 1;
        }
    }

    #[inline(always)]
    fn receive(&mut self) -> usize {
        let mut count = 0;
        while count < self.bursts[1] && self.receiver.try_receive(&mut self.come) {
            let now = self.sender.core().now().picoseconds();
            let (stamp, sequence) = (self.come[0], self.come[1]);
            let word = pattern(sequence, stamp);
            let difference = self.come[2..].iter().fold(0, |sum, other| sum | (other ^ word));
            self.account.enter(sequence);
            if difference != 0 {
                self.account.spoilt();
            }
            match self.pace {
                None => self.account.took(stamp, now, 1),
                Some(pace) => {
                    self.account.took(pace.due_of(sequence, stamp), now, 1);
                    self.account.took_from_writing(stamp, now, 1);
                }
            }
            count += 1;
        }
        count
    }
}

impl<S: SendPacket, R: ReceivePacket> Traffic for MessageLoop<S, R> {
    #[inline(always)]
    fn step(&mut self) -> usize {
        MessageLoop::step(self)
    }
    fn account(&self) -> &Account {
        MessageLoop::account(self)
    }
    fn account_mut(&mut self) -> &mut Account {
        MessageLoop::account_mut(self)
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.account.counts_from_due();
        self.pace = Some(Pace::new(start, self.account.sent, interval));
    }
}

/// The other side: sends back what it receives, whole.
#[derive(Debug)]
pub struct Echo<S, R> {
    sender: S,
    receiver: R,
    packet: Vec<u64>,
    holds: bool,
}

impl<S: SendPacket, R: ReceivePacket> Echo<S, R> {
    /// An echo of packets of so many bytes.
    pub fn new(sender: S, receiver: R, packet_size: u16) -> Echo<S, R> {
        Echo { sender, receiver, packet: vec![0; words_of(packet_size)], holds: false }
    }

    /// Sends back up to 32 packets; returns how many.
    #[inline(always)]
    pub fn turn_around(&mut self) -> usize {
        for count in 0..32 {
            self.holds = self.holds || self.receiver.try_receive(&mut self.packet);
            if !self.holds || !self.sender.try_send(&self.packet) {
                return count;
            }
            self.holds = false;
        }
        32
    }

    /// Says that this round made no progress.
    #[inline(always)]
    pub fn spin(&self) {
        self.sender.core().spin();
    }
}
