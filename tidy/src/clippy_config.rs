//! The `clippy.toml` files, written from the seam's table.
//!
//! Clippy reads the nearest one above a crate's manifest and merges none, so the root's refuses every power and a room
//! that owns some has a file of its own with the rest.

use crate::Finding;
use crate::seam::{POWERS, Power};
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// One of a power's lists of paths.
type PathsOf = fn(&Power) -> &'static [&'static str];

/// What the file for `room` says; for a room that owns nothing, and for the root (`""`), everything is refused.
pub fn text_for(room: &str) -> String {
    let mut text = String::from(
        "# Written by `cargo run -p conic-tidy write-clippy` from the table in tidy/src/seam.rs; change that one.\n",
    );
    let lists: [(&str, PathsOf); 3] = [
        ("disallowed-types", |power| power.types),
        ("disallowed-methods", |power| power.methods),
        ("disallowed-macros", |power| power.macros),
    ];
    for (key, paths) in lists {
        text.push_str(&format!("\n{key} = [\n"));
        for power in POWERS.iter().filter(|power| !power.owners.contains(&room)) {
            for path in paths(power) {
                let reason = format!("{}: {}", power.name, power.instead);
                // A crate that is not among the dependencies cannot be named, and need not be refused yet.
                let absent = if path.starts_with("std::") { "" } else { ", allow-invalid = true" };
                text.push_str(&format!("    {{ path = \"{path}\", reason = \"{reason}\"{absent} }},\n"));
            }
        }
        text.push_str("]\n");
    }
    text
}

/// The files there should be: path and text.
pub fn files() -> Vec<(String, String)> {
    let owners: BTreeSet<&str> = POWERS.iter().flat_map(|power| power.owners).copied().collect();
    let mut files = vec![("clippy.toml".to_string(), text_for(""))];
    files.extend(owners.into_iter().map(|room| (format!("{room}/clippy.toml"), text_for(room))));
    files
}

/// Files that differ from the table, and files that should not be there.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let finding = |path: &str, message: &str| Finding {
        path: path.to_string(),
        line: 1,
        rule: "clippy_config",
        message: message.to_string(),
    };
    let expected = files();
    let mut findings: Vec<Finding> = expected
        .iter()
        .filter(|(path, text)| tree.text(path) != Some(text))
        .map(|(path, _)| finding(path, "differs from the table; run `cargo run -p conic-tidy write-clippy`"))
        .collect();
    for file in tree.files() {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let is_config = name == "clippy.toml" || name == ".clippy.toml";
        if is_config && !expected.iter().any(|(path, _)| *path == file.path) {
            findings.push(finding(&file.path, "frees its room of the seam's lints; remove it"));
        }
    }
    findings
}

/// Writes the files under `root`.
///
/// # Errors
///
/// Where a file cannot be written.
pub fn write(root: &Path) -> io::Result<()> {
    files().iter().try_for_each(|(path, text)| fs::write(root.join(path), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good_tree() -> Vec<(String, String)> {
        files()
    }

    fn findings(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn the_files_are_toml_and_give_up_only_what_the_room_owns() {
        let types = |room: &str| {
            let table: toml::Table = text_for(room).parse().expect("it is TOML");
            table["disallowed-types"].as_array().expect("a list").len()
        };
        let of_atomics = POWERS[0].types.len();
        assert_eq!(types("check"), types("") - of_atomics);
        assert_eq!(types("interface"), types(""));
        for (path, text) in files() {
            assert!(text.parse::<toml::Table>().is_ok(), "{path}");
        }
    }

    #[test]
    fn a_file_that_was_edited_or_lost_is_found() {
        assert_eq!(findings(&good_tree()), [""; 0]);
        let mut edited = good_tree();
        edited[0].1 = edited[0].1.replace("std::time::Instant", "std::time::Duration");
        assert_eq!(findings(&edited), ["clippy.toml"]);
        assert_eq!(findings(&good_tree()[1..]), ["clippy.toml"]);
    }

    #[test]
    fn a_file_that_frees_its_room_is_found() {
        let mut more = good_tree();
        more.push(("interface/.clippy.toml".to_string(), String::new()));
        assert_eq!(findings(&more), ["interface/.clippy.toml"]);
    }
}
