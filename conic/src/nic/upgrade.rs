//! A new version of the program takes over from the one that runs, without another's help: on SIGHUP it starts the file that it was started
//! from, which is the new version's by then, with its own arguments and `--adopt`.
//!
//! | step | this one | the new one |
//! |---|---|---|
//! | 1 | has it say whether the configuration can work (`--check`); logs what it says against it | |
//! | 2 | starts it, and serves on | takes over as `--adopt` does |
//! | 3 | says to the service manager whose process the service's main one is, and ends | says that it is ready |
//!
//! A new one that ends before it has taken over has said why itself, and this one goes on, and says so.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conic_daemon::{Event, Stop};
use conic_native::descriptors;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Where events go, from any thread.
pub type Say = Arc<dyn Fn(&Event) + Send + Sync>;

/// Whether one may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not yet: this one has nothing to give.
    Starting,
    /// It may; this process was to take over before, and ended.
    Serving(Option<u32>),
    /// One is looked at.
    Checking,
    /// This process is to take over.
    UnderWay(u32),
}

/// The program that runs, and the one that is to take over from it.
#[derive(Clone)]
pub struct Upgrade {
    program: PathBuf,
    arguments: Vec<OsString>,
    state: Arc<Mutex<State>>,
    say: Say,
}

impl Upgrade {
    /// Looks where the program lies, before another lies there.
    ///
    /// # Errors
    ///
    /// The system does not say what file this process runs.
    pub fn new(say: Say) -> io::Result<Upgrade> {
        let mut words = std::env::args_os();
        let program = started_by(&words.next().unwrap_or_default())?;
        let state = Arc::new(Mutex::new(State::Starting));
        Ok(Upgrade { program, arguments: words.collect(), state, say })
    }

    /// Ends the daemon, or begins an upgrade, as signals come.
    ///
    /// # Errors
    ///
    /// The system lets no signal be caught, or gives no thread.
    pub fn hear_signals(&self, stop: Stop) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let (own, had_terminal) = (self.clone(), has_terminal());
        let hear = move || {
            for signal in signals.forever() {
                // Whose terminal is gone is told so by the same signal, and ends, as programs do.
                if signal == SIGHUP && (!had_terminal || has_terminal()) {
                    own.begin();
                } else {
                    stop.raise();
                }
            }
        };
        // It ends with the process.
        std::thread::Builder::new().name("signals".to_owned()).spawn(hear).map(drop)
    }

    /// This one serves: it tells the service manager, and may be upgraded.
    pub fn is_ready(&self) {
        *self.lock() = State::Serving(None);
        // Where no service manager asks for it nothing is sent; one that cannot be told finds by itself that it was not.
        let _ = sd_notify::notify(&[NotifyState::Ready]);
    }

    /// Another process has taken over. The service goes on with it if it was started here.
    ///
    /// # Errors
    ///
    /// It was, and has ended since: nobody serves.
    pub fn is_given_over(&self, process: i32) -> Result<(), String> {
        let is_it = |own: u32| i64::from(own) == i64::from(process);
        match *self.lock() {
            State::UnderWay(own) if is_it(own) => {
                // As when it is ready.
                let _ = sd_notify::notify(&[NotifyState::MainPid(own)]);
                Ok(())
            }
            State::Serving(Some(own)) if is_it(own) => {
                Err(format!("process {process} has taken over, and ended at once"))
            }
            // One that somebody started beside this one.
            _ => Ok(()),
        }
    }

    fn begin(&self) {
        let mut state = self.lock();
        let why = match *state {
            State::Starting => "this one has not begun to serve".to_owned(),
            State::Checking => "another version is looked at already".to_owned(),
            State::UnderWay(process) => format!("process {process} is to take over already"),
            State::Serving(_) => {
                let own = self.clone();
                let begun = std::thread::Builder::new().name("upgrade".to_owned()).spawn(move || own.hand_over());
                match begun {
                    Ok(_) => return *state = State::Checking,
                    Err(error) => format!("there is no thread for it: {error}"),
                }
            }
        };
        drop(state);
        self.say_why_not(why);
    }

    /// Starts the new one; comes back only where that one ends without having taken over.
    fn hand_over(&self) {
        let why = self.try_to_hand_over().unwrap_or_else(|error| format!("{}: {error}", self.program.display()));
        let mut state = self.lock();
        *state = match *state {
            State::UnderWay(process) => State::Serving(Some(process)),
            _ => State::Serving(None),
        };
        drop(state);
        self.say_why_not(why);
    }

    /// Why it did not take over.
    fn try_to_hand_over(&self) -> io::Result<String> {
        // What is opened here is closed for programs that are started; but who started this one may have left it something, and what a
        // library opens (DPDK) is its own.
        descriptors::keep_to_this_program()?;
        let checked = self.command("--check").stdin(Stdio::null()).output()?;
        if !checked.status.success() {
            return Ok(said(&checked));
        }
        let mut child = {
            // It may have taken over before this thread goes on.
            let mut state = self.lock();
            let child = self.command("--adopt").spawn()?;
            *state = State::UnderWay(child.id());
            child
        };
        let process = child.id();
        (self.say)(&Event::Upgrading { program: self.program.display().to_string(), process });
        let status = child.wait()?;
        Ok(format!("process {process} has not taken over, and said why where it says its errors ({status})"))
    }

    /// The program's file with the arguments of this process and one more, which it may have already.
    fn command(&self, more: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if !self.arguments.iter().any(|own| own == more) {
            command.arg(more);
        }
        command
    }

    fn say_why_not(&self, text: String) {
        (self.say)(&Event::NotUpgraded { text });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is a terminal that signals this process.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// The path by which this process was started, from the word for it: as it was named, by the folders where programs are looked for, or as
/// the system names the file. Where the name is a link, what it leads to may be another file by the time it is started again.
fn started_by(word: &OsString) -> io::Result<PathBuf> {
    let running = std::env::current_exe()?;
    let file = File::open("/proc/self/exe")?.metadata()?;
    let is_it =
        |path: &PathBuf| path.metadata().is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()));
    let named = Path::new(word);
    let mut candidates: Vec<PathBuf> = Vec::new();
    if named.components().count() > 1 {
        candidates.push(std::path::absolute(named)?);
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        candidates.extend(std::env::split_paths(&folders).map(|folder| folder.join(named)));
    }
    Ok(candidates.into_iter().find(is_it).unwrap_or(running))
}

/// What a program said that ended with an error.
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (printed, error) = (text(&output.stdout), text(&output.stderr));
    let plain = error.strip_prefix("error: ").unwrap_or(&error);
    // With `--json` it says so where it prints.
    let object: Option<serde_json::Value> = serde_json::from_str(&printed).ok();
    let reason = object.as_ref().and_then(|object| object["error"].as_str());
    match reason.unwrap_or(plain) {
        "" => format!("its check ended with {}", output.status),
        reason => reason.to_owned(),
    }
}
