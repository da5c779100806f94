//! What a paper published, as written in `results/`.

use std::collections::BTreeSet;

use serde::Deserialize;

/// What a published result is to the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The platforms were fitted to it, or it follows from such results alone.
    Calibration,
    /// Nothing was fitted to it.
    Prediction,
    /// Nothing was fitted to it, and what was run is published in part only, so that its error is shown and not counted.
    Indicative,
    /// A blind test: its value is not known here.
    Withheld,
    /// The study makes no prediction of it.
    NotModelled,
    /// Predicted, and not in the paper: no role of a published result.
    #[serde(skip)]
    Unpublished,
}

impl Role {
    /// Its name, as written in `results/`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Calibration => "calibration",
            Role::Prediction => "prediction",
            Role::Indicative => "indicative",
            Role::Withheld => "withheld",
            Role::NotModelled => "not-modelled",
            Role::Unpublished => "unpublished",
        }
    }
}

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A value.
    Exactly(f64),
    /// A bound from below.
    AtLeast(f64),
    /// A bound from above.
    AtMost(f64),
    /// A statement, which holds or does not.
    Holds(bool),
}

/// One published result.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Its id.
    pub id: String,
    /// What was published; none if it is withheld.
    pub figure: Option<Figure>,
    /// Its unit.
    pub unit: String,
    /// What it is to the study.
    pub role: Role,
    /// Where it stands.
    pub source: String,
    /// What it says.
    pub about: String,
    /// How it is read, where that is not plain.
    pub note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    result: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    holds: Option<bool>,
    unit: String,
    role: Role,
    source: String,
    about: String,
    note: Option<String>,
}

/// Reads a file of `results/`.
///
/// # Errors
///
/// A message that says what is wrong, and in which line or in which result: no TOML, an unknown key, an id twice, a value that is
/// missing, doubled, not finite or not allowed with its role.
pub fn parse(text: &str) -> Result<Vec<Published>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let mut seen = BTreeSet::new();
    for entry in &file.result {
        if !seen.insert(entry.id.clone()) {
            return Err(format!("{}: there are two results of this id; remove one", entry.id));
        }
    }
    file.result.into_iter().map(Entry::check).collect()
}

impl Entry {
    fn check(self) -> Result<Published, String> {
        let figures: Vec<Figure> = [
            self.value.map(Figure::Exactly),
            self.at_least.map(Figure::AtLeast),
            self.at_most.map(Figure::AtMost),
            self.holds.map(Figure::Holds),
        ]
        .into_iter()
        .flatten()
        .collect();
        let wrong = |what: &str| Err(format!("{}: {what}", self.id));
        let figure = match (self.role, &figures[..]) {
            (Role::Withheld, []) => None,
            (Role::Withheld, _) => return wrong("it is withheld, and yet has a value; remove the value"),
            (_, [figure]) => Some(*figure),
            (_, []) => return wrong("it has no value; give one of value, at_least, at_most, holds"),
            _ => return wrong("it has several values; give one of value, at_least, at_most, holds"),
        };
        match figure {
            Some(Figure::Exactly(value) | Figure::AtLeast(value) | Figure::AtMost(value))
                if !value.is_finite() || value <= 0.0 =>
            {
                return wrong("its value is not a positive number, so that no error relative to it can be told");
            }
            Some(Figure::Holds(_)) if self.unit != "holds" => return wrong("a statement's unit is \"holds\""),
            _ => {}
        }
        let Entry { id, unit, role, source, about, note, .. } = self;
        Ok(Published { id, figure, unit, role, source, about, note })
    }
}
