//! Clients of a daemon, each on a core of its own, that send and receive at once.

use std::slice::from_mut;
use std::time::Duration;

use conic_client::{Client, Name, Options, Queue};
use conic_fabric::{Address, Core, Line, lines_of};
use conic_interface::burst::{HostQueue, Packet};
use conic_load::{ClosedLoop, Workload, frame_header};
use conic_native::{KeptCore, pin};

use crate::bench::daemon::{Daemon, geometry};
use crate::bench::failure::Failure;
use crate::bench::link::{Outcome, Span, Traffic, drive};
use crate::bench::temporary::Folder;

/// How the daemon joins its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Each gets its own packets back, from a thread that it has for itself.
    ThreadEach,
    /// The same from one thread for all.
    OneThread,
    /// Each sends to the address of another client beside it, which sends everything back; both are on one thread, and each two of them
    /// have a thread for themselves. A packet is switched, and copied, twice.
    Bridge,
    /// The same with each two on two threads, of which there are as many.
    BridgeAcross,
}

impl Joined {
    /// Packets in flight on each pair: fewer than asked where the rings between threads hold no more.
    pub fn window(self, workload: &Workload) -> u64 {
        match self {
            Joined::BridgeAcross => workload.window.min(ACROSS / (1 + lines_of(u64::from(workload.packet_size)))),
            _ => workload.window,
        }
    }
}

/// Packets are sent back in bursts of so many at most.
const BACK: usize = 256;

/// Lines that are under way between two threads of the daemon at most, each frame with one that says whose it is: fewer than lie in the
/// rings between them, since what finds no room there is dropped.
const ACROSS: u64 = 12 << 10;

/// A daemon with a thread or several on the NICs' cores, and its clients.
pub struct Through {
    /// Where each client runs, and its queue between slices.
    ends: Vec<(usize, Option<End>)>,
    workload: Workload,
    // What follows goes when the queues are gone: the clients, then the daemon.
    _clients: Vec<Client>,
    _daemon: Daemon,
}

impl Through {
    /// Starts a daemon for a client on each pair's first core, its threads on their second ones.
    ///
    /// # Errors
    ///
    /// The daemon cannot be had, or refuses.
    pub fn start(
        joined: Joined,
        pairs: &[(usize, usize)],
        workload: Workload,
        folder: Folder,
    ) -> Result<Through, Failure> {
        let threads = if joined == Joined::OneThread { 1 } else { pairs.len() };
        let cores: Vec<String> = pairs[..threads].iter().map(|pair| pair.1.to_string()).collect();
        let bridged = matches!(joined, Joined::Bridge | Joined::BridgeAcross);
        let workload = Workload { window: joined.window(&workload), ..workload };
        let mode = if bridged { "bridge" } else { "loopback" };
        let options = ["--mode", mode, "--threads", &threads.to_string(), "--core", &cores.join(",")];
        let mut daemon = Daemon::start(folder, &options)?;
        let mut clients = Vec::new();
        let mut attach = |name: String| {
            let name = Name::new(&name).map_err(|error| Failure::failed(error.to_string()))?;
            let geometry = geometry(workload.window, workload.packet_size, 1);
            let (client, mut queues) = daemon.attach(&Options { name, geometry, ..Options::default() })?;
            let mac = client.mac();
            clients.push(client);
            Ok::<_, Failure>((mac, queues.swap_remove(0)))
        };
        // A client is on the thread that has the fewest: these are dealt to the threads in turn, and so are the others.
        let mut ends = Vec::new();
        for (number, &(core, _)) in pairs.iter().enumerate() {
            let (mac, queue) = attach(format!("near{number}"))?;
            ends.push((core, Some(End { mac, queue, back: None })));
        }
        let behind = usize::from(joined == Joined::BridgeAcross);
        for turn in 0..if bridged { pairs.len() } else { 0 } {
            let number = (turn + pairs.len() - behind) % pairs.len();
            let (mac, queue) = attach(format!("far{number}"))?;
            let near = ends[number].1.as_mut().expect("it was put there");
            near.back = Some(Back::new(queue, mac, near.mac));
        }
        Ok(Through { ends, workload, _clients: clients, _daemon: daemon })
    }

