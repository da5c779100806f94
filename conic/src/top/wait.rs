//! How long what comes waits until its network's thread looks at it.
//!
//! What is counted are looks by the time since the look before, in steps of powers of two. A frame that comes at any moment is as likely to
//! come between two looks as these are apart: so times are weighed by their own length, and a thread that looks a million times at nothing
//! and then does something else for a second has made nearly everybody wait for a second.

use serde::Serialize;

use super::sample::{Bucket, Looks};

/// Times between looks, in nanoseconds, that were not reached: in half of the time, in 99% of it, and ever.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wait {
    /// In half of the time.
    pub half_ns: f64,
    /// In 99% of it.
    pub most_ns: f64,
    /// Ever.
    pub longest_ns: f64,
}

impl Wait {
    /// What threads of a network did between two samples; nothing if they slept. Only those that are in the second count.
    pub fn between(before: &[Looks], now: &[Looks]) -> Option<Wait> {
        let gained = |thread: usize, Bucket { below_ps, looks }: Bucket| {
            let earlier = before.iter().find(|one| one.thread == thread);
            let was = earlier.and_then(|one| one.buckets.iter().find(|bucket| bucket.below_ps == below_ps));
            // Fewer than before: another has begun at zero.
            let gained = was.and_then(|was| looks.checked_sub(was.looks)).unwrap_or(looks);
            (below_ps, gained as f64 * below_ps as f64)
        };
        let buckets = now.iter().flat_map(|one| one.buckets.iter().map(|&bucket| gained(one.thread, bucket)));
        let mut weights: Vec<(u64, f64)> = buckets.filter(|(_, weight)| *weight > 0.0).collect();
        weights.sort_by_key(|(below, _)| *below);
        let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let reached = |part: f64| {
            let mut sum = 0.0;
            let found = weights.iter().find(|(_, weight)| {
                sum += weight;
                sum >= part * all
            });
            found.or(weights.last()).map(|(below, _)| *below as f64 / 1e3)
        };
        Some(Wait { half_ns: reached(0.5)?, most_ns: reached(0.99)?, longest_ns: weights.last()?.0 as f64 / 1e3 })
    }
}

/// A time in five places or fewer.
pub fn text(nanoseconds: f64) -> String {
    let (scaled, unit) = match nanoseconds {
        _ if nanoseconds >= 1e9 => (nanoseconds / 1e9, "s"),
        _ if nanoseconds >= 1e6 => (nanoseconds / 1e6, "ms"),
        _ if nanoseconds >= 1e3 => (nanoseconds / 1e3, "us"),
        _ => (nanoseconds, "ns"),
    };
    if scaled < 10.0 { format!("{scaled:.1}{unit}") } else { format!("{scaled:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(thread: usize, buckets: &[(u64, u64)]) -> Looks {
        let bucket = |&(below_ps, looks)| Bucket { below_ps, looks };
        Looks { thread, buckets: buckets.iter().map(bucket).collect() }
    }

    #[test]
    fn a_wait_counts_as_long_as_it_is() {
        let wait = |buckets: &[(u64, u64)]| Wait::between(&[], &[looks(0, buckets)]).expect("it was awake");
        let told = |half_ns, most_ns, longest_ns| Wait { half_ns, most_ns, longest_ns };
        assert_eq!(wait(&[(1000, 7)]), told(1.0, 1.0, 1.0));
        // A thousand short ones are as much time as a long one.
        assert_eq!(wait(&[(1000, 1001), (1_000_000, 1)]), told(1.0, 1000.0, 1000.0));
        assert_eq!(wait(&[(1000, 999), (1_000_000, 1)]), told(1000.0, 1000.0, 1000.0));
        assert_eq!(wait(&[(1000, 99), (2000, 1), (4000, 0)]), told(1.0, 2.0, 2.0));
        assert_eq!(wait(&[(1000, 399), (2000, 1)]), told(1.0, 1.0, 2.0));
    }

    #[test]
    fn what_was_before_is_not_counted_again_and_threads_are_told_apart() {
        let before = [looks(0, &[(1000, 50), (8000, 9)]), looks(1, &[(4000, 10)])];
        let now = [looks(0, &[(1000, 60), (8000, 9)]), looks(1, &[(4000, 10), (16_000, 1)])];
        let told = |ns| Some(Wait { half_ns: ns, most_ns: ns, longest_ns: ns });
        assert_eq!(Wait::between(&before, &now[..1]), told(1.0));
        assert_eq!(Wait::between(&before, &now[1..]), told(16.0));
        assert_eq!(Wait::between(&before, &before), None, "they slept");
        // One that was started anew has fewer.
        assert_eq!(Wait::between(&now, &[looks(0, &[(1000, 3)])]), told(1.0));
    }

    #[test]
    fn times_are_short() {
        let shown: Vec<String> = [0.5, 65.536, 1048.576, 67_108.9, 1.05e6, 2.7e8, 1.1e9].map(text).into();
        assert_eq!(shown, ["0.5ns", "66ns", "1.0us", "67us", "1.1ms", "270ms", "1.1s"]);
    }
}
