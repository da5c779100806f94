//! What a card counts of the other side, beside packets that pass.

/// What other sides have done, since the port was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub(super) sessions: u64,
    pub(super) ended: u64,
    pub(super) refused: u64,
    pub(super) timed_out: u64,
    pub(super) shut: u64,
    /// Requests that could not be done, and were answered so.
    pub(super) failed: u64,
    pub(super) faults: [u64; 5],
    pub(super) interrupts: u64,
    /// Packets out of rings that the driver had switched off.
    pub(super) discarded: u64,
}

impl Counts {
    /// Every count with its name.
    pub(super) fn named(&self) -> Vec<(&'static str, u64)> {
        let [index, flags, number, bounds, chain] = self.faults;
        vec![
            ("sessions", self.sessions),
            ("sessions_ended", self.ended),
            ("peers_refused", self.refused),
            ("handshakes_timed_out", self.timed_out),
            ("requests_failed", self.failed),
            ("times_shut", self.shut),
            ("fault_index", index),
            ("fault_flags", flags),
            ("fault_number", number),
            ("fault_bounds", bounds),
            ("fault_chain", chain),
            ("interrupts_sent", self.interrupts),
            ("packets_discarded", self.discarded),
        ]
    }
}
