//! Mirrors that the configuration asks for: who is copied to which file, from when on, and what happens where that cannot be.

use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::waiting::wait_until;
use conic_client::{Client, Operator, Options, Queue};
use conic_control::Name;
use conic_daemon::{Daemon, DaemonError, Ended, Event, Log, Stop};
use conic_interface::ccnic::Geometry;
use conic_nicd::config::Config;
use conic_port::CaptureReader;

/// A running daemon, and what it logs.
struct Nic {
    stop: Stop,
    thread: JoinHandle<Result<Ended, DaemonError>>,
    events: Receiver<Event>,
    heard: RefCell<Vec<Event>>,
}

impl Nic {
    fn run(config: &Config, make: fn(Config, Stop, Log) -> Result<Daemon, DaemonError>) -> Nic {
        let stop = Stop::new().expect("a descriptor");
        let (tell, events) = channel();
        let log = Box::new(move |event: &Event| {
            // Nobody listens any more where the test has gone on to another.
            let _ = tell.send(event.clone());
        });
        let (config, raised) = (config.clone(), stop.clone());
        let thread = std::thread::spawn(move || make(config, raised, log)?.run());
        let nic = Nic { stop, thread, events, heard: RefCell::default() };
        wait_until("it listens", || nic.logged(|event| matches!(event, Event::Listening { .. })));
        nic
    }

    fn logged(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        let mut heard = self.heard.borrow_mut();
        heard.extend(self.events.try_iter());
        heard.iter().any(wanted)
    }

    fn end(self) {
        self.stop.raise();
        assert!(matches!(self.thread.join(), Ok(Ok(_))));
    }
}

fn attach(config: &Config, name: &str) -> (Client, Queue) {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [256, 64, 4], object_bytes: 0 };
    let options = Options { geometry, name: Name::new(name).expect("a name"), ..Options::default() };
    let (client, mut queues) = Client::attach(&config.socket, &options).unwrap_or_else(|error| panic!("{error}"));
    (client, queues.remove(0))
}

/// Sends a frame of so many bytes to everybody.
fn send(client: &Client, queue: &mut Queue, bytes: usize) {
    let mut frame = queue.allocate(bytes).expect("a buffer");
    frame.write(0, &[&[0xff; 6], &client.mac()[..], &[0x88, 0xb5], &[bytes as u8; 46]].concat());
    assert_eq!(queue.transmit(&mut vec![frame]), 1);
}

/// Receives until a frame of so many bytes has come.
fn gets(queue: &mut Queue, bytes: usize) {
    wait_until("the frame comes", || {
        let mut incoming = Vec::new();
        queue.receive(&mut incoming, 32);
        incoming.iter().any(|frame| frame.to_vec().len() == bytes)
    });
}

/// The lengths of the frames in a capture file, once there are so many.
fn lengths(file: &Path, count: usize) -> Vec<usize> {
    let mut found = Vec::new();
    wait_until("the file is written out", || {
        found.clear();
        let Ok(mut reader) = CaptureReader::open(file) else { return false };
        while let Ok(Some(_)) = reader.next_record() {
            found.push(reader.data().len());
        }
        found.len() >= count
    });
    found
}

#[test]
fn ports_and_clients_are_copied_from_the_start_and_across_a_take_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let text = format!(
        "socket = \"{0}/nic.sock\"\n[[network]]\n[[network.port]]\nspec = \"capture:record={0}/gone.pcap\"\n\
         [[network.mirror]]\nend = \"port:0\"\nfile = \"{0}/port.pcapng\"\n\
         [[network.mirror]]\nend = \"client:web\"\nfile = \"{0}/web.pcap\"\nmost_bytes = 150\n",
        path.display()
    );
    let config = Config::read(&text).expect("a sound file");
    let nic = Nic::run(&config, Daemon::start);
    let (web, mut of_web) = attach(&config, "web");
    let (other, mut of_other) = attach(&config, "other");
    // The second is too much for the client's file, and nothing behind it is let through.
    [70, 90, 60].into_iter().for_each(|bytes| send(&web, &mut of_web, bytes));
    gets(&mut of_other, 60);
    send(&other, &mut of_other, 65);
    gets(&mut of_web, 65);
    // Each that calls itself so has a file of its own.
    let (again, mut of_again) = attach(&config, "web");
    send(&again, &mut of_again, 80);
    gets(&mut of_other, 80);
    // The new one goes on with the clients, and has files of its own; its port, which cannot be passed on, is another.
    let moved = Config::read(&text.replace("gone.pcap", "gone_on.pcap")).expect("a sound file");
    let next = Nic::run(&moved, Daemon::adopt);
    assert!(matches!(nic.thread.join(), Ok(Ok(_))), "the old one ended");
    send(&web, &mut of_web, 75);
    gets(&mut of_other, 75);
    send(&again, &mut of_again, 85);
    gets(&mut of_other, 85);
    next.end();
    for (file, expected) in [
        ("port.pcapng", &[70, 90, 60, 65, 80][..]),
        ("web.pcap", &[70]),
        ("web.1.pcap", &[80]),
        ("port.1.pcapng", &[75, 85]),
        ("web.2.pcap", &[75]),
        ("web.3.pcap", &[75]),
    ] {
        assert_eq!(lengths(&path.join(file), expected.len()), expected, "{file}");
    }
}

