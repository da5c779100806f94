//! A Rust file as a flat list of tokens, with its test code marked.
//!
//! Rules look at tokens rather than at a syntax tree, so that they see into macro bodies too, and rather than at text,
//! so that strings and comments cannot confuse them.

use crate::Finding;
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// One token.
#[derive(Clone, Debug)]
pub struct Token {
    /// An identifier, a punctuation mark (`::` is one), a literal, or one of `( ) [ ] { }`; empty for the delimiters
    /// of an invisible group.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
    /// For an opening delimiter, the index of the closing one; otherwise its own index.
    pub close: usize,
    /// Whether it belongs to test code.
    pub test: bool,
}

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its `fn`.
    pub line: usize,
    /// Its lines, from the `fn` to the closing brace.
    pub lines: usize,
}

/// A Rust file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, relative to the workspace's root.
    pub path: String,
    /// Its lines; line 1 is at index 0.
    pub lines: Vec<String>,
    /// Its tokens, in order.
    pub tokens: Vec<Token>,
}

impl Source {
    /// Reads a file. `test` says that all of it is test code (a file of a `tests` folder, or one that its parent
    /// declares under `#[cfg(test)]`).
    ///
    /// # Errors
    ///
    /// A finding, where the text is not a sequence of Rust tokens.
    pub fn parse(path: &str, text: &str, test: bool) -> Result<Source, Finding> {
        let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| Finding {
            path: path.to_string(),
            line: error.span().start().line,
            rule: "source",
            message: format!("is not Rust: {error}"),
        })?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut source = Source { path: path.to_string(), lines: text.lines().map(str::to_string).collect(), tokens };
        source.mark_tests(test);
        Ok(source)
    }

    /// The room that the file is in: the first part of its path.
    pub fn room(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Whether the tokens from `at` on read as `pattern`: tokens separated by blanks, where `Atomic*` is any token
    /// that begins so.
    pub fn reads(&self, at: usize, pattern: &str) -> bool {
        pattern.split(' ').enumerate().all(|(offset, wanted)| match self.tokens.get(at + offset) {
            None => false,
            Some(token) => match wanted.strip_suffix('*') {
                Some(beginning) if !beginning.is_empty() => token.text.starts_with(beginning),
                _ => token.text == wanted,
            },
        })
    }

    /// The functions with a body, in macros too.
    pub fn functions(&self) -> Vec<Function> {
        (0..self.tokens.len()).filter_map(|at| self.function_at(at)).collect()
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let name = &self.tokens.get(at + 1)?.text;
        let named = name.starts_with(|first: char| first.is_alphabetic() || first == '_' || first == '$');
        if self.tokens[at].text != "fn" || !named {
            return None;
        }
        let end = self.item_end(at + 2)?;
        (self.tokens[end].text == "}").then(|| Function {
            name: name.clone(),
            line: self.tokens[at].line,
            lines: self.tokens[end].line - self.tokens[at].line + 1,
        })
    }

    /// The token that ends the item whose tokens start at `at`: its `;`, or the brace that closes its body.
    fn item_end(&self, mut at: usize) -> Option<usize> {
        loop {
            match self.tokens.get(at)?.text.as_str() {
                ";" => return Some(at),
                "{" => return Some(self.tokens[at].close),
                "(" | "[" => at = self.tokens[at].close + 1,
                ")" | "]" | "}" => return None,
                _ => at += 1,
            }
        }
    }

    /// The modules that the file declares as `#[cfg(test)] mod name;`, whose files are test code.
    pub fn test_modules(&self) -> Vec<String> {
        (0..self.tokens.len())
            .filter(|&at| self.tokens[at].test && self.reads(at, "mod") && self.reads(at + 2, ";"))
            .map(|at| self.tokens[at + 1].text.clone())
            .collect()
    }

    /// How many lines are not test code.
    pub fn production_lines(&self) -> usize {
        let mut test = vec![false; self.lines.len() + 2];
        let mut at = 0;
        while at < self.tokens.len() {
            let start = at;
            while at < self.tokens.len() && self.tokens[at].test {
                at += 1;
            }
            if at > start {
                test[self.tokens[start].line..=self.tokens[at - 1].line].fill(true);
            }
            at += 1;
        }
        let all_test = !self.tokens.is_empty() && self.tokens.iter().all(|token| token.test);
        if all_test { 0 } else { (1..=self.lines.len()).filter(|&line| !test[line]).count() }
    }

    fn mark_tests(&mut self, whole: bool) {
        if whole || (0..self.tokens.len()).any(|at| self.reads(at, "# ! [ cfg ( test ) ]")) {
            self.tokens.iter_mut().for_each(|token| token.test = true);
            return;
        }
        let mut at = 0;
        while at < self.tokens.len() {
            if self.is_test_attribute(at) {
                let mut item = at;
                while self.reads(item, "# [") {
                    item = self.tokens[item + 1].close + 1;
                }
                let end = self.item_end(item).unwrap_or(item.min(self.tokens.len() - 1));
                self.tokens[at..=end].iter_mut().for_each(|token| token.test = true);
                at = end;
            }
            at += 1;
        }
    }

    /// Whether `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, ..))]` stands at `at`.
    fn is_test_attribute(&self, at: usize) -> bool {
        ["# [ test ]", "# [ cfg ( test )", "# [ cfg ( all ( test"].iter().any(|pattern| self.reads(at, pattern))
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    let mut half_path = false;
    for tree in stream {
        let line = tree.span().start().line;
        let (text, spacing) = match &tree {
            TokenTree::Group(group) => {
                flatten_group(group, into);
                half_path = false;
                continue;
            }
            TokenTree::Punct(mark) => (mark.as_char().to_string(), mark.spacing()),
            TokenTree::Ident(name) => (name.to_string(), Spacing::Alone),
            TokenTree::Literal(literal) => (literal.to_string(), Spacing::Alone),
        };
        if half_path && text == ":" {
            into.last_mut().expect("a colon went before").text = "::".to_string();
            half_path = false;
            continue;
        }
        half_path = text == ":" && spacing == Spacing::Joint;
        into.push(Token { text, line, close: into.len(), test: false });
    }
}

fn flatten_group(group: &proc_macro2::Group, into: &mut Vec<Token>) {
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::None => ("", ""),
    };
    let token = |text: &str, line, at| Token { text: text.to_string(), line, close: at, test: false };
    let opened = into.len();
    into.push(token(open, group.span_open().start().line, opened));
    flatten(group.stream(), into);
    into.push(token(close, group.span_close().end().line, into.len()));
    into[opened].close = into.len() - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Source {
        Source::parse("room/src/file.rs", text, false).expect("the text is Rust")
    }

    #[test]
    fn a_function_is_measured_past_strings_comments_lifetimes_and_nested_braces() {
        let text = "fn a<'x>(t: &'x str) -> [u8; { 2 }]\nwhere\n{\n    let s = \"}\"; // }\n    { '}' };\n}\nfn b();\n";
        let expected = Function { name: "a".into(), line: 1, lines: 6 };
        assert_eq!(parse(text).functions(), [expected]);
    }

    #[test]
    fn a_function_in_a_macro_is_measured() {
        let text = "macro_rules! m {\n    () => {\n        fn inner() {\n        }\n    };\n}\n";
        assert_eq!(parse(text).functions(), [Function { name: "inner".into(), line: 3, lines: 2 }]);
    }

    #[test]
    fn a_function_pointer_is_not_a_function() {
        assert_eq!(parse("struct S { f: fn(u8) -> u8 }\ntrait T { fn g(); }").functions(), []);
    }

    #[test]
    fn test_code_is_not_production_code() {
        let text = "fn a() {}\n\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = parse(text);
        let production: Vec<&Token> = source.tokens.iter().filter(|token| !token.test).collect();
        assert!(production.iter().any(|token| token.text == "a") && production.iter().any(|token| token.text == "c"));
        assert!(!production.iter().any(|token| token.text == "b"));
        assert_eq!(source.production_lines(), 3);
    }

    #[test]
    fn code_for_anything_but_tests_is_production_code() {
        assert!(parse("#[cfg(not(test))]\nfn a() {}\n").tokens.iter().all(|token| !token.test));
    }

    #[test]
    fn modules_of_tests_in_files_of_their_own_are_known() {
        assert_eq!(parse("mod a;\n#[cfg(test)]\nmod checks;\nmod b;").test_modules(), ["checks"]);
    }

    #[test]
    fn a_file_that_is_not_rust_is_a_finding() {
        assert_eq!(Source::parse("a.rs", "fn a( {", false).expect_err("it is not Rust").line, 1);
    }
}
