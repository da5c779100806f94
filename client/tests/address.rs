//! A client's address: it has the same when it attaches again, and may ask for another.

use std::time::Duration;

use crate::support::{Nic, SMALL, attached, come_back, give_to, hear, say, welcome};
use conic_client::{AttachError, Client, Link, Options, Reason, Refused};
use conic_control::{Extensions, Message, VERSION};
use conic_native::channel::{Channel, Listener};

const OWN: [u8; 6] = [2; 6];
const OTHER: [u8; 6] = [6; 6];

/// A socket that a test's daemon listens at.
fn listen() -> (tempfile::TempDir, std::path::PathBuf, Listener) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    (folder, socket, listener)
}

/// Lets a client in that wants this address, or refuses it if it is to have none.
fn let_in_as(listener: &Listener, wanted: Option<[u8; 6]>, given: Option<[u8; 6]>) -> (Channel, Option<Nic>) {
    let channel = welcome(listener, Extensions::KNOWN, VERSION);
    let Message::Attach(wish) = hear(&channel) else { panic!("a wish") };
    assert_eq!(wish.mac, wanted);
    let nic = match given {
        Some(mac) => Some(give_to(&channel, &wish, |attached| attached.mac = mac)),
        None => {
            say(&channel, &Message::Refused(Refused { reason: Reason::Mac, text: "it is another's".to_owned() }));
            None
        }
    };
    (channel, nic)
}

/// The daemon is gone, and does this when the client comes back; how the client's link is then.
fn come_back_to<T: Send>(client: &Client, daemon: impl FnOnce() -> T + Send) -> (T, Link) {
    std::thread::scope(|scope| {
        let daemon = scope.spawn(daemon);
        while !daemon.is_finished() {
            client.maintain();
        }
        (daemon.join().expect("it plays to its end"), client.maintain())
    })
}

#[test]
fn who_attaches_again_has_the_address_that_it_had() {
    let (_folder, socket, listener) = listen();
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    assert_eq!(client.mac(), OWN);
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    // The program wanted none in particular; what it has told others of itself still holds.
    let ((channel, _nic), _) = come_back_to(&client, || let_in_as(&listener, Some(OWN), Some(OWN)));
    assert_eq!((client.maintain(), client.mac()), (Link::Up, OWN));
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    // Where another has it, it takes what it gets.
    let daemon = || (let_in_as(&listener, Some(OWN), None), let_in_as(&listener, None, Some(OTHER)));
    let ((_refused, _back), _) = come_back_to(&client, daemon);
    assert_eq!((client.maintain(), client.mac(), client.attached().mac), (Link::Up, OTHER, OTHER));
}

#[test]
fn who_wants_an_address_takes_no_other() {
    let (_folder, socket, listener) = listen();
    let (client, channel) = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| let_in_as(&listener, Some(OTHER), Some(OTHER)));
        let options = Options { geometry: SMALL, mac: Some(OTHER), ..Options::default() };
        let (client, _queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        (client, daemon.join().expect("it lets the client in"))
    });
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    let ((_refused, _), link) = come_back_to(&client, || let_in_as(&listener, Some(OTHER), None));
    assert_eq!((link, client.detached().map(|why| why.reason)), (Link::Down, Some(Reason::Mac)));
    // It asks for that again, and for nothing else.
    let ((_channel, _nic), _) = come_back_to(&client, || let_in_as(&listener, Some(OTHER), Some(OTHER)));
    assert_eq!((client.maintain(), client.mac()), (Link::Up, OTHER));
}

/// What a client makes of this answer to its wish for another address.
fn asked(client: &Client, channel: &Channel, mac: [u8; 6], answer: &Message) -> Result<(), AttachError> {
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.set_mac(mac));
        assert_eq!(hear(channel), Message::Address { mac, granted: false });
        say(channel, answer);
        asking.join().expect("it ends")
    })
}

#[test]
fn another_address_is_the_clients_when_the_daemon_says_so() {
    let (_folder, socket, listener) = listen();
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    let refused = asked(&client, &channel, OTHER, &Message::Address { mac: OTHER, granted: false });
    assert!(matches!(refused, Err(AttachError::Address(OTHER))), "{refused:?}");
    assert_eq!((client.mac(), client.maintain(), client.detached()), (OWN, Link::Up, None));
    let wrong = asked(&client, &channel, OTHER, &Message::Address { mac: OWN, granted: true });
    assert!(matches!(wrong, Err(AttachError::Peer(_))), "{wrong:?}");
    assert_eq!(client.mac(), OWN);
    asked(&client, &channel, OTHER, &Message::Address { mac: OTHER, granted: true }).expect("it is the client's");
    assert_eq!((client.mac(), client.attached().mac), (OTHER, OTHER));
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    // While nobody is there it is remembered, and then asked for.
    client.set_mac([10; 6]).expect("nobody refuses it");
    assert_eq!(client.mac(), [10; 6]);
    let ((_channel, _nic), _) = come_back_to(&client, || let_in_as(&listener, Some([10; 6]), Some([10; 6])));
    assert_eq!((client.maintain(), client.mac()), (Link::Up, [10; 6]));
}

