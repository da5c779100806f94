//! What is fuzzed.

/// Something that takes any bytes.
pub trait Target {
    /// Takes an input, by itself: what it does with it does not depend on those before. Panics where something is wrong.
    fn run(&mut self, input: &[u8]);

    /// Looks at what is left behind when all inputs were taken, and says what was seen.
    fn end(&mut self) -> String;
}
