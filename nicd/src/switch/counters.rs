//! What a switch counts.

use std::ops::AddAssign;

/// What passed between a client and the switch, and what did not, by reason. Sent and received are the client's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Frames that the client sent.
    pub sent_frames: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames delivered to it.
    pub received_frames: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Frames that came to it joined to the one before; these are not among `received_frames`.
    pub joined_frames: u64,
    /// Frames that it sent shorter than an Ethernet header, or longer than 9600 bytes.
    pub dropped_length: u64,
    /// Frames that it sent from an address that is not its own.
    pub dropped_spoofed: u64,
    /// Frames that it sent with a VLAN tag that it may not use.
    pub dropped_vlan: u64,
    /// Frames that it sent to itself, or back to where they would have come from.
    pub dropped_no_way: u64,
    /// Frames of which it asked what cannot be done: they are not what their metadata says.
    pub dropped_offload: u64,
    /// Frames for it that found its receive ring full.
    pub dropped_full: u64,
    /// Frames for it that found no free buffer.
    pub dropped_no_buffer: u64,
}

impl MemberCounters {
    /// Every counter with its name.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("sent_frames", self.sent_frames),
            ("sent_bytes", self.sent_bytes),
            ("received_frames", self.received_frames),
            ("received_bytes", self.received_bytes),
            ("joined_frames", self.joined_frames),
            ("dropped_length", self.dropped_length),
            ("dropped_spoofed", self.dropped_spoofed),
            ("dropped_vlan", self.dropped_vlan),
            ("dropped_no_way", self.dropped_no_way),
            ("dropped_offload", self.dropped_offload),
            ("dropped_full", self.dropped_full),
            ("dropped_no_buffer", self.dropped_no_buffer),
        ]
    }
}

/// What a switch counts of a port, beside what the port counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Frames that found it full.
    pub dropped_full: u64,
    /// Frames that it refused.
    pub dropped_refused: u64,
    /// Frames that it failed to send.
    pub dropped_failed: u64,
    /// Frames that it gave and that have nowhere to go.
    pub dropped_no_way: u64,
    /// Frames that it gave with a VLAN tag that it may not use.
    pub dropped_vlan: u64,
    /// Packets that it gave unfinished and that are not what it says.
    pub dropped_offload: u64,
}

impl PortCounters {
    /// Every counter with its name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("dropped_full", self.dropped_full),
            ("dropped_refused", self.dropped_refused),
            ("dropped_failed", self.dropped_failed),
            ("dropped_no_way", self.dropped_no_way),
            ("dropped_vlan", self.dropped_vlan),
            ("dropped_offload", self.dropped_offload),
        ]
    }
}

impl AddAssign for PortCounters {
    fn add_assign(&mut self, other: PortCounters) {
        let PortCounters {
            dropped_full,
            dropped_refused,
            dropped_failed,
            dropped_no_way,
            dropped_vlan,
            dropped_offload,
        } = other;
        self.dropped_full += dropped_full;
        self.dropped_refused += dropped_refused;
        self.dropped_failed += dropped_failed;
        self.dropped_no_way += dropped_no_way;
        self.dropped_vlan += dropped_vlan;
        self.dropped_offload += dropped_offload;
    }
}

/// What a thread of a network counts of its way to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrunkCounters {
    /// Frames that went to the other.
    pub sent_frames: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Frames that came from it.
    pub received_frames: u64,
    /// Frames for it that found the way full.
    pub dropped_full: u64,
    /// Frames that came from it for somebody who is not here, or not any more.
    pub dropped_no_way: u64,
    /// Looks at a port that took nothing from it, because the way was nearly full.
    pub held: u64,
}

impl TrunkCounters {
    /// Every counter with its name.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("sent_frames", self.sent_frames),
            ("sent_bytes", self.sent_bytes),
            ("received_frames", self.received_frames),
            ("dropped_full", self.dropped_full),
            ("dropped_no_way", self.dropped_no_way),
            ("held", self.held),
        ]
    }
}
