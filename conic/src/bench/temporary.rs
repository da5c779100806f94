//! Folders and programs that a measurement needs and that go with it, also where Ctrl-C or a signal ends it.

use std::fs::DirBuilder;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::failure::Failure;

/// What a shell gives for a program that Ctrl-C ended: 128 and the signal's number.
const INTERRUPTED: i32 = 130;

/// What is there at this moment and must not be when this process is gone.
struct Remains {
    /// Whether somebody listens to signals.
    watched: bool,
    folders: Vec<PathBuf>,
    /// Children that nobody has waited for, so that no other process can have their numbers.
    programs: Vec<Pid>,
}

static REMAINS: Mutex<Remains> = Mutex::new(Remains { watched: false, folders: Vec::new(), programs: Vec::new() });

/// The list is never half changed, so that of a thread that failed is taken.
fn remains() -> MutexGuard<'static, Remains> {
    REMAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, and from now on a signal that ends this process ends what is in the list before.
fn watched() -> Result<MutexGuard<'static, Remains>, Failure> {
    let mut remains = remains();
    if !remains.watched {
        let set = ctrlc::set_handler(|| end(INTERRUPTED));
        set.map_err(|error| Failure::failed(format!("Ctrl-C cannot be caught: {error}")))?;
        remains.watched = true;
    }
    Ok(remains)
}

/// Ends this process with a code, and what is in the list before. The list stays locked, so that nothing comes to it any more. Nobody can
/// be told of what fails here.
pub fn end(code: i32) -> ! {
    let remains = remains();
    for &program in &remains.programs {
        let _ = kill_process(program, Signal::KILL);
        // It must not make a file behind the back of what follows.
        let _ = waitpid(Some(program), WaitOptions::empty());
    }
    remains.folders.iter().for_each(|folder| remove(folder));
    std::process::exit(code);
}

/// Removes a folder into which this process's other threads, and programs that they have started, still write: a file that is made while
/// the others are removed keeps the folder there. Who writes by its path finds none soon, so that few attempts are needed.
fn remove(folder: &Path) {
    const ATTEMPTS: u32 = 1_000;
    for _ in 0..ATTEMPTS {
        if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
            return;
        }
    }
}

/// A folder for temporary files that is this process's alone, and is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one. One that is there already is another's and not taken.
    ///
    /// # Errors
    ///
    /// It cannot be made, or signals cannot be listened to.
    pub fn new(name: &str) -> Result<Folder, Failure> {
        Folder::at(std::env::temp_dir().join(format!("{name}-{}", std::process::id())))
    }

    /// The same in another place, from where it may be moved.
    ///
    /// # Errors
    ///
    /// As [`Folder::new`].
    pub fn at(folder: PathBuf) -> Result<Folder, Failure> {
        let mut remains = watched()?;
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
        remains.folders.push(folder.clone());
        Ok(Folder(folder))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left there is ours; that it cannot be removed, nobody can be told.
        let _ = std::fs::remove_dir_all(&self.0);
        remains().folders.retain(|folder| *folder != self.0);
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// `said` and why, where it does not start; or signals cannot be listened to.
    pub fn start(mut command: Command, said: impl FnOnce(io::Error) -> Failure) -> Result<Program, Failure> {
        let mut remains = watched()?;
        let child = command.spawn().map_err(said)?;
        remains.programs.push(Pid::from_child(&child));
        Ok(Program(child))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// What it reads and says, for whoever takes it.
    pub fn pipes(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for one that ends by itself.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        remains().programs.retain(|program| *program != Pid::from_child(&self.0));
        self.0.wait()
    }

    /// Whether it has ended.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        let mut remains = remains();
        let ended = self.0.try_wait()?.is_some();
        if ended {
            // Its number may be another process's from now on.
            remains.programs.retain(|program| *program != Pid::from_child(&self.0));
        }
        Ok(ended)
    }

    /// Kills it where it stands.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        let mut remains = remains();
        self.0.kill()?;
        let status = self.0.wait();
        remains.programs.retain(|program| *program != Pid::from_child(&self.0));
        status
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_though_somebody_writes_into_it() {
        let place = tempfile::tempdir().expect("there is room for a folder");
        for round in 0..100 {
            let folder = place.path().join(round.to_string());
            std::fs::create_dir(&folder).expect("a folder");
            std::thread::scope(|scope| {
                let write = |number: u32| std::fs::write(folder.join(number.to_string()), "text").is_ok();
                let writes = scope.spawn(move || (0..20_000).take_while(|&number| write(number)).count());
                while !folder.join("20").exists() {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                remove(&folder);
                writes.join().expect("it ends, at the latest when there is no folder");
            });
            assert!(!folder.exists(), "round {round}");
        }
    }

    #[test]
    fn a_program_that_has_ended_is_told_from_one_that_runs_and_ended_by_nobody() {
        let start = |name: &str| {
            let mut command = Command::new(name);
            command.arg("60");
            Program::start(command, |error| Failure::failed(error.to_string())).expect("it starts")
        };
        let (mut ended, mut runs) = (start("true"), start("sleep"));
        while !ended.has_ended().expect("it is ours") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let listed = |program: &Program| remains().programs.contains(&Pid::from_child(&program.0));
        assert!(!listed(&ended) && !runs.has_ended().expect("it is ours") && listed(&runs));
    }
}
