//! How a batch and the progress of its operators cross to a device: in one exchange, or, as published, with progress in exchanges
//! of its own before and after the data.

use conic_dataflow::wire::{operators_of, prefix};
use conic_dataflow::{Executor, Program};
use conic_fabric::Time;
use conic_load::invocation::Answer;
use conic_sim::Failure;

use super::flowing::Flow;
use super::simulated::Pipeline;

/// In how many exchanges a batch crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    /// In one: the request says how far each operator's input is complete, the response what each consumed and produced.
    Together,
    /// In three: "synchronously to exchange statistics between FPGA and CPU before and after processing a batch", and the data
    /// between ("Rethinking Programmed I/O for Fast Devices, Cheap Cores, and Coherent Interconnects", section 5.3).
    Apart,
}

impl Crossing {
    /// Exchanges of a batch.
    pub fn exchanges(self) -> u64 {
        match self {
            Crossing::Together => 1,
            Crossing::Apart => 3,
        }
    }

    /// Makes a batch's exchanges, one after the other. `exchange` makes one: it is given a request and the most bytes of its
    /// response, which replaces what is in its last argument, and says how long it took. Gives the sum.
    ///
    /// # Errors
    ///
    /// Those of `exchange`.
    pub(super) fn batch(
        self,
        request: &[u8],
        most: usize,
        response: &mut Vec<u8>,
        mut exchange: impl FnMut(&[u8], usize, &mut Vec<u8>) -> Result<Time, Failure>,
    ) -> Result<Time, Failure> {
        if self == Crossing::Together {
            return exchange(request, most, response);
        }
        let (header, progress) = (prefix(0), prefix(operators_of(request)));
        let before = exchange(&request[..progress], header, response)?;
        let data = [&request[..header], &request[progress..]].concat();
        let during = exchange(&data, header + most - progress, response)?;
        let elements = response.split_off(header);
        let after = exchange(&request[..header], progress, response)?;
        response.extend_from_slice(&elements);
        Ok(before + during + after)
    }
}

/// What is on the device, and how batches cross to it.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it computes.
    pub program: Program,
    /// What its logic takes for that.
    pub pipeline: Pipeline,
    /// How batches cross.
    pub crossing: Crossing,
}

/// Which of a batch's exchanges comes next, where they are three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Before,
    Data,
    After,
}

/// The device's half.
pub(super) struct Computing {
    part: Part,
    executor: Executor,
    /// The period of the logic's clock, in picoseconds.
    cycle: u64,
    /// Bytes of the longest response.
    room: usize,
    next: Next,
    /// What has come of a request, or what is still to be said of its response.
    kept: Vec<u8>,
    /// Elements of an exchange that are computed while they come, if there is one.
    flow: Option<Flow>,
}

impl Computing {
    pub fn new(part: &Part, cycle: u64, room: usize) -> Computing {
        let executor = Executor::new(part.program.clone());
        Computing { part: part.clone(), executor, cycle, room, next: Next::Before, kept: Vec::new(), flow: None }
    }

    /// Writes the response of one exchange behind what is in `response`, and says how long the logic takes for it.
    pub fn answer(&mut self, request: &[u8], response: &mut Vec<u8>) -> Time {
        if self.part.crossing == Crossing::Together {
            let (whole, time) = self.compute(request);
            response.extend_from_slice(&whole);
            return time;
        }
        let header = prefix(0);
        match self.next {
            Next::Before => {
                self.next = Next::Data;
                self.kept = request.to_vec();
                response.extend_from_slice(&request[..header]);
                Time::ZERO
            }
            Next::Data => {
                self.kept.extend_from_slice(&request[header..]);
                let (whole, time) = self.compute(&self.kept.clone());
                self.keep_progress(&whole, response);
                time
            }
            Next::After => {
                self.next = Next::Before;
                response.append(&mut self.kept);
                Time::ZERO
            }
        }
    }

    /// Writes the response to the data behind what is in `response`, and keeps what is said of progress.
    fn keep_progress(&mut self, whole: &[u8], response: &mut Vec<u8>) {
        self.next = Next::After;
        // A refusal is a header without operators.
        let (progress, elements) = whole.split_at(prefix(operators_of(whole)));
        response.extend_from_slice(&progress[..prefix(0)]);
        response.extend_from_slice(elements);
        self.kept = progress.to_vec();
    }

    /// Whether the exchange that comes next, or is under way, has elements.
    pub fn has_elements(&self) -> bool {
        self.part.crossing == Crossing::Together || self.next == Next::Data
    }

    /// Bytes before the elements of such an exchange that are its own, and not the program's.
    fn own_header(&self) -> usize {
        if self.part.crossing == Crossing::Together { 0 } else { prefix(0) }
    }

    /// Takes what has come until now of a request of `of` bytes that has elements.
    pub fn take(&mut self, come: &[u8], of: usize, now: Time) {
        let (own, before) = (self.own_header(), if self.next == Next::Data { &self.kept[..] } else { &[] });
        let flow = self.flow.get_or_insert_with(|| Flow::after(before));
        let there = own + flow.bytes() - before.len();
        if let Some(more) = come.get(there..) {
            flow.come(more, before.len() + of.saturating_sub(own));
            flow.enter(&mut self.executor, &self.part.program, self.part.pipeline, self.cycle, now);
        }
    }

    /// Writes the response as far as it has come out until now behind what is in `response`, and gives from where on that is final; none if
    /// nothing has come out since it was last asked.
    pub fn come_out(&mut self, now: Time, response: &mut Vec<u8>) -> Option<usize> {
        let together = self.part.crossing == Crossing::Together;
        let flow = self.flow.as_mut()?;
        let from = if together { flow.header() } else { prefix(0) };
        let made = flow.come_out(now)?;
        response.resize(response.len() + from, 0);
        response.extend_from_slice(made);
        Some(from)
    }

