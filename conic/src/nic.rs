//! `conic nic`: the software NIC as a service.

mod log;
mod upgrade;

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use conic_daemon::{Daemon, Ended, Event, Stop};
use conic_nicd::config::{
    AllowedUsers, Config, ConnectConfig, MirrorConfig, NetworkConfig, NetworkMode, PinConfig, PortConfig, WaitMode,
};
use conic_port::PortSpec;

use log::Lines;
use serde_json::json;
use upgrade::Upgrade;

/// Serve queues of a software NIC to other processes.
///
/// Processes attach over a Unix socket and get queue pairs over memory that they share with the NIC and with nobody else. Its
/// networks join them to each other and to ports; each network has a thread, or several, on cores of their own if --core or the file says
/// so.
/// Needs no privileges but those of its ports (a TAP interface: CAP_NET_ADMIN), and no huge pages.
#[derive(clap::Args)]
#[command(after_help = after_help(), after_long_help = after_long_help())]
pub struct Options {
    /// A file that says all of it, in TOML; see --print-config. Flags change what it says
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The socket at which processes attach, in a folder that is there [default: /run/conic/nic.sock, whose folder is made]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A user, by number, who may attach beside root and the one who started the NIC, if the socket's permissions let that user connect
    /// (see --socket-mode); may be given several times
    #[arg(long, value_name = "UID")]
    allow_user: Vec<u32>,
    /// The socket's permissions, in octal digits [default: 0660, which is the starter and the starter's group]. With 0666 anybody may
    /// connect, and whom --allow-user does not name is refused
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<String>,
    /// How the first network joins its members: bridge (by address) or loopback (each queue's frames come back to it) [default: bridge]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// How many threads serve the first network: ports are dealt to them in turn, and so are the queues of one that has several;
    /// a client is on the one that has the fewest [default: 1]
    #[arg(long, value_name = "NUMBER")]
    threads: Option<usize>,
    /// The core that the first network's thread is bound to; of several threads a core for each
    #[arg(long, value_name = "CORE,...", value_delimiter = ',')]
    core: Vec<usize>,
    /// What the first network's threads do when there is nothing to do [default: adaptive]
    #[arg(long, value_enum)]
    wait: Option<Wait>,
    /// A port of the first network, as KIND:ARGUMENTS (see below); may be given several times
    #[arg(long, value_name = "PORT")]
    port: Vec<PortSpec>,
    /// Two ends on the first network that reach each other and nobody else, as END,END; an end is client:NAME or port:NUMBER, ports
    /// being counted from 0 in the order of --port; may be given several times
    #[arg(long, value_name = "END,END")]
    connect: Vec<ConnectConfig>,
    /// A flow on the first network that goes to a client whatever it is addressed to, as CLIENT,MATCH or CLIENT,queue=NUMBER,MATCH;
    /// matches are those of `conic ctl pin`; may be given several times
    #[arg(long, value_name = "CLIENT,MATCH")]
    pin: Vec<PinConfig>,
    /// Copies of what an end of the first network sends and gets, from the start, as END,FILE; an end is client:NAME or port:NUMBER, and
    /// the file, .pcapng or .pcap, is named by its whole path and takes 64 MiB; a number is put in where it is there already; may be
    /// given several times
    #[arg(long, value_name = "END,FILE")]
    mirror: Vec<MirrorConfig>,
    /// Where Prometheus reads metrics over HTTP, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// How long any core of the machine may take to wake up while the NIC runs; with 0 none halts: the first packet after a rest comes
    /// sooner, and the machine takes more power (needs the right to write /dev/cpu_dma_latency, which root has)
    #[arg(long, value_name = "MICROSECONDS")]
    wakeup_latency: Option<u32>,
    /// Take over from the NIC that listens at the socket, with all its clients, its TAP, memif, vhost-user and AF_XDP ports and those that an operator
    /// attached: for a new version of the program. A NIC that gets SIGHUP starts its program's file so, and is upgraded, also under systemd
    #[arg(long)]
    adopt: bool,
    /// Say whether the configuration can work, open nothing, and end
    #[arg(long)]
    check: bool,
    /// Print the whole configuration that results, as TOML, and end
    #[arg(long, conflicts_with = "json")]
    print_config: bool,
    /// Log one JSON object a line instead of text; with --check, one object
    #[arg(long)]
    json: bool,
}

/// What is printed behind the options.
fn after_help() -> String {
    format!(
        "{EXAMPLES}\n\n{SIGNALS}\n\nPorts (--help says what their arguments mean):\n{}",
        crate::bridge::kinds_of_ports()
    )
}

