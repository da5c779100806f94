//! What Prometheus reads: the counters as text, over HTTP on loopback.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use conic_control::REASONS;
use conic_fabric::Time;
use conic_native::clock;
use conic_nicd::switch::MirrorCounters;
use conic_port::LEVELS;

use super::Daemon;
use super::network::Network;
use super::operator::party_text;
use crate::connection::mac_text;
use crate::event::CAUSED;
use crate::order::Report;

/// The bounds of what is told of times between looks, as powers of two of picoseconds: from 66 ns to 1.1 s.
const LOOKS: std::ops::RangeInclusive<u32> = 16..=40;

/// How long a reader may take to ask, and then to read all of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a reader that has its answer may take to end, and how many bytes of it are taken until then.
const FAREWELL: Duration = Duration::from_secs(1);
const REST: usize = 1 << 20;

/// Readers at one time.
const MOST_READERS: usize = 4;

/// Bytes of a request that are read; what matters stands in its first line.
const REQUEST: usize = 4096;

/// The socket, and who reads.
pub(super) struct Metrics {
    pub listener: TcpListener,
    /// As many copies as there are readers, and this one.
    readers: Arc<()>,
}

impl Metrics {
    pub fn new(listener: TcpListener) -> Metrics {
        Metrics { listener, readers: Arc::new(()) }
    }
}

