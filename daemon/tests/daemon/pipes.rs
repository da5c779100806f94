//! Ports that record into pipes and replay them: what they have taken comes out at a daemon's end and behind a take-over, and nobody waits for
//! a pipe's other end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use conic_client::Operator;
use conic_native::{clock, yield_core};
use conic_port::{CaptureFormat, CaptureWriter, Timestamp};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::adopt_ports::{send_more, served_on};
use crate::served::Served;
use crate::station::config;
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

/// What comes out of a pipe, whoever writes into it, until the other end of the channel is dropped and nothing more comes.
fn read_on(pipe: &Path, end: &Receiver<()>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut reader = File::open(pipe).expect("a pipe");
    loop {
        let is_over = end.try_recv() == Err(TryRecvError::Disconnected);
        let before = all.len();
        reader.read_to_end(&mut all).expect("it can be read");
        if is_over && all.len() == before {
            return all;
        }
        yield_core();
    }
}

#[test]
fn who_takes_over_records_into_the_same_pipe_behind_all_that_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let (over, end) = channel();
    let read = {
        let pipe = pipe.clone();
        std::thread::spawn(move || read_on(&pipe, &end))
    };
    let (served, client, mut queue) = served_on(folder.path(), &format!("capture:record={}", pipe.display()));
    let mut sent = 0;
    send_more(&mut queue, &mut sent, HELD as u64);
    wait_until("all are taken", || count(folder.path(), "transmitted_frames") == HELD as u64);
    let served = served.taken_over(1, &[&client], || {});
    let mut tried = 0;
    // Those that come before the pipe is open again are lost.
    wait_until("it is open", || {
        send_more(&mut queue, &mut sent, 1);
        tried += 1;
        count(folder.path(), "transmitted_frames") > 0
    });
    send_more(&mut queue, &mut sent, 100);
    wait_until("they are taken", || count(folder.path(), "transmitted_frames") >= 100);
    let late = count(folder.path(), "transmitted_frames") as usize;
    drop((client, queue));
    served.end();
    drop(over);
    let all = read.join().expect("it reads");
    assert_eq!((all.len(), late <= 100 + tried), (2 * HEADER + (HELD + late) * RECORD, true));
    let second = HEADER + HELD * RECORD;
    assert_eq!(all[second..second + HEADER], all[..HEADER], "there another capture begins");
    assert!(!folder.path().join("pipe.1.pcap").exists());
}

/// A capture of so many frames.
fn capture(frames: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = CaptureWriter::new(&mut bytes, CaptureFormat::Pcap, "bytes");
    (0..frames).for_each(|_| writer.write(Timestamp::default(), &[7; 60]).expect("there is room"));
    writer.finish().expect("there is room");
    drop(writer);
    bytes
}

#[test]
fn who_takes_over_serves_while_a_pipe_that_it_is_to_replay_has_no_other_end() {
    serves_while_a_pipe_has_no_other_end("");
    serves_while_a_pipe_has_no_other_end(",record=record.pcap");
}

fn serves_while_a_pipe_has_no_other_end(more: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = pipe(folder.path());
    let write = {
        let pipe = pipe.clone();
        std::thread::spawn(move || OpenOptions::new().write(true).open(pipe)?.write_all(&capture(1)))
    };
    let more = more.replace('=', &format!("={}/", folder.path().display()));
    let spec = format!("capture:replay={}{more}", pipe.display());
    let served = Served::start(config(&folder.path().join("nic.sock"), &spec));
    write.join().expect("it writes").expect("a pipe");
    wait_until("it comes", || count(folder.path(), "received_frames") == 1);
    let served = served.taken_over(1, &[], || {});
    // Who is not answered within two seconds is none who is served.
    assert_eq!(count(folder.path(), "received_frames"), 0);
    // The other end comes.
    let mut end = OpenOptions::new().write(true).open(&pipe).expect("it is read");
    end.write_all(&capture(2)).expect("a pipe");
    wait_until("they come", || count(folder.path(), "received_frames") == 2);
    let served = served.taken_over(2, &[], || {});
    // It waits once more, and ends all the same.
    assert_eq!(count(folder.path(), "received_frames"), 0);
    served.end();
    drop(end);
}
