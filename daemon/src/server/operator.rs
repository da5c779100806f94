//! An operator's questions, and what the daemon answers: JSON both ways.
//!
//! | question | answer |
//! |---|---|
//! | `{"ask": "list"}` | networks, clients and ports with their counters |
//! | `{"ask": "limit", "client": 7, "bytes_per_second": 1000000, "burst_bytes": 65536}` | `{"done": true}`; without a rate there is no limit |
//! | `{"ask": "detach", "client": 7}` | `{"done": true}` |
//! | `{"ask": "attach_port", "network": "lab", "port": "tap:lab1", "vlan": 7}` | `{"done": true, "port": 2}`, its number |
//! | `{"ask": "detach_port", "network": "lab", "port": 2}` | `{"done": true}`, and it is closed |
//! | `{"ask": "connect", "network": "lab", "between": ["client:7", "port:0"]}` | `{"done": true}`; a network that is not named is the first. Whoever was connected to one of them is connected to nobody any more |
//! | `{"ask": "disconnect", "network": "lab", "end": "client:7"}` | `{"done": true}`, and so is the other end |
//! | `{"ask": "pin", "client": 7, "queue": 2, "match": "protocol=tcp,destination-port=80"}` | `{"done": true}`; without a queue the flow is spread |
//! | `{"ask": "mirror", "network": "lab", "end": "client:7", "file": "/tmp/a.pcapng", "most_bytes": 1000000}` | `{"done": true}`; without a file the mirror ends |
//! | `{"ask": "unpin", "client": 7}` | `{"done": true}`: none of its flows are pinned any more |
//! | `{"ask": "adopt", "version": NUMBER}` | everything, to a daemon that takes over; see `adopt` |
//!
//! What is done, every thread of the network has heard of: what comes behind the answer meets nothing of before.

use std::io::ErrorKind;
use std::path::PathBuf;

use conic_control::{Message, Reason};
use conic_fabric::Time;
use conic_native::channel::LONGEST_MESSAGE;
use conic_native::clock;
use conic_nicd::config::{MIRROR_BYTES, NetworkMode, PortConfig};
use conic_nicd::switch::{Circuit, Looks, MirrorCounters, Party, Pattern, Pin, RateLimit, TrunkCounters};
use rustix::event::epoll;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Daemon;
use super::adopt::TAKING_OVER;
use super::mirror::Asked;
use super::network::NetworkPort;
use crate::connection::{Session, Step, Unsaid, mac_text, refused};
use crate::order::{Answer, News, Report};

/// Bytes that may be sent at once where nobody says how many.
const DEFAULT_BURST: u64 = 65_536;

/// Bytes of a piece of what is longer than a message holds.
const PIECE: usize = LONGEST_MESSAGE / 2;

/// What an operator asks.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
enum Question {
    /// What is there?
    List,
    /// A client may send so much.
    Limit {
        /// Its session.
        client: u64,
        /// Bytes a second; no limit if it is not there.
        bytes_per_second: Option<u64>,
        /// Bytes that may be sent at once.
        burst_bytes: Option<u64>,
    },
    /// A port is to come.
    AttachPort {
        /// Its network; the first if it is not there.
        network: Option<String>,
        /// What it is.
        port: String,
        /// The VLAN that it is a member of.
        vlan: Option<u16>,
    },
    /// A port is to go.
    DetachPort {
        /// Its network; the first if it is not there.
        network: Option<String>,
        /// Its number.
        port: usize,
    },
    /// Two are to reach each other and nobody else.
    Connect {
        /// Their network; the first if it is not there.
        network: Option<String>,
        /// The two.
        between: [String; 2],
    },
    /// Two that were connected are to reach everybody.
    Disconnect {
        /// Their network; the first if it is not there.
        network: Option<String>,
        /// One of them.
        end: String,
    },
    /// A client is to get a flow.
    Pin {
        /// Its session.
        client: u64,
        /// Which of its queues.
        queue: Option<u32>,
        /// Which flow.
        #[serde(rename = "match")]
        pattern: Pattern,
    },
    /// A client is to get no flow but by its address.
    Unpin {
        /// Its session.
        client: u64,
    },
    /// What somebody sends and gets is to be copied to a file.
    Mirror {
        /// Its network; the first if it is not there.
        network: Option<String>,
        /// Who.
        end: String,
        /// The file, by its whole path; the copying ends if it is not there.
        file: Option<PathBuf>,
        /// Bytes of frames that the file takes.
        most_bytes: Option<u64>,
    },
    /// Another daemon takes over.
    Adopt {
        /// What it means by that.
        version: u32,
    },
    /// A client is to go.
    Detach {
        /// Its session.
        client: u64,
    },
}

