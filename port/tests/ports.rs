//! The contract of a port, for the loopback and for replayed and recorded captures.

use std::fs::{File, OpenOptions};
use std::io::{Cursor, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Fixture, frame, read_sound};
use conic_fabric::Time;
use conic_native::{clock, yield_core};
use conic_port::{
    CaptureFormat, CapturePort, CaptureReader, CaptureWriter, Loopback, Loops, MAX_FRAME, MIN_FRAME, Pace, Port,
    PortSpec, Receive, Replay, ShortFrames, Speed, Timestamp, Transmit,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn nanoseconds(count: u64) -> Time {
    Time::from_nanoseconds(count)
}

fn port(file: &Fixture, replay: Replay) -> CapturePort<Cursor<Vec<u8>>> {
    let reader = CaptureReader::new(Cursor::new(file.bytes.clone()), "test").unwrap();
    CapturePort::replay_from(reader, replay).unwrap()
}

fn times(count: u64) -> Loops {
    Loops::Times(count.try_into().unwrap())
}

/// A capture of 60-byte frames at these nanoseconds after second 1000; the first byte numbers them.
fn at(offsets: &[u32]) -> Fixture {
    offsets.iter().enumerate().fold(Fixture::pcap_nanoseconds(false), |file, (number, &offset)| {
        file.record(1000, offset, &[number as u8; 60], 60)
    })
}

fn paced(speed: Speed) -> Replay {
    Replay { pace: Pace::Recorded(speed), ..Replay::default() }
}

/// The next frame must be due exactly at `due`: it is not there a picosecond before.
#[track_caller]
fn assert_due(port: &mut impl Port, due: Time, number: u8) {
    let mut buffer = [0; MAX_FRAME];
    if due > Time::ZERO {
        let before = Time::from_picoseconds(due.picoseconds() - 1);
        assert_eq!(port.receive(before, &mut buffer).unwrap(), Receive::None);
        assert_eq!(port.next_due(), Some(due));
    }
    let got = port.receive(due, &mut buffer).unwrap();
    assert!(matches!(got, Receive::Frame { length: 60, .. }), "{got:?}");
    assert_eq!(buffer[0], number);
}

#[test]
fn a_loopback_returns_frames_in_order_and_says_when_it_is_full() {
    let mut port = Loopback::new(3);
    let mut buffer = [0; MAX_FRAME];
    assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None);
    assert_eq!(port.next_due(), None);
    for number in 0..3 {
        let sent = port.transmit(Time::ZERO, &frame(60 + usize::from(number), number)).unwrap();
        assert_eq!(sent, Transmit::Accepted);
    }
    assert_eq!(port.transmit(Time::ZERO, &[9; 60]).unwrap(), Transmit::Full);
    assert_eq!((port.queued(), port.next_due()), (3, Some(Time::ZERO)));
    for number in 0..3 {
        let length = 60 + usize::from(number);
        let got = port.receive(Time::ZERO, &mut buffer).unwrap();
        assert_eq!(got, Receive::Frame { length, captured: None });
        assert_eq!(buffer[..length], frame(length, number));
    }
    assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None);
    let counters = port.counters();
    assert_eq!((counters.transmitted_frames, counters.received_frames), (3, 3));
    assert_eq!((counters.transmitted_bytes, counters.received_bytes), (183, 183));
    assert_eq!(counters.transmit_full, 1);
}

#[test]
fn only_frames_of_60_to_9600_bytes_are_transmitted() {
    let directory = tempfile::tempdir().unwrap();
    let mut loopback = Loopback::new(8);
    let path = directory.path().join("a.pcap");
    let mut record = CapturePort::record(&path, Timestamp::default()).unwrap();
    let ports: [&mut dyn Port; 2] = [&mut loopback, &mut record];
    for port in ports {
        for (length, expected) in [
            (0, Transmit::Refused),
            (MIN_FRAME - 1, Transmit::Refused),
            (MIN_FRAME, Transmit::Accepted),
            (MAX_FRAME, Transmit::Accepted),
            (MAX_FRAME + 1, Transmit::Refused),
        ] {
            assert_eq!(port.transmit(Time::ZERO, &vec![1; length]).unwrap(), expected, "{length}");
        }
        assert_eq!((port.counters().refused_length, port.counters().refused()), (3, 3));
        assert_eq!(port.counters().transmitted_frames, 2);
    }
}

