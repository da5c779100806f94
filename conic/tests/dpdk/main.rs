//! DPDK's driver: stock testpmd, and DPDK's stock examples, on a daemon; traffic driven through them by a client and checked.
//!
//! Skipped, visibly, where DPDK or its drivers' headers cannot be had.

mod asked;
mod examples;
mod mempools;
mod modes;
mod offloads;
mod queues;
mod soak;
mod testpmd;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use conic_client::{Client, Operator, Options, Queue};
use conic_fabric::Time;
use testpmd::{
    DEVICE, Running, Testpmd, alone, counter, daemon, driver, exchange, folder, frame, frame_to, options, program,
    receive_for, send, swapped, wait_for_echo, wait_until,
};

/// Frames of all lengths, sent through testpmd in bursts of each size and compared.
fn echo_everything(driver: &Path, eal: &[&str], more: &str, direct: bool) {
    let folder = folder();
    let _nic = daemon(folder.path(), &[]);
    let (client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
    let mut testpmd = Testpmd::start(driver, folder.path(), eal, more, &["--forward-mode=macswap"]);
    testpmd.say("start");
    wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
    let lengths: Vec<usize> = (60..=2048).step_by(37).chain([60, 64, 65, 128, 1514, 2048, 3000, 9000, 9600]).collect();
    for (round, burst) in [1, 7, 16].into_iter().enumerate() {
        for (number, some) in lengths.chunks(burst).enumerate() {
            let frames: Vec<Vec<u8>> = some
                .iter()
                .enumerate()
                .map(|(index, &length)| frame(client.mac(), length, (round * 10_000 + number * 100 + index) as u64))
                .collect();
            let patience = Time::from_nanoseconds(20_000_000_000);
            let all = exchange(&mut queues[0], &frames, swapped, patience);
            assert!(all, "frames of {some:?} bytes were lost: {}", testpmd.end());
        }
    }
    let log = testpmd.end();
    assert_eq!((counter(&log, "ring_faults"), counter(&log, "buffers_refused"), counter(&log, "rx_bad")), (0, 0, 0));
    let (in_place, copied) = (counter(&log, "rx_direct"), counter(&log, "rx_copied"));
    if direct {
        assert!(in_place > 100 && copied == 0, "{log}");
        assert!(counter(&log, "tx_direct") > 100, "{log}");
    } else {
        assert!(in_place == 0 && copied > 10 && counter(&log, "rx_attached") > 100, "{log}");
    }
}

#[test]
fn stock_testpmd_sends_back_what_it_gets_through_copies_and_in_place() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    echo_everything(&driver, &[], "", false);
    echo_everything(&driver, &["--mbuf-pool-ops-name=conic"], "", true);
    echo_everything(&driver, &[], ",zero-copy=1", true);
}

#[test]
fn testpmd_goes_on_when_the_daemon_comes_back() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let nic = daemon(folder.path(), &[]);
    let eal = ["--mbuf-pool-ops-name=conic"];
    let mut testpmd = Testpmd::start(&driver, folder.path(), &eal, "", &["--forward-mode=macswap"]);
    testpmd.say("start");
    let (client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
    wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
    drop((client, queues, nic));
    wait_until("testpmd hears that the daemon is gone", || testpmd.log().contains("the daemon is gone"));
    let _nic = daemon(folder.path(), &[]);
    wait_until("testpmd hears that it is back", || testpmd.log().contains("the daemon is back"));
    let (client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
    wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
    let frames: Vec<Vec<u8>> = (0..10).map(|index| frame(client.mac(), 60 + 200 * index, index as u64)).collect();
    assert!(exchange(&mut queues[0], &frames, swapped, Time::from_nanoseconds(20_000_000_000)));
    let log = testpmd.end();
    assert_eq!((counter(&log, "reconnects"), counter(&log, "link_downs")), (1, 1));
}

#[test]
fn a_running_device_has_another_address_and_keeps_it_when_the_daemon_comes_back() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let nic = daemon(folder.path(), &[]);
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &["--forward-mode=macswap"]);
    testpmd.say("start");
    let mine = Options { mac: Some([2, 0, 0, 0, 0, 7]), ..options() };
    let moved = [2, 0, 0, 0, 0, 0x77];
    let (client, mut queues) = Client::attach(&socket, &mine).expect("a NIC");
    let (old, new) = (frame(client.mac(), 60, 0), frame_to(moved, client.mac(), 60, 1));
    wait_for_echo(&mut queues[0], &old, swapped, &testpmd);
    testpmd.say("mac_addr set 0 02:00:00:00:00:77");
    wait_for_echo(&mut queues[0], &new, swapped, &testpmd);
    // What another has it does not get.
    testpmd.say("mac_addr set 0 02:00:00:00:00:07");
    wait_until("testpmd is refused", || testpmd.log().contains("02:00:00:00:00:07 is not to be had"));
    wait_for_echo(&mut queues[0], &new, swapped, &testpmd);
    drop((client, queues, nic));
    wait_until("testpmd hears that the daemon is gone", || testpmd.log().contains("the daemon is gone"));
    let _nic = daemon(folder.path(), &[]);
    wait_until("testpmd hears that it is back", || testpmd.log().contains("the daemon is back"));
    let (_client, mut queues) = Client::attach(&socket, &mine).expect("a NIC");
    wait_for_echo(&mut queues[0], &new, swapped, &testpmd);
    // And the old one is another's now.
    let other = Options { mac: Some(DEVICE), ..options() };
    let (_other, mut others) = Client::attach(&socket, &other).expect("nobody has it");
    send(&mut queues[0], &old);
    assert_eq!(receive_for(&mut others[0], Time::from_nanoseconds(200_000_000)), [old]);
    testpmd.end();
}

