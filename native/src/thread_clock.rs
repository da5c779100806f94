//! How long a thread has run, so that a measurement can tell whether it had its core to itself.

use conic_fabric::Time;

/// The clock of one thread's time on a processor; any thread of the process may read it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// The calling thread's.
    pub fn mine() -> ThreadClock {
        let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: the calling thread exists, and the call writes a clock's name into a variable that is ours. If it
        // fails, the name stays that of the reader's own clock.
        unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        ThreadClock(clock)
    }

    /// How long the thread has run; zero if it has ended.
    pub fn elapsed(self) -> Time {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes into a structure that is ours.
        match unsafe { libc::clock_gettime(self.0, &raw mut time) } {
            0 => Time::from_nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
            _ => Time::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_runs_while_the_thread_runs_and_stands_while_it_sleeps() {
        let (give, take) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let clock = ThreadClock::mine();
            while clock.elapsed() < Time::from_nanoseconds(3_000_000) {}
            give.send(clock).expect("the test waits for it");
            let _ = stopped.recv();
        });
        let clock = take.recv().expect("the thread's clock");
        let worked = clock.elapsed();
        assert!(worked >= Time::from_nanoseconds(3_000_000), "{worked}");
        std::thread::sleep(Duration::from_millis(30));
        let slept = clock.elapsed().since(worked);
        assert!(slept < Time::from_nanoseconds(20_000_000), "{slept} on a processor while it slept");
        drop(stop);
        thread.join().expect("the thread");
    }
}