#[test]
fn a_frame_longer_than_the_buffer_is_skipped_and_the_next_is_whole() {
    let file = Fixture::pcap_nanoseconds(false)
        .record(0, 0, &frame(200, 1), 200)
        .record(0, 0, &frame(100, 2), 100)
        .record(0, 0, &frame(30, 3), 30);
    let mut loopback = Loopback::new(2);
    for (length, seed) in [(200, 1), (100, 2)] {
        loopback.transmit(Time::ZERO, &frame(length, seed)).unwrap();
    }
    let mut replay = port(&file, Replay::default());
    let ports: [&mut dyn Port; 2] = [&mut loopback, &mut replay];
    for port in ports {
        let mut buffer = [0; 100];
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::Skipped);
        let got = port.receive(Time::ZERO, &mut buffer).unwrap();
        assert!(matches!(got, Receive::Frame { length: 100, .. }));
        assert_eq!(buffer[..], frame(100, 2));
        assert_eq!(port.counters().skipped_oversized, 1);
    }
    // A padded frame needs room for its padding.
    assert_eq!(replay.receive(Time::ZERO, &mut [0; 40]).unwrap(), Receive::Skipped);
    assert_eq!(replay.counters().skipped_oversized, 2);
}

#[test]
fn what_a_capture_skips_is_counted_by_reason() {
    let long = frame(MAX_FRAME + 1, 4);
    let file = Fixture::pcap_nanoseconds(false)
        .record(0, 0, &frame(60, 1), 61)
        .record(0, 1, &long[..MAX_FRAME], MAX_FRAME as u32)
        .record(0, 2, &long, long.len() as u32)
        .record(0, 3, &frame(59, 2), 59)
        .record(0, 4, &frame(14, 3), 14)
        .record(0, 5, &frame(13, 3), 13)
        .record(0, 6, &[], 0)
        .record(0, 7, &[], 1514);
    let results = |short_frames| {
        let mut port = port(&file, Replay { short_frames, ..Replay::default() });
        let mut buffer = [0xee; MAX_FRAME];
        let lengths: Vec<_> = (0..8)
            .map(|_| match port.receive(Time::ZERO, &mut buffer).unwrap() {
                Receive::Frame { length, .. } => length,
                Receive::Skipped => 0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
        assert_eq!(port.next_due(), None);
        (lengths, *port.counters())
    };
    let (lengths, counters) = results(ShortFrames::Pad);
    assert_eq!(lengths, [0, 9600, 0, 60, 60, 0, 0, 0]);
    assert_eq!((counters.skipped_truncated, counters.skipped_oversized), (2, 1));
    assert_eq!((counters.skipped_short, counters.received_padded), (2, 2));
    assert_eq!((counters.received_frames, counters.received_bytes), (3, 9720));
    let (lengths, counters) = results(ShortFrames::Skip);
    assert_eq!(lengths, [0, 9600, 0, 0, 0, 0, 0, 0]);
    assert_eq!((counters.skipped_short, counters.received_padded), (4, 0));
    assert_eq!(counters.skipped(), 7);
}

#[test]
fn padding_is_zeros_whatever_the_buffer_held() {
    let file = Fixture::pcap_nanoseconds(false).record(3, 4, &[7; 42], 42);
    let mut buffer = [0xee; MAX_FRAME];
    let got = port(&file, Replay::default()).receive(Time::ZERO, &mut buffer).unwrap();
    let captured = Some(Timestamp::from_nanoseconds(3_000_000_004));
    assert_eq!(got, Receive::Frame { length: 60, captured });
    assert_eq!(buffer[..42], [7; 42]);
    assert_eq!(buffer[42..60], [0; 18]);
}

#[test]
fn without_pace_every_frame_is_due_at_once() {
    let mut port = port(&at(&[0, 999_999_999, 5]), Replay::default());
    let mut buffer = [0; MAX_FRAME];
    for number in 0..3 {
        assert_eq!(port.next_due(), Some(Time::ZERO));
        let got = port.receive(Time::ZERO, &mut buffer).unwrap();
        assert!(matches!(got, Receive::Frame { .. }));
        assert_eq!(buffer[0], number);
    }
}

#[test]
fn at_recorded_pace_a_frame_is_due_at_its_distance_from_the_first() {
    let mut port = port(&at(&[100, 150, 150, 1_000]), paced(Speed::RECORDED));
    let start = nanoseconds(5_000);
    let mut buffer = [0; MAX_FRAME];
    assert!(matches!(port.receive(start, &mut buffer).unwrap(), Receive::Frame { .. }));
    assert_due(&mut port, nanoseconds(5_050), 1);
    assert!(matches!(port.receive(nanoseconds(5_050), &mut buffer).unwrap(), Receive::Frame { .. }));
    assert_due(&mut port, nanoseconds(5_900), 3);
    assert_eq!(port.receive(Time::NEVER, &mut buffer).unwrap(), Receive::End);
}

#[test]
fn a_speed_divides_the_distances_exactly() {
    for (speed, due) in [("2", 500_000), ("0.5", 2_000_000), ("3", 333_333), ("0.000001", 1_000_000_000_000)] {
        let mut port = port(&at(&[0, 1_000]), paced(speed.parse().unwrap()));
        assert_due(&mut port, Time::ZERO, 0);
        assert_due(&mut port, Time::from_picoseconds(due), 1);
    }
    assert_eq!("1.25".parse(), Ok(Speed::new(125, 100).unwrap()));
    for wrong in ["0", "0.0", "-1", "", ".", "1e3", "1.2.3", "0.0000001", "99999999999", "x", "+1"] {
        assert!(wrong.parse::<Speed>().is_err(), "{wrong:?}");
    }
}

#[test]
fn a_late_caller_gets_what_was_due_without_delay_and_the_rest_in_time() {
    let mut port = port(&at(&[0, 10, 20, 500]), paced(Speed::RECORDED));
    assert_due(&mut port, Time::ZERO, 0);
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..2 {
        let got = port.receive(nanoseconds(300), &mut buffer).unwrap();
        assert!(matches!(got, Receive::Frame { .. }));
    }
    assert_due(&mut port, nanoseconds(500), 3);
}

#[test]
fn a_time_that_runs_backwards_or_is_missing_is_due_with_its_predecessor() {
    let data = |number: u8| [number; 60];
    let file = Fixture::pcapng(false)
        .interface(1, 0, &[(9, &[9])])
        .enhanced(0, 1_000, &data(0), 60)
        .enhanced(0, 1_100, &data(1), 60)
        .enhanced(0, 900, &data(2), 60)
        .simple(&data(3), 60)
        .enhanced(0, 1_050, &data(4), 60)
        .enhanced(0, 1_101, &data(5), 60);
    let mut port = port(&file, paced(Speed::RECORDED));
    assert_due(&mut port, Time::ZERO, 0);
    assert_due(&mut port, nanoseconds(100), 1);
    let mut buffer = [0; MAX_FRAME];
    for number in 2..5 {
        port.receive(nanoseconds(100), &mut buffer).unwrap();
        assert_eq!(buffer[0], number);
    }
    assert_due(&mut port, nanoseconds(101), 5);
}

#[test]
fn passes_follow_each_other_at_the_mean_distance() {
    let replay = Replay { loops: times(3), ..paced(Speed::new(2, 1).unwrap()) };
    let mut port = port(&at(&[0, 40, 200]), replay);
    // At twice the speed a pass takes 100 ns, and its two distances are 50 ns in the mean.
    for start in [0, 150, 300] {
        assert_due(&mut port, nanoseconds(start), 0);
        assert_due(&mut port, nanoseconds(start + 20), 1);
        assert_due(&mut port, nanoseconds(start + 100), 2);
    }
    assert_eq!(port.receive(Time::NEVER, &mut [0; MAX_FRAME]).unwrap(), Receive::End);
}

#[test]
fn a_pass_that_ends_with_an_earlier_time_lasts_until_its_latest() {
    let mut port = port(&at(&[0, 100, 50]), Replay { loops: times(2), ..paced(Speed::RECORDED) });
    assert_due(&mut port, Time::ZERO, 0);
    assert_due(&mut port, nanoseconds(100), 1);
    let got = port.receive(nanoseconds(100), &mut [0; MAX_FRAME]).unwrap();
    assert!(matches!(got, Receive::Frame { .. }));
    assert_due(&mut port, nanoseconds(150), 0);
}

#[test]
fn passes_follow_each_other_at_a_distance_that_is_given() {
    let gap = Some(nanoseconds(7));
    let replay = Replay { loops: Loops::Forever, loop_gap: gap, ..paced(Speed::RECORDED) };
    let mut port = port(&at(&[3]), replay);
    for pass in 0..100 {
        assert_due(&mut port, nanoseconds(7 * pass), 0);
    }
}

#[test]
fn a_capture_is_replayed_as_often_as_asked() {
    // Once so small that it stays in the buffer, once longer than the buffer.
    for frames in [3, 10_000] {
        let file = at(&vec![0; frames]);
        for loops in [1, 2, 5] {
            let mut port = port(&file, Replay { loops: times(loops), ..Replay::default() });
            let mut buffer = [0; MAX_FRAME];
            let mut got = 0;
            while let Receive::Frame { .. } = port.receive(Time::ZERO, &mut buffer).unwrap() {
                assert_eq!(buffer[0], (got % frames) as u8);
                got += 1;
            }
            assert_eq!(got, frames * loops as usize);
            assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
        }
        let mut port = port(&file, Replay { loops: Loops::Forever, ..Replay::default() });
        let mut buffer = [0; MAX_FRAME];
        for got in 0..frames * 7 {
            assert!(matches!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::Frame { .. }));
            assert_eq!(buffer[0], (got % frames) as u8);
        }
    }
}

#[test]
fn a_capture_without_a_frame_to_deliver_ends_even_when_looped_for_ever() {
    let nothing = Fixture::pcapng(true);
    let skipped = Fixture::pcap_nanoseconds(true).record(0, 0, &[1; 60], 70);
    for (file, skips) in [(nothing, 0), (skipped, 1)] {
        let mut port = port(&file, Replay { loops: Loops::Forever, ..Replay::default() });
        let mut buffer = [0; MAX_FRAME];
        for _ in 0..skips {
            assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::Skipped);
        }
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
    }
}

