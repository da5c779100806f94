//! What two daemons say to each other is what their number stands for, and what the old one had begun or counted goes on.

use conic_client::{AttachError, Client, Link as ClientLink, Operator, Options, Queue};
use conic_control::{Attach, Attached, Reason};
use conic_interface::metadata::Offloads;
use conic_native::{Flag, spin};
use conic_nicd::config::{Config, Limits, NetworkConfig, PortConfig};
use conic_nicd::switch::{Circuit, PassedEnd, Pin, RateLimit};
use serde_json::{Value, to_string};

use super::guests::{Guest, Stands};
use super::kept::Remainder;
use super::*;
use crate::bell::Stop;
use crate::connection::Unsaid;
use crate::order::News;

fn promise(wired: PassedEnd, mirror: Option<Asked>) -> Promise {
    let (network, spec) = ("n".to_owned(), "tap".to_owned());
    Promise { network, number: 26, spec, vlan: Some(27), attached: true, given: true, wired, mirror }
}

/// Each word of version 14. A daemon leaves out in silence what it does not know, and a client would lose it: whoever changes a word
/// here changes the number too.
#[test]
fn the_words_are_those_of_the_number() {
    let circuit = Some(Circuit { number: 7, far: true });
    let mirror = || Some(Asked { file: "a.pcap".into(), most_bytes: 8 });
    let wired = PassedEnd { circuit, configured: Some(Circuit { number: 28, far: false }) };
    let ports = vec![promise(wired, mirror())];
    let head = Head { next_session: 18, next_circuit: 1 << 63, clients: 19, guests: 20, kept: 23, unread: 29, ports };
    let given = Given { promise: 1, peer: "p".to_owned(), words: vec![2], descriptors: 3 };
    let heir = Heir {
        session: 1,
        name: "c".to_owned(),
        network: "n".to_owned(),
        mac: [2; 6],
        queues: 1,
        descriptors: 64,
        buffers: [3; 3],
        object_bytes: 4,
        headroom: [5; 2],
        fences: true,
        process: 6,
        user: 7,
        group: 8,
        wired,
        mirror: mirror(),
    };
    let pattern = "protocol=tcp".parse().expect("a pattern");
    let rules = Rules {
        mac: [2; 6],
        own_address_only: true,
        promiscuous: true,
        vlan: Some(9),
        limit: Some(RateLimit { bytes_per_second: 10, burst_bytes: 11 }),
        circuit,
        offloads: Offloads::default(),
        longest: Some(12),
        pins: vec![Pin { pattern, queue: Some(13) }],
    };
    let stood = Stood { session: 1, rules, positions: vec![[14; 3]] };
    let guest = |stands| to_string(&Guest { process: 15, user: 16, group: 17, stands });
    let said = [
        to_string(&head),
        to_string(&heir),
        to_string(&Last::Port(given)),
        to_string(&Last::Client(stood)),
        to_string(&Last::Done(vec![15])),
        to_string(&Last::Closed),
        guest(Stands::Connected),
        guest(Stands::Negotiated { name: "g".to_owned(), offloads: vec!["verify".to_owned()], wish: None }),
        guest(Stands::Negotiated { name: "g".to_owned(), offloads: Vec::new(), wish: Some(vec![21, 22]) }),
        guest(Stands::Asking { text: "t".to_owned(), at: 1 }),
        to_string(&Remainder { user: 24, clients: 1, queues: 25, bytes: 4096 }),
    ];
    let words = [
        r#"{"next_session":18,"next_circuit":9223372036854775808,"clients":19,"guests":20,"kept":23,"unread":29,"ports":[{"network":"n","number":26,"spec":"tap","vlan":27,"attached":true,"given":true,"wired":{"circuit":{"number":7,"far":true},"configured":{"number":28,"far":false}},"mirror":{"file":"a.pcap","most_bytes":8}}]}"#,
        r#"{"session":1,"name":"c","network":"n","mac":[2,2,2,2,2,2],"queues":1,"descriptors":64,"buffers":[3,3,3],"object_bytes":4,"headroom":[5,5],"fences":true,"process":6,"user":7,"group":8,"wired":{"circuit":{"number":7,"far":true},"configured":{"number":28,"far":false}},"mirror":{"file":"a.pcap","most_bytes":8}}"#,
        r#"{"Port":{"promise":1,"peer":"p","words":[2],"descriptors":3}}"#,
        r#"{"Client":{"session":1,"rules":{"mac":[2,2,2,2,2,2],"own_address_only":true,"promiscuous":true,"vlan":9,"limit":{"bytes_per_second":10,"burst_bytes":11},"circuit":{"number":7,"far":true},"offloads":{"join":false,"no_hash":false,"requests":false,"strip":false,"unfinished":false,"verify":false},"longest":12,"pins":[{"match":"protocol=tcp","queue":13}]},"positions":[[14,14,14]]}}"#,
        r#"{"Done":[15]}"#,
        r#""Closed""#,
        r#"{"process":15,"user":16,"group":17,"stands":"Connected"}"#,
        r#"{"process":15,"user":16,"group":17,"stands":{"Negotiated":{"name":"g","offloads":["verify"],"wish":null}}}"#,
        r#"{"process":15,"user":16,"group":17,"stands":{"Negotiated":{"name":"g","offloads":[],"wish":[21,22]}}}"#,
        r#"{"process":15,"user":16,"group":17,"stands":{"Asking":{"text":"t","at":1}}}"#,
        r#"{"user":24,"clients":1,"queues":25,"bytes":4096}"#,
    ];
    assert_eq!(said.map(|text| text.expect("it can be said")), words);
    assert_eq!((TAKING_OVER, MINE), (14, "mine"));
}