impl Daemon {
    /// Answers one reader, on a thread of its own, so that one who is slow holds nobody up.
    pub(super) fn serve_metrics(&mut self) {
        let Some(metrics) = &self.metrics else { return };
        let stream = match metrics.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => return self.shut_door(&error),
        };
        if Arc::strong_count(&metrics.readers) > MOST_READERS {
            return;
        }
        let (own, text) = (Arc::clone(&metrics.readers), self.metrics_text());
        let answered = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            // A reader that is gone, or too slow, asks again.
            let _ = answer(stream, &text);
            drop(own);
        });
        // Without a thread nobody is answered, and the reader sees its connection closed.
        drop(answered);
    }

    /// The counters as Prometheus reads them.
    pub(super) fn metrics_text(&self) -> String {
        let reports: Vec<Report> = self.networks.iter().map(|network| network.report()).collect();
        let mut text = String::new();
        text += &head("clients", "gauge", "Clients that are attached.");
        for (index, network) in self.networks.iter().enumerate() {
            let count = self.sessions().filter(|(_, session)| session.network == index).count();
            let _ = writeln!(text, "conic_clients{{network=\"{}\"}} {count}", network.config.name);
        }
        text += &head("refusals_total", "counter", "Clients that were refused or detached, by reason.");
        for (reason, name) in REASONS {
            let count = self.refusals.get(&reason).copied().unwrap_or(0);
            let _ = writeln!(text, "conic_refusals_total{{reason=\"{name}\"}} {count}");
        }
        text += &head(
            "log_left_out_total",
            "counter",
            "Lines that were left out of the log because a user caused too many of a kind, by kind.",
        );
        for kind in CAUSED {
            let _ = writeln!(text, "conic_log_left_out_total{{event=\"{kind}\"}} {}", self.journal.left_out(kind));
        }
        let mut clients = Counted::new("client", "What passed between a client and the NIC, and what did not");
        let mut faults = head("client_faults_total", "counter", "What a client did that it should not have.");
        for (_, session) in self.sessions() {
            let own = reports[session.network].clients.iter().find(|(number, ..)| *number == session.session);
            let Some((_, counters, wrong)) = own else { continue };
            let label = format!(
                "session=\"{}\",name=\"{}\",network=\"{}\",mac=\"{}\"",
                session.session,
                session.name.as_str(),
                self.networks[session.network].config.name,
                mac_text(session.mac)
            );
            for (name, count) in counters.named() {
                clients.add(&label, name, count);
            }
            for (name, count) in wrong.named() {
                let _ = writeln!(faults, "conic_client_faults_total{{{label},what=\"{name}\"}} {count}");
            }
        }
        let mut ports = Counted::new("port", "What passed through a port, and what did not");
        let mut levels =
            head("port_level", "gauge", "What a port has, or is, at the moment: 1 for what is so, for each queue.");
        for (network, report) in self.networks.iter().zip(&reports) {
            for port in &report.ports {
                let label = format!("network=\"{}\",port=\"{}\"", network.config.name, port.number);
                for (name, count) in port.own.iter().chain(&port.switch.named()) {
                    if LEVELS.contains(name) {
                        let _ = writeln!(levels, "conic_port_level{{{label},what=\"{name}\"}} {count}");
                    } else {
                        ports.add(&label, name, *count);
                    }
                }
            }
        }
        text + &clients.text()
            + &faults
            + &ports.text()
            + &levels
            + &self.looks_text(&reports)
            + &self.wiring_text(&reports)
    }

    /// How long queues wait between two looks at them, as histograms.
    fn looks_text(&self, reports: &[Report]) -> String {
        let what = "Time between two looks of a network's thread at its queues, without its sleep.";
        let mut text = head("look_interval_seconds", "histogram", what);
        for (Network { config, .. }, (thread, looks)) in
            self.networks.iter().zip(reports).flat_map(|(one, report)| report.looks.iter().map(move |of| (one, of)))
        {
            let label = format!("network=\"{}\",thread=\"{thread}\"", config.name);
            let below =
                |most: u64| looks.buckets().filter(|(below, _)| *below <= most).map(|(_, looks)| looks).sum::<u64>();
            for most in LOOKS.map(|bits| 1u64 << bits) {
                let seconds = Time::from_picoseconds(most).seconds();
                let _ =
                    writeln!(text, "conic_look_interval_seconds_bucket{{{label},le=\"{seconds}\"}} {}", below(most));
            }
            let (all, seconds) = (below(u64::MAX), looks.total().seconds());
            let _ = writeln!(text, "conic_look_interval_seconds_bucket{{{label},le=\"+Inf\"}} {all}");
            let _ = writeln!(text, "conic_look_interval_seconds_sum{{{label}}} {seconds}");
            let _ = writeln!(text, "conic_look_interval_seconds_count{{{label}}} {all}");
        }
        text
    }

    /// Who is connected to whom, who has flows pinned, who is looked into, what went from thread to thread.
    fn wiring_text(&self, reports: &[Report]) -> String {
        let mut circuits = head("circuit", "gauge", "Cross-connects: 1 with both ends there, 0 with one.");
        let mut pins = head("pinned_flows", "gauge", "Flows that are pinned to a client.");
        let what = "Whether a client gets frames for stations that nobody is known to have: 1 or 0.";
        let mut promiscuous = head("client_promiscuous", "gauge", what);
        let mut trunks = Counted::new("trunk", "What went from one thread of a network to another, and what did not");
        let mut mirrors = Counted::new("mirror", "What was copied of a client's or a port's frames");
        for (Network { config, .. }, report) in self.networks.iter().zip(reports) {
            let network = &config.name;
            for (near, circuit, other) in &report.circuits {
                // With both ends there it stands there twice.
                if circuit.far && other.is_some() {
                    continue;
                }
                let (near, far) = (party_text(*near), other.map(party_text));
                let (far, whole) = (far.as_deref().unwrap_or(""), u8::from(far.is_some()));
                let ends = if circuit.far { [far, near.as_str()] } else { [near.as_str(), far] };
                let label = format!("network=\"{network}\",near=\"{}\",far=\"{}\"", ends[0], ends[1]);
                let _ = writeln!(circuits, "conic_circuit{{{label}}} {whole}");
            }
            for (session, ..) in &report.clients {
                let count = report.pins.iter().filter(|(own, _)| own == session).count();
                let _ = writeln!(pins, "conic_pinned_flows{{network=\"{network}\",session=\"{session}\"}} {count}");
                let is = u8::from(report.promiscuous.contains(session));
                let label = format!("network=\"{network}\",session=\"{session}\"");
                let _ = writeln!(promiscuous, "conic_client_promiscuous{{{label}}} {is}");
            }
            for (from, to, counters) in &report.trunks {
                let label = format!("network=\"{network}\",from=\"{from}\",to=\"{to}\"");
                for (what, count) in counters.named() {
                    trunks.add(&label, what, count);
                }
            }
            for (party, MirrorCounters { frames, bytes, dropped }) in &report.mirrors {
                let label = format!("network=\"{network}\",end=\"{}\"", party_text(*party));
                for (what, count) in [("copied_frames", frames), ("copied_bytes", bytes), ("dropped", dropped)] {
                    mirrors.add(&label, what, *count);
                }
            }
        }
        circuits + &pins + &promiscuous + &mirrors.text() + &trunks.text()
    }
}

/// Counters of one kind of thing, told apart by `what`. Bytes are a metric of their own, for who sums one over `what`.
struct Counted {
    name: &'static str,
    counts: String,
    bytes: String,
}

