//! Runs a model under every schedule, and says how many there were, or what went wrong.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use conic_fabric::Layout;

use crate::loom_memory::{Outgrown, Shared};
use crate::{LoomMemory, Mutation};

/// How far to explore.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The most times that a running thread is preempted in one execution; none: every schedule there is.
    pub preemption_bound: Option<usize>,
    /// The most points of choice in one execution. A loop that never yields reaches it, and fails.
    pub max_branches: usize,
    /// Fails after so many executions, because an exploration that was cut short shows nothing.
    pub max_executions: u64,
    /// What to weaken, to see whether the model notices.
    pub mutation: Option<Mutation>,
}

impl Default for Exploration {
    fn default() -> Exploration {
        Exploration { preemption_bound: None, max_branches: 1_000, max_executions: 1_000_000, mutation: None }
    }
}

impl Exploration {
    /// Every schedule there is.
    pub fn full() -> Exploration {
        Exploration::default()
    }

    /// Every schedule with at most so many preemptions.
    pub fn bounded(preemptions: usize) -> Exploration {
        Exploration { preemption_bound: Some(preemptions), ..Exploration::default() }
    }

    /// The same, with a protocol deliberately weakened.
    pub fn weakened(&self, mutation: Mutation) -> Exploration {
        Exploration { mutation: Some(mutation), ..self.clone() }
    }
}

/// A failure that an exploration found, as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The message of the panic, and which access it was in.
    pub message: String,
    /// The number of the execution that failed, from 1.
    pub execution: u64,
}

/// Runs a model under every schedule that `exploration` asks for, and returns how many executions that were.
///
/// The model is called once for each, on the first thread, with memory that is all zeroes. It starts its other threads
/// (at most four) with [`spawn`], each with a core of its own, and joins them. The first thread's stack is loom's, of
/// 32 KiB: what has large values goes to another.
///
/// # Panics
///
/// If any execution panics (an assertion of the model's, a race on an owned word, an access of the wrong kind, a
/// deadlock, too many branches), saying which; if there are more executions than `exploration.max_executions`.
pub fn explore(layout: &Layout, exploration: Exploration, model: impl Fn(&LoomMemory) + Send + Sync + 'static) -> u64 {
    match attempt(layout, &exploration, model) {
        Ok(passed) => passed.executions,
        Err(caught) => panic!("execution {}: {}", caught.execution, caught.message),
    }
}

/// Runs a model that must fail, and returns how it did. The failure prints nothing.
///
/// # Panics
///
/// If no execution fails: the model does not notice what was weakened.
pub fn catches(
    layout: &Layout,
    exploration: Exploration,
    model: impl Fn(&LoomMemory) + Send + Sync + 'static,
) -> Caught {
    match silently(|| attempt(layout, &exploration, model)) {
        Ok(Passed { executions, weakened }) => panic!(
            "nothing was caught in {executions} executions with {:?}, which weakened {weakened} accesses",
            exploration.mutation
        ),
        Err(caught) => caught,
    }
}

/// Starts a thread of a model, with room on its stack that `loom::thread::spawn` does not give.
pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> loom::thread::JoinHandle<T> {
    // In words: half a mebibyte, of which only what is touched costs anything.
    let builder = loom::thread::Builder::new().stack_size(64 * 1024);
    builder.spawn(run).expect("loom starts every thread that it has a number for")
}

/// An exploration in which nothing failed.
struct Passed {
    executions: u64,
    weakened: u64,
}

fn attempt(
    layout: &Layout,
    exploration: &Exploration,
    model: impl Fn(&LoomMemory) + Send + Sync + 'static,
) -> Result<Passed, Caught> {
    let shared = Arc::new(Shared::new(layout, exploration.mutation.clone()));
    let model = Arc::new(model);
    loop {
        *shared.log() = Default::default();
        let payload = match run(&shared, exploration, Arc::clone(&model)) {
            Ok(()) => break,
            Err(payload) => payload,
        };
        if !payload.is::<Outgrown>() {
            return Err(caught(&shared, payload.as_ref()));
        }
    }
    let log = shared.log();
    Ok(Passed { executions: log.executions, weakened: log.weakened })
}

/// Explores once, from the first schedule on.
fn run(
    shared: &Arc<Shared>,
    exploration: &Exploration,
    model: Arc<impl Fn(&LoomMemory) + Send + Sync + 'static>,
) -> Result<(), Box<dyn Any + Send>> {
    let mut builder = loom::model::Builder::new();
    // All of these are set, because their defaults come from the environment and would silently show less.
    builder.preemption_bound = exploration.preemption_bound;
    builder.max_branches = exploration.max_branches;
    builder.max_permutations = None;
    builder.max_duration = None;
    builder.checkpoint_file = None;
    let most = exploration.max_executions;
    let shared = Arc::clone(shared);
    catch_unwind(AssertUnwindSafe(|| {
        builder.check(move || {
            let executions = {
                let mut log = shared.log();
                log.executions += 1;
                log.last = None;
                log.executions
            };
            assert!(executions <= most, "not explored after {most} executions: make the model smaller");
            model(&LoomMemory::new(Arc::clone(&shared)));
        });
    }))
}

fn caught(shared: &Shared, payload: &(dyn Any + Send)) -> Caught {
    let log = shared.log();
    let mut message = message_of(payload);
    if let Some((agent, access, at)) = log.last {
        message += &format!("\nlast access: {access} by `{agent}`, {}", shared.words.describe(at));
    }
    Caught { message, execution: log.executions }
}

/// What a panic said.
pub(crate) fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message, or a stack that overflowed".to_owned()
    }
}

thread_local! {
    static SILENT: Cell<bool> = const { Cell::new(false) };
}

/// Runs something whose panics are expected, and prints none of them.
fn silently<T>(run: impl FnOnce() -> T) -> T {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !SILENT.get() {
                before(info);
            }
        }));
    });
    // Restored also when `run` unwinds.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SILENT.set(self.0);
        }
    }
    let _restore = Restore(SILENT.replace(true));
    run()
}
