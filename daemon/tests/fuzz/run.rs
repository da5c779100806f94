//! Runs a fuzzer, says how far it is, and keeps what fails.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use conic_check::{Inputs, attempt};
use conic_native::{Count, clock};

use crate::target::Target;
use crate::{Fuzzer, root};

/// What is to be done.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    /// For how long each fuzzer runs; the corpus and some rounds where nothing is said.
    pub seconds: Option<f64>,
    /// One input alone.
    pub input: Option<PathBuf>,
}

/// How often it is said how far a fuzzer is.
const PROGRESS: Duration = Duration::from_secs(10);

/// An input that takes so long has no end.
const LONGEST: Duration = Duration::from_secs(60);

/// Attempts to make an input smaller that fails.
const MOST_ATTEMPTS: usize = 2000;

/// An input that failed.
struct Failure {
    input: Vec<u8>,
    why: String,
    /// The file of the corpus that it is, if it is one.
    file: Option<PathBuf>,
}

/// How far a fuzzer is.
struct Progress {
    inputs: Count,
    kept: Count,
    reached: Count,
}

/// Runs a fuzzer; false if it has found something.
pub fn run(fuzzer: &'static Fuzzer, plan: &Plan) -> bool {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    std::fs::create_dir_all(&folder).expect("a folder in the build's");
    let current = folder.join(fuzzer.name).with_extension("current");
    let progress = Arc::new(Progress { inputs: Count::new(0), kept: Count::new(0), reached: Count::new(0) });
    let (done, ended) = channel();
    let (of_thread, plan, file) = (Arc::clone(&progress), plan.clone(), current.clone());
    let seed = plan.seed;
    let thread = std::thread::spawn(move || {
        let outcome = search(fuzzer, &plan, &of_thread, &file);
        let _ = done.send(());
        outcome
    });
    let begun = clock::now();
    let (mut last, mut still) = (0, Duration::ZERO);
    while ended.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
        let inputs = progress.inputs.get();
        still = if inputs == last { still + PROGRESS } else { Duration::ZERO };
        last = inputs;
        if still >= LONGEST {
            println!("FAILED: {}: an input takes longer than {LONGEST:?}", fuzzer.name);
            tell(fuzzer, &current);
            return false;
        }
        println!("{}: {}", fuzzer.name, said(&progress, clock::now().since(begun).seconds()));
    }
    let seconds = clock::now().since(begun).seconds();
    match thread.join() {
        Ok(Ok(seen)) => {
            println!("{}: {}; {seen}", fuzzer.name, said(&progress, seconds));
            true
        }
        Ok(Err(failure)) => {
            let Failure { input, why, file } = failure;
            println!("FAILED: {}: {why}", fuzzer.name);
            let file = file.unwrap_or_else(|| {
                let kept = folder.join(format!("{}-{seed}-{}.bin", fuzzer.name, progress.inputs.get()));
                std::fs::write(&kept, input).expect("a file in the build's folder");
                kept
            });
            tell(fuzzer, &file);
            false
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn said(progress: &Progress, seconds: f64) -> String {
    let (inputs, kept, reached) = (progress.inputs.get(), progress.kept.get(), progress.reached.get());
    let learned = if reached > 0 { format!(", {kept} of them kept, {reached} branches") } else { String::new() };
    format!("{inputs} inputs in {seconds:.0} s, {:.0} a second{learned}", inputs as f64 / seconds)
}

/// How an input is taken again, and kept.
fn tell(fuzzer: &Fuzzer, file: &Path) {
    let (name, corpus) = (fuzzer.name, fuzzer.corpus);
    println!("again: cargo test -p conic-daemon --test fuzz -- --only {name} --input {}", file.display());
    println!("to be kept in {corpus} when it is mended, by what was wrong");
}

/// Gives the fuzzer all its inputs; what was seen.
fn search(fuzzer: &Fuzzer, plan: &Plan, progress: &Progress, current: &Path) -> Result<String, Failure> {
    // Before the target is made, which may count descriptors.
    let mut file = File::create(current).expect("a file in the build's folder");
    let mut target = (fuzzer.make)();
    let mut take = |target: &mut Box<dyn Target>, input: &[u8]| {
        // What ends the process, or has no end, is found here.
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(input)).expect("a file");
        progress.inputs.set(progress.inputs.get() + 1);
        attempt(input, |input| target.run(input))
    };
    if let Some(path) = &plan.input {
        let input = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let taken = take(&mut target, &input);
        return taken.map(|()| "it is taken".to_owned()).map_err(|why| Failure {
            input,
            why,
            file: Some(path.clone()),
        });
    }
    let mut inputs = Inputs::new(&root().join(fuzzer.corpus), plan.seed, fuzzer.record);
    for (path, input) in inputs.files() {
        let taken = take(&mut target, input);
        taken.map_err(|why| Failure { input: input.to_vec(), why, file: Some(path.to_owned()) })?;
    }
    let until = plan.seconds.map(|seconds| (clock::now(), seconds));
    for round in 0.. {
        let is_over = until.map_or(round >= fuzzer.rounds, |(begun, most)| clock::now().since(begun).seconds() > most);
        if is_over {
            break;
        }
        let input = inputs.next_input();
        if let Err(why) = take(&mut target, &input) {
            drop(target);
            return Err(smaller(fuzzer, Failure { input, why, file: None }));
        }
        inputs.learn(input);
        let (kept, reached) = inputs.learned();
        progress.kept.set(kept as u64);
        progress.reached.set(reached.unwrap_or(0) as u64);
    }
    let (input, file) = (Vec::new(), None);
    let mut seen = String::new();
    attempt(&[], |_| seen = target.end()).map_err(|why| Failure { input, why, file })?;
    Ok(seen)
}

/// Leaves out of an input what it fails without, as far as is found soon.
fn smaller(fuzzer: &Fuzzer, mut failure: Failure) -> Failure {
    std::panic::set_hook(Box::new(|_| {}));
    let mut attempts = 0;
    let mut size = (failure.input.len() / 2 / fuzzer.record * fuzzer.record).max(fuzzer.record);
    loop {
        let mut at = 0;
        while at < failure.input.len() && attempts < MOST_ATTEMPTS {
            attempts += 1;
            let mut input = failure.input.clone();
            input.drain(at..(at + size).min(input.len()));
            // A target that has failed is not asked again.
            let mut target = (fuzzer.make)();
            match attempt(&input, |input| target.run(input)) {
                Err(why) => failure = Failure { input, why, file: None },
                Ok(()) => at += size,
            }
        }
        if size == fuzzer.record || attempts >= MOST_ATTEMPTS {
            break;
        }
        size = (size / 2 / fuzzer.record * fuzzer.record).max(fuzzer.record);
    }
    let _ = std::panic::take_hook();
    failure
}
