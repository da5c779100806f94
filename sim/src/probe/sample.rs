//! A recording that the tests of this folder share.

use super::*;
use conic_fabric::Time;

/// A time in nanoseconds.
pub(super) fn nanoseconds(nanoseconds: u64) -> Time {
    Time::from_nanoseconds(nanoseconds)
}

/// A message; times in nanoseconds.
fn message(name: &'static str, line: u64, hop: (u16, u16), times: (u64, u64), cause: Option<u32>) -> MessageRecord {
    MessageRecord {
        name,
        line,
        from: PlaceName(hop.0),
        to: PlaceName(hop.1),
        sent: nanoseconds(times.0),
        arrives: nanoseconds(times.1),
        cause: cause.map(Cause),
        asks: name == "Read",
    }
}

/// A load on the host of a line that the NIC has modified, with a prefetch of another line meanwhile, an eviction that
/// the fill causes, and an access of another packet.
pub(super) fn loopback() -> Recording {
    let messages = vec![
        message("Read", 8, (0, 1), (100, 120), None),
        message("Snoop", 8, (1, 3), (130, 180), Some(0)),
        message("Prefetch", 9, (0, 1), (140, 160), None),
        message("Data", 8, (3, 0), (190, 260), Some(1)),
        message("PrefetchData", 9, (1, 0), (190, 230), Some(2)),
        message("Read", 20, (0, 1), (600, 620), None),
        message("WriteBack", 3, (0, 1), (900, 920), Some(3)),
        message("Done", 8, (3, 1), (910, 960), Some(1)),
    ];
    let span = |name, place, line, times: (u64, u64), first| SpanRecord {
        name,
        place: PlaceName(place),
        line,
        begins: nanoseconds(times.0),
        ends: nanoseconds(times.1),
        first,
    };
    let owner = |line, place, state, at| OwnershipRecord { line, place: PlaceName(place), state, at: nanoseconds(at) };
    let level = |inside, at| LevelRecord { queue: QueueName(0), inside, at: nanoseconds(at) };
    Recording {
        places: ["host core 0", "host home", "NIC home", "NIC core 0"].map(str::to_string).to_vec(),
        segments: vec![(4, "tx ring".to_string()), (16, "payload".to_string())],
        messages,
        spans: vec![
            span("load", 0, Some(8), (99, 261), Some(Cause(0))),
            span("load", 0, Some(20), (600, 700), Some(Cause(5))),
            span("burst", 0, None, (90, 270), None),
        ],
        ownership: vec![
            owner(8, 0, 'S', 10),
            owner(8, 0, 'I', 20),
            owner(8, 3, 'M', 20),
            owner(3, 0, 'M', 30),
            owner(8, 3, 'I', 180),
            owner(20, 0, 'E', 200),
            owner(8, 0, 'M', 260),
            owner(3, 0, 'I', 900),
            owner(8, 0, 'I', 2_000),
        ],
        queues: vec!["host to NIC credits".to_string()],
        levels: vec![level(1, 130), level(0, 180)],
        dropped: 0,
    }
}
