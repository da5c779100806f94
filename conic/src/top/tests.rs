//! What is drawn of samples whose numbers are known.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use conic_fabric::Time;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::Latest;
use super::sample::{Sample, has_ended, read, ticks_a_second, ticks_of};
use super::screen::{State, draw, height_of, short};
use super::view::{Order, Rate, View};

/// An answer of a daemon with so many frames counted, times ten.
fn answer(tens: u64) -> String {
    let client = |session: u64, name: &str, sent: u64, full: u64| {
        format!(
            r#"{{"session": {session}, "name": "{name}", "user": 1000, "network": "lab", "queues": 2, "bytes": 8388608,
                "mac": "02:00:00:00:00:0{session}", "later": [1], "promiscuous": {},
                "counters": {{"sent_frames": {sent}, "sent_bytes": {}, "received_frames": 0, "dropped_full": {full}}},
                "faults": {{"address": {}}}}}"#,
            session == 2,
            100 * sent,
            u64::from(name == "bad") * 3
        )
    };
    format!(
        r#"{{"schema": "conic.nic.list/1", "networks": [
            {{"name": "lab", "mode": "bridge", "clients": 2, "looks": [{{"thread": 0, "buckets": [
              {{"below_ps": 131072, "looks": {}}}, {{"below_ps": 67108864, "looks": 5}}]}}], "ports": [{{"spec": "tap:lab0", "vlan": null, "up": false,
              "description": "TAP", "counters": {{"received_frames": {}, "received_bytes": {}, "skipped_short": 7}},
              "switch": {{"dropped_no_way": {tens}}}}}]}},
            {{"name": "echo", "mode": "loopback", "clients": 0, "ports": []}}], "clients": [{}, {}]}}"#,
        100 * tens,
        10 * tens,
        640 * tens,
        client(1, "good", 1000 * tens, 0),
        client(2, "bad", 20 * tens, 5 * tens),
    )
}

fn sample(seconds: u64, tens: u64, ticks: u64) -> Sample {
    let list = read(&answer(tens)).expect("an answer");
    let ran = [(0, ticks)].into();
    Sample { at: Time::from_nanoseconds(seconds * 1_000_000_000), process: 123, list, ran }
}

fn view() -> View {
    View::of(&sample(10, 10, 0), &sample(12, 30, ticks_a_second()), Order::Session)
}

fn drawn(view: &View, width: u16, height: u16, state: &State) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, view, state)).expect("it draws");
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn plain() -> State<'static> {
    State { socket: Path::new("/run/nic.sock"), paused: false, scroll: 0, trouble: None, keys: false }
}

/// The words of the line that has a word.
fn words<'a>(lines: &'a [String], word: &str) -> Vec<&'a str> {
    let line = lines.iter().find(|line| line.split_whitespace().any(|one| one == word));
    line.unwrap_or_else(|| panic!("no {word} in {lines:#?}")).split_whitespace().collect()
}

#[test]
fn rates_are_what_was_gained_over_the_time() {
    let view = view();
    assert_eq!((view.seconds, view.process), (2.0, 123));
    assert_eq!(view.clients[0].sent, Rate { frames: 10_000.0, bits: 8_000_000.0 });
    assert_eq!((view.clients[1].drops, view.clients[1].faults), (150, 3));
    assert_eq!(view.ports[0].received, Rate { frames: 100.0, bits: 51_200.0 });
    // What the clients sent and what came by the port.
    assert_eq!(view.networks[0].rate.frames, 10_000.0 + 200.0 + 100.0);
    assert_eq!((view.networks[0].core, view.networks[1].core), (Some(0.5), None));
    let drops: Vec<_> = view.drops.iter().map(|drop| (drop.reason.as_str(), drop.count, drop.rate)).collect();
    assert_eq!(
        drops,
        [("dropped_full", 150, 50.0), ("dropped_no_way", 30, 10.0), ("skipped_short", 7, 0.0), ("address", 3, 0.0)]
    );
}

