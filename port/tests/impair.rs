//! The impairment port: each impairment alone, by its counts and by what arrives, and everything from one seed.

use std::collections::VecDeque;

use conic_fabric::Time;
use conic_port::{
    CapturePort, CaptureReader, Counters, Direction, Impaired, Impairment, Loopback, MAX_FRAME, Memif, MemifOptions,
    PacketError, PacketProblem, Port, PortError, Probability, Rate, Receive, Role, Timestamp, Transmit,
};

fn microseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000 * count)
}

fn half() -> Probability {
    Probability::from_billionths(500_000_000)
}

fn outgoing(impairment: Impairment) -> Impaired<Loopback> {
    Impaired::new(Loopback::new(1024), Impairment { direction: Direction::Transmit, ..impairment })
}

fn numbered(number: u16) -> [u8; 64] {
    let mut frame = [0x5a; 64];
    frame[..2].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames numbered from 0, one each microsecond, then waits; gives what came back with when.
fn through(port: &mut Impaired<Loopback>, frames: u16) -> Vec<(Time, Vec<u8>)> {
    let mut came = Vec::new();
    let mut buffer = [0; MAX_FRAME];
    for step in 0..u64::from(frames) + 5_000 {
        let now = microseconds(step);
        if step < u64::from(frames) {
            assert_eq!(port.transmit(now, &numbered(step as u16)).unwrap(), Transmit::Accepted);
            port.flush(now).unwrap();
        }
        while let Receive::Frame { length, .. } = port.receive(now, &mut buffer).unwrap() {
            came.push((now, buffer[..length].to_vec()));
        }
    }
    came
}

fn numbers(came: &[(Time, Vec<u8>)]) -> Vec<u16> {
    came.iter().map(|(_, frame)| u16::from_be_bytes([frame[0], frame[1]])).collect()
}

fn detail(port: &impl Port, name: &str) -> u64 {
    port.details().iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn without_impairments_everything_passes_at_once_in_order() {
    let mut port = outgoing(Impairment::NONE);
    let came = through(&mut port, 1000);
    assert!(came.iter().enumerate().all(|(number, (time, frame))| {
        *time == microseconds(number as u64) && frame[..] == numbered(number as u16)
    }));
    assert_eq!((came.len(), port.counters().transmitted_frames, port.counters().received_frames), (1000, 1000, 1000));
    assert!(port.details().iter().all(|(_, count)| *count == 0));
}

#[test]
fn what_is_not_impaired_stays_below_until_it_is_taken() {
    let mut port = Impaired::new(Loopback::new(1024), Impairment::NONE);
    (0..10).for_each(|number| assert_eq!(port.transmit(Time::ZERO, &numbered(number)).unwrap(), Transmit::Accepted));
    port.flush(Time::ZERO).unwrap();
    for taken in 1..=10 {
        assert!(matches!(port.receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::Frame { .. }));
        assert_eq!(port.inner().counters().received_frames, taken);
    }
}

#[test]
fn lost_frames_are_counted_and_the_rest_is_whole_and_in_order() {
    let mut port = outgoing(Impairment { loss: half(), ..Impairment::NONE });
    let numbers = numbers(&through(&mut port, 1000));
    assert!(numbers.is_sorted() && (400..600).contains(&numbers.len()), "{}", numbers.len());
    assert_eq!(detail(&port, "impaired_transmit_lost"), 1000 - numbers.len() as u64);
    // The frames were given and taken: what becomes of them on the way is no refusal.
    assert_eq!((port.counters().transmitted_frames, port.counters().refused()), (1000, 0));
    let mut port = outgoing(Impairment { loss: Probability::ALWAYS, ..Impairment::NONE });
    assert!(through(&mut port, 100).is_empty());
}

#[test]
fn duplicated_frames_come_twice() {
    let mut port = outgoing(Impairment { duplicate: half(), ..Impairment::NONE });
    let numbers = numbers(&through(&mut port, 1000));
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!((numbers.len(), detail(&port, "impaired_transmit_duplicated")), (1000 + twice, twice as u64));
    assert!((400..600).contains(&twice) && numbers.is_sorted());
}

#[test]
fn a_frame_held_back_is_late_by_what_was_asked_and_the_others_pass_it() {
    let reorder = Probability::from_billionths(100_000_000);
    let mut port = outgoing(Impairment { reorder, reorder_by: microseconds(10), ..Impairment::NONE });
    let came = through(&mut port, 1000);
    let late = came.iter().filter(|(time, frame)| {
        let sent = microseconds(u64::from(u16::from_be_bytes([frame[0], frame[1]])));
        assert!([Time::ZERO, microseconds(10)].contains(&time.since(sent)), "{time} {sent}");
        time.since(sent) > Time::ZERO
    });
    let late = late.count() as u64;
    assert_eq!((came.len(), late), (1000, detail(&port, "impaired_transmit_reordered")));
    assert!((60..140).contains(&late) && !numbers(&came).is_sorted());
}

#[test]
fn a_corrupted_frame_differs_in_one_bit() {
    let mut port = outgoing(Impairment { corrupt: half(), ..Impairment::NONE });
    let came = through(&mut port, 1000);
    let mut places = [0u32; 64];
    let mut changed = 0;
    for (number, (_, frame)) in came.iter().enumerate() {
        let bits: u32 = frame.iter().zip(numbered(number as u16)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert!(bits <= 1, "{bits} bits");
        changed += u64::from(bits);
        for (place, (a, b)) in places.iter_mut().zip(frame.iter().zip(numbered(number as u16))) {
            *place += u32::from(*a != b);
        }
    }
    assert_eq!((came.len(), changed), (1000, detail(&port, "impaired_transmit_corrupted")));
    assert!((400..600).contains(&changed) && places.iter().filter(|&&count| count > 0).count() > 55);
}

#[test]
fn delay_and_rate_are_exact() {
    let mut port = outgoing(Impairment { delay: microseconds(7), ..Impairment::NONE });
    for (number, (time, _)) in through(&mut port, 100).iter().enumerate() {
        assert_eq!(*time, microseconds(number as u64 + 7));
    }
    // 64 bytes and 24 of Ethernet's at 704 Mbit/s are a microsecond.
    let mut port = outgoing(Impairment { rate: Rate::new(352_000_000), ..Impairment::NONE });
    for (number, (time, _)) in through(&mut port, 100).iter().enumerate() {
        assert_eq!(*time, microseconds(2 * (number as u64 + 1)));
    }
    let mut port = outgoing(Impairment { delay: microseconds(7), ..Impairment::NONE });
    port.transmit(Time::ZERO, &numbered(0)).unwrap();
    let mut buffer = [0; MAX_FRAME];
    let before = Time::from_picoseconds(microseconds(7).picoseconds() - 1);
    assert_eq!(port.receive(before, &mut buffer).unwrap(), Receive::None);
    assert_eq!(port.next_due(), Some(microseconds(7)));
    assert!(matches!(port.receive(microseconds(7), &mut buffer).unwrap(), Receive::Frame { length: 64, .. }));
}

#[test]
fn jitter_spreads_the_delay_and_keeps_the_order() {
    let (delay, jitter) = (microseconds(50), microseconds(20));
    let mut port = outgoing(Impairment { delay, jitter, ..Impairment::NONE });
    let came = through(&mut port, 1000);
    assert!(came.len() == 1000 && numbers(&came).is_sorted());
    let spread: Vec<u64> = came
        .iter()
        .map(|(time, frame)| {
            let sent = u64::from(u16::from_be_bytes([frame[0], frame[1]]));
            time.since(microseconds(sent)).nanoseconds() / 1000
        })
        .collect();
    assert!(spread.iter().all(|delay| (30..=71).contains(delay)));
    assert!(spread.iter().max() > spread.iter().min());
}

#[test]
fn what_finds_the_pipe_full_is_dropped_and_counted_but_a_full_port_below_is_said() {
    let mut port = outgoing(Impairment { delay: microseconds(1000), limit: 10, ..Impairment::NONE });
    for number in 0..15 {
        assert_eq!(port.transmit(Time::ZERO, &numbered(number)).unwrap(), Transmit::Accepted);
    }
    assert_eq!(detail(&port, "impaired_transmit_overflowed"), 5);
    let below = Loopback::new(2);
    let mut port = Impaired::new(below, Impairment { limit: 4, ..Impairment::NONE });
    let answers: Vec<Transmit> = (0..8).map(|number| port.transmit(Time::ZERO, &numbered(number)).unwrap()).collect();
    assert_eq!(answers.iter().filter(|&&answer| answer == Transmit::Accepted).count(), 6);
    assert_eq!(answers[6..], [Transmit::Full, Transmit::Full]);
    assert_eq!((port.counters().transmit_full, detail(&port, "impaired_transmit_overflowed")), (2, 0));
    let mut buffer = [0; MAX_FRAME];
    let mut came = 0;
    while let Receive::Frame { length: 64, .. } = port.receive(Time::ZERO, &mut buffer).unwrap() {
        assert_eq!(buffer[..64], numbered(came));
        came += 1;
    }
    assert_eq!(came, 6);
}

/// Takes so many frames until it is told to let them leave, and counts how often it is.
#[derive(Default)]
struct Told {
    room: usize,
    waiting: usize,
    left: usize,
    flushes: usize,
    counters: Counters,
}

impl Port for Told {
    fn receive(&mut self, _now: Time, _frame: &mut [u8]) -> Result<Receive, PortError> {
        Ok(Receive::None)
    }
    fn transmit(&mut self, _now: Time, _frame: &[u8]) -> Result<Transmit, PortError> {
        if self.waiting == self.room {
            return Ok(Transmit::Full);
        }
        self.waiting += 1;
        Ok(Transmit::Accepted)
    }
    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        self.flushes += 1;
        self.left += std::mem::take(&mut self.waiting);
        Ok(())
    }
    fn next_due(&self) -> Option<Time> {
        None
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[test]
fn the_port_below_is_told_once_for_a_burst_and_also_of_what_is_due_without_one() {
    let mut port = Impaired::new(Told { room: 64, ..Told::default() }, Impairment::NONE);
    for number in 0..32 {
        assert_eq!(port.transmit(Time::ZERO, &numbered(number)).unwrap(), Transmit::Accepted);
    }
    port.flush(Time::ZERO).unwrap();
    assert_eq!((port.inner().left, port.inner().flushes), (32, 1));
    port.flush(Time::ZERO).unwrap();
    assert_eq!(port.inner().flushes, 1, "there was nothing");
    // What a delay has held leaves with a look, and where there is no room for more without being asked.
    let delayed = Impairment { delay: microseconds(5), limit: 4, ..Impairment::NONE };
    let mut port = Impaired::new(Told { room: 2, ..Told::default() }, delayed);
    for number in 0..4 {
        assert_eq!(port.transmit(Time::ZERO, &numbered(number)).unwrap(), Transmit::Accepted);
    }
    port.flush(Time::ZERO).unwrap();
    assert_eq!(port.receive(microseconds(5), &mut [0; MAX_FRAME]).unwrap(), Receive::None);
    assert_eq!((port.inner().left, port.inner().flushes), (2, 1));
    for number in 0..2 {
        assert_eq!(port.transmit(microseconds(6), &numbered(number)).unwrap(), Transmit::Accepted);
    }
    assert_eq!((port.inner().left, port.inner().waiting), (2, 2));
    for number in 0..2 {
        assert_eq!(port.transmit(microseconds(6), &numbered(number)).unwrap(), Transmit::Accepted);
    }
    assert_eq!(port.transmit(microseconds(12), &numbered(0)).unwrap(), Transmit::Full);
    assert_eq!((port.inner().left, port.inner().flushes), (4, 2));
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    let all = Impairment {
        loss: Probability::from_billionths(50_000_000),
        duplicate: Probability::from_billionths(50_000_000),
        reorder: Probability::from_billionths(50_000_000),
        corrupt: Probability::from_billionths(50_000_000),
        delay: microseconds(20),
        jitter: microseconds(10),
        ..Impairment::NONE
    };
    let run = |seed| {
        let mut port = Impaired::new(Loopback::new(1024), Impairment { seed, ..all });
        (through(&mut port, 2000), port.details())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).1.iter().filter(|(name, _)| !name.contains("overflow")).all(|(_, count)| *count > 0));
}

#[test]
fn the_two_directions_draw_apart() {
    let lost = |direction| {
        let mut port =
            Impaired::new(Loopback::new(1024), Impairment { loss: half(), direction, seed: 5, ..Impairment::NONE });
        numbers(&through(&mut port, 64))
    };
    assert_ne!(lost(Direction::Transmit), lost(Direction::Receive));
}

#[test]
fn a_link_that_was_idle_is_no_further_ahead() {
    // As above: 2 us a frame, from when it is sent.
    let mut port = outgoing(Impairment { rate: Rate::new(352_000_000), ..Impairment::NONE });
    let mut buffer = [0; MAX_FRAME];
    for start in [0, 1000] {
        port.transmit(microseconds(start), &numbered(1)).unwrap();
        assert_eq!(port.next_due(), Some(microseconds(start + 2)));
        assert!(matches!(port.receive(microseconds(start + 2), &mut buffer).unwrap(), Receive::Frame { .. }));
    }
}

#[test]
fn what_is_held_leaves_at_the_end_and_what_finds_no_room_is_counted() {
    let mut port = outgoing(Impairment { delay: microseconds(7), ..Impairment::NONE });
    port.transmit(Time::ZERO, &numbered(1)).unwrap();
    assert_eq!(port.inner().counters().transmitted_frames, 0);
    port.finish().unwrap();
    assert_eq!(port.inner().counters().transmitted_frames, 1);
    assert_eq!(port.receive(Time::ZERO, &mut [0; 60]).unwrap(), Receive::Skipped);
    assert_eq!((port.counters().skipped_oversized, port.counters().received_frames), (1, 0));
}

#[test]
fn what_is_held_at_the_end_leaves_at_its_own_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recorded.pcap");
    let epoch = Timestamp::from_nanoseconds(1_700_000_000_000_000_000);
    let recorder = CapturePort::record(&path, epoch).unwrap();
    let mut port = Impaired::new(recorder, Impairment { delay: microseconds(7), ..Impairment::NONE });
    for number in 0..2 {
        port.transmit(microseconds(u64::from(number)), &numbered(number)).unwrap();
    }
    port.finish().unwrap();
    let mut reader = CaptureReader::open(&path).unwrap();
    for number in 0..2 {
        let record = reader.next_record().unwrap().expect("a frame");
        let at = Timestamp::from_nanoseconds(epoch.nanoseconds() + 1_000 * (7 + u64::from(number)));
        assert_eq!((record.timestamp, reader.data()), (Some(at), &numbered(number)[..]));
    }
    assert_eq!(reader.next_record().unwrap(), None);
}

#[test]
fn a_frame_for_which_the_port_below_never_has_room_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let options = MemifOptions { log2_slots: 2, buffer_bytes: 2048, ..MemifOptions::new(socket.to_str().unwrap()) };
    let mut server = Memif::open(&MemifOptions { role: Role::Server, ..options.clone() }).unwrap();
    let client = Memif::open(&MemifOptions { role: Role::Client, ..options }).unwrap();
    let mut port = Impaired::new(client, Impairment::NONE);
    let mut buffer = [0; MAX_FRAME];
    let milliseconds = |count: u64| Time::from_nanoseconds(1_000_000 * count);
    let mut now = (0..500).map(milliseconds).skip_while(|&now| {
        assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::None);
        assert_eq!(server.receive(now, &mut buffer).unwrap(), Receive::None);
        !(server.is_connected() && port.inner().is_connected())
    });
    let now = now.next().expect("they are connected");
    // The second finds the first there, and waits for its room in vain.
    for length in [60, 9000, 61] {
        assert_eq!(port.transmit(now, &vec![length as u8; length]).unwrap(), Transmit::Accepted);
    }
    for length in [60, 61] {
        port.flush(now).unwrap();
        assert_eq!(server.receive(now, &mut buffer).unwrap(), Receive::Frame { length, captured: None });
        assert_eq!(server.receive(now, &mut buffer).unwrap(), Receive::None);
    }
    assert_eq!((port.counters().refused_over_mtu, port.counters().refused()), (1, 1));
}

