//! What must hold of every line at every transition of a checked run, as in the exploration ([`crate::protocol::cxl`]): one copy that may be
//! written, or many that are read; and each copy, each grant and each write-back is what was written last.

use std::collections::{BTreeMap, BTreeSet};

use conic_fabric::Line;

use super::home::Job;
use super::machine::Machine;
use crate::bytes::merge;
use crate::protocol::cxl::{Ask, Bias, Copy, Effect, Operation, Side, ToDevice, ToHost};

/// A fault that is planted, to show that a checked run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The device keeps the copy that a snoop takes away.
    KeepsCopy,
    /// A core's store changes the state of its line, and not the line.
    LosesStore,
    /// Data that are pulled from the device are dropped by the host.
    LosesPull,
    /// A core keeps a line that is taken away from all cores.
    KeepsLine,
}

/// What a checked run knows.
#[derive(Debug)]
pub(super) struct Checks {
    /// Each line, as the writes took effect.
    current: Vec<Line>,
    /// What cores or DMA engines are to write past the host's caches, by line: which bytes.
    writes: BTreeMap<u32, (Line, u64)>,
    /// Lines of the device whose bias software has changed while the host had them: nobody says what they are.
    excused: BTreeSet<u32>,
    /// The mistake that is planted.
    mistake: Option<Mistake>,
}

impl Machine {
    /// Checks every line at every transition, and every queue at the end; the run ends in a panic at the first fault. For a machine on
    /// which nothing has happened; it changes no run.
    pub fn check(&mut self) {
        self.probe_queues();
        let current = (0..self.lines.len() as u32).map(|line| self.newest_of(line)).collect();
        self.checks =
            Some(Box::new(Checks { current, writes: BTreeMap::new(), excused: BTreeSet::new(), mistake: None }));
    }

    /// Has the next occasion for a mistake be taken, in a checked run: to show that it is found.
    pub fn plant(&mut self, mistake: Mistake) {
        if let Some(checks) = &mut self.checks {
            checks.mistake = Some(mistake);
        }
    }

    /// Whether a mistake is to be made now.
    pub(super) fn errs(&mut self, mistake: Mistake) -> bool {
        let planted = self.checks.as_mut().map(|checks| &mut checks.mistake);
        planted.is_some_and(|planted| planted.take_if(|planted| *planted == mistake).is_some())
    }

    /// What is newest of a line that nothing is under way for.
    fn newest_of(&self, line: u32) -> Line {
        let state = &self.lines[line as usize];
        match (state.host.copy, state.device.copy, state.host.home) {
            (Copy::Invalid, Copy::Invalid, Side::Host) => state.host.memory,
            (Copy::Invalid, Copy::Invalid, Side::Device) => state.device.memory,
            (Copy::Invalid, ..) => state.device.data,
            _ => state.host.data,
        }
    }

    /// A write of bytes of a line takes effect.
    pub(super) fn took_effect(&mut self, line: u32, data: &Line, bytes: u64) {
        if let Some(checks) = &mut self.checks {
            merge(&mut checks.current[line as usize], bytes, data);
        }
    }

    /// A home agent begins a job.
    pub(super) fn note_job(&mut self, job: &Job) {
        if let Some(checks) = &mut self.checks
            && let Ask::Nontemporal { data, bytes } | Ask::DmaWrite { data, bytes, .. } = &job.ask
        {
            checks.writes.insert(job.line, (*data, *bytes));
        }
    }

    /// Software has set who is asked before the device touches a line.
    pub(super) fn bias_was_set(&mut self, line: u32) {
        let newest = self.newest_of(line);
        let is_apart = self.lines[line as usize].host.copy == Copy::Invalid && !self.running.contains_key(&line);
        if let Some(checks) = &mut self.checks {
            if is_apart {
                checks.excused.remove(&line);
                checks.current[line as usize] = newest;
            } else {
                checks.excused.insert(line);
            }
        }
    }

    /// What a home agent does, before it does it. A write past the caches of a line of the host has taken effect by then.
    pub(super) fn check_effects(&mut self, line: u32, effects: &[Effect<Line>]) {
        if self.checks.is_none() {
            return;
        }
        let is_done = effects.iter().any(|effect| matches!(effect, Effect::Done(_)));
        if is_done && self.lines[line as usize].host.home == Side::Host {
            self.pending_write_took_effect(line);
        }
        // A DMA engine may be given what a device that keeps its copy had when it was asked, and has written since.
        let device_writes = self.lines[line as usize].device.copy.is_alone();
        for effect in effects {
            match effect {
                Effect::Done(Some(_)) if device_writes => {}
                Effect::Send(ToDevice::Current(value) | ToDevice::Grant { data: Some(value), .. })
                | Effect::Done(Some(value)) => self.must_be_current(line, value, "what the home agent gives"),
                _ => {}
            }
        }
    }

