//! What whoever looks on sees: logs, metrics, `conic top`.

use super::*;

#[test]
fn who_looks_on_sees_the_process_that_has_taken_over() {
    let nic = Nic::start(&[]);
    let process = || {
        let top = Command::new(env!("CARGO_BIN_EXE_conic"))
            .args(["top", "--once", "--json", "--interval", "0.1", "--socket"])
            .arg(nic.socket())
            .output()
            .expect("conic starts");
        let view: serde_json::Value = serde_json::from_slice(&top.stdout).expect("a view");
        view["process"].as_u64()
    };
    assert_eq!(process(), Some(nic.child.id().into()));
    let mut heir = Command::new(env!("CARGO_BIN_EXE_conic"));
    heir.args(["nic", "--metrics", &nic.metrics, "--adopt", "--socket"]).arg(nic.socket()).stdout(Stdio::null());
    let mut heir = heir.spawn().expect("conic starts");
    let seen = std::panic::catch_unwind(|| wait_until("it is the heir's", || process() == Some(heir.id().into())));
    heir.kill().and_then(|()| heir.wait()).expect("it ran");
    assert!(seen.is_ok(), "the one before is named still");
}

/// A log that takes nothing more, as a pipe that nobody reads, and who could read it.
fn full_log() -> (Stdio, UnixStream) {
    use std::io::Write;
    let (mut log, reader) = UnixStream::pair().expect("two ends");
    log.set_nonblocking(true).expect("a socket can be that");
    while log.write(&[b'\n'; 4096]).is_ok() {}
    while log.write(b"\n").is_ok() {}
    log.set_nonblocking(false).expect("a socket can be that");
    (OwnedFd::from(log).into(), reader)
}

#[test]
fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    use std::io::{BufRead, BufReader};
    let (log, reader) = full_log();
    let program = Command::new(env!("CARGO_BIN_EXE_conic"));
    let nic = Nic::start_into(log, program, tempfile::tempdir().expect("a folder"), &[]);
    let clients = [1, 2].map(|queues| attach(&nic.socket(), &small(queues)));
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    let listed = command.args(["ctl", "list", "--socket"]).arg(nic.socket()).output().expect("conic runs");
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(text.contains("2 clients"), "{text}");
    // Nothing of it is lost to who reads it at last.
    reader.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket has one");
    let mut lines = BufReader::new(reader).lines().map_while(Result::ok).filter(|line| !line.is_empty());
    assert!(lines.next().is_some_and(|line| line.starts_with("listening")));
    for (client, _) in &clients {
        let expected = format!("client {} attached", client.attached().session);
        assert!(lines.any(|line| line.starts_with(&expected)), "{expected}");
    }
}

#[test]
fn a_nic_ends_when_it_is_told_to_though_nobody_reads_its_log() {
    let (log, _reader) = full_log();
    let program = Command::new(env!("CARGO_BIN_EXE_conic"));
    let mut nic = Nic::start_into(log, program, tempfile::tempdir().expect("a folder"), &[]);
    let process = rustix::process::Pid::from_child(&nic.child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    wait_until("it has ended", || {
        nic.child.try_wait().expect("it can be asked").is_some_and(|status| status.success())
    });
}

#[test]
fn metrics_are_text_over_http() {
    use std::io::{Read, Write};
    let nic = Nic::start(&[]);
    let address = nic.metrics.clone();
    let (client, _queues) = attach(&nic.socket(), &small(1));
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    let answer = get("/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let line = format!("session=\"{}\"", client.attached().session);
    let looks = "conic_look_interval_seconds_count{network=\"default\",thread=\"0\"}";
    assert!(answer.contains(looks) && answer.contains("thread=\"0\",le=\"0.000000065536\"}"), "{answer}");
    assert!(answer.contains(&line) && answer.contains("conic_clients{network=\"default\"} 1"), "{answer}");
    assert!(get("/else").starts_with("HTTP/1.1 404"));
    // A request comes in as many pieces as TCP likes.
    let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
    stream.write_all(b"GET /met").expect("it reads");
    assert!(get("/metrics").starts_with("HTTP/1.1 200"), "meanwhile others are answered");
    stream.write_all(b"rics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One that says nothing does not hold the daemon up.
    let _silent = std::net::TcpStream::connect(&address).expect("it listens");
    assert!(get("/metrics").starts_with("HTTP/1.1 200"));
}

#[test]
fn top_shows_who_sends_and_how_much() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let top = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["top", "--interval", "0.3", "--socket"]).arg(nic.socket()).args(more);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut looking = top(&["--once", "--json"]).spawn().expect("conic starts");
    let mut number = 0;
    wait_until("it has looked twice", || {
        let next = frame(&mut queues[0], client.mac(), client.mac(), 100, number);
        send(&mut queues[0], next);
        receive(&mut queues[0]);
        number += 1;
        looking.try_wait().expect("it can be asked").is_some()
    });
    let output = looking.wait_with_output().expect("it ended");
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let shown = &view["clients"][0];
    let mac: Vec<String> = client.mac().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((shown["name"].as_str(), shown["mac"].as_str()), (Some("test"), Some(mac.join(":").as_str())));
    assert!(shown["sent"]["frames"].as_f64() > Some(0.0) && shown["received"]["frames"].as_f64() > Some(0.0), "{view}");
    assert!(view["networks"][0]["core"].as_f64() > Some(0.0) && view["process"].as_u64() > Some(0), "{view}");

    let screen = top(&["--once"]).output().expect("it runs");
    let screen = String::from_utf8_lossy(&screen.stdout);
    assert!(screen.starts_with("conic top   ") && screen.contains(&mac.join(":")), "{screen}");
    let refused = top(&[]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--once"), "{refused:?}");
}

#[test]
fn a_record_that_is_not_whole_is_said_at_the_end() {
    for (full, code) in [(true, 1), (false, 0)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (record, log) = (folder.path().join("record.pcap"), folder.path().join("log"));
        if full {
            // What is written there finds no room.
            std::os::unix::fs::symlink("/dev/full", &record).expect("a link");
        }
        let file = File::create(&log).expect("a log");
        let port = format!("capture:record={}", record.display());
        let program = Command::new(env!("CARGO_BIN_EXE_conic"));
        let mut nic = Nic::start_into(file.into(), program, folder, &["--port", &port]);
        let process = rustix::process::Pid::from_child(&nic.child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
        let mut status = None;
        wait_until("it has ended", || {
            status = nic.child.try_wait().expect("it can be asked");
            status.is_some()
        });
        let log = std::fs::read_to_string(log).expect("a log");
        let said = "port:0 of default has not written out all that was sent to it: ";
        assert_eq!(log.lines().filter(|line| line.starts_with(said)).count(), code as usize, "{log}");
        assert_eq!(status.and_then(|status| status.code()), Some(code), "{log}");
    }
}
