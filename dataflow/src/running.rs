//! A graph on one worker that is stepped by hand, between an input and a probe.

use timely::WorkerConfig;
use timely::communication::Allocator;
use timely::communication::allocator::thread::Thread;
use timely::dataflow::operators::{Input, Inspect, Probe};
use timely::dataflow::{InputHandleVec, ProbeHandle, Stream};
use timely::worker::Worker;

use crate::operator::Element;

/// A running graph that takes `A`.
pub struct Running<A: Element> {
    worker: Worker,
    input: Option<InputHandleVec<u64, A>>,
    probe: ProbeHandle<u64>,
}

impl<A: Element> Running<A> {
    /// Makes a graph, on the thread that will step it; `came` is called with what comes out of it, at its time.
    ///
    /// # Errors
    ///
    /// What `build` says.
    pub fn new<D: Element, E>(
        build: impl for<'scope> FnOnce(Stream<'scope, u64, Vec<A>>) -> Result<Stream<'scope, u64, Vec<D>>, E>,
        mut came: impl FnMut(u64, &[D]) + 'static,
    ) -> Result<Running<A>, E> {
        let mut worker = Worker::new(WorkerConfig::default(), Allocator::Thread(Thread::default()), None);
        let (input, probe) = worker.dataflow::<u64, _, _>(|scope| {
            let (input, stream) = scope.new_input::<Vec<A>>();
            let output = build(stream)?.inspect_batch(move |time, batch| came(*time, batch));
            Ok((input, output.probe().0))
        })?;
        Ok(Running { worker, input: Some(input), probe })
    }

    /// Sends a batch at a time that is not before the last; nothing once the input is closed. The batch is empty afterwards.
    pub fn send(&mut self, time: u64, batch: &mut Vec<A>) {
        if let Some(input) = &mut self.input {
            input.advance_to(time);
            input.send_batch(batch);
        }
    }

    /// Says that all times before one are complete.
    pub fn advance_to(&mut self, time: u64) {
        if let Some(input) = &mut self.input {
            input.advance_to(time);
        }
    }

    /// Says that nothing more comes.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Lets each operator that has something to do do it.
    pub fn step(&mut self) {
        self.worker.step();
    }

    /// Whether something of a time may still come out.
    pub fn may_come(&self, time: u64) -> bool {
        self.probe.less_equal(&time)
    }

    /// Whether all has come, and every operator has ended.
    pub fn has_ended(&self) -> bool {
        !self.worker.has_dataflows()
    }
}
