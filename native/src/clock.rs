//! The cycle clock, converted to picoseconds in one place.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use conic_fabric::Time;

/// How long the time-stamp counter is compared with the system's clock, once a process.
const CALIBRATION: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Scale {
    start: u64,
    /// Picoseconds a tick, times 2^32.
    picoseconds_fixed: u64,
}

static SCALE: OnceLock<Scale> = OnceLock::new();

/// The time since the process first asked, from the time-stamp counter (constant rate, synchronised between cores on
/// every x86-64 machine that says `constant_tsc` and `nonstop_tsc`).
#[inline(always)]
pub fn now() -> Time {
    let scale = SCALE.get_or_init(calibrate);
    let elapsed = ticks().wrapping_sub(scale.start);
    Time::from_picoseconds(((u128::from(elapsed) * u128::from(scale.picoseconds_fixed)) >> 32) as u64)
}

/// Ticks of the time-stamp counter a second, as calibrated against the system's clock.
pub fn ticks_per_second() -> f64 {
    1e12 * 2f64.powi(32) / SCALE.get_or_init(calibrate).picoseconds_fixed as f64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    // SAFETY: reading the time-stamp counter touches no memory; user code may on every system that runs Linux.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cold]
fn calibrate() -> Scale {
    let (start, clock) = (ticks(), Instant::now());
    let (end, elapsed) = loop {
        let (end, elapsed) = (ticks(), clock.elapsed());
        if elapsed >= CALIBRATION {
            break (end, elapsed);
        }
        std::hint::spin_loop();
    };
    let picoseconds = elapsed.as_nanos() * 1_000;
    Scale { start, picoseconds_fixed: ((picoseconds << 32) / u128::from(end - start)) as u64 }
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
