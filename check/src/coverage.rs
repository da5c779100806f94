//! What an input reaches: the counters that the compiler puts at every branch where it is asked to.
//!
//! A program that was built with `-C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3
//! -C llvm-args=-sanitizer-coverage-inline-8bit-counters` tells where its counters lie before it begins. In any other there are none, and
//! nothing is learned. Both are options of every toolchain, and no crate is needed.

use std::sync::{Mutex, PoisonError};

/// Where the counters of each part of the program begin and end.
static PARTS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// What the compiler has each part of a program call before it begins.
// SAFETY: nobody else has this name; where a sanitizer's runtime has it too, its own gives way, and does nothing.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let part = (start as usize, end as usize);
    // Each of its files calls, and all say the same.
    if !parts.contains(&part) {
        parts.push(part);
    }
}

/// What was reached so far.
#[derive(Debug)]
pub(crate) struct Coverage {
    parts: Vec<(usize, usize)>,
    /// For each counter, the classes of counts that were seen, a bit each.
    seen: Vec<u8>,
}

impl Coverage {
    /// Nothing, but what was passed on the way here.
    pub fn new() -> Coverage {
        let parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counters = parts.iter().map(|(start, end)| end - start).sum();
        let mut coverage = Coverage { parts, seen: vec![0; counters] };
        coverage.learn();
        coverage.seen.fill(0);
        coverage
    }

    /// Whether there are counters at all.
    pub fn is_counted(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Whether something was passed since it was asked last that never was before, or by far more often. Sets all counters to zero.
    pub fn learn(&mut self) -> bool {
        let mut seen = &mut self.seen[..];
        let mut is_new = false;
        for &(start, end) in &self.parts {
            // SAFETY: the counters are bytes of this program, for as long as it runs. Another thread may count meanwhile: such a count may
            // be lost, as it may be to a third thread, and nothing but which inputs are kept depends on it.
            let counters = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, end - start) };
            let (here, rest) = seen.split_at_mut(counters.len());
            for (counts, seen) in counters.chunks_mut(64).zip(here.chunks_mut(64)) {
                // Most are zero.
                if counts.iter().fold(0, |any, count| any | count) == 0 {
                    continue;
                }
                for (count, seen) in counts.iter_mut().zip(seen) {
                    let class = class(std::mem::take(count));
                    is_new |= class & !*seen != 0;
                    *seen |= class;
                }
            }
            seen = rest;
        }
        is_new
    }

    /// How many branches were passed.
    pub fn reached(&self) -> usize {
        self.seen.iter().filter(|&&seen| seen != 0).count()
    }
}

/// A bit for counts that are as good as the same.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128.. => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_for_the_first_time_or_far_more_often_is_new() {
        let mut counters = [0u8; 100];
        let start = counters.as_mut_ptr();
        __sanitizer_cov_8bit_counters_init(start, start.wrapping_add(counters.len()));
        let mut coverage = Coverage::new();
        assert!(coverage.is_counted());
        // Through the pointer that the program gave, as the compiler's instructions do.
        let mut learn = |at: usize, count: u8| {
            // SAFETY: the array lives until the end of this test, and is touched by nobody else meanwhile.
            unsafe { start.wrapping_add(at).write(count) };
            coverage.learn()
        };
        assert_eq!(
            [learn(70, 1), learn(70, 1), learn(70, 5), learn(70, 7), learn(3, 0), learn(99, 200)],
            [true, false, true, false, false, true]
        );
        assert_eq!(coverage.reached(), 2);
        PARTS.lock().expect("nobody panicked").retain(|&(first, _)| first != start as usize);
    }
}
