//! A batch's elements on their way through the device's logic: each goes in when it has come, and what is made of it goes out when it is
//! made.
//!
//! # What overlaps, and which sentences say so
//!
//! Section 5.3 has "the protocol in Section 4 synchronously to exchange statistics between FPGA and CPU before and after processing a batch,
//! and operators asynchronously for processing data in the batch in parallel": progress crosses in exchanges of its own that wait for each
//! other, the data between them does not wait to be whole. On the way in, section 4: "there is no actual cache on the device: any payload
//! is delivered directly into the device's execution pipeline, or read from an output register", whose calculations section 5.3 pipelines
//! "with an initiation interval of 2 cycles to saturate the 512-bit bus", as they can only while lines come; and since they may come in
//! any order, the device buffers them ("we always buffer possible in-flight cache lines on the FPGA"). On the way out: for Timely "the
//! better option is to prefetch multiple instances of the protocol shown in 5(c)", each of which does not respond "until it has data to
//! send" and returns its result "when it finally responds to the CPU's load": each line's load is answered when that line's results are
//! there. So lines of a batch that come, elements that are computed and lines that go back overlap. The CPU's stores do not:
//! it "first writes all arguments", and the first prefetch makes the device fetch all lines. Nothing says that several batches are under
//! way at once, or progress and data: they are not. Nor is any of this said of the two ways over PCIe, nor of section 5.1's invocations,
//! which write and then read a memory on the device.

use std::collections::VecDeque;

use conic_dataflow::wire::{operators_of, prefix};
use conic_dataflow::{Executor, Program};
use conic_fabric::{Device as _, Time};
use conic_interface::pio::{Device as _, Homed};
use conic_sim::eci::EciDevice;

use super::crossing::Computing;
use super::simulated::Pipeline;

/// The elements of one exchange.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    /// The request as the program has it, as far as it has come, and how many bytes it has.
    request: Vec<u8>,
    of: usize,
    /// Elements that went in, and when the next may.
    taken: usize,
    next: Time,
    /// What was made, and of each element that is under way when it comes out and how much was made up to it.
    made: Vec<u8>,
    under_way: VecDeque<(Time, usize)>,
    /// Bytes that came out.
    out: usize,
}

impl Flow {
    /// One whose request begins with what came before.
    pub fn after(before: &[u8]) -> Flow {
        Flow { request: before.to_vec(), ..Flow::default() }
    }

    /// Bytes before its elements, and before those of its response, where both are one message.
    pub fn header(&self) -> usize {
        prefix(operators_of(&self.request))
    }

    /// Bytes of the request that are there.
    pub fn bytes(&self) -> usize {
        self.request.len()
    }

    /// More of a request of `of` bytes has come.
    pub fn come(&mut self, more: &[u8], of: usize) {
        self.request.extend_from_slice(more);
        self.of = of;
    }

    /// Lets the elements that have come into the logic, whose clock has periods of so many picoseconds.
    pub fn enter(&mut self, executor: &mut Executor, program: &Program, pipeline: Pipeline, cycle: u64, now: Time) {
        let cycles = |count: u32| Time::from_picoseconds(u64::from(count) * cycle);
        let header = self.header();
        let whole = |elements| header + elements * program.input_bytes();
        while whole(self.taken + 1) <= self.request.len() {
            self.taken += 1;
            let made = executor.take(&self.request[..whole(self.taken)], self.of);
            self.made.extend_from_slice(made.get(self.made.len()..).unwrap_or_default());
            let enters = now.max(self.next);
            self.next = enters + cycles(pipeline.interval);
            self.under_way.push_back((enters + cycles(pipeline.latency), self.made.len()));
        }
        if self.taken == 0 && self.is_whole() && self.under_way.is_empty() && self.next == Time::ZERO {
            // Nothing goes through all the same.
            executor.take(&self.request, self.of);
            self.next = now;
            self.under_way.push_back((now + cycles(pipeline.latency), 0));
        }
    }

    fn is_whole(&self) -> bool {
        self.of > 0 && self.request.len() == self.of
    }

    /// What has come out until now, if that is more than before.
    pub fn come_out(&mut self, now: Time) -> Option<&[u8]> {
        let before = self.out;
        while let Some((_, bytes)) = self.under_way.front().copied().filter(|(when, _)| *when <= now) {
            self.under_way.pop_front();
            self.out = bytes;
        }
        (self.out > before).then(|| &self.made[..self.out])
    }

