//! A NIC that is told to starts the file that it was started from, which takes over from it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// A NIC that was started from a file of its folder, and everybody that took over from it: all are killed at the end.
struct Upgradable {
    nic: Nic,
    log: PathBuf,
}

impl Upgradable {
    fn start(arguments: &[&str]) -> Upgradable {
        Upgradable::start_by(tempfile::tempdir().expect("a folder"), arguments, |program| Command::new(program))
    }

    /// The command starts the program that it is given.
    fn start_by(folder: TempDir, arguments: &[&str], command: impl FnOnce(&Path) -> Command) -> Upgradable {
        let (program, log) = (folder.path().join("conic"), folder.path().join("log"));
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_conic"), &program).expect("a link");
        let file = File::create(&log).expect("a log");
        Upgradable { nic: Nic::start_into(file.into(), command(&program), folder, arguments), log }
    }

    /// Puts another file where the program was: a script.
    fn replace(&self, script: &str) {
        let (program, new) = (self.path("conic"), self.path("new"));
        std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("a script");
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).expect("it is ours");
        std::fs::rename(new, program).expect("a place for it");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.nic.folder.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    fn says(&self, what: &str) {
        wait_until(what, || self.log().contains(what));
    }

    /// Who serves, as it says itself.
    fn serving(&self) -> Option<i32> {
        let mut top = Command::new(env!("CARGO_BIN_EXE_conic"));
        top.args(["top", "--once", "--json", "--interval", "0.1", "--socket"]).arg(self.nic.socket());
        let top = top.stderr(Stdio::null()).output().expect("conic starts");
        let view: serde_json::Value = serde_json::from_slice(&top.stdout).ok()?;
        view["process"].as_i64().and_then(|process| process.try_into().ok())
    }

    fn first(&self) -> i32 {
        i32::try_from(self.nic.child.id()).expect("a process's number")
    }

    /// The processes that one has started and not waited for.
    fn children(process: i32) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
        let children = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.expect("a thread").path().join("children")).unwrap_or_default()
        };
        tasks.map(children).collect()
    }
}

impl Drop for Upgradable {
    fn drop(&mut self) {
        kill_all_of(self.nic.folder.path());
    }
}

/// Kills who was started with a folder's name, which nobody else has.
fn kill_all_of(folder: &Path) {
    let folder = folder.display().to_string();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let number = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let Some(number) = number.filter(|_| String::from_utf8_lossy(&command).contains(&folder)) {
            // It may have ended by itself.
            let _ = kill_process(number, Signal::KILL);
        }
    }
}

fn signal(process: i32, signal: Signal) {
    kill_process(Pid::from_raw(process).expect("a process"), signal).expect("it runs");
}

/// Starts the program itself, whoever runs it.
fn this_program() -> String {
    format!("exec {} \"$@\"", env!("CARGO_BIN_EXE_conic"))
}

/// What a service manager was told, line by line.
fn told(manager: &UnixDatagram) -> Vec<String> {
    let mut lines = Vec::new();
    let mut room = [0; 512];
    while let Ok(count) = manager.recv(&mut room) {
        lines.extend(String::from_utf8_lossy(&room[..count]).lines().map(str::to_owned));
    }
    lines
}

#[test]
fn a_nic_is_upgraded_by_a_signal_and_its_client_notices_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("a socket can be that");
    let mut upgradable = Upgradable::start_by(folder, &["--mode", "loopback"], |program| {
        let mut command = Command::new(program);
        command.env("NOTIFY_SOCKET", program.with_file_name("notify"));
        command
    });
    let mut seen = Vec::new();
    wait_until("it is ready", || {
        seen.extend(told(&manager));
        !seen.is_empty()
    });
    assert_eq!(seen, ["READY=1"]);
    upgradable.replace(&this_program());
    let (client, mut queues) = attach(&upgradable.nic.socket(), &small(1));
    let (mut serving, mut number) = (upgradable.first(), 0);
    // The one that took over can be upgraded as well.
    for round in 0..2 {
        signal(serving, Signal::HUP);
        let mut seen = Vec::new();
        wait_until("the service manager has heard of both", || {
            let there = frame(&mut queues[0], client.mac(), client.mac(), 100, number);
            let expected = there.to_vec();
            send(&mut queues[0], there);
            assert_eq!(receive(&mut queues[0]).to_vec(), expected, "frame {number}");
            number += 1;
            seen.extend(told(&manager));
            seen.len() == 2
        });
        seen.sort();
        let main = seen[0].strip_prefix("MAINPID=").and_then(|process| process.parse().ok());
        assert_eq!((main, seen[1].as_str()), (upgradable.serving(), "READY=1"), "round {round}: {seen:?}");
        assert!(main.is_some_and(|main| main != serving), "round {round}: {seen:?}");
        serving = main.expect("it was compared");
        let words = std::fs::read(format!("/proc/{serving}/cmdline")).expect("it runs");
        let words = String::from_utf8(words).expect("text");
        assert_eq!(words.split('\0').filter(|word| *word == "--adopt").count(), 1, "{words}");
    }
    wait_until("the first one has ended", || {
        upgradable.nic.child.try_wait().expect("it can be asked").is_some_and(|status| status.success())
    });
    assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
}