#[test]
fn what_the_kernel_forwarded_is_in_a_ports_rates_and_no_loss() {
    let counted = |seconds: u64, tens: u64| {
        let mut sample = sample(seconds, 10, 0);
        let counters = &mut sample.list.networks[0].ports[0].counters;
        for (name, count) in [("in_frames", 7), ("in_bytes", 700), ("out_frames", 3), ("out_bytes", 180)] {
            counters.insert(format!("kernel_forwarded_{name}"), count * tens);
        }
        sample
    };
    let view = View::of(&counted(10, 10), &counted(12, 30), Order::Session);
    let [port] = &view.ports[..] else { panic!("{:?}", view.ports) };
    assert_eq!(
        (port.received, port.sent),
        (Rate { frames: 70.0, bits: 56_000.0 }, Rate { frames: 30.0, bits: 14_400.0 })
    );
    assert_eq!(port.drops, 17, "those of before");
}

#[test]
fn a_daemon_that_was_started_anew_begins_at_zero() {
    let mut before = sample(10, 10, 5);
    before.process = 99;
    let view = View::of(&before, &sample(11, 1, 9), Order::Session);
    assert_eq!((view.clients[0].sent.frames, view.networks[0].core), (1000.0, None));
    // The same session of the same process never counts down; if it does, it is another's.
    let view = View::of(&sample(10, 10, 5), &sample(11, 1, 9), Order::Session);
    assert_eq!(view.clients[0].sent.frames, 1000.0);
}

#[test]
fn rates_behind_a_look_in_vain_are_over_the_whole_time() {
    let (at, interval) = (|seconds: u64| Time::from_nanoseconds(seconds * 1_000_000_000), Duration::from_secs(1));
    let mut latest = Latest { sample: sample(10, 10, 0), looked: at(10) };
    assert!(latest.follow(at(11), None, Order::Session).is_none());
    assert_eq!(latest.until_next(at(11), interval), interval, "it is not looked at once again");
    let view = latest.follow(at(12), Some(sample(12, 30, 0)), Order::Session).expect("it is answered");
    assert_eq!((view.seconds, view.clients[0].sent.frames), (2.0, 10_000.0));
    let view = latest.follow(at(13), Some(sample(13, 30, 0)), Order::Session).expect("it is answered");
    assert_eq!((view.seconds, view.clients[0].sent.frames), (1.0, 0.0));
}

#[test]
fn a_process_that_has_ended_is_asked_for_no_more() {
    let mut other = Command::new("true").spawn().expect("it starts");
    let process = other.id() as i32;
    other.wait().expect("it ends");
    assert!(has_ended(process));
    assert!(!has_ended(std::process::id() as i32) && !has_ended(0));
}

#[test]
fn a_screen_shows_every_row() {
    let view = view();
    let lines = drawn(&view, 140, height_of(&view), &plain());
    assert!(lines[0].starts_with("conic top   /run/nic.sock   process 123   over 2.0 s"), "{}", lines[0]);
    assert_eq!(
        words(&lines, "bridge"),
        ["lab", "bridge", "2", "4", "1", "10.30k", "8.21M", "50%", "131ns", "131ns", "131ns"]
    );
    assert_eq!(words(&lines, "loopback"), ["echo", "loopback", "0", "0", "0", "0", "0", "-", "-", "-", "-"]);
    let good = ["1", "good", "1000", "lab", "2", "8M", "02:00:00:00:00:01", "10.00k", "8.00M", "0", "0", "0", "0"];
    assert_eq!(words(&lines, "good"), good);
    assert_eq!(lines.iter().filter(|line| line.contains(" 02:00:00:00:00:02* ")).count(), 1, "it is promiscuous");
    assert_eq!(words(&lines, "down"), ["tap:lab0", "lab", "down", "0", "0", "100", "51.20k", "37"]);
    assert_eq!(words(&lines, "dropped_full"), ["client", "2", "bad", "dropped_full", "150", "50"]);
    assert_eq!(words(&lines, "address"), ["client", "2", "bad", "address", "3", "0"]);
}

