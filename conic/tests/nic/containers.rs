//! The NIC, or a client, where it has namespaces of its own.

use super::*;

#[test]
fn clients_outside_the_process_namespace_of_the_nic_are_served_and_their_end_is_seen() {
    let apart = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]);
        command
    };
    if !apart().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        skipped("no process namespace can be made (unshare --pid)");
        return;
    }
    let mut program = apart();
    program.arg(env!("CARGO_BIN_EXE_conic"));
    let nic = Nic::start_as(program, tempfile::tempdir().expect("a folder"), &["--mode", "loopback"]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let frame = frame(&mut queues[0], [2; 6], [2; 6], 64, 7);
    queues[0].transmit(&mut vec![frame]);
    let mut incoming = Vec::new();
    wait_until("the frame comes back", || queues[0].receive(&mut incoming, 1) == 1);
    let clients =
        || metrics_of(&nic).lines().filter(|line| line.starts_with("conic_clients")).map(str::to_owned).collect();
    let there: Vec<String> = clients();
    assert!(there.iter().any(|line| line.ends_with(" 1")), "{there:?}");
    drop((incoming, queues, client));
    wait_until("nobody is there", || {
        let left: Vec<String> = clients();
        left.iter().all(|line| line.ends_with(" 0"))
    });
}

/// Takes from a program what a container takes: it has users, mounts and processes of its own, no capability and no way to one, no device,
/// and a root that it cannot write, but for a folder.
const CONFINE: &str = r#"mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && mount -t tmpfs none /dev &&
    exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@""#;

/// What runs the program, with its arguments, that is put behind it so; or says why the test is skipped.
fn confined(folder: &Path) -> Option<Command> {
    let confined = || {
        let mut command = Command::new("unshare");
        command.args(["-Urpm", "--fork", "--kill-child", "sh", "-c", CONFINE]).arg(folder);
        command
    };
    if confined().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Some(confined());
    }
    skipped("no namespaces can be made (unshare -Urpm), or there is no setpriv");
    None
}

/// Where the client finds the socket that plays the inside of a container.
const INSIDE: &str = "CONIC_TEST_SOCKET_SEEN_FROM_INSIDE";

#[test]
fn a_client_in_a_container_needs_the_socket_and_nothing_else() {
    if let Some(socket) = std::env::var_os(INSIDE) {
        assert!(File::create("/conic-test").is_err() && !Path::new("/dev/null").exists(), "it is not confined");
        let (client, mut queues) = attach(socket.as_ref(), &small(1));
        for number in 0..1000 {
            let next = frame(&mut queues[0], client.mac(), client.mac(), 60 + number as usize, number);
            let sent = next.to_vec();
            send(&mut queues[0], next);
            assert_eq!(receive(&mut queues[0]).to_vec(), sent);
        }
        return;
    }
    let nic = Nic::start(&["--mode", "loopback"]);
    let Some(mut program) = confined(nic.folder.path()) else { return };
    program.arg(std::env::current_exe().expect("this program"));
    program.args(["--exact", "containers::a_client_in_a_container_needs_the_socket_and_nothing_else"]);
    let output = program.env(INSIDE, nic.socket()).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_nic_in_a_container_serves_clients_and_a_memif_peer_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut program) = confined(folder.path()) else { return };
    program.arg(env!("CARGO_BIN_EXE_conic"));
    let socket = folder.path().join("memif.sock");
    let port = format!("memif:{},role=server", socket.display());
    let nic = Nic::start_as(program, folder, &["--port", &port]);
    let (client, mut queues) = attach(&nic.socket(), &small(1));
    let (mut peer, mut got) = (memif_peer(&socket), vec![0; MAX_FRAME]);
    let far = [2, 0, 0, 0, 0, 0x77];
    let next = frame(&mut queues[0], client.mac(), far, 300, 7);
    let mut sent = next.to_vec();
    send(&mut queues[0], next);
    wait_until("the frame arrives", || {
        let come = peer.receive(clock::now(), &mut got).expect("memif does not fail");
        matches!(come, Receive::Frame { length: 300, .. }) && got[..300] == sent[..]
    });
    sent[..6].copy_from_slice(&client.mac());
    sent[6..12].copy_from_slice(&far);
    assert_eq!(peer.transmit(clock::now(), &sent).expect("memif does not fail"), Transmit::Accepted);
    peer.flush(clock::now()).expect("memif does not fail");
    assert_eq!(receive(&mut queues[0]).to_vec(), sent);
}
