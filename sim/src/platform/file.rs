//! Platform files as text: TOML to definitions, with the line of each.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::entry::{Source, Value};
use super::error::{Faults, did_you_mean};
use super::fields::{Model, SOCKETS};
use super::unit::{self, Unit};

/// How a definition gives its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    /// Outright, in the definition's unit.
    Value(Value),
    /// By a relation to other keys.
    Relation(String),
}

/// What a file says of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    pub(super) given: Given,
    /// None for a switch.
    pub(super) unit: Option<Unit>,
    pub(super) source: Source,
    pub(super) from: String,
    pub(super) range: Option<(f64, f64)>,
    pub(super) file: String,
    pub(super) line: usize,
}

/// Two relations that must agree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    pub(super) is: String,
    pub(super) equals: String,
    /// By which part of `equals` they may differ.
    pub(super) within: f64,
    pub(super) file: String,
    pub(super) line: usize,
}

/// A file, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct File {
    pub(super) description: String,
    pub(super) extends: Option<String>,
    pub(super) definitions: BTreeMap<String, Definition>,
    pub(super) checks: BTreeMap<String, Check>,
}

type Item<'a> = Spanned<DeValue<'a>>;

/// Reads a text; what is wrong with it goes to `faults`.
pub(super) fn read(model: &'static Model, file: &str, text: &str, faults: &mut Faults) -> File {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let mut reader = Reader { model, file, ends, faults, result: File::default() };
    match DeTable::parse(text) {
        Ok(table) => reader.document(table.get_ref()),
        Err(error) => {
            let line = error.span().map(|span| reader.line(&span));
            reader.faults.add(file, line, None, format!("this is not TOML: {}", error.message().trim()));
        }
    }
    reader.result
}

struct Reader<'a> {
    model: &'static Model,
    file: &'a str,
    /// Where the lines end.
    ends: Vec<usize>,
    faults: &'a mut Faults,
    result: File,
}

