//! A network that loses, repeats and delays frames, before a far end: for tests of whoever must bear it.

use std::collections::VecDeque;

use conic_fabric::Time;
use conic_load::{Account, FarEnd};
use conic_tcp::segment::Segment;

/// How often what happens, of a thousand frames each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Frames that never arrive.
    pub lost: u32,
    /// Frames that arrive twice.
    pub twice: u32,
    /// Frames that others overtake, a few at most.
    pub late: u32,
}

/// Frames that others overtake at most, for one that is late.
const OVERTAKEN_BY: u32 = 8;

/// One direction: frames that are late, and by how many more each may be overtaken.
#[derive(Debug, Default)]
struct Way {
    late: VecDeque<(u32, Vec<u8>)>,
    lost: u64,
}

impl Way {
    /// What arrives where this frame is sent.
    fn pass(&mut self, frame: Vec<u8>, faults: Faults, draws: &mut fastrand::Rng, arrives: &mut Vec<Vec<u8>>) {
        let draw = draws.u32(..1000);
        let (lost, twice) = (faults.lost, faults.lost + faults.twice);
        if draw >= lost && draw < twice {
            arrives.push(frame.clone());
            arrives.push(frame);
        } else if draw >= twice && draw < twice + faults.late {
            self.late.push_back((draws.u32(1..=OVERTAKEN_BY), frame));
        } else if draw >= lost {
            arrives.push(frame);
        } else {
            self.lost += 1;
        }
        self.wait(arrives);
    }

    /// Lets those arrive that were overtaken often enough, one more time having passed.
    fn wait(&mut self, arrives: &mut Vec<Vec<u8>>) {
        self.late.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        let (there, late) = self.late.drain(..).partition::<VecDeque<_>, _>(|(left, _)| *left == 0);
        arrives.extend(there.into_iter().map(|(_, frame)| frame));
        self.late = late;
    }
}

/// A far end behind such a network.
#[derive(Debug)]
pub struct Faulty<E> {
    far_end: E,
    faults: Faults,
    draws: fastrand::Rng,
    /// To the service, and from there.
    ways: [Way; 2],
    arrives: Vec<Vec<u8>>,
    closed: u64,
    lost_data: u64,
}

impl<E: FarEnd> Faulty<E> {
    /// A far end behind a network whose faults are drawn with this seed.
    pub fn new(far_end: E, faults: Faults, seed: u64) -> Faulty<E> {
        let draws = fastrand::Rng::with_seed(seed);
        Faulty { far_end, faults, draws, ways: Default::default(), arrives: Vec::new(), closed: 0, lost_data: 0 }
    }

    /// Who is behind the network.
    pub fn far_end(&self) -> &E {
        &self.far_end
    }

    /// Segments from the service whose window was closed.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Segments with data from the service that never arrived.
    pub fn lost_data(&self) -> u64 {
        self.lost_data
    }
}

impl<E: FarEnd> FarEnd for Faulty<E> {
    fn packets(&mut self, now: Time) -> &[Vec<u8>] {
        if self.arrives.is_empty() {
            let frames = self.far_end.packets(now).to_vec();
            self.far_end.delivered(frames.len());
            for frame in frames {
                self.ways[0].pass(frame, self.faults, &mut self.draws, &mut self.arrives);
            }
            self.ways[0].wait(&mut self.arrives);
        }
        &self.arrives
    }
    fn delivered(&mut self, count: usize) {
        self.arrives.drain(..count);
    }
    fn came_back(&mut self, frame: &[u8], now: Time) {
        let (mut arrives, lost) = (Vec::new(), self.ways[1].lost);
        self.ways[1].pass(frame.to_vec(), self.faults, &mut self.draws, &mut arrives);
        if let Ok(segment) = Segment::of_frame(frame) {
            self.closed += u64::from(segment.window == 0);
            self.lost_data += (self.ways[1].lost - lost) * u64::from(segment.payload_bytes > 0);
        }
        arrives.iter().for_each(|frame| self.far_end.came_back(frame, now));
    }
    fn next_due(&self) -> Time {
        self.far_end.next_due()
    }
    fn burst(&self) -> usize {
        self.far_end.burst()
    }
    fn most_bytes(&self) -> usize {
        self.far_end.most_bytes()
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
