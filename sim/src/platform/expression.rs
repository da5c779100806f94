//! Relations between values: `+ - * /`, parentheses, numbers, and the dotted names of other keys.

use super::unit::{Dimension, Quantity};

/// Longer relations are nobody's.
const MOST_BYTES: usize = 1000;

/// How deep parentheses and signs may stand in each other: a hostile file must not exhaust the stack.
const MOST_DEEP: usize = 32;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// What is wrong, and what to do.
    Message(String),
    /// Another key has no value, of which its own fault already tells.
    Told,
}

impl From<String> for Trouble {
    fn from(message: String) -> Trouble {
        Trouble::Message(message)
    }
}

/// Where other keys' values come from.
type Values<'a> = dyn FnMut(&str) -> Result<Quantity, Trouble> + 'a;

/// Evaluates a relation; `value` knows the other keys.
///
/// # Errors
///
/// Where and why it is not a relation, or has no value; whatever `value` says of a key.
pub(super) fn evaluate(text: &str, value: &mut Values<'_>) -> Result<Quantity, Trouble> {
    if text.len() > MOST_BYTES {
        return Err(format!("the relation is longer than {MOST_BYTES} bytes: split it, with keys in [inputs]").into());
    }
    let mut reader = Reader { text, at: 0, deep: 0, value };
    let result = reader.sum()?;
    reader.skip_spaces();
    match reader.rest().chars().next() {
        None => Ok(result),
        Some(left) => Err(reader.unexpected(left)),
    }
}

struct Reader<'a, 'v> {
    text: &'a str,
    at: usize,
    deep: usize,
    value: &'a mut Values<'v>,
}

impl<'a> Reader<'a, '_> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The next character, if it is one of `wanted`; it is then behind the reader.
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        self.skip_spaces();
        let next = self.rest().chars().next().filter(|next| wanted.contains(next))?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// As many characters as `belongs` accepts.
    fn word(&mut self, belongs: fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn unexpected(&self, what: char) -> Trouble {
        Trouble::Message(format!("\"{}\": {what:?} at column {} is not expected there", self.text, self.at + 1))
    }

    fn sum(&mut self) -> Result<Quantity, Trouble> {
        let mut left = self.product()?;
        while let Some(operator) = self.take(&['+', '-']) {
            let right = self.product()?;
            if left.dimension != right.dimension {
                let (left, right) = (left.dimension.name(), right.dimension.name());
                let text = self.text;
                return Err(format!("\"{text}\": {left} {operator} {right} makes no sense; mend the units").into());
            }
            left.number = if operator == '+' { left.number + right.number } else { left.number - right.number };
        }
        self.finite(left)
    }

    fn product(&mut self) -> Result<Quantity, Trouble> {
        let mut left = self.factor()?;
        while let Some(operator) = self.take(&['*', '/']) {
            let right = self.factor()?;
            left = if operator == '*' {
                Quantity { number: left.number * right.number, dimension: left.dimension.times(right.dimension) }
            } else if right.number == 0.0 {
                return Err(format!("\"{}\" divides by zero", self.text).into());
            } else {
                Quantity { number: left.number / right.number, dimension: left.dimension.over(right.dimension) }
            };
        }
        self.finite(left)
    }

    fn factor(&mut self) -> Result<Quantity, Trouble> {
        self.deep += 1;
        if self.deep > MOST_DEEP {
            return Err(format!("the relation has more than {MOST_DEEP} parentheses in each other: split it").into());
        }
        let result = self.factor_inside();
        self.deep -= 1;
        result
    }

    fn factor_inside(&mut self) -> Result<Quantity, Trouble> {
        if self.take(&['-']).is_some() {
            let factor = self.factor()?;
            return Ok(Quantity { number: -factor.number, ..factor });
        }
        if self.take(&['(']).is_some() {
            let inside = self.sum()?;
            return match self.take(&[')']) {
                Some(_) => Ok(inside),
                None => Err(format!("\"{}\": a parenthesis is not closed", self.text).into()),
            };
        }
        match self.rest().chars().next() {
            None => Err(format!("\"{}\" ends where a number or a key is expected", self.text).into()),
            Some(first) if first.is_ascii_digit() => {
                let digits = self.word(|c| c.is_ascii_digit() || c == '.');
                let number = digits.parse().map_err(|_| format!("\"{}\": {digits} is no number", self.text))?;
                Ok(Quantity { number, dimension: Dimension::NONE })
            }
            Some(first) if first.is_ascii_lowercase() => {
                let key = self.word(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.');
                (self.value)(key)
            }
            Some(first) => Err(self.unexpected(first)),
        }
    }

    fn finite(&self, quantity: Quantity) -> Result<Quantity, Trouble> {
        if quantity.number.is_finite() {
            return Ok(quantity);
        }
        Err(format!("\"{}\" is too large to be computed", self.text).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Result<Quantity, String> {
        let result = evaluate(text, &mut |key| match key {
            "a.time" => Ok(Quantity { number: 12.0, dimension: Dimension::TIME }),
            "a.bytes" => Ok(Quantity { number: 48.0, dimension: Dimension::BYTES }),
            "a.broken" => Err(Trouble::Told),
            _ => Err(format!("{key} is unknown").into()),
        });
        result.map_err(|trouble| match trouble {
            Trouble::Message(message) => message,
            Trouble::Told => "told".to_string(),
        })
    }

    fn plain(text: &str) -> f64 {
        let quantity = number(text).expect("the relation has a value");
        assert_eq!(quantity.dimension, Dimension::NONE);
        quantity.number
    }

    #[test]
    fn precedence_association_signs_and_parentheses_are_those_of_arithmetic() {
        assert_eq!(plain("1 + 2 * 3"), 7.0);
        assert_eq!(plain("(1 + 2) * 3"), 9.0);
        assert_eq!(plain("10 - 4 - 3"), 3.0);
        assert_eq!(plain("64 / 4 / 2"), 8.0);
        assert_eq!(plain(" -(2.5-0.5) * - 3"), 6.0);
        assert_eq!(plain("1--1"), 2.0);
    }

    #[test]
    fn dimensions_are_carried_and_checked() {
        let rate = number("a.bytes / (2 * a.time)").expect("the relation has a value");
        assert_eq!(rate, Quantity { number: 2.0, dimension: Dimension::BYTE_RATE });
        let wrong = number("a.bytes + a.time").expect_err("bytes and time do not add");
        assert!(wrong.contains("a number of bytes + a time"), "{wrong}");
        assert!(number("a.time - 1").is_err());
    }

    #[test]
    fn what_is_no_relation_is_refused_with_its_place() {
        for (text, wanted) in [
            ("", "ends where"),
            ("1 +", "ends where"),
            ("(1", "not closed"),
            ("1)", "column 2"),
            ("1 2", "column 3"),
            ("1.2.3", "no number"),
            ("1 / (2 - 2)", "divides by zero"),
            ("b.c", "b.c is unknown"),
            ("1 % 2", "column 3"),
            ("µ", "column 1"),
            ("1 + a.broken", "told"),
        ] {
            let message = number(text).expect_err(text);
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }

    #[test]
    fn hostile_relations_end() {
        let deep = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(plain(&deep(MOST_DEEP - 1)), 1.0);
        assert!(number(&deep(MOST_DEEP)).is_err_and(|message| message.contains("parentheses")));
        assert!(number(&"-".repeat(900)).is_err());
        assert!(number(&"1+".repeat(1000)).is_err_and(|message| message.contains("longer")));
        let huge = format!("{n}*{n}", n = "9".repeat(300));
        assert!(number(&huge).is_err_and(|message| message.contains("too large")));
    }
}