impl Reader<'_> {
    fn known_sections(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.model.sections.iter().map(|section| section.name).chain(["inputs", "checks"])
    }

    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.ends.partition_point(|end| *end < span.start)
    }

    fn fault(&mut self, span: &Range<usize>, key: &str, message: impl Into<String>) {
        self.faults.add(self.file, Some(self.line(span)), Some(key), message);
    }

    fn document(&mut self, table: &DeTable<'_>) {
        if !self.is_of_model(table) {
            return;
        }
        for (name, item) in table {
            let (span, name) = (name.span(), name.get_ref().as_ref());
            match (name, item.get_ref()) {
                ("description", DeValue::String(text)) => self.result.description = text.to_string(),
                ("extends", DeValue::String(text)) => self.result.extends = Some(text.to_string()),
                ("model", DeValue::String(_)) => {}
                ("description" | "extends" | "model", _) => self.fault(&span, name, "give it a text in quotes"),
                (section, DeValue::Table(table)) => self.section(&span, section, table),
                (section, _) if self.known_sections().any(|known| known == section) => {
                    self.fault(&span, section, "is a table; write [section] on a line and its keys below");
                }
                (name, _) => self.unknown_section(&span, name),
            }
        }
        if self.result.description.trim().is_empty() {
            let message = "say in a line `description = \"...\"` which machine this is";
            self.faults.add(self.file, None, Some("description"), message);
        }
    }

    /// Whether the file is of the kind of machine that is wanted; of another one, nothing else would be worth telling.
    fn is_of_model(&mut self, table: &DeTable<'_>) -> bool {
        let said = table.iter().find(|(name, _)| name.get_ref() == "model");
        let (name, span) = match said.map(|(name, item)| (item.get_ref(), name.span())) {
            Some((DeValue::String(text), span)) => (text.to_string(), Some(span)),
            // What is no text is told where it stands.
            Some(_) => return true,
            None => (SOCKETS.name.to_string(), None),
        };
        let is_right = name == self.model.name;
        if !is_right {
            let line = span.map(|span| self.line(&span));
            let wanted = self.model.name;
            let message = format!("the file is of model \"{name}\", and one of \"{wanted}\" is wanted here");
            self.faults.add(self.file, line, Some("model"), message);
        }
        is_right
    }

    fn unknown_section(&mut self, span: &Range<usize>, name: &str) {
        let known: Vec<&str> = self.known_sections().collect();
        let hint = did_you_mean(name, known.iter().copied());
        self.fault(span, name, format!("there is no such table{hint}; there are {}", known.join(", ")));
    }

    fn section(&mut self, span: &Range<usize>, section: &str, table: &DeTable<'_>) {
        if !self.known_sections().any(|known| known == section) {
            return self.unknown_section(span, section);
        }
        for (name, item) in table {
            let (span, key) = (name.span(), format!("{section}.{}", name.get_ref()));
            let legal = name.get_ref().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
                && name.get_ref().starts_with(|c: char| c.is_ascii_lowercase());
            if !legal {
                self.fault(&span, &key, "a key is of lower-case letters, digits and underscores");
                continue;
            }
            if !["inputs", "checks"].contains(&section) && self.model.find(&key).is_none() {
                let keys = self.model.fields().map(|field| field.key);
                let hint = did_you_mean(&key, keys);
                self.fault(
                    &span,
                    &key,
                    format!("no machine has such a value{hint}; what relations need goes to [inputs]"),
                );
                continue;
            }
            let DeValue::Table(parts) = item.get_ref() else {
                let message = "give it as { value = ..., unit = \"...\", source = \"...\", from = \"...\" }";
                self.fault(&span, &key, message);
                continue;
            };
            if section == "checks" {
                self.check(&span, &key, parts);
            } else {
                self.definition(&span, &key, parts);
            }
        }
    }

    /// The parts of an inline table by name; those with names that are not `known` are faults.
    fn parts<'t>(&mut self, key: &str, table: &'t DeTable<'t>, known: &[&str]) -> BTreeMap<&'t str, &'t Item<'t>> {
        let mut parts = BTreeMap::new();
        for (name, item) in table {
            let text = name.get_ref().as_ref();
            if known.contains(&text) {
                parts.insert(text, item);
            } else {
                let message = format!("`{text}` means nothing here; there are {}", known.join(", "));
                self.fault(&name.span(), key, message);
            }
        }
        parts
    }

    fn text_of(&mut self, key: &str, name: &str, item: Option<&&Item<'_>>) -> Option<String> {
        let item = item?;
        match item.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
            _ => {
                self.fault(&item.span(), key, format!("`{name}` is a text in quotes"));
                None
            }
        }
    }

    fn number_of(&mut self, key: &str, name: &str, item: Option<&&Item<'_>>) -> Option<f64> {
        let item = item?;
        let number = number(item.get_ref());
        if number.is_none() {
            self.fault(&item.span(), key, format!("`{name}` is a finite number"));
        }
        number
    }

    fn check(&mut self, span: &Range<usize>, key: &str, table: &DeTable<'_>) {
        let parts = self.parts(key, table, &["is", "equals", "within", "from"]);
        let is = self.text_of(key, "is", parts.get("is"));
        let equals = self.text_of(key, "equals", parts.get("equals"));
        let within = self.number_of(key, "within", parts.get("within"));
        let (Some(is), Some(equals), Some(within)) = (is, equals, within) else {
            return self.fault(span, key, "a check has `is` and `equals`, two relations, and `within`, a part of 1");
        };
        let (file, line) = (self.file.to_string(), self.line(span));
        self.result.checks.insert(key.to_string(), Check { is, equals, within, file, line });
    }

    fn definition(&mut self, span: &Range<usize>, key: &str, table: &DeTable<'_>) {
        const PARTS: [&str; 7] = ["value", "derived", "unit", "source", "from", "low", "high"];
        let parts = self.parts(key, table, &PARTS);
        let given = self.given(span, key, &parts);
        let is_flag = matches!(given, Some(Given::Value(Value::Flag(_))));
        let unit = self.unit(span, key, parts.get("unit"), is_flag);
        let source = self.source(span, key, parts.get("source"), given.as_ref());
        let from = self.text_of(key, "from", parts.get("from"));
        if from.is_none() {
            self.fault(span, key, "say in `from` which paper and section it is from, or the reasoning");
        }
        let low = self.number_of(key, "low", parts.get("low"));
        let high = self.number_of(key, "high", parts.get("high"));
        let range = match (low, high) {
            (None, None) if is_flag => (source == Some(Source::Guess)).then_some((0.0, 1.0)),
            (Some(low), Some(high)) if low <= high => Some((low, high)),
            (Some(low), Some(high)) => {
                self.fault(span, key, format!("the range from {low} to {high} is empty; exchange `low` and `high`"));
                None
            }
            (None, None) if source != Some(Source::Guess) => None,
            _ => {
                self.fault(span, key, "a guess needs `low` and `high`, and one of them alone says little; give both");
                None
            }
        };
        if let (Some(given), Some(source), Some(from)) = (given, source, from)
            && (unit.is_some() || is_flag)
        {
            let (file, line) = (self.file.to_string(), self.line(span));
            let definition = Definition { given, unit, source, from, range, file, line };
            self.result.definitions.insert(key.to_string(), definition);
        }
    }

    fn given(&mut self, span: &Range<usize>, key: &str, parts: &BTreeMap<&str, &Item<'_>>) -> Option<Given> {
        match (parts.get("value"), parts.get("derived")) {
            (Some(value), None) => match value.get_ref() {
                DeValue::Boolean(flag) => Some(Given::Value(Value::Flag(*flag))),
                _ => self.number_of(key, "value", Some(value)).map(|number| Given::Value(Value::Number(number))),
            },
            (None, Some(_)) => self.text_of(key, "derived", parts.get("derived")).map(Given::Relation),
            _ => {
                self.fault(span, key, "give either `value`, or `derived` with a relation to other keys");
                None
            }
        }
    }

    fn unit(&mut self, span: &Range<usize>, key: &str, item: Option<&&Item<'_>>, is_flag: bool) -> Option<Unit> {
        if item.is_none() && !is_flag {
            self.fault(span, key, "a number needs its `unit`");
        }
        let name = self.text_of(key, "unit", item)?;
        if is_flag {
            self.fault(span, key, "true and false have no unit; leave `unit` out");
            return None;
        }
        let unit = unit::find(&name);
        if unit.is_none() {
            self.fault(span, key, format!("there is no unit \"{name}\"; there are {}", unit::names(None)));
        }
        unit
    }

    fn source(
        &mut self,
        span: &Range<usize>,
        key: &str,
        item: Option<&&Item<'_>>,
        given: Option<&Given>,
    ) -> Option<Source> {
        let is_relation = matches!(given, Some(Given::Relation(_)));
        if item.is_none() && is_relation {
            return Some(Source::Derived);
        }
        let name = self.text_of(key, "source", item);
        match (name.as_deref(), is_relation) {
            (Some("measured"), false) => Some(Source::Measured),
            (Some("document"), false) => Some(Source::Document),
            (Some("guess"), false) => Some(Source::Guess),
            (Some("derived"), true) => Some(Source::Derived),
            (_, true) => {
                self.fault(span, key, "the `source` of a relation is \"derived\"; leave it out");
                None
            }
            (_, false) => {
                self.fault(
                    span,
                    key,
                    "`source` is \"measured\", \"document\" or \"guess\"; a relation goes to `derived`",
                );
                None
            }
        }
    }
}

/// The finite number that a value is.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}
