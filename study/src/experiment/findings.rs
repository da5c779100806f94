//! What an experiment finds: predictions by id, and plots.

use conic_chart::Chart;

/// What is predicted.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// Several, in an order that the result's description says.
    List(Vec<f64>),
    /// Whether a statement holds.
    Holds(bool),
}

/// A result of the paper, predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Its id, such as `ccnic.fig18.interconnect_share`.
    pub id: &'static str,
    /// The prediction; none while answers that it needs are missing.
    pub value: Option<Value>,
    /// Its unit; `holds` for a statement.
    pub unit: &'static str,
}

/// Along which axis of a plot a result's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// The horizontal axis: a vertical line.
    X,
    /// The vertical axis: a horizontal line.
    Y,
}

/// A result that may be drawn into a plot as a line, by whoever knows its value; in the unit of the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The result's id.
    pub id: &'static str,
    /// Along which axis it lies.
    pub across: Across,
    /// What to write beside the line.
    pub label: String,
}

/// A plot of what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The name of its file, without ending.
    pub name: &'static str,
    /// The plot.
    pub chart: Chart,
    /// Results that belong into it.
    pub references: Vec<Reference>,
}

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Its predictions.
    pub predictions: Vec<Prediction>,
    /// Its plots.
    pub plots: Vec<Plot>,
}

impl Findings {
    /// Predicts a number. One that is not finite is no prediction.
    pub(crate) fn number(&mut self, id: &'static str, unit: &'static str, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite()).map(Value::Number);
        self.predictions.push(Prediction { id, value, unit });
    }

    /// Predicts several numbers. If one is not finite, there is no prediction.
    pub(crate) fn list(&mut self, id: &'static str, unit: &'static str, values: Option<Vec<f64>>) {
        let values = values.filter(|values| values.iter().all(|value| value.is_finite())).map(Value::List);
        self.predictions.push(Prediction { id, value: values, unit });
    }

    /// Predicts whether a statement holds.
    pub(crate) fn holds(&mut self, id: &'static str, value: Option<bool>) {
        self.predictions.push(Prediction { id, value: value.map(Value::Holds), unit: "holds" });
    }

    /// Adds a plot.
    pub(crate) fn plot(&mut self, name: &'static str, chart: Chart) -> &mut Plot {
        self.plots.push(Plot { name, chart, references: Vec::new() });
        self.plots.last_mut().expect("a plot was just added")
    }
}

impl Plot {
    /// Says that a result belongs into the plot.
    pub(crate) fn reference(&mut self, id: &'static str, across: Across, label: &str) -> &mut Plot {
        self.references.push(Reference { id, across, label: label.to_owned() });
        self
    }
}
