//! How much of a log whoever may connect can cause: little, and what was left out is counted.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::spoken::{hear_message, say};
use crate::waiting::wait_until;
use conic_client::{Client, Operator, Options};
use conic_control::{Message, Reason};
use conic_daemon::{Daemon, DaemonError, Ended, Event, Stop};
use conic_interface::ccnic::Geometry;
use conic_native::channel::Channel;
use conic_native::clock;
use conic_nicd::config::Config;

/// Lines of a kind that one user causes at once, and one more for each of so many seconds: the daemon's.
const AT_ONCE: u64 = 100;
const SECONDS_A_LINE: f64 = 10.0;

/// A daemon that keeps its log.
struct Logged {
    folder: tempfile::TempDir,
    metrics: SocketAddr,
    stop: Stop,
    thread: JoinHandle<Result<Ended, DaemonError>>,
    log: Receiver<Event>,
    heard: RefCell<Vec<Event>>,
}

/// Lines of one kind.
struct Lines {
    said: u64,
    /// Lines that say how many others were left out, and how many that were.
    told_of: u64,
    left_out: u64,
}

impl Logged {
    fn start() -> Logged {
        let folder = tempfile::tempdir().expect("a folder");
        // One that nobody has at this moment.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let metrics = listener.local_addr().expect("its address");
        drop(listener);
        let config = Config { socket: folder.path().join("nic.sock"), metrics: Some(metrics), ..Config::default() };
        let config = config.checked().expect("a sound configuration");
        let (stop, (tell, log)) = (Stop::new().expect("a descriptor"), channel());
        // The test is still there, or has failed.
        let tells = Box::new(move |event: &Event| _ = tell.send(event.clone()));
        let daemon = Daemon::start(config, stop.clone(), tells).expect("it starts");
        Logged {
            folder,
            metrics,
            stop,
            thread: std::thread::spawn(move || daemon.run()),
            log,
            heard: RefCell::default(),
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nic.sock")
    }

    fn attach(&self) -> Client {
        let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
        Client::attach(&self.socket(), &Options { geometry, reconnect: false, ..Options::default() })
            .expect("it is let in")
            .0
    }

    /// What the metrics say was left out of a kind.
    fn left_out_by_metrics(&self, kind: &str) -> u64 {
        let mut stream = TcpStream::connect(self.metrics).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("there is room");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let name = format!("conic_log_left_out_total{{event=\"{kind}\"}} ");
        let count = answer.lines().find_map(|line| line.strip_prefix(&name));
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name}in {answer}"))
    }

    /// How many lines of a kind there are until now.
    fn said(&self, is_it: fn(&Event) -> bool) -> u64 {
        let mut heard = self.heard.borrow_mut();
        heard.extend(self.log.try_iter());
        heard.iter().filter(|event| is_it(event)).count() as u64
    }

    /// The lines of a kind until its end.
    fn end(self, kind: &str, is_it: fn(&Event) -> bool) -> Lines {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(_))));
        let events: Vec<Event> = self.heard.into_inner().into_iter().chain(self.log.try_iter()).collect();
        assert_eq!(events.last(), Some(&Event::Ended));
        let mut lines = Lines { said: 0, told_of: 0, left_out: 0 };
        for event in events {
            match event {
                Event::TooMany { kind: of, lines: count, .. } if of == kind => {
                    lines.told_of += 1;
                    lines.left_out += count;
                }
                other => lines.said += u64::from(is_it(&other)),
            }
        }
        lines
    }
}

/// Lines that are said at most from a time on.
fn most_since(begun: conic_fabric::Time) -> u64 {
    AT_ONCE + (clock::now().since(begun).seconds() / SECONDS_A_LINE) as u64 + 1
}

#[test]
fn who_is_refused_ten_thousand_times_does_not_fill_the_log() {
    const REFUSALS: u64 = 10_000;
    let (logged, begun) = (Logged::start(), clock::now());
    for _ in 0..REFUSALS {
        let channel = Channel::connect(&logged.socket()).expect("it listens");
        // Nobody begins with that.
        say(&channel, &Message::Detach);
        let heard = hear_message(&channel);
        assert!(matches!(&heard, Message::Refused(refused) if refused.reason == Reason::Malformed), "{heard:?}");
    }
    let most = most_since(begun);
    let by_metrics = logged.left_out_by_metrics("refused");
    let lines = logged.end("refused", |event| matches!(event, Event::Refused { .. }));
    assert!((AT_ONCE..=most).contains(&lines.said), "{} lines", lines.said);
    assert_eq!(lines.said + lines.left_out, REFUSALS);
    assert_eq!(by_metrics, lines.left_out);
    assert!(lines.told_of <= lines.said - AT_ONCE + 1, "{} lines say how many were left out", lines.told_of);
}

#[test]
fn who_changes_its_address_ten_thousand_times_does_not_fill_the_log() {
    const CHANGES: u64 = 10_000;
    let (logged, begun) = (Logged::start(), clock::now());
    let client = logged.attach();
    for number in 0..CHANGES {
        let [.., high, low] = number.to_be_bytes();
        client.set_mac([2, 0, 0, 7, high, low]).expect("it is nobody else's");
    }
    drop(client);
    let most = most_since(begun);
    let by_metrics = logged.left_out_by_metrics("readdressed");
    let lines = logged.end("readdressed", |event| matches!(event, Event::Readdressed { .. }));
    assert!((AT_ONCE..=most).contains(&lines.said), "{} lines", lines.said);
    assert_eq!(lines.said + lines.left_out, CHANGES);
    assert_eq!(by_metrics, lines.left_out);
}

/// What comes and goes is counted likewise; what an operator does is said, however often.
#[test]
fn each_client_that_an_operator_detaches_is_said_and_not_each_that_comes() {
    const CLIENTS: u64 = AT_ONCE + 30;
    let (logged, begun) = (Logged::start(), clock::now());
    let operator = Operator::connect(&logged.socket(), Duration::from_secs(20)).expect("it listens");
    for _ in 0..CLIENTS {
        let client = logged.attach();
        let question = format!("{{\"ask\":\"detach\",\"client\":{}}}", client.attached().session);
        operator.ask(&question).expect("it is done");
    }
    let (most, detached) = (most_since(begun), logged.left_out_by_metrics("detached"));
    let lines = logged.end("attached", |event| matches!(event, Event::Attached { .. }));
    assert!((AT_ONCE..=most).contains(&lines.said), "{} lines", lines.said);
    assert_eq!((lines.said + lines.left_out, detached), (CLIENTS, 0));
}

#[test]
fn who_comes_and_goes_causes_few_lines_of_either() {
    const CLIENTS: u64 = 2 * AT_ONCE;
    let (logged, begun) = (Logged::start(), clock::now());
    for _ in 0..CLIENTS {
        drop(logged.attach());
    }
    // A client is gone before its threads have let go of its region, behind which the line comes.
    let is_detached = |event: &Event| matches!(event, Event::Detached { .. });
    wait_until("all have a line, or are counted", || {
        logged.said(is_detached) + logged.left_out_by_metrics("detached") == CLIENTS
    });
    let most = most_since(begun);
    let lines = logged.end("detached", is_detached);
    assert!((AT_ONCE..=most).contains(&lines.said), "{} lines", lines.said);
    assert_eq!(lines.said + lines.left_out, CLIENTS);
}
