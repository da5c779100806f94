//! Messages a second and round trips of the queues and the ring between two cores of this machine.
//!
//! `cargo bench -p conic-interface --bench queues` prints one line a configuration.

use std::sync::Barrier;
use std::thread;

use conic_fabric::{Core, Home, Layout, Line, PlayedByCore, Time};
use conic_interface::cachable_queue::{self, Arrival};
use conic_interface::fastforward::{self, Slip};
use conic_interface::ring::{Buffer, RxSignal, Shape};
use conic_native::{Memory, NativeCore, Pages, cores, pin};

/// How long each figure is measured.
const SPAN: Time = Time::from_nanoseconds(300_000_000);
/// Looks at the clock once in so many operations.
const CHUNK: u64 = 256;

/// Runs two agents on two cores; the first returns the figure.
fn on_two_cores<T: Send>(first: impl FnOnce() -> T + Send, second: impl FnOnce() + Send) -> T {
    let cores = cores();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            pin(cores[cores.len() - 1]).expect("a core of ours");
            start.wait();
            second();
        });
        let first = scope.spawn(|| {
            pin(cores[0]).expect("a core of ours");
            start.wait();
            first()
        });
        second.join().expect("the second agent");
        first.join().expect("the first agent")
    })
}

/// The last message: a first payload word of this ends the other side.
const LAST: u64 = u64::MAX;

/// A sender, or a receiver, of messages that are told apart by one word.
trait SendWord: Send {
    fn send(&mut self, word: u64) -> bool;
}
trait ReceiveWord: Send {
    fn receive(&mut self) -> Option<u64>;
}

struct Cachable<H, const LINES: usize>(H);
impl<C: Core + Send, const LINES: usize> SendWord for Cachable<cachable_queue::Sender<C>, LINES> {
    #[inline(always)]
    fn send(&mut self, word: u64) -> bool {
        self.0.try_send(&[Line([word; 8]); LINES])
    }
}
impl<C: Core + Send, const LINES: usize> ReceiveWord for Cachable<cachable_queue::Receiver<C>, LINES> {
    #[inline(always)]
    fn receive(&mut self) -> Option<u64> {
        let mut into = [Line::ZERO; LINES];
        if !self.0.try_receive(&mut into) {
            return None;
        }
        // The whole message is used.
        let sum = into.iter().skip(1).fold(into[0].0[1], |sum, line| sum & line.0[0] & line.0[7]);
        Some(sum)
    }
}
impl<C: Core + Send> SendWord for fastforward::Sender<C> {
    #[inline(always)]
    fn send(&mut self, word: u64) -> bool {
        self.try_send(&[word; 7])
    }
}
impl<C: Core + Send> ReceiveWord for fastforward::Receiver<C> {
    #[inline(always)]
    fn receive(&mut self) -> Option<u64> {
        self.try_receive().map(|payload| payload[0] & payload[6])
    }
}

fn send(core: &impl Core, sender: &mut impl SendWord, word: u64) {
    while !sender.send(word) {
        core.spin();
    }
}

fn receive(core: &impl Core, receiver: &mut impl ReceiveWord) -> u64 {
    loop {
        if let Some(word) = receiver.receive() {
            return word;
        }
        core.spin();
    }
}

/// Millions of messages a second, one way.
fn rate(memory: &Memory, sender: &mut impl SendWord, receiver: &mut impl ReceiveWord) -> f64 {
    let (core, other) = (NativeCore::new(memory), NativeCore::new(memory));
    on_two_cores(
        move || {
            let start = core.now();
            let mut sent = 0;
            while core.now().since(start) < SPAN {
                for _ in 0..CHUNK {
                    send(&core, sender, sent);
                    sent += 1;
                }
            }
            let span = core.now().since(start);
            send(&core, sender, LAST);
            sent as f64 / span.seconds() / 1e6
        },
        move || while receive(&other, receiver) != LAST {},
    )
}

/// The median round trip of a message, in nanoseconds.
fn round_trip<S: SendWord, R: ReceiveWord>(memory: &Memory, there: (&mut S, &mut R), back: (&mut S, &mut R)) -> u64 {
    let (core, other) = (NativeCore::new(memory), NativeCore::new(memory));
    let ((sender, far_receiver), (far_sender, receiver)) = (there, back);
    on_two_cores(
        move || {
            let mut spans = Vec::with_capacity(200_000);
            for word in 0..200_000 {
                let start = core.now();
                send(&core, sender, word);
                assert_eq!(receive(&core, receiver), word);
                spans.push(core.now().since(start).nanoseconds());
            }
            send(&core, sender, LAST);
            spans.sort_unstable();
            spans[spans.len() / 2]
        },
        move || loop {
            let word = receive(&other, far_receiver);
            if word == LAST {
                return;
            }
            send(&other, far_sender, word);
        },
    )
}

fn region(layout: &Layout) -> Memory {
    Memory::create(layout, Pages::Plain).expect("memory")
}