fn after_long_help() -> String {
    format!("{EXAMPLES}\n\n{SIGNALS}\n\nPorts:\n{}", crate::bridge::ports_explained())
}

const EXAMPLES: &str = "Examples:
  conic nic --socket /tmp/nic.sock                        a bridge between the processes that attach
  conic nic --socket /tmp/nic.sock --mode loopback        each process gets its own frames back
  sudo conic nic --port tap:lab0,address=10.9.0.1/24      the same bridge with the kernel on it
  conic nic --port tap:lab0 --connect port:0,client:web   a wire between the kernel and the client that calls itself web
  conic nic --threads 2 --core 2,3                        a bridge that two cores serve
  conic nic --threads 2 --port tap:lab0,queues=2          with a queue of the kernel's interface on each
  conic nic --config nic.toml --adopt                     a new version takes over, and no client is lost
  kill -HUP PROCESS                                       the same of the NIC that is this process
  conic nic --config nic.toml --check                     is the file sound?
  conic nic --port tap:lab0 --print-config > nic.toml     a file to start from";

const SIGNALS: &str = "Signals:
  INT, TERM  the NIC ends; its status is 1 where a port's record is not whole
  HUP        an upgrade: the program's file is started once more, by the path, with the arguments and the environment of this one, and takes over as with --adopt; where it cannot, this one goes on and logs why. The process that serves is another then, and who manages services is told so (NOTIFY_SOCKET). Where the NIC's terminal is gone it ends
  Under systemd `systemctl reload conic-nic` sends it";

/// How a network joins its members.
#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Bridge,
    Loopback,
}

/// What a network's threads do when there is nothing to do.
#[derive(Clone, Copy, ValueEnum)]
enum Wait {
    /// Look again, always: least latency, a whole core
    Spin,
    /// Look again for a while, then sleep
    Adaptive,
    /// Sleep at once
    Interrupt,
}

impl Options {
    /// The configuration that the file and the flags make together.
    fn config(&self) -> Result<Config, Box<dyn Error>> {
        let mut config = match &self.config {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("cannot read the configuration {}: {error}", path.display()))?;
                Config::read(&text).map_err(|error| format!("{}: {error}", path.display()))?
            }
            None => Config::default().checked()?,
        };
        if let Some(socket) = &self.socket {
            config.socket.clone_from(socket);
        }
        if let AllowedUsers::Users(users) = &mut config.allow_users {
            users.extend(&self.allow_user);
        }
        if let Some(mode) = &self.socket_mode {
            config.socket_mode.clone_from(mode);
        }
        config.metrics = self.metrics.or(config.metrics);
        config.wakeup_latency_us = self.wakeup_latency.or(config.wakeup_latency_us);
        let first: &mut NetworkConfig = config.networks.first_mut().ok_or("a NIC has a network")?;
        if let Some(mode) = self.mode {
            first.mode = match mode {
                Mode::Bridge => NetworkMode::Bridge,
                Mode::Loopback => NetworkMode::Loopback,
            };
        }
        if let Some(wait) = self.wait {
            first.wait = match wait {
                Wait::Spin => WaitMode::Spin,
                Wait::Adaptive => WaitMode::Adaptive,
                Wait::Interrupt => WaitMode::Interrupt,
            };
        }
        first.threads = self.threads.unwrap_or(first.threads);
        match self.core[..] {
            [] => {}
            [core] if first.threads == 1 => (first.core, first.cores) = (Some(core), Vec::new()),
            _ => (first.core, first.cores) = (None, self.core.clone()),
        }
        first.ports.extend(self.port.iter().map(|spec| PortConfig { spec: spec.to_string(), vlan: None }));
        first.connects.extend_from_slice(&self.connect);
        first.pins.extend_from_slice(&self.pin);
        first.mirrors.extend_from_slice(&self.mirror);
        Ok(config.checked()?)
    }
}

/// Serves until interrupted.
///
/// # Errors
///
/// The configuration cannot work, or names what cannot be had.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let config = options.config()?;
    if options.print_config {
        print!("{}", toml::to_string(&config)?);
        return Ok(ExitCode::SUCCESS);
    }
    if options.check {
        Daemon::check(&config)?;
        let networks = config.networks.len();
        let ports: usize = config.networks.iter().map(|network| network.ports.len()).sum();
        if options.json {
            println!("{}", json!({ "sound": true, "networks": networks, "ports": ports, "socket": config.socket }));
        } else {
            println!("sound: networks {networks}, ports {ports}, socket {}", config.socket.display());
        }
        return Ok(ExitCode::SUCCESS);
    }
    serve(options, config)
}

