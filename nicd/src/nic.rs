//! Interface queues on one side, a port on the other.

use conic_fabric::Time;
use conic_interface::burst::NicQueue;
use conic_port::{MAX_FRAME, MIN_FRAME, Port, PortError, Receive, Transmit};

use crate::counters::Counters;
use crate::flow::flow_hash;

/// What is shorter than an Ethernet header is not padded: no NIC could send it.
const ETHERNET_HEADER: usize = 14;

/// How a software NIC works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Frames that one step moves at most from each queue, and to all queues together; at least 1.
    pub burst: usize,
    /// How long a queue may have no room for a received frame before frames for it are dropped. Zero: at once.
    pub patience: Time,
}

impl Default for Options {
    /// Bursts of 32; frames for a queue that has been full for a millisecond are dropped.
    fn default() -> Options {
        Options { burst: 32, patience: Time::from_nanoseconds(1_000_000) }
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Frames of the host that were sent or dropped.
    pub transmitted: usize,
    /// Frames of the port that were delivered, skipped or dropped.
    pub received: usize,
}

impl Step {
    /// Whether nothing moved.
    pub fn is_idle(&self) -> bool {
        self.transmitted + self.received == 0
    }
}

/// Joins the queues of an interface to a port.
///
/// | what | who waits | how long | then |
/// |---|---|---|---|
/// | the port is full | the frame, and behind it every queue | until the port takes it | - |
/// | a queue has no room or no buffer | the frame, and behind it the port | until the queue has been full for `patience` | it is dropped and counted, and so is each further frame that the queue does not take at once |
///
/// Frames of one queue leave in the order in which they were sent. Received frames go to the queue that their
/// [`flow_hash`] chooses, in order. Nothing is allocated for a frame. It reads no clock: whoever drives it says the time.
#[derive(Debug)]
pub struct SoftwareNic<Q, P> {
    port: P,
    queues: Vec<Queue<Q>>,
    options: Options,
    /// The queue whose turn to transmit it is.
    next: usize,
    outgoing: Held,
    incoming: Held,
    ended: bool,
    counters: Counters,
}

#[derive(Debug)]
struct Queue<Q> {
    queue: Q,
    /// Since when it has taken no frame, though there was one for it.
    full_since: Option<Time>,
}

/// A frame between the two sides.
#[derive(Debug)]
struct Held {
    bytes: Box<[u8; MAX_FRAME]>,
    /// Its length, if there is one, and for a received frame its queue.
    frame: Option<(usize, usize)>,
}

impl Held {
    fn new() -> Held {
        Held { bytes: Box::new([0; MAX_FRAME]), frame: None }
    }
}

impl<Q: NicQueue, P: Port> SoftwareNic<Q, P> {
    /// A NIC that stands between `queues` and `port`.
    ///
    /// # Panics
    ///
    /// Without a queue: a mistake of the program.
    pub fn new(port: P, queues: impl IntoIterator<Item = Q>, options: Options) -> SoftwareNic<Q, P> {
        let queues: Vec<_> = queues.into_iter().map(|queue| Queue { queue, full_since: None }).collect();
        assert!(!queues.is_empty(), "a NIC has at least one queue");
        SoftwareNic {
            port,
            queues,
            options: Options { burst: options.burst.max(1), ..options },
            next: 0,
            outgoing: Held::new(),
            incoming: Held::new(),
            ended: false,
            counters: Counters::default(),
        }
    }

    /// Moves a burst each way. `now` must not go backwards between calls.
    ///
    /// # Errors
    ///
    /// The port's. A frame that it failed to send is dropped and counted; the NIC may be stepped on. Both directions are
    /// served in every step, so one that has failed does not stop the other.
    pub fn step(&mut self, now: Time) -> Result<Step, PortError> {
        let mut step = Step::default();
        let mut transmitted = self.transmit(now, &mut step.transmitted);
        if step.transmitted > 0 {
            transmitted = transmitted.and(self.port.flush(now));
        }
        let received = self.receive(now, &mut step.received);
        transmitted.and(received).map(|()| step)
    }

