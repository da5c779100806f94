//! What a machine's coherence allows, measured with as little protocol as there can be: the limits that an interface's
//! figures are shares of.
//!
//! | kernel | what moves | after |
//! |---|---|---|
//! | [`RoundTrip::one_line`] | one line, there and back | CC-NIC Figure 8, one line for both registers |
//! | [`RoundTrip::two_lines`] | two lines, each written by one side and read by the other | Figure 8, separate lines, homed at their writer |
//! | [`LineAndFlag`] | a line of data and a line with its flag, there and back | a register beside a ring |
//! | [`LinePair`] | a line's payload there and another's back, in two lines that swap roles | coherent PIO Figure 5c |
//! | [`SlotPair`] | the same in the slots of two FastForward queues | coherent PIO Figures 4 and 6 |
//! | [`Exchange`] | lines in a ring each way, signal in the line, credits in batches | a plain exchange |
//! | [`Swap`] | lines in one ring, each overwritten with the answer | the same lines carry both directions |
//! | [`Taking`] | lines that the other core has written, without polling: one by one, or together | Figure 7 |
//! | [`Stream`] | a megabyte at a time, announced by a register | Figure 9 |
//! | [`pauses`] | nothing: what a round of polling waits | - |
//! | [`clock_readings`] | nothing: what the clock takes to be read | - |
//! | [`stops`] | nothing: for how long a core stands still when a system or hypervisor wants it | - |
//!
//! Each kernel but the last three is two functions for two cores. One takes the time at which it stops and tells the other, which stops then.

use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, Line, SynchronisingWords, Time};

mod pair;
mod stream;
mod taking;

pub use pair::{LinePair, SlotPair};
pub use stream::{Exchange, Side, Store, Stream, Swap};
pub use taking::{Take, Taking};

/// Written instead of the next number: the other side shall stop.
const STOP: u64 = u64::MAX;

/// Round trips between two looks at the clock.
const BETWEEN_LOOKS: u64 = 32;

/// How much moved in what time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Round trips, or lines.
    pub count: u64,
    /// The time they took.
    pub span: Time,
}

impl Moved {
    /// Nanoseconds for each; zero if nothing moved.
    pub fn nanoseconds_each(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.span.picoseconds() as f64 / 1e3 / self.count as f64 }
    }

    /// How many a second; zero if no time passed.
    pub fn per_second(&self) -> f64 {
        if self.span == Time::ZERO { 0.0 } else { self.count as f64 / self.span.seconds() }
    }
}

/// Calls [`Core::spin`] until `until`, and nothing else.
pub fn pauses<C: Core>(core: &C, until: Time) -> Moved {
    in_batches(core, until, |_| (), |_| core.spin())
}

/// Reads the clock until `until`, which it must take some time to do, and nothing else.
pub fn clock_readings<C: Core>(core: &C, until: Time) -> Moved {
    let start = core.now();
    let (mut count, mut now) = (0, start);
    while now < until {
        now = core.now();
        count += 1;
    }
    Moved { count, span: now.since(start) }
}

/// What no reading of the clock takes by itself: between two of them the core was somebody else's.
const STOP_OF_A_CORE: Time = Time::from_nanoseconds(1_000);

/// Reads the clock until `until`, which it must take some time to do, and nothing else; says how often the core stood still
/// meanwhile, and for how long in all. The program does not notice: a system, or a hypervisor below it, had the core.
pub fn stops<C: Core>(core: &C, until: Time) -> Moved {
    let (mut moved, mut now) = (Moved::default(), core.now());
    while now < until {
        let last = now;
        now = core.now();
        let span = now.since(last);
        if span > STOP_OF_A_CORE {
            moved = Moved { count: moved.count + 1, span: moved.span + span };
        }
    }
    moved
}

fn lines(layout: &mut Layout, name: &str, count: u64, home: Home, words: SynchronisingWords) -> Address {
    // Pairs of lines are kept apart, so that an adjacent-line prefetcher drags nothing along.
    layout.add(name, count * LINE_BYTES, 2 * LINE_BYTES, home, words)
}

/// Makes exchanges, numbered from 1, until `until`, a batch between two looks at the clock.
#[inline(always)]
fn in_batches<C: Core>(core: &C, until: Time, mut batch: impl FnMut(Moved), mut exchange: impl FnMut(u64)) -> Moved {
    let start = core.now();
    let (mut count, mut last) = (0, start);
    loop {
        for _ in 0..BETWEEN_LOOKS {
            count += 1;
            exchange(count);
        }
        let now = core.now();
        batch(Moved { count: BETWEEN_LOOKS, span: now.since(last) });
        if now >= until {
            return Moved { count, span: now.since(start) };
        }
        last = now;
    }
}

