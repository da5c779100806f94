//! What a client makes of a daemon that answers late, goes away, or is older: the daemon is played here, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use conic_client::{AttachError, Client, Link, Options, Queue, Reason};
use conic_control::{Attached, Bells, Extensions, Message, Name, VERSION, Wait, Welcome};
use conic_fabric::Address;
use conic_interface::burst::HostQueue;
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Features, Geometry, Map, prepare};
use conic_native::channel::{Channel, Listener};
use conic_native::{Memory, NativeCore, Pages};

const SMALL: Geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };

/// A daemon that is too old to limit packets.
const OLD: Extensions = Extensions(Extensions::KNOWN.0 & !Extensions::LONGEST);

/// The next message of a client.
fn hear(channel: &Channel) -> Message {
    loop {
        if let Some(received) = channel.receive().expect("the client is there") {
            return Message::decode(&received.bytes, received.descriptors.len()).expect("a message");
        }
        channel.wait(Duration::from_secs(1)).expect("the client is there");
    }
}

fn say(channel: &Channel, message: &Message) {
    channel.send(&message.encode(), &[]).expect("the client is there");
}

/// Welcomes the next client, as a daemon that has these extensions and speaks this version.
fn welcome(listener: &Listener, extensions: Extensions, version: u16) -> Channel {
    let channel = loop {
        match listener.accept().expect("a socket") {
            Some(channel) => break channel,
            None => conic_native::spin(),
        }
    };
    let Message::Hello(hello) = hear(&channel) else { panic!("a greeting") };
    let extensions = extensions.both(hello.extensions);
    let (most_queues, most_descriptors, most_bytes) = (1, SMALL.descriptors, u64::MAX);
    say(&channel, &Message::Welcome(Welcome { version, extensions, most_queues, most_descriptors, most_bytes }));
    channel
}

/// Gives a client that was welcomed what it wishes for, and says this of it.
fn give(channel: &Channel, say: impl FnOnce(&mut Attached)) {
    let Message::Attach(wish) = hear(channel) else { panic!("a wish") };
    let map = Map::with_headroom(wish.geometry, Features::best(), wish.headroom).expect("a geometry that can be");
    let (map, _) = Notices::in_map(map);
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    prepare(&NativeCore::new(&memory), &map);
    let mut attached = Attached {
        session: 1,
        geometry: map.geometry,
        features: map.features,
        bytes: map.layout.bytes(),
        mac: [2; 6],
        longest_frame: 9600,
        wait: Wait::Spin,
        fences: false,
        network: Name::default(),
        bells: 1,
    };
    say(&mut attached);
    // Nobody is kicked or rung: any descriptors will do.
    let [kick, bell] = [(); 2].map(|()| silent());
    let passed = [memory.descriptor(), kick.as_fd(), bell.as_fd()];
    let passed = &passed[..2 + usize::from(attached.bells)];
    channel.send(&Message::Attached(attached).encode(), passed).expect("the client is there");
}

fn silent() -> OwnedFd {
    std::fs::File::open("/dev/null").expect("it is there").into()
}

/// Lets the next client in, as a daemon that has these extensions.
fn let_in(listener: &Listener, extensions: Extensions) -> Channel {
    let channel = welcome(listener, extensions, VERSION);
    give(&channel, |_| {});
    channel
}

/// A client of a daemon that is played; the daemon's end of its connection.
fn attached(socket: &Path, listener: &Listener) -> (Client, Channel) {
    let (client, _queue, channel) = attached_with_queue(socket, listener);
    (client, channel)
}

/// The same, with the client's queue.
fn attached_with_queue(socket: &Path, listener: &Listener) -> (Client, Queue, Channel) {
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(listener, Extensions::KNOWN));
        let options = Options { geometry: SMALL, ..Options::default() };
        let (client, mut queues) = Client::attach(socket, &options).unwrap_or_else(|error| panic!("{error}"));
        (client, queues.remove(0), daemon.join().expect("it lets the client in"))
    })
}

#[test]
fn who_waits_for_an_answer_keeps_nobody_else_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, channel) = attached(&socket, &listener);
    std::thread::scope(|scope| {
        let limiting = scope.spawn(|| client.limit_packets(9000));
        assert_eq!(hear(&channel), Message::Longest(9000));
        // The answer comes behind these: would they wait for it, it came too late.
        assert_eq!((client.maintain(), client.mac(), client.detached()), (Link::Up, [2; 6], None));
        say(&channel, &Message::Longest(9000));
        let limited = limiting.join().expect("it ends");
        assert!(limited.is_ok(), "{limited:?}");
    });
    // Who is asked in vain is found gone.
    std::thread::scope(|scope| {
        let limiting = scope.spawn(|| client.limit_packets(1500));
        assert_eq!(hear(&channel), Message::Longest(1500));
        drop(channel);
        let limited = limiting.join().expect("it ends");
        assert!(matches!(limited, Err(AttachError::Broken { .. })), "{limited:?}");
        assert_eq!(client.maintain(), Link::Down);
    });
}