impl Daemon {
    /// Answers an operator, who is root or the daemon's own user.
    pub(super) fn answer(&mut self, number: u64, question: &str) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let user = connection.peer.user;
        if user != 0 && user != self.own_user {
            let text = format!("user {user} may not ask: root and the NIC's own user may");
            return self.refuse(number, refused(Reason::NotAllowed, text));
        }
        connection.step = Step::Asking(Unsaid::default());
        connection.deadline = Time::NEVER;
        let (answer, changed) = match serde_json::from_str(question) {
            Ok(Question::Adopt { version: TAKING_OVER }) => {
                self.ended = self.give_over(number);
                return;
            }
            Ok(Question::Adopt { version }) => {
                let own = format!("this NIC gives over in version {TAKING_OVER}, and not in version {version}");
                done(Err(format!("{own}: stop it, and start the other without --adopt")))
            }
            Ok(Question::List) => (self.list(), None),
            Ok(Question::Limit { client, bytes_per_second, burst_bytes }) => {
                let limit = bytes_per_second.map(|bytes_per_second| RateLimit {
                    bytes_per_second,
                    burst_bytes: burst_bytes.unwrap_or(DEFAULT_BURST),
                });
                done(self.limit(client, limit))
            }
            Ok(Question::Detach { client }) => done(self.detach(client)),
            Ok(Question::AttachPort { network, port, vlan }) => {
                let config = PortConfig { spec: port, vlan };
                match self.begin_to_attach_port(number, network.as_deref(), config) {
                    Ok(()) => return,
                    Err(why) => done(Err(why)),
                }
            }
            Ok(Question::DetachPort { network, port }) => {
                match self.begin_to_detach_port(number, network.as_deref(), port) {
                    Ok(()) => return,
                    Err(why) => done(Err(why)),
                }
            }
            Ok(Question::Connect { network, between }) => done(self.connect(network.as_deref(), &between)),
            Ok(Question::Disconnect { network, end }) => done(self.disconnect(network.as_deref(), &end)),
            Ok(Question::Pin { client, queue, pattern }) => done(self.pin(client, Some(Pin { pattern, queue }))),
            Ok(Question::Mirror { network, end, file, most_bytes }) => {
                let most_bytes = most_bytes.unwrap_or(MIRROR_BYTES);
                done(self.mirror(network.as_deref(), &end, file, most_bytes))
            }
            Ok(Question::Unpin { client }) => done(self.pin(client, None)),
            Err(error) => done(Err(format!("that is no question this NIC knows: {error}"))),
        };
        match changed {
            Some(network) => self.answer_when_heard(number, answer, network),
            None => self.answer_at_once(number, &answer),
        }
    }

    /// Tells an operator something when every thread of a network has heard of it.
    pub(super) fn answer_when_heard(&mut self, number: u64, answer: Value, network: usize) {
        let late = clock::now() + self.step_timeout();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.step = Step::Asking(Unsaid { text: answer.to_string(), is_early: true, ..Unsaid::default() });
        connection.deadline = late;
        self.hear_only_the_end_of(number);
        self.networks[network].confirm(Answer::new(News::Heard { connection: number }, &self.reports));
    }

    /// Tells an operator what is so already.
    pub(super) fn answer_at_once(&mut self, number: u64, answer: &Value) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Step::Asking(unsaid) = &mut connection.step {
            *unsaid = Unsaid { text: answer.to_string(), ..Unsaid::default() };
            self.go_on_answering(number);
        }
    }

    /// An operator is not listened to before it has its answer; its end is told all the same.
    pub(super) fn hear_only_the_end_of(&self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let event = epoll::EventData::new_u64(number << 1);
        let _ = epoll::modify(&self.epoll, &connection.channel, event, epoll::EventFlags::empty());
    }

    /// Every thread has heard of what an operator has changed, who is told so.
    pub(super) fn answer_is_true(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if let Step::Asking(unsaid) = &mut connection.step {
            unsaid.is_early = false;
            self.go_on_answering(number);
        }
    }

    /// Says as much of an answer as the operator's socket takes, and the rest when it takes more.
    pub(super) fn go_on_answering(&mut self, number: u64) {
        let late = clock::now() + self.step_timeout();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Step::Asking(unsaid) = &mut connection.step else { return };
        let event = epoll::EventData::new_u64(number << 1);
        loop {
            let (piece, _) = split_piece(&unsaid.text[unsaid.at..]);
            match connection.channel.send(&Message::Answer(piece.to_owned()).encode(), &[]) {
                Ok(()) if piece.is_empty() => {
                    (*unsaid, connection.deadline) = (Unsaid::default(), Time::NEVER);
                    let _ = epoll::modify(&self.epoll, &connection.channel, event, epoll::EventFlags::IN);
                    return;
                }
                Ok(()) => unsaid.at += piece.len(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    connection.deadline = late;
                    // It is not heard before it has listened: until then, what it says stays in its socket.
                    let _ = epoll::modify(&self.epoll, &connection.channel, event, epoll::EventFlags::OUT);
                    return;
                }
                Err(_) => return self.let_go(number, "closed"),
            }
        }
    }

    fn limit(&mut self, client: u64, limit: Option<RateLimit>) -> Result<usize, String> {
        let network = self.network_of_client(client).ok_or_else(|| no_client(client))?;
        self.networks[network].limit(client, limit);
        Ok(network)
    }

    fn network_of_client(&self, client: u64) -> Option<usize> {
        let (_, session) = self.sessions().find(|(_, session)| session.session == client)?;
        Some(session.network)
    }

    /// A network by its name, the first if there is none.
    pub(super) fn network_named(&self, name: Option<&str>) -> Result<usize, String> {
        let named = |network: &super::Network| name.is_none_or(|name| network.config.name == name);
        let found = self.networks.iter().position(named);
        found.ok_or_else(|| format!("there is no network {}", name.unwrap_or("at all")))
    }

    /// The same, where frames go from one to another.
    fn bridge_of(&self, name: Option<&str>) -> Result<usize, String> {
        let network = self.network_named(name)?;
        if self.networks[network].config.mode == NetworkMode::Loopback {
            let name = &self.networks[network].config.name;
            return Err(format!("network {name} is a loopback, where nobody reaches another"));
        }
        Ok(network)
    }

    /// Who an operator means by `client:NUMBER` or `port:NUMBER`.
    fn party(&self, network: usize, text: &str) -> Result<Party, String> {
        let wrong =
            || format!("an end is client:NUMBER or port:NUMBER, as `conic ctl list` numbers them, and not {text:?}");
        let (kind, number) = text.split_once(':').ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        match kind {
            "client" if self.network_of_client(number) == Some(network) => Ok(Party::Client(number)),
            "port" if self.networks[network].ports.contains_key(&(number as usize)) => Ok(Party::Port(number as usize)),
            "client" | "port" => Err(format!("there is no {text} on network {}", self.networks[network].config.name)),
            _ => Err(wrong()),
        }
    }

    fn connect(&mut self, name: Option<&str>, between: &[String; 2]) -> Result<usize, String> {
        let index = self.bridge_of(name)?;
        let [near, far] = [self.party(index, &between[0])?, self.party(index, &between[1])?];
        if near == far {
            return Err(format!("{} cannot be connected to itself", between[0]));
        }
        let number = self.next_circuit;
        self.next_circuit += 1;
        let network = &self.networks[index];
        network.connect(near, Some(Circuit { number, far: false }));
        network.connect(far, Some(Circuit { number, far: true }));
        Ok(index)
    }

    fn disconnect(&mut self, name: Option<&str>, end: &str) -> Result<usize, String> {
        let index = self.bridge_of(name)?;
        let party = self.party(index, end)?;
        let network = &self.networks[index];
        let circuits = network.report().circuits;
        let own = circuits.iter().find(|(one, ..)| *one == party);
        let Some((_, circuit, _)) = own else { return Err(format!("{end} is not connected to anybody")) };
        for (one, _, _) in circuits.iter().filter(|(_, other, _)| other.number == circuit.number) {
            network.connect(*one, None);
        }
        Ok(index)
    }

    fn mirror(
        &mut self,
        name: Option<&str>,
        end: &str,
        file: Option<PathBuf>,
        most_bytes: u64,
    ) -> Result<usize, String> {
        let index = self.network_named(name)?;
        let party = self.party(index, end)?;
        let network = &mut self.networks[index];
        let Some(file) = file else {
            return if network.unmirror(party) { Ok(index) } else { Err(format!("{end} is not mirrored")) };
        };
        if !file.is_absolute() {
            return Err(format!("the file is named by its whole path, and not {}", file.display()));
        }
        network.mirror(party, Asked { file, most_bytes })?;
        Ok(index)
    }

    fn pin(&self, client: u64, pin: Option<Pin>) -> Result<usize, String> {
        let network = self.network_of_client(client).ok_or_else(|| no_client(client))?;
        if self.networks[network].config.mode == NetworkMode::Loopback {
            return Err(format!("client {client} is on a loopback network, where each queue gets its own frames"));
        }
        let of_it = |(_, session): &(u32, &Session)| session.session == client;
        let queues = self.sessions().find(of_it).map_or(0, |(_, session)| session.queues);
        match pin.as_ref().and_then(|pin| pin.queue) {
            Some(queue) if queue >= queues => Err(format!("client {client} has {queues} queues, counted from 0")),
            _ => {
                self.networks[network].pin(client, pin);
                Ok(network)
            }
        }
    }

    fn detach(&mut self, client: u64) -> Result<usize, String> {
        let is_it = |step: &Step| matches!(step, Step::Attached(session) if session.session == client);
        let number = self.connections.iter().find(|(_, one)| is_it(&one.step)).map(|(&number, _)| number);
        let number = number.ok_or_else(|| no_client(client))?;
        let network = self.network_of_client(client).ok_or_else(|| no_client(client))?;
        self.refuse(number, refused(Reason::Operator, "an operator detached it"));
        Ok(network)
    }

    /// All that there is.
    fn list(&self) -> Value {
        let reports: Vec<Report> = self.networks.iter().map(|network| network.report()).collect();
        let networks = self.networks.iter().zip(&reports).enumerate().map(|(index, (network, report))| {
            let ports = network.ports.iter().map(|(number, NetworkPort { config, is_attached, .. })| {
                let port = report.ports.iter().find(|port| port.number == *number).cloned().unwrap_or_default();
                json!({
                    "number": number,
                    "spec": config.spec,
                    "vlan": config.vlan,
                    "attached": is_attached,
                    "description": port.description,
                    "up": port.up,
                    "counters": object(&port.own),
                    "switch": object(&port.switch.named()),
                })
            });
            json!({
                "name": network.config.name,
                "mode": network.config.mode,
                "threads": network.config.threads,
                "clients": self.sessions().filter(|(_, session)| session.network == index).count(),
                "ports": ports.collect::<Vec<_>>(),
                "circuits": report.circuits.iter().filter(is_listed).map(circuit).collect::<Vec<_>>(),
                "looks": report.looks.iter().map(looks).collect::<Vec<_>>(),
                "trunks": report.trunks.iter().map(trunk).collect::<Vec<_>>(),
                "pins": report.pins.iter().map(pin).collect::<Vec<_>>(),
                "mirrors": report.mirrors.iter().map(mirror).collect::<Vec<_>>(),
            })
        });
        let networks: Vec<Value> = networks.collect();
        let clients: Vec<Value> = self.sessions().map(|(user, session)| self.client(user, session, &reports)).collect();
        json!({ "schema": "conic.nic.list/1", "networks": networks, "clients": clients })
    }

    fn client(&self, user: u32, session: &Session, reports: &[Report]) -> Value {
        let report = &reports[session.network];
        let own = report.clients.iter().find(|(number, ..)| *number == session.session);
        let limit = report.limits.iter().find(|(number, _)| *number == session.session).map(|(_, limit)| *limit);
        let (counters, faults) = own.map(|(_, counters, faults)| (*counters, *faults)).unwrap_or_default();
        json!({
            "session": session.session,
            "name": session.name.as_str(),
            "user": user,
            "network": self.networks[session.network].config.name,
            "thread": self.networks[session.network].thread_of(session.session),
            "queues": session.queues,
            "bytes": session.bytes,
            "mac": mac_text(session.mac),
            "limit": limit,
            "promiscuous": report.promiscuous.contains(&session.session),
            "counters": object(&counters.named()),
            "faults": object(&faults.named()),
        })
    }

    /// Every client with its user, in the order in which they came.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.connections.values().filter_map(|connection| match &connection.step {
            Step::Attached(session) => Some((connection.peer.user, &**session)),
            _ => None,
        })
    }
}