/// Numbers that go there and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    ask: Address,
    answer: Address,
}

impl RoundTrip {
    /// The caller's and the answerer's number in one word.
    pub fn one_line(layout: &mut Layout) -> RoundTrip {
        let word = lines(layout, "one line", 1, Home::Host, SynchronisingWords::FIRST);
        RoundTrip { ask: word, answer: word }
    }

    /// A line for each, in its writer's memory.
    pub fn two_lines(layout: &mut Layout) -> RoundTrip {
        let ask = lines(layout, "the caller's line", 1, Home::Host, SynchronisingWords::FIRST);
        let answer = lines(layout, "the answerer's line", 1, Home::Nic, SynchronisingWords::FIRST);
        RoundTrip { ask, answer }
    }

    /// Asks until `until`, and then stops [`RoundTrip::answer`]; both words are zero before and after.
    pub fn call<C: Core>(&self, core: &C, until: Time) -> Moved {
        self.call_in_batches(core, until, |_| ())
    }

    /// The same, and says how long each batch of round trips took, so that what disturbed one does not spoil all.
    pub fn call_in_batches<C: Core>(&self, core: &C, until: Time, batch: impl FnMut(Moved)) -> Moved {
        let moved = in_batches(core, until, batch, |count| {
            // Release, and acquire in the loop: nothing but the numbers themselves changes hands.
            core.store_release(self.ask, 2 * count - 1);
            while core.load_acquire(self.answer) != 2 * count {
                core.spin();
            }
        });
        // Release, acquire: as above. The answerer puts back zero, so that the words may be used again.
        core.store_release(self.ask, STOP);
        while core.load_acquire(self.answer) != 0 {
            core.spin();
        }
        core.store_release(self.ask, 0);
        moved
    }

    /// Answers until the caller stops.
    pub fn answer<C: Core>(&self, core: &C) {
        let mut last = 0;
        loop {
            // Acquire and release: as in `call`.
            let asked = core.load_acquire(self.ask);
            if asked == last + 1 {
                last += 2;
                core.store_release(self.answer, last);
            } else if asked == STOP {
                core.store_release(self.answer, 0);
                // Until the caller has taken it back: whoever answers the next call must not take it for that one's.
                while core.load_acquire(self.ask) == STOP {
                    core.spin();
                }
                return;
            } else {
                core.spin();
            }
        }
    }
}

/// A line of data that is announced in another line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineAndFlag {
    data: Address,
    flag: Address,
}

impl LineAndFlag {
    /// Both lines in the host's memory.
    pub fn new(layout: &mut Layout) -> LineAndFlag {
        let data = lines(layout, "data", 1, Home::Host, SynchronisingWords::NONE);
        let flag = lines(layout, "flag", 1, Home::Host, SynchronisingWords::FIRST);
        LineAndFlag { data, flag }
    }

    /// Sends the line there and back until `until`, and then stops [`LineAndFlag::answer`]. Needs a fresh region.
    pub fn call<C: Core>(&self, core: &C, until: Time) -> Moved {
        let start = core.now();
        let mut count = 0;
        let end = loop {
            for _ in 0..BETWEEN_LOOKS {
                count += 1;
                core.write_line(self.data, &Line([count; 8]));
                // Release: the data becomes visible with the flag.
                core.store_release(self.flag, 2 * count - 1);
                // Acquire: pairs with the answerer's release of its data.
                while core.load_acquire(self.flag) != 2 * count {
                    core.spin();
                }
                count = core.read_line(self.data).0[7];
            }
            let now = core.now();
            if now >= until {
                break now;
            }
        };
        // Release: nothing depends on it.
        core.store_release(self.flag, STOP);
        Moved { count, span: end.since(start) }
    }

    /// Answers until the caller stops.
    pub fn answer<C: Core>(&self, core: &C) {
        let mut last = 0;
        loop {
            // Acquire: pairs with the caller's release of its data.
            let flag = core.load_acquire(self.flag);
            if flag == last + 1 {
                last += 2;
                let line = core.read_line(self.data);
                core.write_line(self.data, &line);
                // Release: the data becomes visible with the flag.
                core.store_release(self.flag, last);
            } else if flag == STOP {
                return;
            } else {
                core.spin();
            }
        }
    }
}