/// A daemon of such a configuration, which another is to take over from.
fn started(config: &Config) -> Daemon {
    Daemon::start(config.clone(), Stop::new().expect("a descriptor"), Box::new(|_| {})).expect("it starts")
}

/// The one that takes over from it.
fn adopted(config: &Config) -> (Daemon, Stop) {
    let stop = Stop::new().expect("a descriptor");
    (Daemon::adopt(config.clone(), stop.clone(), Box::new(|_| {})).expect("it takes over"), stop)
}

fn ask(config: &Config, question: &str) -> Result<String, AttachError> {
    Operator::connect(&config.socket, Duration::from_secs(20))?.ask(question)
}

fn hear(channel: &Channel) -> Message {
    channel.wait(Duration::from_secs(20)).expect("a socket");
    let heard = channel.receive().expect("it does not close").expect("it speaks");
    Message::decode(&heard.bytes, heard.descriptors.len()).expect("a sound message")
}

#[test]
fn the_next_circuit_of_an_operator_is_above_every_one_that_was_handed_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |number| folder.path().join(format!("{number}.pcap")).display().to_string();
    let port = |number| PortConfig { spec: format!("capture:record={}", file(number)), vlan: None };
    let networks = vec![NetworkConfig { ports: (0..4).map(port).collect(), ..NetworkConfig::default() }];
    let config = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let old = started(&config);
    let old = std::thread::spawn(move || old.run());
    for between in [["port:0", "port:1"], ["port:2", "port:3"]] {
        let question = json!({ "ask": "connect", "between": between }).to_string();
        assert_eq!(ask(&config, &question).expect("it answers"), r#"{"done":true}"#);
    }
    let (new, _) = adopted(&config);
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    let circuits = new.networks[0].report().circuits;
    assert_eq!(circuits.len(), 4);
    assert!(circuits.iter().all(|(_, circuit, _)| circuit.number < new.next_circuit), "{circuits:?}");
}

