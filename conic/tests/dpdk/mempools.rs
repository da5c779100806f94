//! Mempools as applications make them: several, of which not all have their mbufs in shared memory, and ones whose buffers lie outside.

use std::process::Command;

use conic_client::{Client, Options, Queue};
use conic_fabric::Time;

use crate::modes::{CLIENT, every_mode};
use crate::testpmd::{
    Testpmd, alone, counter, daemon, driver, exchange, folder, frame, options, program, swapped, wait_for_echo,
    wait_until,
};

/// The first mempool that comes has its mbufs in every device's memory.
#[test]
fn a_queue_receives_into_its_own_mempools_wherever_anothers_mbufs_lie() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let nic = daemon(folder.path(), &["--mode", "loopback"]);
    let socket = folder.path().join("nic.sock");
    let mut command = Command::new(program("pools"));
    command.args(["--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "256", "-l", "0"]);
    command.arg("--mbuf-pool-ops-name=conic").arg("-d").arg(&driver);
    command.arg(format!("--file-prefix=conic{}", folder.path().file_name().expect("a name").to_string_lossy()));
    command.arg(format!("--vdev=net_conic0,path={},queues=2,buffers=2048", socket.display()));
    command.arg(format!("--vdev=net_conic1,path={},buffers=2048", socket.display()));
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("all as it should be\n"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    drop(nic);
}

/// Mbufs whose buffers lie outside for good (testpmd's `--mp-alloc=xbuf`) are in ordinary memory, and keep those buffers.
#[test]
fn mbufs_with_pinned_buffers_pass_on_what_they_should_in_every_mode() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let log = every_mode(&driver, eal, &["--mp-alloc=xbuf"]);
        assert_eq!((counter(&log, "rx_direct"), counter(&log, "rx_attached"), counter(&log, "tx_direct")), (0, 0, 0));
    }
}

/// Each packet comes in an mbuf that can be had again: more packets come than there are mbufs.
#[test]
fn mbufs_with_pinned_buffers_come_back_to_their_mempool() {
    const ROUNDS: usize = 150;
    const AT_ONCE: usize = 20;
    let _alone = alone();
    let Some(driver) = driver() else { return };
    for eal in [&["--mbuf-pool-ops-name=conic"][..], &[]] {
        let folder = folder();
        let _nic = daemon(folder.path(), &[]);
        let (client, mut queues) = Client::attach(&folder.path().join("nic.sock"), &options()).expect("a NIC");
        let arguments = ["--mp-alloc=xbuf", "--forward-mode=macswap"];
        let mut testpmd = Testpmd::start(&driver, folder.path(), eal, "", &arguments);
        testpmd.say("start");
        wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
        for round in 0..ROUNDS {
            // Of all lengths from which packets are pointed to, where that can be.
            let frames: Vec<Vec<u8>> =
                (0..AT_ONCE).map(|number| frame(client.mac(), 256 + 60 * number, (round + number) as u64)).collect();
            let all = exchange(&mut queues[0], &frames, swapped, Time::from_nanoseconds(20_000_000_000));
            assert!(all, "round {round}: frames were lost: {}", testpmd.log());
        }
        let log = testpmd.end();
        assert!(counter(&log, "rx_copied") >= (ROUNDS * AT_ONCE) as u64, "{log}");
        assert_eq!((counter(&log, "ring_faults"), counter(&log, "buffers_refused")), (0, 0), "{log}");
    }
}

/// Queues start with their device: who wants one to start later is told that it does not.
#[test]
fn a_queue_that_is_to_start_later_is_refused() {
    let _alone = alone();
    let Some(driver) = driver() else { return };
    let folder = folder();
    let _nic = daemon(folder.path(), &[]);
    let (client, mut queues): (Client, Vec<Queue>) =
        Client::attach(&folder.path().join("nic.sock"), &Options { mac: Some(CLIENT), ..options() }).expect("a NIC");
    let mut testpmd = Testpmd::start(&driver, folder.path(), &[], "", &["--forward-mode=macswap"]);
    testpmd.say("port stop 0");
    for (kind, reason) in [("rxq", "(rx_deferred_start)"), ("txq", "(tx_deferred_start)")] {
        testpmd.say(&format!("port 0 {kind} 0 deferred_start on"));
        testpmd.say("port start 0");
        wait_until("it is refused", || testpmd.log().contains(reason));
        testpmd.say(&format!("port 0 {kind} 0 deferred_start off"));
    }
    testpmd.say("port start 0");
    testpmd.say("start");
    wait_for_echo(&mut queues[0], &frame(client.mac(), 60, 0), swapped, &testpmd);
    testpmd.end();
}

/// Also those that the NIC, or the library below, counts on.
#[test]
fn all_counters_can_be_set_back() {
    let _alone = alone();
    let Some(_driver) = driver() else { return };
    let output = Command::new(program("reset")).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all as it should be\n");
}
