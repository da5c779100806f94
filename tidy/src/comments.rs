//! Comments that must be there: why an `unsafe` is sound, what a memory ordering orders, what a file is for.

use crate::Finding;
use crate::source::Source;

/// Comments that are missing.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line, message: &str| {
        findings.push(Finding { path: source.path.clone(), line, rule: "comments", message: message.to_string() });
    };
    if !source.lines.iter().find(|line| !line.trim().is_empty()).is_some_and(|line| line.starts_with("//!")) {
        report(1, "begin the file with a `//!` line that says what it is for");
    }
    for (at, token) in source.tokens.iter().enumerate() {
        let unsafe_code = token.text == "unsafe" && ["{", "impl"].iter().any(|next| source.reads(at + 1, next));
        if unsafe_code && !comment_on(source, token.line).is_some_and(|comment| comment.contains("SAFETY:")) {
            report(token.line, "say above this `unsafe` why it is sound, in a comment that begins `SAFETY:`");
        }
        if !token.test && is_memory_ordering(source, at) && comment_on(source, token.line).is_none() {
            report(token.line, "say above this ordering what it orders, against whom, and why weaker will not do");
        }
    }
    findings.dedup();
    findings
}

/// Whether the token at `at` is the name of a memory ordering, used rather than imported.
fn is_memory_ordering(source: &Source, at: usize) -> bool {
    let named = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"].contains(&source.tokens[at].text.as_str());
    named && !source.lines[source.tokens[at].line - 1].trim_start().starts_with("use ")
}

/// The comment on the statement that line `line` (from 1) belongs to: at its lines' ends, or in the lines right above.
fn comment_on(source: &Source, line: usize) -> Option<String> {
    let mut comment = String::new();
    for (above, text) in source.lines[..line].iter().rev().enumerate() {
        let text = text.trim();
        let whole_line_comment = text.starts_with("//");
        let code = if whole_line_comment { "" } else { text.split(" // ").next().unwrap_or_default().trim_end() };
        let is_attribute = code.starts_with("#[");
        let ends_another_statement = code.is_empty() && !whole_line_comment
            || code.ends_with([';', '{', '}']) && !is_attribute && !code.contains("match ");
        if above > 0 && ends_another_statement {
            break;
        }
        if let Some((_, words)) = text.split_once("//")
            && !text.starts_with("///")
        {
            comment.insert_str(0, words);
        }
    }
    (!comment.trim().is_empty()).then_some(comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_found(text: &str) -> Vec<usize> {
        let text = format!("//! A file.\n{text}");
        let source = Source::parse("room/src/file.rs", &text, false).expect("the text is Rust");
        check(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn an_unsafe_block_without_its_reason_is_found() {
        assert_eq!(lines_found("fn a() {\n    unsafe { b() };\n}"), [3]);
        assert_eq!(lines_found("fn a() {\n    // It works.\n    unsafe { b() };\n}"), [4]);
        assert_eq!(lines_found("fn a() {\n    // SAFETY: one.\n    unsafe { b() };\n    unsafe { b() };\n}"), [5]);
    }

    #[test]
    fn an_unsafe_impl_without_its_reason_is_found() {
        assert_eq!(lines_found("unsafe impl Send for A {}"), [2]);
        assert_eq!(lines_found("// SAFETY: it is plain memory.\nunsafe impl Send for A {}"), []);
    }

    #[test]
    fn an_unsafe_block_in_a_macro_is_found() {
        assert_eq!(lines_found("macro_rules! m {\n    () => {\n        unsafe { b() }\n    };\n}"), [4]);
    }

    #[test]
    fn a_reason_may_stand_above_the_statement_and_its_attributes() {
        let text = "fn a() {\n    // SAFETY: in bounds\n    // by construction.\n    #[cfg(x)]\n    let c =\n        unsafe { b() };\n}";
        assert_eq!(lines_found(text), []);
    }

    #[test]
    fn the_word_unsafe_in_text_is_not_an_unsafe_block() {
        assert_eq!(lines_found("/// unsafe { }\nfn a() { f(\"unsafe { }\") }\nunsafe fn b() {}"), []);
    }

    #[test]
    fn an_ordering_without_its_reason_is_found() {
        assert_eq!(lines_found("fn a() {\n    x.load(Ordering::Acquire);\n}"), [3]);
        assert_eq!(lines_found("fn a() {\n    // Acquire: sees the entry.\n    x.load(Ordering::Acquire);\n}"), []);
        assert_eq!(lines_found("fn a() {\n    x.load(Relaxed); // a hint only\n}"), []);
        assert_eq!(lines_found("/// Docs.\nfn a() -> u8 {\n    x.load(Relaxed)\n}"), [4]);
    }

    #[test]
    fn an_ordering_is_not_covered_by_the_comment_of_the_statement_before() {
        assert_eq!(lines_found("fn a() {\n    // one\n    x.load(Relaxed);\n    y.load(Relaxed);\n}"), [5]);
    }

    #[test]
    fn the_orderings_in_the_arms_of_a_match_share_the_comment_above_it() {
        let arms = "    let o = match x {\n        1 => Ordering::Acquire,\n        _ => Ordering::Relaxed,\n    };\n";
        assert_eq!(lines_found(&format!("fn a() {{\n    // Acquire: sees the entry.\n{arms}}}")), []);
        assert_eq!(lines_found(&format!("fn a() {{\n    let y = 1;\n{arms}}}")), [5, 6]);
    }

    #[test]
    fn an_imported_ordering_needs_no_reason() {
        assert_eq!(lines_found("use std::sync::atomic::Ordering::{Acquire, Relaxed};"), []);
    }

    #[test]
    fn an_ordering_in_test_code_needs_no_reason() {
        assert_eq!(lines_found("#[cfg(test)]\nmod tests {\n    fn a() { x.load(Relaxed); }\n}"), []);
    }

    #[test]
    fn a_file_that_does_not_say_what_it_is_for_is_found() {
        let source = Source::parse("room/src/file.rs", "\nfn a() {}", false).expect("the text is Rust");
        assert_eq!(check(&source).len(), 1);
    }
}
