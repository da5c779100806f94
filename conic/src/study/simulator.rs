//! The simulator as the machine that the study asks.

use conic_study::kept::hash;
use conic_study::simulated;
use conic_study::workload::{
    AccessLatency, AccessOutcome, BurstOutcome, Failure, Loopback, LoopbackOutcome, Machine, PingPong, PingPongOutcome,
    ReadOnly, ReadOnlyOutcome, RegisterOutcome, RegisterRead, StoreBurst, StoreThroughput, Stream, StreamOutcome,
    ThroughputOutcome,
};

/// The simulator.
#[derive(Clone, Copy, Debug)]
pub struct Simulator;

/// What is not simulated yet is refused, so that its results are missing and the study says why.
fn missing<T>(what: &str) -> Result<T, Failure> {
    Err(Failure(format!("{what} is not simulated yet")))
}

impl Machine for Simulator {
    fn loopback(&self, question: &Loopback) -> Result<LoopbackOutcome, Failure> {
        if question.offered.is_some() {
            return missing("an open loop");
        }
        simulated::loopback(question).map_err(Failure)
    }

    fn access_latency(&self, _: &AccessLatency) -> Result<AccessOutcome, Failure> {
        missing("the latency of single accesses")
    }

    fn register_read(&self, _: &RegisterRead) -> Result<RegisterOutcome, Failure> {
        missing("a load from a device")
    }

    fn ping_pong(&self, _: &PingPong) -> Result<PingPongOutcome, Failure> {
        missing("a ping-pong")
    }

    fn stream(&self, _: &Stream) -> Result<StreamOutcome, Failure> {
        missing("a stream")
    }

    fn read_only(&self, _: &ReadOnly) -> Result<ReadOnlyOutcome, Failure> {
        missing("a read-only workload")
    }

    fn store_throughput(&self, _: &StoreThroughput) -> Result<ThroughputOutcome, Failure> {
        missing("one core's store throughput")
    }

    fn store_burst(&self, _: &StoreBurst) -> Result<BurstOutcome, Failure> {
        missing("a burst of stores to a device")
    }
}

/// The version of the simulator: of the whole program, since any of its rooms may change what a run gives.
///
/// # Errors
///
/// If the program's own file cannot be read.
pub fn version() -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("the program's own file cannot be read, to tell its version: {error}");
    let path = std::env::current_exe().map_err(cannot)?;
    let bytes = std::fs::read(path).map_err(cannot)?;
    Ok(format!("{} {:016x}", env!("CARGO_PKG_VERSION"), hash(bytes.into_iter())))
}
