//! A client asks for frames for stations that nobody is known to have, at attaching and later, of daemons that grant it, that do not, and
//! that know of no such question.

use crate::support::{SMALL, attached, hear, let_in, say};
use conic_client::{AttachError, Client, Link, Options};
use conic_control::{Extensions, Message};
use conic_native::channel::{Channel, Listener};

const ASKED: Message = Message::Promiscuous { on: true, granted: false };
const GRANTED: Message = Message::Promiscuous { on: true, granted: true };

fn listen() -> (tempfile::TempDir, std::path::PathBuf, Listener) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    (folder, socket, listener)
}

/// What becomes of a client that wants them from the start, and is told this.
fn attached_with(answer: &Message) -> Result<bool, AttachError> {
    let (_folder, socket, listener) = listen();
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let (channel, nic) = let_in(&listener, Extensions::KNOWN);
            assert_eq!(hear(&channel), ASKED);
            say(&channel, answer);
            (channel, nic)
        });
        let options = Options { geometry: SMALL, promiscuous: true, ..Options::default() };
        let attached = Client::attach(&socket, &options).map(|(client, _)| client.is_promiscuous());
        daemon.join().expect("it plays to its end");
        attached
    })
}

#[test]
fn who_wants_them_from_the_start_attaches_with_them_or_not() {
    assert!(matches!(attached_with(&GRANTED), Ok(true)));
    assert!(matches!(attached_with(&ASKED), Err(AttachError::Promiscuous)));
    for other in [Message::Promiscuous { on: false, granted: true }, Message::Longest(9000)] {
        assert!(matches!(attached_with(&other), Err(AttachError::Peer(_))), "{other:?}");
    }
}

/// What a client makes of this answer.
fn asked(client: &Client, channel: &Channel, on: bool, answer: &Message) -> Result<(), AttachError> {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.set_promiscuous(on));
        assert_eq!(hear(channel), Message::Promiscuous { on, granted: false });
        say(channel, answer);
        asking.join().expect("it ends")
    })
}

#[test]
fn it_is_asked_for_later_and_when_the_daemon_is_back() {
    let (_folder, socket, listener) = listen();
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    let refused = asked(&client, &channel, true, &ASKED);
    assert!(matches!(refused, Err(AttachError::Promiscuous)) && !client.is_promiscuous(), "{refused:?}");
    asked(&client, &channel, true, &GRANTED).expect("it is granted");
    assert!(client.is_promiscuous());
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    // The next daemon does not grant it, and lets the client in; the one after that does.
    for (answer, is) in [(ASKED, false), (GRANTED, true)] {
        let (channel, _nic) = std::thread::scope(|scope| {
            let daemon = scope.spawn(|| {
                let (channel, nic) = let_in(&listener, Extensions::KNOWN);
                assert_eq!(hear(&channel), ASKED);
                say(&channel, &answer);
                (channel, nic)
            });
            while client.maintain() == Link::Down {}
            daemon.join().expect("it plays to its end")
        });
        assert_eq!((client.maintain(), client.is_promiscuous()), (Link::Up, is));
        drop(channel);
        assert_eq!(client.maintain(), Link::Down);
    }
    // While nobody is there it is given up, and then not asked for.
    client.set_promiscuous(false).expect("nobody refuses it");
    let back = crate::support::come_back(&client, &listener);
    assert_eq!((client.maintain(), client.is_promiscuous()), (Link::Up, false));
    drop(back);
}

#[test]
fn an_older_daemon_gives_them_to_everybody_and_is_not_asked() {
    let (_folder, socket, listener) = listen();
    let old = Extensions(Extensions::KNOWN.0 & !Extensions::PROMISCUOUS);
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in(&listener, old));
        let options = Options { geometry: SMALL, promiscuous: true, ..Options::default() };
        let (client, _queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(client.is_promiscuous() && client.set_promiscuous(true).is_ok());
        assert!(matches!(client.set_promiscuous(false), Err(AttachError::Older(_))) && client.is_promiscuous());
        daemon.join().expect("it lets the client in");
    });
}
