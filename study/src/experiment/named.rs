//! Experiments by name: what every study has in common with every other.

use super::findings::Findings;
use crate::workload::Failure;

/// One experiment: a figure, a table, or a few sentences of a paper. `R` is the function that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Named<R> {
    /// What it is called on the command line: a figure's number, or a word.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    pub(crate) run: R,
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

impl<R> Named<R> {
    /// What came of it, run at once and to the end, with `asked` runs of a machine.
    pub(crate) fn found(&self, outcome: Result<Findings, Failure>, asked: usize) -> Found {
        let (findings, failures) = match outcome {
            Ok(findings) => (findings, Vec::new()),
            Err(failure) => (Findings::default(), vec![failure]),
        };
        Found { name: self.name, title: self.title, findings, questions: (asked, 0), failures }
    }
}

/// The experiments of these names, each once, in the order of `all`; all of them where no name is given. A name may have
/// `fig` or `figure` before it; `14` stands for `14a` and `14b`.
///
/// # Errors
///
/// A message that lists the names, if one is unknown.
pub fn chosen<R: Copy>(all: &[Named<R>], names: &[String]) -> Result<Vec<Named<R>>, String> {
    let plain = |name: &String| {
        let lower = name.to_lowercase();
        let bare = ["figure", "fig"].iter().find_map(|prefix| lower.strip_prefix(prefix)).unwrap_or(&lower);
        bare.trim_start_matches(['-', '_', '.', ' ']).to_owned()
    };
    let means = |experiment: &Named<R>, name: &str| {
        experiment.name == name || experiment.name.strip_suffix(['a', 'b']) == Some(name)
    };
    for name in names {
        if !all.iter().any(|experiment| means(experiment, &plain(name))) {
            let known: Vec<&str> = all.iter().map(|experiment| experiment.name).collect();
            return Err(format!("there is no figure \"{name}\"; there are {}", known.join(", ")));
        }
    }
    let wanted = |experiment: &&Named<R>| names.is_empty() || names.iter().any(|name| means(experiment, &plain(name)));
    Ok(all.iter().filter(wanted).copied().collect())
}
