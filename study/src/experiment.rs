//! The experiments of the CC-NIC paper, each a function of what a modelled machine answers.
//!
//! Nothing in this module, nor in what it uses, knows what was found elsewhere: predictions are made here, and judged by others.

mod ablation;
mod accesses;
mod batching;
mod beyond;
mod cores;
mod curves;
mod findings;
mod headline;
mod interconnect;
mod key_value;
mod loops;
mod memory;
mod named;
mod prefetching;
mod setting;
mod stores;
mod tcp_rpc;

pub use findings::{Across, Findings, Plot, Prediction, Reference, Value};
pub use headline::{HEADLINES, headlines};
pub use named::{Found, Named, chosen};
pub use setting::{Effort, Platforms, Setting};

use crate::ask::{Answers, Ask};
use crate::workload::Question;

/// One experiment of this paper.
pub type Experiment = Named<fn(&Setting, &mut Ask<'_>) -> Findings>;

macro_rules! experiments {
    ($($name:literal $title:literal $run:path;)*) => {
        /// Every experiment, in the order of the paper.
        pub const EXPERIMENTS: &[Experiment] = &[$(Named { name: $name, title: $title, run: $run },)*];
    };
}

experiments! {
    "table1" "Bandwidth of the links" stores::table;
    "mmio" "Loads from a device over PCIe" stores::register_reads;
    "2" "Write throughput by bytes between barriers" stores::barriers;
    "3" "Stores until the write-combining buffers are full" stores::buffers;
    "7" "Access latency by the state of the line" memory::latencies;
    "read-only" "Read-only data rate of the interconnect" memory::read_only;
    "8" "Ping-pong by memory layout" memory::ping_pong;
    "9" "Streams with caching and with non-temporal stores" memory::streams;
    "11" "CC-NIC, the unoptimised interface and PCIe NICs on Ice Lake" curves::four_interfaces;
    "12" "CC-NIC and PCIe NICs on Ice Lake in detail" curves::ice_lake;
    "13" "CC-NIC on Sapphire Rapids" curves::sapphire_rapids;
    "cores" "Host threads for 90% of the highest rate" cores::cores;
    "14a" "Signals in descriptors and in registers" ablation::signals;
    "14b" "Layouts of descriptors" ablation::layouts;
    "15" "Buffer management, one feature less at a time" ablation::buffers;
    "16" "Rate by batch size" batching::batches;
    "17" "Remote accesses a packet" accesses::remote_accesses;
    "18" "The NIC on the host's own socket" accesses::same_socket;
    "19" "Key-value store by threads, directly and through overlays" key_value::store;
    "table2" "TCP echo RPC by fast-path threads, directly and through the overlay" tcp_rpc::echo;
    "20" "Hardware prefetching" prefetching::prefetching;
    "21" "Slower interconnects" interconnect::sensitivity;
    "beyond" "Beyond the paper" beyond::switches;
}

/// What the experiments want to know beyond the answers, each question once; those that take longest come first, so that workers
/// do not wait for a long one at the end. Nothing: the study is complete.
pub fn questions(experiments: &[Experiment], setting: &Setting, answers: &Answers) -> Vec<Question> {
    let mut ask = Ask::new(answers);
    for experiment in experiments {
        (experiment.run)(setting, &mut ask);
    }
    let (mut wanted, _) = ask.finish();
    wanted.sort_by_key(|question| std::cmp::Reverse(question.weight()));
    wanted
}

/// What the experiments have found with these answers.
pub fn findings(experiments: &[Experiment], setting: &Setting, answers: &Answers) -> Vec<Found> {
    let found = |experiment: &Experiment| {
        let mut ask = Ask::new(answers);
        let findings = (experiment.run)(setting, &mut ask);
        let asked = ask.asked();
        let (wanted, failures) = ask.finish();
        Found { name: experiment.name, title: experiment.title, findings, questions: (asked, wanted.len()), failures }
    };
    experiments.iter().map(found).collect()
}
