//! Questions answered by the simulator.

mod access;
mod application;
mod behind_chip;
mod engines;
mod key_value;
mod loopback;
pub mod native;
mod observer;
mod pcie;
mod ping_pong;
pub mod speed;
mod stores;
mod stream;
mod tcp_rpc;
mod unasked;
mod wire;

use crate::workload::{
    AccessLatency, AccessOutcome, BurstOutcome, Failure, KeyValue, KeyValueOutcome, Loopback, LoopbackOutcome, Machine,
    PingPong, PingPongOutcome, ReadOnly, ReadOnlyOutcome, RegisterOutcome, RegisterRead, StoreBurst, StoreThroughput,
    Stream, StreamOutcome, TcpRpc, TcpRpcOutcome, ThroughputOutcome,
};

pub use application::ROUND_TRIP;
pub use loopback::{halves, loopback, observed_loopback};
pub use observer::Observer;

/// The simulator as whoever asks questions sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulator;

impl Machine for Simulator {
    fn loopback(&self, question: &Loopback) -> Result<LoopbackOutcome, Failure> {
        loopback(question).map_err(Failure)
    }
    fn key_value(&self, question: &KeyValue) -> Result<KeyValueOutcome, Failure> {
        key_value::run(question).map_err(Failure)
    }
    fn tcp_rpc(&self, question: &TcpRpc) -> Result<TcpRpcOutcome, Failure> {
        tcp_rpc::run(question).map_err(Failure)
    }
    fn access_latency(&self, question: &AccessLatency) -> Result<AccessOutcome, Failure> {
        access::latency(question)
    }
    fn register_read(&self, question: &RegisterRead) -> Result<RegisterOutcome, Failure> {
        stores::register_read(question)
    }
    fn ping_pong(&self, question: &PingPong) -> Result<PingPongOutcome, Failure> {
        ping_pong::round_trips(question)
    }
    fn stream(&self, question: &Stream) -> Result<StreamOutcome, Failure> {
        stream::stream(question)
    }
    fn read_only(&self, question: &ReadOnly) -> Result<ReadOnlyOutcome, Failure> {
        stream::read_only(question)
    }
    fn store_throughput(&self, question: &StoreThroughput) -> Result<ThroughputOutcome, Failure> {
        stores::throughput(question)
    }
    fn store_burst(&self, question: &StoreBurst) -> Result<BurstOutcome, Failure> {
        stores::burst(question)
    }
}

/// The median of some times in picoseconds, as nanoseconds.
fn median_nanoseconds(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |&time| time as f64 / 1e3)
}

/// How a run failed, for whoever asked.
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure(error.to_string())
}
