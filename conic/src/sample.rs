//! A capture to try things with.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conic_port::{CaptureError, CaptureFormat, CaptureWriter, MAX_FRAME, MIN_FRAME, Timestamp};
use conic_sim::draws::Draws;
use serde_json::json;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr,
    UdpPacket, UdpRepr,
};

use crate::value::grouped;

/// Frames of a sample that nobody gave a number for.
pub const FRAMES: u64 = 20_000;

/// The seed of a sample that nobody gave one for.
pub const SEED: u64 = 1;

/// Bytes before the payload: Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;

/// 2024-01-01 00:00 UTC.
const BEGIN_NANOSECONDS: u64 = 1_704_067_200_000_000_000;

/// Write a small capture: UDP of eight flows, frames of 60 to 9600 bytes, most of them small.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The file to write: .pcap or .pcapng
    file: PathBuf,
    /// How many frames
    #[arg(long, default_value_t = FRAMES, value_name = "N")]
    frames: u64,
    /// Another seed gives other sizes and payloads
    #[arg(long, default_value_t = SEED, value_name = "N")]
    seed: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  conic sample sample.pcapng                         20,000 frames
  conic sample small.pcap --frames 100 --seed 2      fewer, and others
  conic replay sample.pcapng                         what it is for";

/// Writes the sample.
///
/// # Errors
///
/// The file cannot be written.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    write(CaptureWriter::create(&options.file)?, options.frames, options.seed)?;
    if options.json {
        let Options { file, frames, seed, .. } = options;
        let (file, bytes) = (file.display().to_string(), [MIN_FRAME, MAX_FRAME]);
        println!(
            "{}",
            json!({ "schema": "conic.sample/1", "file": file, "frames": frames, "seed": seed, "frame_bytes": bytes })
        );
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}: {} frames of {MIN_FRAME} to {MAX_FRAME} bytes", options.file.display(), grouped(options.frames));
    println!("try: conic replay {}", options.file.display());
    Ok(ExitCode::SUCCESS)
}

/// A sample as the bytes of a capture file.
pub fn in_memory(frames: u64, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let writer = CaptureWriter::new(&mut bytes, CaptureFormat::Pcapng, Path::new("sample"));
    write(writer, frames, seed).expect("memory takes what is written to it");
    bytes
}

// The simulator's draws, of a published generator: a seed gives the same file with every version of this program.
fn write<W: Write>(mut writer: CaptureWriter<W>, frames: u64, seed: u64) -> Result<(), CaptureError> {
    let mut random = Draws::new(seed);
    let mut frame = vec![0; MAX_FRAME];
    let mut nanoseconds = BEGIN_NANOSECONDS;
    for index in 0..frames {
        let length = size(index, &mut random);
        build(&mut frame[..length], &mut random);
        writer.write(Timestamp::from_nanoseconds(nanoseconds), &frame[..length])?;
        nanoseconds += 1 + random.below(20_000);
    }
    writer.finish()
}

/// The smallest and the largest frame, and the sizes at which buffers and lines end; then a mix as on the Internet with
/// some jumbo frames in it.
fn size(index: u64, random: &mut Draws) -> usize {
    const EDGES: [usize; 12] = [MIN_FRAME, 63, 64, 65, 104, 105, 128, 129, 1514, 4096, 4097, MAX_FRAME];
    if let Some(&edge) = EDGES.get(index as usize) {
        return edge;
    }
    match random.below(100) {
        0..55 => 60 + random.below(8) as usize,
        55..75 => 590,
        75..90 => 1514,
        90..98 => MIN_FRAME + random.below(1514 - MIN_FRAME as u64 + 1) as usize,
        _ => 1515 + random.below(MAX_FRAME as u64 - 1514) as usize,
    }
}

/// A UDP packet of one of eight flows, with right checksums.
fn build(frame: &mut [u8], random: &mut Draws) {
    let flow = random.below(8) as u8;
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress([0x02, 0, 0, 0, 0, flow]),
        dst_addr: EthernetAddress([0x02, 0, 0, 0, 1, 0]),
        ethertype: EthernetProtocol::Ipv4,
    };
    let (source, destination) = (Ipv4Address::new(10, 9, 0, 10 + flow), Ipv4Address::new(10, 9, 0, 2));
    let payload_len = frame.len() - HEADERS;
    let udp = UdpRepr { src_port: 40_000 + u16::from(flow), dst_port: 7 };
    let ip = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + payload_len,
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let mut packet = EthernetFrame::new_unchecked(frame);
    ethernet.emit(&mut packet);
    let mut packet = Ipv4Packet::new_unchecked(packet.payload_mut());
    ip.emit(&mut packet, &checksums);
    let fill = |payload: &mut [u8]| {
        payload.chunks_mut(8).for_each(|to| to.copy_from_slice(&random.number().to_le_bytes()[..to.len()]))
    };
    udp.emit(
        &mut UdpPacket::new_unchecked(packet.payload_mut()),
        &source.into(),
        &destination.into(),
        payload_len,
        fill,
        &checksums,
    );
}
