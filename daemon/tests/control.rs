//! The daemon against what comes over its socket: any bytes, any descriptors, any order; and nothing is left behind.

mod support;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use conic_check::skipped;
use conic_client::{Begun, Buffer, Client, Link, Metadata, Offloads, Operator, Options, Queue};
use conic_control::{Attach, Extensions, Hello, Message, Name, OLDEST, Reason, VERSION};
use conic_daemon::{Daemon, DaemonError, Ended, Log, Stop};
use conic_interface::ccnic::{Geometry, Headroom};
use conic_native::channel::{Channel, MOST_DESCRIPTORS};
use conic_native::clock;
use conic_nicd::config::{AllowedUsers, Config, Limits, NetworkConfig, WaitMode};
use support::waiting::wait_until;
use support::{held, settled, wait_until_held};
use tempfile::TempDir;

/// The tests count this process's descriptors and mappings, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

struct Running {
    stop: Stop,
    thread: Option<JoinHandle<Result<Ended, DaemonError>>>,
    folder: TempDir,
}

impl Running {
    fn start(change: impl FnOnce(&mut Config)) -> Running {
        Running::begin(change, Daemon::start)
    }

    fn begin(change: impl FnOnce(&mut Config), begin: fn(Config, Stop, Log) -> Result<Daemon, DaemonError>) -> Running {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config { socket: folder.path().join("nic.sock"), ..Config::default() };
        change(&mut config);
        let config = config.checked().expect("a sound configuration");
        let stop = Stop::new().expect("a descriptor");
        let daemon = begin(config, stop.clone(), Box::new(|_| {})).expect("it starts");
        let thread = Some(std::thread::spawn(move || daemon.run()));
        Running { stop, thread, folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || matches!(ended, Ok(Ok(_))), "the daemon ended in {ended:?}");
        }
    }
}

fn geometry() -> Geometry {
    Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 }
}

fn options() -> Options {
    Options { geometry: geometry(), ..Options::default() }
}

/// What the daemon says next; none if it closes.
fn hear(channel: &Channel) -> Option<Message> {
    let mut heard = None;
    wait_until("the daemon answers or closes", || match channel.receive() {
        Ok(Some(received)) => {
            heard = Message::decode(&received.bytes, received.descriptors.len()).ok();
            true
        }
        Ok(None) => false,
        Err(_) => true,
    });
    heard
}

fn reason(channel: &Channel) -> Option<Reason> {
    match hear(channel) {
        Some(Message::Refused(refused)) => Some(refused.reason),
        _ => None,
    }
}

fn hello() -> Vec<u8> {
    let extensions = Extensions::KNOWN;
    Message::Hello(Hello { versions: (OLDEST, VERSION), extensions, name: Name::default() }).encode()
}

fn wish() -> Vec<u8> {
    Message::Attach(Attach { geometry: geometry(), headroom: Headroom::NONE, network: Name::default(), mac: None })
        .encode()
}

/// Descriptors of many kinds.
fn kinds() -> Vec<OwnedFd> {
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    vec![
        File::open("/dev/zero").expect("a device").into(),
        File::open("/").expect("a folder").into(),
        File::open("/proc/self/maps").expect("a file").into(),
        one.into(),
        other.into(),
    ]
}

fn greet(socket: &Path) -> Channel {
    let channel = Channel::connect(socket).expect("it listens");
    channel.send(&hello(), &[]).expect("there is room");
    assert!(matches!(hear(&channel), Some(Message::Welcome(_))));
    channel
}

/// A wish for another address.
fn address(last: u8) -> Vec<u8> {
    Message::Address { mac: [2, 0, 0, 0, 0, last], granted: false }.encode()
}