#[test]
fn what_does_not_fit_is_said_to_be_missing() {
    let mut view = view();
    let one = view.clients[0].clone();
    let client = |session| {
        let mut client = one.clone();
        client.identity.session = session;
        client
    };
    view.clients = (0..50).map(client).collect();
    view.drops = (0..30).map(|_| view.drops[0].clone()).collect();
    let state = State { scroll: 10, trouble: Some("the NIC is gone"), paused: true, keys: true, ..plain() };
    let lines = drawn(&view, 100, 40, &state);
    assert!(lines[0].contains("q end") && lines[0].ends_with("stopped"), "{}", lines[0]);
    assert_eq!(lines[1], "as it was last: the NIC is gone");
    assert!(lines.iter().any(|line| line.trim_start().starts_with("10 ")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.trim_start().starts_with("9 ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("and 23 more reasons")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains(" more") && !line.contains("reasons")), "{lines:#?}");
    let narrow = drawn(&view, 84, 40, &plain());
    assert!(
        narrow.iter().any(|line| line
            .split_whitespace()
            .eq(["SESSION", "CLIENT", "NETWORK", "SENT/S", "RECV/S", "DROPS", "FAULTS"])),
        "{narrow:#?}"
    );
    // No size makes it panic.
    for (width, height) in [(1, 1), (10, 3), (80, 5), (300, 100)] {
        drawn(&view, width, height, &state);
    }
    let empty = Sample { list: Default::default(), ..sample(1, 1, 1) };
    let empty = View::of(&empty, &empty, Order::Drops);
    let lines = drawn(&empty, 100, height_of(&empty), &plain());
    assert_eq!(lines.iter().filter(|line| line.trim() == "none").count(), 2, "{lines:#?}");
}

#[test]
fn clients_are_sorted() {
    let mut view = view();
    let mut first = |order| {
        view.sort(order);
        view.clients[0].identity.name.clone()
    };
    assert_eq!(first(Order::Drops), "bad");
    assert_eq!(first(Order::Sent), "good");
    assert_eq!(first(Order::Session), "good");
    let mut order = Order::Session;
    for _ in 0..4 {
        order = order.next();
    }
    assert_eq!(order, Order::Session);
}

#[test]
fn answers_that_are_no_lists_are_told() {
    let told = |text: &str| read(text).expect_err("it is no list").to_string();
    assert_eq!(told(r#"{"error": "that is no question"}"#), "the NIC says: that is no question");
    assert!(told(r#"{"networks": 3}"#).contains("another version"));
    assert!(told("").contains("another version"));
}

#[test]
fn the_kernels_line_of_a_thread_is_read() {
    let line = "77 (nic-12) S 1 2 3 4 5 6 7 8 9 10 1500 44 0 0 20 0 2 0 100 0";
    assert_eq!(ticks_of(line), Some((12, 1544)));
    assert_eq!(ticks_of(&line.replace("nic-12", "nic-12-3")), Some((12, 1544)));
    assert_eq!(ticks_of("77 (conic) S 1 2 3 4 5 6 7 8 9 10 1500 44 0 0"), None);
    assert_eq!(ticks_of("77 (a) (nic-1) S 1"), None);
    assert_eq!(ticks_of("77 (nic-1) S 1 2 3"), None);
}

#[test]
fn numbers_are_short() {
    let shown: Vec<String> = [0.0, 0.4, 9999.0, 10_000.0, 1.5e6, 9.876e9, 2e12, 5e16].map(short).into();
    assert_eq!(shown, ["0", "0", "9999", "10.00k", "1.50M", "9.88G", "2.00T", "50000.00T"]);
}