    fn transmit(&mut self, now: Time, moved: &mut usize) -> Result<(), PortError> {
        if let Some((length, _)) = self.outgoing.frame
            && !self.send(now, length, moved)?
        {
            return Ok(());
        }
        let count = self.queues.len();
        let first = self.next;
        self.next = (first + 1) % count;
        for queue in (0..count).map(|turn| (first + turn) % count) {
            for _ in 0..self.options.burst {
                let frame = &mut self.outgoing.bytes[..];
                let Some(taken) = self.queues[queue].queue.take_frame(frame) else { break };
                let mut length = taken;
                if (ETHERNET_HEADER..MIN_FRAME).contains(&taken) {
                    frame[taken..MIN_FRAME].fill(0);
                    self.counters.transmitted_padded += 1;
                    length = MIN_FRAME;
                }
                if !self.send(now, length, moved)? {
                    // The next turn is this queue's again, so that a full port does not favour the others.
                    self.next = queue;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Offers the outgoing frame to the port; false if it waits.
    fn send(&mut self, now: Time, length: usize, moved: &mut usize) -> Result<bool, PortError> {
        match self.port.transmit(now, &self.outgoing.bytes[..length]) {
            Ok(Transmit::Full) => {
                // A frame that already waits has been counted.
                self.counters.port_full += u64::from(self.outgoing.frame.is_none());
                self.outgoing.frame = Some((length, 0));
                return Ok(false);
            }
            Ok(Transmit::Accepted) => {
                self.counters.transmitted_frames += 1;
                self.counters.transmitted_bytes += length as u64;
            }
            Ok(Transmit::Refused) => self.counters.dropped_by_port += 1,
            Err(error) => {
                self.counters.dropped_port_failed += 1;
                self.outgoing.frame = None;
                *moved += 1;
                return Err(error);
            }
        }
        self.outgoing.frame = None;
        *moved += 1;
        Ok(true)
    }

    fn receive(&mut self, now: Time, moved: &mut usize) -> Result<(), PortError> {
        if let Some((length, queue)) = self.incoming.frame
            && !self.deliver(now, length, queue, moved)
        {
            return Ok(());
        }
        for _ in 0..self.options.burst {
            match self.port.receive(now, &mut self.incoming.bytes[..]) {
                Ok(Receive::Frame { length, .. }) => {
                    let queue = self.queue_of(length);
                    if !self.deliver(now, length, queue, moved) {
                        break;
                    }
                }
                Ok(Receive::Skipped) => *moved += 1,
                Ok(Receive::None) => break,
                Ok(Receive::End) => {
                    self.ended = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn queue_of(&self, length: usize) -> usize {
        match self.queues.len() {
            1 => 0,
            queues => (flow_hash(&self.incoming.bytes[..length]) % queues as u64) as usize,
        }
    }

    /// Offers the incoming frame to its queue; false if it waits.
    fn deliver(&mut self, now: Time, length: usize, index: usize, moved: &mut usize) -> bool {
        let Queue { queue, full_since } = &mut self.queues[index];
        if queue.deliver_frame(&self.incoming.bytes[..length]) {
            *full_since = None;
            self.counters.received_frames += 1;
            self.counters.received_bytes += length as u64;
        } else if now.since(*full_since.get_or_insert(now)) < self.options.patience {
            // A frame that already waits has been counted.
            self.counters.host_full += u64::from(self.incoming.frame.is_none());
            self.incoming.frame = Some((length, index));
            return false;
        } else {
            self.counters.dropped_host_full += 1;
        }
        self.incoming.frame = None;
        *moved += 1;
        true
    }

    /// The time from which it should next be stepped on the port's account; a time that has passed means at once. `None`:
    /// only the host or the outside can give it something to do.
    pub fn next_due(&self) -> Option<Time> {
        if self.outgoing.frame.is_some() || self.incoming.frame.is_some() {
            return Some(Time::ZERO);
        }
        self.port.next_due()
    }

    /// Whether the port will give no more frames, and all that it gave are delivered or dropped.
    pub fn is_ended(&self) -> bool {
        self.ended && self.incoming.frame.is_none()
    }

    /// The port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// The port, to finish it or to change what it does.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// What has passed and what has not.
    pub fn counters(&self) -> Counters {
        let sum = |count: fn(&Q) -> u64| self.queues.iter().map(|queue| count(&queue.queue)).sum();
        Counters { dropped_by_interface: sum(Q::dropped), refused_from_host: sum(Q::refused), ..self.counters }
    }

    /// The queues and the port, given back. A frame that was waiting between them is dropped.
    pub fn into_parts(self) -> (Vec<Q>, P) {
        (self.queues.into_iter().map(|queue| queue.queue).collect(), self.port)
    }
}