#[test]
fn whatever_comes_is_refused_or_served_and_nothing_is_held() {
    let _turn = TURN.lock();
    let running = Running::start(|_| ());
    let (client, queues) = Client::attach(&running.socket(), &options()).expect("a client of the good kind");
    let descriptors = kinds();
    wait_until("a region is kept for the next one", || held().1 == 3);
    let baseline = settled();
    let seed = 77;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..3000 {
        let channel = Channel::connect(&running.socket()).expect("it listens");
        let steps = random.u8(..4);
        for _ in 0..=steps {
            let mut bytes = match random.u8(..7) {
                0 => hello(),
                1 => wish(),
                2 => Message::Detach.encode(),
                3 => Message::Query("{\"ask\":\"list\"}".to_owned()).encode(),
                4 if random.bool() => Message::Promiscuous { on: random.bool(), granted: random.bool() }.encode(),
                4 => Message::Longest(random.u32(..)).encode(),
                5 => address(random.u8(..)),
                _ => (0..random.usize(1..=200)).map(|_| random.u8(..)).collect(),
            };
            match random.u8(..4) {
                0 => bytes.truncate(random.usize(1..=bytes.len())),
                1 => {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
                _ => {}
            }
            let count = if random.u8(..3) == 0 { random.usize(..=MOST_DESCRIPTORS) } else { 0 };
            let some: Vec<BorrowedFd<'_>> =
                (0..count).map(|index| descriptors[index % descriptors.len()].as_fd()).collect();
            // The header may say so, too.
            if random.bool() && bytes.len() > 13 {
                bytes[12] = count as u8;
            }
            // Since Linux 6.16 descriptors do not come through.
            if channel.send(&bytes, &some).or_else(|_| channel.send(&bytes, &[])).is_err() {
                break;
            }
        }
        if random.bool() {
            let _ = hear_within(&channel);
        }
        drop(channel);
        if round % 500 == 0 {
            assert_eq!(client.maintain(), Link::Up);
        }
    }
    wait_until_held(baseline);
    assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 0));
    drop(queues);
}

/// What comes at once, if anything does.
fn hear_within(channel: &Channel) -> Option<Vec<u8>> {
    channel.wait(std::time::Duration::from_millis(1)).ok()?;
    channel.receive().ok().flatten().map(|received| received.bytes)
}

#[test]
fn descriptors_that_a_client_passes_are_refused_and_closed() {
    let _turn = TURN.lock();
    let running = Running::start(|_| ());
    let descriptors = kinds();
    let some: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let baseline = settled();
    for _ in 0..50 {
        let channel = Channel::connect(&running.socket()).expect("it listens");
        is_refused(&channel, &hello(), &some);
        let channel = greet(&running.socket());
        let mut bytes = wish();
        bytes[12] = some.len() as u8;
        is_refused(&channel, &bytes, &some);
    }
    wait_until_held(baseline);
}