#[test]
fn an_upgrade_that_cannot_be_leaves_everything_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("nic.toml");
    std::fs::write(&config, "").expect("a file");
    let arguments = ["--config", &config.display().to_string()];
    let upgradable = Upgradable::start_by(folder, &arguments, |program| Command::new(program));
    let (a, mut of_a) = attach(&upgradable.nic.socket(), &small(1));
    let (b, mut of_b) = attach(&upgradable.nic.socket(), &small(1));
    let first = upgradable.first();
    let mut exchange = |number| {
        let there = frame(&mut of_a[0], a.mac(), b.mac(), 100, number);
        let expected = there.to_vec();
        send(&mut of_a[0], there);
        assert_eq!(receive(&mut of_b[0]).to_vec(), expected);
        for client in [&a, &b] {
            assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
        }
        assert_eq!(upgradable.serving(), Some(first));
        wait_until("nobody is left behind", || Upgradable::children(first).is_empty());
    };
    std::fs::write(&config, "sockets = 7\n").expect("a file");
    signal(first, Signal::HUP);
    upgradable.says("not upgraded: ");
    let log = upgradable.log();
    assert!(log.contains("nic.toml") && log.contains("sockets"), "{log}");
    exchange(1);
    // A version that finds nothing wrong, and cannot take over.
    std::fs::write(&config, "").expect("a file");
    upgradable.replace("case \"$*\" in *--check*) exit 0;; esac; exit 9");
    signal(first, Signal::HUP);
    upgradable.says("(exit status: 9)");
    exchange(2);
    // And none at all.
    std::fs::remove_file(upgradable.path("conic")).expect("a script");
    signal(first, Signal::HUP);
    upgradable.says("conic: No such file or directory");
    exchange(3);
    // One that can is not kept out by those.
    upgradable.replace(&this_program());
    signal(first, Signal::HUP);
    wait_until("another serves", || upgradable.serving().is_some_and(|process| process != first));
}

#[test]
fn one_upgrade_is_under_way_at_a_time() {
    let upgradable = Upgradable::start(&[]);
    let pipe = upgradable.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    upgradable.replace(&format!(
        "case \"$*\" in *--check*) exit 0;; esac; read word < {}; {}",
        pipe.display(),
        this_program()
    ));
    let first = upgradable.first();
    signal(first, Signal::HUP);
    upgradable.says("conic is to take over, as process ");
    signal(first, Signal::HUP);
    upgradable.says(" is to take over already");
    assert_eq!(upgradable.serving(), Some(first));
    std::fs::write(&pipe, "go\n").expect("somebody reads");
    wait_until("another serves", || upgradable.serving().is_some_and(|process| process != first));
}

#[test]
fn a_new_version_gets_no_descriptor_but_the_first_three() {
    let folder = tempfile::tempdir().expect("a folder");
    let memif = format!("memif:{},role=server", folder.path().join("memif.sock").display());
    // Who starts it may have left it one.
    let upgradable = Upgradable::start_by(folder, &["--port", &memif], |program| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" 9</dev/null", "sh"]).arg(program);
        shell
    });
    let _client = attach(&upgradable.nic.socket(), &small(2));
    let (first, list) = (upgradable.first(), upgradable.path("list"));
    assert!(Path::new(&format!("/proc/{first}/fd/9")).exists());
    let script = format!("case \"$*\" in *--check*) exit 0;; esac; ls -l /proc/self/fd > {}; exit 9", list.display());
    upgradable.replace(&script);
    signal(first, Signal::HUP);
    upgradable.says("(exit status: 9)");
    let list = std::fs::read_to_string(list).expect("it was written");
    let found: Vec<&str> = list.lines().filter(|line| line.contains(" -> ") && !line.contains("/fd")).collect();
    let numbers = found.iter().filter_map(|line| line.split(" -> ").next()?.split(' ').next_back());
    assert_eq!(numbers.collect::<Vec<_>>(), ["0", "1", "2"], "{list}");
}

