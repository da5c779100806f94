//! The files of the workspace.
//!
//! The folder is walked, rather than git asked, so that a file is checked before it is first committed, and in a copy
//! without a repository. What `.gitignore` names at the root, and every folder that cargo marks as a cache, is skipped.

use crate::Finding;
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// A text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path, relative to the workspace's root.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// The text files of the workspace.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, File>,
}

impl Tree {
    /// Reads every text file under `root`. A file that is not UTF-8 is no text file.
    ///
    /// # Errors
    ///
    /// Where a folder or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let ignored = ignored_at_root(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default());
        tree.walk(root, "", &ignored)?;
        Ok(tree)
    }

    /// A tree of the given paths and texts.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.insert(path, text.to_string());
        }
        tree
    }

    /// The files, by path.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// The text of the file at `path`, if there is one.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.text.as_str())
    }

    /// The Rust files, with their test code marked; a finding in place of one that is not Rust.
    pub fn sources(&self) -> Vec<Result<Source, Finding>> {
        let rust: Vec<&File> = self.files().filter(|file| file.path.ends_with(".rs")).collect();
        let mut tests = BTreeSet::new();
        for file in &rust {
            if let Ok(source) = Source::parse(&file.path, &file.text, false) {
                tests.extend(source.test_modules().iter().flat_map(|module| files_of_module(&file.path, module)));
            }
        }
        let folders = ["/tests/", "/benches/", "/examples/"];
        // A build script is cargo's program and speaks to cargo alone, by printing.
        let free = |path: &str| path.ends_with("/build.rs") || folders.iter().any(|folder| path.contains(folder));
        let is_test = |path: &str| tests.contains(path) || free(path);
        rust.iter().map(|file| Source::parse(&file.path, &file.text, is_test(&file.path))).collect()
    }

    fn insert(&mut self, path: &str, text: String) {
        self.files.insert(path.to_string(), File { path: path.to_string(), text });
    }

    fn walk(&mut self, folder: &Path, relative: &str, ignored: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            let kind = entry.file_type()?;
            if name == ".git" || ignored.contains(&path) {
                continue;
            }
            if kind.is_dir() && !entry.path().join("CACHEDIR.TAG").exists() {
                self.walk(&entry.path(), &path, ignored)?;
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(fs::read(entry.path())?)
            {
                self.insert(&path, text);
            }
        }
        Ok(())
    }
}

/// The names that a root's `.gitignore` ignores at the root itself: its lines of the form `/name`.
fn ignored_at_root(gitignore: &str) -> BTreeSet<String> {
    gitignore.lines().filter_map(|line| line.strip_prefix('/')).map(|name| name.trim_end_matches('/').into()).collect()
}

/// Where the file of `mod module;` in the file at `path` can lie.
fn files_of_module(path: &str, module: &str) -> [String; 2] {
    let folder = match path.rsplit_once('/') {
        Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder.to_string(),
        _ => path.trim_end_matches(".rs").to_string(),
    };
    [format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_declared_for_tests_is_test_code_wherever_its_file_lies() {
        let tree = Tree::of(&[
            ("room/src/lib.rs", "mod queue;\n#[cfg(test)]\nmod checks;"),
            ("room/src/checks.rs", "fn a() {}"),
            ("room/src/queue.rs", "fn b() {}\n#[cfg(test)]\nmod tests;"),
            ("room/src/queue/tests.rs", "fn c() {}"),
            ("room/tests/outer.rs", "fn d() {}"),
            ("room/examples/show.rs", "fn e() {}"),
            ("room/build.rs", "fn f() {}"),
        ]);
        let production: Vec<(String, usize)> = tree
            .sources()
            .into_iter()
            .map(|source| source.expect("it is Rust"))
            .map(|source| (source.path.clone(), source.production_lines()))
            .collect();
        let expected = [
            ("room/build.rs", 0),
            ("room/examples/show.rs", 0),
            ("room/src/checks.rs", 0),
            ("room/src/lib.rs", 1),
            ("room/src/queue.rs", 1),
            ("room/src/queue/tests.rs", 0),
            ("room/tests/outer.rs", 0),
        ];
        assert_eq!(production, expected.map(|(path, lines)| (path.to_string(), lines)));
    }

    #[test]
    fn what_git_ignores_at_the_root_is_skipped() {
        let expected: BTreeSet<String> = ["out".to_string(), "target".to_string()].into();
        assert_eq!(ignored_at_root("/target\n*.pcap\n/out/\n"), expected);
    }
}
