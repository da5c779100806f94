//! What is in a capture file is what is read, in every format; what is written is read again.

use std::io::{self, Write};
use std::path::Path;

use crate::support::{Fixture, frame, read, read_sound};
use conic_check::skipped;
use conic_port::{CaptureFormat, CaptureWriter, Problem, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const ETHERNET: u32 = 1;

fn nanoseconds(packets: &[(conic_port::Record, Vec<u8>)]) -> Vec<Option<u64>> {
    packets.iter().map(|(record, _)| record.timestamp.map(Timestamp::nanoseconds)).collect()
}

#[test]
fn pcap_gives_frames_times_and_offsets_in_both_orders_and_resolutions() {
    let (a, b) = (frame(60, 1), frame(61, 2));
    for big in [false, true] {
        for (file, unit) in [(Fixture::pcap_microseconds(big), 1_000), (Fixture::pcap_nanoseconds(big), 1)] {
            let file = file.record(7, 5, &a, 60).record(4_000_000_000, 999_999, &b, 61);
            let packets = read_sound(&file.bytes);
            assert_eq!(packets[0].1, a);
            assert_eq!(packets[1].1, b);
            assert_eq!(packets[0].0.offset, 24);
            assert_eq!(packets[1].0.offset, 24 + 16 + 60);
            assert_eq!(
                nanoseconds(&packets),
                [Some(7_000_000_000 + 5 * unit), Some(4_000_000_000_000_000_000 + 999_999 * unit)]
            );
        }
    }
}

#[test]
fn pcap_check_sequence_is_taken_off_where_the_header_declares_it() {
    // Two 16-bit words, and the bit that says that this is known.
    let network = ETHERNET | 1 << 26 | 2 << 28;
    let data = frame(64, 3);
    let file = Fixture::pcap(false, 0xa1b2_c3d4, network).record(0, 0, &data, 64).record(0, 0, &data[..50], 64).record(
        0,
        0,
        &data[..3],
        3,
    );
    let packets = read_sound(&file.bytes);
    assert_eq!(packets[0].1, data[..60]);
    assert!(!packets[0].0.is_truncated());
    assert_eq!((packets[1].0.captured, packets[1].0.wire), (50, 60));
    assert_eq!((packets[2].0.captured, packets[2].0.wire), (0, 0));
    // Without the bit the length means nothing.
    let file = Fixture::pcap(false, 0xa1b2_c3d4, ETHERNET | 2 << 28).record(0, 0, &data, 64);
    assert_eq!(read_sound(&file.bytes)[0].1, data);
}

#[test]
fn pcapng_gives_the_packets_of_all_packet_blocks_in_both_orders() {
    let (a, b) = (frame(60, 1), frame(61, 2));
    for big in [false, true] {
        let file = Fixture::pcapng(big)
            .interface(1, 0, &[])
            .enhanced(0, 5, &a, 60)
            .enhanced_with(0, 6, &b, 61, &[(1, b"a comment")])
            .simple(&b, 61)
            .obsolete(0, 7, &b, 99);
        let packets = read_sound(&file.bytes);
        let data: Vec<_> = packets.iter().map(|(_, data)| data.clone()).collect();
        assert_eq!(data, [a.clone(), b.clone(), b.clone(), b.clone()]);
        assert_eq!(nanoseconds(&packets), [Some(5_000), Some(6_000), None, Some(7_000)]);
        assert!(packets[3].0.is_truncated() && !packets[2].0.is_truncated());
    }
}

#[test]
fn pcapng_interfaces_have_their_own_clocks() {
    let data = frame(60, 1);
    for big in [false, true] {
        let offset = |seconds: i64| {
            if big { seconds.to_be_bytes() } else { seconds.to_le_bytes() }
        };
        let file = Fixture::pcapng(big)
            .interface(1, 0, &[(2, b"first"), (9, &[9])])
            .interface(1, 0, &[(9, &[0x80 | 10]), (14, &offset(100))])
            .interface(1, 0, &[(14, &offset(-1))])
            .enhanced(1, 1024 + 512, &data, 60)
            .enhanced(0, 17, &data, 60)
            .enhanced(2, 3_000_000, &data, 60);
        let packets = read_sound(&file.bytes);
        assert_eq!(nanoseconds(&packets), [Some(101_500_000_000), Some(17), Some(2_000_000_000)]);
    }
}

#[test]
fn pcapng_check_sequence_is_taken_off_where_the_interface_declares_it() {
    let data = frame(64, 3);
    for bytes in [4, 32] {
        let file = Fixture::pcapng(false).interface(1, 0, &[(13, &[bytes])]).enhanced(0, 0, &data, 64);
        assert_eq!(read_sound(&file.bytes)[0].1, data[..60]);
    }
}

#[test]
fn pcapng_simple_packets_are_cut_at_the_snapshot_length() {
    let data = frame(60, 1);
    let file = Fixture::pcapng(false).interface(1, 40, &[]).simple(&data[..40], 60);
    let packets = read_sound(&file.bytes);
    assert_eq!(packets[0].1, data[..40]);
    assert!(packets[0].0.is_truncated());
}

#[test]
fn pcapng_a_section_begins_its_interfaces_anew_and_may_change_the_byte_order() {
    let data = frame(60, 1);
    let file = Fixture::pcapng(false)
        .interface(1, 0, &[(9, &[9])])
        .enhanced(0, 5, &data, 60)
        .section(true)
        .interface(1, 0, &[])
        .enhanced(0, 5, &data, 60);
    assert_eq!(nanoseconds(&read_sound(&file.bytes)), [Some(5), Some(5_000)]);
    let file = Fixture::pcapng(false).interface(1, 0, &[]).section(false).enhanced(0, 5, &data, 60);
    let (_, error) = read(&file.bytes);
    let error = error.unwrap();
    assert!(matches!(error.problem, Problem::UnknownInterface(0)), "{error}");
    assert_eq!(error.offset, 28 + 20 + 28);
}

#[test]
fn pcapng_unknown_blocks_are_passed_over_however_long() {
    let data = frame(60, 1);
    // Longer than the reader's buffer.
    let file = Fixture::pcapng(false)
        .block(0x0bad, &frame(2_000_000, 9), false)
        .interface(1, 0, &[])
        .block(0x8000_0001, &[], false)
        .enhanced(0, 5, &data, 60);
    assert_eq!(read_sound(&file.bytes)[0].1, data);
}

#[test]
fn a_packet_of_another_link_type_is_an_error_and_an_unused_interface_is_not() {
    let data = frame(60, 1);
    let error = read(&Fixture::pcap(true, 0xa1b2_c3d4, 113).bytes).1.unwrap();
    assert_eq!(
        error.to_string(),
        "test: at byte 0: has link type 113, not Ethernet (1); \
         capture on an Ethernet interface, not on \"any\" or a tunnel"
    );
    let file = Fixture::pcapng(false).interface(113, 0, &[]).interface(1, 0, &[]).enhanced(1, 0, &data, 60);
    assert_eq!(read_sound(&file.bytes).len(), 1);
    let (packets, error) = read(&file.enhanced(0, 0, &data, 60).bytes);
    assert_eq!(packets.len(), 1);
    let error = error.unwrap();
    let expected = Problem::NotEthernet { link_type: 113, interface: Some(0) };
    assert_eq!(error.problem.to_string(), expected.to_string());
    assert_eq!(error.offset, 28 + 20 + 20 + 92);
}

/// What a broken file must say: the text of the error and where.
#[track_caller]
fn assert_broken(file: &[u8], offset: u64, says: &str) {
    let error = read(file).1.expect("the file is broken");
    assert_eq!(error.offset, offset, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn files_that_are_no_captures_are_named() {
    assert_broken(b"", 0, "the file is empty");
    assert_broken(b"\xd4\xc3", 0, "ends inside the file header: 2 of 24 bytes");
    assert_broken(b"PK\x03\x04....", 0, "begins with 50 4b 03 04, which is neither pcap nor pcapng");
    assert_broken(b"\x1f\x8b\x08\x00....", 0, "with: gunzip");
    assert_broken(b"\x28\xb5\x2f\xfd....", 0, "with: unzstd");
    assert_broken(&Fixture::pcap(false, 0xa1b2_cd34, 1).bytes, 0, "editcap -F pcap");
    let mut old = Fixture::pcap_microseconds(false).bytes;
    old[6] = 3;
    assert_broken(&old, 0, "format version 2.3");
    let mut future = Fixture::pcapng(false).bytes;
    future[12] = 2;
    assert_broken(&future, 0, "format version 2.0");
}

#[test]
fn lengths_that_lie_are_named_with_their_offset() {
    let data = frame(60, 1);
    let mut absurd = Fixture::pcap_nanoseconds(false).record(0, 0, &data, 60);
    for word in [0, 0, 262_145, 262_145] {
        absurd.u32(word);
    }
    assert_broken(&absurd.bytes, 100, "claims to hold 262145 bytes");

    let file = Fixture::pcapng(false).interface(1, 0, &[]).enhanced(0, 0, &data, 60);
    let block = 28 + 20;
    let broken = |at: usize, value: u32| {
        let mut bytes = file.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    assert_broken(&broken(block + 4, 8), block as u64, "claims a length of 8 bytes and must have 32");
    assert_broken(&broken(block + 4, 90), block as u64, "must have a multiple of 4");
    assert_broken(&broken(block + 4, 88), block as u64, "88 bytes at its beginning and");
    assert_broken(&broken(block + 4, 96), block as u64, "92 of 96 bytes");
    assert_broken(&broken(block + 4, 0xffff_fffc), block as u64, "must have 32 to 524288");
    assert_broken(&broken(block + 88, 96), block as u64, "92 bytes at its beginning and 96 at its end");
    assert_broken(&broken(block + 20, 61), block as u64, "claims 61 bytes, and its block has room for 60");
    assert_broken(&broken(block + 8, 1), block as u64, "interface 1, which no block before describes");
    assert_broken(&broken(8, 7), 0, "byte-order magic is 07 00 00 00");
    assert_broken(&broken(28 + 4, 16), 28, "an interface description claims a length of 16");

    let unknown = Fixture::pcapng(false).block(99, &data, false);
    let mut bytes = unknown.bytes.clone();
    bytes[32..36].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
    assert_broken(&bytes, 28, "72 of 4294967280 bytes");
    let mut bytes = unknown.bytes.clone();
    bytes[96..100].copy_from_slice(&76u32.to_le_bytes());
    assert_broken(&bytes, 28, "72 bytes at its beginning and 76 at its end");
    let mut bytes = unknown.bytes.clone();
    bytes[24..28].copy_from_slice(&32u32.to_le_bytes());
    assert_broken(&bytes, 0, "28 bytes at its beginning and 32 at its end");
    let mut bytes = unknown.bytes;
    bytes[32..36].copy_from_slice(&4u32.to_le_bytes());
    assert_broken(&bytes, 28, "claims a length of 4 bytes and must have at least 12");

    // An option that reaches beyond its block, and a resolution of two bytes.
    let mut option = Fixture::pcapng(false).interface(1, 0, &[(9, &[9])]);
    option.bytes[28 + 18] = 5;
    assert_broken(&option.bytes, 28, "option 9 of an interface");
    let option = Fixture::pcapng(false).interface(1, 0, &[(9, &[9, 9])]);
    assert_broken(&option.bytes, 28, "option 9 of an interface");
}

#[test]
fn the_extension_chooses_the_format() {
    let format = |name| CaptureFormat::of_path(Path::new(name));
    assert_eq!(format("a/b.pcap"), Some(CaptureFormat::Pcap));
    assert_eq!(format("b.PcapNG"), Some(CaptureFormat::Pcapng));
    assert_eq!(format("b.cap"), None);
    assert_eq!(format("pcap"), None);
    let error = CaptureWriter::create(Path::new("b.cap")).err().unwrap();
    assert_eq!(error.to_string(), "b.cap: give the capture a name that ends in .pcap or .pcapng");
}

#[test]
fn a_time_past_2106_is_refused_by_pcap_and_kept_by_pcapng() {
    let late = Timestamp::from_nanoseconds((1 << 32) * 1_000_000_000);
    let last = Timestamp::from_nanoseconds(late.nanoseconds() - 1);
    for (format, expected) in [(CaptureFormat::Pcap, 1), (CaptureFormat::Pcapng, 2)] {
        let mut out = Vec::new();
        let mut writer = CaptureWriter::new(&mut out, format, "test");
        writer.write(last, &[1; 60]).unwrap();
        assert_eq!(writer.write(late, &[2; 60]).is_ok(), format == CaptureFormat::Pcapng);
        drop(writer);
        let packets = read_sound(&out);
        assert_eq!(packets.len(), expected);
        assert_eq!(packets[0].0.timestamp, Some(last));
    }
}

/// A disk with room for so many bytes.
struct Disk<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
}

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        // A few bytes at a time, so that writes are cut anywhere.
        let taken = bytes.len().min(self.room).min(1_000_003);
        self.bytes.extend(&bytes[..taken]);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_that_says_how_far_it_came() {
    let mut bytes = Vec::new();
    let disk = Disk { bytes: &mut bytes, room: 300_001 };
    let mut writer = CaptureWriter::new(disk, CaptureFormat::Pcap, "full.pcap");
    let mut accepted = 0;
    let error = loop {
        match writer.write(Timestamp::default(), &frame(9600, accepted as u8)) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.offset, 300_001);
    let text = error.to_string();
    assert!(text.starts_with("full.pcap: at byte 300001: cannot be written: No space left"), "{text}");
    assert!(writer.finish().is_err());
    drop(writer);
    // What came before the cut is sound.
    let (packets, error) = read(&bytes);
    assert_eq!(packets.len(), (300_001 - 24) / 9616);
    assert!(accepted > packets.len());
    for (number, (_, data)) in packets.iter().enumerate() {
        assert_eq!(*data, frame(9600, number as u8));
    }
    assert!(matches!(error.unwrap().problem, Problem::EndsInside { .. }));
}

#[test]
fn a_disk_that_has_room_again_gets_a_file_without_a_tear() {
    use std::cell::Cell;
    struct Sometimes<'a> {
        bytes: &'a mut Vec<u8>,
        room: &'a Cell<usize>,
    }
    impl Write for Sometimes<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room.get();
            Disk { bytes: self.bytes, room }.write(bytes).inspect(|taken| self.room.set(room - taken))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut bytes, room) = (Vec::new(), Cell::new(100_000));
    let mut accepted = Vec::new();
    let mut refused = 0;
    {
        let out = Sometimes { bytes: &mut bytes, room: &room };
        let mut writer = CaptureWriter::new(out, CaptureFormat::Pcapng, "test");
        for number in 0..100u8 {
            let data = frame(9000 + usize::from(number), number);
            match writer.write(Timestamp::default(), &data) {
                Ok(()) => accepted.push(data),
                Err(_) => {
                    refused += 1;
                    room.set(room.get() + 50_000);
                }
            }
        }
        room.set(usize::MAX);
        writer.finish().unwrap();
    }
    assert!(refused > 0);
    let read: Vec<_> = read_sound(&bytes).into_iter().map(|(_, data)| data).collect();
    assert_eq!(read, accepted);
}

#[test]
fn a_real_full_device_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        return skipped("there is no /dev/full here");
    };
    let mut writer = CaptureWriter::new(full, CaptureFormat::Pcapng, "/dev/full");
    writer.write(Timestamp::default(), &[0; 60]).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        rng_seed: RngSeed::Fixed(0x00c0_0041),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..80, 60usize..1600, 9000usize..=9700, 262_140usize..=262_144]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_the_writer_writes_the_reader_reads(
        packets in prop::collection::vec((length(), any::<u8>(), 0u64..(1 << 32) * 1_000_000_000), 0..20)
    ) {
        for format in [CaptureFormat::Pcap, CaptureFormat::Pcapng] {
            let mut out = Vec::new();
            let mut writer = CaptureWriter::new(&mut out, format, "test");
            for &(length, seed, time) in &packets {
                writer.write(Timestamp::from_nanoseconds(time), &frame(length, seed)).unwrap();
            }
            writer.finish().unwrap();
            drop(writer);
            let read = read_sound(&out);
            prop_assert_eq!(read.len(), packets.len());
            for ((record, data), &(length, seed, time)) in read.iter().zip(&packets) {
                prop_assert_eq!(record.timestamp, Some(Timestamp::from_nanoseconds(time)));
                prop_assert_eq!((record.captured as usize, record.wire as usize), (length, length));
                prop_assert!(*data == frame(length, seed));
            }
        }
    }

    #[test]
    fn every_layout_of_the_same_packets_reads_the_same(
        big in any::<bool>(),
        packets in prop::collection::vec((0usize..2000, any::<u8>(), 0u32..u32::MAX, 0u32..1_000_000), 0..20)
    ) {
        let mut micro = Fixture::pcap_microseconds(big);
        let mut nano = Fixture::pcap_nanoseconds(big);
        let mut blocks = Fixture::pcapng(big).interface(1, 0, &[]);
        let mut old = Fixture::pcapng(big).interface(1, 0, &[(9, &[9])]);
        for &(length, seed, seconds, microseconds) in &packets {
            let (data, wire) = (frame(length, seed), length as u32);
            let units = u64::from(seconds) * 1_000_000 + u64::from(microseconds);
            micro = micro.record(seconds, microseconds, &data, wire);
            nano = nano.record(seconds, microseconds * 1_000, &data, wire);
            blocks = blocks.enhanced(0, units, &data, wire);
            old = old.obsolete(0, units * 1_000, &data, wire);
        }
        let plain = |file: &Fixture| -> Vec<_> {
            read_sound(&file.bytes).into_iter().map(|(record, data)| (record.timestamp, data)).collect()
        };
        let expected: Vec<_> = packets.iter().map(|&(length, seed, seconds, microseconds)| {
            let time = u64::from(seconds) * 1_000_000_000 + u64::from(microseconds) * 1_000;
            (Some(Timestamp::from_nanoseconds(time)), frame(length, seed))
        }).collect();
        for file in [micro, nano, blocks, old] {
            prop_assert_eq!(&plain(&file), &expected);
        }
    }
}
