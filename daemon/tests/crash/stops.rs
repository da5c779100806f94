//! Where a process is stopped: a named step, and how often it was reached before.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use conic_fabric::Address;
use conic_native::watch;
use rustix::process::{Signal, getpid, kill_process};

use crate::support::layout;

/// A step: what the process is at, what it does, and in which part of a region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    pub phase: String,
    pub name: String,
    pub place: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {:<24} {:<20}", self.phase, self.name, self.place)
    }
}

/// How a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    Kill,
    Stop,
}

/// Which process is to be stopped where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub step: Step,
    /// The how-manieth time that the step is reached, from 1.
    pub occurrence: u64,
    pub blow: Blow,
}

impl Plan {
    /// As one argument of a command line.
    pub fn to_text(&self) -> String {
        let Step { phase, name, place } = &self.step;
        let blow = if self.blow == Blow::Kill { "kill" } else { "stop" };
        format!("{phase}|{name}|{place}|{}|{blow}", self.occurrence)
    }

    pub fn of_text(text: &str) -> Option<Plan> {
        let [phase, name, place, occurrence, blow] = text.split('|').collect::<Vec<_>>().try_into().ok()?;
        let step = Step { phase: phase.to_owned(), name: name.to_owned(), place: place.to_owned() };
        let blow = if blow == "kill" { Blow::Kill } else { Blow::Stop };
        Some(Plan { step, occurrence: occurrence.parse().ok()?, blow })
    }
}

/// The parts of a region: first byte, end, name.
fn places() -> Vec<(u64, u64, String)> {
    let part = |name: &str| match name.strip_prefix("queue ") {
        Some(rest) => rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start().to_owned(),
        None => name.to_owned(),
    };
    layout().segments().iter().map(|segment| (segment.start.0, segment.end().0, part(&segment.name))).collect()
}

/// Watches this process's steps.
#[derive(Clone)]
pub struct Stops(Arc<Mutex<Watching>>);

struct Watching {
    places: Vec<(u64, u64, String)>,
    phase: &'static str,
    plan: Option<Plan>,
    reached: u64,
    seen: BTreeMap<Step, u64>,
}

impl Stops {
    /// Stops this process according to a plan; without one it notes all steps.
    pub fn begin(plan: Option<Plan>) -> Stops {
        let watching = Watching { places: places(), phase: "", plan, reached: 0, seen: BTreeMap::new() };
        let stops = Stops(Arc::new(Mutex::new(watching)));
        let own = stops.clone();
        assert!(watch(Box::new(move |name, at| own.reach(name, at))), "a process has one plan");
        stops
    }

    /// What the process is at from here on.
    pub fn enter(&self, phase: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).phase = phase;
    }

    /// All steps of the past, and how often each was reached.
    pub fn seen(&self) -> Vec<(Step, u64)> {
        let watching = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watching.seen.iter().map(|(step, &count)| (step.clone(), count)).collect()
    }

    fn reach(&self, name: &'static str, at: Option<Address>) {
        let mut watching = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Watching { places, phase, plan, reached, seen } = &mut *watching;
        let place = || {
            let at = at.map_or(u64::MAX, |at| at.0);
            places.iter().find(|(start, end, _)| (*start..*end).contains(&at)).map_or("-", |(_, _, name)| name)
        };
        match plan {
            None => {
                let step = Step { phase: (*phase).to_owned(), name: name.to_owned(), place: place().to_owned() };
                *seen.entry(step).or_default() += 1;
            }
            Some(wanted) if wanted.step.name == name && wanted.step.phase == *phase && wanted.step.place == place() => {
                *reached += 1;
                if *reached == wanted.occurrence {
                    let blow = if wanted.blow == Blow::Kill { Signal::KILL } else { Signal::STOP };
                    // Both end, or stop, this process before the call returns.
                    kill_process(getpid(), blow).expect("a process may stop itself");
                }
            }
            Some(_) => {}
        }
    }
}
