//! One value of a platform, with where it comes from.

use std::fmt;

/// What kind of knowledge a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Somebody measured it on this platform, or on one like it that is named.
    Measured,
    /// A specification, a manual or a data sheet says so.
    Document,
    /// It follows from other keys by a relation.
    Derived,
    /// Nobody said; it has a range.
    Guess,
    /// The user replaced it ([`Platform::with`](super::Platform::with)).
    Override,
}

impl Source {
    /// The name in platform files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Document => "document",
            Source::Derived => "derived",
            Source::Guess => "guess",
            Source::Override => "override",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value: a number in its entry's unit, or a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

impl Value {
    /// The number; 1 for yes and 0 for no.
    pub fn number(self) -> f64 {
        match self {
            Value::Number(number) => number,
            Value::Flag(flag) => f64::from(u8::from(flag)),
        }
    }
}

impl fmt::Display for Value {
    /// With at most three decimals, and none where it is whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Number(number) => {
                let text = format!("{number:.3}");
                f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// A resolved value and its provenance.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// As in `core.cores`; keys in `inputs.` are no parameters but what relations begin with.
    pub key: String,
    /// In `unit`.
    pub value: Value,
    /// Empty for a switch.
    pub unit: String,
    /// What kind of knowledge it is.
    pub source: Source,
    /// Which paper and section, or the reasoning.
    pub from: String,
    /// The relation that gave it, where one did.
    pub relation: Option<String>,
    /// Between which values it must lie, in `unit`: always there for a guess. A guessed switch's are 0 and 1.
    pub range: Option<(f64, f64)>,
    /// The file that gave it, or what else the text was called.
    pub file: String,
    /// The line there, from 1; none for an override.
    pub line: Option<usize>,
    /// The value in the unit of the field of `Parameters`; in base units for an input.
    pub(super) plain: f64,
}
