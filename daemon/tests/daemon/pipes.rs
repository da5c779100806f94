//! Ports that record into pipes: what they have taken comes out at a daemon's end, and nobody waits for a pipe's other end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conic_client::Operator;
use conic_native::clock;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::adopt_ports::{send_more, served_on};
use crate::waiting::wait_until;

/// Bytes that a recording begins with, and bytes of each frame of `send_more` in it.
const HEADER: usize = 24;
const RECORD: usize = 16 + 1500;

/// Frames that find room where nothing has been written yet, whoever reads: more than the 64 KiB that a pipe takes at once.
const HELD: usize = 150;

fn pipe(folder: &Path) -> PathBuf {
    let path = folder.join("pipe.pcap");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    path
}

/// A count of the only port.
fn count(folder: &Path, name: &str) -> u64 {
    let operator = Operator::connect(&folder.join("nic.sock"), Duration::from_secs(2)).expect("it listens");
    let list = operator.ask(r#"{"ask": "list"}"#).expect("it answers");
    let list: serde_json::Value = serde_json::from_str(&list).expect("one JSON object");
    list["networks"][0]["ports"][0]["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn what_a_port_has_recorded_into_a_pipe_comes_out_at_the_daemons_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let read = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            let mut all = Vec::new();
            File::open(pipe).and_then(|mut end| end.read_to_end(&mut all)).map(|_| all)
        })
    };
    let (served, client, mut queue) = served_on(folder.path(), &format!("capture:record={}", pipe.display()));
    send_more(&mut queue, &mut 0, HELD as u64);
    wait_until("all are taken", || count(folder.path(), "transmitted_frames") == HELD as u64);
    drop((client, queue));
    served.end();
    let all = read.join().expect("it reads").expect("a pipe");
    assert_eq!(all.len(), HEADER + HELD * RECORD);
}

#[test]
fn a_pipe_that_nobody_reads_any_more_does_not_keep_the_daemon_from_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let opened = {
        let pipe = pipe.clone();
        std::thread::spawn(move || File::open(pipe))
    };
    let (served, client, mut queue) = served_on(folder.path(), &format!("capture:record={}", pipe.display()));
    let reader = opened.join().expect("it opens").expect("a pipe");
    send_more(&mut queue, &mut 0, 300);
    wait_until("it is full", || count(folder.path(), "transmit_full") > 0);
    drop((client, queue));
    let begun = clock::now();
    served.end();
    let took = clock::now().since(begun).seconds();
    assert!((0.9..10.0).contains(&took), "it waited for {took} s");
    drop(reader);
}
