//! Mistakes that tests plant, to see that they would be found.

/// A mistake that is easily made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An operator keeps the capability that each begins with.
    KeepsCapability,
    /// Nobody wakes the operator when the device is done.
    NoWaking,
    /// Records are consumed when they are taken, with nothing held in their place.
    ConsumesEarly,
    /// A message is counted as one record.
    CountsMessages,
    /// One record too many is stated to be produced.
    ProducesMore,
    /// A batch of which nothing is left is forgotten.
    ForgetsEmpty,
    /// A response is taken for the oldest call's.
    TakesOldest,
    /// The last part of a batch that was split is lost.
    LosesRest,
    /// The device is not told that nothing more comes.
    NoClosing,
    /// The device is told more progress than there is.
    TellsMore,
    /// A time of which the device keeps something is not held.
    HoldsNothing,
}

/// What was planted: nothing outside tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planted {
    #[cfg(test)]
    pub mistake: Option<Mistake>,
}

impl Planted {
    /// Whether this mistake was planted.
    #[inline(always)]
    pub fn is(self, mistake: Mistake) -> bool {
        #[cfg(test)]
        return self.mistake == Some(mistake);
        #[cfg(not(test))]
        {
            let _ = mistake;
            false
        }
    }
}
