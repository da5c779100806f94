//! The papers' experiments on modelled machines: workloads, published results, comparison and plots.
//!
//! The way of a result: an experiment ([`experiment`]) asks ([`ask`]) questions of a machine ([`workload`]), which the simulator
//! ([`simulated`]) answers; answers are kept ([`kept`]) from one study to the next. From the answers the experiment makes
//! predictions and plots. Only then the comparison ([`comparison`]) reads what was published, and the report ([`report`]) shows
//! both. [`sensitivity`] asks the headline results again with each guess of the platforms at the ends of its range.
//!
//! [`coherent_pio`], [`cxl_nic`], [`cni`] and [`host_network`] are other papers', on other machines: their runs are short, and are made at once.
//!
//! A further experiment is a function in `experiment/` and a line in its table; a further kind of question is a type in
//! `workload/`, a line in the list of `workload/machine.rs`, and a method of whoever answers.

pub mod ask;
pub mod cni;
pub mod coherent_pio;
pub mod comparison;
pub mod cxl_nic;
pub mod experiment;
pub mod host_network;
pub mod kept;
pub mod report;
pub mod sensitivity;
pub mod sequence;
pub mod simulated;
pub mod workload;
