//! The house rules, as functions from a file to findings.
//!
//! What the compiler and clippy cannot check is checked here: `cargo test -p conic-tidy` fails on a finding, and
//! `cargo run -p conic-tidy` lists them all. Each rule is a function of a path and a text, so that its tests can plant
//! a violation as a string and see it caught.
//!
//! | module | rule |
//! |---|---|
//! | [`seam`] | clocks, atomics, random numbers, hash order and the like stay in the rooms that own them |
//! | [`clippy_config`] | the `clippy.toml` files say the same as [`seam`]; they are written from its table |
//! | [`arrows`] | a room depends on the rooms that the design lets it know, and on no other |
//! | [`size`] | files of at most 600 lines of production code, functions of at most 70 |
//! | [`comments`] | an `unsafe` says why it is sound, an ordering what it orders, a file what it is for |
//! | [`manifest`] | every crate takes the workspace's lints and licence |
//! | [`words`] | no unfinished code, no test that cannot fail, no path of somebody's machine |
//!
//! A rule that is in the way is changed here, in sight, and never silenced where it strikes.

use std::fmt;
use std::path::Path;

pub mod arrows;
pub mod clippy_config;
pub mod comments;
pub mod manifest;
pub mod seam;
pub mod size;
pub mod source;
pub mod tree;
pub mod words;

/// One violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace's root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The rule's name: that of its module.
    pub rule: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

/// Every finding in the tree under `root`, by path and line.
///
/// # Errors
///
/// Where the tree cannot be read.
pub fn inspect(root: &Path) -> std::io::Result<Vec<Finding>> {
    let tree = tree::Tree::read(root)?;
    let mut findings = Vec::new();
    for file in tree.files() {
        findings.extend(words::banned(&file.path, &file.text));
        findings.extend(size::file_of_other_language(&file.path, &file.text));
    }
    for source in tree.sources() {
        match source {
            Ok(source) => {
                findings.extend(seam::check(&source));
                findings.extend(size::check(&source));
                findings.extend(comments::check(&source));
                findings.extend(words::unfinished(&source));
            }
            Err(finding) => findings.push(finding),
        }
    }
    findings.extend(manifest::check(&tree));
    findings.extend(arrows::check(&tree));
    findings.extend(clippy_config::check(&tree));
    findings.sort();
    Ok(findings)
}
