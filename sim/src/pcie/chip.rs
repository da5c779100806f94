//! A network interface chip's own limits: what it does in a second, in batches, and the time that it takes for itself.

use super::Pace;
use crate::parameters::NicParameters;

/// What all queues of a chip share.
///
/// Calls are made in nondecreasing order of `now`. Times are picoseconds.
#[derive(Clone, Debug)]
pub struct Chip {
    transmit: Pipeline,
    receive: Pipeline,
    descriptor_batch: u32,
    doorbell_time: u64,
    pipeline_time: u64,
}

/// One direction: so many packets and so many bytes in a second, whichever takes longer.
#[derive(Clone, Copy, Debug)]
struct Pipeline {
    packets: Pace,
    bytes: Pace,
    carried: Carried,
}

/// What a direction of the chip has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time for which they waited for the chip, all together, in picoseconds.
    pub waited: u64,
}

impl Pipeline {
    fn new(nic: &NicParameters) -> Pipeline {
        Pipeline {
            packets: Pace::per_second(nic.packets_per_second),
            bytes: Pace::new(8_000_000, nic.megabits_per_second),
            carried: Carried::default(),
        }
    }

    fn admit(&mut self, bytes: u32, now: u64) -> u64 {
        let free = self.packets.busy_until().max(self.bytes.busy_until());
        let start = free.max(now);
        self.packets.take(1, start);
        self.bytes.take(bytes.into(), start);
        self.carried.packets += 1;
        self.carried.bytes += u64::from(bytes);
        self.carried.waited += start - now;
        start
    }
}

impl Chip {
    /// An idle chip.
    ///
    /// # Panics
    /// Where a rate or the batch of descriptors is 0.
    pub fn new(parameters: &NicParameters) -> Chip {
        assert!(parameters.descriptor_batch > 0, "nic.descriptor_batch is 0: no descriptor would ever be fetched");
        Chip {
            transmit: Pipeline::new(parameters),
            receive: Pipeline::new(parameters),
            descriptor_batch: parameters.descriptor_batch,
            doorbell_time: parameters.doorbell_time,
            pipeline_time: parameters.pipeline_time,
        }
    }

    /// When the fetch of descriptors begins for a doorbell that is at the device at `now`.
    pub fn doorbell(&self, now: u64) -> u64 {
        now + self.doorbell_time
    }

    /// How many of the descriptors that are there to be fetched one fetch takes.
    pub fn fetches(&self, there: u64) -> u32 {
        there.min(self.descriptor_batch.into()) as u32
    }

    /// A packet of `bytes`, all read, is to leave at `now`; says when the chip takes it, behind those before it.
    pub fn transmit(&mut self, bytes: u32, now: u64) -> u64 {
        self.transmit.admit(bytes, now)
    }

    /// A packet of `bytes` has come in at `now`; says when the chip begins to write it to the host.
    pub fn receive(&mut self, bytes: u32, now: u64) -> u64 {
        self.receive.admit(bytes, now)
    }

    /// A packet that was read at `now` goes to the network; says when it is there: the chip's own time is spent half in each direction.
    pub fn send(&mut self, bytes: u32, now: u64) -> u64 {
        self.transmit(bytes, now) + self.pipeline_time / 2
    }

    /// A packet comes from the network at `now`; says when its first byte is written to the host.
    pub fn come(&mut self, bytes: u32, now: u64) -> u64 {
        self.receive(bytes, now) + self.pipeline_time.div_ceil(2)
    }

    /// Turns a packet round that was read at `now`: through both directions, and the chip's own time between its last byte
    /// read and its first byte written.
    ///
    /// A packet is in the receiving direction later than now; so a chip either turns packets round or is asked for its
    /// directions one by one, but not both.
    pub fn turn_round(&mut self, bytes: u32, now: u64) -> u64 {
        let sent = self.transmit(bytes, now);
        self.receive(bytes, sent + self.pipeline_time)
    }