/// Says something with descriptors, which the system refuses (Linux 6.16) or the daemon.
fn is_refused(channel: &Channel, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    match channel.send(bytes, descriptors) {
        Ok(()) => assert_eq!(reason(channel), Some(Reason::Malformed)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

#[test]
fn each_word_belongs_to_its_step() {
    let _turn = TURN.lock();
    let running = Running::start(|_| ());
    let [limit, question] = [Message::Longest(9000), Message::Query("{}".to_owned())].map(|message| message.encode());
    for early in [wish(), Message::Detach.encode(), limit, address(2), question] {
        let channel = Channel::connect(&running.socket()).expect("it listens");
        channel.send(&early, &[]).expect("there is room");
        assert_eq!(reason(&channel), Some(Reason::Malformed));
    }
    let channel = greet(&running.socket());
    channel.send(&hello(), &[]).expect("there is room");
    assert_eq!(reason(&channel), Some(Reason::Malformed));
    let old = Hello { versions: (0, 0), extensions: Extensions(0), name: Name::default() };
    let channel = Channel::connect(&running.socket()).expect("it listens");
    channel.send(&Message::Hello(old).encode(), &[]).expect("there is room");
    assert_eq!(reason(&channel), Some(Reason::Version));
}

/// A packet of TCP over IPv4 from station 9 to station 1, which the NIC is to cut into segments of 1000 bytes of payload.
fn large_packet(payload: usize) -> (Vec<u8>, Metadata) {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0];
    packet.extend((40 + payload as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 9, 10, 0, 0, 1, 4, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend([0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| (at * 7) as u8));
    // A checksum that is begun is the sum of the pseudo-header.
    let sum = 0x0a00 + 9 + 0x0a00 + 1 + 6 + 20 + payload as u16;
    packet[50..52].copy_from_slice(&sum.to_be_bytes());
    let work = Metadata::NONE.with_begun(Begun { start: 34, offset: 16 }).with_large(1000);
    (packet, work.with(Metadata::NETWORK))
}

/// A station that sends and takes such packets.
fn large_station(socket: &Path, number: u8) -> (Client, Vec<Queue>) {
    let offloads = Offloads { requests: true, unfinished: true, join: true, ..Offloads::default() };
    let geometry = Geometry { buffers: [64, 64, 16], ..geometry() };
    let station = Options { geometry, mac: Some([2, 0, 0, 0, 0, number]), offloads, ..options() };
    Client::attach(socket, &station).expect("a client")
}

/// Also when another daemon has taken over, and when that has died and is back.
#[test]
fn no_packet_is_longer_than_a_client_says_that_it_takes() {
    let _turn = TURN.lock();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let begin = |begin| Running::begin(|config| config.socket = socket.clone(), begin);
    let mut running = begin(Daemon::start);
    let [(receiver, mut receiving), (sender, mut sending)] = [1, 9].map(|number| large_station(&socket, number));
    let (packet, work) = large_packet(6000);
    let mut lengths = || {
        let mut buffer = sending[0].allocate(packet.len()).expect("a buffer");
        buffer.fill(&packet);
        buffer.set_metadata(work);
        assert_eq!(sending[0].transmit(&mut vec![buffer]), 1);
        let (mut incoming, mut lengths) = (Vec::new(), Vec::new());
        wait_until("all of it comes", || {
            receiving[0].receive(&mut incoming, 32);
            lengths.extend(incoming.drain(..).map(|buffer| buffer.len()));
            lengths.iter().map(|length| length - 54).sum::<usize>() >= 6000
        });
        lengths
    };
    assert_eq!(lengths(), [6054]);
    receiver.limit_packets(3054).expect("the daemon can");
    assert_eq!(lengths(), [3054, 3054]);
    drop(std::mem::replace(&mut running, begin(Daemon::adopt)));
    assert_eq!(lengths(), [3054, 3054]);
    assert_eq!([&receiver, &sender].map(Client::reconnects), [0, 0], "nobody noticed");
    drop(running);
    running = begin(Daemon::start);
    wait_until("both are back", || [&receiver, &sender].iter().all(|client| client.maintain() == Link::Up));
    assert_eq!(lengths(), [3054, 3054]);
    drop(running);
}

#[test]
fn a_packet_longer_than_any_buffer_crosses_in_segments() {
    let _turn = TURN.lock();
    let running = Running::start(|_| ());
    let [(_receiver, mut receiving), (_sender, mut sending)] =
        [1, 9].map(|number| large_station(&running.socket(), number));
    let (packet, work) = large_packet(40_000);
    let pieces = packet.chunks(16_384);
    let last = pieces.len() - 1;
    let segment = |(index, piece): (usize, &[u8])| {
        let mut buffer = sending[0].allocate(piece.len()).expect("a buffer");
        buffer.fill(piece);
        buffer.set_has_next(index < last);
        buffer.set_metadata(if index == 0 { work } else { Metadata::NONE });
        buffer
    };
    let mut outgoing: Vec<_> = pieces.enumerate().map(segment).collect();
    assert_eq!(sending[0].transmit(&mut outgoing), 3);
    let mut incoming = Vec::new();
    wait_until("all of it comes", || {
        receiving[0].receive(&mut incoming, 32);
        incoming.last().is_some_and(|last| !last.has_next())
    });
    let bytes: Vec<u8> = incoming.iter().flat_map(Buffer::to_vec).collect();
    assert!(incoming.len() > 1 && bytes[54..] == packet[54..], "{} segments, {} bytes", incoming.len(), bytes.len());
    assert!(incoming.iter().rev().skip(1).all(Buffer::has_next), "they are one packet");
    assert_eq!(incoming[0].metadata().large(), Some(1000));
}

#[test]
fn who_takes_too_long_is_told_so() {
    let _turn = TURN.lock();
    let running = Running::start(|config| config.step_timeout_ms = 30);
    let silent = Channel::connect(&running.socket()).expect("it listens");
    assert_eq!(reason(&silent), Some(Reason::Timeout));
    let slow = greet(&running.socket());
    assert_eq!(reason(&slow), Some(Reason::Timeout));
    let (client, _queues) = Client::attach(&running.socket(), &options()).expect("who is quick enough");
    let begun = clock::now();
    wait_until("several steps would be over", || clock::now().since(begun).seconds() > 0.1);
    assert_eq!(client.maintain(), Link::Up, "who is attached may say nothing");
}

#[test]
fn a_step_may_be_given_any_time() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = Running::start(|config| config.step_timeout_ms = u64::MAX);
    let silent = Channel::connect(&running.socket()).expect("it listens");
    Client::attach(&running.socket(), &options()).expect("the daemon sleeps until a step is late, and wakes before");
    silent.send(&hello(), &[]).expect("there is room");
    assert!(matches!(hear(&silent), Some(Message::Welcome(_))));
}

#[test]
fn each_step_has_its_own_time() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = Running::start(|config| config.step_timeout_ms = 2000);
    let channel = Channel::connect(&running.socket()).expect("it listens");
    // Longer than a step may take, both together.
    for said in [hello(), wish()] {
        let begun = clock::now();
        wait_until("much of the step is over", || clock::now().since(begun).seconds() > 1.2);
        channel.send(&said, &[]).expect("there is room");
        assert!(matches!(hear(&channel), Some(Message::Welcome(_) | Message::Attached(_))));
    }
}

#[test]
fn as_many_may_be_attaching_as_there_are_places_and_the_next_is_told_so() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = Running::start(|config| config.step_timeout_ms = 60_000);
    let client = Client::attach(&running.socket(), &options()).expect("who is attached takes no place");
    let waiting: Vec<Channel> = (0..64).map(|_| greet(&running.socket())).collect();
    let next = Channel::connect(&running.socket()).expect("it listens");
    assert_eq!(reason(&next), Some(Reason::Resources));
    drop((waiting, client));
    wait_until("there are places again", || Client::attach(&running.socket(), &options()).is_ok());
}

#[test]
fn the_socket_is_open_to_whom_it_is_said_and_goes_with_the_daemon() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (text, mode) in [("0600", 0o600), ("0666", 0o666)] {
        let mut running = Running::start(|config| config.socket_mode = text.to_owned());
        let found = std::fs::metadata(running.socket()).expect("a socket").permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&found) & 0o777, mode);
        running.stop.raise();
        let ended = running.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(Ok(_)))) && !running.socket().exists());
    }
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link, left) = (folder.path().join("nic.toml"), folder.path().join("link"), folder.path().join("left"));
    std::fs::write(&file, "kept").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    drop(std::os::unix::net::UnixListener::bind(&left).expect("a socket"));
    let start = |socket: &Path| {
        let config = Config { socket: socket.to_owned(), ..Config::default() }.checked().expect("sound");
        Daemon::start(config, Stop::new().expect("a descriptor"), Box::new(|_| {})).err()
    };
    for socket in [&file, &link, &folder.path().to_owned()] {
        let why = start(socket).expect("it is no place for a socket").to_string();
        assert!(why.contains("no socket"), "{why}");
    }
    assert_eq!(std::fs::read_to_string(&link).expect("it is there"), "kept");
    assert!(start(&left).is_none(), "nobody listens there any more");
}