#[test]
fn what_a_new_file_connects_is_connected_at_both_ends_whoever_came_from_the_daemon_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("0.pcap");
    let ports = vec![PortConfig { spec: format!("capture:record={}", file.display()), vlan: None }];
    let networks = vec![NetworkConfig { ports, ..NetworkConfig::default() }];
    let without = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
    let mut with = without.clone();
    with.networks[0].connects = vec!["client:web,port:0".parse().expect("a connection")];
    let [without, with] = [without, with].map(|config| config.checked().expect("a sound configuration"));
    let old = started(&without);
    let old = std::thread::spawn(move || old.run());
    let _client = named(&without, "web");
    let (new, _) = adopted(&with);
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    let [port, client] = [Party::Port(0), Party::Client(1)];
    assert_eq!(ends(&new), [(port, Some(client)), (client, Some(port))]);
    let new = std::thread::spawn(move || new.run());
    let (last, _) = adopted(&without);
    assert!(matches!(new.join(), Ok(Ok(_))), "the second one ended");
    assert_eq!(ends(&last), [], "who was connected by a file is not so by one without it");
}

/// A client that calls itself so.
fn named(config: &Config, name: &str) -> (Client, Vec<Queue>) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    let options = Options { geometry, name: Name::new(name).expect("a name"), ..Options::default() };
    Client::attach(&config.socket, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// Who is in a circuit of the first network, and with whom.
fn ends(daemon: &Daemon) -> Vec<(Party, Option<Party>)> {
    let circuits = daemon.networks[0].report().circuits.into_iter();
    let mut ends: Vec<_> = circuits.map(|(party, _, other)| (party, other)).collect();
    ends.sort();
    ends
}

/// A daemon whose file connects the client "web" (the first) and a port, where an operator has then asked for this with another client
/// there (the second): who is in a circuit behind a take-over by one of such a file, of the same if there is none, and behind another.
fn circuits_behind(question: &Value, file: Option<&[&str]>) -> [Vec<(Party, Option<Party>)>; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let port = |number| {
        let file = folder.path().join(format!("{number}.pcap"));
        PortConfig { spec: format!("capture:record={}", file.display()), vlan: None }
    };
    let configured = |connects: &[&str]| {
        let connects = connects.iter().map(|text| text.parse().expect("a connection")).collect();
        let networks = vec![NetworkConfig { ports: (0..2).map(port).collect(), connects, ..NetworkConfig::default() }];
        let config = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
        config.checked().expect("a sound configuration")
    };
    let before = ["client:web,port:0"];
    let (first, second) = (configured(&before), configured(file.unwrap_or(&before)));
    let old = started(&first);
    let old = std::thread::spawn(move || old.run());
    let _clients = ["web", "other"].map(|name| named(&first, name));
    assert_eq!(ask(&first, &question.to_string()).expect("it answers"), r#"{"done":true}"#);
    let (new, _) = adopted(&second);
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    let once = ends(&new);
    let new = std::thread::spawn(move || new.run());
    let (last, _) = adopted(&second);
    assert!(matches!(new.join(), Ok(Ok(_))), "the second one ended");
    [once, ends(&last)]
}

/// A take-over is no change of what is served.
#[test]
fn whom_an_operator_has_taken_out_of_a_circuit_is_in_none_behind_a_take_over() {
    let [web, other] = [1, 2].map(Party::Client);
    let connected = vec![(web, Some(other)), (other, Some(web))];
    let disconnect = json!({ "ask": "disconnect", "end": "client:1" });
    let connect = json!({ "ask": "connect", "between": ["client:1", "client:2"] });
    // The port was freed, and would else be alone.
    assert_eq!(circuits_behind(&connect, None), [connected.clone(), connected.clone()]);
    assert_eq!(circuits_behind(&disconnect, None), [[], []]);
    // Another file that says the same of them changes nothing either, and one that says nothing leaves an operator's as it is.
    let same = ["client:x,client:y", "client:web,port:0"];
    assert_eq!(circuits_behind(&disconnect, Some(&same)), [[], []]);
    assert_eq!(circuits_behind(&connect, Some(&[])), [connected.clone(), connected]);
}

#[test]
fn a_circuit_that_a_new_file_makes_has_both_its_ends_or_none() {
    let ([web, other], [port, next]) = ([1, 2].map(Party::Client), [0, 1].map(Party::Port));
    let disconnect = json!({ "ask": "disconnect", "end": "client:1" });
    let connect = json!({ "ask": "connect", "between": ["client:1", "client:2"] });
    // Whoever wrote the new one wants it so, whatever an operator did to the old one's.
    let made = vec![(next, Some(web)), (web, Some(next))];
    assert_eq!(circuits_behind(&disconnect, Some(&["client:web,port:1"])), [made.clone(), made]);
    // But an operator's goes on, and then the port would have nobody.
    let kept = vec![(web, Some(other)), (other, Some(web))];
    assert_eq!(circuits_behind(&connect, Some(&["client:web,port:1"])), [kept.clone(), kept.clone()]);
    // Who is not there yet may come.
    let comes = [vec![(port, None)], kept].concat();
    assert_eq!(circuits_behind(&connect, Some(&["client:new,port:0"])), [comes.clone(), comes]);
}

#[test]
fn who_waits_for_memory_that_is_on_its_way_back_gets_it_from_the_one_that_takes_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { clients: 1, ..Limits::default() };
    let config = Config { socket: folder.path().join("nic.sock"), limits, ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let mut old = started(&config);
    // The only place, which is given back by somebody who does not come to say so.
    let user = old.own_user;
    old.quota.take_regardless(user, 1, 4096);
    old.returning.push(user);
    let old = std::thread::spawn(move || old.run());
    let client = Channel::connect(&config.socket).expect("it listens");
    let say = |message: Message| client.send(&message.encode(), &[]).expect("there is room");
    say(Message::Hello(Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: Name::default() }));
    assert!(matches!(hear(&client), Message::Welcome(_)));
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    say(Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: Name::default(), mac: None }));
    // Who is heard behind it has its answer.
    assert!(ask(&config, r#"{"ask": "list"}"#).is_ok());
    let begun = clock::now();
    let (new, stop) = adopted(&config);
    let new = std::thread::spawn(move || new.run());
    let told = hear(&client);
    let took = clock::now().since(begun).seconds();
    assert!(matches!(told, Message::Attached(Attached { geometry: own, .. }) if own == geometry), "{told:?}");
    assert!(took < 1.0, "it waited for {took} s");
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    stop.raise();
    assert!(matches!(new.join(), Ok(Ok(_))));
}

/// Nobody is heard while the one that takes over is waited for: what the others say meanwhile is not too late where that one fails.
#[test]
fn who_speaks_while_a_take_over_fails_is_heard_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config { socket: folder.path().join("nic.sock"), step_timeout_ms: 500, ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let stop = Stop::new().expect("a descriptor");
    let old = Daemon::start(config.clone(), stop.clone(), Box::new(|_| {})).expect("it starts");
    let old = std::thread::spawn(move || old.run());
    let [silent, speaks] = [(); 2].map(|()| Channel::connect(&config.socket).expect("it listens"));
    let heir = Channel::connect(&config.socket).expect("it listens");
    ask_to_adopt(&heir).expect("it answers");
    assert!(matches!(hear(&heir), Message::Part { .. }), "it begins to give over");
    let hello = Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: Name::default() };
    speaks.send(&Message::Hello(hello).encode(), &[]).expect("there is room");
    // Who else is connected; then it waits for a word.
    while heir.wait(Duration::from_millis(700)).expect("a socket") {
        assert!(matches!(hear(&heir), Message::Part { .. }));
    }
    drop(heir);
    assert!(matches!(hear(&speaks), Message::Welcome(_)));
    // Who has said nothing still has the time of a step from then on, and no more.
    let begun = clock::now();
    assert!(matches!(hear(&silent), Message::Refused(refused) if refused.reason == Reason::Timeout));
    let took = clock::now().since(begun).seconds();
    assert!((0.3..3.0).contains(&took), "it was given {took} s");
    stop.raise();
    assert!(matches!(old.join(), Ok(Ok(_))));
}

