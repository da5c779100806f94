//! The papers' experiments on modelled machines: workloads, published results, comparison and plots.

pub mod sequence;
pub mod workload;
