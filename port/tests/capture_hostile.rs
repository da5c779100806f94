//! Damaged capture files: cut anywhere, changed anywhere. A clear error or fewer frames; never a panic, a hang, or
//! memory by a length that the file claims.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;

use crate::support::{Fixture, frame, read, small_files};
use conic_fabric::Time;
use conic_port::{
    CAPTURED_MAX, CaptureFormat, CapturePort, CaptureReader, CaptureWriter, Loops, MAX_FRAME, MIN_FRAME, Pace, Port,
    Problem, Receive, Replay, Speed, Timestamp,
};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        BYTES.set(BYTES.get() + layout.size());
        // SAFETY: the caller keeps the contract of this very method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads a file to its end without keeping anything; gives the packets and the error.
fn run_through(bytes: &[u8]) -> (usize, Option<(u64, String)>) {
    let mut reader = match CaptureReader::new(Cursor::new(bytes), "test") {
        Ok(reader) => reader,
        Err(error) => return (0, Some((error.offset, error.to_string()))),
    };
    let mut packets = 0;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                packets += 1;
                assert!(record.captured <= CAPTURED_MAX);
                assert_eq!(reader.data().len(), record.captured as usize);
                // The least record is a simple packet block of 16 bytes.
                assert!(packets <= bytes.len() / 16, "more packets than the file has room for");
            }
            Ok(None) => return (packets, None),
            Err(error) => {
                assert!(reader.next_record().unwrap().is_none(), "an error is reported once");
                assert!(reader.data().is_empty());
                return (packets, Some((error.offset, error.to_string())));
            }
        }
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_the_frames_before_and_the_offset_of_the_cut_record() {
    for (name, file) in small_files() {
        for cut in 0..=file.bytes.len() {
            let (packets, error) = read(&file.bytes[..cut]);
            let whole = file.packet_ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(packets.len(), whole, "{name} cut at {cut}");
            match error {
                None => assert!(file.ends.contains(&cut), "{name} cut at {cut}: no error"),
                Some(error) => {
                    assert!(!file.ends.contains(&cut), "{name} cut at {cut}: {error}");
                    assert_eq!(error.offset, file.start_of(cut) as u64, "{name} cut at {cut}: {error}");
                    let expected = match error.problem {
                        Problem::Empty => cut == 0,
                        Problem::EndsInside { found, needed, .. } => {
                            found == cut as u64 - error.offset && found < needed
                        }
                        _ => false,
                    };
                    assert!(expected, "{name} cut at {cut}: {error}");
                }
            }
        }
    }
}

#[test]
fn any_byte_with_any_value_is_survived() {
    for (_, file) in small_files() {
        let sound = run_through(&file.bytes).0;
        let mut errors = 0;
        let mut bytes = file.bytes.clone();
        for at in 0..bytes.len() {
            for value in 0..=255 {
                bytes[at] = value;
                let before = BYTES.get();
                let (packets, error) = run_through(&bytes);
                // The buffer of 512 KiB, the name, a few interfaces, the text of an error.
                assert!(BYTES.get() - before < (512 << 10) + 4096, "byte {at} = {value}");
                assert!(packets <= sound + 4);
                if let Some((offset, _)) = error {
                    errors += 1;
                    assert!(offset < bytes.len() as u64);
                }
            }
            bytes[at] = file.bytes[at];
        }
        assert!(errors > 1000, "changes of headers are noticed: {errors}");
    }
}

