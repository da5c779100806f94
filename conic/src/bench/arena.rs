//! The threads that measurements run on, and the probe beside each measurement.
//!
//! Hypervisors move virtual cores, most of all idle ones, and with them the cost of moving a cache line between two of
//! them. So the threads are pinned once and never idle, and every slice of measurement lies between two probes: what one
//! line's round trip cost just before and just after.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use conic_fabric::{Core, Layout, Time};
use conic_load::limits::RoundTrip;
use conic_native::{Flag, Memory, MemoryError, NativeCore, Pages, ThreadClock, clock, cores, pin};

/// How long one sample of a probe takes; a probe is the median of [`SAMPLES`].
const SAMPLE: Time = Time::from_nanoseconds(150_000);

/// Samples of a probe.
const SAMPLES: usize = 5;

/// Why nothing could be measured.
#[derive(Debug)]
pub enum ArenaError {
    /// There are fewer cores than threads that must run at the same time.
    Cores(String),
    /// A thread could not be bound to a core.
    Pin(std::io::Error),
    /// The system gave no memory.
    Memory(MemoryError),
    /// A thread died.
    Died,
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::Cores(why) => f.write_str(why),
            ArenaError::Pin(error) => error.fmt(f),
            ArenaError::Memory(error) => error.fmt(f),
            ArenaError::Died => f.write_str("a measuring thread died; its message is above"),
        }
    }
}

impl std::error::Error for ArenaError {}

impl From<MemoryError> for ArenaError {
    fn from(error: MemoryError) -> ArenaError {
        ArenaError::Memory(error)
    }
}

/// Work for a thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for work without sleeping.
struct Worker {
    clock: ThreadClock,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(core: usize, memory: Arc<Memory>) -> Result<Worker, ArenaError> {
        let (jobs, receiver) = channel::<Job>();
        let (pinned, result) = channel();
        let thread = std::thread::spawn(move || {
            let outcome = pin(core);
            let ready = outcome.is_ok();
            if pinned.send(outcome.map(|()| ThreadClock::mine())).is_ok() && ready {
                work(&receiver, &NativeCore::new(&memory));
            }
        });
        match result.recv() {
            Ok(Ok(clock)) => Ok(Worker { clock, jobs: Some(jobs), thread: Some(thread) }),
            Ok(Err(error)) => Err(ArenaError::Pin(error)),
            Err(_) => Err(ArenaError::Died),
        }
    }

    fn give(&self, job: Job) -> Result<(), ArenaError> {
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or(ArenaError::Died)
    }
}

fn work(jobs: &Receiver<Job>, core: &NativeCore<'_>) {
    loop {
        match jobs.try_recv() {
            // The panic's message has been printed; whoever waits for this job's result finds that none comes.
            Ok(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            Err(TryRecvError::Empty) => core.spin(),
            Err(TryRecvError::Disconnected) => return,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It printed its panic, if it had one.
            drop(thread.join());
        }
    }
}

/// An application thread and a NIC thread, or several such pairs, each on a core of its own. The first application
/// thread is the one that made the arena.
pub struct Arena {
    pairs: Vec<(usize, usize)>,
    applications: Vec<Worker>,
    nics: Vec<Worker>,
    memory: Arc<Memory>,
    probe: RoundTrip,
    clock: ThreadClock,
}

/// Raises a flag when it goes, also where its thread panics.
pub struct Raise<'a>(pub &'a Flag);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// How long each thread of an arena had run at a point in time.
#[derive(Clone, Debug)]
pub struct Usage {
    at: Time,
    ran: Vec<Time>,
}

impl Usage {
    /// The share of the time since `earlier` in which the thread that ran least ran: all of it, if nobody else used the
    /// cores.
    pub fn share_since(&self, earlier: &Usage) -> f64 {
        let span = self.at.since(earlier.at).seconds();
        let shares = self.ran.iter().zip(&earlier.ran).map(|(now, then)| now.since(*then).seconds() / span);
        shares.fold(1.0, f64::min)
    }
}