/// As much of a text as one message takes, and the rest.
pub(super) fn split_piece(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(PIECE))
}

fn no_client(client: u64) -> String {
    format!("there is no client {client}; `conic ctl list` lists them")
}

/// The answer to what was done, and the network whose threads hear of it first; or why it could not be.
fn done(result: Result<usize, String>) -> (Value, Option<usize>) {
    match result {
        Ok(network) => (json!({ "done": true }), Some(network)),
        Err(why) => (json!({ "error": why }), None),
    }
}

/// Whether a circuit is listed by an end: by its near one, and by each that has nobody opposite.
fn is_listed((_, circuit, other): &&(Party, Circuit, Option<Party>)) -> bool {
    !circuit.far || other.is_none()
}

/// A circuit by one of its ends; the other is null where nobody is there.
fn circuit((near, _, far): &(Party, Circuit, Option<Party>)) -> Value {
    json!({ "between": [party_text(*near), far.map(party_text)] })
}

/// How long the queues that a thread serves have waited between two looks, in picoseconds: looks by the time since the one before, which
/// is less than a power of two, and not less than half of it.
fn looks((thread, looks): &(usize, Looks)) -> Value {
    let buckets = looks.buckets().map(|(below, looks)| json!({ "below_ps": below, "looks": looks }));
    json!({ "thread": thread, "buckets": buckets.collect::<Vec<_>>() })
}

/// What a thread of a network counts of its way to another.
fn trunk((from, to, counters): &(usize, usize, TrunkCounters)) -> Value {
    json!({ "from": from, "to": to, "counters": object(&counters.named()) })
}

fn pin((client, Pin { pattern, queue }): &(u64, Pin)) -> Value {
    json!({ "client": client, "queue": queue, "match": pattern.to_string() })
}

fn mirror((party, counters): &(Party, MirrorCounters)) -> Value {
    let MirrorCounters { frames, bytes, dropped } = counters;
    json!({ "end": party_text(*party), "frames": frames, "bytes": bytes, "dropped": dropped })
}

pub(super) fn party_text(party: Party) -> String {
    match party {
        Party::Client(session) => format!("client:{session}"),
        Party::Port(port) => format!("port:{port}"),
    }
}

fn object(counters: &[(&'static str, u64)]) -> Map<String, Value> {
    counters.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect()
}
