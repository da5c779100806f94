//! From what the files say of each key to its value.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Value};
use super::error::Faults;
use super::expression::{self, Trouble};
use super::fields::{Field, Kind, Model};
use super::file::{Definition, File, Given};
use super::unit::{self, Dimension, Quantity, Unit};

/// How many relations may stand behind each other: a hostile file must not exhaust the stack.
const MOST_DEEP: usize = 40;

/// The key that turns cycles into times.
const CLOCK: &str = "core.frequency_megahertz";

/// Whether values are those of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As the files give them: checks hold, and every input of the first file is there for a relation.
    AsGiven,
    /// One or more were replaced.
    Changed,
}

/// The values of all keys; what has none goes to `faults`. `label` is the file to blame for what is missing.
pub(super) fn resolve(
    model: &'static Model,
    label: &str,
    file: &File,
    state: State,
    faults: &mut Faults,
) -> BTreeMap<String, Entry> {
    let mut resolver =
        Resolver { model, file, values: BTreeMap::new(), used: BTreeSet::new(), pending: Vec::new(), faults };
    resolver.require(label);
    for key in file.definitions.keys() {
        // What is wrong with it is among the faults.
        let _ = resolver.value(key);
    }
    if state == State::AsGiven {
        resolver.check();
        resolver.find_unused(label);
    }
    let mut entries = BTreeMap::new();
    for (key, definition) in &file.definitions {
        if let Some(Some(quantity)) = resolver.values.get(key) {
            entries.insert(key.clone(), entry(model, key, definition, *quantity));
        }
    }
    entries
}

/// The value of an override or of one point of a range, in the field's unit.
///
/// # Errors
///
/// What is wrong with it, without file and key.
pub(super) fn plain(model: &Model, key: &str, value: Value, unit: Option<Unit>, megahertz: f64) -> Result<f64, String> {
    let field = model.find(key).ok_or("there is no such value")?;
    let quantity = quantity_of(value, unit);
    let clock = || Ok(Quantity { number: megahertz * 1e-6, dimension: Dimension::FREQUENCY });
    match fit(field, unit, quantity, matches!(value, Value::Flag(_)), false, clock) {
        Ok(fitted) => Ok(in_field(field, fitted)),
        Err(Trouble::Message(message)) => Err(message),
        Err(Trouble::Told) => Err("the clock has no value".to_string()),
    }
}

struct Resolver<'a> {
    model: &'static Model,
    file: &'a File,
    /// None: there is no value, and why is among the faults.
    values: BTreeMap<String, Option<Quantity>>,
    /// The keys that a relation or a check names.
    used: BTreeSet<String>,
    /// The keys whose relations are being evaluated, in order.
    pending: Vec<String>,
    faults: &'a mut Faults,
}

impl Resolver<'_> {
    /// Finds the keys that no file gives.
    fn require(&mut self, label: &str) {
        for section in self.model.sections {
            let given = |field: &Field| self.file.definitions.contains_key(field.key);
            if section.optional && !section.fields.iter().any(given) {
                continue;
            }
            for field in section.fields {
                if !given(field) {
                    let message = format!("is missing; add it to [{}]", section.name);
                    self.faults.add(label, None, Some(field.key), message);
                }
            }
        }
    }

    /// The value of a key in base units.
    ///
    /// # Errors
    ///
    /// Why there is none, for whoever asked; what is wrong with the key itself is noted once, and then told.
    fn value(&mut self, key: &str) -> Result<Quantity, Trouble> {
        if let Some(value) = self.values.get(key) {
            return value.ok_or(Trouble::Told);
        }
        if let Some(at) = self.pending.iter().position(|pending| pending == key) {
            let circle = self.pending[at..].join(" needs ");
            let message = format!("the relations go in a circle: {circle} needs {key}; give one of them a value");
            return Err(message.into());
        }
        if self.pending.len() >= MOST_DEEP {
            let message = format!("more than {MOST_DEEP} relations stand behind each other; give one of them a value");
            return Err(message.into());
        }
        let file = self.file;
        let Some(definition) = file.definitions.get(key) else {
            return Err(format!("{key} is not given; add it, or mend the relation").into());
        };
        self.pending.push(key.to_string());
        let result = self.evaluate(key, definition);
        self.pending.pop();
        self.values.insert(key.to_string(), result.as_ref().ok().copied());
        result.map_err(|trouble| {
            if let Trouble::Message(message) = trouble {
                self.faults.add(&definition.file, Some(definition.line), Some(key), message);
            }
            Trouble::Told
        })
    }

    fn evaluate(&mut self, key: &str, definition: &Definition) -> Result<Quantity, Trouble> {
        let (quantity, is_flag, is_relation) = match &definition.given {
            Given::Value(value) => (quantity_of(*value, definition.unit), matches!(value, Value::Flag(_)), false),
            Given::Relation(text) => (expression::evaluate(text, &mut |key| self.operand(key))?, false, true),
        };
        if let Some(unit) = definition.unit
            && unit.dimension != quantity.dimension
        {
            let (is, names) = (quantity.dimension.name(), unit::names(Some(quantity.dimension)));
            return Err(format!("the relation gives {is}, which is not in {}; try {names}", unit.name).into());
        }
        let value = match self.model.find(key) {
            Some(field) => fit(field, definition.unit, quantity, is_flag, is_relation, || self.value(CLOCK))?,
            None => quantity,
        };
        let shown = quantity.number / definition.unit.map_or(1.0, |unit| unit.scale);
        match definition.range {
            Some((low, high)) if !contains(low, high, shown) => {
                let shown = Value::Number(shown);
                Err(format!("{shown} is outside its range of {low} to {high}; mend the value or the range").into())
            }
            _ => Ok(value),
        }
    }

    /// A key of a relation.
    fn operand(&mut self, key: &str) -> Result<Quantity, Trouble> {
        self.used.insert(key.to_string());
        let definition = self.file.definitions.get(key);
        if definition.is_some_and(|definition| matches!(definition.given, Given::Value(Value::Flag(_)))) {
            return Err(format!("{key} is true or false, and no number").into());
        }
        self.value(key)
    }

    /// Finds inputs without a purpose: misspelt, or their relations are cut off.
    fn find_unused(&mut self, label: &str) {
        for (key, definition) in &self.file.definitions {
            if key.starts_with("inputs.") && definition.file == label && !self.used.contains(key) {
                let message = "no relation and no check uses it; remove it, or mend what should use it";
                self.faults.add(&definition.file, Some(definition.line), Some(key), message);
            }
        }
    }

    /// Evaluates the checks.
    fn check(&mut self) {
        let file = self.file;
        for (key, check) in &file.checks {
            let is = expression::evaluate(&check.is, &mut |key| self.operand(key));
            let equals = expression::evaluate(&check.equals, &mut |key| self.operand(key));
            let message = match (is, equals) {
                (Err(Trouble::Told), _) | (_, Err(Trouble::Told)) => continue,
                (Err(Trouble::Message(message)), _) | (_, Err(Trouble::Message(message))) => message,
                (Ok(is), Ok(equals)) if is.dimension != equals.dimension => {
                    format!("{} and {} are never equal", is.dimension.name(), equals.dimension.name())
                }
                (Ok(is), Ok(equals)) => {
                    let apart = (is.number - equals.number).abs();
                    if apart <= check.within * equals.number.abs() {
                        continue;
                    }
                    let part = apart / equals.number.abs();
                    let (left, right, within) = (&check.is, &check.equals, check.within);
                    format!("{left} is not {right}: they differ by {part:.4} of it, and may by {within}")
                }
            };
            self.faults.add(&check.file, Some(check.line), Some(key), message);
        }
    }
}