#[test]
fn a_broken_capture_gives_its_sound_frames_then_one_error_then_the_end() {
    let mut file = at(&[0, 1, 2]);
    file.bytes.truncate(file.bytes.len() - 1);
    let mut port = port(&file, Replay { loops: Loops::Forever, ..Replay::default() });
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..2 {
        assert!(matches!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::Frame { .. }));
    }
    assert_eq!(
        port.receive(Time::ZERO, &mut buffer).unwrap_err().to_string(),
        "test: at byte 176: the file ends inside a record: 75 of 76 bytes are there; \
         the capture was cut short, and what lies before is sound"
    );
    assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
    assert_eq!((port.next_due(), port.counters().received_frames), (None, 2));
}

/// A pipe in a folder, and its end for writing, which is there when somebody reads.
fn pipe(folder: &Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    path
}

/// The thread that serves a network has others to serve.
#[test]
fn a_pipe_that_is_replayed_is_waited_for_while_it_is_opened_and_not_any_more() {
    // A block that is passed over is longer than one read of a pipe gives, and comes in two parts.
    let mut pcapng = Vec::new();
    let mut writer = CaptureWriter::new(&mut pcapng, CaptureFormat::Pcapng, "bytes");
    writer.finish().unwrap();
    drop(writer);
    let block = 100_000u32;
    pcapng.extend([0x0bad_u32.to_le_bytes(), block.to_le_bytes()].concat());
    pcapng.resize(pcapng.len() + block as usize - 12, 0xee);
    pcapng.extend(block.to_le_bytes());
    let mut packets = Fixture::pcap_nanoseconds(false).bytes;
    let head = packets.len();
    packets.extend(Fixture::pcap_nanoseconds(false).record(0, 0, &frame(200, 1), 200).bytes.split_off(head));
    for (name, bytes, frames, parts) in
        [("a.pcap", packets, 1, [24, 30, 100]), ("a.pcapng", pcapng, 0, [60, 70, 50_000])]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path(), name);
        let writes = {
            let (path, bytes) = (path.clone(), bytes[..parts[0]].to_vec());
            std::thread::spawn(move || {
                let mut end = OpenOptions::new().write(true).open(path).unwrap();
                end.write_all(&bytes).unwrap();
                end
            })
        };
        let mut port = CapturePort::replay(&path, Replay::default()).unwrap();
        let mut end = writes.join().unwrap();
        let mut buffer = [0; MAX_FRAME];
        for (from, to) in [(parts[0], parts[1]), (parts[1], parts[2])] {
            assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None, "{name}");
            assert!(port.next_due().is_none() && port.descriptor().is_some(), "{name}: it is slept on");
            end.write_all(&bytes[from..to]).unwrap();
        }
        assert_eq!(port.receive(Time::ZERO, &mut buffer).unwrap(), Receive::None, "{name}");
        let rest = bytes[parts[2]..].to_vec();
        let writes = std::thread::spawn(move || end.write_all(&rest).unwrap());
        let mut came = 0;
        loop {
            match port.receive(Time::ZERO, &mut buffer).unwrap() {
                Receive::Frame { length, .. } => {
                    assert_eq!(buffer[..length], frame(200, 1));
                    came += 1;
                }
                Receive::End => break,
                _ => yield_core(),
            }
        }
        writes.join().unwrap();
        assert_eq!(came, frames, "{name}");
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_full_and_what_was_taken_is_written_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path(), "a.pcap");
    let opens = {
        let path = path.clone();
        std::thread::spawn(move || File::open(path).unwrap())
    };
    let mut port = CapturePort::record(&path, Timestamp::default()).unwrap();
    let mut reader = opens.join().unwrap();
    let taken = (0..1000).take_while(|_| port.transmit(Time::ZERO, &frame(1000, 1)).unwrap() == Transmit::Accepted);
    let taken = taken.count();
    assert!((200..1000).contains(&taken), "{taken} frames found room");
    assert_eq!((port.counters().transmit_full, port.counters().transmitted_frames), (1, taken as u64));
    let reads = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        all
    });
    port.finish().unwrap();
    drop(port);
    assert_eq!(reads.join().unwrap().len(), 24 + taken * 1016);
}

