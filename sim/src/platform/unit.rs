//! Units of platform files, and what may be added to what.

/// What a number is a number of: powers of time, of bytes and of clock cycles. Everything that is counted is a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dimension {
    time: i32,
    bytes: i32,
    cycles: i32,
}

impl Dimension {
    pub(super) const NONE: Dimension = Dimension { time: 0, bytes: 0, cycles: 0 };
    pub(super) const TIME: Dimension = Dimension { time: 1, bytes: 0, cycles: 0 };
    pub(super) const BYTES: Dimension = Dimension { time: 0, bytes: 1, cycles: 0 };
    pub(super) const CYCLES: Dimension = Dimension { time: 0, bytes: 0, cycles: 1 };
    pub(super) const FREQUENCY: Dimension = Dimension { time: -1, bytes: 0, cycles: 1 };
    pub(super) const BYTE_RATE: Dimension = Dimension { time: -1, bytes: 1, cycles: 0 };
    pub(super) const RATE: Dimension = Dimension { time: -1, bytes: 0, cycles: 0 };

    pub(super) fn times(self, other: Dimension) -> Dimension {
        Dimension {
            time: self.time.saturating_add(other.time),
            bytes: self.bytes.saturating_add(other.bytes),
            cycles: self.cycles.saturating_add(other.cycles),
        }
    }

    pub(super) fn over(self, other: Dimension) -> Dimension {
        self.times(Dimension {
            time: other.time.saturating_neg(),
            bytes: other.bytes.saturating_neg(),
            cycles: other.cycles.saturating_neg(),
        })
    }

    /// In words, for messages.
    pub(super) fn name(self) -> String {
        match self {
            Dimension::NONE => "a plain number".to_string(),
            Dimension::TIME => "a time".to_string(),
            Dimension::BYTES => "a number of bytes".to_string(),
            Dimension::CYCLES => "a number of cycles".to_string(),
            Dimension::FREQUENCY => "a clock frequency".to_string(),
            Dimension::BYTE_RATE => "bytes over time".to_string(),
            Dimension::RATE => "a number over time".to_string(),
            Dimension { time, bytes, cycles } => format!("time^{time} bytes^{bytes} cycles^{cycles}"),
        }
    }
}

/// A number in base units (picoseconds, bytes, cycles), and of what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    pub(super) number: f64,
    pub(super) dimension: Dimension,
}

/// A unit: its name in platform files, its dimension, and how many base units it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) dimension: Dimension,
    pub(super) scale: f64,
}

const fn unit(name: &'static str, dimension: Dimension, scale: f64) -> Unit {
    Unit { name, dimension, scale }
}

/// What is counted: the unit of a number of such things. Two kinds of things are not the same unit.
pub(super) const COUNTED: &[&str] = &[
    "cores",
    "lines",
    "loads",
    "instructions",
    "stores",
    "buffers",
    "ways",
    "sets",
    "entries",
    "channels",
    "links",
    "lanes",
    "flits",
    "slots",
    "slices",
    "requests",
    "reads",
    "writes",
    "descriptors",
    "agents",
    "words",
    "units",
    "engines",
    "messages",
    "nodes",
    "ranks",
    "groups",
    "banks",
    "transfers",
    "devices",
];

/// Units with a dimension or a factor of their own. A transfer (GT/s) is one bit on one lane.
const UNITS: &[Unit] = &[
    unit("ps", Dimension::TIME, 1.0),
    unit("ns", Dimension::TIME, 1e3),
    unit("us", Dimension::TIME, 1e6),
    unit("cycles", Dimension::CYCLES, 1.0),
    unit("MHz", Dimension::FREQUENCY, 1e-6),
    unit("GHz", Dimension::FREQUENCY, 1e-3),
    unit("bits", Dimension::BYTES, 0.125),
    unit("bytes", Dimension::BYTES, 1.0),
    unit("KiB", Dimension::BYTES, 1024.0),
    unit("MiB", Dimension::BYTES, 1_048_576.0),
    unit("Mb/s", Dimension::BYTE_RATE, 1.25e-7),
    unit("Gb/s", Dimension::BYTE_RATE, 1.25e-4),
    unit("GT/s", Dimension::BYTE_RATE, 1.25e-4),
    unit("MB/s", Dimension::BYTE_RATE, 1e-6),
    unit("GB/s", Dimension::BYTE_RATE, 1e-3),
    unit("Mpps", Dimension::RATE, 1e-6),
    unit("1/us", Dimension::RATE, 1e-6),
    unit("1/s", Dimension::RATE, 1e-12),
    unit("ratio", Dimension::NONE, 1.0),
    unit("permille", Dimension::NONE, 1e-3),
];

/// The unit of that name.
pub(super) fn find(name: &str) -> Option<Unit> {
    let counted = || COUNTED.iter().find(|counted| **counted == name).map(|name| unit(name, Dimension::NONE, 1.0));
    UNITS.iter().find(|unit| unit.name == name).copied().or_else(counted)
}

/// The names of all units, and of those alone that have a dimension where one is given: for messages.
pub(super) fn names(dimension: Option<Dimension>) -> String {
    let fits = |unit: &&Unit| dimension.is_none_or(|dimension| unit.dimension == dimension);
    let mut names: Vec<&str> = UNITS.iter().filter(fits).map(|unit| unit.name).collect();
    if dimension.is_none() {
        names.extend(COUNTED);
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(number: f64, name: &str) -> f64 {
        number * find(name).expect("the unit exists").scale
    }

    #[test]
    fn units_are_worth_what_they_say() {
        let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} is not {b}");
        near(base(1.0, "us"), base(1000.0, "ns"));
        near(base(1.0, "ns"), base(1000.0, "ps"));
        near(base(1.0, "GHz"), base(1000.0, "MHz"));
        // A cycle at one gigahertz is a nanosecond.
        near(base(1.0, "cycles") / base(1.0, "GHz"), base(1.0, "ns"));
        near(base(8.0, "Gb/s"), base(1.0, "GB/s"));
        near(base(1000.0, "Mb/s"), base(1.0, "Gb/s"));
        near(base(1000.0, "MB/s"), base(1.0, "GB/s"));
        near(base(1.0, "GB/s") * base(1.0, "ns"), base(1.0, "bytes"));
        near(base(16.0, "GT/s") * 16.0, base(32.0, "GB/s"));
        near(base(8.0, "bits"), base(1.0, "bytes"));
        near(base(1.0, "Mpps") * base(1.0, "us"), 1.0);
        near(base(1.0, "1/us"), base(1e6, "1/s"));
        near(base(1.0, "MiB"), base(1024.0, "KiB"));
        near(base(1000.0, "permille"), base(1.0, "ratio"));
    }

    #[test]
    fn dimensions_follow_products_and_quotients() {
        assert_eq!(Dimension::BYTES.over(Dimension::TIME), Dimension::BYTE_RATE);
        assert_eq!(Dimension::BYTES.over(Dimension::BYTE_RATE), Dimension::TIME);
        assert_eq!(Dimension::CYCLES.over(Dimension::FREQUENCY), Dimension::TIME);
        assert_eq!(Dimension::NONE.over(Dimension::TIME), Dimension::RATE);
        assert_eq!(Dimension::TIME.times(Dimension::RATE), Dimension::NONE);
    }
}
