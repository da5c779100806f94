//! The log, which a thread of its own writes: the NIC waits for nobody who reads it.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait at most to be written.
const MOST_WAITING: usize = 1024;

/// How long the last of them are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Waiting {
    lines: Vec<String>,
    /// How many came behind them and found no room.
    left_out: u64,
    /// No more will come.
    closed: bool,
    /// All of them are written.
    written: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Lines on their way to a log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Shared>);

impl Lines {
    /// Enters a line, at once; it is counted if it finds no room.
    pub fn say(&self, line: String) {
        let mut waiting = self.lock();
        if waiting.lines.len() < MOST_WAITING && waiting.left_out == 0 {
            waiting.lines.push(line);
        } else {
            waiting.left_out += 1;
        }
        self.0.changed.notify_all();
    }

    /// Writes lines until no more will come, and says where some were left out, and how many.
    pub fn write(&self, mut to: impl Write, left_out: impl Fn(u64) -> String) {
        while let Some((mut lines, count)) = self.next() {
            if count > 0 {
                lines.push(left_out(count));
            }
            for line in lines {
                // Who reads the log may be gone; the NIC goes on.
                let _ = writeln!(to, "{line}");
            }
        }
        self.lock().written = true;
        self.0.changed.notify_all();
    }

    /// What waits, and how many lines were left out behind it; none if no more will come.
    fn next(&self) -> Option<(Vec<String>, u64)> {
        let nothing = |waiting: &mut Waiting| waiting.lines.is_empty() && waiting.left_out == 0 && !waiting.closed;
        let waiting = self.0.changed.wait_while(self.lock(), nothing);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let Waiting { lines, left_out, .. } = &mut *waiting;
        let next = (std::mem::take(lines), std::mem::take(left_out));
        (!next.0.is_empty() || next.1 > 0).then_some(next)
    }

    /// Says that no more will come, and waits until all are written, or nobody seems to read them.
    pub fn end(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        self.0.changed.notify_all();
        drop(self.0.changed.wait_timeout_while(waiting, PATIENCE, |waiting| !waiting.written));
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_and_the_place_of_those_left_out_is_said() {
        let lines = Lines::default();
        let most = MOST_WAITING as u64;
        (0..most + 5).for_each(|number| lines.say(number.to_string()));
        let mut log = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| lines.write(&mut log, |count| format!("{count} left out")));
            lines.end();
            writer.join().expect("it ends");
        });
        let text = String::from_utf8(log).expect("text");
        let expected: String =
            (0..most).map(|number| format!("{number}\n")).chain(["5 left out\n".to_owned()]).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn a_log_that_is_not_written_is_not_waited_for() {
        let lines = Lines::default();
        lines.say("nobody reads this".to_owned());
        lines.end();
    }
}
