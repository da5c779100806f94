//! Predictions beside what was published, made after every prediction.

mod published;
#[cfg(test)]
mod tests;

pub use published::{Figure, Published, Role, parse};

use crate::experiment::{Prediction, Value};

/// One result: what was predicted and what was published.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its id.
    pub id: String,
    /// The prediction; none if it is not made, or not yet.
    pub predicted: Option<Value>,
    /// What was published; none if it is withheld or was not published.
    pub published: Option<Figure>,
    /// The unit of both.
    pub unit: String,
    /// What the published result is to the study.
    pub role: Role,
    /// How far the prediction is off, relative to what was published; zero for a bound that is kept. None where one of the two
    /// is missing, and for a statement.
    pub error: Option<f64>,
    /// Where it was published.
    pub source: String,
    /// What it says.
    pub about: String,
    /// How it is read, where that is not plain.
    pub note: Option<String>,
}

impl Row {
    /// Whether a statement or a bound turned out as published; none where there is nothing to compare.
    pub fn agrees(&self) -> Option<bool> {
        match (self.predicted.as_ref()?, self.published?) {
            (Value::Holds(predicted), Figure::Holds(published)) => Some(*predicted == published),
            (_, Figure::AtLeast(_) | Figure::AtMost(_)) => self.error.map(|error| error == 0.0),
            _ => None,
        }
    }

    /// What the row is, in a word: the role, or `bound` or `statement` where a prediction is held against one of those, so that
    /// the errors of all rows that say `prediction` may be taken together.
    pub fn kind(&self) -> &'static str {
        match (self.role, self.published) {
            (Role::Prediction, Some(Figure::AtLeast(_) | Figure::AtMost(_))) => "bound",
            (Role::Prediction, Some(Figure::Holds(_))) => "statement",
            _ => self.role.name(),
        }
    }

    /// Whether its error counts: a published value that nothing was fitted to.
    pub fn counts(&self) -> bool {
        self.role == Role::Prediction && matches!(self.published, Some(Figure::Exactly(_)))
    }
}

/// Puts predictions beside published results: a row for each prediction, in the order in which they were made; where `all`
/// experiments ran, also one for each published result that the study does not model.
///
/// # Errors
///
/// A message, if two predictions have the same id, or a prediction has another unit than the published result.
pub fn compare(predictions: &[Prediction], published: &[Published], all: bool) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for prediction in predictions {
        if rows.iter().any(|row| row.id == prediction.id) {
            return Err(format!("{}: it is predicted twice", prediction.id));
        }
        let beside = published.iter().find(|result| result.id == prediction.id);
        if let Some(result) = beside.filter(|result| result.unit != prediction.unit) {
            let (id, ours, theirs) = (prediction.id, prediction.unit, &result.unit);
            return Err(format!("{id}: it is predicted in \"{ours}\" and published in \"{theirs}\""));
        }
        rows.push(row(prediction, beside));
    }
    let missing = |result: &&Published| all && result.role == Role::NotModelled;
    rows.extend(published.iter().filter(missing).map(|result| Row {
        id: result.id.clone(),
        predicted: None,
        published: result.figure,
        unit: result.unit.clone(),
        role: result.role,
        error: None,
        source: result.source.clone(),
        about: result.about.clone(),
        note: result.note.clone(),
    }));
    Ok(rows)
}

fn row(prediction: &Prediction, beside: Option<&Published>) -> Row {
    let figure = beside.and_then(|result| result.figure);
    let text = |of: fn(&Published) -> &String| beside.map(of).cloned().unwrap_or_default();
    Row {
        id: prediction.id.to_owned(),
        predicted: prediction.value.clone(),
        published: figure,
        unit: prediction.unit.to_owned(),
        role: beside.map_or(Role::Unpublished, |result| result.role),
        error: prediction.value.as_ref().zip(figure).and_then(|(value, figure)| error(value, figure)),
        source: text(|result| &result.source),
        about: text(|result| &result.about),
        note: beside.and_then(|result| result.note.clone()),
    }
}