/// Another core may have a buffer as soon as the NIC has it.
#[test]
fn segments_that_were_sent_are_not_touched() {
    let _alone = alone();
    let Some(_driver) = driver() else { return };
    let output = Command::new(program("chain")).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all as it should be\n");
}

/// More descriptors than DPDK has numbers for.
#[test]
fn rings_of_any_size_are_told_as_what_can_be_told() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let file = folder.path().join("nic.toml");
    std::fs::write(&file, "[limits]\ndescriptors = 65536\n").expect("a file");
    let _nic = daemon(folder.path(), &["--config", file.to_str().expect("a name")]);
    let (client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
    let arguments = ["--forward-mode=macswap"];
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], ",descriptors=65536", &arguments);
    testpmd.say("start");
    wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
    testpmd.end();
}

/// Its mbufs and its pool lie in the regions of its devices, and it goes on with them when it was detached.
#[test]
fn an_operators_detach_ends_no_stock_program() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let socket = folder.path().join("nic.sock");
    let _nic = daemon(folder.path(), &[]);
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conic"));
        let output = command.arg("ctl").arg("--socket").arg(&socket).args(arguments).output().expect("conic runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    // The sessions of the program's devices, each of which has another one when it has come back.
    let sessions = || -> Vec<u64> {
        let list: serde_json::Value = serde_json::from_slice(&ctl(&["list", "--json"])).expect("JSON");
        let clients = list["clients"].as_array().expect("clients");
        clients.iter().map(|client| client["session"].as_u64().expect("a number")).collect()
    };
    let second = format!("--vdev=net_conic1,path={}", socket.display());
    let eal = ["--mbuf-pool-ops-name=conic", second.as_str(), "--log-level=pmd.net.conic:info"];
    // So few mbufs that all are buffers of the regions.
    let arguments = ["--forward-mode=txonly", "--total-num-mbufs=8000"];
    let mut testpmd = Testpmd::start(&driver, folder.path(), &eal, "", &arguments);
    wait_until("its mbufs are there", || testpmd.log().contains("8000 objects in shared memory, 0 in ordinary"));
    testpmd.say("start");
    wait_until("both devices are there", || sessions().len() == 2);
    for round in 0..4 {
        let before = sessions();
        let detached = before[round % 2];
        ctl(&["detach", &detached.to_string()]);
        wait_until("it is back", || {
            let now = sessions();
            now.len() == 2 && !now.contains(&detached)
        });
        // Both send, from buffers of the regions that they had.
        let [first, second] = sent(&mut testpmd);
        wait_until("both go on sending", || {
            let now = sent(&mut testpmd);
            now[0] > first && now[1] > second
        });
    }
    let log = testpmd.end();
    assert_eq!(counter(&log, "ring_faults"), 0, "{log}");
}

