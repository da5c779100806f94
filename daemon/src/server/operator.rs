//! An operator's questions, and what the daemon answers: JSON both ways.
//!
//! | question | answer |
//! |---|---|
//! | `{"ask": "list"}` | networks, clients and ports with their counters |
//! | `{"ask": "limit", "client": 7, "bytes_per_second": 1000000, "burst_bytes": 65536}` | `{"done": true}`; without a rate there is no limit |
//! | `{"ask": "detach", "client": 7}` | `{"done": true}` |
//! | `{"ask": "adopt"}` | everything, to a daemon that takes over; see `adopt` |

use conic_control::{Message, Reason};
use conic_fabric::Time;
use conic_native::channel::LONGEST_MESSAGE;
use conic_nicd::config::NetworkMode;
use conic_nicd::switch::RateLimit;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Daemon;
use crate::connection::{Session, Step, mac_text, refused};
use crate::worker::Report;

/// Bytes that may be sent at once where nobody says how many.
const DEFAULT_BURST: u64 = 65_536;

/// Bytes of a piece of an answer, less than a message holds.
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
    /// Another daemon takes over.
    Adopt,
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
        connection.step = Step::Asking;
        connection.deadline = Time::NEVER;
        let answer = match serde_json::from_str(question) {
            Ok(Question::Adopt) => {
                self.ended = self.give_over(number);
                return;
            }
            Ok(Question::List) => self.list(),
            Ok(Question::Limit { client, bytes_per_second, burst_bytes }) => {
                let limit = bytes_per_second.map(|bytes_per_second| RateLimit {
                    bytes_per_second,
                    burst_bytes: burst_bytes.unwrap_or(DEFAULT_BURST),
                });
                self.limit(client, limit)
            }
            Ok(Question::Detach { client }) => self.detach(client),
            Err(error) => json!({ "error": format!("that is no question this NIC knows: {error}") }),
        };
        let text = answer.to_string();
        let Some(connection) = self.connections.get(&number) else { return };
        let mut rest = text.as_str();
        loop {
            let (piece, more) = rest.split_at(rest.floor_char_boundary(PIECE.min(rest.len())));
            let sent = connection.channel.send(&Message::Answer(piece.to_owned()).encode(), &[]);
            if sent.is_err() {
                return self.let_go(number, "closed");
            }
            if piece.is_empty() {
                return;
            }
            rest = more;
        }
    }

    fn limit(&mut self, client: u64, limit: Option<RateLimit>) -> Value {
        let network =
            self.sessions().find(|(_, session)| session.session == client).map(|(_, session)| session.network);
        let Some(network) = network else { return no_client(client) };
        if self.networks[network].config.mode == NetworkMode::Loopback {
            return json!({ "error": format!("client {client} is on a loopback network, which has no limits") });
        }
        self.networks[network].worker.limit(client, limit);
        json!({ "done": true })
    }

    fn detach(&mut self, client: u64) -> Value {
        let is_it = |step: &Step| matches!(step, Step::Attached(session) if session.session == client);
        let number = self.connections.iter().find(|(_, one)| is_it(&one.step)).map(|(&number, _)| number);
        let Some(number) = number else { return no_client(client) };
        self.refuse(number, refused(Reason::Operator, "an operator detached it"));
        json!({ "done": true })
    }

    /// All that there is.
    fn list(&self) -> Value {
        let reports: Vec<Report> = self.networks.iter().map(|network| network.worker.report()).collect();
        let networks = self.networks.iter().zip(&reports).enumerate().map(|(index, (network, report))| {
            let ports = network.config.ports.iter().zip(&report.ports).map(|(config, port)| {
                json!({
                    "spec": config.spec,
                    "vlan": config.vlan,
                    "description": port.description,
                    "up": port.up,
                    "counters": object(&port.own),
                    "switch": object(&port.switch.named()),
                })
            });
            json!({
                "name": network.config.name,
                "mode": network.config.mode,
                "clients": self.sessions().filter(|(_, session)| session.network == index).count(),
                "ports": ports.collect::<Vec<_>>(),
            })
        });
        let networks: Vec<Value> = networks.collect();
        let clients: Vec<Value> = self.sessions().map(|(user, session)| self.client(user, session, &reports)).collect();
        json!({ "schema": "conic.nic.list/1", "networks": networks, "clients": clients })
    }

    fn client(&self, user: u32, session: &Session, reports: &[Report]) -> Value {
        let own = reports[session.network].clients.iter().find(|(number, ..)| *number == session.session);
        let (counters, faults) = own.map(|(_, counters, faults)| (*counters, *faults)).unwrap_or_default();
        json!({
            "session": session.session,
            "name": session.name.as_str(),
            "user": user,
            "network": self.networks[session.network].config.name,
            "queues": session.queues,
            "bytes": session.bytes,
            "mac": mac_text(session.mac),
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

fn no_client(client: u64) -> Value {
    json!({ "error": format!("there is no client {client}; `conic ctl list` lists them") })
}

fn object(counters: &[(&'static str, u64)]) -> Map<String, Value> {
    counters.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect()
}
