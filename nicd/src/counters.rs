//! What the software NIC counts.

/// What has passed through a software NIC since it was made, and what has not, by reason. Bytes are those of frames
/// without the frame check sequence. What the port itself skips and refuses is in the port's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames taken from the host and accepted by the port.
    pub transmitted_frames: u64,
    /// Bytes of these, with the padding.
    pub transmitted_bytes: u64,
    /// Frames among these that were shorter than 60 bytes and were padded with zeros.
    pub transmitted_padded: u64,
    /// Times that a frame had to wait because the port was full.
    pub port_full: u64,
    /// Frames of the host dropped because the port refused them.
    pub dropped_by_port: u64,
    /// Frames of the host dropped because the port failed.
    pub dropped_port_failed: u64,
    /// Frames delivered to the host.
    pub received_frames: u64,
    /// Bytes of these.
    pub received_bytes: u64,
    /// Times that a frame had to wait because its queue had no room or no buffer.
    pub host_full: u64,
    /// Frames dropped because their queue had had no room or no buffer for longer than the NIC waits.
    pub dropped_host_full: u64,
    /// Frames dropped by the interface: longer than 9600 bytes.
    pub dropped_by_interface: u64,
    /// What the host did that it should not have, refused by the interface.
    pub refused_from_host: u64,
}

impl Counters {
    /// Every counter with its name, for printing.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("transmitted_frames", self.transmitted_frames),
            ("transmitted_bytes", self.transmitted_bytes),
            ("transmitted_padded", self.transmitted_padded),
            ("port_full", self.port_full),
            ("dropped_by_port", self.dropped_by_port),
            ("dropped_port_failed", self.dropped_port_failed),
            ("received_frames", self.received_frames),
            ("received_bytes", self.received_bytes),
            ("host_full", self.host_full),
            ("dropped_host_full", self.dropped_host_full),
            ("dropped_by_interface", self.dropped_by_interface),
            ("refused_from_host", self.refused_from_host),
        ]
    }

    /// Frames that went in at one end and did not come out at the other, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_by_port + self.dropped_port_failed + self.dropped_host_full + self.dropped_by_interface
    }
}
