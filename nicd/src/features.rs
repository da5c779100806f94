//! An interface's switches, as people write them.

use conic_interface::ccnic::{Features, Packing, Signal};

/// Reads switches such as `paper`, `best,no-inline-payload` or what a [`Features`] value prints: words with commas between
/// them, each of which changes what the words before it have set. The first words act on [`Features::best`].
///
/// # Errors
///
/// A word that is none; the text lists those that are.
pub fn parse_features(text: &str) -> Result<Features, String> {
    let mut features = Features::best();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (on, name) = match word.strip_prefix("no-") {
            Some(name) => (false, name),
            None => (true, word),
        };
        match (name, on) {
            ("paper", true) => features = Features::paper(),
            ("best", true) => features = Features::best(),
            ("clear", true) => features.signal = Signal::Clear,
            ("phase", true) => features.signal = Signal::Phase,
            ("register", true) => features.signal = Signal::Register,
            ("grouped", true) => features.packing = Packing::Grouped,
            ("packed", true) => features.packing = Packing::Packed,
            ("padded", true) => features.packing = Packing::Padded,
            ("whole-line", _) => features.whole_line = on,
            ("inline-payload", _) => features.inline_payload = on,
            ("recycling", _) => features.recycling = on,
            ("scattered", _) => features.scattered = on,
            ("small-buffers", _) => features.small_buffers = on,
            ("shared-pool", _) => features.shared_pool = on,
            _ => {
                return Err(format!(
                    "'{word}' is no feature; there are paper, best; clear, phase, register; grouped, packed, padded; \
                     and, each with or without no- before it: whole-line, inline-payload, recycling, scattered, \
                     small-buffers, shared-pool"
                ));
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_features_print_reads_back() {
        for signal in [Signal::Clear, Signal::Phase, Signal::Register] {
            for packing in [Packing::Grouped, Packing::Packed, Packing::Padded] {
                for bits in 0..64u8 {
                    let on = |bit: u8| bits >> bit & 1 == 1;
                    let features = Features {
                        signal,
                        packing,
                        whole_line: on(0),
                        inline_payload: on(1),
                        recycling: on(2),
                        scattered: on(3),
                        small_buffers: on(4),
                        shared_pool: on(5),
                    };
                    assert_eq!(parse_features(&features.to_string()), Ok(features));
                }
            }
        }
    }

    #[test]
    fn words_change_what_stands_before_them() {
        assert_eq!(parse_features(""), Ok(Features::best()));
        assert_eq!(parse_features("paper"), Ok(Features::paper()));
        let without = Features { recycling: false, ..Features::paper() };
        assert_eq!(parse_features("no-recycling,paper, no-recycling"), Ok(without));
        for wrong in ["no-clear", "papers", "no-"] {
            assert!(parse_features(wrong).is_err_and(|text| text.contains(wrong)), "{wrong}");
        }
    }
}
