//! Options that several commands take, and numbers as people read them.

use std::io::{IsTerminal, stdout};
use std::str::FromStr;

use conic_fabric::Time;
use conic_native::{cores, may_run_on};
use ratatui::crossterm::terminal;

pub use conic_chart::grouped;

/// Pieces of a text, and what is between two of them, in lines of at most `room` characters, but for pieces that are longer.
pub fn in_lines<'a>(pieces: impl Iterator<Item = &'a str>, between: &str, room: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines = vec![String::new()];
    for piece in pieces {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(piece);
        } else if length(line) + length(between) + length(piece) <= room {
            *line += between;
            *line += piece;
        } else {
            lines.push(piece.to_owned());
        }
    }
    lines
}

/// Which core the application and which the NIC run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The application's.
    pub application: usize,
    /// The NIC's.
    pub nic: usize,
}

impl Cores {
    /// The first two cores that this process may use; none where there is only one, so that neither side is bound.
    pub fn default_pair() -> Option<Cores> {
        match cores()[..] {
            [application, nic, ..] => Some(Cores { application, nic }),
            _ => None,
        }
    }
}

impl FromStr for Cores {
    type Err = String;

    /// Reads what [`core_pair`] does, of cores that this process may run on; both sides may have the same one.
    fn from_str(text: &str) -> Result<Cores, String> {
        let (application, nic) = core_pair(text)?;
        [application, nic].into_iter().try_for_each(may_run_on).map_err(|error| error.to_string())?;
        Ok(Cores { application, nic })
    }
}

/// How many columns the terminal has that is written to: as `COLUMNS` says, or else the terminal; none where neither does.
pub fn columns() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let asked = || terminal::size().ok().filter(|_| stdout().is_terminal()).map(|(columns, _)| columns.into());
    // A terminal that does not know it says 0.
    told.or_else(asked).filter(|&columns| columns > 0)
}

/// Reads two cores: the application's and the NIC's, or those of whatever else the two sides are.
///
/// # Errors
///
/// What is wanted instead.
pub fn core_pair(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("two core numbers are wanted, as in 0,1, not \"{text}\"");
    let (application, nic) = text.split_once(',').ok_or_else(wrong)?;
    let number = |part: &str| part.trim().parse().map_err(|_| wrong());
    Ok((number(application)?, number(nic)?))
}

/// Reads a span of time: 200us, 50ms, 1.5s, 2min, 1h.
///
/// # Errors
///
/// What is wanted instead.
pub fn span(text: &str) -> Result<Time, String> {
    let wrong = || format!("a time is wanted, as in 50ms, 1.5s or 2min, not \"{text}\"");
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(wrong()),
    };
    let nanoseconds = number.trim().parse::<f64>().map_err(|_| wrong())? * scale;
    if !(1e3..=24.0 * 3600e9).contains(&nanoseconds) {
        return Err(format!("a time from 1us to 24h is wanted, not \"{text}\""));
    }
    Ok(Time::from_nanoseconds(nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(span("50ms"), Ok(Time::from_nanoseconds(50_000_000)));
        assert_eq!(span("1.5s"), Ok(Time::from_nanoseconds(1_500_000_000)));
        assert_eq!(span("2min"), Ok(Time::from_nanoseconds(120_000_000_000)));
        for bad in ["", "5", "ms", "25h", "-1s", "0s", "1e99s", "NaNs", "5 parsecs", "1.2.3s"] {
            assert!(span(bad).is_err(), "{bad} was read as a time");
        }
    }

    #[test]
    fn cores_are_two_numbers_the_applications_first() {
        assert_eq!(core_pair("0,1"), Ok((0, 1)));
        assert_eq!(core_pair("3, 2"), Ok((3, 2)));
        for bad in ["", "1", "1,", "a,b", "0,1,2", "0,1,x"] {
            assert!(core_pair(bad).is_err(), "{bad} was read as two cores");
            assert!(bad.parse::<Cores>().is_err(), "{bad} was read as two cores");
        }
        let first = cores()[0];
        assert_eq!(format!("{first},{first}").parse(), Ok(Cores { application: first, nic: first }));
    }
}
