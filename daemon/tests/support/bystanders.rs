//! Clients that go on while others, or the daemon, are stopped: two that send each other numbered frames, one that sends back what
//! it gets.

use std::path::Path;
use std::time::Duration;

use conic_client::{AttachError, Buffer, Client, Link, Queue};
use conic_fabric::Time;
use conic_native::clock;

use super::{ECHO, ONE, OTHER, numbered, options, write_frame};

/// Frames on their way from one to the other at most: fewer than a ring and a pool hold, so that none is dropped.
const WINDOW: u64 = 24;

/// A client with one queue that is used.
struct Station {
    client: Client,
    queue: Queue,
    /// The client's other queue; it stays attached as long as this is kept.
    _idle: Vec<Queue>,
}

impl Station {
    fn attach(socket: &Path, mac: [u8; 6]) -> Result<Station, AttachError> {
        let (client, mut queues) = Client::attach(socket, &options(mac))?;
        let queue = queues.swap_remove(0);
        Ok(Station { client, queue, _idle: queues })
    }
}

/// Frames one way.
#[derive(Debug)]
struct Way {
    from: [u8; 6],
    to: [u8; 6],
    sent: u64,
    /// The number of the next frame that must come.
    expected: u64,
    /// What was sent before and did not come will not come any more.
    given_up: u64,
    lost: u64,
    /// When a frame came last, or was given up.
    progress: Time,
}

impl Way {
    fn send(&mut self, queue: &mut Queue) -> usize {
        let mut sent = 0;
        while self.sent - self.expected.max(self.given_up) < WINDOW {
            let length = if self.sent.is_multiple_of(64) { 9000 } else { 60 + (self.sent * 37 % 1400) as usize };
            let Some(mut frame) = queue.allocate(length) else { break };
            write_frame(&mut frame, self.from, self.to, self.sent);
            let mut outgoing = vec![frame];
            if queue.transmit(&mut outgoing) == 0 {
                break;
            }
            self.sent += 1;
            sent += 1;
        }
        sent
    }

    /// Checks a frame that came, if it is of this way; none may be missing, unless `lossy`.
    fn check(&mut self, frame: &Buffer, lossy: bool) {
        let bytes = frame.to_vec();
        if bytes[6..12] != self.from || bytes[..6] != self.to {
            return;
        }
        let number = numbered(&bytes);
        assert!(number >= self.expected, "frame {number} came again, or late: {} was awaited", self.expected);
        assert!(number == self.expected || lossy, "frame {number} came where {} was awaited", self.expected);
        self.lost += number - self.expected;
        self.expected = number + 1;
        self.progress = clock::now();
    }

    /// What was with a daemon that died, or sent before the other was attached again, is gone.
    fn give_up(&mut self, now: Time) {
        if now.since(self.progress).nanoseconds() > 20_000_000 {
            (self.given_up, self.progress) = (self.sent, now);
        }
    }
}

/// All of them.
pub struct Bystanders {
    one: Station,
    other: Station,
    echo: Station,
    there: Way,
    back: Way,
    /// Frames may be lost: the daemon dies.
    lossy: bool,
}

impl Bystanders {
    pub fn attach(socket: &Path, lossy: bool) -> Result<Bystanders, AttachError> {
        let way = |from, to| Way { from, to, sent: 0, expected: 0, given_up: 0, lost: 0, progress: clock::now() };
        Ok(Bystanders {
            one: Station::attach(socket, ONE)?,
            other: Station::attach(socket, OTHER)?,
            echo: Station::attach(socket, ECHO)?,
            there: way(ONE, OTHER),
            back: way(OTHER, ONE),
            lossy,
        })
    }

    /// Moves what can be moved.
    pub fn step(&mut self) {
        let mut moved = self.there.send(&mut self.one.queue) + self.back.send(&mut self.other.queue);
        let mut came = Vec::new();
        moved += self.other.queue.receive(&mut came, 32);
        came.drain(..).for_each(|frame| self.there.check(&frame, self.lossy));
        moved += self.one.queue.receive(&mut came, 32);
        came.drain(..).for_each(|frame| self.back.check(&frame, self.lossy));
        moved += self.send_back();
        let now = clock::now();
        if self.lossy {
            self.there.give_up(now);
            self.back.give_up(now);
        }
        if moved == 0 {
            self.echo.queue.wait(Duration::from_micros(200));
        }
    }

    fn send_back(&mut self) -> usize {
        let mut came = Vec::new();
        let count = self.echo.queue.receive(&mut came, 32);
        came.retain_mut(|frame| {
            let mut header = [0; 12];
            frame.read(0, &mut header);
            let wanted = header[..6] == ECHO;
            header.rotate_left(6);
            frame.write(0, &header);
            wanted
        });
        // What finds no room is dropped, and its sender never asks again.
        self.echo.queue.transmit(&mut came);
        count
    }

    /// Frames that came, the fewer of both ways.
    pub fn received(&self) -> u64 {
        self.there.expected.min(self.back.expected)
    }

    /// Frames that were lost.
    pub fn lost(&self) -> u64 {
        self.there.lost + self.back.lost
    }

    /// Whether all are attached.
    pub fn is_up(&self) -> bool {
        [&self.one, &self.other, &self.echo].iter().all(|station| station.client.maintain() == Link::Up)
    }

    /// Whether all have found out that the daemon is gone, at some time.
    pub fn have_noticed(&self) -> bool {
        [&self.one, &self.other, &self.echo]
            .iter()
            .all(|station| station.client.maintain() == Link::Down || station.client.reconnects() > 0)
    }

    /// A buffer of one of them with contents, which must stay what they are.
    pub fn keep(&mut self) -> Option<Buffer> {
        let mut kept = self.one.queue.allocate(300)?;
        write_frame(&mut kept, ONE, OTHER, 7);
        Some(kept)
    }

    /// How far each way is, for messages.
    pub fn describe(&self) -> String {
        format!("{:?}, {:?}, reconnected {:?}", self.there, self.back, self.sessions())
    }

    /// How often each has attached again.
    pub fn sessions(&self) -> [u64; 3] {
        [&self.one, &self.other, &self.echo].map(|station| station.client.reconnects())
    }
}
