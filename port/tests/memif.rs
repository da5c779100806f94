//! memif between two ports of ours, and with stock DPDK at the other end, as both sides.

use std::os::fd::AsFd;
use std::path::Path;

use crate::support::network::detail;
use crate::support::testpmd::{PLAIN, Testpmd, exchange, frame};
use conic_check::lingering;
use conic_fabric::Time;
use conic_native::channel::Channel;
use conic_native::clock;
use conic_port::{MAX_FRAME, Memif, MemifOptions, Port, PortSpec, Receive, Role, Transmit};

fn milliseconds(count: u64) -> Time {
    Time::from_nanoseconds(1_000_000 * count)
}

/// Lets both look until they are connected; the client tries every 100 ms.
fn connect(server: &mut Memif, client: &mut Memif, from: u64) {
    let mut buffer = [0; MAX_FRAME];
    for step in 0..500 {
        for port in [&mut *client, &mut *server] {
            assert_eq!(port.receive(milliseconds(from + step), &mut buffer).unwrap(), Receive::None);
        }
        if server.is_connected() && client.is_connected() {
            return;
        }
    }
    panic!("{}; {}", server.description(), client.description());
}

fn pair(options: &MemifOptions) -> (Memif, Memif) {
    let mut server = Memif::open(&MemifOptions { role: Role::Server, ..options.clone() }).unwrap();
    let mut client = Memif::open(&MemifOptions { role: Role::Client, ..options.clone() }).unwrap();
    connect(&mut server, &mut client, 0);
    (server, client)
}

fn options(folder: &tempfile::TempDir) -> MemifOptions {
    MemifOptions::new(folder.path().join("socket").to_str().unwrap())
}

#[test]
fn frames_of_every_size_pass_both_ways_in_bursts_of_every_length() {
    let folder = tempfile::tempdir().unwrap();
    for (log2_slots, buffer_bytes, queues) in [(10, 2048, 1), (3, 2048, 1), (5, 128, 1), (8, 2048, 4), (14, 64, 1)] {
        let (mut server, mut client) = pair(&MemifOptions { log2_slots, buffer_bytes, queues, ..options(&folder) });
        let most = (buffer_bytes as usize) << log2_slots;
        let mut buffer = [0; MAX_FRAME];
        for round in 0..40u32 {
            for (from, to) in [(0, 1), (1, 0)] {
                let ports = [&mut server, &mut client];
                let burst = [1, 2, 7, 32, 33, 1024][round as usize % 6];
                let length = [60, 64, 65, 1514, 2048, 2049, 9599, 9600][round as usize % 8].min(most);
                let (mut sent, mut came) = (0, 0);
                while came < burst {
                    while sent < burst {
                        match ports[from].transmit(Time::ZERO, &frame(length, sent)).unwrap() {
                            Transmit::Accepted => sent += 1,
                            Transmit::Full => break,
                            Transmit::Refused => panic!("{:?}", ports[from].counters()),
                        }
                    }
                    ports[from].flush(Time::ZERO).unwrap();
                    while let Receive::Frame { length: got, .. } = ports[to].receive(Time::ZERO, &mut buffer).unwrap() {
                        assert_eq!(buffer[..got], frame(length, came)[..], "{round}: {came} of {burst}");
                        came += 1;
                    }
                }
                assert_eq!((sent, came), (burst, burst));
            }
        }
        for port in [&server, &client] {
            assert_eq!((port.counters().skipped(), port.counters().refused()), (0, 0));
            assert!(port.is_up());
        }
    }
}

#[test]
fn flows_are_spread_over_the_rings_and_stay_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(&MemifOptions { queues: 4, ..options(&folder) });
    assert!(server.description().contains("4 rings in and 4 out"), "{}", server.description());
    let flow = |source: u8, number: u8| {
        let mut frame = vec![0; 60];
        frame[12..34].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 0, 2]);
        frame[34..38].copy_from_slice(&[4, 0, 4, 1]);
        frame[50] = number;
        frame
    };
    for number in 0..8 {
        for source in 0..64 {
            assert_eq!(client.transmit(Time::ZERO, &flow(source, number)).unwrap(), Transmit::Accepted);
        }
    }
    client.flush(Time::ZERO).unwrap();
    let mut buffer = [0; MAX_FRAME];
    let mut next = [0; 64];
    while let Receive::Frame { .. } = server.receive(Time::ZERO, &mut buffer).unwrap() {
        let source = usize::from(buffer[29]);
        assert_eq!(buffer[50], next[source], "a flow is in order");
        next[source] += 1;
    }
    assert_eq!(next, [8; 64]);
}