#[test]
fn a_reconnection_that_an_older_daemon_cannot_serve_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, channel) = attached(&socket, &listener);
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    // Asked for while nobody is there, and remembered.
    client.limit_packets(9000).expect("nobody refuses it");
    std::thread::scope(|scope| {
        scope.spawn(|| let_in(&listener, OLD));
        // And no further: nobody would answer another attempt.
        while client.detached().is_none() {
            client.maintain();
        }
    });
    let refused = client.detached().expect("it was not let in");
    assert_eq!((refused.reason, client.link()), (Reason::Version, Link::Down));
    assert!(refused.text.contains("too old to keep packets to 9000 bytes"), "{refused}");
    std::thread::scope(|scope| {
        let newer = scope.spawn(|| {
            let channel = let_in(&listener, Extensions::KNOWN);
            assert_eq!(hear(&channel), Message::Longest(9000));
            say(&channel, &Message::Longest(9000));
            channel
        });
        while !newer.is_finished() {
            client.maintain();
        }
        let _channel = newer.join().expect("it lets the client in");
        assert_eq!((client.maintain(), client.reconnects()), (Link::Up, 1));
    });
}

/// What a client says of a daemon that does this.
fn refusal(daemon: impl FnOnce(&Listener) -> Channel + Send) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| daemon(&listener));
        let options = Options { geometry: SMALL, ..Options::default() };
        let attached = Client::attach(&socket, &options).map(|_| ());
        drop(daemon.join().expect("it plays to its end"));
        let error = attached.expect_err("it cannot be");
        assert!(matches!(error, AttachError::Peer(_)), "{error:?}");
        error.to_string()
    })
}

#[test]
fn a_daemon_that_gives_what_was_not_asked_for_is_refused() {
    for version in [0, VERSION + 1] {
        let refused = refusal(|listener| welcome(listener, Extensions::KNOWN, version));
        assert!(refused.contains(&format!("it chose version {version}")), "{refused}");
    }
    let given = |change: fn(&mut Attached)| {
        refusal(move |listener| {
            let channel = welcome(listener, Extensions::KNOWN, VERSION);
            give(&channel, change);
            channel
        })
    };
    let refused = given(|attached| attached.geometry.descriptors = 128);
    assert!(refused.contains("it made Geometry"), "{refused}");
    let refused = given(|attached| attached.features.whole_line = false);
    assert!(refused.contains("its rings are of another kind"), "{refused}");
}

#[test]
fn bells_come_in_order_and_not_without_end() {
    for (first, count) in [(1, 1), (0, 0)] {
        let refused = refusal(|listener| {
            let channel = welcome(listener, Extensions::KNOWN, VERSION);
            give(&channel, |attached| attached.bells = 0);
            let bell = silent();
            let passed = [bell.as_fd()];
            let bells = Message::Bells(Bells { first, count });
            channel.send(&bells.encode(), &passed[..usize::from(count)]).expect("the client is there");
            channel
        });
        assert!(refused.contains(&format!("its bells begin at {first} and not at 0")), "{refused}");
    }
}

#[test]
fn a_limit_that_the_daemon_takes_for_another_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, channel) = attached(&socket, &listener);
    say(&channel, &Message::Longest(9001));
    let limited = client.limit_packets(9000);
    assert!(matches!(limited, Err(AttachError::Peer(_))), "{limited:?}");
    assert_eq!(hear(&channel), Message::Longest(9000));
}

#[test]
fn the_half_that_sends_keeps_as_few_buffers_behind_a_reconnection_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, queue, channel) = attached_with_queue(&socket, &listener);
    let (mut sender, mut receiver) = queue.split();
    // How many the two keep when the one that sends has freed some.
    let kept = |sender: &mut Queue| {
        let mut buffers = [Address(0); 32];
        let got = sender.buf_alloc(60, &mut buffers);
        sender.buf_free(&buffers[..got]);
        SMALL.buffers[0] - sender.memory().free()[0]
    };
    let before = kept(&mut sender);
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    let _channel = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(&listener, Extensions::KNOWN));
        while client.maintain() == Link::Down {}
        daemon.join().expect("it lets the client in")
    });
    assert!(sender.renew() && receiver.renew());
    assert_eq!(kept(&mut sender), before);
}
