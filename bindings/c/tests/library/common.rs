//! What the tests have in common: a daemon in this process, the library installed into a folder, programs that end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;

use conic_daemon::{Daemon, Stop};
use conic_nicd::config::Config;
use tempfile::TempDir;

/// A daemon on a thread of this process; what attaches are other processes.
pub struct Nic {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    folder: TempDir,
}

impl Nic {
    /// Starts one with networks as a configuration file has them.
    pub fn start(networks: &str) -> Nic {
        Nic::start_in(tempfile::tempdir().expect("a folder"), networks)
    }

    /// Starts one at the socket of the one before.
    pub fn start_in(folder: TempDir, networks: &str) -> Nic {
        let socket = folder.path().join("nic.sock");
        let text = format!("socket = \"{}\"\n{networks}", socket.display());
        let config = Config::read(&text).expect("a sound configuration");
        let stop = Stop::new().expect("a bell");
        let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
        let thread = std::thread::spawn(move || _ = daemon.run().expect("it serves"));
        Nic { stop, thread: Some(thread), folder }
    }

    /// Ends it, and gives its folder for the next one.
    pub fn end(mut self) -> TempDir {
        self.join();
        std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder"))
    }

    /// Where clients attach.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }

    fn join(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ended well");
        }
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        self.join();
    }
}

/// Where this package lies.
pub fn package() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Where cargo put the libraries: beside this program, or above.
pub fn built() -> PathBuf {
    let program = std::env::current_exe().expect("this program is somewhere");
    let folders = program.ancestors().skip(1).take(2);
    let found = folders.into_iter().find(|folder| folder.join("libconic_c.so").exists());
    found.expect("cargo builds the libraries before the tests").to_owned()
}

/// Installs the library into a folder, as `make install` does, and returns the folder.
pub fn install() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(package().join("../../packaging/install"));
    command.args(["--only", "library", "--prefix"]).arg(folder.path()).arg("--from").arg(built());
    succeed(&mut command);
    folder
}

/// Runs a command that must succeed, and returns what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// What a program printed, for the message of a test that fails.
pub fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Compiles a program as a user would: with `cc` and what pkg-config says of the installed library.
pub fn compile(installed: &Path, source: &Path, program: &Path) {
    let line = format!(
        "cc -O1 -Wall -Wextra -Werror -o '{}' '{}' $(pkg-config --cflags --libs conic)",
        program.display(),
        source.display()
    );
    succeed(Command::new("sh").args(["-c", &line]).env("PKG_CONFIG_PATH", installed.join("lib/pkgconfig")));
}

/// A program that finds the library where it was installed.
pub fn program(installed: &Path, path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", installed.join("lib"));
    command
}

/// A program in the background, which is killed if nobody ends it.
pub struct Background {
    child: Option<Child>,
}

impl Background {
    /// Starts it.
    pub fn start(command: &mut Command) -> Background {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Background { child: Some(child.unwrap_or_else(|error| panic!("{command:?}: {error}"))) }
    }

    /// Its next line.
    pub fn line(&mut self) -> String {
        use std::io::Read;
        let output = self.child.as_mut().and_then(|child| child.stdout.as_mut()).expect("it runs");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while output.read(&mut byte).expect("it can be read") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("it prints text")
    }

    /// Interrupts it, and returns what it printed.
    pub fn interrupt(mut self) -> String {
        let child = self.child.take().expect("it runs");
        succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).expect("it prints text")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