/// Whose clients do without fences of their own gives them to nobody whose fences do not reach them: that one would miss a call.
#[test]
fn clients_that_rely_on_fences_are_not_taken_over_by_who_has_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let config =
        |name| Config { socket: folder.path().join(name), ..Config::default() }.checked().expect("a sound one");
    let (own, others) = (config("nic.sock"), config("other.sock"));
    let mut old = started(&own);
    old.fences = true;
    let old = std::thread::spawn(move || old.run());
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    let options = Options { geometry, ..Options::default() };
    let (client, _queues) = Client::attach(&own.socket, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut new = started(&others);
    let mut take_over = |fences| {
        new.fences = fences;
        let channel = Channel::connect(&own.socket).expect("it listens");
        Inheritance::ask(channel).and_then(|inheritance| new.take_over(inheritance))
    };
    let why = take_over(false).expect_err("it has none").to_string();
    assert!(why.contains("membarrier"), "{why}");
    assert_eq!((client.maintain(), client.reconnects()), (ClientLink::Up, 0));
    take_over(true).expect("it has");
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    // The next one is told the same.
    let passed: Vec<bool> = new.sessions().map(|(_, session)| session.fences).collect();
    assert_eq!(passed, [true]);
}

/// What it is told of its port, and how long the take-over took in seconds, where the old one has this to do with that, and hears this of it.
fn told_of_a_port(port: PortMove, news: Option<News>) -> (String, f64) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config { socket: folder.path().join("nic.sock"), ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let mut old = started(&config);
    let (own, operator) = Channel::pair().expect("two ends");
    let process = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).expect("a descriptor");
    let peer = Peer { process: 1, user: old.own_user, group: 1 };
    let step = Step::Asking(Unsaid { is_early: true, port: Some(port), ..Unsaid::default() });
    // No other has this number.
    let asks = Connection { channel: own, peer, process, step, deadline: Time::NEVER };
    old.connections.insert(ASKS, asks);
    // Without its bell: it is heard by who waits for it.
    news.into_iter().for_each(|news| old.reports.news.send(news).expect("it listens"));
    let old = std::thread::spawn(move || old.run());
    let begun = clock::now();
    let (new, stop) = adopted(&config);
    let took = clock::now().since(begun).seconds();
    let new = std::thread::spawn(move || new.run());
    let Message::Answer(told) = hear(&operator) else { panic!("it is answered") };
    assert!(matches!(old.join(), Ok(Ok(_))), "the old one ended");
    stop.raise();
    assert!(matches!(new.join(), Ok(Ok(_))));
    (told, took)
}

