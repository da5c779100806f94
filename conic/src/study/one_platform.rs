//! Studies whose experiments all run on modelled machines of one model.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use conic_sim::platform::{ParameterSet, Platform};
use conic_study::experiment::{Effort, Found, Named, chosen};
use conic_study::sensitivity::{Guess, moved, numbers};

use super::paper::{Outcome, Paper, Predicted, one_table};
use super::{Manner, Shown, guesses, progress};
use crate::bench::failure::Failure;
use crate::writable;

/// What such studies can all be asked.
#[derive(Debug, Args)]
pub struct Common {
    #[command(flatten)]
    manner: Manner,
    /// The folder for results.json, the plots and report.html [default: the study's own in out/study]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace a value of the study's platforms, whose keys `conic platform show` lists; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// What experiments find on platforms.
pub type Find<P, R> = fn(&[Named<R>], &[P], Effort) -> Vec<Found>;

/// Such a study: on platforms of parameters `P`, by functions `R`.
#[derive(Debug)]
pub struct Study<P: 'static, R: 'static> {
    /// What it is compared with.
    pub paper: Paper,
    /// Where its files go if nobody says.
    pub folder: &'static str,
    /// The platforms' names: what `findings` is given, in this order.
    pub platforms: &'static [&'static str],
    /// The experiments.
    pub experiments: &'static [Named<R>],
    /// What some of them find.
    pub findings: Find<P, R>,
    /// Ids and units of the results that guesses are judged by; numbers.
    pub headlines: &'static [(&'static str, &'static str)],
}

impl<P: ParameterSet + Clone + Sync, R: Copy + Sync> Study<P, R> {
    /// Runs it, for these figures or all, and prints it.
    pub fn main(&self, figures: &[String], options: &Common) -> ExitCode {
        let shown = self.run(figures, options).map(|shown| shown.print(options.manner.json));
        shown.unwrap_or_else(|message| Failure::failed(message).report(options.manner.json))
    }

    fn run(&self, figures: &[String], options: &Common) -> Result<Shown, String> {
        let experiments = chosen(self.experiments, figures)?;
        let load = |name: &&str| {
            let platform = Platform::<P>::load_as(name).and_then(|one| one.with(&options.overrides));
            platform.map_err(|error| error.to_string())
        };
        let platforms = self.platforms.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = platforms.iter().map(|platform| platform.name().to_owned()).collect();
        let all: Vec<P> = platforms.iter().map(|platform| platform.parameters().clone()).collect();
        let folder = options.output.clone().unwrap_or_else(|| PathBuf::from(self.folder));
        writable::folder(&folder, "--output").map_err(|failure| failure.message)?;
        let effort = options.manner.effort();
        let predicted = |outcome| Predicted { paper: self.paper, effort, platforms: names.clone(), outcome };
        if options.manner.sensitivity {
            let varied = guesses::of_family(&platforms)?;
            let headlines =
                |parameters: &Vec<P>| numbers(&(self.findings)(self.experiments, parameters, effort), self.headlines);
            let of_both = |guess: &Guess<Vec<P>>| guess.platforms.each_ref().map(headlines);
            let ends = progress::on_all_cores("guesses", &varied, of_both);
            let nominal = headlines(&all);
            let movements = moved(self.headlines, &nominal, varied.iter().zip(ends));
            return predicted(Outcome::Moved(&movements)).shown(&folder, one_table);
        }
        let found = progress::figures(&experiments, |one| (self.findings)(one, &all, effort));
        predicted(Outcome::Found(&found, figures.is_empty())).shown(&folder, one_table)
    }
}
