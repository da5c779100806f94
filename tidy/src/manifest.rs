//! What every crate's manifest says, and that every crate explains itself.

use crate::Finding;
use crate::tree::{File, Tree};
use toml::{Table, Value};

/// Manifests that leave the workspace's lints, licence or edition, and crates without a description of themselves.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests.flat_map(|manifest| check_crate(tree, manifest)).collect()
}

fn check_crate(tree: &Tree, manifest: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |path: &str, message: String| {
        findings.push(Finding { path: path.to_string(), line: 1, rule: "manifest", message });
    };
    let Ok(table) = manifest.text.parse::<Table>() else {
        report(&manifest.path, "is not TOML".to_string());
        return findings;
    };
    let is_true = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
    if !is_true(table.get("lints").and_then(|lints| lints.get("workspace"))) {
        report(&manifest.path, "add `[lints] workspace = true`".to_string());
    }
    let package = table.get("package");
    for key in ["version", "edition", "rust-version", "license", "publish"] {
        let inherited = package.and_then(|package| package.get(key)).and_then(|value| value.get("workspace"));
        if !is_true(inherited) {
            report(&manifest.path, format!("take the workspace's: `{key}.workspace = true`"));
        }
    }
    if package.and_then(|package| package.get("description")).and_then(Value::as_str).is_none_or(str::is_empty) {
        report(&manifest.path, "add a `description`: one line that says what the room is for".to_string());
    }
    let folder = manifest.path.trim_end_matches("/Cargo.toml");
    for lost in lost_tests(tree, folder) {
        report(&lost, format!("no program has these tests: name the file in {folder}/tests/main.rs"));
    }
    let explained = ["README.md", "src/lib.rs", "src/main.rs"]
        .iter()
        .filter_map(|name| tree.text(&format!("{folder}/{name}")).map(|text| (name, text)))
        .any(|(name, text)| name.ends_with(".md") || text.trim_start().starts_with("//!"));
    if !explained {
        report(&manifest.path, "explain the room in a README.md or in the crate's `//!` documentation".to_string());
    }
    findings
}

/// Files beside a room's one program of tests, `tests/main.rs`, that it does not name.
fn lost_tests(tree: &Tree, folder: &str) -> Vec<String> {
    let Some(program) = tree.text(&format!("{folder}/tests/main.rs")) else { return Vec::new() };
    let beside = |path: &str| -> Option<String> {
        let name = path.strip_prefix(&format!("{folder}/tests/"))?.strip_suffix(".rs")?;
        let name = name.strip_suffix("/mod").unwrap_or(name);
        (name != "main" && !name.contains('/')).then(|| name.to_owned())
    };
    let named = |name: &str| program.lines().any(|line| line == format!("mod {name};"));
    tree.files()
        .filter(|file| beside(&file.path).is_some_and(|name| !named(&name)))
        .map(|file| file.path.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"conic-room\"\ndescription = \"A room\"\nversion.workspace = true\n\
        edition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [lints]\nworkspace = true\n";

    fn findings(manifest: &str, library: &str) -> usize {
        check(&Tree::of(&[("room/Cargo.toml", manifest), ("room/src/lib.rs", library)])).len()
    }

    #[test]
    fn a_file_of_tests_that_no_program_has_is_found() {
        let with = |program: &str, name: &str| {
            let tests = [("room/tests/main.rs", program), (name, "")];
            check(&Tree::of(&[&[("room/Cargo.toml", GOOD), ("room/src/lib.rs", "//! A room.")][..], &tests].concat()))
                .len()
        };
        assert_eq!(with("mod one;\n", "room/tests/one.rs"), 0);
        assert_eq!(with("mod one;\n", "room/tests/one/mod.rs"), 0);
        assert_eq!(with("mod one;\n", "room/tests/one/part.rs"), 0);
        assert_eq!(with("mod one;\n", "room/tests/two.rs"), 1);
        assert_eq!(with("mod one;\n", "room/tests/two/mod.rs"), 1);
    }

    #[test]
    fn a_manifest_as_it_should_be_passes() {
        assert_eq!(findings(GOOD, "//! A room.\n"), 0);
    }

    #[test]
    fn each_line_that_is_missing_is_found() {
        for line in GOOD.lines().filter(|line| !line.starts_with(['[', 'n'])) {
            assert_eq!(findings(&GOOD.replace(&format!("\n{line}\n"), "\n"), "//! A room.\n"), 1, "{line}");
        }
        assert_eq!(findings(&GOOD.replace("workspace = true", "workspace = false"), "//! A room.\n"), 6);
    }

    #[test]
    fn a_crate_that_does_not_explain_itself_is_found() {
        assert_eq!(findings(GOOD, "mod a;\n"), 1);
    }
}
