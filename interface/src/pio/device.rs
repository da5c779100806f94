//! What both kinds of device offer to the function that they serve, and what they refuse.

/// A device's half of an exchange: takes requests, and responds when it can.
pub trait Device {
    /// Looks for a request: one that is there now has so many bytes, and is to be read before it is responded to.
    fn poll(&mut self) -> Option<usize>;
    /// Reads the first bytes of the request, as many as there is room for, and says how many.
    fn read(&mut self, into: &mut [u8]) -> usize;
    /// Responds; false, and nothing has happened, if there is nothing to respond to or the CPU must first say that it tried
    /// again. A payload longer than the lines hold is cut off.
    fn respond(&mut self, response: &[u8]) -> bool;
    /// Whether a request was read and not responded to.
    fn is_working(&self) -> bool;
    /// Says that this round made no progress.
    fn spin(&self);
    /// What the CPU wrote that could not be.
    fn refusals(&self) -> Refusals;
}

/// Control words that were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Of another turn.
    pub turns: u64,
    /// No request, and nothing that belongs there.
    pub kinds: u64,
    /// Longer than the lines.
    pub lengths: u64,
}

impl Refusals {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.turns + self.kinds + self.lengths
    }
}