#[test]
fn a_daemon_that_cannot_start_leaves_no_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let metrics = Some(busy.local_addr().expect("its address"));
    let config = Config { socket: folder.path().join("nic.sock"), metrics, ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let started = Daemon::start(config, Stop::new().expect("a descriptor"), Box::new(|_| {}));
    assert!(started.err().expect("its metrics' port is another's").to_string().contains("--metrics"));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

#[test]
fn quotas_hold_and_are_given_back() {
    let _turn = TURN.lock();
    let limits = Limits { clients_per_user: 3, queues_per_user: 4, ..Limits::default() };
    let running = Running::start(|config| config.limits = limits);
    let attach = |queues| {
        let geometry = Geometry { queues, ..geometry() };
        Client::attach(&running.socket(), &Options { geometry, ..options() }).map_err(|error| error.to_string())
    };
    let first = attach(3).expect("within the quota");
    assert!(attach(2).expect_err("too many queues").contains("queues of the user"));
    let second = attach(1).expect("within the quota");
    drop(first);
    wait_until("the quota is given back", || attach(3).is_ok());
    drop(second);
}

#[test]
fn what_a_client_may_have_ends_at_its_bound_and_not_before() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let limits = Limits { queues_per_client: 20, descriptors: 128, mib_per_client: 64, ..Limits::default() };
    let running = Running::start(|config| {
        let network = |name: &str| NetworkConfig { name: name.to_owned(), ..NetworkConfig::default() };
        config.networks = vec![network("one"), network("two")];
        config.limits = limits;
    });
    let attach = |wish: Attach| {
        let channel = greet(&running.socket());
        channel.send(&Message::Attach(wish).encode(), &[]).expect("there is room");
        match hear(&channel) {
            Some(Message::Attached(_)) => Ok(channel),
            Some(Message::Refused(refused)) => Err(refused.reason),
            other => panic!("{other:?}"),
        }
    };
    let wish = |geometry| Attach { geometry, headroom: Headroom::NONE, network: Name::default(), mac: None };
    assert!(attach(wish(Geometry { descriptors: 128, ..geometry() })).is_ok());
    assert!(attach(wish(Geometry { queues: 20, ..geometry() })).is_ok());
    for (queues, descriptors, object_bytes) in
        [(21, 64, 0), (u32::MAX, 64, 0), (1, 256, 0), (1, 1 << 63, 0), (1, 64, (64 << 20) + 1), (1, 64, u64::MAX)]
    {
        let wish = wish(Geometry { queues, descriptors, object_bytes, ..geometry() });
        assert_eq!(attach(wish.clone()).err(), Some(Reason::Quota), "{wish:?}");
    }
    assert_eq!(attach(wish(Geometry { descriptors: 63, ..geometry() })).err(), Some(Reason::Geometry));
    let of = |network: &str, mac| {
        let network = Name::new(network).expect("a name");
        attach(Attach { network, mac: Some(mac), ..wish(geometry()) })
    };
    assert_eq!(of("three", [2; 6]).err(), Some(Reason::Network));
    for nobodys in [[0; 6], [1, 0, 0, 0, 0, 9], [0xff; 6]] {
        assert_eq!(of("one", nobodys).err(), Some(Reason::Mac), "{nobodys:?}");
    }
    let one = of("one", [2; 6]);
    assert_eq!(of("one", [2; 6]).err(), Some(Reason::Mac), "it is another's");
    assert!(one.is_ok() && of("two", [2; 6]).is_ok(), "but not on this network");
    // All bells come, of more queues than have one in the first message.
    let many = Options { geometry: Geometry { queues: 20, ..geometry() }, ..options() };
    assert_eq!(Client::attach(&running.socket(), &many).expect("within the limits").1.len(), 20);
}

