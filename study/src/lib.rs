//! The papers' experiments on modelled machines: workloads, published results, comparison and plots.

pub mod ask;
pub mod comparison;
pub mod experiment;
pub mod kept;
pub mod report;
pub mod sensitivity;
pub mod sequence;
pub mod simulated;
pub mod workload;