#[test]
fn either_side_may_go_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let settings = options(&folder);
    let (mut server, mut client) = pair(&settings);
    let mut buffer = [0; MAX_FRAME];
    let mut now = 1000;
    for round in 0..6 {
        now += 1000;
        let lost = if round % 2 == 0 { &mut server } else { &mut client };
        let role = if round % 2 == 0 { Role::Server } else { Role::Client };
        // The old one goes first: a server's socket file is its own.
        *lost = Memif::open(&MemifOptions { socket: format!("{}x", settings.socket), ..settings.clone() }).unwrap();
        *lost = Memif::open(&MemifOptions { role, ..settings.clone() }).unwrap();
        let survivor = if round % 2 == 0 { &mut client } else { &mut server };
        for _ in 0..2000 {
            survivor.receive(milliseconds(now), &mut buffer).unwrap();
        }
        assert!(!survivor.is_up(), "{}", survivor.description());
        assert_eq!(survivor.transmit(milliseconds(now), &frame(60, 0)).unwrap(), Transmit::Refused);
        assert!(survivor.counters().refused_link_down > 0);
        connect(&mut server, &mut client, now + 200);
        client.transmit(Time::ZERO, &frame(60, 1)).unwrap();
        client.flush(Time::ZERO).unwrap();
        let got = server.receive(Time::ZERO, &mut buffer).unwrap();
        assert_eq!(got, Receive::Frame { length: 60, captured: None });
    }
}

/// Goes on with a port as another process would.
fn handed_over(mut port: Memif, options: &MemifOptions) -> Memif {
    assert!(port.can_bequeath());
    let legacy = port.bequeath().expect("memif can");
    drop(port);
    Memif::inherit(options, vec![legacy]).unwrap().remove(0)
}

#[test]
fn either_side_goes_on_in_another_process_and_the_other_notices_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = pair(&MemifOptions { log2_slots: 4, queues: 2, ..options(&folder) });
    let mut buffer = [0; MAX_FRAME];
    let now = milliseconds(1000);
    for round in 0..60u32 {
        // Of eight frames each way some have been read when either side goes.
        for number in 0..8 {
            assert_eq!(server.transmit(now, &frame(60 + number, round)).unwrap(), Transmit::Accepted);
            assert_eq!(client.transmit(now, &frame(60 + number, round)).unwrap(), Transmit::Accepted);
        }
        let read = round as usize % 8;
        let mut take = |port: &mut Memif, lengths: std::ops::Range<usize>| {
            for number in lengths {
                let Receive::Frame { length, .. } = port.receive(now, &mut buffer).unwrap() else { panic!("{number}") };
                assert_eq!(buffer[..length], frame(60 + number, round)[..], "round {round}");
            }
        };
        server.flush(now).unwrap();
        if round % 2 == 0 {
            take(&mut client, 0..read);
            client = handed_over(client, &MemifOptions { role: Role::Client, log2_slots: 4, ..options(&folder) });
            client.flush(now).unwrap();
            take(&mut server, 0..8);
            take(&mut client, read..8);
        } else {
            client.flush(now).unwrap();
            take(&mut server, 0..read);
            server = handed_over(server, &options(&folder));
            take(&mut server, read..8);
            take(&mut client, 0..8);
        }
        for port in [&mut server, &mut client] {
            assert_eq!(port.receive(now, &mut [0; MAX_FRAME]).unwrap(), Receive::None, "a frame came twice");
        }
    }
    assert_eq!((detail(&server, "sessions"), detail(&server, "sessions_ended")), (1, 0), "{}", server.description());
    assert!(server.description().contains("connected to conic, 2 rings in and 2 out"), "{}", server.description());
    // Whoever comes next is served as well, and the socket goes with the last.
    drop(client);
    let mut client = Memif::open(&MemifOptions { role: Role::Client, ..options(&folder) }).unwrap();
    while server.is_connected() {
        server.receive(clock::now(), &mut buffer).unwrap();
    }
    connect(&mut server, &mut client, 2_000_000_000);
    drop(server);
    assert!(!std::path::Path::new(&options(&folder).socket).exists());
}