/// As `conic nic` and `conic bridge` open it, with the times of the machine's clock.
#[test]
fn a_port_that_records_dates_what_it_records() {
    let folder = tempfile::tempdir().unwrap();
    for spec in ["capture:record=", "impair:delay=0us+capture:record="] {
        let path = folder.path().join("recorded.pcap");
        let spec = format!("{spec}{}", path.display()).parse::<PortSpec>().unwrap();
        assert!(spec.records());
        // The second goes on where there is a file of another process.
        let mut port = if path.exists() { spec.inherit(Vec::new()) } else { spec.open() }.unwrap().remove(0);
        assert_eq!(port.transmit(clock::now(), &frame(60, 1)).unwrap(), Transmit::Accepted);
        port.flush(clock::now()).unwrap();
        port.finish().unwrap();
    }
    for name in ["recorded.pcap", "recorded.1.pcap"] {
        let path = folder.path().join(name);
        let mut reader = CaptureReader::open(&path).unwrap();
        let dated = reader.next_record().unwrap().unwrap().timestamp.unwrap().nanoseconds();
        // The file system dates by the same clock.
        let written = path.metadata().unwrap().mtime() as u64;
        assert!((dated / 1_000_000_000).abs_diff(written) < 60, "{name}: {dated} ns since 1970");
        assert!(reader.next_record().unwrap().is_none(), "one frame is in {name}");
    }
}