/// Serves until it is stopped, or another version has taken over.
fn serve(options: &Options, config: Config) -> Result<ExitCode, Box<dyn Error>> {
    allow_descriptors();
    let stop = Stop::new()?;
    let (json, lines) = (options.json, Lines::default());
    let (said, told, written) = (lines.clone(), lines.clone(), lines.clone());
    let upgrade = Upgrade::new(Arc::new(move |event: &Event| told.say(line_of(event, json))))?;
    upgrade.hear_signals(stop.clone())?;
    let writes = move || written.write(std::io::stdout(), |lines| line_of(&Event::LeftOut { lines }, json));
    // It ends with the process: whoever keeps it waiting is not waited for.
    std::thread::Builder::new().name("log".to_owned()).spawn(writes)?;
    let log = Box::new(move |event: &Event| said.say(line_of(event, json)));
    let daemon = if options.adopt { Daemon::adopt(config, stop, log) } else { Daemon::start(config, stop, log) };
    let ended = daemon.and_then(|daemon| {
        upgrade.is_ready();
        daemon.run()
    });
    let heir = ended.as_ref().ok().and_then(|ended| ended.heir);
    let given_over = heir.map_or(Ok(()), |process| upgrade.is_given_over(process));
    lines.end();
    let Ended { unfinished, .. } = ended?;
    given_over?;
    // What is missing of them was logged.
    Ok(if unfinished == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes as many descriptors as this process may have: each client's region, bells and process take some.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // With those that there are the NIC serves too, and says when they run out.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// What happened, as a line of the log.
fn line_of(event: &Event, json: bool) -> String {
    if json { serde_json::to_string(event).unwrap_or_default() } else { text_of(event) }
}

fn text_of(event: &Event) -> String {
    match event {
        Event::Listening { socket, networks } => format!("listening at {socket}; networks {}", networks.join(", ")),
        Event::Attached { session, name, process, user, network, queues, bytes, mac } => format!(
            "client {session} attached: {name}, process {process} of user {user}, on {network}: {queues} queues, \
             {} KiB, {mac}",
            bytes >> 10
        ),
        Event::Refused { process, user, reason, text } => {
            format!("process {process} of user {user} refused: {text} ({reason})")
        }
        Event::Detached { session, name, why, faults, microseconds, kept } => {
            let memory = match kept {
                true => "its program has its memory still".to_owned(),
                false => format!("its memory was back in {microseconds} us"),
            };
            format!("client {session} detached: {name}, {why}, {faults} faults; {memory}")
        }
        Event::Readdressed { session, name, mac, before } => {
            format!("client {session}: {name} is {mac} and was {before}")
        }
        Event::Promiscuous { session, name, on } => {
            let gets = if *on { "gets" } else { "gets no more" };
            format!("client {session}: {name} {gets} frames for stations that nobody is known to have (promiscuous)")
        }
        Event::Crowded { clients, text } => {
            format!("nobody can be let in beside {clients} clients: {text}; a higher `ulimit -n` lets more in")
        }
        Event::Mirrored { network, end, file } => format!("{end} of {network} is copied to {file}"),
        Event::NotMirrored { network, end, text } => format!("{end} of {network} is not copied to a file: {text}"),
        Event::PortAttached { network, port, spec } => format!("port:{port} of {network} attached: {spec}"),
        Event::PortDetached { network, port, spec } => format!("port:{port} of {network} detached: {spec}"),
        Event::NotForwarding { network, text } => format!("on {network}, {text}"),
        Event::PortFailed { network, text } => format!("a port of {network} failed: {text}"),
        Event::PortUnfinished { network, port, text } => {
            format!("port:{port} of {network} has not written out all that was sent to it: {text}")
        }
        Event::Upgrading { program, process } => format!("{program} is to take over, as process {process}"),
        Event::NotUpgraded { text } => format!("not upgraded: {text}"),
        Event::Adopted { clients, microseconds } => {
            format!("took over {clients} clients; the blackout was {microseconds} us at most")
        }
        Event::ModeNotSet { text } => format!("who could connect may connect still: {text}"),
        Event::ServesOn { microseconds } => {
            format!("serves on: who was to take over has not; the blackout was {microseconds} us at most")
        }
        Event::TooMany { kind, user: Some(user), lines } => {
            format!("{lines} lines of the kind `{kind}` were left out here: user {user} causes too many")
        }
        Event::TooMany { kind, user: None, lines } => {
            format!("{lines} lines of the kind `{kind}` were left out here: there are too many")
        }
        Event::LeftOut { lines } => format!("{lines} lines were left out here: nobody was reading"),
        Event::Ended => "ended".to_owned(),
    }
}