#[test]
fn what_the_port_below_counts_at_the_end_is_counted() {
    let below = Played { misses_at_the_end: 3, ..Played::default() };
    let mut port = Impaired::new(below, Impairment::NONE);
    port.finish().unwrap();
    assert_eq!(port.counters().missed, 3);
}

/// What a port is made to say, call by call.
#[derive(Default)]
struct Played {
    come: VecDeque<Result<Receive, PortError>>,
    go: VecDeque<Result<Transmit, PortError>>,
    /// The first byte of each frame that was accepted.
    went: Vec<u8>,
    /// Frames that it finds at the end that the kernel has dropped.
    misses_at_the_end: u64,
    counters: Counters,
}

fn broken() -> PortError {
    let error = std::io::Error::other("it broke");
    PacketError { interface: "played".to_owned(), problem: PacketProblem::Gone(error) }.into()
}

fn come() -> Result<Receive, PortError> {
    Ok(Receive::Frame { length: 64, captured: None })
}

impl Port for Played {
    fn receive(&mut self, _now: Time, frame: &mut [u8]) -> Result<Receive, PortError> {
        frame[..64].fill(self.come.len() as u8);
        self.come.pop_front().expect("nobody asks behind the end")
    }
    fn transmit(&mut self, _now: Time, frame: &[u8]) -> Result<Transmit, PortError> {
        let answer = self.go.pop_front().unwrap_or(Ok(Transmit::Accepted));
        if matches!(answer, Ok(Transmit::Accepted)) {
            self.went.push(frame[0]);
        }
        answer
    }
    fn flush(&mut self, _now: Time) -> Result<(), PortError> {
        Ok(())
    }
    fn next_due(&self) -> Option<Time> {
        Some(Time::ZERO)
    }
    fn counters(&self) -> &Counters {
        &self.counters
    }
    fn finish(&mut self) -> Result<(), PortError> {
        self.counters.missed += self.misses_at_the_end;
        Ok(())
    }
}

