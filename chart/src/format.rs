//! Numbers as text. Every function takes any `f64`; one that is not finite becomes "n/a".

/// What is written in place of a number that is not finite.
pub(crate) const NOT_A_NUMBER: &str = "n/a";

/// SI prefixes for powers of 1000 from -6 to 6.
const PREFIXES: [&str; 13] = ["a", "f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"];

/// A count with a comma every three digits, exact: `grouped(1234567)` is "1,234,567".
pub fn grouped(count: u64) -> String {
    with_commas(&count.to_string())
}

/// Digits with a comma before every three of them from the right.
fn with_commas(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Fixed decimals with a comma every three digits: `thousands(1234.5, 1)` is "1,234.5".
pub fn thousands(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NOT_A_NUMBER.to_string();
    }
    let digits = format!("{:.*}", decimals.min(18), value.abs());
    let (whole, fraction) = digits.split_once('.').map_or((digits.as_str(), None), |(w, f)| (w, Some(f)));
    let mut out = String::new();
    // A rounded zero has no sign.
    if value < 0.0 && digits.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('-');
    }
    out.push_str(&with_commas(whole));
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// At least `digits` significant digits, never fewer than the whole part has: `significant(1204.4, 3)` is "1,204",
/// `significant(41.23, 3)` is "41.2", `significant(0.01234, 3)` is "0.0123".
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() || value == 0.0 {
        return thousands(value, 0);
    }
    thousands(value, decimals_for(value, digits))
}

/// Decimals that show `digits` significant digits of a finite `value` other than 0, after rounding.
fn decimals_for(value: f64, digits: usize) -> usize {
    let digits = digits.max(1) as i32;
    let exponent = value.abs().log10().floor() as i32;
    let decimals = (digits - 1 - exponent).clamp(0, 18);
    // 9.996 to three digits is 10.0, not 10.00.
    let unit = 10f64.powi(-decimals);
    let rounded = (value.abs() / unit).round() * unit;
    let grown = rounded >= 10f64.powi(exponent + 1) * (1.0 - 1e-12);
    (decimals - i32::from(grown)).max(0) as usize
}

/// Three significant digits with an SI prefix and the unit: `si(41.2e6, "pps")` is "41.2 Mpps".
/// Only for units that carry no prefix of their own.
pub fn si(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return NOT_A_NUMBER.to_string();
    }
    let mut group = group_of(value);
    let mut number = significant(value / 1000f64.powi(group), 3);
    if number.trim_start_matches('-') == "1,000" && group < 6 {
        group += 1;
        number = significant(value / 1000f64.powi(group), 3);
    }
    let prefix = PREFIXES[(group + 6) as usize];
    if prefix.is_empty() && unit.is_empty() { number } else { format!("{number} {prefix}{unit}") }
}

/// Three significant digits and the unit as it stands: `quantity(1204.0, "ns")` is "1,204 ns".
pub fn quantity(value: f64, unit: &str) -> String {
    let number = significant(value, 3);
    match unit {
        "" => number,
        "%" => format!("{number}%"),
        _ => format!("{number} {unit}"),
    }
}

/// The power of 1000 whose prefix suits `value`.
fn group_of(value: f64) -> i32 {
    if value == 0.0 {
        return 0;
    }
    ((value.abs().log10() / 3.0 + 1e-12).floor() as i32).clamp(-6, 6)
}

/// Labels for evenly spaced ticks: one prefix and one number of decimals for all, so that they are read as a column.
pub(crate) fn tick_labels(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let group = if (1e-3..1e6).contains(&largest) { 0 } else { group_of(largest) };
    let scale = 1000f64.powi(group);
    let step = (step / scale).abs();
    let decimals =
        if step > 0.0 && step.is_finite() { (-(step.log10() + 1e-9).floor()).clamp(0.0, 15.0) as usize } else { 0 };
    let prefix = PREFIXES[(group + 6) as usize];
    let label = |v: &f64| match *v {
        0.0 => "0".to_string(),
        v => format!("{}{prefix}", thousands(v / scale, decimals)),
    };
    values.iter().map(label).collect()
}

/// Label of one tick of a logarithmic axis, where each has its own size.
pub(crate) fn log_tick_label(value: f64) -> String {
    let group = if (1e-3 * 0.999..1e6 * 0.999).contains(&value) { 0 } else { group_of(value) };
    let number = significant(value / 1000f64.powi(group), 1);
    format!("{number}{}", PREFIXES[(group + 6) as usize])
}

/// Label of a percentile tick: as many decimals as it has nines.
pub(crate) fn tail_tick_label(percent: f64) -> String {
    let text = format!("{percent:.9}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_groups_digits_and_drops_the_sign_of_a_rounded_zero() {
        assert_eq!(thousands(1234567.891, 2), "1,234,567.89");
        assert_eq!(thousands(-999.0, 0), "-999");
        assert_eq!(thousands(-1000.0, 0), "-1,000");
        assert_eq!(thousands(-0.001, 1), "0.0");
        assert_eq!(thousands(f64::NAN, 1), "n/a");
        assert_eq!(thousands(f64::NEG_INFINITY, 1), "n/a");
        assert_eq!([0, 999, 1_000, 36_112_456].map(grouped), ["0", "999", "1,000", "36,112,456"]);
    }

    #[test]
    fn significant_keeps_the_whole_part_and_rounds_into_the_next_decade() {
        assert_eq!(significant(1204.4, 3), "1,204");
        assert_eq!(significant(41.23, 3), "41.2");
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(99.96, 3), "100");
        assert_eq!(significant(0.01234, 3), "0.0123");
        assert_eq!(significant(-0.5, 3), "-0.500");
        assert_eq!(significant(0.0, 3), "0");
    }

    #[test]
    fn si_picks_the_prefix_after_rounding() {
        assert_eq!(si(41.2e6, "pps"), "41.2 Mpps");
        assert_eq!(si(999.96e3, "pps"), "1.00 Mpps");
        assert_eq!(si(812e-9, "s"), "812 ns");
        assert_eq!(si(1e-6, "s"), "1.00 µs");
        assert_eq!(si(1e3, ""), "1.00 k");
        assert_eq!(si(5.0, ""), "5.00");
        assert_eq!(si(0.0, "s"), "0 s");
        assert!(si(1e300, "s").contains("E"));
    }

    #[test]
    fn ticks_share_prefix_and_decimals() {
        assert_eq!(tick_labels(&[0.0, 0.5, 1.0, 1.5], 0.5), ["0", "0.5", "1.0", "1.5"]);
        assert_eq!(tick_labels(&[0.0, 5e6, 1e7], 5e6), ["0", "5M", "10M"]);
        assert_eq!(tick_labels(&[800.0, 1000.0, 1200.0], 200.0), ["800", "1,000", "1,200"]);
        assert_eq!(log_tick_label(1e5), "100,000");
        assert_eq!(log_tick_label(1e6), "1M");
        assert_eq!(log_tick_label(0.05), "0.05");
        assert_eq!(log_tick_label(2e-5), "20µ");
        assert_eq!(tail_tick_label(99.9), "99.9%");
        assert_eq!(tail_tick_label(0.0), "0%");
        assert_eq!(tail_tick_label(90.0), "90%");
    }
}
