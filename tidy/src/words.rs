//! Words that must not be there: unfinished code, tests that cannot fail, and the paths of somebody's machine.

use crate::Finding;
use crate::source::Source;

/// This file, which has to name what it refuses.
const THIS_FILE: &str = "tidy/src/words.rs";

/// What no file may say, in lower case, and why.
const BANNED: &[(&str, &str)] = &[
    ("/root/", "a path of one machine; use one relative to the repository"),
    ("/home/", "a path of one machine; use one relative to the repository"),
    ("fixme", "unfinished; finish it, or say in the README that it is not done"),
    ("todo:", "unfinished; finish it, or say in the README that it is not done"),
];

/// Where `Cargo.lock` may say that crates come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Banned words of a text file, and crates from anywhere but the public registry.
pub fn banned(path: &str, text: &str) -> Vec<Finding> {
    if path == THIS_FILE {
        return Vec::new();
    }
    let finding = |line, message| Finding { path: path.to_string(), line: line + 1, rule: "words", message };
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (word, why) in BANNED.iter().filter(|(word, _)| lower.contains(word)) {
            findings.push(finding(number, format!("`{word}` is {why}")));
        }
        if path.ends_with("Cargo.lock") && line.starts_with("source = ") && !line.contains(REGISTRY) {
            findings.push(finding(number, format!("a crate that is not from {REGISTRY}")));
        }
    }
    findings
}

/// Code that must not be there, as tokens, and what to do instead.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo !", "finish it"),
    ("unimplemented !", "finish it"),
    ("dbg !", "remove it"),
    ("# [ ignore", "a test runs or does not exist"),
    ("assert ! ( true", "a test that cannot fail is no test"),
    ("assert_eq ! ( true , true", "a test that cannot fail is no test"),
];

/// Unfinished code, tests that cannot fail, and lints of the seam that are switched off in place.
pub fn unfinished(source: &Source) -> Vec<Finding> {
    let finding = |line, message| Finding { path: source.path.clone(), line, rule: "words", message };
    let mut findings = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        for (pattern, instead) in UNFINISHED.iter().filter(|(pattern, _)| source.reads(at, pattern)) {
            findings.push(finding(token.line, format!("`{}`: {instead}", pattern.replace(' ', ""))));
        }
        if source.reads(at, "clippy :: disallowed_*") || source.reads(at, "clippy :: undocumented_unsafe_blocks") {
            let message = "a lint of the house is switched off in place; change `tidy/src/seam.rs` in sight, or obey";
            findings.push(finding(token.line, message.to_string()));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfinished_lines(text: &str) -> Vec<usize> {
        let source = Source::parse("room/src/file.rs", text, false).expect("the text is Rust");
        unfinished(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_banned_word_is_found_in_whatever_case() {
        for (word, _) in BANNED {
            let found = banned("README.md", &format!("fine\nsee X{}\n", word.to_uppercase()));
            assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2], "{word}");
        }
        assert_eq!(banned("README.md", "at home, the root of it\n"), []);
    }

    #[test]
    fn a_crate_from_elsewhere_is_found() {
        assert_eq!(banned("Cargo.lock", &format!("source = \"{REGISTRY}\"\n")), []);
        assert_eq!(banned("Cargo.lock", "source = \"sparse+https://example.org/index\"\n").len(), 1);
    }

    #[test]
    fn all_unfinished_code_is_found() {
        let text = "fn a() {\n    todo!()\n}\nfn b() { unimplemented!(\"x\") }\nfn c() { dbg!(1); }\n";
        assert_eq!(unfinished_lines(text), [2, 4, 5]);
        assert_eq!(unfinished_lines("/// todo!()\nfn a() { f(\"dbg!(x)\") }"), []);
    }

    #[test]
    fn tests_that_do_not_run_or_cannot_fail_are_found() {
        assert_eq!(unfinished_lines("#[test]\n#[ignore]\nfn a() {}"), [2]);
        assert_eq!(unfinished_lines("#[test]\n#[ignore = \"slow\"]\nfn a() {}"), [2]);
        assert_eq!(unfinished_lines("#[test]\nfn a() {\n    assert!(true, \"x\");\n}"), [3]);
    }

    #[test]
    fn a_lint_of_the_house_that_is_switched_off_in_place_is_found() {
        assert_eq!(unfinished_lines("#[allow(clippy::disallowed_types)]\nfn a() {}"), [1]);
        assert_eq!(unfinished_lines("#![expect(clippy::disallowed_methods, reason = \"x\")]"), [1]);
    }
}