#[test]
fn attaching_and_detaching_leaves_nothing() {
    let _turn = TURN.lock();
    let running = Running::start(|config| {
        config.networks = vec![NetworkConfig { ports: Vec::new(), ..NetworkConfig::default() }];
    });
    drop(Client::attach(&running.socket(), &options()).expect("a first client"));
    wait_until("it is gone, and a region is kept for the next one", || held().1 == 1);
    let baseline = settled();
    for _ in 0..400 {
        drop(Client::attach(&running.socket(), &options()).expect("a client"));
    }
    wait_until_held(baseline);
}

/// Free huge pages while it lives; needs root.
struct HugePages(u64);

impl HugePages {
    const COUNT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    fn some() -> Option<HugePages> {
        let before: u64 = std::fs::read_to_string(HugePages::COUNT).ok()?.trim().parse().ok()?;
        std::fs::write(HugePages::COUNT, (before + 8).to_string()).ok()?;
        let pages = HugePages(before);
        let free = std::fs::read_to_string(HugePages::COUNT.replace("nr_", "free_")).ok()?;
        (free.trim().parse::<u64>().ok()? >= 4).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Others' pages are none of ours.
        let _ = std::fs::write(HugePages::COUNT, self.0.to_string());
    }
}

#[test]
fn a_clients_region_has_no_pages_that_a_client_could_take_from_the_daemon() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(_pages) = HugePages::some() else {
        skipped("no huge pages can be had here, which needs root");
        return;
    };
    let running = Running::start(|_| ());
    let attached = Client::attach(&running.socket(), &options()).expect("it is served");
    // Both sides of the region are mapped in this process.
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("they can be listed");
    assert!(maps.contains("memfd:conic"), "the region is not listed");
    let huge = maps.lines().filter(|line| line.starts_with("KernelPageSize:") && line.contains(" 2048 kB")).count();
    assert_eq!(huge, 0, "a hole in these pages ends the daemon by SIGBUS");
    drop(attached);
}

