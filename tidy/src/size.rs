//! Small rooms: short files of short functions.

use crate::Finding;
use crate::source::Source;

/// How many lines of production code a file may have.
pub const FILE_LINES: usize = 600;
/// How many lines a function may have, from its `fn` to its closing brace.
pub const FUNCTION_LINES: usize = 70;

/// Files and functions that are too long.
pub fn check(source: &Source) -> Vec<Finding> {
    let finding = |line, message| Finding { path: source.path.clone(), line, rule: "size", message };
    let mut findings = Vec::new();
    let lines = source.production_lines();
    if lines > FILE_LINES {
        let message = format!("{lines} lines of production code, more than {FILE_LINES}; split the file by concept");
        findings.push(finding(1, message));
    }
    for function in source.functions().iter().filter(|function| function.lines > FUNCTION_LINES) {
        let message = format!(
            "function `{}` has {} lines, more than {FUNCTION_LINES}; give its parts names",
            function.name, function.lines
        );
        findings.push(finding(function.line, message));
    }
    findings
}

/// Files of another language that are too long.
pub fn file_of_other_language(path: &str, text: &str) -> Option<Finding> {
    let code = [".c", ".h", ".py", ".sh", ".js"].iter().any(|ending| path.ends_with(ending));
    let lines = text.lines().count();
    (code && lines > FILE_LINES).then(|| Finding {
        path: path.to_string(),
        line: 1,
        rule: "size",
        message: format!("{lines} lines, more than {FILE_LINES}; split the file by concept"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<Finding> {
        check(&Source::parse("room/src/file.rs", text, false).expect("the text is Rust"))
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_the_limit_passes_and_one_line_more_does_not() {
        assert_eq!(findings(&function_of(FUNCTION_LINES)), []);
        let found = findings(&format!("\n{}", function_of(FUNCTION_LINES + 1)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(found[0].message.contains("`long` has 71 lines"), "{}", found[0]);
    }

    #[test]
    fn a_file_of_the_limit_passes_and_one_line_more_does_not() {
        assert_eq!(findings(&"const A: u8 = 0;\n".repeat(FILE_LINES)), []);
        assert_eq!(findings(&"const A: u8 = 0;\n".repeat(FILE_LINES + 1)).len(), 1);
    }

    #[test]
    fn test_code_does_not_count_towards_the_file() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 0;\n".repeat(FILE_LINES));
        assert_eq!(findings(&format!("const B: u8 = 0;\n{tests}")), []);
    }

    #[test]
    fn a_file_of_c_counts_in_full() {
        assert!(file_of_other_language("peers/ring.c", &"int a;\n".repeat(FILE_LINES)).is_none());
        assert!(file_of_other_language("peers/ring.c", &"int a;\n".repeat(FILE_LINES + 1)).is_some());
    }
}