impl Counted {
    fn new(name: &'static str, help: &str) -> Counted {
        let counts = head(&format!("{name}_total"), "counter", &format!("{help}."));
        let bytes = head(&format!("{name}_bytes_total"), "counter", &format!("{help}; in bytes."));
        Counted { name, counts, bytes }
    }

    fn add(&mut self, label: &str, what: &str, count: u64) {
        let name = self.name;
        let _ = match what.strip_suffix("_bytes") {
            Some(what) => writeln!(self.bytes, "conic_{name}_bytes_total{{{label},what=\"{what}\"}} {count}"),
            None => writeln!(self.counts, "conic_{name}_total{{{label},what=\"{what}\"}} {count}"),
        };
    }

    fn text(self) -> String {
        self.counts + &self.bytes
    }
}

/// What stands before a metric.
fn head(name: &str, kind: &str, help: &str) -> String {
    format!("# HELP conic_{name} {help}\n# TYPE conic_{name} {kind}\n")
}

/// Reads a request and answers it. What is sent beyond what is looked at is taken too, up to a bound: bytes that lie unread when a connection
/// is closed reset it, and what the other side has not read yet of its answer would be lost (RFC 9112, 9.6).
fn answer(stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    let request = read_within(&stream, PATIENCE)?;
    let line = String::from_utf8_lossy(&request);
    let (status, body) = match line.split_ascii_whitespace().take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => ("200 OK", text),
        ["GET", _] => ("404 Not Found", "there is /metrics\n"),
        _ => ("405 Method Not Allowed", "GET /metrics\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    write_within(&stream, (head + body).as_bytes(), PATIENCE)?;
    stream.shutdown(Shutdown::Write)?;
    drain_within(&stream, FAREWELL)
}

/// Takes what comes until its end, as much as is taken of it, or for as long.
fn drain_within(mut stream: &TcpStream, most: Duration) -> std::io::Result<()> {
    let until = clock::now() + Time::from_nanoseconds(most.as_nanos() as u64);
    let (mut room, mut left) = ([0; REQUEST], REST);
    while left > 0 {
        stream.set_read_timeout(Some(left_until(until)?))?;
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(count) => left = left.saturating_sub(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a request, in however many pieces it comes: until its empty line, as much as is read of one, or its end; or fails when that
/// takes longer.
fn read_within(mut stream: &TcpStream, most: Duration) -> std::io::Result<Vec<u8>> {
    let until = clock::now() + Time::from_nanoseconds(most.as_nanos() as u64);
    let (mut request, mut count) = (vec![0; REQUEST], 0);
    // Some end their lines without a carriage return (RFC 9112, 2.2).
    let is_whole =
        |request: &[u8]| request.windows(2).any(|end| end == b"\n\n") || request.windows(3).any(|end| end == b"\n\r\n");
    while count < REQUEST && !is_whole(&request[..count]) {
        stream.set_read_timeout(Some(left_until(until)?))?;
        match stream.read(&mut request[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    request.truncate(count);
    Ok(request)
}

/// How long it is until then; an error if it is over.
fn left_until(until: Time) -> std::io::Result<Duration> {
    let left = Duration::from_nanos(until.since(clock::now()).nanoseconds());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Writes all of it, or fails when that takes longer. The stream's own limit is one for each write: whoever reads a little now and then
/// would keep its thread, and its place, for as long as it likes.
fn write_within(mut stream: &TcpStream, mut bytes: &[u8], most: Duration) -> std::io::Result<()> {
    let until = clock::now() + Time::from_nanoseconds(most.as_nanos() as u64);
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left_until(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use conic_native::yield_core;
    use conic_nicd::config::{Config, NetworkConfig, PortConfig};

    use super::*;
    use crate::bell::Stop;

    /// A counter that goes back is taken for one that began anew.
    #[test]
    fn what_a_port_has_at_the_moment_is_a_gauge_and_what_it_counts_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = format!("memif:{}", folder.path().join("memif.sock").display());
        let networks = vec![NetworkConfig { ports: vec![PortConfig { spec, vlan: None }], ..NetworkConfig::default() }];
        let config = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
        let config = config.checked().expect("a sound configuration");
        let stop = Stop::new().expect("a descriptor");
        let text = Daemon::start(config, stop, Box::new(|_| {})).expect("it starts").metrics_text();
        let published = |what: &str| {
            let label = format!("what=\"{what}\"");
            let of_it = text.lines().filter(|line| line.contains(&label) && line.starts_with("conic_port"));
            of_it.filter_map(|line| line.split('{').next()).collect::<Vec<_>>()
        };
        assert_eq!(published("interrupts_may_wait"), ["conic_port_level"]);
        assert_eq!(published("sessions_ended"), ["conic_port_total"]);
        for line in ["# TYPE conic_port_level gauge", "# TYPE conic_port_total counter"] {
            assert!(text.lines().any(|one| one == line), "{line}");
        }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let reader = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        (reader, listener.accept().expect("somebody has connected").0)
    }

    /// What is answered to a request that comes in two pieces, at different times.
    fn answered(first: &str, second: &str) -> String {
        let (mut reader, stream) = pair();
        reader.write_all(first.as_bytes()).expect("there is room");
        let answering = std::thread::spawn(move || answer(stream, "counters\n"));
        let until = clock::now() + Time::from_nanoseconds(50_000_000);
        while clock::now() < until {
            yield_core();
        }
        reader.write_all(second.as_bytes()).expect("there is room");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("it is answered");
        drop(reader);
        answering.join().expect("it ends").expect("it was answered");
        text
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        for (first, second) in [
            ("GE", "T /metrics HTTP/1.1\r\n\r\n"),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", "\r\n"),
            ("GET /metrics\n", "\n"),
        ] {
            let text = answered(first, second);
            assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\ncounters\n"), "{first}: {text}");
        }
    }

    #[test]
    fn a_request_that_is_longer_than_what_is_looked_at_has_its_answer_all_the_same() {
        for _ in 0..20 {
            let more = "a".repeat(100 * REQUEST);
            let text = answered("GET /metrics HTTP/1.1\r\nHost: ", &more);
            assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\ncounters\n"), "{text}");
        }
        let text = answered("POST /metrics HTTP/1.1\r\n\r\n", "what is posted");
        assert!(text.starts_with("HTTP/1.1 405 "), "{text}");
    }

    #[test]
    fn a_reader_that_does_not_end_is_not_waited_for() {
        let (mut reader, stream) = pair();
        reader.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("there is room");
        let begun = clock::now();
        let error = answer(stream, "counters\n").expect_err("it does not end").kind();
        assert!(matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error:?}");
        assert!(clock::now().since(begun).seconds() < 20.0);
        // One that sends without end has its answer, and no more is taken than is said.
        let (reader, stream) = pair();
        let sending = std::thread::spawn(move || {
            let mut sent = 0;
            while let Ok(count) = (&reader).write(&[b'a'; REQUEST]) {
                sent += count;
            }
            sent
        });
        let _ = answer(stream, "counters\n");
        assert!(sending.join().expect("it ends") >= REST);
    }

    #[test]
    fn a_request_that_does_not_end_is_not_waited_for() {
        let (mut reader, stream) = pair();
        reader.write_all(b"GET /metrics HTTP/1.1\r\n").expect("there is room");
        let error = read_within(&stream, Duration::from_millis(30)).expect_err("it does not end").kind();
        assert!(matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error:?}");
        // One that is longer than what is read of it is as good as whole.
        reader.write_all(&[b'a'; 2 * REQUEST]).expect("there is room");
        assert_eq!(read_within(&stream, Duration::from_secs(20)).expect("it comes").len(), REQUEST);
    }

    /// Megabytes: more than sockets hold.
    const LONG: usize = 32 << 20;

    /// What comes of writing so much to a reader that takes 256 KiB, and waits so many milliseconds, again and again; what it got.
    fn written(most: Duration, wait: u64) -> (std::io::Result<()>, usize) {
        let (mut reader, stream) = pair();
        let read = std::thread::spawn(move || {
            let (mut got, mut room) = (0, vec![0; 256 << 10]);
            loop {
                match reader.read(&mut room) {
                    Ok(0) | Err(_) => return got,
                    Ok(count) => got += count,
                }
                let until = clock::now() + Time::from_nanoseconds(1_000_000 * wait);
                while clock::now() < until {
                    yield_core();
                }
            }
        });
        let result = write_within(&stream, &vec![b'a'; LONG], most);
        drop(stream);
        (result, read.join().expect("it ends"))
    }

    #[test]
    fn who_reads_too_slowly_is_left_though_it_reads() {
        let (result, got) = written(Duration::from_millis(300), 20);
        let error = result.expect_err("it takes two seconds and a half").kind();
        assert!(matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error:?}");
        assert!((1..LONG).contains(&got), "{got}");
        let (result, got) = written(Duration::from_secs(60), 0);
        assert!(result.is_ok() && got == LONG, "{result:?}, {got}");
    }
}