#[test]
fn a_legacy_that_is_not_whole_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let legacy = || {
        let (mut server, client) = pair(&options(&folder));
        (server.bequeath().expect("memif can"), client)
    };
    let words = legacy().0.words.len();
    let refused = |change: &dyn Fn(&mut conic_port::Legacy)| {
        let (mut legacy, _client) = legacy();
        change(&mut legacy);
        let error = Memif::inherit(&options(&folder), vec![legacy]).expect_err("it is not whole").to_string();
        assert!(error.contains("not all that belongs to the port"), "{error}");
        // What was left there is no obstacle.
        let _ = std::fs::remove_file(options(&folder).socket);
    };
    for length in 0..words {
        refused(&|legacy| legacy.words.truncate(length));
    }
    refused(&|legacy| drop(legacy.descriptors.pop()));
    // A ring's offset and slots.
    refused(&|legacy| legacy.words[6] = 1 << 31);
    refused(&|legacy| legacy.words[7] = 15);
    // Memory that is not of this size may be the other side's doing, which costs it its session and nobody the port.
    let (mut legacy, mut client) = legacy();
    legacy.words[4] = 1 << 40;
    let mut server = Memif::inherit(&options(&folder), vec![legacy]).expect("it goes on without its session").remove(0);
    assert!(!server.is_connected());
    connect(&mut server, &mut client, 1_000_000_000);
}

#[test]
fn a_socket_that_another_listens_at_is_named_and_one_left_behind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let spec: PortSpec = format!("memif:{}", path.display()).parse().unwrap();
    let server = spec.open().unwrap();
    let error = spec.open().err().unwrap().to_string();
    assert!(error.contains("another process or port listens at the memif socket"), "{error}");
    drop(server);
    assert!(!path.exists(), "the socket's file goes with its port");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(spec.open().unwrap());
    let spec: PortSpec = format!("memif:{}/none/socket", folder.path().display()).parse().unwrap();
    let error = spec.open().err().unwrap().to_string();
    assert!(error.contains("make its folder"), "{error}");
}

#[test]
fn stock_dpdk_attaches_as_client_and_again_when_it_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder);
    let mut server = Memif::open(&options).unwrap();
    let device = format!("net_memif0,role=client,id=0,socket={},socket-abstract=no,rsize=9", options.socket);
    for _ in 0..2 {
        let Some(testpmd) = Testpmd::start(&device, &[]) else { return };
        exchange(&mut server, PLAIN, 20_000);
        assert!(server.description().contains("connected to DPDK"), "{}", server.description());
        drop(testpmd);
        let mut buffer = [0; MAX_FRAME];
        let begun = clock::now();
        while server.is_connected() && clock::now().since(begun).seconds() < 10.0 {
            server.receive(clock::now(), &mut buffer).unwrap();
        }
        assert!(!server.is_connected());
    }
    for name in ["fault_index", "fault_flags", "fault_region", "fault_bounds", "fault_chain", "peers_refused"] {
        assert_eq!(detail(&server, name), 0, "{name}");
    }
}

#[test]
fn stock_dpdk_attaches_with_several_queues_to_an_abstract_socket_with_a_secret() {
    let socket = format!("conic-test-{}", std::process::id());
    let secret = Some("open sesame".to_owned());
    let mut server = Memif::open(&MemifOptions { secret, ..MemifOptions::new(&format!("@{socket}")) }).unwrap();
    let device = format!("net_memif0,role=client,id=0,socket={socket},secret=open sesame");
    let Some(_testpmd) = Testpmd::start(&device, &["--rxq=2", "--txq=2"]) else { return };
    exchange(&mut server, PLAIN, 5_000);
    assert!(server.description().contains("2 rings in and 2 out"), "{}", server.description());
}

#[test]
fn stock_dpdk_serves_us_as_client() {
    let folder = tempfile::tempdir().unwrap();
    let options = MemifOptions { role: Role::Client, ..options(&folder) };
    let device = format!("net_memif0,role=server,id=0,socket={},socket-abstract=no", options.socket);
    let Some(_testpmd) = Testpmd::start(&device, &[]) else { return };
    let mut client = Memif::open(&options).unwrap();
    exchange(&mut client, PLAIN, 20_000);
    assert!(client.description().contains("connected to DPDK"), "{}", client.description());
}