impl Arena {
    /// Up to `pairs` pairs on the cores that this process may use, or one pair on the two cores named.
    ///
    /// # Errors
    ///
    /// If there are not two cores, or the threads cannot run on them.
    pub fn new(pairs: usize, chosen: Option<(usize, usize)>) -> Result<Arena, ArenaError> {
        let cores = cores();
        let pairs: Vec<(usize, usize)> = match chosen {
            Some(pair) => vec![pair],
            None if cores.len() < 2 => {
                return Err(ArenaError::Cores("this process may use one core, and needs two".to_owned()));
            }
            None => cores.chunks_exact(2).take(pairs.max(1)).map(|pair| (pair[0], pair[1])).collect(),
        };
        Arena::on(pairs)
    }

    /// As many pairs as are named, an application's core and a NIC's each; at least one.
    ///
    /// # Errors
    ///
    /// If a core is named twice, or the threads cannot run on them.
    pub fn on(pairs: Vec<(usize, usize)>) -> Result<Arena, ArenaError> {
        let named: Vec<usize> = pairs.iter().flat_map(|&(application, nic)| [application, nic]).collect();
        if let Some(twice) = named.iter().enumerate().find(|(index, core)| named[..*index].contains(core)) {
            return Err(ArenaError::Cores(format!(
                "the application and the NIC need a core each, not both core {}",
                twice.1
            )));
        }
        let mut layout = Layout::new();
        let probe = RoundTrip::one_line(&mut layout);
        let memory = Arc::new(Memory::create(&layout, Pages::Plain)?);
        let start = |core| Worker::start(core, Arc::clone(&memory));
        let nics = pairs.iter().map(|pair| start(pair.1)).collect::<Result<_, _>>()?;
        let applications = pairs[1..].iter().map(|pair| start(pair.0)).collect::<Result<_, _>>()?;
        pin(pairs[0].0).map_err(ArenaError::Pin)?;
        Ok(Arena { pairs, applications, nics, memory, probe, clock: ThreadClock::mine() })
    }

    /// How long each thread has run until now.
    pub fn usage(&self) -> Usage {
        let workers = self.applications.iter().chain(&self.nics).map(|worker| worker.clock);
        Usage { at: clock::now(), ran: std::iter::once(self.clock).chain(workers).map(ThreadClock::elapsed).collect() }
    }

