//! Options that several commands take, and numbers as people read them.

use std::str::FromStr;
use std::time::Duration;

use conic_native::cores;

/// Which core the NIC and which the application run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The NIC's.
    pub nic: usize,
    /// The application's.
    pub application: usize,
}

impl Cores {
    /// The first two cores that this process may use; none where there is only one, so that neither side is bound.
    pub fn default_pair() -> Option<Cores> {
        match cores()[..] {
            [nic, application, ..] => Some(Cores { nic, application }),
            _ => None,
        }
    }
}

impl FromStr for Cores {
    type Err = String;

    /// `A,B`: the NIC's core and the application's.
    fn from_str(text: &str) -> Result<Cores, String> {
        let there = cores();
        let numbers: Vec<usize> = text.split(',').map_while(|part| part.parse().ok()).collect();
        let [nic, application] = numbers[..] else {
            return Err("give two cores as A,B: the NIC's and the application's".to_owned());
        };
        match [nic, application].iter().find(|core| !there.contains(core)) {
            Some(core) => Err(format!("this process may not run on core {core}; it may on {there:?}")),
            None => Ok(Cores { nic, application }),
        }
    }
}

/// A span of time: a number with `ms`, `s`, `min` or `h` behind it; without any, seconds.
///
/// # Errors
///
/// Anything else.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("'{unit}' is no unit of time; give ms, s, min or h")),
    };
    let number: f64 = number.parse().map_err(|_| "give a time such as 10s, 500ms or 2min".to_owned())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

/// A count with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A span in seconds with a unit that suits it.
pub fn span(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "-1s", "1d", "1e99h", "1.2.3"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_grouped_by_threes() {
        let texts = [0, 7, 999, 1000, 20_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "7", "999", "1 000", "20 000", "1 234 567"]);
    }
}
