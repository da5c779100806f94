//! `conic ctl`: an operator's questions to a NIC that runs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use conic_client::Operator;
use conic_nicd::switch::Pattern;
use conic_port::PortSpec;
use serde_json::{Value, json};

use crate::value::grouped;

/// How long the NIC may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ask a NIC that runs what it does, and tell it what to change. For root and the user who started it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The NIC's socket
    #[arg(long, value_name = "PATH", default_value = "/run/conic/nic.sock", global = true)]
    socket: PathBuf,
    /// Print the NIC's answer as one JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  conic ctl list                                   networks, ports and clients
  conic ctl list --json                            all counters
  conic ctl limit 7 --rate 125000000               client 7 sends a gigabit a second at most
  conic ctl limit 7                                client 7 sends what it likes again
  conic ctl detach 7                               client 7 is detached
  conic ctl attach tap:lab1,address=10.9.1.1/24    a port more, whose number is printed
  conic ctl detach port:2                          port 2 goes, with all that was known of it
  conic ctl connect client:7 port:0                client 7 and the first port reach each other and nobody else
  conic ctl disconnect client:7                    both reach everybody again
  conic ctl pin 7 --queue 2 --match protocol=tcp,destination-port=80
                                                   web traffic goes to queue 2 of client 7, whatever its address
  conic ctl mirror client:7 seven.pcapng           copy what client 7 sends and gets to a file, 64 MiB at most
  conic ctl mirror client:7                        end that
  conic ctl unpin 7                                client 7 gets what is addressed to it, spread over its queues";