fn cachable<const LINES: usize>(lazy_pointers: bool, arrival: Arrival, slots: u64) {
    let shape = cachable_queue::Shape { slots, message_lines: LINES as u64, lazy_pointers, arrival };
    let mut layout = Layout::new();
    let mut place = || shape.place(&mut layout, Home::Host, Home::Nic).expect("a shape that can be");
    let queues = [place(), place(), place()];
    let memory = region(&layout);
    let sender = |queue: usize| Cachable::<_, LINES>(queues[queue].sender(NativeCore::new(&memory)));
    let receiver = |queue: usize| Cachable::<_, LINES>(queues[queue].receiver(NativeCore::new(&memory)));
    let rate = rate(&memory, &mut sender(0), &mut receiver(0));
    let (there, back) = ((&mut sender(1), &mut receiver(1)), (&mut sender(2), &mut receiver(2)));
    let round_trip = round_trip(&memory, there, back);
    println!(
        "cachable queue, {slots} slots of {LINES} lines, lazy {lazy_pointers}, {arrival:?}: {rate:.1} M/s, round trip {round_trip} ns"
    );
}

fn fast_forward(slots: u64, slip: Option<Slip>) {
    let shape = fastforward::Shape { slots, slip };
    let mut layout = Layout::new();
    let mut place = || shape.place(&mut layout, Home::Host).expect("a shape that can be");
    let queues = [place(), place(), place()];
    let memory = region(&layout);
    let sender = |queue: usize| queues[queue].sender(NativeCore::new(&memory));
    let receiver = |queue: usize| queues[queue].receiver(NativeCore::new(&memory));
    let rate = rate(&memory, &mut sender(0), &mut receiver(0));
    let (there, back) = ((&mut sender(1), &mut receiver(1)), (&mut sender(2), &mut receiver(2)));
    let round_trip = round_trip(&memory, there, back);
    println!("FastForward, {slots} slots, {slip:?}: {rate:.1} M/s, round trip {round_trip} ns");
}

/// Packets a second and the median latency of a loopback over the ring, payloads written and read whole.
fn ring(packet_bytes: usize, window: u64, burst: usize, rx_signal: RxSignal) {
    let shape = Shape { rx_signal, ..Shape::for_packets(packet_bytes as u64).expect("a size that can be") };
    let mut layout = Layout::new();
    let queues = shape.place(&mut layout).expect("a shape that can be");
    let memory = region(&layout);
    let (core, other) = (NativeCore::new(&memory), NativeCore::new(&memory));
    let (mut host, mut nic) = (queues.host(core), queues.nic(PlayedByCore(other)));
    let stop = layout.segments()[0].start.word(1);
    let (rate, median) = on_two_cores(
        move || {
            let (mut sent, mut received, mut waiting) = (0, 0, 0);
            let mut spans = vec![0; 1 << 16];
            let mut buffers = [Buffer::default(); 64];
            let mut packet = vec![0; packet_bytes];
            let start = core.now();
            let mut now = start;
            while now.since(start) < SPAN {
                let count = host.buf_alloc(&mut buffers[..burst.min((window - (sent - received)) as usize)]);
                for buffer in &mut buffers[..count] {
                    packet[..8].copy_from_slice(&now.picoseconds().to_ne_bytes());
                    host.write_packet(buffer, &packet);
                }
                let transmitted = host.tx_burst(&buffers[..count]);
                host.buf_free(&buffers[transmitted..count]);
                sent += transmitted as u64;
                let count = host.rx_burst(&mut buffers[..burst]);
                now = core.now();
                for buffer in &buffers[..count] {
                    let packet = host.read_packet(buffer, &mut packet);
                    let stamp = u64::from_ne_bytes(packet[..8].try_into().expect("eight bytes"));
                    spans[waiting & 0xffff] = now.since(Time::from_picoseconds(stamp)).nanoseconds();
                    waiting += 1;
                }
                host.buf_free(&buffers[..count]);
                received += count as u64;
                if count + transmitted == 0 {
                    core.spin();
                }
            }
            core.store_release(stop, 1);
            spans.truncate(waiting);
            spans.sort_unstable();
            (received as f64 / now.since(start).seconds() / 1e6, spans[spans.len() / 2])
        },
        move || {
            let mut packet = vec![0; packet_bytes];
            while other.load_acquire(stop) == 0 {
                let count = nic.poll_tx().min(nic.poll_rx()).min(32);
                for _ in 0..count {
                    let length = nic.take_tx(&mut packet).expect("an announced packet");
                    nic.rx_push(&packet[..length]).expect("an announced buffer");
                }
                if !nic.flush() {
                    other.spin();
                }
            }
        },
    );
    println!(
        "ring, {packet_bytes} bytes, window {window}, burst {burst}, {rx_signal:?}: {rate:.2} M/s, median {median} ns"
    );
}

fn main() {
    if cores().len() < 2 {
        println!("skipped: this needs two cores");
        return;
    }
    for (lazy, arrival) in [
        (false, Arrival::TailPointer),
        (true, Arrival::TailPointer),
        (false, Arrival::ValidBit),
        (true, Arrival::ValidBit),
        (false, Arrival::SenseReverse),
        (true, Arrival::SenseReverse),
    ] {
        cachable::<1>(lazy, arrival, 256);
        cachable::<4>(lazy, arrival, 64);
    }
    fast_forward(256, None);
    fast_forward(256, Some(Slip { distance: 16, patience: 64 }));
    for signal in [RxSignal::Register, RxSignal::DescriptorDone] {
        for (bytes, window, burst) in
            [(64, 1, 1), (64, 32, 8), (64, 128, 32), (64, 256, 32), (1500, 128, 32), (9600, 64, 32)]
        {
            ring(bytes, window, burst, signal);
        }
    }
}
