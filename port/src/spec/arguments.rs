//! The arguments of a port as text, and the values in them.

use std::fmt::Display;
use std::str::FromStr;

use conic_fabric::Time;

/// What arguments a kind of port takes.
pub(super) struct Grammar {
    /// What comes first, without a key: an interface, a socket. Empty where nothing does.
    pub(super) first: &'static str,
    /// Whether it may be left out.
    pub(super) optional: bool,
    /// The keys that have a value.
    pub(super) keys: &'static [&'static str],
    /// The words that stand alone.
    pub(super) switches: &'static [&'static str],
}

/// Arguments as given, each known to the grammar and given once.
#[derive(Debug)]
pub(super) struct Arguments<'a> {
    pub(super) first: Option<&'a str>,
    values: Vec<(&'a str, &'a str)>,
    switches: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    pub(super) fn read(text: &'a str, grammar: &Grammar) -> Result<Arguments<'a>, String> {
        let mut arguments = Arguments { first: None, values: Vec::new(), switches: Vec::new() };
        let parts = if text.is_empty() { Vec::new() } else { text.split(',').collect() };
        for (place, part) in parts.into_iter().enumerate() {
            match part.split_once('=') {
                Some((key, value)) if grammar.keys.contains(&key) => {
                    if arguments.values.iter().any(|(given, _)| *given == key) {
                        return Err(format!("'{key}' is given twice"));
                    }
                    arguments.values.push((key, value));
                }
                None if grammar.switches.contains(&part) => arguments.switches.push(part),
                None if place == 0 && !grammar.first.is_empty() && !part.is_empty() => arguments.first = Some(part),
                _ => return Err(grammar.refuse(part)),
            }
        }
        if arguments.first.is_none() && !grammar.first.is_empty() && !grammar.optional {
            return Err(format!("give {} behind the colon", grammar.first));
        }
        Ok(arguments)
    }

    pub(super) fn has(&self, switch: &str) -> bool {
        self.switches.contains(&switch)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.values.iter().find(|(given, _)| *given == key).map(|(_, value)| *value)
    }

    /// A value of any type that can be read from text.
    pub(super) fn value<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, String> {
        self.text(key).map(|text| text.parse().map_err(|error| format!("{key}={text}: {error}"))).transpose()
    }

    /// A whole number within bounds.
    pub(super) fn number(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(format!("{key}={text}: give a whole number from {least} to {most}")),
        }
    }

    /// A power of two within bounds.
    pub(super) fn power_of_two(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
        match self.number(key, least, most)? {
            Some(number) if !number.is_power_of_two() => {
                Err(format!("{key}={number}: give a power of two from {least} to {most}"))
            }
            number => Ok(number),
        }
    }

    /// A span of time such as `10us`.
    pub(super) fn time(&self, key: &str) -> Result<Option<Time>, String> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let wrong = || format!("{key}={text}: give a time with its unit, such as 500ns, 10us, 1.5ms or 2s");
        let digits = text.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(digits);
        let nanoseconds = match unit {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        Ok(Some(Time::from_picoseconds((number * nanoseconds * 1e3).round() as u64)))
    }
}

impl Grammar {
    fn refuse(&self, part: &str) -> String {
        let mut known: Vec<String> = self.keys.iter().map(|key| format!("{key}=")).collect();
        known.extend(self.switches.iter().map(|&switch| switch.to_owned()));
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("'{part}' is no argument of it; those are: {known}")
    }
}
