//! The cycle clock, converted to picoseconds in one place.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use conic_fabric::Time;

/// How long the time-stamp counter is compared with the system's clock, once a process.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Readings of which the tightest is taken at either end.
const READINGS: usize = 50;

/// The counter when the process first asked.
static START: AtomicU64 = AtomicU64::new(0);
/// Picoseconds a tick, times 2^32; zero until it is known.
static PICOSECONDS_FIXED: AtomicU64 = AtomicU64::new(0);
/// Whether some thread compares the clocks, or has.
static CLAIMED: AtomicBool = AtomicBool::new(false);

/// The time since the process first asked, from the time-stamp counter (constant rate, synchronised between cores on
/// every x86-64 machine that says `constant_tsc` and `nonstop_tsc`).
#[inline(always)]
pub fn now() -> Time {
    let fixed = picoseconds_fixed();
    // Relaxed: written before the release that `picoseconds_fixed` acquired, and never again.
    Time::from_ticks(ticks().wrapping_sub(START.load(Ordering::Relaxed)), fixed)
}

/// The date of [`Time::ZERO`], in nanoseconds since 1970 (UTC), by the system's clock as it stands now: for what is written into
/// captures and logs.
pub fn epoch_nanoseconds() -> u64 {
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(date.as_nanos()).unwrap_or(u64::MAX).saturating_sub(now().nanoseconds())
}

#[inline(always)]
fn picoseconds_fixed() -> u64 {
    // Acquire: pairs with the release in `calibrate`, so that START is there too.
    match PICOSECONDS_FIXED.load(Ordering::Acquire) {
        0 => calibrate(),
        fixed => fixed,
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: reading the time-stamp counter touches no memory; user code may on every system that runs Linux.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Compares the clocks, or waits for the thread that does.
#[cold]
fn calibrate() -> u64 {
    // Relaxed: it decides who, and orders nothing.
    if CLAIMED.swap(true, Ordering::Relaxed) {
        loop {
            // Acquire: as in `picoseconds_fixed`.
            match PICOSECONDS_FIXED.load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                fixed => return fixed,
            }
        }
    }
    let (start, begun) = simultaneous();
    while begun.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (end, ended) = simultaneous();
    let picoseconds = ended.duration_since(begun).as_nanos() * 1_000;
    let fixed = ((picoseconds << 32) / u128::from(end - start)) as u64;
    // Relaxed: the release below shows it.
    START.store(start, Ordering::Relaxed);
    // Release: whoever acquires the scale sees START.
    PICOSECONDS_FIXED.store(fixed, Ordering::Release);
    fixed
}

/// The counter and the system's clock at one moment: of many readings the one that took the shortest time, because a
/// thread may be preempted within a reading, and 5 ms there would falsify every figure of the process.
fn simultaneous() -> (u64, Instant) {
    let reading = || {
        let before = ticks();
        let clock = Instant::now();
        let after = ticks();
        (after - before, before + (after - before) / 2, clock)
    };
    let (_, counter, clock) =
        (0..READINGS).map(|_| reading()).min_by_key(|&(span, ..)| span).expect("there are readings");
    (counter, clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_keeps_pace_with_the_system_clock() {
        let (start, clock) = (now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (span, expected) = (now().since(start).seconds(), clock.elapsed().as_secs_f64());
        assert!((span / expected - 1.0).abs() < 0.02, "{span} s by the counter, {expected} s by the system");
    }
}
