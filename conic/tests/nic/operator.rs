//! What an operator asks for, and flags that ask for the same from the start.

use super::*;

#[test]
fn an_operator_lists_limits_and_detaches() {
    let nic = Nic::start(&[]);
    let socket = nic.socket();
    let ctl = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.arg("ctl").arg("--socket").arg(&socket).args(arguments.split_whitespace());
        command.output().expect("conic runs")
    };
    let (a, mut of_a) = attach(&socket, &small(2));
    let (b, _of_b) = attach(&socket, &small(1));
    let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100, 1);
    send(&mut of_a[0], sent);
    let list = || -> serde_json::Value {
        let output = ctl("list --json");
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    };
    wait_until("the frame is counted", || {
        list()["clients"].as_array().is_some_and(|all| all.iter().any(|one| one["counters"]["received_frames"] == 1))
    });
    let session = a.attached().session;
    let found = list()["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .any(|one| one["session"] == session && one["queues"] == 2);
    assert!(found, "{}", list());
    let table = String::from_utf8(ctl("list").stdout).expect("text");
    assert!(table.contains("network default (bridge), 2 clients"), "{table}");
    let limit = || {
        let listed = list();
        let clients = listed["clients"].as_array().expect("clients");
        clients.iter().find(|one| one["session"] == session).expect("it is there")["limit"].clone()
    };
    assert_eq!(limit(), serde_json::Value::Null);
    assert!(ctl(&format!("limit {session} --rate 1000000 --burst 5000")).status.success());
    assert_eq!(limit(), serde_json::json!({ "bytes_per_second": 1_000_000, "burst_bytes": 5_000 }));
    let table = String::from_utf8(ctl("list").stdout).expect("text");
    let line = format!("client {session} sends 1000000 bytes/s at most, 5000 bytes at once");
    assert!(table.contains(&line), "{table}");
    assert!(String::from_utf8_lossy(&ctl("detach 999").stderr).contains("no client 999"));
    assert!(ctl(&format!("detach {session}")).status.success());
    wait_until("it learns that it is detached", || {
        a.maintain();
        a.detached().is_some()
    });
    assert_eq!(a.detached().map(|refused| refused.reason), Some(Reason::Operator));
}

/// Asks the NIC behind a socket; whether it was done, and what was printed.
fn ctl(socket: &Path, arguments: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.arg("ctl").arg("--socket").arg(socket).args(arguments.split_whitespace());
    let output = command.output().expect("conic runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), text)
}

#[test]
fn an_operator_connects_clients_and_pins_flows() {
    let nic = Nic::start(&[]);
    let socket = nic.socket();
    let ctl = |arguments: &str| ctl(&socket, arguments);
    let (a, mut of_a) = attach(&socket, &small(1));
    let (b, mut of_b) = attach(&socket, &small(1));
    let (c, mut of_c) = attach(&socket, &small(4));
    let [one, two, three] = [&a, &b, &c].map(|client| client.attached().session);
    assert_eq!(ctl(&format!("connect client:{one} client:{two}")), (true, String::new()));
    // To the third, by its address, and it comes to the second.
    let sent = frame(&mut of_a[0], a.mac(), c.mac(), 100, 1);
    let expected = sent.to_vec();
    send(&mut of_a[0], sent);
    assert_eq!(receive(&mut of_b[0]).to_vec(), expected);
    assert!(ctl("list").1.contains(&format!("connected client:{one} to client:{two}")), "{}", ctl("list").1);
    assert_eq!(ctl(&format!("disconnect client:{two}")), (true, String::new()));
    assert!(ctl(&format!("disconnect client:{two}")).1.contains("not connected"));
    assert!(ctl(&format!("connect client:{one} port:0")).1.contains("no port:0"), "it has no ports");
    assert!(ctl(&format!("connect client:{one} station:0")).1.contains("client:NUMBER or port:NUMBER"));
    let from_a = a.mac().map(|byte| format!("{byte:02x}")).join(":");
    assert_eq!(ctl(&format!("pin {three} --queue 3 --match source-mac={from_a}")), (true, String::new()));
    assert!(ctl(&format!("pin {three} --queue 4 --match vlan=7")).1.contains("4 queues"));
    assert!(ctl(&format!("pin {three} --match port=7")).1.contains("destination-port"));
    let pinned = format!("pinned source-mac={from_a} to client {three}, queue 3");
    assert!(ctl("list").1.contains(&pinned), "{}", ctl("list").1);
    let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100, 2);
    let expected = sent.to_vec();
    send(&mut of_a[0], sent);
    assert_eq!(receive(&mut of_c[3]).to_vec(), expected);
    assert_eq!(ctl(&format!("unpin {three}")), (true, String::new()));
    assert!(!ctl("list").1.contains("pinned"));
}

