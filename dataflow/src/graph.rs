//! Graphs whose operators have places. Where the place changes, channels are inserted.

use timely::dataflow::Stream;

use crate::device::{Device, Fault};
use crate::offload::{Offload, offload};
use crate::operator::{Element, Gathering, Operator};
use crate::program::{Chain, Program};
use crate::software::software;

/// Where an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the CPU, as an operator of Timely's.
    Cpu,
    /// On the device.
    Device,
}

/// A graph that has come as far as an operator on the CPU, or its input. `F` makes the devices for each part that is placed on them.
pub struct OnCpu<'scope, D, F> {
    stream: Stream<'scope, u64, Vec<D>>,
    how: Offload,
    devices: F,
}

/// A graph whose last operators are on the device.
pub struct OnDevice<'scope, A, D, F> {
    before: OnCpu<'scope, A, F>,
    chain: Chain<A, D>,
}

impl<'scope, D: Element, V: Device, F: FnMut(&Program) -> Vec<V>> OnCpu<'scope, D, F> {
    /// Begins with a stream.
    pub fn new(stream: Stream<'scope, u64, Vec<D>>, how: Offload, devices: F) -> OnCpu<'scope, D, F> {
        OnCpu { stream, how, devices }
    }

    /// The next operator, on the CPU.
    pub fn cpu<O: Operator<Input = D>>(self, operator: O) -> OnCpu<'scope, O::Output, F> {
        OnCpu { stream: software(self.stream, operator), how: self.how, devices: self.devices }
    }

    /// The next operator, on the device.
    pub fn device<O: Operator<Input = D>>(self, operator: O) -> OnDevice<'scope, D, O::Output, F> {
        OnDevice { before: self, chain: Chain::new(operator) }
    }

    /// The next operator, on the device: one with a state, behind which its part ends.
    pub fn gathering<G: Gathering<Input = D>>(self, operator: G) -> OnDevice<'scope, D, G::Output, F> {
        OnDevice { before: self, chain: Chain::gathering(operator) }
    }

    /// The graph's output.
    pub fn finish(self) -> Stream<'scope, u64, Vec<D>> {
        self.stream
    }
}

impl<'scope, A: Element, D: Element, V: Device, F: FnMut(&Program) -> Vec<V>> OnDevice<'scope, A, D, F> {
    /// The next operator, on the same device.
    ///
    /// # Panics
    ///
    /// If the last one has a state.
    pub fn device<O: Operator<Input = D>>(self, operator: O) -> OnDevice<'scope, A, O::Output, F> {
        OnDevice { before: self.before, chain: self.chain.then(operator) }
    }

    /// The next operator, on the same device: one with a state, behind which its part ends.
    ///
    /// # Errors
    ///
    /// If there is one already.
    pub fn gathering<G: Gathering<Input = D>>(self, operator: G) -> Result<OnDevice<'scope, A, G::Output, F>, Fault> {
        let chain = self.chain.gathered(operator).ok_or(Fault::State)?;
        Ok(OnDevice { before: self.before, chain })
    }

    /// Back on the CPU.
    ///
    /// # Errors
    ///
    /// As for [`offload`].
    pub fn back(self) -> Result<OnCpu<'scope, D, F>, Fault> {
        let OnCpu { stream, how, mut devices } = self.before;
        let made = devices(self.chain.program());
        Ok(OnCpu { stream: offload(stream, &self.chain, made, how)?, how, devices })
    }
}

/// A graph of operators that differ in nothing but what they do: neighbours on the device become one part.
///
/// # Errors
///
/// As for [`offload`].
pub fn placed<'scope, D: Element, O: Operator<Input = D, Output = D>, V: Device>(
    stream: Stream<'scope, u64, Vec<D>>,
    operators: &[(Place, O)],
    how: Offload,
    devices: impl FnMut(&Program) -> Vec<V>,
) -> Result<Stream<'scope, u64, Vec<D>>, Fault> {
    let mut graph = OnCpu::new(stream, how, devices);
    for part in operators.chunk_by(|(a, _), (b, _)| a == b) {
        let mut rest = part.iter().map(|(_, operator)| operator.clone());
        match part[0].0 {
            Place::Cpu => graph = rest.fold(graph, OnCpu::cpu),
            Place::Device => {
                if let Some(first) = rest.next() {
                    graph = rest.fold(graph.device(first), OnDevice::device).back()?;
                }
            }
        }
    }
    Ok(graph.finish())
}
