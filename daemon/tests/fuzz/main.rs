//! Fuzzers: bytes from somebody who is not trusted, to everything that takes such bytes.
//!
//! | fuzzer | what its inputs are | where |
//! |---|---|---|
//! | `control` | control messages with descriptors, to a daemon and to a client | `control`, `wire` |
//! | `nic-half` | images of a client's region, to the switch, beside others | `nic_half`, `bystander`, `image` |
//! | `host-half` | images of a region, to a client's queue | `host_half`, `image` |
//! | `memif` | a memif client's messages, and what it writes into its memory | `memif`, `conversations`, `wire` |
//! | `vhost` | the same of a vhost-user frontend | `vhost`, `conversations`, `wire` |
//! | `frames` | frames, to all that reads them | `frames` |
//!
//! `cargo test -p conic-daemon --test fuzz` takes the corpora, each of which holds what sound peers say (`exchanges`) and what was once taken
//! wrongly, and some thousand mutations from a fixed seed. `make fuzz MINUTES=10` goes on for so long, each, with another seed each time, and
//! where the compiler counts what is reached (`.ci/fuzz`), it mutates what has led to something new. An input that fails is made smaller,
//! written to a file, and shown with the command that takes it again.

mod bystander;
mod control;
mod conversations;
mod exchanges;
mod frames;
#[allow(dead_code, reason = "another test's, which needs more of it")]
#[path = "../../../interface/tests/ccnic/guard.rs"]
mod guard;
mod host_half;
mod image;
mod memif;
mod nic_half;
#[allow(dead_code, reason = "each test crate uses its part of a daemon")]
#[path = "../../../client/tests/support/mod.rs"]
mod played;
#[path = "../../../port/tests/reading/mod.rs"]
mod reading;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod target;
mod vhost;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conic_native::clock;
use conversations::{Conversations, Language};
use memif::OfMemif;

use run::{Plan, run};
use target::Target;
use vhost::OfVhost;

/// A fuzzer.
pub struct Fuzzer {
    /// What it is called.
    pub name: &'static str,
    /// Its corpus, from the repository's root.
    pub corpus: &'static str,
    /// Bytes of a record of its inputs; 1 where there are none.
    pub record: usize,
    /// Mutations where nobody says for how long: what takes a second or two.
    pub rounds: u64,
    /// Makes what takes them.
    pub make: fn() -> Box<dyn Target>,
}

fn made<T: Target + Default + 'static>() -> Box<dyn Target> {
    Box::new(T::default())
}

const FUZZERS: [Fuzzer; 6] = [
    Fuzzer {
        name: "control",
        corpus: "daemon/tests/fuzz/corpus/control",
        record: 1,
        rounds: 2_000,
        make: made::<control::Control>,
    },
    Fuzzer {
        name: "nic-half",
        corpus: "daemon/tests/fuzz/corpus/nic-half",
        record: image::RECORD,
        rounds: 1_000,
        make: made::<nic_half::NicHalf>,
    },
    Fuzzer {
        name: "host-half",
        corpus: "daemon/tests/fuzz/corpus/host-half",
        record: image::RECORD,
        rounds: 700,
        make: made::<host_half::HostHalf>,
    },
    Fuzzer {
        name: "memif",
        corpus: "daemon/tests/fuzz/corpus/memif",
        record: 1,
        rounds: 2_000,
        make: made::<Conversations<OfMemif>>,
    },
    Fuzzer {
        name: "vhost",
        corpus: "daemon/tests/fuzz/corpus/vhost",
        record: 1,
        rounds: 2_000,
        make: made::<Conversations<OfVhost>>,
    },
    Fuzzer {
        name: "frames",
        corpus: "port/tests/corpus/frames",
        record: 1,
        rounds: 20_000,
        make: made::<frames::Frames>,
    },
];

/// The seed where nobody says for how long.
const SEED: u64 = 2026;

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    minutes: Option<f64>,
    seed: Option<u64>,
    only: Option<String>,
    input: Option<PathBuf>,
    write_corpora: bool,
}

/// None where the harness's words ask for tests of another name.
fn asked() -> Option<Asked> {
    let mut asked = Asked::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} VALUE"));
        match word.as_str() {
            "--minutes" => asked.minutes = Some(value().parse().expect("--minutes NUMBER")),
            "--seed" => asked.seed = Some(value().parse().expect("--seed NUMBER")),
            "--only" => asked.only = Some(value()),
            "--input" => asked.input = Some(value().into()),
            "--write-corpora" => asked.write_corpora = true,
            // Names of other tests.
            "--skip" => _ = value(),
            "--list" => return None,
            other if other.starts_with('-') => {}
            filter if !"fuzz".contains(filter) => return None,
            _ => {}
        }
    }
    Some(asked)
}

/// What sound peers say, which each corpus holds: its folder, a file's name, and what it holds.
fn sound() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let [nic_half, host_half] = exchanges::all();
    let of = |fuzzer: &str| FUZZERS.iter().find(|one| one.name == fuzzer).expect("a fuzzer").corpus;
    let all = [
        (of("control"), control::sound()),
        (of("nic-half"), nic_half),
        (of("host-half"), host_half),
        (of("memif"), vec![("sound", OfMemif::sound())]),
        (of("vhost"), OfVhost::all()),
    ];
    all.into_iter()
        .flat_map(|(corpus, files)| files.into_iter().map(move |(name, bytes)| (corpus, name, bytes)))
        .collect()
}

/// Where the repository is.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

fn main() -> ExitCode {
    let Some(asked) = asked() else { return ExitCode::SUCCESS };
    for (corpus, name, bytes) in sound() {
        let path = root().join(corpus).join(name).with_extension("bin");
        if asked.write_corpora {
            std::fs::create_dir_all(root().join(corpus)).expect("a folder");
            std::fs::write(&path, &bytes).expect("a file");
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(kept == bytes, "{} is not what is said now; again: -- --write-corpora", path.display());
    }
    // Any number that is not the same each time.
    let drawn = || (clock::now().picoseconds() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let seed = asked.seed.unwrap_or_else(|| if asked.minutes.is_some() { drawn() } else { SEED });
    println!("seed {seed}");
    let plan = Plan { seed, seconds: asked.minutes.map(|minutes| 60.0 * minutes), input: asked.input };
    let wanted = FUZZERS.iter().filter(|one| asked.only.as_ref().is_none_or(|only| one.name == only));
    let outcomes: Vec<bool> = wanted.map(|fuzzer| run(fuzzer, &plan)).collect();
    assert!(!outcomes.is_empty(), "there is no such fuzzer; there are {:?}", FUZZERS.map(|one| one.name));
    if outcomes.iter().all(|&passed| passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