#[derive(Subcommand)]
enum Command {
    /// Networks, ports and clients with what passed and what did not
    #[command(after_help = "Example:\n  conic ctl list")]
    List,
    /// Limit what a client sends, or take its limit away
    #[command(after_help = "Example:\n  conic ctl limit 7 --rate 125000000")]
    Limit {
        /// The client's number, from list
        client: u64,
        /// Bytes a second; without it there is no limit
        #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
        rate: Option<u64>,
        /// Bytes that may be sent at once after a pause
        #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..))]
        burst: u64,
    },
    /// Connect two: all that one sends goes to the other, unchanged and whatever its address, and to nobody else
    #[command(after_help = "Example:\n  conic ctl connect client:7 port:0")]
    Connect {
        /// One end: client:NUMBER or port:NUMBER, both from list; ports are counted from 0
        near: String,
        /// The other
        far: String,
        /// Their network [default: the NIC's first]
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Undo a connection: both ends reach everybody again
    #[command(after_help = "Example:\n  conic ctl disconnect client:7")]
    Disconnect {
        /// One of its ends, as for connect
        end: String,
        /// Its network [default: the NIC's first]
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Give a flow to a client, or to one of its queues, whatever it is addressed to; the first pin that fits counts
    #[command(after_help = "Example:\n  conic ctl pin 7 --queue 2 --match protocol=tcp,destination-port=80")]
    Pin {
        /// The client's number, from list
        client: u64,
        /// The queue, counted from 0 [default: spread over all by the flow's hash]
        #[arg(long, value_name = "QUEUE")]
        queue: Option<u32>,
        /// Which frames, as KEY=VALUE separated by commas: destination-mac, source-mac, vlan, protocol (tcp, udp, ..., or a number),
        /// source, destination (10.0.0.2, 10.0.0.0/24, fd00::/8), source-port, destination-port
        #[arg(long = "match", value_name = "PATTERN")]
        pattern: Pattern,
    },
    /// Copy what a client or port sends and gets to a new capture file that the NIC writes, or end that. The NIC never waits for the
    /// file: what cannot be written at once is left out and counted, in list
    #[command(after_help = "Example:\n  conic ctl mirror client:7 seven.pcapng")]
    Mirror {
        /// Whose frames: client:NUMBER or port:NUMBER, both from list
        end: String,
        /// The file, .pcapng or .pcap, where the NIC may write (as a service: below /var/log/conic); without it the copying ends
        file: Option<PathBuf>,
        /// Bytes of frames that the file takes
        #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// Its network [default: the NIC's first]
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Take a client's pinned flows away
    #[command(after_help = "Example:\n  conic ctl unpin 7")]
    Unpin {
        /// The client's number, from list
        client: u64,
    },
    /// Attach a port to a network, and print its number; it stays until it is detached, also when another NIC takes over
    #[command(after_help = attach_help())]
    Attach {
        /// The port, as KIND:ARGUMENTS (see below); files and sockets by their whole path
        port: PortSpec,
        /// The VLAN that it is a member of: its frames have no tags [default: it passes tags as they are]
        #[arg(long, value_name = "VLAN")]
        vlan: Option<u16>,
        /// Its network [default: the NIC's first]
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
    /// Detach a client, which may attach again, or a port, which is closed; one of the configuration comes again with the next NIC
    #[command(after_help = "Examples:\n  conic ctl detach 7\n  conic ctl detach port:2")]
    Detach {
        /// Which: NUMBER or client:NUMBER, or port:NUMBER, both from list
        end: Detached,
        /// A port's network [default: the NIC's first]
        #[arg(long, value_name = "NAME")]
        network: Option<String>,
    },
}

/// Who is to be detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detached {
    Client(u64),
    Port(u64),
}

impl FromStr for Detached {
    type Err = String;

    fn from_str(text: &str) -> Result<Detached, String> {
        let (kind, number) = text.split_once(':').unwrap_or(("client", text));
        let make = match kind {
            "client" => Detached::Client,
            "port" => Detached::Port,
            _ => return Err(format!("that is NUMBER, client:NUMBER or port:NUMBER, and not {text:?}")),
        };
        number.parse().map(make).map_err(|_| format!("{number:?} is no number; `conic ctl list` says which there are"))
    }
}

/// What is printed behind the options of `attach`.
fn attach_help() -> String {
    let kinds = crate::bridge::ports_explained();
    format!("Example:\n  conic ctl attach tap:lab1,address=10.9.1.1/24 --network lab\n\nPorts:\n{kinds}")
}

/// Asks, and prints the answer.
///
/// # Errors
///
/// No NIC listens, or it refuses.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let question = match &options.command {
        Command::List => json!({ "ask": "list" }),
        Command::Limit { client, rate: Some(rate), burst } => {
            json!({ "ask": "limit", "client": client, "bytes_per_second": rate, "burst_bytes": burst })
        }
        Command::Limit { client, rate: None, .. } => json!({ "ask": "limit", "client": client }),
        Command::Attach { port, vlan, network } => {
            json!({ "ask": "attach_port", "network": network, "port": port.to_string(), "vlan": vlan })
        }
        Command::Detach { end: Detached::Client(client), .. } => json!({ "ask": "detach", "client": client }),
        Command::Detach { end: Detached::Port(port), network } => {
            json!({ "ask": "detach_port", "network": network, "port": port })
        }
        Command::Connect { near, far, network } => {
            json!({ "ask": "connect", "network": network, "between": [near, far] })
        }
        Command::Disconnect { end, network } => json!({ "ask": "disconnect", "network": network, "end": end }),
        Command::Pin { client, queue, pattern } => {
            json!({ "ask": "pin", "client": client, "queue": queue, "match": pattern.to_string() })
        }
        Command::Mirror { end, file, limit, network } => {
            // The NIC has another working directory.
            let file = file.as_deref().map(std::path::absolute).transpose()?;
            json!({ "ask": "mirror", "network": network, "end": end, "file": file, "most_bytes": limit })
        }
        Command::Unpin { client } => json!({ "ask": "unpin", "client": client }),
    };
    let answer = ask(&options.socket, &question)?;
    if options.json {
        println!("{answer}");
    } else if let Some(error) = answer["error"].as_str() {
        return Err(error.into());
    } else if matches!(options.command, Command::List) {
        print!("{}", table(&answer));
    } else if let Some(port) = answer["port"].as_u64() {
        println!("port:{port}");
    }
    Ok(if answer["error"].is_null() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Puts a question to the NIC at a socket.
fn ask(socket: &Path, question: &Value) -> Result<Value, Box<dyn Error>> {
    let operator = Operator::connect(socket, PATIENCE)?;
    Ok(serde_json::from_str(&operator.ask(&question.to_string())?)?)
}

/// A client's limit in words.
fn limit(client: &Value) -> String {
    let [rate, burst] =
        ["bytes_per_second", "burst_bytes"].map(|name| client["limit"][name].as_u64().unwrap_or_default());
    format!("  client {} sends {rate} bytes/s at most, {burst} bytes at once\n", client["session"])
}

/// What is to be said of a client beside its line of the table: its limit, and that it is promiscuous.
fn said_of(client: &Value) -> String {
    let mut lines = if client["limit"].is_object() { limit(client) } else { String::new() };
    if client["promiscuous"] == true {
        let session = &client["session"];
        lines += &format!("  client {session} gets frames for stations that nobody is known to have (promiscuous)\n");
    }
    lines
}

/// A port in words.
fn port_line(port: &Value) -> String {
    let count = |name: &str| port["counters"][name].as_u64().unwrap_or(0);
    // What the kernel forwarded has come and gone as well.
    let received = grouped(count("received_frames") + count("kernel_forwarded_in_frames"));
    let sent = grouped(count("transmitted_frames") + count("kernel_forwarded_out_frames"));
    // A NIC of before does not number them.
    let number = port["number"].as_u64().map_or(String::new(), |number| format!("port:{number} "));
    let by = if port["attached"] == true { ", attached here" } else { "" };
    format!("  {number}{}: {received} frames in, {sent} out{by}\n", port["spec"].as_str().unwrap_or("-"))
}

/// The answer to a list as a table.
fn table(answer: &Value) -> String {
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let count = |value: &Value| grouped(value.as_u64().unwrap_or(0));
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut lines = String::new();
    for network in list("networks") {
        let threads = match network["threads"].as_u64() {
            Some(threads @ 2..) => format!(", {threads} threads"),
            _ => String::new(),
        };
        lines += &format!(
            "network {} ({}), {} clients{threads}\n",
            text(&network["name"]),
            text(&network["mode"]),
            network["clients"]
        );
        for port in network["ports"].as_array().into_iter().flatten() {
            lines += &port_line(port);
        }
        for circuit in network["circuits"].as_array().into_iter().flatten() {
            let [near, far] = [&circuit["between"][0], &circuit["between"][1]].map(text);
            lines += &format!("  connected {near} to {far}\n");
        }
        for trunk in network["trunks"].as_array().into_iter().flatten() {
            let counters = &trunk["counters"];
            let [sent, full, lost, held] =
                ["sent_frames", "dropped_full", "dropped_no_way", "held"].map(|name| count(&counters[name]));
            let (from, to) = (&trunk["from"], &trunk["to"]);
            lines += &format!(
                "  thread {from} to {to}: {sent} frames, {full} found no room, ports waited for room in {held} looks; \
                 {lost} from there were for nobody\n"
            );
        }
        for mirror in network["mirrors"].as_array().into_iter().flatten() {
            let [frames, dropped] = [&mirror["frames"], &mirror["dropped"]].map(count);
            lines += &format!("  mirrored {}: {frames} frames copied, {dropped} left out\n", text(&mirror["end"]));
        }
        for pin in network["pins"].as_array().into_iter().flatten() {
            let queue = pin["queue"].as_u64().map_or(String::new(), |queue| format!(", queue {queue}"));
            lines += &format!("  pinned {} to client {}{queue}\n", text(&pin["match"]), pin["client"]);
        }
        let of_it = list("clients").into_iter().filter(|client| client["network"] == network["name"]);
        lines.extend(of_it.map(|client| said_of(&client)));
    }
    lines += &format!(
        "{:>7} {:<16} {:<12} {:>6} {:<17} {:>15} {:>15} {:>10} {:>7}\n",
        "client", "name", "network", "queues", "address", "sent", "received", "dropped", "faults"
    );
    for client in list("clients") {
        let sum = |of: &Value, wanted: &str| -> u64 {
            let all = of.as_object().into_iter().flatten();
            all.filter(|(name, _)| name.starts_with(wanted)).filter_map(|(_, value)| value.as_u64()).sum()
        };
        lines += &format!(
            "{:>7} {:<16} {:<12} {:>6} {:<17} {:>15} {:>15} {:>10} {:>7}\n",
            client["session"].as_u64().unwrap_or(0),
            text(&client["name"]),
            text(&client["network"]),
            client["queues"].as_u64().unwrap_or(0),
            text(&client["mac"]),
            count(&client["counters"]["sent_frames"]),
            count(&client["counters"]["received_frames"]),
            grouped(sum(&client["counters"], "dropped")),
            grouped(sum(&client["faults"], "")),
        );
    }
    lines
}
