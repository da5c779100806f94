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
mod loops;
mod memory;
mod prefetching;
mod setting;
mod stores;

pub use findings::{Across, Findings, Plot, Prediction, Reference, Value};
pub use headline::{HEADLINES, headlines};
pub use setting::{Effort, Platforms, Setting};

use crate::ask::{Answers, Ask};
use crate::workload::{Failure, Question};

/// One experiment: a figure, a table, or a few sentences of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called on the command line: a figure's number, or a word.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    run: fn(&Setting, &mut Ask<'_>) -> Findings,
}

macro_rules! experiments {
    ($($name:literal $title:literal $run:path;)*) => {
        /// Every experiment, in the order of the paper.
        pub const EXPERIMENTS: &[Experiment] = &[$(Experiment { name: $name, title: $title, run: $run },)*];
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
    "20" "Hardware prefetching" prefetching::prefetching;
    "21" "Slower interconnects" interconnect::sensitivity;
    "beyond" "Beyond the paper" beyond::switches;
}

/// What an experiment has found so far.
#[derive(Clone, Debug)]
pub struct Found {
    /// What the experiment is called: a figure's number, or a word.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What it found.
    pub findings: Findings,
    /// How many questions it asks, as far as it knows yet, and how many of them have no answer yet.
    pub questions: (usize, usize),
    /// Why some of its questions never get an answer.
    pub failures: Vec<Failure>,
}

/// The experiments of these names, each once, in the order of the paper; all of them where no name is given. A name may have
/// `fig` or `figure` before it; `14` stands for both of its parts.
///
/// # Errors
///
/// A message that lists the names, if one is unknown.
pub fn chosen(names: &[String]) -> Result<Vec<Experiment>, String> {
    let plain = |name: &String| {
        let lower = name.to_lowercase();
        let bare = ["figure", "fig"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
        bare.trim_start_matches(['-', '_', '.', ' ']).to_owned()
    };
    let means = |experiment: &Experiment, name: &str| {
        experiment.name == name || experiment.name.strip_suffix(['a', 'b']) == Some(name)
    };
    for name in names {
        if !EXPERIMENTS.iter().any(|experiment| means(experiment, &plain(name))) {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            return Err(format!("there is no figure \"{name}\"; there are {}", known.join(", ")));
        }
    }
    let wanted =
        |experiment: &&Experiment| names.is_empty() || names.iter().any(|name| means(experiment, &plain(name)));
    Ok(EXPERIMENTS.iter().filter(wanted).copied().collect())
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