#[test]
fn stock_dpdk_notices_nothing_when_its_server_or_its_client_goes_on_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder);
    for (role, other) in [(Role::Server, "client"), (Role::Client, "server")] {
        let device = format!("net_memif0,role={other},id=0,socket={},socket-abstract=no,rsize=9", options.socket);
        let options = MemifOptions { role, ..options.clone() };
        let open = || Memif::open(&options).unwrap();
        // Whoever listens is there first.
        let (early, testpmd) = match role {
            Role::Server => (Some(open()), Testpmd::start(&device, &[])),
            Role::Client => (None, Testpmd::start(&device, &[])),
        };
        let Some(_testpmd) = testpmd else { return };
        let mut port = early.unwrap_or_else(open);
        for _ in 0..5 {
            exchange(&mut port, PLAIN, 2_000);
            port = handed_over(port, &options);
            assert!(port.description().contains("connected to DPDK"), "{}", port.description());
        }
        exchange(&mut port, PLAIN, 2_000);
        assert_eq!((detail(&port, "sessions"), detail(&port, "sessions_ended")), (1, 0), "{}", port.description());
    }
}

#[test]
fn a_client_waits_for_a_server_that_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let settings = options(&folder);
    let mut client = Memif::open(&MemifOptions { role: Role::Client, ..settings.clone() }).unwrap();
    let mut buffer = [0; MAX_FRAME];
    for step in 0..10 {
        assert_eq!(client.receive(milliseconds(100 * step), &mut buffer).unwrap(), Receive::None);
        assert_eq!(client.next_due(), Some(milliseconds(100 * step + 100)));
    }
    assert!(client.description().contains("waiting; last: No such file"), "{}", client.description());
    let mut server = Memif::open(&settings).unwrap();
    connect(&mut server, &mut client, 2000);
}

/// A message of the control channel, of this kind.
fn message(kind: u16, fields: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(fields);
    bytes.resize(128, 0);
    bytes
}

/// Calls a port, and gives what it said; it may not take long.
fn promptly<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begun = clock::now();
    let result = call();
    let took = clock::now().since(begun).seconds();
    assert!(took < 1.0, "{what}: it took {took} s");
    result
}

/// Says these messages, each with so many descriptors of which the last takes long to close, to a server, which looks until it has refused
/// them.
fn refused_promptly(what: &str, server: &mut Memif, socket: &str, said: &[(Vec<u8>, usize)]) {
    let channel = Channel::connect(Path::new(socket)).unwrap();
    let (stream, other_side) = lingering(5);
    let other = std::io::pipe().unwrap().0;
    for (bytes, count) in said {
        let mut descriptors = vec![other.as_fd(); *count];
        descriptors.last_mut().into_iter().for_each(|last| *last = stream.as_fd());
        channel.send(bytes, &descriptors).unwrap();
    }
    drop(stream);
    let before = detail(server, "peers_refused");
    let mut buffer = [0; MAX_FRAME];
    for _ in 0..10_000 {
        promptly(what, || server.receive(Time::ZERO, &mut buffer).unwrap());
        if detail(server, "peers_refused") > before {
            // Once more, behind the end.
            promptly(what, || server.receive(Time::ZERO, &mut buffer).unwrap());
            drop(other_side);
            return;
        }
    }
    panic!("{what}: {}", server.description());
}

#[test]
fn nobody_waits_where_a_peer_passes_what_takes_long_to_close() {
    let folder = tempfile::tempdir().unwrap();
    let settings = options(&folder);
    let mut server = Memif::open(&settings).unwrap();
    let init = || (message(3, &0x0200u16.to_ne_bytes()), 0);
    let region = || message(4, &[&0u16.to_ne_bytes()[..], &4096u64.to_ne_bytes()].concat());
    let nothing = || message(0, &[]);
    for (what, said) in [
        ("a malformed message", vec![(nothing(), 1)]),
        ("a region before the introduction", vec![(region(), 1)]),
        ("a region that is none", vec![init(), (region(), 1)]),
        ("more descriptors than belong there", vec![init(), (region(), 16)]),
        ("what is never read", vec![(nothing(), 0), (nothing(), 1)]),
        ("a message that is too long", vec![([nothing(), nothing()].concat(), 1)]),
    ] {
        refused_promptly(what, &mut server, &settings.socket, &said);
    }
    // Others are served meanwhile.
    let mut client = Memif::open(&MemifOptions { role: Role::Client, ..settings.clone() }).unwrap();
    connect(&mut server, &mut client, 1000);
    refused_promptly("a second peer", &mut server, &settings.socket, &[(nothing(), 1)]);
    assert!(server.is_connected() && client.is_connected());
    drop(client);
    let channel = Channel::connect(Path::new(&settings.socket)).unwrap();
    let (stream, _other_side) = lingering(5);
    channel.send(&nothing(), &[stream.as_fd()]).unwrap();
    drop((stream, channel));
    promptly("a peer that was never let in", || drop(server));
}