/// Whether a value is in its range, but for the error of computing it.
pub(super) fn contains(low: f64, high: f64, value: f64) -> bool {
    let slack = 1e-9 * value.abs();
    low - slack <= value && value <= high + slack
}

fn quantity_of(value: Value, unit: Option<Unit>) -> Quantity {
    let (scale, dimension) = unit.map_or((1.0, Dimension::NONE), |unit| (unit.scale, unit.dimension));
    Quantity { number: value.number() * scale, dimension }
}

/// The value that a field takes, in base units but as exact as the field's unit allows.
fn fit(
    field: &Field,
    unit: Option<Unit>,
    quantity: Quantity,
    is_flag: bool,
    is_relation: bool,
    clock: impl FnOnce() -> Result<Quantity, Trouble>,
) -> Result<Quantity, Trouble> {
    let (dimension, scale) = field.kind.unit();
    if is_flag != (field.kind == Kind::Flag) {
        let wanted = if is_flag { "a number, not true or false" } else { "true or false, not a number" };
        return Err(format!("give {wanted}").into());
    }
    if let (Kind::Count(counted), Some(unit)) = (field.kind, unit)
        && unit.name != counted
    {
        return Err(format!("its unit is \"{counted}\", not \"{}\"", unit.name).into());
    }
    let mut quantity = quantity;
    let mut rounds = is_relation && field.kind.rounds();
    if dimension == Dimension::TIME && quantity.dimension == Dimension::CYCLES && !is_relation {
        quantity = Quantity { number: quantity.number / clock()?.number, dimension };
        rounds = true;
    }
    if quantity.dimension != dimension {
        let (is, names) = (quantity.dimension.name(), unit::names(Some(dimension)));
        return Err(format!("{is} is given, and {} is wanted; its unit is one of {names}", dimension.name()).into());
    }
    let number = quantity.number / scale;
    if field.kind == Kind::Ratio {
        return within(field, number).map(|()| quantity);
    }
    let whole = number.round();
    if !rounds && (number - whole).abs() > 1e-9 * number.abs().max(1.0) {
        return Err(
            format!("{number} {} is not whole; the simulator counts in whole ones", field.kind.own_unit()).into()
        );
    }
    within(field, whole)?;
    Ok(Quantity { number: whole * scale, dimension })
}

/// Whether a number in the field's unit is one that it may have.
fn within(field: &Field, number: f64) -> Result<(), Trouble> {
    let (unit, given) = (field.kind.own_unit(), Value::Number(number));
    if number < field.least {
        return Err(format!("{given} {unit} is too little; at least {} {unit}", field.least).into());
    }
    if number > field.most {
        return Err(format!("{given} {unit} is too much; at most {} {unit}", field.most).into());
    }
    Ok(())
}

fn in_field(field: &Field, quantity: Quantity) -> f64 {
    let number = quantity.number / field.kind.unit().1;
    if field.kind == Kind::Ratio { number } else { number.round() }
}

fn entry(model: &Model, key: &str, definition: &Definition, quantity: Quantity) -> Entry {
    let plain = model.find(key).map_or(quantity.number, |field| in_field(field, quantity));
    let (value, relation) = match &definition.given {
        Given::Value(value) => (*value, None),
        Given::Relation(text) => {
            let scale = definition.unit.map_or(1.0, |unit| unit.scale);
            (Value::Number(quantity.number / scale), Some(text.clone()))
        }
    };
    Entry {
        key: key.to_string(),
        value,
        unit: definition.unit.map_or(String::new(), |unit| unit.name.to_string()),
        source: definition.source,
        from: definition.from.clone(),
        relation,
        range: definition.range,
        file: definition.file.clone(),
        line: Some(definition.line),
        plain,
    }
}
