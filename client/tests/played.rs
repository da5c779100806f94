//! What a client makes of a daemon that answers late, goes away, or is older: the daemon is played here, message by message.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::support::{SMALL, attached, come_back, give, hear, let_in, say, welcome};
use conic_client::{AttachError, Client, Link, Options, Queue, Reason, Refused};
use conic_control::{Attached, Bells, Extensions, Message, VERSION};
use conic_fabric::Address;
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Geometry, Headroom, HostFaults};
use conic_native::channel::{Channel, Listener};
use conic_native::clock;

/// A daemon that is too old to limit packets.
const OLD: Extensions = Extensions(Extensions::KNOWN.0 & !Extensions::LONGEST);

#[test]
fn who_waits_for_an_answer_keeps_nobody_else_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
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
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
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
            let (channel, _nic) = let_in(&listener, Extensions::KNOWN);
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
            let bell = OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
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
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
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
    let (client, queue, channel, mut nic) = attached(&socket, &listener);
    let (mut sender, mut receiver) = queue.split();
    // How many the two keep when the one that sends has freed some.
    let kept = |sender: &mut Queue| {
        let mut buffers = [Address(0); 32];
        let got = sender.buf_alloc(60, &mut buffers);
        sender.buf_free(&buffers[..got]);
        SMALL.buffers[0] - sender.memory().free()[0]
    };
    let before = kept(&mut sender);
    // Much of a ring, read and credited.
    for _ in 0..SMALL.descriptors {
        let mut buffer = [Address(0)];
        assert_eq!(sender.buf_alloc(200, &mut buffer), 1);
        assert_eq!(sender.tx_burst(&[Packet::new(buffer[0], 200)]), 1);
        assert_eq!(nic.sent().len(), 1);
    }
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    let _back = come_back(&client, &listener);
    assert!(sender.renew() && receiver.renew());
    assert_eq!(kept(&mut sender), before);
    // The one that receives finds a credit in its ring that was given to the other: the daemon did nothing wrong.
    assert_eq!([sender.faults().host, receiver.faults().host], [HostFaults::default(); 2]);
}

#[test]
fn who_is_not_answered_says_so_when_its_patience_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let _listener = Listener::bind(&socket).expect("a socket");
    let options = Options { geometry: SMALL, patience: Duration::from_millis(50), ..Options::default() };
    let error = Client::attach(&socket, &options).map(|_| ()).expect_err("nobody is there");
    assert!(matches!(error, AttachError::Timeout { .. }), "{error:?}");
}

#[test]
fn what_the_program_keeps_of_buffers_is_wished_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let geometry = Geometry { buffers: [64, 64, 64], ..SMALL };
    let headroom = Headroom { bytes: 128, ..Headroom::NONE };
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let channel = welcome(&listener, Extensions::KNOWN, VERSION);
            let nic = give(&channel, |_| {});
            (channel, nic)
        });
        let options = Options { geometry, headroom, mac: Some([2, 0, 0, 0, 0, 7]), ..Options::default() };
        let (_client, queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        let (_channel, nic) = daemon.join().expect("it lets the client in");
        assert_eq!((nic.headroom, queues.len()), (headroom, 1));
    });
}

#[test]
fn who_is_detached_says_why_and_what_it_does_not_understand_is_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let refused = |text: &str| Refused { reason: Reason::Version, text: text.to_owned() };
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    say(&channel, &Message::Longest(1));
    assert_eq!((client.maintain(), client.detached()), (Link::Up, None));
    // Unasked, and as an answer.
    say(&channel, &Message::Refused(refused("it was idle")));
    assert_eq!((client.maintain(), client.detached()), (Link::Down, Some(refused("it was idle"))));
    drop(channel);
    let (channel, _nic) = come_back(&client, &listener);
    say(&channel, &Message::Refused(refused("it is greedy")));
    let limited = client.limit_packets(9000);
    assert!(matches!(limited, Err(AttachError::Refused(_))), "{limited:?}");
    assert_eq!(client.detached(), Some(refused("it is greedy")));
    // Behind words that nobody waits for any more, and gone before anyone looks.
    drop(channel);
    for asks in [false, true] {
        let (channel, _nic) = come_back(&client, &listener);
        let why = format!("it is slow, {asks}");
        [Message::Longest(1), Message::Longest(2), Message::Refused(refused(&why))]
            .iter()
            .for_each(|word| say(&channel, word));
        drop(channel);
        if asks {
            let limited = client.limit_packets(9000);
            assert!(matches!(limited, Err(AttachError::Refused(_))), "{limited:?}");
        }
        assert_eq!((client.maintain(), client.detached()), (Link::Down, Some(refused(&why))));
    }
}

#[test]
fn who_does_not_want_to_come_back_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let client = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(&listener, Extensions::KNOWN));
        let options = Options { geometry: SMALL, reconnect: false, ..Options::default() };
        let attached = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        drop(daemon.join().expect("it lets the client in"));
        attached.0
    });
    for _ in 0..2 {
        assert_eq!(client.maintain(), Link::Down);
    }
    assert!(listener.accept().expect("a socket").is_none(), "nobody has called");
}

#[test]
fn no_burst_waits_for_a_daemon_that_does_not_answer_and_bursts_attach_when_it_does() {
    // A small part of the patience, and more than a busy machine takes a thread's core away for.
    const MOST: f64 = 0.5;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, mut queue, channel, _nic) = attached(&socket, &listener);
    drop(channel);
    let begun = clock::now();
    let mut longest = 0.0;
    let mut burst = |queue: &mut Queue, sends: bool| {
        let before = clock::now();
        let moved = if sends { queue.tx_burst(&[]) } else { queue.rx_burst(&mut [Packet::BLANK; 4]) };
        longest = clock::now().since(before).seconds().max(longest);
        assert!(longest < MOST && moved == 0, "{moved} packets in {longest} s");
    };
    while clock::now().since(begun).seconds() < 0.2 {
        (0..5000).for_each(|round| burst(&mut queue, round % 2 == 0));
        assert!(!queue.wait(Duration::from_millis(1)));
        assert_eq!((client.look(), client.mac(), client.reconnects()), (Link::Down, [2; 6], 0));
    }
    std::thread::scope(|scope| {
        // It has called once, long ago, and is there still.
        let daemon = scope.spawn(|| let_in(&listener, Extensions::KNOWN));
        while client.link() == Link::Down {
            burst(&mut queue, false);
            assert!(clock::now().since(begun).seconds() < 60.0, "it does not attach again");
        }
        let _back = daemon.join().expect("it lets the client in");
        assert_eq!((queue.renew(), client.reconnects()), (true, 1));
    });
    assert!(listener.accept().expect("a socket").is_none(), "it has called once");
}

#[test]
fn a_daemon_that_lets_nobody_in_is_asked_again_after_a_hundredth_of_a_second_and_not_before() {
    const ATTEMPTS: u32 = 6;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    let begun = clock::now();
    let seconds = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            for attempt in 0..ATTEMPTS {
                // Whoever calls is let go without a word.
                while listener.accept().expect("a socket").is_none() {
                    assert!(clock::now().since(begun).seconds() < 60.0, "attempt {attempt} is not made");
                }
            }
            clock::now().since(begun).seconds()
        });
        while !daemon.is_finished() {
            assert_eq!(client.maintain(), Link::Down);
        }
        daemon.join().expect("all attempts are made")
    });
    let between = seconds / f64::from(ATTEMPTS - 1);
    assert!(between >= 0.01, "{between} s from one attempt to the next");
}
