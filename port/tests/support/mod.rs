//! Capture files built field by field from the format descriptions, independently of the code under test.
#![allow(dead_code, reason = "the program with DPDK uses a part of this")]

pub mod machine;
pub mod network;
pub mod testpmd;

use std::io::Cursor;

use conic_port::{CaptureError, CaptureReader, Record};

/// A file under construction. `ends` are the offsets at which a reader may cleanly stop: behind the file header or the
/// first section header, and behind every record or block.
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
    /// The ends that are ends of packets.
    pub packet_ends: Vec<usize>,
    big: bool,
}

impl Fixture {
    pub fn u16(&mut self, value: u16) {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    pub fn u32(&mut self, value: u32) {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    fn padded(&mut self, data: &[u8]) {
        self.bytes.extend(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(&mut self, packet: bool) {
        self.ends.push(self.bytes.len());
        if packet {
            self.packet_ends.push(self.bytes.len());
        }
    }

    pub fn pcap(big: bool, magic: u32, network: u32) -> Fixture {
        let mut file = Fixture { big, ..Fixture::default() };
        file.u32(magic);
        file.u16(2);
        file.u16(4);
        for word in [0, 0, 65_535, network] {
            file.u32(word);
        }
        file.end(false);
        file
    }

    pub fn pcap_microseconds(big: bool) -> Fixture {
        Fixture::pcap(big, 0xa1b2_c3d4, 1)
    }

    pub fn pcap_nanoseconds(big: bool) -> Fixture {
        Fixture::pcap(big, 0xa1b2_3c4d, 1)
    }

    pub fn record(mut self, seconds: u32, fraction: u32, data: &[u8], wire: u32) -> Fixture {
        for word in [seconds, fraction, data.len() as u32, wire] {
            self.u32(word);
        }
        self.bytes.extend(data);
        self.end(true);
        self
    }

    pub fn pcapng(big: bool) -> Fixture {
        Fixture::default().section(big)
    }

    pub fn section(mut self, big: bool) -> Fixture {
        self.big = big;
        let mut body = Fixture { big, ..Fixture::default() };
        body.u32(0x1a2b_3c4d);
        body.u16(1);
        body.u16(0);
        body.u32(u32::MAX);
        body.u32(u32::MAX);
        self.block(0x0a0d_0d0a, &body.bytes, false)
    }

    pub fn block(mut self, kind: u32, body: &[u8], packet: bool) -> Fixture {
        let length = 12 + body.len().next_multiple_of(4) as u32;
        self.u32(kind);
        self.u32(length);
        self.padded(body);
        self.u32(length);
        self.end(packet);
        self
    }

    /// An interface with options of (code, value).
    pub fn interface(self, link_type: u16, snapshot: u32, options: &[(u16, &[u8])]) -> Fixture {
        let mut body = Fixture { big: self.big, ..Fixture::default() };
        body.u16(link_type);
        body.u16(0);
        body.u32(snapshot);
        body.options(options);
        self.block(1, &body.bytes, false)
    }

    fn options(&mut self, options: &[(u16, &[u8])]) {
        for (code, value) in options {
            self.u16(*code);
            self.u16(value.len() as u16);
            self.padded(value);
        }
        if !options.is_empty() {
            self.u32(0);
        }
    }

    pub fn enhanced(self, interface: u32, units: u64, data: &[u8], wire: u32) -> Fixture {
        self.enhanced_with(interface, units, data, wire, &[])
    }

    pub fn enhanced_with(
        self,
        interface: u32,
        units: u64,
        data: &[u8],
        wire: u32,
        options: &[(u16, &[u8])],
    ) -> Fixture {
        let mut body = Fixture { big: self.big, ..Fixture::default() };
        let (high, low) = ((units >> 32) as u32, units as u32);
        for word in [interface, high, low, data.len() as u32, wire] {
            body.u32(word);
        }
        body.padded(data);
        body.options(options);
        self.block(6, &body.bytes, true)
    }

    pub fn simple(self, data: &[u8], wire: u32) -> Fixture {
        let mut body = Fixture { big: self.big, ..Fixture::default() };
        body.u32(wire);
        body.padded(data);
        self.block(3, &body.bytes, true)
    }

    pub fn obsolete(self, interface: u16, units: u64, data: &[u8], wire: u32) -> Fixture {
        let mut body = Fixture { big: self.big, ..Fixture::default() };
        body.u16(interface);
        body.u16(0xffff);
        for word in [(units >> 32) as u32, units as u32, data.len() as u32, wire] {
            body.u32(word);
        }
        body.padded(data);
        self.block(2, &body.bytes, true)
    }

    /// The offset at which the record or block begins that holds byte `offset` (or would, if the file went on).
    pub fn start_of(&self, offset: usize) -> usize {
        self.ends.iter().copied().filter(|&end| end <= offset).max().unwrap_or(0)
    }
}

/// A frame of `length` bytes, each frame different.
pub fn frame(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// One of each way in which a file can be laid out, all small.
pub fn small_files() -> Vec<(&'static str, Fixture)> {
    let (a, b) = (frame(60, 1), frame(62, 2));
    let mut files = Vec::new();
    for big in [false, true] {
        files.push(("pcap, microseconds", Fixture::pcap_microseconds(big).record(1, 2, &a, 60).record(1, 3, &b, 62)));
        files.push((
            "pcap, nanoseconds",
            Fixture::pcap_nanoseconds(big).record(1, 2, &a, 60).record(1, 3, &b[..20], 62),
        ));
        files.push((
            "pcapng",
            Fixture::pcapng(big)
                .interface(1, 0, &[(2, b"eth0"), (9, &[9]), (14, &[0; 8])])
                .block(4, &[1, 2, 3, 4, 5], false)
                .interface(1, 30, &[(9, &[0x80 | 20])])
                .enhanced(0, 5, &a, 60)
                .enhanced_with(1, 6, &b, 62, &[(1, b"a comment"), (2, &[0; 4])])
                .simple(&a, 60)
                .obsolete(1, 7, &b, 62)
                .section(!big)
                .interface(1, 40, &[])
                .simple(&a[..40], 60),
        ));
    }
    files
}

/// What a reader makes of a file: the packets, and the error that ended it.
pub fn read(bytes: &[u8]) -> (Vec<(Record, Vec<u8>)>, Option<CaptureError>) {
    let mut packets = Vec::new();
    let mut reader = match CaptureReader::new(Cursor::new(bytes), "test") {
        Ok(reader) => reader,
        Err(error) => return (packets, Some(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => packets.push((record, reader.data().to_vec())),
            Ok(None) => return (packets, None),
            Err(error) => return (packets, Some(error)),
        }
    }
}

/// The packets of a file that must be sound.
pub fn read_sound(bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let (packets, error) = read(bytes);
    assert!(error.is_none(), "{}", error.unwrap());
    packets
}
