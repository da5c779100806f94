//! What is wrong with a platform file, where, and what to do.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file, or what else the text was called.
    pub file: String,
    /// The line, from 1, where it is known.
    pub line: Option<usize>,
    /// The key, as in `core.cores`, where there is one.
    pub key: Option<String>,
    /// What is wrong with it, and what to do.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Everything that is wrong with a platform: at least one fault, in the order of the file where it has lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformError {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl PlatformError {
    pub(super) fn one(file: &str, message: impl Into<String>) -> PlatformError {
        PlatformError { faults: vec![Fault { file: file.to_string(), line: None, key: None, message: message.into() }] }
    }
}

impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PlatformError {}

/// Nobody reads more of them, and a hostile file may have one a line.
const MOST_FAULTS: usize = 100;

/// Collects faults while the rest is still looked at: whoever wrote a file is told everything at once.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, file: &str, line: Option<usize>, key: Option<&str>, message: impl Into<String>) {
        let fault = Fault { file: file.to_string(), line, key: key.map(str::to_string), message: message.into() };
        if self.0.len() < MOST_FAULTS && !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing, if nothing is wrong.
    pub(super) fn finish(self) -> Result<(), PlatformError> {
        let mut faults = self.0;
        faults.sort_by(|a, b| (&a.file, a.line.unwrap_or(usize::MAX)).cmp(&(&b.file, b.line.unwrap_or(usize::MAX))));
        if faults.is_empty() { Ok(()) } else { Err(PlatformError { faults }) }
    }
}

/// The one of `known` that `word` was most likely meant to be, as a question to append to a message; or nothing.
pub(super) fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|candidate| (distance(word, candidate), candidate)).min();
    match nearest {
        Some((edits, candidate)) if edits <= 1 + word.len() / 4 => format!(" (did you mean {candidate}?)"),
        _ => String::new(),
    }
}

/// Insertions, deletions and replacements that make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    // A long word is nobody's misspelling, and the table below grows with the product of the lengths.
    if a.len() > 100 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_offered_only_if_it_is_near() {
        let known = ["core.cores", "core.issue_cycles", "cache.l1_ways"];
        assert_eq!(did_you_mean("core.core", known.into_iter()), " (did you mean core.cores?)");
        assert_eq!(did_you_mean("cache.l2_ways", known.into_iter()), " (did you mean cache.l1_ways?)");
        assert_eq!(did_you_mean("memory", known.into_iter()), "");
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_fault_names_file_line_and_key() {
        let mut faults = Faults::default();
        faults.add("b.toml", Some(7), Some("core.cores"), "is missing");
        faults.add("b.toml", Some(3), None, "is odd");
        let error = faults.finish().expect_err("there are two faults");
        assert_eq!(error.to_string(), "b.toml:3: is odd\nb.toml:7: core.cores: is missing");
    }
}
