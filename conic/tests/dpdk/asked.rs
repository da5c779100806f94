//! What applications ask of the device beside bursts, and frames for stations that nobody is known to have.

use std::path::Path;
use std::process::Command;

use conic_client::{Client, Queue};
use conic_port::offload::rss::DEFAULT_KEY;

use crate::testpmd::{
    Running, Testpmd, alone, daemon, driver, folder, frame, frame_to, options, program, send, wait_until,
};

/// A station that nobody has.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0x77, 0x77];

#[test]
fn what_lies_in_a_queue_and_what_is_hashed_is_told_and_a_reset_begins_anew() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for (eal, queues) in [(&[][..], 1), (&["--mbuf-pool-ops-name=conic"], 1), (&[], 3)] {
        let folder = folder();
        let _nic = daemon(folder.path(), &["--mode", "loopback"]);
        let mut command = Command::new(program("asked"));
        command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "1"]);
        command.args(eal).arg("--file-prefix=conic-asked").arg("-d").arg(&driver);
        let socket = folder.path().join("nic.sock");
        command.arg(format!("--vdev=net_conic0,path={},descriptors=64,queues={queues}", socket.display()));
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.ends_with("all as it should be\n"), "{eal:?}, {queues}: {said}{why}");
        let key = DEFAULT_KEY.map(|byte| format!("{byte:02x}")).concat();
        assert!(said.contains(&key), "{said}");
        assert!(said.contains("cannot be changed") || why.contains("cannot be changed"), "{said}{why}");
    }
}

/// A daemon on which a client of the device's name may be promiscuous, or nobody.
fn daemon_that_lets(folder: &Path, device: bool) -> Running {
    let file = folder.join("nic.toml");
    let rule = if device { "[[network.client]]\nname = \"net_conic0\"\npromiscuous = true\n" } else { "" };
    std::fs::write(&file, format!("[[network]]\n{rule}")).expect("a file");
    daemon(folder, &["--config", file.to_str().expect("text")])
}

/// How many packets testpmd has received.
fn received(testpmd: &mut Testpmd) -> u64 {
    let before = testpmd.log().len();
    testpmd.say("show port stats 0");
    let mut count = None;
    wait_until("testpmd answers", || {
        let log = testpmd.log();
        let words: Vec<&str> = log[before..].split_whitespace().collect();
        count = words.windows(3).find(|three| three[0] == "RX-packets:").and_then(|three| three[1].parse().ok());
        count.is_some() && log[before..].contains("TX-packets:")
    });
    count.expect("it was waited for")
}

/// Sends frames for nobody, then one for the device: how many testpmd has then received more.
fn got(queue: &mut Queue, client: &Client, testpmd: &mut Testpmd) -> u64 {
    let before = received(testpmd);
    (0..10).for_each(|number| send(queue, &frame_to(NOBODY, client.mac(), 100, number)));
    // Behind them, in the same queue.
    send(queue, &frame(client.mac(), 777, 10));
    let mut all = 0;
    wait_until("the device's own comes", || {
        all = received(testpmd) - before;
        all == 1 || all == 11
    });
    all
}

#[test]
fn promiscuous_mode_gives_frames_for_unknown_stations_where_the_operator_lets_it() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for is_let in [true, false] {
        let folder = folder();
        let _nic = daemon_that_lets(folder.path(), is_let);
        let (client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
        let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &["--forward-mode=rxonly"]);
        testpmd.say("start");
        wait_until("it receives", || testpmd.log().contains("packet forwarding - ports=1"));
        // testpmd asks for it by itself.
        let all = if is_let { 11 } else { 1 };
        assert_eq!(got(&mut queues[0], &client, &mut testpmd), all, "let: {is_let}: {}", testpmd.log());
        testpmd.say("set promisc 0 off");
        testpmd.say("show port info 0");
        wait_until("it is off", || testpmd.log().contains("Promiscuous mode: disabled"));
        assert_eq!(got(&mut queues[0], &client, &mut testpmd), 1, "{}", testpmd.log());
        testpmd.say("set promisc 0 on");
        testpmd.say("show port info 0");
        wait_until("it is on", || testpmd.log().contains("Promiscuous mode: enabled"));
        assert_eq!(got(&mut queues[0], &client, &mut testpmd), all, "let: {is_let}: {}", testpmd.log());
        let log = testpmd.end();
        assert_eq!(crate::testpmd::counter(&log, "promiscuous"), u64::from(is_let), "{log}");
        assert_eq!(log.contains("promiscuous mode gives no more frames than before"), !is_let, "{log}");
    }
}
