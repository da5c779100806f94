//! Calls of the functions of [`conic_load`] on a modelled machine's device, in each way that the machine has to it: the runs that
//! the figures make, for whoever asks what a call would cost.

use conic_fabric::Time;
use conic_interface::xdma::Completion;
use conic_load::Function;
use conic_sim::eci::EciParameters;
use conic_sim::eci::parameters::EciDeviceParameters;
use conic_sim::{Failure, Parameters};

use super::calling::{Makes, service};
use super::exchange;
use super::pcie::{self, Transport};

/// A way to a device.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Groups of coherent lines whose home is the device.
    Lines(&'a EciParameters),
    /// PCIe, and the values of the device's logic, which are in cycles: its clock is the machine's own.
    Pcie(&'a Parameters, Transport, &'a EciDeviceParameters),
}

/// How long calls took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Took {
    /// Each that counts, from before its request is written until its response was read, in picoseconds.
    pub latencies: Vec<u64>,
    /// From the beginning of the first to the end of the last.
    pub elapsed: Time,
}

impl<'a> Way<'a> {
    /// The ways to the device of a machine with a PCIe card; none where it has none.
    pub fn over_pcie(machine: &'a Parameters, logic: &'a EciDeviceParameters) -> Vec<Way<'a>> {
        let has_card = machine.fpga.is_some() && machine.driver.is_some();
        let ways = [Transport::Pio, Transport::Dma(Completion::Polled), Transport::Dma(Completion::Interrupt)];
        ways.into_iter().filter(|_| has_card).map(|transport| Way::Pcie(machine, transport, logic)).collect()
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Way::Lines(_) => "pio",
            Way::Pcie(_, Transport::Pio, _) => "pcie-pio",
            Way::Pcie(_, Transport::Dma(Completion::Polled), _) => "dma-polled",
            Way::Pcie(_, Transport::Dma(Completion::Interrupt), _) => "dma-interrupt",
        }
    }

    /// Calls a function with so many bytes, one call after the other; a few before those that count. Every response is compared with
    /// what the function gives.
    ///
    /// # Errors
    ///
    /// The simulator's, where the calls never end.
    ///
    /// # Panics
    ///
    /// If there are no bytes, or more than 64 KiB; if a response is wrong.
    pub fn call(self, function: Function, bytes: usize, calls: u64) -> Result<Took, Failure> {
        let makes = Makes::Result(function);
        match self {
            Way::Lines(machine) => {
                let service = service(function, bytes, &machine.device, machine.device.cycle);
                let question = exchange::Calls::new(machine, bytes, makes, (16, calls));
                let outcome = exchange::calls(&exchange::Calls { service, ..question })?;
                Ok(Took { latencies: outcome.latencies, elapsed: outcome.elapsed })
            }
            Way::Pcie(machine, transport, logic) => {
                let cycle = machine.fpga.as_ref().map_or(0, |fpga| fpga.cycle);
                let outcome = pcie::calls::calls(&pcie::calls::Calls {
                    machine: machine.clone(),
                    transport,
                    request: bytes,
                    response: makes.response_bytes(bytes),
                    makes,
                    service: service(function, bytes, logic, cycle),
                    calls: (4, calls),
                })?;
                Ok(Took { latencies: outcome.latencies, elapsed: outcome.elapsed })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use conic_sim::platform::Platform;

    use super::super::percentile;
    use super::*;

    #[test]
    fn a_call_takes_what_the_figures_say_and_hashes_their_pipeline_more() {
        let enzian = Platform::<EciParameters>::load_as("enzian").expect("it is shipped").parameters().clone();
        let card = Platform::load("enzian-pcie").expect("it is shipped").parameters().clone();
        let median =
            |way: Way<'_>, function, bytes| percentile(&way.call(function, bytes, 8).expect("it ends").latencies, 0.5);
        let lines = Way::Lines(&enzian);
        // A line there and back: the point that was fitted.
        assert!((median(lines, Function::Echo, 120) - 900.0).abs() < 0.01);
        let ways = Way::over_pcie(&card, &enzian.device);
        assert_eq!(
            [lines].iter().chain(&ways).map(|way| way.name()).collect::<Vec<_>>(),
            ["pio", "pcie-pio", "dma-polled", "dma-interrupt"]
        );
        let (echo, bloom) = (median(lines, Function::Echo, 64), median(lines, Function::Bloom, 64));
        let pipeline = 64.0 * enzian.device.cycle as f64 / 1e3;
        assert!((bloom - echo - pipeline).abs() < 1.0, "{echo} {bloom}: a request and a response of a line each");
        for way in ways {
            // Twelve loads of 16 bytes, or a driver's calls. A checksum's are fewer, and stores over PCIe wait for nothing.
            let over_pcie = median(way, Function::Bloom, 300);
            assert!(over_pcie > median(lines, Function::Bloom, 300), "{}: {over_pcie} ns", way.name());
        }
        let none = Platform::load("icx").expect("it is shipped").parameters().clone();
        assert!(Way::over_pcie(&none, &enzian.device).is_empty());
    }
}
