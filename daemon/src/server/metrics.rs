//! What Prometheus reads: the counters as text, over HTTP on loopback.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use conic_control::REASONS;

use super::Daemon;
use crate::connection::mac_text;
use crate::worker::Report;

/// How long a reader may take to ask and to read.
const PATIENCE: Duration = Duration::from_secs(2);

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
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
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
        let reports: Vec<Report> = self.networks.iter().map(|network| network.worker.report()).collect();
        let mut text = String::new();
        let head =
            |name: &str, kind: &str, help: &str| format!("# HELP conic_{name} {help}\n# TYPE conic_{name} {kind}\n");
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
        let mut clients =
            head("client_total", "counter", "What passed between a client and the NIC, and what did not.");
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
                let _ = writeln!(clients, "conic_client_total{{{label},what=\"{name}\"}} {count}");
            }
            for (name, count) in wrong.named() {
                let _ = writeln!(faults, "conic_client_faults_total{{{label},what=\"{name}\"}} {count}");
            }
        }
        let mut ports = head("port_total", "counter", "What passed through a port, and what did not.");
        for (network, report) in self.networks.iter().zip(&reports) {
            for (number, port) in report.ports.iter().enumerate() {
                for (name, count) in port.own.iter().chain(&port.switch.named()) {
                    let label = format!("network=\"{}\",port=\"{number}\",what=\"{name}\"", network.config.name);
                    let _ = writeln!(ports, "conic_port_total{{{label}}} {count}");
                }
            }
        }
        text + &clients + &faults + &ports
    }
}

/// Reads a request and answers it.
fn answer(mut stream: TcpStream, text: &str) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = vec![0; REQUEST];
    let count = stream.read(&mut request)?;
    let line = String::from_utf8_lossy(&request[..count]);
    let (status, body) = match line.split_ascii_whitespace().take(2).collect::<Vec<_>>()[..] {
        ["GET", "/metrics"] => ("200 OK", text),
        ["GET", _] => ("404 Not Found", "there is /metrics\n"),
        _ => ("405 Method Not Allowed", "GET /metrics\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