#[test]
fn what_is_transmitted_is_recorded_with_its_time() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let path = directory.path().join(name);
        let epoch = Timestamp::from_nanoseconds(1_700_000_000_000_000_001);
        let mut port = CapturePort::record(&path, epoch).unwrap();
        assert_eq!(port.receive(Time::ZERO, &mut [0; MAX_FRAME]).unwrap(), Receive::End);
        for number in 0..5 {
            let sent = port.transmit(nanoseconds(1_000 * u64::from(number)), &frame(61, number));
            assert_eq!(sent.unwrap(), Transmit::Accepted);
        }
        port.finish().unwrap();
        let packets = read_sound(&std::fs::read(&path).unwrap());
        assert_eq!(packets.len(), 5);
        for (number, (record, data)) in packets.iter().enumerate() {
            let time = epoch.nanoseconds() + 1_000 * number as u64;
            assert_eq!(record.timestamp, Some(Timestamp::from_nanoseconds(time)));
            assert_eq!(*data, frame(61, number as u8));
        }
    }
}

#[test]
fn a_capture_is_not_recorded_over_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.pcap");
    let other = directory.path().join("b.pcap");
    let file = at(&[1]);
    std::fs::write(&path, &file.bytes).unwrap();
    std::os::unix::fs::symlink(&path, &other).unwrap();
    for name in [&path, &other] {
        let port = CapturePort::replay(&path, Replay::default()).unwrap();
        let error = port.recording_to(name, Timestamp::default()).err().unwrap();
        assert!(error.to_string().contains("is the capture being replayed"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), file.bytes);
}