    fn pending_write_took_effect(&mut self, line: u32) {
        if let Some((data, bytes)) = self.checks.as_mut().and_then(|checks| checks.writes.remove(&line)) {
            self.took_effect(line, &data, bytes);
        }
    }

    /// The host has heard an answer of the device; whether it pulled what the device writes, and that by a push.
    pub(super) fn check_answer(&mut self, line: u32, answer: &ToHost<Line>, (writes, pushes): (bool, bool)) {
        if self.checks.is_none() {
            return;
        }
        if let ToHost::Pulled { data, bytes, bogus: false } = answer {
            // With a modified line all of it comes, of which the device writes some bytes. A push is a whole line; when its data come, the
            // device may have begun another write there.
            match &self.lines[line as usize].device.pending {
                Some(Operation::Write { data, bytes, .. }) if writes && !pushes => {
                    let (data, bytes) = (*data, *bytes);
                    self.took_effect(line, &data, bytes);
                }
                _ if writes => self.took_effect(line, data, *bytes),
                _ => self.must_be_current(line, data, "what the device writes back"),
            }
        }
    }

    /// The device has begun an operation that it needs nobody for.
    pub(super) fn check_done(&mut self, line: u32, operation: &Operation<Line>) {
        if let Operation::Write { data, bytes, .. } = operation {
            self.took_effect(line, data, *bytes);
        }
        self.check_line(line);
    }

    /// The device has handled a message of the host, which an operation waited for, if one did.
    pub(super) fn check_received(&mut self, line: u32, message: &ToDevice<Line>, waited: Option<Operation<Line>>) {
        if self.checks.is_none() {
            return;
        }
        match (message, waited) {
            (ToDevice::MemoryWrite { .. }, _) => {
                self.pending_write_took_effect(line);
                let memory = self.lines[line as usize].device.memory;
                self.must_be_current(line, &memory, "what the host writes back");
            }
            (ToDevice::Grant { .. } | ToDevice::MemoryForward, Some(Operation::Write { data, bytes, .. })) => {
                self.took_effect(line, &data, bytes);
            }
            _ => {}
        }
        self.check_line(line);
    }

    fn is_excused(&self, line: u32) -> bool {
        let is_excused = self.checks.as_ref().is_none_or(|checks| checks.excused.contains(&line));
        is_excused || self.lines[line as usize].device.bias == Bias::Device
    }

    pub(super) fn must_be_current(&self, line: u32, value: &Line, what: &str) {
        if let Some(checks) = self.checks.as_ref().filter(|_| !self.is_excused(line)) {
            let current = &checks.current[line as usize];
            assert!(value == current, "line {line}: {what} is old: {value:?} instead of {current:?}");
        }
    }

    /// What must hold of a line at every moment.
    pub(super) fn check_line(&self, line: u32) {
        if self.is_excused(line) {
            return;
        }
        let state = &self.lines[line as usize];
        let (host, device) = (&state.host, &state.device);
        let is_alone = |one: Copy, other: Copy| !one.is_alone() || other == Copy::Invalid;
        assert!(
            is_alone(host.copy, device.copy) && is_alone(device.copy, host.copy),
            "line {line}: a copy that may be written is not alone: {:?} at the host, {:?} at the device",
            host.copy,
            device.copy
        );
        if host.copy != Copy::Invalid {
            self.must_be_current(line, &host.data, "the host's copy");
        }
        if device.copy != Copy::Invalid {
            self.must_be_current(line, &device.data, "the device's copy");
        }
        let is_in_cache = state.holders != 0 || self.last_level.has(line);
        assert!(
            host.copy != Copy::Invalid || !is_in_cache,
            "line {line}: the host has no copy, and a cache has the line"
        );
    }

    /// What must hold at a run's end.
    pub(super) fn check_end(&self) {
        if self.checks.is_some() {
            (0..self.lines.len() as u32)
                .filter(|line| !self.running.contains_key(line))
                .for_each(|line| self.check_line(line));
            let faults = self.queue_faults();
            assert!(faults.is_empty(), "queues do not hold what came and did not leave: {}", faults.join("; "));
        }
    }
}