#[test]
fn a_nic_whose_terminal_is_gone_ends() {
    if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skipped("there is no script, which gives a program a terminal");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let run = format!("exec {} nic --socket {}", env!("CARGO_BIN_EXE_conic"), socket.display());
    let mut script = Command::new("script");
    script.args(["-q", "-c", &run, "/dev/null"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut terminal = script.spawn().expect("a terminal");
    wait_until("the NIC listens", || Client::attach(&socket, &small(1)).is_ok());
    terminal.kill().and_then(|()| terminal.wait()).expect("it ran");
    let ended = std::panic::catch_unwind(|| wait_until("it has ended", || !socket.exists()));
    kill_all_of(folder.path());
    assert!(ended.is_ok(), "it goes on");
}

/// What a user's instance of systemd makes of the unit that is shipped, by turns: `reload` with another file in the program's place, the
/// death of the one that took over, `stop`. Says the process, the state and how often the service was restarted.
const MANAGED: &str = r#"
show() { systemctl --user show nic -p "$1" --value; }
until_not() { for _ in $(seq 200); do [ "$(show "$1")" = "$2" ] || return 0; sleep 0.1; done; }
say() { echo "$1: $(show ActiveState), restarted $(show NRestarts)"; }
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/own/systemd/user || exit 77
export XDG_RUNTIME_DIR=/run/own HOME=/run/own
cp "$1/nic.service" /run/own/systemd/user/
printf '[Unit]\nDefaultDependencies=no\n' >/run/own/systemd/user/nothing.target
/usr/lib/systemd/systemd --user --unit=nothing.target >/run/own/log 2>&1 &
for _ in $(seq 100); do systemctl --user show -p Version >/dev/null 2>&1 && break; sleep 0.1; done
systemctl --user show -p Version >/dev/null 2>&1 || exit 77
systemctl --user start nic
first=$(show MainPID)
say started
printf '#!/bin/sh\nexec %s "$@"\n' "$2" >"$1/new" && chmod +x "$1/new" && mv "$1/new" "$1/conic"
systemctl --user reload nic
until_not MainPID "$first"
# Only then has the first one ended.
while [ -e "/proc/$first" ]; do sleep 0.1; done
say reloaded
heir=$(show MainPID)
[ "$heir" -gt 1 ] && kill -9 "$heir"
until_not NRestarts 0
until_not ActiveState activating
say killed
systemctl --user stop nic
say stopped
"#;

#[test]
fn systemd_goes_on_with_the_one_that_took_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_conic"), folder.path().join("conic")).expect("a link");
    let shipped = include_str!("../../../packaging/conic-nic.service");
    let is_ours = |line: &&str| ["Type=", "NotifyAccess=", "Exec", "Restart"].iter().any(|key| line.starts_with(key));
    let own: Vec<String> = shipped
        .lines()
        .filter(is_ours)
        .map(|line| line.replace("@PREFIX@/bin/conic", &format!("{path}/conic")))
        .map(|line| line.replace("--config /etc/conic/nic.toml", &format!("--socket {path}/nic.sock")))
        .collect();
    assert_eq!(own.len(), 6, "{own:?}");
    let unit = format!("[Unit]\nDefaultDependencies=no\n[Service]\n{}\n", own.join("\n"));
    std::fs::write(folder.path().join("nic.service"), unit).expect("a file");
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", MANAGED, "sh"]);
    let Ok(output) = apart.arg(folder.path()).arg(env!("CARGO_BIN_EXE_conic")).output() else {
        return skipped("there is no unshare");
    };
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.is_empty() {
        return skipped(&format!("no instance of systemd can be had here: {errors}"));
    }
    let expected = "started: active, restarted 0\nreloaded: active, restarted 0\nkilled: active, restarted 1\n\
                    stopped: inactive, restarted 0\n";
    assert_eq!(said, expected, "{errors}");
}