#[test]
fn a_file_that_is_not_there_or_no_capture_is_named() {
    let open = |path: &Path| CapturePort::replay(path, Replay::default()).err().unwrap().to_string();
    let missing = open(Path::new("/nowhere/a.pcap"));
    assert!(missing.starts_with("/nowhere/a.pcap: cannot be opened: No such file"), "{missing}");
    let directory = tempfile::tempdir().unwrap();
    let text = open(directory.path());
    assert!(text.contains("at byte 0: cannot be read: Is a directory"), "{text}");
}

#[test]
fn a_pipe_is_replayed_once_and_refused_for_more() {
    use std::os::fd::{AsRawFd, OwnedFd};
    let pipe = |loops| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, &at(&[1, 2]).bytes).unwrap();
        drop(writer);
        let reader = OwnedFd::from(reader);
        // The same pipe by name, as a shell's process substitution gives it.
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        CapturePort::replay(Path::new(&path), Replay { loops, ..Replay::default() })
    };
    let mut once = pipe(Loops::ONCE).unwrap();
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..2 {
        assert!(matches!(once.receive(Time::ZERO, &mut buffer).unwrap(), Receive::Frame { .. }));
    }
    assert_eq!(once.receive(Time::ZERO, &mut buffer).unwrap(), Receive::End);
    let error = pipe(Loops::Forever).err().unwrap().to_string();
    assert!(error.contains("cannot be replayed again from its beginning"), "{error}");
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(0x00c0_0042),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_loopback_is_a_bounded_queue(
        room in 1usize..6,
        steps in prop::collection::vec((any::<bool>(), 50usize..9700, any::<u8>()), 0..200)
    ) {
        let mut port = Loopback::new(room);
        let mut model = std::collections::VecDeque::new();
        let mut buffer = [0; MAX_FRAME];
        for (send, length, seed) in steps {
            if send {
                let data = frame(length, seed);
                let expected = if !(60..=9600).contains(&length) {
                    Transmit::Refused
                } else if model.len() == room {
                    Transmit::Full
                } else {
                    model.push_back(data.clone());
                    Transmit::Accepted
                };
                prop_assert_eq!(port.transmit(Time::ZERO, &data).unwrap(), expected);
            } else {
                match (port.receive(Time::ZERO, &mut buffer).unwrap(), model.pop_front()) {
                    (Receive::None, None) => {}
                    (Receive::Frame { length, captured: None }, Some(data)) => {
                        prop_assert!(buffer[..length] == data[..]);
                    }
                    (got, wanted) => prop_assert!(false, "{got:?}, {wanted:?}"),
                }
            }
            prop_assert_eq!(port.queued(), model.len());
        }
    }

    #[test]
    fn paced_frames_are_due_in_order_and_never_early(
        offsets in prop::collection::vec(0u32..1_000_000, 1..50),
        numerator in 1u32..1000,
        denominator in 1u32..1000,
    ) {
        let speed = Speed::new(numerator, denominator).unwrap();
        let mut port = port(&at(&offsets), paced(speed));
        let mut buffer = [0; MAX_FRAME];
        let mut now = Time::ZERO;
        let mut latest = 0u64;
        for &offset in &offsets {
            let span = u64::from(offset.saturating_sub(offsets[0]));
            latest = latest.max(span * 1_000 * u64::from(denominator) / u64::from(numerator));
            if now.picoseconds() < latest {
                prop_assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::None);
                prop_assert_eq!(port.next_due(), Some(Time::from_picoseconds(latest)));
                now = Time::from_picoseconds(latest);
            }
            let frame = matches!(port.receive(now, &mut buffer).unwrap(), Receive::Frame { .. });
            prop_assert!(frame);
        }
    }
}