#[test]
fn what_came_before_the_port_below_broke_or_ended_is_received_before_that_is_said_once() {
    for breaks in [true, false] {
        let come = VecDeque::from([come(), come(), if breaks { Err(broken()) } else { Ok(Receive::End) }]);
        let delayed = Impairment { delay: microseconds(5), ..Impairment::NONE };
        let mut port = Impaired::new(Played { come, ..Played::default() }, delayed);
        let mut buffer = [0; MAX_FRAME];
        let before = Time::from_picoseconds(microseconds(5).picoseconds() - 1);
        for now in [Time::ZERO, before] {
            assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::None, "they are held");
        }
        for number in [3, 2] {
            assert!(matches!(port.receive(microseconds(5), &mut buffer).unwrap(), Receive::Frame { length: 64, .. }));
            assert_eq!(buffer[0], number);
        }
        if breaks {
            let error = port.receive(microseconds(5), &mut buffer).unwrap_err().to_string();
            assert!(error.contains("it broke"), "{error}");
        }
        for _ in 0..3 {
            assert_eq!(port.receive(microseconds(6), &mut buffer).unwrap(), Receive::End);
        }
        assert_eq!((port.next_due(), port.counters().received_frames), (None, 2));
    }
}

#[test]
fn no_more_is_taken_from_the_port_below_than_there_is_room_for() {
    let come = (0..5).map(|_| come()).collect();
    let delayed = Impairment { delay: microseconds(5), limit: 2, ..Impairment::NONE };
    let mut port = Impaired::new(Played { come, ..Played::default() }, delayed);
    assert_eq!(port.receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::None);
    assert_eq!((port.inner().come.len(), detail(&port, "impaired_receive_overflowed")), (3, 0));
}

#[test]
fn a_frame_with_which_the_port_below_broke_is_not_sent_and_the_others_are() {
    let go = VecDeque::from([Ok(Transmit::Accepted), Err(broken()), Ok(Transmit::Refused)]);
    let mut port = Impaired::new(Played { go, ..Played::default() }, Impairment::NONE);
    let send = |port: &mut Impaired<Played>, number| port.transmit(Time::ZERO, &[number; 64]).unwrap();
    assert_eq!([1, 2].map(|number| send(&mut port, number)), [Transmit::Accepted; 2]);
    let error = port.flush(Time::ZERO).unwrap_err().to_string();
    assert!(error.contains("it broke"), "{error}");
    assert_eq!([3, 4].map(|number| send(&mut port, number)), [Transmit::Accepted; 2]);
    port.flush(Time::ZERO).unwrap();
    assert_eq!(port.inner().went, [1, 4]);
}