    /// When something comes out next.
    pub fn due(&self) -> Option<Time> {
        self.flow.as_ref()?.due()
    }

    /// Whether all elements have come and all that is made of them has come out.
    pub fn is_over(&self) -> bool {
        self.flow.as_ref().is_some_and(Flow::is_over)
    }

    /// Writes the response to a request that was taken whole behind what is in `response`.
    pub fn finish(&mut self, response: &mut Vec<u8>) {
        self.flow = None;
        let mut whole = vec![0; self.room];
        let bytes = self.executor.finish(&mut whole);
        whole.truncate(bytes);
        match self.part.crossing {
            Crossing::Together => response.extend_from_slice(&whole),
            Crossing::Apart => self.keep_progress(&whole, response),
        }
    }

    fn compute(&mut self, request: &[u8]) -> (Vec<u8>, Time) {
        let mut response = vec![0; self.room];
        let bytes = self.executor.answer(request, &mut response);
        response.truncate(bytes);
        (response, self.part.pipeline.time(self.cycle, request, self.part.program.input_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use conic_dataflow::wire::begin_request;

    use super::super::graphs::Graph;
    use super::*;

    const NUMBERS: u64 = 20;

    fn part(crossing: Crossing) -> Part {
        Part { program: Graph::Filters.program(), pipeline: Pipeline { latency: 31, interval: 1 }, crossing }
    }

    /// The response to a request for `NUMBERS` numbers of time 3, where the inputs were said to be complete up to a time, and the
    /// requests and responses that crossed for it.
    fn exchanged(crossing: Crossing, complete: u64) -> (Vec<u8>, Vec<[usize; 2]>) {
        exchanged_by(crossing, complete, Computing::answer)
    }

    /// Answers a request that comes a few bytes at a time, a cycle each, and gives when the last has come out.
    fn answer_in_parts(device: &mut Computing, request: &[u8], response: &mut Vec<u8>) -> Time {
        if !device.has_elements() {
            return device.answer(request, response);
        }
        let (mut now, mut out, mut come) = (Time::ZERO, Vec::new(), 0);
        while !device.is_over() {
            come = request.len().min(come + 7);
            device.take(&request[..come], request.len(), now);
            let mut more = Vec::new();
            if let Some(from) = device.come_out(now, &mut more) {
                assert!(more[from..].starts_with(&out) && more[from..].len() > out.len(), "what came out stays");
                out = more.split_off(from);
            }
            let next = Time::from_picoseconds(now.picoseconds() + 1000);
            now = if come < request.len() { next } else { device.due().unwrap_or(now) };
        }
        device.finish(response);
        assert!(response.ends_with(&out), "what came out is what the response ends with");
        now
    }

    fn exchanged_by(
        crossing: Crossing,
        complete: u64,
        answer: fn(&mut Computing, &[u8], &mut Vec<u8>) -> Time,
    ) -> (Vec<u8>, Vec<[usize; 2]>) {
        let mut device = Computing::new(&part(crossing), 1000, 4096);
        let operators = part(crossing).program.operators();
        let mut request = Vec::new();
        begin_request(&mut request, 3, NUMBERS as u32, &vec![complete; operators]);
        (0..NUMBERS).for_each(|number| request.extend_from_slice(&(number << 8 | number).to_le_bytes()));
        let (most, mut response, mut crossed) = (request.len(), Vec::new(), Vec::new());
        let took = crossing.batch(&request, most, &mut response, |request, most, response| {
            response.clear();
            let time = answer(&mut device, request, response);
            assert!(response.len() <= most, "{} bytes of {most}", response.len());
            crossed.push([request.len(), response.len()]);
            Ok(time)
        });
        // Whole, elements go in one after the other; in parts of the only exchange, or the one between the others, the last when it comes.
        let took = took.expect("nothing is simulated").picoseconds() / 1000;
        let last = (crossed[crossed.len() / 2][0] as u64).div_ceil(7) - 1;
        assert!([31 + NUMBERS - 1, 31 + last].contains(&took), "{took} cycles");
        (response, crossed)
    }

    #[test]
    fn the_same_response_comes_in_one_exchange_and_in_three() {
        let (one, together) = exchanged(Crossing::Together, 0);
        let (three, apart) = exchanged(Crossing::Apart, 0);
        assert!(one == three && one.len() > prefix(31));
        let (elements, results) = (8 * NUMBERS as usize, one.len() - prefix(31));
        assert_eq!(together, [[prefix(31) + elements, prefix(31) + results]]);
        assert_eq!(apart, [[prefix(31), 16], [16 + elements, 16 + results], [16, prefix(31)]]);
    }

    #[test]
    fn what_comes_in_parts_is_answered_as_what_comes_whole() {
        for crossing in [Crossing::Together, Crossing::Apart] {
            for complete in [0, 4] {
                let whole = exchanged(crossing, complete);
                assert_eq!(exchanged_by(crossing, complete, answer_in_parts), whole, "{crossing:?}, {complete}");
            }
        }
    }

    #[test]
    fn a_refusal_comes_through_three_exchanges_as_well() {
        // Elements of a time that was said to be complete.
        let [(one, _), (three, apart)] = [Crossing::Together, Crossing::Apart].map(|crossing| exchanged(crossing, 4));
        assert_eq!(one, three);
        assert_eq!((one.len(), apart.len() as u64), (16, Crossing::Apart.exchanges()));
    }
}
