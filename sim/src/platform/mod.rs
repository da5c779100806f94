//! Platforms: the machines that are modelled, each a file of values with their provenance (`platforms/README.md`).
//!
//! A file is read (`file`), its relations are evaluated (`expression`, `resolve`, `unit`), and what comes out is
//! [`Parameters`] (`fields`) beside the [`Entry`]s that say where each value is from. Anything that is missing, unknown,
//! of the wrong unit, outside its range or circular is a [`Fault`] with file, line and key.

mod entry;
mod error;
mod expression;
mod fields;
mod file;
mod resolve;
mod unit;

#[cfg(test)]
mod shipped;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

pub use entry::{Entry, Source, Value};
pub use error::{Fault, Faults, PlatformError};
pub use fields::{BUSES, CXL, ECI, Field, HOST, Kind, Model, ParameterSet, SOCKETS, Section};

use crate::Parameters;
use error::did_you_mean;
use file::{Definition, File, Given};
use resolve::State;
use unit::Unit;

/// The platforms that come with the program: name and text.
const SHIPPED: &[(&str, &str)] = &[
    ("icx", include_str!("../../../platforms/icx.toml")),
    ("spr", include_str!("../../../platforms/spr.toml")),
    ("icx-cx6", include_str!("../../../platforms/icx-cx6.toml")),
    ("icx-e810", include_str!("../../../platforms/icx-e810.toml")),
    ("thunderx", include_str!("../../../platforms/thunderx.toml")),
    ("enzian-pcie", include_str!("../../../platforms/enzian-pcie.toml")),
    ("pc-pcie", include_str!("../../../platforms/pc-pcie.toml")),
];

/// What some of these have in common, and is none by itself: name and text.
const PARTS: &[(&str, &str)] = &[("fpga-card", include_str!("../../../platforms/fpga-card.toml"))];

/// Platforms that are machines of a CPU and a device that is home to coherent lines.
const SHIPPED_ECI: &[(&str, &str)] = &[
    ("enzian", include_str!("../../../platforms/enzian.toml")),
    ("cxl3-mem", include_str!("../../../platforms/cxl3-mem.toml")),
];

/// The same of hosts with a device behind a CXL or a PCIe link.
const SHIPPED_CXL: &[(&str, &str)] = &[
    ("agilex7", include_str!("../../../platforms/agilex7.toml")),
    ("bf3", include_str!("../../../platforms/bf3.toml")),
    ("cxl-asic", include_str!("../../../platforms/cxl-asic.toml")),
    ("cxl3-asic", include_str!("../../../platforms/cxl3-asic.toml")),
];

/// The same of nodes whose processor and network interface share snooping buses.
const SHIPPED_BUSES: &[(&str, &str)] = &[("hypersparc", include_str!("../../../platforms/hypersparc.toml"))];

/// Hosts whose ways to memory are modelled.
const SHIPPED_HOST: &[(&str, &str)] = &[
    ("cascade-lake", include_str!("../../../platforms/cascade-lake.toml")),
    ("ice-lake", include_str!("../../../platforms/ice-lake.toml")),
];

/// The kinds of machines.
const MODELS: [&Model; 5] = [SOCKETS, ECI, CXL, BUSES, HOST];

/// No platform file is longer.
const MOST_BYTES: u64 = 1 << 20;

/// How many files may extend each other.
const MOST_FILES: usize = 8;

/// A platform: its parameters, and where each of them is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Platform<P = Parameters> {
    name: String,
    file: File,
    overrides: Vec<Override>,
    entries: BTreeMap<String, Entry>,
    parameters: P,
}

/// A value that the user replaced.
#[derive(Clone, Debug, PartialEq)]
struct Override {
    key: String,
    value: Value,
    unit: Option<Unit>,
}

/// The kind of machine that a platform is: by name, or by what its file says. A file that cannot be read, or says nothing, is
/// taken for one of [`SOCKETS`]; loading it tells what is wrong.
pub fn model_of(name_or_path: &str) -> &'static Model {
    let shipped = MODELS.into_iter().find(|model| model.text_of(name_or_path).is_some());
    let said = || {
        let text = if is_path(name_or_path) { read(Path::new(name_or_path)).ok() } else { None };
        let table: toml::Table = text?.parse().ok()?;
        let name = table.get("model")?.as_str()?;
        MODELS.into_iter().find(|model| model.name == name)
    };
    shipped.or_else(said).unwrap_or(SOCKETS)
}

