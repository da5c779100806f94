//! The verdict, for people and for programs.

use conic_interface::ccnic::Features;
use serde_json::{Value, json};

use super::Passed;
use super::output::{Compared, Output};
use super::witness::Verdict;
use crate::bench::common::nanoseconds;
use crate::value::{Cores, grouped};

/// Everything that a replay found.
pub struct Outcome {
    /// The capture's name.
    pub input: String,
    /// The interface's switches.
    pub features: Features,
    /// The two cores, if the threads were bound.
    pub cores: Option<Cores>,
    /// What passed.
    pub passed: Passed,
    /// The recording.
    pub output: Option<Output>,
}

impl Outcome {
    /// Whether the capture was sound and nothing changed.
    pub fn is_good(&self) -> bool {
        let output_good = !matches!(&self.output, Some(Output { compared: Compared::Differs(_), .. }));
        self.passed.verdict.is_identical() && self.passed.error.is_none() && output_good
    }

    /// Prints it.
    pub fn print(&self, json: bool) {
        if json {
            println!("{:#}", self.to_json());
        } else {
            print!("{}", self.to_text());
        }
    }

    fn to_text(&self) -> String {
        let Passed { verdict, port, nic, error, .. } = &self.passed;
        let seconds = verdict.seconds();
        let on = |core: Option<usize>| core.map_or(String::new(), |core| format!(" (core {core})"));
        let mut lines = vec![
            (
                "path",
                format!(
                    "{} -> NIC{} -> ccnic -> application{} -> ccnic -> NIC -> {}",
                    self.input,
                    on(self.cores.map(|cores| cores.nic)),
                    on(self.cores.map(|cores| cores.application)),
                    self.output.as_ref().map_or("compared".to_owned(), |output| output.path.display().to_string()),
                ),
            ),
            ("features", self.features.to_string()),
            ("frames", format!("{} in, {} back", grouped(verdict.frames_in), grouped(verdict.frames_out))),
            ("bytes", grouped(verdict.bytes_in)),
            (
                "skipped",
                format!(
                    "{} (truncated {}, too short {}, over 9600 bytes {}); {} padded to 60 bytes",
                    grouped(port.skipped()),
                    grouped(port.skipped_truncated),
                    grouped(port.skipped_short),
                    grouped(port.skipped_oversized),
                    grouped(port.received_padded),
                ),
            ),
        ];
        if seconds > 0.0 {
            let (rate, bits) = self.rates();
            lines.push((
                "time",
                format!("{}: {rate:.3} million frames/s, {bits:.2} Gbit/s", nanoseconds(seconds * 1e9)),
            ));
        }
        if nic.dropped() > 0 {
            let reasons = nic.named().into_iter().filter(|(name, count)| name.starts_with("dropped") && *count > 0);
            let reasons: Vec<String> = reasons.map(|(name, count)| format!("{name} {count}")).collect();
            lines.push(("dropped", reasons.join(", ")));
        }
        lines.push(("identical", in_words(verdict)));
        if let Some(output) = &self.output {
            lines.push(("output", output.in_words()));
        }
        if let Some(error) = error {
            lines.push(("error", error.clone()));
        }
        lines.iter().map(|(name, text)| format!("{name:<10} {text}\n")).collect()
    }

    /// Million frames and 10^9 bits a second.
    fn rates(&self) -> (f64, f64) {
        let verdict = &self.passed.verdict;
        let seconds = verdict.seconds();
        if seconds == 0.0 {
            return (0.0, 0.0);
        }
        (verdict.frames_out as f64 / seconds / 1e6, 8.0 * verdict.bytes_in as f64 / seconds / 1e9)
    }

    fn to_json(&self) -> Value {
        let Passed { verdict, port, nic, error, .. } = &self.passed;
        let (mpps, gbps) = self.rates();
        let output = self.output.as_ref().map(|Output { path, compared }| {
            let (frames, identical, difference) = match compared {
                Compared::Identical(frames) => (Some(*frames), Some(true), None),
                Compared::Differs(how) => (None, Some(false), Some(how)),
                Compared::NotRepeatable | Compared::NoFile => (None, None, None),
            };
            json!({ "path": path.display().to_string(), "frames": frames, "identical": identical, "difference": difference })
        });
        json!({
            "schema": "conic.replay/1",
            "capture": self.input,
            "interface": "ccnic",
            "features": self.features.to_string(),
            "cores": self.cores.map(|cores| json!({ "application": cores.application, "nic": cores.nic })),
            "frames_in": verdict.frames_in,
            "frames_out": verdict.frames_out,
            "bytes": verdict.bytes_in,
            "identical": verdict.is_identical(),
            "frames_identical": verdict.identical,
            "frames_changed": verdict.changed,
            "frames_missing": verdict.missing,
            "frames_extra": verdict.extra,
            "skipped": {
                "truncated": port.skipped_truncated,
                "short": port.skipped_short,
                "oversized": port.skipped_oversized,
            },
            "padded": port.received_padded,
            "dropped_by_nic": nic.dropped(),
            "seconds": verdict.seconds(),
            "mpps": mpps,
            "gbps": gbps,
            "output": output,
            "error": error,
        })
    }
}

fn in_words(verdict: &Verdict) -> String {
    if verdict.is_identical() {
        return "yes: every frame, byte for byte and in order".to_owned();
    }
    if verdict.frames_in == 0 {
        return "NOTHING TO COMPARE: no frame was replayed".to_owned();
    }
    format!(
        "NO: {} as they were, {} changed, {} missing, {} too many",
        grouped(verdict.identical),
        grouped(verdict.changed),
        grouped(verdict.missing),
        grouped(verdict.extra)
    )
}