    /// What went out, and what came in.
    pub fn carried(&self) -> [Carried; 2] {
        [self.transmit.carried, self.receive.carried]
    }
}

/// Descriptors of one queue that wait to be written back: aligned groups of so many, or those that are there after some time. What is
/// left of a group that was written in part is a group of its own, so that no later one straddles two lines.
#[derive(Clone, Copy, Debug)]
pub struct WriteBack {
    batch: u32,
    wait: u64,
    pending: u32,
    oldest: u64,
}

impl WriteBack {
    /// An empty one.
    ///
    /// # Panics
    /// Where the batch is 0.
    pub fn new(parameters: &NicParameters) -> WriteBack {
        assert!(parameters.write_back_batch > 0, "nic.write_back_batch is 0: nothing would ever be written back");
        WriteBack { batch: parameters.write_back_batch, wait: parameters.write_back_wait, pending: 0, oldest: 0 }
    }

    /// The next descriptor, of this index, is done at `now`; says how many are to be written back now: all that wait, or none yet.
    pub fn add(&mut self, now: u64, index: u64) -> u32 {
        if self.pending == 0 {
            self.oldest = now;
        }
        self.pending += 1;
        let completes = (index + 1).is_multiple_of(self.batch.into());
        if completes || self.wait == 0 { self.take() } else { 0 }
    }

    /// When those that wait are to be written back, if no batch fills before.
    pub fn deadline(&self) -> Option<u64> {
        (self.pending > 0).then(|| self.oldest + self.wait)
    }

    /// How many are to be written back at `now` because they waited long enough: all that wait, or none.
    pub fn expire(&mut self, now: u64) -> u32 {
        if self.deadline().is_some_and(|deadline| now >= deadline) { self.take() } else { 0 }
    }