fn is_path(name_or_path: &str) -> bool {
    name_or_path.ends_with(".toml") || name_or_path.contains('/')
}

impl Platform {
    /// The names of the platforms of [`SOCKETS`] that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        names_of(SOCKETS)
    }

    /// [`Platform::load_as`] for a machine of [`SOCKETS`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn load(name_or_path: &str) -> Result<Platform, PlatformError> {
        Platform::load_as(name_or_path)
    }

    /// [`Platform::parse_as`] for a machine of [`SOCKETS`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn parse(name: &str, text: &str, resolver: &dyn Fn(&str) -> Option<String>) -> Result<Platform, PlatformError> {
        Platform::parse_as(name, text, resolver)
    }
}

/// The names of the platforms of a model that come with the program.
pub fn names_of(model: &'static Model) -> impl Iterator<Item = &'static str> {
    model.shipped.iter().map(|(name, _)| *name)
}

impl<P: ParameterSet> Platform<P> {
    /// A platform that comes with the program, by name, or the one in a file, by its path: what ends in `.toml` or has a
    /// slash in it. A file may extend another of its own folder, or one that comes with the program.
    ///
    /// # Errors
    ///
    /// There is no such platform, it is another kind of machine, the file cannot be read, or what is wrong with it.
    pub fn load_as(name_or_path: &str) -> Result<Platform<P>, PlatformError> {
        let shipped = |name: &str| P::MODEL.text_to_extend(name);
        if !is_path(name_or_path) {
            let Some(text) = P::MODEL.text_of(name_or_path) else {
                return Err(PlatformError::one(name_or_path, no_such(P::MODEL, name_or_path)));
            };
            return Platform::parse_as(name_or_path, text, &|name| shipped(name).map(str::to_string));
        }
        let path = Path::new(name_or_path);
        let text = read(path).map_err(|why| PlatformError::one(name_or_path, why))?;
        let sibling = |name: &str| path.with_file_name(format!("{name}.toml"));
        let resolver = |name: &str| {
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
            is_name.then(|| read(&sibling(name)).ok().or_else(|| shipped(name).map(str::to_string)))?
        };
        let name = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        Platform::parse_as(&name, &text, &resolver)
    }

    /// The platform that a text describes. `resolver` knows the texts of the platforms that it may extend, by name.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it, in the order of the lines.
    pub fn parse_as(
        name: &str,
        text: &str,
        resolver: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Platform<P>, PlatformError> {
        let mut faults = Faults::default();
        let file = with_bases(P::MODEL, name, text, resolver, &mut faults);
        // Without a whole set of definitions most relations would only repeat what is known to be wrong.
        faults.finish()?;
        Platform::resolve(name, file, Vec::new(), State::AsGiven)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which machine it is, in a line.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// What the simulator is given.
    pub fn parameters(&self) -> &P {
        &self.parameters
    }

    /// Every value with its provenance: parameters in the order of [`Parameters`], then the inputs of relations.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let inputs = self.entries.values().filter(|entry| entry.key.starts_with("inputs."));
        P::MODEL.fields().filter_map(|field| self.entries.get(field.key)).chain(inputs)
    }

    /// The value of a key, with its provenance.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The values that nobody measured or documented, inputs of relations among them.
    pub fn guesses(&self) -> impl Iterator<Item = &Entry> {
        self.entries().filter(|entry| entry.source == Source::Guess)
    }

    /// The parameters of a machine that is like this one but for one value, in the unit of its entry; 0 or 1 for a switch.
    ///
    /// This is for sensitivity: what follows from the key by relations follows from the new value, so calibrated sums
    /// still hold.
    ///
    /// # Errors
    ///
    /// There is no such key, the user replaced it, the value is outside its range, or leaves another without a value that
    /// can be.
    pub fn vary(&self, key: &str, value: f64) -> Result<P, PlatformError> {
        let entry = self.entries.get(key).ok_or_else(|| self.unknown(key))?;
        let mut file = self.file.clone();
        let definition = file.definitions.get_mut(key).ok_or_else(|| self.unknown(key))?;
        if entry.source == Source::Override {
            return Err(self.refuse(key, "it was replaced; vary it in the platform without that override"));
        }
        if let Some((low, high)) = definition.range
            && !resolve::contains(low, high, value)
        {
            return Err(self.refuse(key, format!("{value} is outside its range of {low} to {high}")));
        }
        let is_flag = matches!(entry.value, Value::Flag(_));
        definition.given = Given::Value(if is_flag { Value::Flag(value != 0.0) } else { Value::Number(value) });
        Platform::resolve(&self.name, file, self.overrides.clone(), State::Changed).map(|platform| platform.parameters)
    }

    /// The same platform with some values replaced, each as `key=value`: a number in the unit of the key's entry, or with a
    /// unit of its own (`interconnect.crossing=40ns`), or `true` or `false`.
    ///
    /// This is for asking what another machine would do: a parameter changes alone, whatever relations gave it and its
    /// neighbours; an input (`inputs.`) changes what follows from it. Ranges describe the platform's own machine, so they do
    /// not bind; units and what the simulator can represent do.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the overrides.
    pub fn with(&self, overrides: &[impl AsRef<str>]) -> Result<Platform<P>, PlatformError> {
        let mut faults = Faults::default();
        let mut all = self.overrides.clone();
        for text in overrides {
            match self.read_override(text.as_ref()) {
                Ok(one) => {
                    all.retain(|earlier| earlier.key != one.key);
                    all.push(one);
                }
                Err(message) => faults.add(&self.name, None, Some(text.as_ref()), message),
            }
        }
        faults.finish()?;
        Platform::resolve(&self.name, self.file.clone(), all, State::Changed)
    }

    fn read_override(&self, text: &str) -> Result<Override, String> {
        let (key, value) = text.split_once('=').ok_or("an override is written key=value")?;
        let (key, value) = (key.trim(), value.trim());
        let Some(entry) = self.entries.get(key) else {
            return Err(self.unknown(key).faults.remove(0).message);
        };
        let key = key.to_string();
        let flag = match value {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        if let Some(flag) = flag {
            return Ok(Override { key, value: Value::Flag(flag), unit: None });
        }
        let digits = value.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(value.len());
        let (number, unit) = (&value[..digits], value[digits..].trim());
        let number: f64 = number.parse().map_err(|_| format!("\"{value}\" does not begin with a number"))?;
        let own = if unit.is_empty() { entry.unit.as_str() } else { unit };
        let unit = unit::find(own);
        if unit.is_none() && !entry.unit.is_empty() {
            return Err(format!("there is no unit \"{own}\"; there are {}", unit::names(None)));
        }
        Ok(Override { key, value: Value::Number(number), unit })
    }

    fn unknown(&self, key: &str) -> PlatformError {
        let hint = did_you_mean(key, self.entries.keys().map(String::as_str));
        self.refuse(key, format!("{} has no such value{hint}; `conic platform show` lists them", self.name))
    }

    fn refuse(&self, key: &str, message: impl Into<String>) -> PlatformError {
        let fault = Fault { file: self.name.clone(), line: None, key: Some(key.to_string()), message: message.into() };
        PlatformError { faults: vec![fault] }
    }

    /// Evaluates the relations and makes the parameters.
    fn resolve(
        name: &str,
        mut file: File,
        overrides: Vec<Override>,
        state: State,
    ) -> Result<Platform<P>, PlatformError> {
        let mut faults = Faults::default();
        let (inputs, parameters): (Vec<&Override>, Vec<&Override>) =
            overrides.iter().partition(|one| one.key.starts_with("inputs."));
        for one in inputs {
            if let Some(definition) = file.definitions.get_mut(&one.key) {
                replace(name, one, definition, &mut faults);
            }
        }
        let mut entries = resolve::resolve(P::MODEL, &label(name), &file, state, &mut faults);
        for one in parameters {
            replace_parameter(P::MODEL, name, one, &mut entries, &mut faults);
        }
        let parameters = P::build(name, &entries, &mut faults);
        faults.finish()?;
        match parameters {
            Some(parameters) => Ok(Platform { name: name.to_string(), file, overrides, entries, parameters }),
            None => Err(PlatformError::one(name, "some values are missing")),
        }
    }
}

/// Puts the user's value in the place of an input's.
fn replace(name: &str, one: &Override, definition: &mut Definition, faults: &mut Faults) {
    let wanted = definition.unit.map(|unit| unit.dimension);
    if one.unit.map(|unit| unit.dimension) != wanted {
        let message = format!("its unit is one of {}", unit::names(wanted));
        return faults.add(name, None, Some(&one.key), message);
    }
    definition.given = Given::Value(one.value);
    definition.unit = one.unit;
    definition.source = Source::Override;
    definition.range = None;
}

/// Puts the user's value in the place of a parameter's.
fn replace_parameter(
    model: &Model,
    name: &str,
    one: &Override,
    entries: &mut BTreeMap<String, Entry>,
    faults: &mut Faults,
) {
    let megahertz = entries.get("core.frequency_megahertz").map_or(0.0, |entry| entry.plain);
    let Some(entry) = entries.get_mut(&one.key) else { return };
    match resolve::plain(model, &one.key, one.value, one.unit, megahertz) {
        Err(message) => faults.add(name, None, Some(&one.key), message),
        Ok(plain) => {
            entry.plain = plain;
            entry.value = one.value;
            entry.unit = one.unit.map_or(String::new(), |unit| unit.name.to_string());
            entry.source = Source::Override;
            entry.relation = None;
            entry.range = None;
            entry.line = None;
        }
    }
}

/// A text, and under it what it extends.
fn with_bases(
    model: &'static Model,
    name: &str,
    text: &str,
    resolver: &dyn Fn(&str) -> Option<String>,
    faults: &mut Faults,
) -> File {
    let mut names = vec![name.to_string()];
    let mut result = file::read(model, &label(name), text, faults);
    if result.definitions.is_empty() && faults.is_empty() {
        faults.add(&label(name), None, None, "it gives no value of its own; give some, or use the platform it extends");
    }
    let mut base = result.extends.clone();
    while let Some(next) = base {
        let by = label(names.last().unwrap_or(&next));
        if names.contains(&next) || names.len() >= MOST_FILES {
            let message = format!("the files extend each other in a circle: {}, {next}", names.join(", "));
            faults.add(&by, None, Some("extends"), message);
            break;
        }
        let Some(text) = resolver(&next) else {
            let hint = did_you_mean(&next, names_of(model));
            faults.add(&by, None, Some("extends"), format!("there is no platform \"{next}\" to extend{hint}"));
            break;
        };
        let under = file::read(model, &label(&next), &text, faults);
        for (key, definition) in under.definitions {
            result.definitions.entry(key).or_insert(definition);
        }
        for (key, check) in under.checks {
            result.checks.entry(key).or_insert(check);
        }
        base = under.extends;
        names.push(next);
    }
    result
}

/// What a platform's file is called in messages.
fn label(name: &str) -> String {
    format!("{name}.toml")
}

/// Why there is no platform of that name and model.
fn no_such(model: &'static Model, name: &str) -> String {
    let hint = did_you_mean(name, names_of(model));
    let names: Vec<&str> = names_of(model).collect();
    let (names, kind) = (names.join(", "), model.name);
    match MODELS.into_iter().find(|other| other.text_of(name).is_some()) {
        Some(other) => {
            let its = other.name;
            format!(
                "it is a machine of model \"{its}\", and one of \"{kind}\" is wanted here: {names}, or a path to a .toml file"
            )
        }
        None => format!("there is no such platform{hint}; there are {names}, and paths to .toml files"),
    }
}

/// A file's text, or why there is none.
fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("it cannot be opened: {error}"))?;
    let mut text = String::new();
    // A path may name what never ends, such as a device.
    let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
    match read.map_err(|error| format!("it cannot be read: {error}"))? {
        bytes if bytes as u64 > MOST_BYTES => Err(format!("it is longer than {MOST_BYTES} bytes, so no platform file")),
        _ => Ok(text),
    }
}