/// What lies in a capture file, once so many frames do.
fn captured(file: &Path, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    wait_until("the file is written out", || {
        found.clear();
        let Ok(mut reader) = conic_port::CaptureReader::open(file) else { return false };
        while let Ok(Some(_)) = reader.next_record() {
            found.push(reader.data().to_vec());
        }
        found.len() == count
    });
    found
}

#[test]
fn an_operator_has_a_clients_frames_copied_to_a_file() {
    let nic = Nic::start(&[]);
    let (a, mut of_a) = attach(&nic.socket(), &small(1));
    let (b, mut of_b) = attach(&nic.socket(), &small(1));
    let file = nic.folder.path().join("a.pcapng");
    let mirror = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        let end = format!("client:{}", a.attached().session);
        command.args(["ctl", "--socket"]).arg(nic.socket()).args(["mirror", &end]).args(more);
        let output = command.output().expect("conic runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let path = file.to_str().expect("text");
    assert_eq!(mirror(&[path, "--limit", "650"]), (true, String::new()));
    let mut expected = Vec::new();
    for number in 0..10 {
        let sent = frame(&mut of_a[0], a.mac(), b.mac(), 100 + number, number as u64);
        expected.push(sent.to_vec());
        send(&mut of_a[0], sent);
        receive(&mut of_b[0]);
    }
    assert!(mirror(&[path]).1.contains("is there already"));
    assert_eq!(mirror(&[]), (true, String::new()));
    assert!(mirror(&[]).1.contains("not mirrored"));
    // 100 to 105 bytes are 615; the next does not fit, and nothing behind it is let through.
    assert_eq!(captured(&file, 6), expected[..6]);
}

/// A NIC that is stopped as whoever administers a machine stops it, with as much on its way to the file as may be.
#[test]
fn what_was_copied_is_in_the_file_when_the_nic_has_ended() {
    const FRAMES: usize = 1000;
    let mut nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let file = nic.folder.path().join("a.pcap");
    let end = format!("client:{} {}", client.attached().session, file.display());
    assert_eq!(ctl(&nic.socket(), &format!("mirror {end}")), (true, String::new()));
    for number in 0..FRAMES {
        let sent = frame(&mut queues[0], client.mac(), client.mac(), 1500, number as u64);
        send(&mut queues[0], sent);
        receive(&mut queues[0]);
    }
    let process = rustix::process::Pid::from_child(&nic.child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    assert!(nic.child.wait().expect("it ends").success());
    let mut reader = conic_port::CaptureReader::open(&file).expect("a capture");
    let copied = std::iter::from_fn(|| reader.next_record().expect("it is whole"));
    assert_eq!(copied.count(), FRAMES);
}

#[test]
fn flags_say_whose_frames_are_copied_from_the_start() {
    let said = |mirrors: &[&str], more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        command.args(["nic", "--port", "capture:record=gone.pcap", more]);
        for mirror in mirrors {
            command.args(["--mirror", mirror]);
        }
        let output = command.output().expect("conic runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let both = ["port:0,/tmp/port.pcapng", "client:web,/tmp/web.pcap"];
    assert!(said(&both, "--check").starts_with("sound: "));
    let mut checked = Command::new(env!("CARGO_BIN_EXE_conic"));
    let checked =
        checked.args(["nic", "--check", "--json", "--socket", "/tmp/none.sock"]).output().expect("conic runs");
    let sound: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("a JSON object");
    assert_eq!((&sound["sound"], &sound["networks"]), (&true.into(), &1.into()));
    let text = said(&both, "--print-config");
    let config = conic_nicd::config::Config::read(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(config.networks[0].mirrors, both.map(|mirror| mirror.parse().expect("a mirror")));
    for (mirror, reason) in [
        ("port:1,/tmp/port.pcap", "no port:1"),
        ("port:0,port.pcap", "whole path"),
        ("port:0,/tmp/port.txt", ".pcap or .pcapng"),
        ("port:0", "an end and a file"),
    ] {
        let text = said(&[mirror], "--check");
        assert!(text.contains(reason), "{mirror}: {text}");
    }
}

#[test]
fn a_loopback_networks_frames_are_copied_to_a_file_too() {
    let nic = Nic::start(&["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(2));
    let (_other, mut of_other) = attach(&nic.socket(), &small(1));
    let file = nic.folder.path().join("a.pcap");
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    let end = format!("client:{}", client.attached().session);
    command.args(["ctl", "--socket"]).arg(nic.socket()).args(["mirror", &end]).arg(&file);
    assert!(command.status().expect("conic runs").success());
    let mut expected = Vec::new();
    for number in 0..10 {
        let queue = &mut queues[number % 2];
        let sent = frame(queue, client.mac(), client.mac(), 60 + 700 * number, number as u64);
        expected.push(sent.to_vec());
        send(queue, sent);
        receive(queue);
        let not_copied = frame(&mut of_other[0], client.mac(), client.mac(), 90, 99);
        send(&mut of_other[0], not_copied);
        receive(&mut of_other[0]);
    }
    let text = metrics_of(&nic);
    let copied = format!("{{network=\"default\",end=\"{end}\",what=\"copied");
    let bytes: usize = expected.iter().map(Vec::len).sum();
    assert!(text.contains(&format!("conic_mirror_total{copied}_frames\"}} 10\n")), "{text}");
    assert!(text.contains(&format!("conic_mirror_bytes_total{copied}\"}} {bytes}\n")), "{text}");
    // A metric has one unit.
    assert!(!text.contains("bytes\"}"), "{text}");
    drop((client, queues));
    assert_eq!(captured(&file, 10), expected);
}

#[test]
fn flags_connect_and_pin_and_metrics_say_so() {
    let nic = Nic::start(&[
        "--connect",
        "client:left,client:right",
        "--connect",
        "client:test,client:nobody",
        "--pin",
        "web,queue=0,destination-mac=02:00:00:00:00:09",
    ]);
    let named = |name: &str| Options { name: Name::new(name).expect("a name"), ..small(1) };
    let (left, mut of_left) = attach(&nic.socket(), &named("left"));
    let (right, mut of_right) = attach(&nic.socket(), &named("right"));
    let (web, mut of_web) = attach(&nic.socket(), &named("web"));
    let (other, mut of_other) = attach(&nic.socket(), &named("other"));
    other.set_promiscuous(true).expect_err("no configuration lets it");
    let (_alone, _queues) = attach(&nic.socket(), &small(1));
    // Over the wire whatever it is addressed to, and by the pin whatever it is addressed to.
    let over = frame(&mut of_left[0], left.mac(), other.mac(), 100, 1);
    let by_pin = frame(&mut of_other[0], other.mac(), [2, 0, 0, 0, 0, 9], 100, 2);
    let expected = [over.to_vec(), by_pin.to_vec()];
    send(&mut of_left[0], over);
    send(&mut of_other[0], by_pin);
    assert_eq!([receive(&mut of_right[0]).to_vec(), receive(&mut of_web[0]).to_vec()], expected);
    let text = metrics_of(&nic);
    let ends = [left, right].map(|client| format!("client:{}", client.attached().session));
    let whole = format!("conic_circuit{{network=\"default\",near=\"{}\",far=\"{}\"}} 1\n", ends[0], ends[1]);
    assert_eq!(text.matches(&whole).count(), 1, "{text}");
    assert!(text.contains(",far=\"\"} 0\n") && text.matches("conic_circuit{").count() == 2, "{text}");
    let pins = format!("conic_pinned_flows{{network=\"default\",session=\"{}\"}} 1\n", web.attached().session);
    assert!(text.contains(&pins) && text.matches("conic_pinned_flows{").count() == 5, "{text}");
    let promiscuous = |is: u8| {
        text.lines()
            .filter(|line| line.starts_with("conic_client_promiscuous{") && line.ends_with(&format!("\"}} {is}")))
            .count()
    };
    assert_eq!([promiscuous(0), promiscuous(1)], [5, 0], "{text}");
}

#[test]
fn what_this_machine_cannot_do_is_found_before_anything_starts() {
    let said = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        let output = command.arg("nic").args(flags).output().expect("conic runs");
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let long = format!("/tmp/{}", "a".repeat(120));
    for (flags, reason) in [
        (
            &["--check", "--core", "100000"][..],
            "network \"default\": this process may not run on core 100000; it may on [",
        ),
        (&["--core", "100000"], "may not run on core 100000"),
        (
            &["--check", "--port", "af-packet:none0"],
            "network \"default\": port 'af-packet:none0': there is no interface",
        ),
        (&["--check", "--port", "capture:replay=/nowhere.pcap"], "there is no file /nowhere.pcap"),
        (&["--check", "--pin", "web,queue=256,vlan=1"], "queue 256 of web, and a client has at most 256"),
        (&["--check", "--socket", "/nowhere/at/all.sock"], "there is no folder /nowhere/at"),
        (&["--check", "--socket", "/tmp"], "something is there that is no socket"),
        (&["--check", "--socket", &long], "longer than a socket's may be"),
        (
            &["--check", "--mirror", "client:web,/nowhere/web.pcap"],
            "network \"default\": the mirror of client:web: there is no folder /nowhere for /nowhere/web.pcap: make it",
        ),
        (&["--check", "--config", "/nowhere.toml"], "cannot read the configuration /nowhere.toml: No such file"),
    ] {
        let text = said(flags);
        assert!(text.contains(reason), "{flags:?}: {text}");
    }
    // The one port makes what the other names.
    let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
    command.args(["nic", "--check", "--port", "tap:none0", "--port", "af-packet:none0"]);
    assert!(command.status().expect("conic runs").success());
}

#[test]
fn an_operator_attaches_a_port_and_detaches_it() {
    let nic = Nic::start(&[]);
    let socket = nic.socket();
    let ctl = |arguments: &str| ctl(&socket, arguments);
    let file = socket.with_file_name("attached.pcap");
    let spec = format!("capture:record={}", file.display());
    assert_eq!(ctl(&format!("attach {spec}")), (true, "port:0\n".to_owned()));
    let (a, mut of_a) = attach(&socket, &small(1));
    let sent = frame(&mut of_a[0], a.mac(), [0xff; 6], 100, 1);
    let expected = sent.to_vec();
    send(&mut of_a[0], sent);
    wait_until("the frame has left", || {
        ctl("list").1.contains(&format!("port:0 {spec}: 0 frames in, 1 out, attached here"))
    });
    let mut top = Command::new(env!("CARGO_BIN_EXE_conic"));
    let top = top.args(["top", "--once", "--interval", "0.05", "--socket"]).arg(&socket).output().expect("conic runs");
    assert!(String::from_utf8_lossy(&top.stdout).contains("capture:record="), "{top:?}");
    let list: serde_json::Value = serde_json::from_str(&ctl("list --json").1).expect("one JSON object");
    let looks = &list["networks"][0]["looks"][0];
    assert_eq!(looks["thread"], 0);
    assert!(looks["buckets"][0]["looks"].as_u64() > Some(0) && looks["buckets"][0]["below_ps"].is_u64(), "{looks}");
    assert_eq!(ctl("detach port:0"), (true, String::new()));
    assert!(!ctl("list").1.contains("port:"), "{}", ctl("list").1);
    assert_eq!(captured(&file, 1), [expected], "it is written out");
    for (arguments, reason) in [
        ("detach port:0", "no port:0"),
        ("detach station:0", "NUMBER, client:NUMBER or port:NUMBER"),
        ("detach port:x", "no number"),
        ("attach tab:lab0", "tab"),
        ("attach af-packet:none0", "there is no interface 'none0'"),
        ("attach capture:record=a.pcap", "name the whole path"),
    ] {
        let (is_done, text) = ctl(arguments);
        assert!(!is_done && text.contains(reason), "{arguments}: {text}");
    }
    let session = a.attached().session;
    assert_eq!(ctl(&format!("detach client:{session}")), (true, String::new()));
}