/// How far a value is off, relative to what was published.
fn error(value: &Value, figure: Figure) -> Option<f64> {
    let Value::Number(predicted) = *value else {
        return None;
    };
    match figure {
        Figure::Exactly(published) => Some((predicted - published).abs() / published),
        Figure::AtLeast(bound) => Some((bound - predicted).max(0.0) / bound),
        Figure::AtMost(bound) => Some((predicted - bound).max(0.0) / bound),
        Figure::Holds(_) => None,
    }
}

/// Median error that is aimed for, over published values that nothing was fitted to.
pub const MEDIAN_GOAL: f64 = 0.10;
/// Largest error of each of them that is aimed for.
pub const WORST_GOAL: f64 = 0.25;

/// Error within which what a model was fitted to counts as reproduced.
pub const REPRODUCED: f64 = 0.01;

/// How the predictions did as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Published values that nothing was fitted to and that were predicted.
    pub counted: usize,
    /// The same without a prediction so far.
    pub unanswered: usize,
    /// Median error over those that were predicted; of an even number, the mean of the middle two.
    pub median: Option<f64>,
    /// The largest error and whose it is.
    pub worst: Option<(String, f64)>,
    /// Ids whose error is beyond the goal for each, worst first.
    pub beyond_goal: Vec<String>,
    /// Statements and bounds that nothing was fitted to: how many turned out as published, of how many.
    pub agreeing: (usize, usize),
    /// The ids of those that did not.
    pub disagreeing: Vec<String>,
    /// Withheld results that were predicted.
    pub withheld: usize,
    /// What became of the values that were given to the models.
    pub calibration: Calibration,
}

/// How well the values that the models were fitted to come out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Values and statements that came out.
    pub inputs: usize,
    /// Those within [`REPRODUCED`], and statements that hold.
    pub reproduced: usize,
    /// The largest error and whose it is.
    pub worst: Option<(String, f64)>,
    /// The ids of statements that do not hold.
    pub disagreeing: Vec<String>,
}

/// Sums up the rows.
pub fn summary(rows: &[Row]) -> Summary {
    let counting: Vec<&Row> = rows.iter().filter(|row| row.counts()).collect();
    let mut errors: Vec<(&str, f64)> = counting.iter().filter_map(|row| Some((row.id.as_str(), row.error?))).collect();
    errors.sort_by(|one, other| one.1.total_cmp(&other.1));
    let judged = rows.iter().filter(|row| row.role == Role::Prediction).filter_map(|row| Some((row, row.agrees()?)));
    let judged: Vec<(&Row, bool)> = judged.collect();
    Summary {
        counted: errors.len(),
        unanswered: counting.len() - errors.len(),
        median: median(&errors),
        worst: errors.last().map(|(id, error)| ((*id).to_owned(), *error)),
        beyond_goal: errors
            .iter()
            .rev()
            .filter(|(_, error)| *error > WORST_GOAL)
            .map(|(id, _)| (*id).to_owned())
            .collect(),
        agreeing: (judged.iter().filter(|(_, agrees)| *agrees).count(), judged.len()),
        disagreeing: judged.iter().filter(|(_, agrees)| !agrees).map(|(row, _)| row.id.clone()).collect(),
        withheld: rows.iter().filter(|row| row.role == Role::Withheld && row.predicted.is_some()).count(),
        calibration: calibration(rows),
    }
}

fn calibration(rows: &[Row]) -> Calibration {
    let (mut errors, mut statements) = (Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row.role == Role::Calibration) {
        match (row.error, row.agrees()) {
            (Some(error), _) => errors.push((row.id.clone(), error)),
            (None, Some(agrees)) => statements.push((row.id.clone(), agrees)),
            (None, None) => {}
        }
    }
    let close = errors.iter().filter(|(_, error)| *error <= REPRODUCED).count();
    let hold = statements.iter().filter(|(_, agrees)| *agrees).count();
    Calibration {
        inputs: errors.len() + statements.len(),
        reproduced: close + hold,
        worst: errors.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)),
        disagreeing: statements.into_iter().filter(|(_, agrees)| !agrees).map(|(id, _)| id).collect(),
    }
}

fn median(sorted: &[(&str, f64)]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?.1;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1].1, upper) })
}