#[test]
fn who_cannot_be_copied_is_served_and_it_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "socket = \"{0}/nic.sock\"\n[[network]]\nmode = \"loopback\"\n\
         [[network.mirror]]\nend = \"client:lost\"\nfile = \"{0}/nowhere/lost.pcap\"\n\
         [[network.mirror]]\nend = \"client:many\"\nfile = \"{0}/many.pcap\"\n",
        folder.path().display()
    );
    let config = Config::read(&text).expect("a sound file");
    let nic = Nic::run(&config, Daemon::start);
    let said = |part: &str| nic.logged(|event| matches!(event, Event::NotMirrored { text, .. } if text.contains(part)));
    let (lost, mut of_lost) = attach(&config, "lost");
    assert!(said("nowhere/lost.pcap"));
    send(&lost, &mut of_lost, 60);
    wait_until("it is served", || of_lost.receive(&mut Vec::new(), 1) == 1);
    // Whoever comes again and again fills no disk.
    for _ in 0..16 {
        attach(&config, "many");
    }
    assert!(!said("many.pcap"));
    attach(&config, "many");
    assert!(said("many.pcap and 15 more like it are there already"));
    nic.end();
}

#[test]
fn what_an_operator_mirrors_goes_over_to_another_daemon() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let text = format!(
        "socket = \"{0}/nic.sock\"\n[[network]]\n[[network.port]]\nspec = \"capture:record={0}/wire.pcap\"\n\
         [[network.port]]\nspec = \"memif:{0}/memif.sock\"\n\
         [[network.mirror]]\nend = \"client:web\"\nfile = \"{0}/configured.pcap\"\n",
        path.display()
    );
    let config = Config::read(&text).expect("a sound file");
    let nic = Nic::run(&config, Daemon::start);
    let (web, mut of_web) = attach(&config, "web");
    let (_other, mut of_other) = attach(&config, "other");
    let ask = |end: &str, file: Option<&str>| {
        let operator = Operator::connect(&config.socket, Duration::from_secs(10)).expect("it listens");
        let file = file
            .map_or_else(String::new, |file| format!(r#", "file": "{}/{file}", "most_bytes": 150"#, path.display()));
        let answer = operator.ask(&format!(r#"{{"ask": "mirror", "end": "{end}"{file}}}"#)).expect("an answer");
        assert!(answer.contains("done"), "{answer}");
    };
    // In place of the configuration's; the ports'; and one that ends before.
    ask("client:1", Some("client.pcap"));
    ask("port:0", Some("port.pcapng"));
    ask("port:1", Some("memif.pcapng"));
    ask("client:2", Some("ended.pcap"));
    ask("client:2", None);
    send(&web, &mut of_web, 70);
    gets(&mut of_other, 70);
    // Each has taken 70 bytes of its 150: there is room for one more such frame, and not for two.
    let moved = Config::read(&text.replace("wire.pcap", "wire_on.pcap")).expect("a sound file");
    let next = Nic::run(&moved, Daemon::adopt);
    assert!(matches!(nic.thread.join(), Ok(Ok(_))), "the old one ended");
    [75, 76].into_iter().for_each(|bytes| send(&web, &mut of_web, bytes));
    gets(&mut of_other, 76);
    // And on to a third, by which time nothing is left.
    let third = Config::read(&text.replace("wire.pcap", "wire_still.pcap")).expect("a sound file");
    let last = Nic::run(&third, Daemon::adopt);
    assert!(matches!(next.thread.join(), Ok(Ok(_))), "the second one ended");
    send(&web, &mut of_web, 77);
    gets(&mut of_other, 77);
    last.end();
    // A port that is another port in the new daemon is not the one that was mirrored.
    for (file, expected) in [
        ("client.pcap", &[70][..]),
        ("client.1.pcap", &[75]),
        ("client.2.pcap", &[]),
        ("port.pcapng", &[70]),
        ("configured.pcap", &[]),
    ] {
        assert_eq!(lengths(&path.join(file), expected.len()), expected, "{file}");
    }
    let exists = |file: &str| path.join(file).exists();
    assert!(exists("memif.2.pcapng") && !exists("port.1.pcapng") && !exists("ended.1.pcap"));
}