#[test]
fn an_address_that_is_asked_for_while_the_client_attaches_again_is_not_forgotten() {
    let (_folder, socket, listener) = listen();
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    drop(channel);
    while client.look() == Link::Up {}
    // It calls, and asks for the address that it had.
    client.look();
    let (asked, _channel, _nic) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.set_mac(OTHER));
        let (channel, nic) = let_in_as(&listener, Some(OWN), Some(OWN));
        assert_eq!(hear(&channel), Message::Address { mac: OTHER, granted: false });
        say(&channel, &Message::Address { mac: OTHER, granted: true });
        (asking.join().expect("it ends"), channel, nic)
    });
    asked.expect("it is the client's");
    assert_eq!((client.maintain(), client.mac(), client.reconnects()), (Link::Up, OTHER, 1));
}

#[test]
fn an_address_of_no_single_station_is_refused_before_anybody_is_asked() {
    let (_folder, socket, listener) = listen();
    let (client, _queue, channel, _nic) = attached(&socket, &listener);
    for mac in [[0; 6], [1, 0, 0x5e, 0, 0, 1], [0xff; 6]] {
        let refused = client.set_mac(mac);
        assert!(matches!(refused, Err(AttachError::Address(_))), "{refused:?}");
        assert!(refused.expect_err("it was refused").to_string().contains("is not to be had"));
    }
    drop(channel);
    assert_eq!(client.maintain(), Link::Down);
    assert!(client.set_mac([0; 6]).is_err(), "it could never attach again");
    let (_channel, _nic) = come_back(&client, &listener);
    assert_eq!(client.mac(), OWN);
}

#[test]
fn a_daemon_that_is_too_old_to_give_another_is_not_asked() {
    let (_folder, socket, listener) = listen();
    let (client, channel) = std::thread::scope(|scope| {
        let old = Extensions(Extensions::KNOWN.0 & !Extensions::ADDRESS);
        let daemon = scope.spawn(move || crate::support::let_in(&listener, old));
        let options = Options { geometry: SMALL, ..Options::default() };
        let (client, _queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        (client, daemon.join().expect("it lets the client in"))
    });
    let refused = client.set_mac(OTHER).expect_err("it cannot");
    assert!(refused.to_string().contains("too old to give another address"), "{refused}");
    assert!(channel.0.receive().expect("the client is there").is_none(), "it has heard nothing");
}

#[test]
fn a_late_word_is_taken_for_the_question_that_it_answers() {
    let (_folder, socket, listener) = listen();
    let (client, channel, _nic) = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| crate::support::let_in(&listener, Extensions::KNOWN));
        let options = Options { geometry: SMALL, patience: Duration::from_millis(100), ..Options::default() };
        let (client, _queues) = Client::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}"));
        let (channel, nic) = daemon.join().expect("it lets the client in");
        (client, channel, nic)
    });
    let give_up = |mac| {
        let late = client.set_mac(mac);
        assert!(matches!(late, Err(AttachError::Timeout { .. })), "{late:?}");
        assert_eq!(hear(&channel), Message::Address { mac, granted: false });
    };
    // Heard while nobody asks: the address is this client's, whoever waits for the word.
    give_up(OTHER);
    assert_eq!(client.mac(), OWN);
    say(&channel, &Message::Address { mac: OTHER, granted: true });
    assert_eq!((client.maintain(), client.mac()), (Link::Up, OTHER));
    // Heard by those who ask next, of which the first gives up, too.
    give_up([10; 6]);
    give_up([14; 6]);
    say(&channel, &Message::Address { mac: [10; 6], granted: true });
    say(&channel, &Message::Address { mac: [14; 6], granted: false });
    asked(&client, &channel, [18; 6], &Message::Address { mac: [18; 6], granted: false }).expect_err("it is another's");
    assert_eq!((client.maintain(), client.mac()), (Link::Up, [10; 6]));
    // None is owed any more.
    let wrong = asked(&client, &channel, OTHER, &Message::Address { mac: OWN, granted: true });
    assert!(matches!(wrong, Err(AttachError::Peer(_))), "{wrong:?}");
    assert_eq!(client.mac(), [10; 6]);
}
