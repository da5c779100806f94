//! What is wrong with a value on the command line, in words that ask for no Rust: what was wrong, where, and what is accepted.

use std::error::Error as _;
use std::ffi::OsString;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::Error;
use clap::error::{ContextKind, ContextValue};

/// A number that every integer is read from and hardly an option accepts.
const HUGE: &str = "9223372036854775807";

/// The same error in plain words, where the parser's own are Rust's. `parse` reads another command line: what an option accepts is known
/// to its reader alone, which says it when it refuses.
pub fn plainly(error: Error, words: &[OsString], parse: impl Fn(&[OsString]) -> Option<Error>) -> Error {
    let (Some(option), Some(value)) = (text(&error, ContextKind::InvalidArg), text(&error, ContextKind::InvalidValue))
    else {
        return error;
    };
    // What the same option says of another value; what another option says is nothing to it.
    let instead = |other: &str| {
        let words: Vec<OsString> = words.iter().map(|word| replaced(word, &value, other)).collect();
        parse(&words).filter(|error| text(error, ContextKind::InvalidArg).as_ref() == Some(&option))
    };
    let Some(wanted) = wanted(&error, instead) else { return error };
    let said =
        format!("invalid value '{value}' for '{option}': {wanted} is wanted\n\nFor more information, try '--help'.\n");
    Error::raw(error.kind(), said)
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

/// A word of a command line with a value in the place of another, which may be one of a list.
fn replaced(word: &OsString, value: &str, other: &str) -> OsString {
    match word.to_str() {
        Some(word) if word.split([',', '=']).any(|part| part == value) => word.replace(value, other).into(),
        _ => word.clone(),
    }
}

/// What would be accepted.
fn wanted(error: &Error, instead: impl Fn(&str) -> Option<Error>) -> Option<String> {
    let source = error.source()?;
    if source.is::<AddrParseError>() {
        return Some("an address with a port, such as 127.0.0.1:9464,".to_owned());
    }
    if source.is::<ParseFloatError>() {
        return Some("a number".to_owned());
    }
    if !source.is::<ParseIntError>() {
        return range(&source.to_string());
    }
    if let Some(range) = instead(HUGE).and_then(|error| range(&error.source()?.to_string())) {
        return Some(range);
    }
    let refuses_zero = instead("0").is_some_and(|error| {
        let source = error.source().and_then(|source| source.downcast_ref::<ParseIntError>());
        source.is_some_and(|error| *error.kind() == IntErrorKind::Zero)
    });
    Some(format!("a whole number from {}", u8::from(refuses_zero)))
}

/// `x is not in 1..=256`, in words.
fn range(said: &str) -> Option<String> {
    let (_, range) = said.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    Some(match most.trim_start_matches('=') {
        most if most.is_empty() || most == u64::MAX.to_string() => format!("a whole number from {least}"),
        most => format!("a whole number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Arguments;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let parse = |words: &[OsString]| Arguments::try_parse_from(words).err();
        let error = parse(&words).expect("it is refused");
        plainly(error, &words, parse).to_string()
    }

    #[test]
    fn a_value_that_is_no_number_is_told_what_is_accepted() {
        for (line, wanted) in [
            ("conic sim --window x", "'x' for '--window <PACKETS>': a whole number from 1 to 2048 is wanted"),
            ("conic sim --window=x --burst=x", "'x' for '--window <PACKETS>': a whole number from 1 to 2048 is wanted"),
            ("conic sim --window 0", "'0' for '--window <PACKETS>': a whole number from 1 to 2048 is wanted"),
            ("conic sim --threads x", "'x' for '--threads <NUMBER>': a whole number from 0 is wanted"),
            ("conic sim --seed 99999999999999999999", "'--seed <NUMBER>': a whole number from 0 is wanted"),
            ("conic study ccnic --jobs 0", "'0' for '--jobs <N>': a whole number from 1 is wanted"),
            ("conic study ccnic --jobs x", "'x' for '--jobs <N>': a whole number from 1 is wanted"),
            ("conic nic --core 1,x", "'x' for '--core <CORE,...>': a whole number from 0 is wanted"),
            ("conic nic --allow-user x", "'--allow-user <UID>': a whole number from 0 to 4294967295 is wanted"),
            ("conic nic --metrics x", "an address with a port, such as 127.0.0.1:9464, is wanted"),
            ("conic ctl limit 7 --rate 0", "'0' for '--rate <BYTES>': a whole number from 1 is wanted"),
            ("conic ctl limit x", "'x' for '<CLIENT>': a whole number from 0 is wanted"),
        ] {
            assert!(said(line).contains(wanted), "{line}: {}", said(line));
        }
    }

    #[test]
    fn what_is_said_plainly_stays() {
        for (line, words) in [
            ("conic sim --rate x", "give millions of packets a second"),
            ("conic sim --windw 3", "unexpected argument '--windw'"),
            ("conic sim --interface x", "[possible values: ccnic, ring, pcie]"),
        ] {
            assert!(said(line).contains(words), "{line}: {}", said(line));
        }
    }
}