/// Of the regions that it has had it keeps the first, if its mbufs lie there, and the one that it is in.
#[test]
fn a_device_that_is_detached_often_keeps_no_region_that_is_of_no_use() {
    const ROUNDS: usize = 5;
    // What a region takes, of which one may be let go of a moment later.
    const ONE: usize = 3;
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let folder = folder();
        let socket = folder.path().join("nic.sock");
        let _nic = daemon(folder.path(), &[]);
        let ask = |question: &str| -> serde_json::Value {
            let operator = Operator::connect(&socket, Duration::from_secs(20)).expect("it listens");
            serde_json::from_str(&operator.ask(question).expect("it answers")).expect("an answer")
        };
        let (client, mut queues) = Client::attach(&socket, &options()).expect("a NIC");
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, "", &["--forward-mode=macswap"]);
        testpmd.say("start");
        let echo = |queues: &mut [Queue], number: usize, testpmd: &Testpmd| {
            // Long enough to be pointed to, where it is not in place.
            wait_for_echo(&mut queues[0], &frame(client.mac(), 1000, number as u64), swapped, testpmd);
        };
        echo(&mut queues, 0, &testpmd);
        // The device has attached last.
        let newest = || {
            let list = ask(r#"{"ask": "list"}"#);
            let clients = list["clients"].as_array().expect("clients");
            clients.iter().map(|one| one["session"].as_u64().expect("a number")).max()
        };
        let mut before = 0;
        for round in 1..=ROUNDS {
            let session = newest().expect("two clients");
            assert_eq!(ask(&format!(r#"{{"ask": "detach", "client": {session}}}"#))["done"], true);
            wait_until("it is back", || newest() > Some(session));
            echo(&mut queues, round, &testpmd);
            let descriptors = testpmd.descriptors();
            if round == 2 {
                before = descriptors;
            }
            assert!(
                round <= 2 || descriptors <= before + ONE,
                "{round} rounds: {before} descriptors, then {descriptors}"
            );
        }
        testpmd.end();
    }
}

/// Whether its mbufs lie in the memory of the device, or point there.
#[test]
fn a_device_that_goes_leaves_mbufs_whole_and_nothing_else() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let nic = daemon(folder.path(), &["--mode", "loopback"]);
    let device = format!("path={}", folder.path().join("nic.sock").display());
    for more in [None, Some("--mbuf-pool-ops-name=conic")] {
        let mut command = Command::new(program("closed"));
        command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "0"]).args(more);
        command.arg(format!("--file-prefix=conic{}", folder.path().file_name().expect("a name").to_string_lossy()));
        command.arg("-d").arg(&driver).arg(format!("--vdev=net_conic0,{device}")).arg("--").arg(&device);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.ends_with("all as it should be\n"), "{more:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    drop(nic);
}

/// A bell whose other end is gone rings for ever.
#[test]
fn who_waits_for_a_queues_descriptor_sleeps_while_the_daemon_is_gone() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let nic = daemon(folder.path(), &["--mode", "loopback"]);
    let log = folder.path().join("log");
    let written = std::fs::File::create(&log).expect("a file");
    let mut command = Command::new(program("asleep"));
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "1"]);
    command.arg(format!("--file-prefix=conic{}", folder.path().file_name().expect("a name").to_string_lossy()));
    command.arg("-d").arg(&driver).arg(format!("--vdev=net_conic0,path={}", folder.path().join("nic.sock").display()));
    command.stdin(Stdio::null()).stdout(written.try_clone().expect("a file")).stderr(written);
    let mut running = Running(command.spawn().expect("it starts"));
    let mut wait_for = |line: &str| {
        wait_until(line, || {
            let said = std::fs::read_to_string(&log).expect("a log");
            assert!(!said.contains("this is not so"), "{said}");
            let ended = running.0.try_wait().expect("it can be asked");
            assert!(ended.is_none_or(|status| status.success()), "{said}");
            said.contains(line)
        });
    };
    wait_for("ready\n");
    drop(nic);
    wait_for("asleep\n");
    let _nic = daemon(folder.path(), &["--mode", "loopback"]);
    wait_for("all as it should be\n");
}

/// A change of the link that the application has seen by asking for it is told, and wakes who waits.
#[test]
fn an_application_that_asks_for_the_link_is_told_of_its_changes_too() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let nic = daemon(folder.path(), &[]);
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &["--no-lsc-interrupt"]);
    testpmd.say("start");
    let asked = |testpmd: &mut Testpmd, link: &str, told: &str| {
        wait_until("it sees the link, and is told of it", || {
            (0..20).for_each(|_| testpmd.say("show port info 0"));
            let log = testpmd.log();
            let last = log.rsplit_once("Link status: ").is_some_and(|(_, last)| last.starts_with(link));
            last && log.contains(told)
        });
    };
    wait_until("it is up", || testpmd.log().contains("Done"));
    drop(nic);
    asked(&mut testpmd, "down", "the daemon is gone");
    let _nic = daemon(folder.path(), &[]);
    asked(&mut testpmd, "up", "the daemon is back");
    let log = testpmd.end();
    assert_eq!(counter(&log, "link_downs"), 1, "{log}");
}

/// How many packets each of testpmd's two ports has sent.
fn sent(testpmd: &mut Testpmd) -> [u64; 2] {
    let before = testpmd.log().len();
    testpmd.say("show port stats all");
    let mut counts = Vec::new();
    wait_until("testpmd answers", || {
        let log = testpmd.log();
        let words: Vec<&str> = log[before..].split_whitespace().collect();
        counts = words.windows(3).filter(|three| three[0] == "TX-packets:").map(|three| three[1].to_owned()).collect();
        counts.len() == 2
    });
    [0, 1].map(|port| counts[port].parse().expect("a number"))
}
