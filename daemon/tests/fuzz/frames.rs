//! Frames, given to everything that reads what stands in them.

use crate::reading::{Readers, check_cut, check_tag, check_virtio};
use crate::target::Target;

#[derive(Default)]
pub struct Frames {
    readers: Readers,
    bytes: u64,
}

impl Target for Frames {
    fn run(&mut self, input: &[u8]) {
        self.readers.clear();
        // The second finds the first before it.
        (0..2).for_each(|_| self.readers.read(input));
        check_cut(input);
        check_tag(input);
        check_virtio(input);
        self.bytes += input.len() as u64;
    }

    fn end(&mut self) -> String {
        format!("{} bytes", self.bytes)
    }
}