#[test]
fn seeded_damage_at_several_places_is_survived_by_the_port() {
    let mut random = fastrand::Rng::with_seed(0xbad_f11e);
    let files = small_files();
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..20_000 {
        let mut bytes = files[random.usize(..files.len())].1.bytes.clone();
        for _ in 0..=random.usize(..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(bytes.len() - random.usize(..3) * random.usize(..40));
        let Ok(reader) = CaptureReader::new(Cursor::new(bytes), "test") else {
            continue;
        };
        let replay = Replay { loops: Loops::Forever, pace: Pace::Recorded(Speed::RECORDED), ..Replay::default() };
        let mut port = CapturePort::replay_from(reader, replay).unwrap();
        let mut now = Time::ZERO;
        for _ in 0..40 {
            match port.receive(now, &mut buffer) {
                Ok(Receive::Frame { length, .. }) => {
                    assert!((MIN_FRAME..=MAX_FRAME).contains(&length))
                }
                Ok(Receive::None) => {
                    let due = port.next_due().unwrap();
                    assert!(due > now);
                    now = due;
                }
                Ok(Receive::Skipped) => {}
                Ok(Receive::End) => break,
                Err(_) => assert_eq!(port.receive(now, &mut buffer).unwrap(), Receive::End),
            }
        }
    }
}

#[test]
fn noise_behind_a_sound_beginning_is_survived() {
    let mut random = fastrand::Rng::with_seed(7);
    let starts = [
        Fixture::pcap_nanoseconds(false),
        Fixture::pcap_microseconds(true),
        Fixture::pcapng(false).interface(1, 0, &[]),
        Fixture::pcapng(true).interface(1, 0, &[]),
    ];
    for round in 0..4_000 {
        let mut bytes = starts[round % starts.len()].bytes.clone();
        for _ in 0..random.usize(..50) {
            // Small words are likely lengths, types and interface numbers.
            let word = random.u32(..) >> (random.u32(..5) * 7);
            bytes.extend(word.to_le_bytes());
        }
        run_through(&bytes);
    }
}

#[test]
fn interfaces_without_end_are_refused() {
    let one = Fixture::pcapng(false).interface(1, 0, &[]).bytes;
    let mut bytes = one.clone();
    for _ in 0..65_536 {
        bytes.extend(&one[28..]);
    }
    let error = read(&bytes).1.unwrap();
    assert!(matches!(error.problem, Problem::TooManyInterfaces(65_536)), "{error}");
    assert_eq!(error.offset, 28 + 65_536 * 20);
}

#[test]
fn nothing_is_allocated_for_a_frame() {
    let data = frame(1500, 1);
    let mut pcap = Fixture::pcap_nanoseconds(false);
    let mut pcapng = Fixture::pcapng(false).interface(1, 0, &[]);
    for number in 0..2_000 {
        pcap = pcap.record(number, 0, &data, 1500);
        pcapng = pcapng.enhanced(0, u64::from(number), &data, 1500).block(5, &data, false);
    }
    let mut buffer = [0; MAX_FRAME];
    for file in [pcap, pcapng] {
        let reader = CaptureReader::new(Cursor::new(&file.bytes), "test").unwrap();
        let replay = Replay { loops: Loops::Times(3.try_into().unwrap()), ..Replay::default() };
        let mut port = CapturePort::replay_from(reader, replay).unwrap();
        // The first frame may find the list of interfaces growing.
        port.receive(Time::ZERO, &mut buffer).unwrap();
        let before = CALLS.get();
        for _ in 1..2_000 {
            assert_eq!(
                port.receive(Time::ZERO, &mut buffer).map(|got| matches!(got, Receive::Frame { .. })).ok(),
                Some(true)
            );
        }
        assert_eq!(CALLS.get(), before);
    }
}

#[test]
fn nothing_is_allocated_for_a_frame_that_is_written() {
    let data = frame(8200, 1);
    for format in [CaptureFormat::Pcap, CaptureFormat::Pcapng] {
        let mut writer = CaptureWriter::new(std::io::sink(), format, "test");
        let before = CALLS.get();
        // Lengths of all kinds, so that the buffer is left full to every degree.
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..200_000 {
            let length = 60 + random.usize(..8_000);
            writer.write(Timestamp::default(), &data[..length]).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(CALLS.get(), before);
    }
}