/// Processor time of this process so far, in seconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[test]
fn want_of_descriptors_keeps_those_who_wait_waiting_and_no_core_busy() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = Running::start(|config| {
        config.networks = vec![NetworkConfig { wait: WaitMode::Interrupt, ..NetworkConfig::default() }];
    });
    // Daemon and client share this process's descriptors: one is left, and the client's socket takes it.
    let plenty = File::open("/dev/null").expect("a device");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let few = rustix::process::Rlimit { current: Some(256), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).expect("a lower limit");
    let mut all: Vec<File> = std::iter::from_fn(|| plenty.try_clone().ok()).collect();
    drop(all.pop());
    let client = Channel::connect(&running.socket()).expect("it listens");
    let before = processor_time();
    client.wait(Duration::from_millis(500)).expect("a socket");
    let used = processor_time() - before;
    drop(all);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("the limit that there was");
    assert!(used < 0.2, "busy for {used} of 0.5 seconds");
    client.send(&hello(), &[]).expect("there is room");
    assert!(matches!(hear(&client), Some(Message::Welcome(_))), "whoever waited is let in");
}

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// Does something as that user, which only root may.
fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        // Of this thread alone: the system call knows nothing of processes.
        let nobody = rustix::process::Uid::from_raw(NOBODY);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        work()
    });
    thread.join().expect("it connects")
}

#[test]
fn connections_that_say_nothing_take_the_place_of_no_other_user() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !rustix::process::geteuid().is_root() {
        skipped("connecting as another user, which needs root");
        return;
    }
    let running = Running::start(|config| config.socket_mode = "0666".to_owned());
    let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(running.folder.path(), anyone).expect("a folder of ours");
    let socket = running.socket();
    let silent = as_nobody(move || (0..100).map(|_| Channel::connect(&socket)).collect::<Vec<_>>());
    assert!(silent.iter().filter(|one| one.is_ok()).count() >= 64, "so many wait");
    let own = (Channel::connect(&running.socket())).expect("it listens");
    own.send(&hello(), &[]).expect("there is room");
    assert!(matches!(hear(&own), Some(Message::Welcome(_))), "it is let in beside them");
}

#[test]
fn another_user_is_let_in_where_the_configuration_says_so_and_never_asks_as_an_operator() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !rustix::process::geteuid().is_root() {
        skipped("connecting as another user, which needs root");
        return;
    }
    let refused = |message: &Option<Message>| matches!(message, Some(Message::Refused(refused)) if refused.reason == Reason::NotAllowed);
    for (users, is_let_in) in [
        (AllowedUsers::Users(vec![]), false),
        (AllowedUsers::Users(vec![NOBODY - 1]), false),
        (AllowedUsers::Users(vec![NOBODY]), true),
        (AllowedUsers::Word("any".to_owned()), true),
    ] {
        let running = Running::start(|config| {
            (config.socket_mode, config.allow_users) = ("0666".to_owned(), users.clone());
        });
        let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(running.folder.path(), anyone).expect("a folder of ours");
        let socket = running.socket();
        let [welcome, answer] = as_nobody(move || {
            let channel = Channel::connect(&socket).expect("it listens");
            channel.send(&hello(), &[]).expect("there is room");
            let welcome = hear(&channel);
            // It may be closed already.
            let _ = channel.send(&Message::Query("{\"ask\":\"list\"}".to_owned()).encode(), &[]);
            [welcome, hear(&channel)]
        });
        assert_eq!(matches!(welcome, Some(Message::Welcome(_))), is_let_in, "{users:?}: {welcome:?}");
        assert!(refused(if is_let_in { &answer } else { &welcome }), "{users:?}: {answer:?}");
    }
}

#[test]
fn what_a_newer_program_asks_for_is_answered_with_what_there_is() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let running = Running::start(|_| ());
    for (asked, both) in [(u64::MAX, Extensions::KNOWN), (0, Extensions(0))] {
        let newer = Hello { versions: (OLDEST, u16::MAX), extensions: Extensions(asked), name: Name::default() };
        let channel = Channel::connect(&running.socket()).expect("it listens");
        channel.send(&Message::Hello(newer).encode(), &[]).expect("there is room");
        let Some(Message::Welcome(welcome)) = hear(&channel) else { panic!("it is not welcome") };
        assert_eq!((welcome.version, welcome.extensions), (VERSION, both));
    }
    let other = greet(&running.socket());
    other.send(&Message::Query("{\"ask\":\"adopt\",\"version\":999}".to_owned()).encode(), &[]).expect("there is room");
    let Some(Message::Answer(answer)) = hear(&other) else { panic!("no answer") };
    assert!(answer.contains("and not in version 999"), "{answer}");
    drop(Client::attach(&running.socket(), &options()).expect("it goes on"));
}

