//! What every study ends with: predictions beside what a paper published, written down and shown.

use std::path::Path;

use conic_chart::TerminalStyle;
use conic_study::comparison::{Row, compare, parse, summary};
use conic_study::experiment::{Effort, Found};
use conic_study::report::{Report, Subject, json, results};
use conic_study::sensitivity::Moves;

use super::{Shown, output};

/// A paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Whose experiments.
    pub subject: Subject,
    /// The file of its results.
    pub file: &'static str,
    /// What stands in it: what was published. Only the comparison gets it, after everything has been predicted.
    pub published: &'static str,
}

/// What a study was asked for, and what came of it.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// What experiments found, and whether these are all that there are.
    Found(&'a [Found], bool),
    /// How far guesses move the headline results.
    Moved(&'a Moves),
}

/// A study that has predicted everything.
#[derive(Clone, Debug)]
pub struct Predicted<'a> {
    /// What it is compared with.
    pub paper: Paper,
    /// How much was simulated.
    pub effort: Effort,
    /// The platforms' names.
    pub platforms: Vec<String>,
    /// What came of it.
    pub outcome: Outcome<'a>,
}

impl Predicted<'_> {
    /// Compares, and writes everything into a folder, which is made; `draw` draws the results where experiments were run.
    ///
    /// # Errors
    ///
    /// A message: of published results that cannot be read or do not fit what was predicted, or of a file that cannot be written.
    pub fn shown(self, folder: &Path, draw: impl Fn(&[Row]) -> String) -> Result<Shown, String> {
        let (found, all, moves) = match self.outcome {
            Outcome::Found(found, all) => (found, all, None),
            Outcome::Moved(moves) => (&[][..], false, Some(moves)),
        };
        let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
        // From here on, and not before, published values are known.
        let published = parse(self.paper.published).map_err(|error| format!("{}: {error}", self.paper.file))?;
        let rows = compare(&predictions, &published, all)?;
        let summary = summary(&rows);
        let report = Report {
            subject: self.paper.subject,
            effort: self.effort,
            platforms: self.platforms,
            found,
            rows: &rows,
            summary: &summary,
            moves,
        };
        let path = output::write(folder, &report)?;
        let (tables, json) = match self.outcome {
            Outcome::Found(..) => (draw(&rows), json(&rows)),
            Outcome::Moved(Moves { movements, .. }) => {
                (output::movements(movements).draw(TerminalStyle::default()), output::movements_json(movements))
            }
        };
        Ok(Shown::of(&report, path, tables, json))
    }
}

/// All results as one table.
pub fn one_table(rows: &[Row]) -> String {
    results(rows).draw(TerminalStyle::default())
}