    /// The cores of each pair: the application's, and the NIC's.
    pub fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }

    /// Runs one NIC job and one application job on each pair of threads at the same time, raises `stop` when the
    /// applications are done, and returns what those did. There are as many jobs as pairs, or fewer.
    ///
    /// # Errors
    ///
    /// If a thread died.
    pub fn run<T: Send + 'static>(
        &self,
        stop: &Flag,
        nics: Vec<Job>,
        applications: Vec<Box<dyn FnOnce() -> T + Send>>,
    ) -> Result<Vec<T>, ArenaError> {
        // Also when an application of this thread panics: the NICs' threads would never end, and nor would the arena.
        let ends = Raise(stop);
        let (done, finished) = channel();
        let count = nics.len();
        for (worker, nic) in self.nics.iter().zip(nics) {
            let done = done.clone();
            worker.give(Box::new(move || {
                nic();
                // A receiver that is gone wants nothing.
                let _ = done.send(());
            }))?;
        }
        drop(done);
        let mut applications = applications.into_iter();
        let mine = applications.next();
        let mut others = Vec::new();
        for (worker, application) in self.applications.iter().zip(applications) {
            let (give, take) = channel();
            worker.give(Box::new(move || drop(give.send(application()))))?;
            others.push(take);
        }
        let mut outcomes: Vec<Result<T, ArenaError>> = mine.map(|run| Ok(run())).into_iter().collect();
        outcomes.extend(others.iter().map(|other| self.take(other)));
        drop(ends);
        for _ in 0..count {
            self.take(&finished)?;
        }
        outcomes.into_iter().collect()
    }

    /// Waits without sleeping.
    fn take<T>(&self, from: &Receiver<T>) -> Result<T, ArenaError> {
        let core = NativeCore::new(&self.memory);
        loop {
            match from.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Empty) => core.spin(),
                Err(TryRecvError::Disconnected) => return Err(ArenaError::Died),
            }
        }
    }

    /// Runs a job of the first NIC thread beside one of the calling thread; the job must end by itself.
    ///
    /// # Errors
    ///
    /// If the thread died.
    pub fn beside<T: Send + 'static>(&self, nic: Job, application: impl FnOnce() -> T) -> Result<T, ArenaError> {
        let (done, finished) = channel();
        self.nics[0].give(Box::new(move || {
            nic();
            let _ = done.send(());
        }))?;
        let value = application();
        self.take(&finished)?;
        Ok(value)
    }

    /// Measures on the first NIC thread, beside a job of the calling thread that ends when `stop` is raised: as it is when `nic` has
    /// ended, be it in a panic.
    ///
    /// # Errors
    ///
    /// If the thread died.
    pub fn beside_application<T: Send + 'static>(
        &self,
        stop: &Arc<Flag>,
        nic: impl FnOnce() -> T + Send + 'static,
        application: impl FnOnce(),
    ) -> Result<T, ArenaError> {
        let (done, finished) = channel();
        let stop = Arc::clone(stop);
        self.nics[0].give(Box::new(move || {
            let ends = Raise(&stop);
            let value = nic();
            drop(ends);
            // A receiver that is gone wants nothing.
            let _ = done.send(value);
        }))?;
        application();
        self.take(&finished)
    }

    /// What one line's round trip between the first pair of cores costs now, in nanoseconds.
    ///
    /// # Errors
    ///
    /// If the thread died.
    pub fn round_trip(&self) -> Result<f64, ArenaError> {
        let (probe, memory) = (self.probe, Arc::clone(&self.memory));
        let answer = move || (0..SAMPLES).for_each(|_| probe.answer(&NativeCore::new(&memory)));
        let mut samples = self.beside(Box::new(answer), || {
            let core = NativeCore::new(&self.memory);
            let sample = |_| self.probe.call(&core, clock::now() + SAMPLE).nanoseconds_each();
            (0..SAMPLES).map(sample).collect::<Vec<_>>()
        })?;
        samples.sort_by(f64::total_cmp);
        Ok(samples[SAMPLES / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a test in an arena, on a thread of its own, which stays pinned.
    fn on_two_cores(test: fn(Arena)) {
        if cores().len() < 2 {
            println!("skipped: this process may use one core, and needs two");
            return;
        }
        std::thread::spawn(move || test(Arena::new(1, None).expect("two cores"))).join().expect("the arena ends");
    }

    #[test]
    fn each_side_runs_on_its_core_and_a_nic_that_panics_leaves_no_application_running() {
        on_two_cores(|arena| {
            let here = || cores()[0];
            let mut application = None;
            let stop = Arc::new(Flag::new());
            let nic = arena.beside_application(&stop, here, || {
                while !stop.is_up() {}
                application = Some(here());
            });
            assert_eq!((application, nic.ok()), (Some(arena.pairs()[0].0), Some(arena.pairs()[0].1)));
            let stop = Arc::new(Flag::new());
            let ended = arena.beside_application(&stop, || panic!("on purpose"), || while !stop.is_up() {});
            assert!(matches!(ended, Err::<(), _>(ArenaError::Died)));
        });
    }

    #[test]
    fn an_application_that_panics_leaves_no_nic_running() {
        on_two_cores(|arena| {
            let stop = Arc::new(Flag::new());
            let raised = Arc::clone(&stop);
            let nic: Job = Box::new(move || while !raised.is_up() {});
            let application: Box<dyn FnOnce() -> u64 + Send> = Box::new(|| panic!("on purpose"));
            let ended = catch_unwind(AssertUnwindSafe(|| arena.run(&stop, vec![nic], vec![application])));
            let told = stop.is_up();
            // Else the arena's end would wait for its thread for ever.
            stop.raise();
            assert!(ended.is_err() && told, "the NIC was not told to stop");
        });
    }
}