    /// A slice of all clients at once.
    ///
    /// # Errors
    ///
    /// A thread cannot run on its core.
    pub fn slice(&mut self, span: Span) -> Result<Vec<Outcome>, Failure> {
        let workload = self.workload;
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = |(core, end): &mut (usize, Option<End>)| {
                pin(*core).map_err(|error| Failure::failed(format!("core {core}: {error}")))?;
                let this = end.take().expect("it is put back");
                let (own, other) = (this.mac, this.back.as_ref().map(|back| back.mac));
                let (outcome, this) = match other {
                    None => slice_of(ClosedLoop::new(this, workload), span, ClosedLoop::into_queue),
                    Some(other) => {
                        slice_of(ClosedLoop::framed(this, workload, own, other), span, ClosedLoop::into_queue)
                    }
                };
                *end = Some(this);
                Ok(outcome)
            };
            let threads: Vec<_> = self.ends.iter_mut().map(|one| scope.spawn(move || run(one))).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        // The daemon's threads go to sleep, and their cores are free.
        std::thread::sleep(Duration::from_millis(2));
        let died = || Failure::failed("a client's thread died; its message is above");
        outcomes.into_iter().map(|one| one.unwrap_or_else(|_| Err(died()))).collect()
    }
}

/// What came of a slice, and the client.
fn slice_of<T: Traffic>(mut traffic: T, span: Span, end: impl FnOnce(T) -> End) -> (Outcome, End) {
    let outcome = drive(from_mut(&mut traffic), span, None);
    (outcome, end(traffic))
}

/// A client, and the one that it sends to, if that is another.
struct End {
    mac: [u8; 6],
    queue: Queue,
    back: Option<Back>,
}

/// A client that sends back what comes, in the buffers in which it came.
struct Back {
    mac: [u8; 6],
    queue: Queue,
    /// The first words of what comes, and of what goes.
    header: [[u64; 2]; 2],
    /// Those of which the last burst has not been sent.
    packets: Box<[Packet; BACK]>,
    count: usize,
}

impl Back {
    fn new(queue: Queue, mac: [u8; 6], other: [u8; 6]) -> Back {
        let header = [frame_header(mac, other), frame_header(other, mac)];
        Back { mac, queue, header, packets: Box::new([Packet::BLANK; BACK]), count: 0 }
    }

    fn step(&mut self) {
        if self.count == 0 {
            self.count = self.queue.rx_burst(&mut self.packets[..]);
            for packet in &self.packets[..self.count] {
                // By value: changed in memory, it would be loaded across what was stored a moment ago.
                let [a, b, rest @ ..] = self.queue.core().read_line(packet.address()).0;
                // What was for another comes back as it is, and is found out there.
                if [a, b] == self.header[0] {
                    let ([a, b], [c, d, e, f, g, h]) = (self.header[1], rest);
                    self.queue.core().write_line(packet.address(), &Line([a, b, c, d, e, f, g, h]));
                }
            }
        }
        let sent = self.queue.tx_burst(&self.packets[..self.count]);
        self.packets.copy_within(sent..self.count, 0);
        self.count -= sent;
    }
}

impl HostQueue for End {
    type Core = KeptCore;
    #[inline(always)]
    fn core(&self) -> &KeptCore {
        self.queue.core()
    }
    #[inline(always)]
    fn buf_alloc(&mut self, bytes: u64, out: &mut [Address]) -> usize {
        self.queue.buf_alloc(bytes, out)
    }
    #[inline(always)]
    fn buf_free(&mut self, buffers: &[Address]) {
        self.queue.buf_free(buffers);
    }
    #[inline(always)]
    fn tx_burst(&mut self, packets: &[Packet]) -> usize {
        self.queue.tx_burst(packets)
    }
    /// Before it looks, the other end sends back what has come there.
    #[inline(always)]
    fn rx_burst(&mut self, out: &mut [Packet]) -> usize {
        if let Some(back) = &mut self.back {
            back.step();
        }
        self.queue.rx_burst(out)
    }
    #[inline(always)]
    fn bytes_to_end(&self, at: Address) -> u64 {
        HostQueue::bytes_to_end(&self.queue, at)
    }
}
