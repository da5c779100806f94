//! The examples, as a user meets them: compiled with `cc`, run against a daemon.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use conic_client::Operator;
use conic_native::channel::Listener;

use crate::common::{Background, Nic, compile, install, package, program, said, succeed};
use tempfile::TempDir;

/// The installed library, and the examples compiled against it.
struct Examples {
    installed: TempDir,
}

impl Examples {
    fn build() -> Examples {
        let installed = install();
        for name in ["sender", "responder", "forwarder"] {
            let source = package().join("examples").join(name).with_extension("c");
            compile(installed.path(), &source, &installed.path().join(name));
        }
        Examples { installed }
    }

    fn run(&self, name: &str, nic: &Nic) -> Command {
        let mut command = program(self.installed.path(), &self.installed.path().join(name));
        command.arg("--socket").arg(nic.socket());
        command
    }
}

/// The number before a word, in what a program printed.
fn number(text: &str, word: &str) -> u64 {
    let at = text.find(word).unwrap_or_else(|| panic!("no \"{word}\" in {text}"));
    let number = text[..at].trim_end().rsplit(|letter: char| !letter.is_ascii_digit()).next();
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number before \"{word}\" in {text}"))
}

#[test]
fn the_examples_do_what_they_say() {
    let examples = Examples::build();
    let loopback = Nic::start("[[network]]\nmode = \"loopback\"");
    for size in ["64", "1500", "9600"] {
        let printed =
            succeed(examples.run("sender", &loopback).args(["--count", "500", "--size", size, "--rate", "0"]));
        assert!(printed.starts_with("500 sent, 500 came back, 0 did not, 0 others\n"), "{printed}");
    }
    let bridge = Nic::start("[[network]]\nname = \"a\"\n[[network]]\nname = \"b\"\nown_address_only = false");
    let mut responder = Background::start(examples.run("responder", &bridge).args(["--network", "a"]));
    let line = responder.line();
    let address = line.strip_prefix("answering at ").unwrap_or_else(|| panic!("{line}")).to_owned();
    let printed = succeed(examples.run("sender", &bridge).args(["--network", "a", "--count", "300", "--to", &address]));
    assert!(printed.starts_with("300 sent, 300 came back, 0 did not, 0 others\n"), "{printed}");

    let mut forwarder =
        Background::start(examples.run("forwarder", &bridge).args(["--from", "b", "--to", "a", "--to-mac", &address]));
    let of_b = forwarder.line();
    let gate = of_b.strip_prefix("b: ").unwrap_or_else(|| panic!("{of_b}"));
    // The answers go to the forwarder's address on `a`, which nobody has on `b`: that network asks all who may have stations behind
    // themselves, and the sender may.
    let printed = succeed(examples.run("sender", &bridge).args(["--network", "b", "--count", "100", "--to", gate]));
    assert!(printed.starts_with("100 sent, 100 came back, 0 did not, 0 others\n"), "{printed}");
    let printed = forwarder.interrupt();
    let forwarded: Vec<u64> =
        printed.lines().last().unwrap_or_default().split(", ").map(|part| number(part, "forwarded")).collect();
    assert_eq!((forwarded, number(&printed, "lost to a")), (vec![100, 100], 0), "{printed}");
    let printed = responder.interrupt();
    assert!(number(&printed, "answered") >= 400, "{printed}");
}

#[test]
fn examples_say_what_is_wrong() {
    let examples = Examples::build();
    let nic = Nic::start("");
    let check = |arguments: &[&str], expected: &str| {
        let output = examples.run("sender", &nic).args(arguments).output().expect("it runs");
        assert!(!output.status.success() && said(&output).contains(expected), "{}", said(&output));
    };
    check(&["--size", "20"], "--size is 30 to 9600");
    check(&["--count", "many"], "--count is a number");
    check(&["--network", "nowhere"], "there is no network nowhere");
    check(&["--to", "02:00"], "a MAC address is as");
    // A bridge sends nobody his own frames back: it ends all the same, at any rate.
    for rate in ["0", "10000"] {
        check(&["--count", "1000", "--rate", rate], "sends frames back in loopback mode");
    }
    let help = succeed(examples.run("responder", &nic).arg("--help"));
    assert!(help.starts_with("usage: responder"), "{help}");
}

/// The installed library, and the program that checks the interface itself.
fn checks() -> Examples {
    let examples = Examples { installed: install() };
    let path = PathBuf::from(examples.installed.path()).join("interface");
    compile(examples.installed.path(), &package().join("tests/library/interface.c"), &path);
    examples
}

/// Every check of the C interface itself: see the program.
#[test]
fn the_interface_keeps_what_the_header_promises() {
    let examples = checks();
    let nic = Nic::start("[[network]]\nmode = \"loopback\"");
    let printed = succeed(examples.run("interface", &nic).arg("checks"));
    assert!(printed.ends_with("all as promised\n"), "{printed}");
    let mut survivor = Background::start(examples.run("interface", &nic).arg("survives"));
    assert_eq!(survivor.line(), "attached");
    let folder = nic.end();
    assert_eq!(survivor.line(), "link down");
    let nic = Nic::start_in(folder, "[[network]]\nmode = \"loopback\"");
    assert_eq!(survivor.line(), "link up");
    assert_eq!(survivor.line(), "old buffers came back");

    let mut sleeper = Background::start(examples.run("interface", &nic).arg("sleeps"));
    assert_eq!(sleeper.line(), "attached");
    let folder = nic.end();
    assert_eq!(sleeper.line(), "link down");
    let nic = Nic::start_in(folder, "[[network]]\nmode = \"loopback\"");
    assert_eq!(sleeper.line(), "link up");
    assert_eq!(sleeper.line(), "woken");

    let mut waiter = Background::start(examples.run("interface", &nic).arg("waits-for-nobody"));
    assert_eq!(waiter.line(), "attached");
    let folder = nic.end();
    let mute = Listener::bind(&folder.path().join("nic.sock")).expect("nobody else listens there");
    assert_eq!(waiter.line(), "link down");
    assert_eq!(waiter.line(), "not kept waiting");
    drop(mute);
}

#[test]
fn an_operators_detach_leaves_buffers_that_are_held_whole() {
    let examples = checks();
    let nic = Nic::start("[[network]]\nmode = \"loopback\"");
    let mut keeper = Background::start(examples.run("interface", &nic).arg("keeps"));
    let line = keeper.line();
    let session = line.strip_prefix("session ").unwrap_or_else(|| panic!("{line}"));
    let operator = Operator::connect(&nic.socket(), Duration::from_secs(10)).expect("a daemon");
    let answer = operator.ask(&format!(r#"{{"ask": "detach", "client": {session}}}"#)).expect("an answer");
    assert!(answer.contains("done"), "{answer}");
    assert_eq!(keeper.line(), "held buffers are whole");
}
