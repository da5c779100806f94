//! Processes that play a part, and what the kernel says of them.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use crate::roles::SAYS;
use crate::stops::{Plan, Step};
use crate::support::bystanders::Bystanders;
use crate::support::waiting::wait_until;

/// A process that plays a part. It is killed when it is dropped.
pub struct Player {
    child: Child,
    output: BufReader<ChildStdout>,
    /// How it ended, which the system says once.
    ended: Option<Fate>,
}

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Killed,
    Stopped,
    Ended(i32),
}

impl Player {
    pub fn start(part: &str, socket: &Path, plan: Option<&str>) -> Player {
        let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
        command.args(["--role", part]).arg(socket).arg(plan.unwrap_or("-"));
        Player::spawn(command)
    }

    /// One that may find its daemon dead, and need not say so.
    pub fn start_silent(part: &str, socket: &Path) -> Player {
        let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
        command.args(["--role", part]).arg(socket).arg("-").stderr(Stdio::null());
        Player::spawn(command)
    }

    fn spawn(mut command: Command) -> Player {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Player { child, output, ended: None }
    }

    /// Waits until it says that it is ready, or else; whether it did.
    pub fn is_ready(&mut self) -> bool {
        let mut line = String::new();
        self.output.read_line(&mut line).is_ok() && line == "ready\n"
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What has become of it, if anything has.
    pub fn fate(&mut self, wait: bool) -> Option<Fate> {
        if self.ended.is_some() {
            return self.ended;
        }
        let options = if wait { WaitOptions::UNTRACED } else { WaitOptions::UNTRACED | WaitOptions::NOHANG };
        let (_, status) = waitpid(Some(self.pid()), options).expect("it is a child")?;
        let fate = fate_of(status);
        self.ended = (fate != Fate::Stopped).then_some(fate);
        Some(fate)
    }

    /// Kills it; it is gone when this returns.
    pub fn kill(&mut self) {
        kill_process(self.pid(), Signal::KILL).expect("it is there");
        self.fate(true);
    }

    /// Lets a stopped one go on.
    pub fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("it is there");
    }

    /// Asks a daemon to end, waits, and gives what it did.
    pub fn end(mut self) -> (Fate, Vec<(Step, u64)>) {
        drop(self.child.stdin.take());
        let mut text = String::new();
        // What cannot be read was not said.
        let _ = self.output.read_to_string(&mut text);
        text.lines().filter(|line| line.starts_with(SAYS)).for_each(|line| println!("{line}"));
        let plans = text.lines().filter_map(Plan::of_text);
        let steps = plans.map(|plan| (plan.step, plan.occurrence)).collect();
        (self.fate(true).expect("it was waited for"), steps)
    }

    /// Waits for the end of one that was asked for nothing, while bystanders go on.
    pub fn end_beside(mut self, all: &mut Bystanders) -> (Fate, Vec<(Step, u64)>) {
        let mut fate = None;
        wait_until("it ends", || {
            all.step();
            fate = self.fate(false);
            fate.is_some()
        });
        (fate.expect("it was waited for"), Vec::new())
    }

    /// Descriptors, and mapped regions.
    pub fn holds(&self) -> (usize, usize) {
        held_by(&self.child.id().to_string())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It may have ended by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn fate_of(status: WaitStatus) -> Fate {
    if status.stopped() {
        Fate::Stopped
    } else if status.signaled() {
        Fate::Killed
    } else {
        Fate::Ended(status.exit_status().unwrap_or(-1))
    }
}

/// Descriptors and mapped regions of a process.
pub fn held_by(process: &str) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    (descriptors, maps.lines().filter(|line| line.contains("memfd:conic")).count())
}