    fn take(&mut self) -> u32 {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chip whose times are whole picoseconds: a packet in 10 ns, a byte in 40 ps (200 Gb/s).
    fn nic() -> NicParameters {
        NicParameters {
            packets_per_second: 100_000_000,
            megabits_per_second: 200_000,
            mlx5_rings: false,
            descriptor_batch: 32,
            write_back_batch: 4,
            write_back_wait: 500_000,
            doorbell_time: 120_000,
            pipeline_time: 700_000,
        }
    }

    #[test]
    fn small_packets_are_limited_by_their_number() {
        let interval = 1_000_000_000_000 / nic().packets_per_second;
        for (ready, taken) in
            [(0, interval), (interval - 1, interval), (interval, interval), (interval + 1, interval + 1)]
        {
            let mut chip = Chip::new(&nic());
            assert_eq!(chip.transmit(64, 0), 0);
            assert_eq!(chip.transmit(64, ready), taken, "ready at {ready}");
            assert_eq!(chip.carried()[0], Carried { packets: 2, bytes: 128, waited: taken - ready });
        }
    }

    #[test]
    fn large_packets_are_limited_by_their_bits() {
        let p = nic();
        let time = 1500 * 8 * 1_000_000 / p.megabits_per_second;
        assert!(time > 1_000_000_000_000 / p.packets_per_second);
        for (ready, taken) in [(time - 1, time), (time, time), (time + 1, time + 1)] {
            let mut chip = Chip::new(&p);
            assert_eq!(chip.receive(1500, 0), 0);
            assert_eq!(chip.receive(64, ready), taken, "ready at {ready}");
        }
    }

    #[test]
    fn a_rate_that_is_no_whole_number_of_picoseconds_is_kept() {
        for packets_per_second in [192_000_000, 76_000_000] {
            let mut chip = Chip::new(&NicParameters { packets_per_second, ..nic() });
            let packets = 1_000_000_u64;
            let last = (0..=packets).map(|_| chip.transmit(8, 0)).max();
            assert_eq!(last, Some(packets * 1_000_000_000_000 / packets_per_second));
        }
    }

    #[test]
    fn directions_do_not_wait_for_each_other() {
        let mut chip = Chip::new(&nic());
        assert_eq!(chip.transmit(1500, 0), 0);
        assert_eq!(chip.receive(1500, 0), 0);
    }

    #[test]
    fn a_packet_is_turned_round_in_the_pipelines_time_and_at_the_chips_rate() {
        let p = nic();
        let mut chip = Chip::new(&p);
        assert_eq!(chip.turn_round(64, 1_000), 1_000 + p.pipeline_time);
        let interval = 1_000_000_000_000 / p.packets_per_second;
        assert_eq!(chip.turn_round(64, 1_000), 1_000 + interval + p.pipeline_time);
        assert_eq!(chip.carried().map(|carried| carried.packets), [2, 2]);
    }

    #[test]
    fn each_direction_has_its_half_of_the_pipelines_time_and_its_own_rate() {
        let p = NicParameters { pipeline_time: 701, ..nic() };
        let mut chip = Chip::new(&p);
        assert_eq!([chip.send(64, 1_000), chip.come(64, 1_000)], [1_350, 1_351]);
        let interval = 1_000_000_000_000 / p.packets_per_second;
        assert_eq!([chip.send(64, 1_000), chip.come(64, 1_000)], [1_350 + interval, 1_351 + interval]);
    }

    #[test]
    fn descriptors_are_fetched_after_the_doorbells_time_and_in_batches() {
        let p = nic();
        let chip = Chip::new(&p);
        assert_eq!(chip.doorbell(5), 5 + p.doorbell_time);
        for (there, fetched) in [(0, 0), (1, 1), (31, 31), (32, 32), (33, 32), (1 << 40, 32)] {
            assert_eq!(chip.fetches(there), fetched);
        }
    }

    #[test]
    fn a_full_batch_is_written_back_at_once() {
        let mut queue = WriteBack::new(&nic());
        let due: Vec<u32> = (0..5).map(|index| queue.add(10 * (index + 1), index)).collect();
        assert_eq!(due, [0, 0, 0, 4, 0]);
        assert_eq!(queue.deadline(), Some(50 + nic().write_back_wait), "the wait begins anew");
    }

    #[test]
    fn after_a_partial_batch_the_next_ends_where_it_would_have() {
        let mut queue = WriteBack::new(&nic());
        assert_eq!([queue.add(0, 4), queue.expire(nic().write_back_wait)], [0, 1]);
        let due: Vec<u32> = (5..12).map(|index| queue.add(1_000_000, index)).collect();
        assert_eq!(due, [0, 0, 3, 0, 0, 0, 4]);
    }

    #[test]
    fn a_partial_batch_is_written_back_after_the_wait_of_its_oldest() {
        let wait = nic().write_back_wait;
        let mut queue = WriteBack::new(&nic());
        assert_eq!(queue.deadline(), None);
        assert_eq!(queue.expire(u64::MAX), 0, "nothing waits");
        queue.add(100, 0);
        queue.add(200, 1);
        assert_eq!(queue.deadline(), Some(100 + wait));
        assert_eq!(queue.expire(100 + wait - 1), 0);
        assert_eq!(queue.expire(100 + wait), 2);
        assert_eq!(queue.deadline(), None);
    }

    #[test]
    fn without_a_wait_every_descriptor_is_written_back_at_once() {
        let mut queue = WriteBack::new(&NicParameters { write_back_wait: 0, ..nic() });
        assert_eq!([1, 2].map(|now| queue.add(now, now)), [1, 1]);
    }

    #[test]
    #[should_panic(expected = "nic.descriptor_batch is 0")]
    fn a_chip_that_fetches_nothing_is_refused() {
        Chip::new(&NicParameters { descriptor_batch: 0, ..nic() });
    }

    #[test]
    #[should_panic(expected = "nic.write_back_batch is 0")]
    fn a_chip_that_writes_nothing_back_is_refused() {
        WriteBack::new(&NicParameters { write_back_batch: 0, ..nic() });
    }
}
