//! A limit on the lines that home agents know to be in private caches.

/// The snoop filter of a slice of a node's home agents, the same in each slice. A line is in the slice that serves it, in the set that the
/// lowest bits of its number say.
#[derive(Clone, Debug, PartialEq)]
pub struct SnoopFilterParameters {
    /// Sets of a slice.
    pub sets: u32,
    /// Lines that a set has entries for.
    pub ways: u32,
}

impl SnoopFilterParameters {
    /// Bytes of the lines that a slice has entries for.
    pub fn slice_bytes(&self) -> u64 {
        64 * u64::from(self.sets) * u64::from(self.ways)
    }
}
