//! What a client makes of a daemon that answers late, goes away, or is older: the daemon is played here, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use conic_client::{AttachError, Client, Link, Options, Queue, Reason};
use conic_control::{Attached, Extensions, Message, Name, VERSION, Wait, Welcome};
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

/// Lets the next client in, as a daemon that has these extensions.
fn let_in(listener: &Listener, extensions: Extensions) -> Channel {
    let channel = loop {
        match listener.accept().expect("a socket") {
            Some(channel) => break channel,
            None => conic_native::spin(),
        }
    };
    let Message::Hello(hello) = hear(&channel) else { panic!("a greeting") };
    let extensions = extensions.both(hello.extensions);
    let (most_queues, most_descriptors, most_bytes) = (1, SMALL.descriptors, u64::MAX);
    say(
        &channel,
        &Message::Welcome(Welcome { version: VERSION, extensions, most_queues, most_descriptors, most_bytes }),
    );
    let Message::Attach(wish) = hear(&channel) else { panic!("a wish") };
    let map = Map::with_headroom(wish.geometry, Features::best(), wish.headroom).expect("a geometry that can be");
    let (map, _) = Notices::in_map(map);
    let memory = Memory::create(&map.layout, Pages::Plain).expect("a region");
    prepare(&NativeCore::new(&memory), &map);
    let attached = Attached {
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
    // Nobody is kicked or rung: any descriptors will do.
    let [kick, bell]: [OwnedFd; 2] = [(); 2].map(|()| std::fs::File::open("/dev/null").expect("it is there").into());
    let passed = [memory.descriptor(), kick.as_fd(), bell.as_fd()];
    channel.send(&Message::Attached(attached).encode(), &passed).expect("the client is there");
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