#[test]
fn an_operator_who_listens_late_hears_of_all_clients_and_holds_nobody_up() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).expect("as many as there may be");
    let running = Running::start(|config| {
        let Limits { clients, queues_per_user, mib_per_user, .. } = config.limits;
        let (clients_per_user, queues_per_user, mib_per_user) = (clients, 4 * queues_per_user, 4 * mib_per_user);
        config.limits = Limits { clients_per_user, queues_per_user, mib_per_user, ..config.limits };
        config.networks = vec![NetworkConfig { wait: WaitMode::Interrupt, ..NetworkConfig::default() }];
    });
    let attach = || Client::attach(&running.socket(), &options()).expect("a client");
    let clients: Vec<_> = (0..900).map(|_| attach()).collect();
    let late = greet(&running.socket());
    late.send(&Message::Query("{\"ask\":\"list\"}".to_owned()).encode(), &[]).expect("there is room");
    drop(attach());
    let mut answer = String::new();
    loop {
        match hear(&late) {
            Some(Message::Answer(piece)) if piece.is_empty() => break,
            Some(Message::Answer(piece)) => answer += &piece,
            other => panic!("{other:?} behind {} bytes", answer.len()),
        }
    }
    let listed = answer.matches("\"session\":").count();
    assert_eq!(listed, clients.len(), "{} bytes", answer.len());
}

/// Microseconds that the kernel lets cores take to wake up, all requests considered; none, with a word about it, where this user may not
/// ask.
fn wakeup_latency() -> Option<i32> {
    let mut latency = [0; 4];
    let asked = File::options().read(true).write(true).open("/dev/cpu_dma_latency");
    match asked.and_then(|mut requests| requests.read_exact(&mut latency)) {
        Ok(()) => Some(i32::from_ne_bytes(latency)),
        Err(error) => {
            skipped(&format!("/dev/cpu_dma_latency: {error}"));
            None
        }
    }
}

#[test]
fn cores_wake_up_as_soon_as_the_configuration_says_while_the_daemon_is_there() {
    let _turn = TURN.lock();
    let Some(before) = wakeup_latency().filter(|&before| before > 7) else { return };
    let daemon = Running::start(|config| config.wakeup_latency_us = Some(7));
    assert_eq!(wakeup_latency(), Some(7));
    let sooner = Running::start(|config| config.wakeup_latency_us = Some(3));
    assert_eq!(wakeup_latency(), Some(3));
    drop((daemon, sooner));
    assert_eq!(wakeup_latency(), Some(before), "nothing is left behind");
}

#[test]
fn who_is_connected_anew_leaves_nobody_connected_to_nobody_and_an_end_that_is_alone_is_listed() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for threads in [1, 2] {
        let running =
            Running::start(|config| config.networks = vec![NetworkConfig { threads, ..NetworkConfig::default() }]);
        let operator = Operator::connect(&running.socket(), Duration::from_secs(20)).expect("it listens");
        let ask = |question: serde_json::Value| -> serde_json::Value {
            serde_json::from_str(&operator.ask(&question.to_string()).expect("it answers")).expect("an answer")
        };
        let circuits = || ask(serde_json::json!({ "ask": "list" }))["networks"][0]["circuits"].clone();
        let mut clients: Vec<_> =
            (0..4).map(|_| Client::attach(&running.socket(), &options()).expect("there is room")).collect();
        let name = |client: &(Client, Vec<Queue>)| format!("client:{}", client.0.attached().session);
        let names: Vec<String> = clients.iter().map(name).collect();
        let connect = |one: usize, other: usize| {
            let between = [&names[one], &names[other]];
            assert_eq!(ask(serde_json::json!({ "ask": "connect", "between": between }))["done"], true);
        };
        connect(0, 1);
        connect(2, 3);
        connect(0, 2);
        assert_eq!(circuits(), serde_json::json!([{ "between": [names[0], names[2]] }]), "{threads} threads");
        for free in [1, 3] {
            let refused = ask(serde_json::json!({ "ask": "disconnect", "end": names[free] }));
            assert!(refused["error"].as_str().is_some_and(|text| text.contains("not connected")), "{refused}");
        }
        // The near end goes, and the far one is waiting.
        drop(clients.remove(0));
        wait_until("it is gone", || ask(serde_json::json!({ "ask": "list" }))["networks"][0]["clients"] == 3);
        assert_eq!(circuits(), serde_json::json!([{ "between": [&names[2], null] }]), "{threads} threads");
    }
}
