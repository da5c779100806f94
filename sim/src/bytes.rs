//! Bytes of lines: which of a line's bytes an access touches, and how they are put into it.

use conic_fabric::{LINE_BYTES, Line};

/// All bytes of a line, a bit each.
pub const WHOLE: u64 = u64::MAX;

/// The bits of `count` bytes of a line, from byte `first` on.
pub(crate) fn line_bytes(first: u64, count: u64) -> u64 {
    (WHOLE >> (LINE_BYTES - count)) << first
}

/// A line's part of a span of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The line.
    pub(crate) line: u32,
    /// Its bytes that belong to the span, a bit each.
    pub(crate) bytes: u64,
    /// Where they begin in the line.
    first: usize,
    /// Where they begin in the span.
    from: usize,
    /// How many they are.
    count: usize,
}

impl Part {
    /// A line that has the span's bytes where they belong, and zeroes around them.
    pub(crate) fn line_of(&self, span: &[u8]) -> Line {
        let mut bytes = [0; LINE_BYTES as usize];
        bytes[self.first..self.first + self.count].copy_from_slice(&span[self.from..self.from + self.count]);
        Line::from_bytes(&bytes)
    }

    /// Takes the part's bytes out of its line into the span.
    pub(crate) fn read(&self, line: &Line, span: &mut [u8]) {
        let bytes = &line.to_bytes()[self.first..self.first + self.count];
        span[self.from..self.from + self.count].copy_from_slice(bytes);
    }
}

/// The parts of a span of `length` bytes from `at` on, line by line.
pub(crate) fn parts(at: u64, length: u64) -> impl Iterator<Item = Part> {
    let end = at + length;
    (at / LINE_BYTES..end.div_ceil(LINE_BYTES)).map(move |line| {
        let start = at.max(line * LINE_BYTES);
        let count = end.min((line + 1) * LINE_BYTES) - start;
        let first = start % LINE_BYTES;
        Part {
            line: line as u32,
            bytes: line_bytes(first, count),
            first: first as usize,
            from: (start - at) as usize,
            count: count as usize,
        }
    })
}

/// Writes the bytes of `data` that `bytes` names.
pub(crate) fn merge(line: &mut Line, bytes: u64, data: &Line) {
    if bytes == WHOLE {
        *line = *data;
        return;
    }
    for (word, (old, new)) in line.0.iter_mut().zip(data.0).enumerate() {
        let byte_mask = (bytes >> (8 * word)) as u8;
        let mask = match byte_mask {
            0 => continue,
            0xff => u64::MAX,
            some => (0..8).filter(|byte| some >> byte & 1 == 1).fold(0, |mask, byte| mask | 0xff << (8 * byte)),
        };
        *old = *old & !mask | new & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_cut_at_lines_and_put_together_again() {
        let span: Vec<u8> = (1..=200).collect();
        let cut: Vec<Part> = parts(60, 200).collect();
        let lines: Vec<(u32, u32)> = cut.iter().map(|part| (part.line, part.bytes.count_ones())).collect();
        assert_eq!(lines, [(0, 4), (1, 64), (2, 64), (3, 64), (4, 4)]);
        let mut again = vec![0; 200];
        for part in &cut {
            part.read(&part.line_of(&span), &mut again);
        }
        assert_eq!(again, span);
        assert_eq!((cut[0].bytes, cut[4].bytes, cut[1].bytes), (0xf << 60, 0xf, WHOLE));
        assert_eq!(parts(64, 0).count(), 0);
    }

    #[test]
    fn only_the_bytes_that_are_named_are_written() {
        let (mut line, data) = (Line([0x1111_1111_1111_1111; 8]), Line([0x2222_2222_2222_2222; 8]));
        merge(&mut line, line_bytes(6, 11), &data);
        assert_eq!(line.0[..3], [0x2222_1111_1111_1111, 0x2222_2222_2222_2222, 0x1111_1111_1111_1122]);
        assert_eq!(line.0[3..], [0x1111_1111_1111_1111; 5]);
        merge(&mut line, WHOLE, &data);
        assert_eq!(line, data);
    }
}