/// The number of a connection.
const ASKS: u64 = 1 << 40;

#[test]
fn a_port_that_is_being_closed_is_waited_for_and_not_for_long() {
    let again = r#"{"error":"another NIC has taken over: ask again"}"#;
    let (told, took) = told_of_a_port(PortMove::Closing, Some(News::PortClosed { connection: ASKS, failed: None }));
    assert!((told.as_str(), took < 1.0) == (r#"{"done":true}"#, true), "{told} after {took} s");
    let (told, took) = told_of_a_port(PortMove::Closing, None);
    assert!(told == again && (1.0..4.0).contains(&took), "{told} after {took} s");
    let (told, took) = told_of_a_port(PortMove::Opening, None);
    assert!(told == again && took < 1.0, "{told} after {took} s");
}

/// The word comes before the old daemon's deadline, behind it, or at any moment beside it: it is refused where that one serves on, and read
/// where it does not.
#[test]
fn whoever_serves_both_know_it_whenever_the_word_comes() {
    for round in 0..10_000_u64 {
        let (old, new) = Channel::pair().expect("a pair of sockets");
        let mine = Message::Part { descriptors: 0, text: json!(MINE).to_string() }.encode();
        let (say, is_given) = (|| new.send(&mine, &[]).is_ok(), || leaving::is_given(&old, &[], clock::now()));
        let begins = Flag::new();
        let (said, heard) = match round {
            0 => (say(), is_given()),
            1 => {
                let heard = is_given();
                (say(), heard)
            }
            _ => std::thread::scope(|scope| {
                let new = scope.spawn(|| {
                    while !begins.is_up() {
                        spin();
                    }
                    // Somewhat later each time, over what the other takes for all of it.
                    (0..round * 37 % 256).for_each(|_| spin());
                    say()
                });
                begins.raise();
                let heard = is_given();
                (new.join().expect("it does not fail"), heard)
            }),
        };
        assert_eq!(heard, said, "round {round}");
        assert!(round > 1 || heard == (round == 0), "round {round}");
    }
}