    /// When something comes out next.
    pub fn due(&self) -> Option<Time> {
        self.under_way.front().map(|(when, _)| *when)
    }

    /// Whether all of the request has come, and all that is made of it has come out.
    pub fn is_over(&self) -> bool {
        self.is_whole() && self.under_way.is_empty()
    }
}

/// Answers exchanges for ever: those with elements while these come.
pub(super) fn serve<const N: usize>(mut homed: Homed<EciDevice<'_>, N>, mut computing: Computing) {
    let (mut request, mut response) = (Vec::new(), Vec::new());
    loop {
        let stepped = homed.step();
        let now = homed.device().now();
        response.clear();
        if !computing.has_elements() {
            if let Some(length) = homed.poll() {
                request.resize(length, 0);
                homed.read(&mut request);
                computing.answer(&request, &mut response);
                assert!(homed.respond(&response), "what was polled awaits its response");
                continue;
            }
        } else {
            if let Some(come) = homed.come() {
                computing.take(come.bytes, come.of, now);
            }
            if let Some(from) = computing.come_out(now, &mut response) {
                homed.fill(from, &response);
            }
            if computing.is_over() && homed.is_working() {
                // All of it was taken already.
                homed.poll();
                response.clear();
                computing.finish(&mut response);
                assert!(homed.respond(&response), "what was delivered awaits its response");
                continue;
            }
        }
        assert_eq!(homed.violations(), (0, None), "the CPU broke the line pair's protocol");
        if !stepped {
            homed.device().spin_until(computing.due().unwrap_or(Time::NEVER));
        }
    }
}

#[cfg(test)]
mod tests {
    use conic_dataflow::wire::begin_request;
    use conic_fabric::{Core as _, Home, Layout};
    use conic_interface::pio::control::{self, Kind};
    use conic_interface::pio::{Behaviour, Features, Host, Poll};
    use conic_sim::Role;
    use conic_sim::eci::{Disturbances, EciParameters, EciSimulation};
    use conic_sim::platform::Platform;

    use super::super::crossing::{Crossing, Part};
    use super::super::exchange::{WORDS, call, shape};
    use super::super::graphs::Graph;
    use super::*;

    #[test]
    fn a_request_that_cannot_be_is_refused_and_the_next_one_answered() {
        let machine = Platform::<EciParameters>::load_as("enzian").expect("it is shipped").parameters().clone();
        let program = Graph::Filters.program();
        let mut request = Vec::new();
        begin_request(&mut request, 3, 1, &vec![0; program.operators()]);
        request.extend_from_slice(&7_u64.to_le_bytes());
        let mut layout = Layout::new();
        let lines = shape(&machine, 4096, 0).place(&mut layout, Home::Nic).expect("a shape of whole lines");
        let mut simulation = EciSimulation::new(&machine, &layout, Disturbances::default());
        // Several times as long as a load waits before it is told to try again.
        simulation.set_limit(Time::from_nanoseconds(200_000_000));
        simulation.core("host", Role::Main, move |core| {
            // Nothing is asked for before the load that signals the request.
            let mut host = Host::new(*core, lines, Features { prefetch: false, ..Features::HOMED });
            host.begin(&request, 4096).expect("it fits");
            core.store(lines.control(0), control::word(0, Kind::Request, control::LONGEST as u32));
            core.full_fence();
            let answer = loop {
                match host.poll() {
                    Poll::NotYet => core.spin(),
                    answer => break answer,
                }
            };
            assert_eq!(answer, Poll::Refused);
            assert_eq!(host.try_agains(), 0, "at once");
            let mut response = Vec::new();
            call(&mut host, &request, 4096, &mut response);
            assert!(response.len() > prefix(0));
        });
        let part = Part { program, pipeline: Pipeline { latency: 31, interval: 1 }, crossing: Crossing::Together };
        let computing = Computing::new(&part, machine.device.cycle, lines.capacity() as usize);
        simulation.device("device", Role::Service, move |device| {
            let homed = Homed::<_, WORDS>::new(*device, lines, Behaviour::default()).expect("so many lines fit");
            serve(homed, computing);
        });
        simulation.run().expect("both requests are answered");
    }
}
