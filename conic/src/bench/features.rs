//! CC-NIC's switches as the command line writes them.

use conic_interface::ccnic::{Features, Packing, Signal};

/// The names, for help and errors.
pub const NAMES: &str = "paper, best; clear, phase, register; grouped, packed, padded; and, each also with no- before it: \
whole-line, inline-payload, recycling, scattered, small-buffers, shared-pool";

/// Reads switches: a comma-separated list of names, each of which changes what those before it made of
/// [`Features::best`].
///
/// # Errors
///
/// The name that is none, and those that are.
pub fn parse(list: &str) -> Result<Features, String> {
    let mut features = Features::best();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match name {
            "paper" => features = Features::paper(),
            "best" => features = Features::best(),
            "clear" => features.signal = Signal::Clear,
            "phase" => features.signal = Signal::Phase,
            "register" => features.signal = Signal::Register,
            "grouped" => features.packing = Packing::Grouped,
            "packed" => features.packing = Packing::Packed,
            "padded" => features.packing = Packing::Padded,
            switch => {
                let (name, on) = switch.strip_prefix("no-").map_or((switch, true), |name| (name, false));
                *switch_of(&mut features, name)
                    .ok_or_else(|| format!("there is no feature \"{switch}\"; there are {NAMES}"))? = on;
            }
        }
    }
    Ok(features)
}

fn switch_of<'a>(features: &'a mut Features, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "whole-line" => &mut features.whole_line,
        "inline-payload" => &mut features.inline_payload,
        "recycling" => &mut features.recycling,
        "scattered" => &mut features.scattered,
        "small-buffers" => &mut features.small_buffers,
        "shared-pool" => &mut features.shared_pool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_features_print_is_what_they_are_read_from() {
        let mut all = vec![Features::paper(), Features::best()];
        for name in ["whole-line", "inline-payload", "recycling", "scattered", "small-buffers", "shared-pool"] {
            for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
                for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
                    let mut features = Features { signal, packing, ..Features::paper() };
                    let switch = switch_of(&mut features, name).expect("one of the names");
                    *switch = !*switch;
                    all.push(features);
                }
            }
        }
        for features in all {
            assert_eq!(parse(&features.to_string()), Ok(features));
        }
    }

    #[test]
    fn later_names_change_what_earlier_ones_made() {
        assert_eq!(parse("paper"), Ok(Features::paper()));
        assert_eq!(parse(""), Ok(Features::best()));
        assert_eq!(parse("paper,no-recycling"), Ok(Features { recycling: false, ..Features::paper() }));
        assert_eq!(parse("no-recycling,paper"), Ok(Features::paper()));
        assert_eq!(parse(" paper, register "), Ok(Features { signal: Signal::Register, ..Features::paper() }));
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        for bad in ["recycle", "no-", "no-phase", "no-no-recycling", "Paper"] {
            let error = parse(bad).expect_err("no feature has that name");
            assert!(error.contains(bad) && error.contains("small-buffers"), "{error}");
        }
    }
}
