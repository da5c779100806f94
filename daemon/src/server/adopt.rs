//! A new daemon takes over from one that runs, and no client loses its session.
//!
//! | step | the old one | the new one |
//! |---|---|---|
//! | 1 | | connects, says who it is, asks `{"ask": "adopt", "version": 14}` |
//! | 2 | ends what attaching it has begun; says which ports it has, with their circuits and an operator's mirrors, and which it can give; passes its listening socket and that of its metrics, for each client its circuit and mirror, region, connection, process, kick and bells, who else is connected, with what it waits for, the regions of detached clients that these may use still, and the connections of those that have left and have not read all | opens the other ports, prepares for those (DPDK is started), maps the regions |
//! | 3 | | says that it is ready, its threads and those ports with it, and which ports it wants |
//! | 4 | has its networks' threads stand still, gives the ports and says where each queue stood | keeps all of it, and touches nothing |
//! | 5 | hears that, and is over; hears nothing, and serves on (`leaving.rs`) | says that everything is its own, takes ports and queues over, then begins |
//! | 6 | closes the devices and files that cannot be passed, says so, ends | opens them; what is for them until then is dropped and counted |
//!
//! Until step 5 a new one that fails is one that never was. The blackout is step 4 and the new one's half of step 5, that of a device step 6
//! too. A packet socket gets a copy of each frame, the new one's as well: what has come to that when the old threads stand still is dropped, or it would come twice.

mod circuits;
mod guests;
mod kept;
mod leaving;
mod link;
mod ports;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use conic_control::{Extensions, Hello, Message, Name, OLDEST, VERSION};
use conic_fabric::Time;
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Features, Geometry, Headroom, Map};
use conic_native::channel::{Channel, Listener, Peer, refuse_descriptors};
use conic_native::{Memory, about_to, clock};
use conic_nicd::config::EndConfig;
use conic_nicd::switch::{Circuit, Party, PassedEnd, Rules, Suspended};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::listening::set_mode;
use super::mirror::Asked;
use super::network::Network;
use super::{Daemon, DaemonError, Ended, system};
use crate::connection::{Connection, PortMove, Session, Step};
use crate::event::Event;
use crate::order::{Order, Report};
use circuits::passed_end;
use guests::hear_guest;
use kept::{hear_kept, hear_unread};
use link::Link;
pub(crate) use ports::Anew;
pub(super) use ports::Promise;
use ports::{Expected, Given};

/// How long either side waits for the other at a step.
const PATIENCE: Time = Time::from_nanoseconds(10_000_000_000);

/// How long the old one waits for a port that is being closed: the new one may be about to open the same.
const CLOSING: Time = Time::from_nanoseconds(1_000_000_000);

/// How long it looks away between two looks.
const NAP: Duration = Duration::from_millis(1);

/// What both daemons must mean by taking over: another number for each change of what is said or of what a port gives.
pub(super) const TAKING_OVER: u32 = 14;

/// What the new one says when it has everything, and from then on serves: the other one never does again.
const MINE: &str = "mine";

/// Why a new one ends that has everything.
const SERVES_ON: &str =
    "the other NIC has not heard in time that everything is this one's, and serves on, or it has ended: try again";

/// What is said first; with it come the socket at which clients attach and, where there is one, that of the metrics.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    next_session: u64,
    /// Above those of all circuits that an operator has made.
    next_circuit: u64,
    clients: usize,
    guests: usize,
    kept: usize,
    unread: usize,
    ports: Vec<Promise>,
}

/// What is said of a client; with it come region, connection, process and kick.
#[derive(Debug, Serialize, Deserialize)]
struct Heir {
    session: u64,
    name: String,
    network: String,
    mac: [u8; 6],
    queues: u32,
    descriptors: u64,
    buffers: [u64; 3],
    object_bytes: u64,
    headroom: [u64; 2],
    /// It was told that heavy fences reach it. That it kicks whoever rests goes with the number.
    fences: bool,
    process: i32,
    user: u32,
    group: u32,
    /// The circuit that it is an end of, and the configuration's.
    wired: PassedEnd,
    /// Of an operator; one of the configuration begins anew.
    mirror: Option<Asked>,
}

/// Where a client's queues stood, and what it may do.
#[derive(Debug, Serialize, Deserialize)]
struct Stood {
    session: u64,
    rules: Rules,
    positions: Vec<[u64; 3]>,
}

/// What the old one says when its threads stand still.
#[derive(Debug, Serialize, Deserialize)]
enum Last {
    Port(Given),
    Client(Stood),
    /// That was all, but for ports that are still to be closed, by their promises.
    Done(Vec<usize>),
    /// They are closed.
    Closed,
}

/// One that has come, under which number it is heard here, and where it stood.
struct Standing {
    number: u64,
    arriving: Arriving,
    stood: Stood,
}

/// A client on its way to the new daemon.
struct Arriving {
    heir: Heir,
    network: usize,
    channel: Channel,
    process: OwnedFd,
    memory: Arc<Memory>,
    map: Arc<Map>,
    notices: Notices,
    kick: Arc<OwnedFd>,
    bells: Vec<OwnedFd>,
    /// In which it is here.
    circuit: Option<Circuit>,
}

/// What comes before the clients.
pub(super) struct Inheritance {
    channel: Channel,
    listener: OwnedFd,
    metrics: Option<TcpListener>,
    /// What was said first, but for its ports.
    head: Head,
    ports: Expected,
    /// Ports here, by network and number, that are opened when the other one has closed all its own: they record to files which that one may
    /// be writing until then, or open pipes.
    late: Vec<(usize, usize)>,
}

impl Inheritance {
    /// Asks the daemon at the other end to be adopted, and takes what it has beside clients.
    pub(super) fn ask(channel: Channel) -> Result<Inheritance, DaemonError> {
        ask_to_adopt(&channel)?;
        let link = Link::with(&channel);
        let (head, descriptors) = link.hear().map_err(system("taking over"))?;
        let mut head: Head =
            serde_json::from_value(head).map_err(|error| cannot(&format!("what the other NIC has: {error}")))?;
        let mut descriptors = descriptors.into_iter();
        let listener = descriptors.next().ok_or_else(|| cannot("the other NIC passed no socket"))?;
        let metrics = descriptors.next().map(TcpListener::from);
        let ports = Expected::of(std::mem::take(&mut head.ports));
        Ok(Inheritance { channel, listener, metrics, head, ports, late: Vec::new() })
    }

    /// The socket of its metrics, for whoever is to have metrics at the same address.
    pub(super) fn take_metrics(&mut self) -> Option<TcpListener> {
        self.metrics.take()
    }

    /// What the other one says of a port that it has too, which is then the one of the network and the port of these numbers here.
    pub(super) fn claim(&mut self, network: &str, spec: &str, place: (usize, usize)) -> Option<Promise> {
        self.ports.claim(network, spec, place)
    }

    /// The same of what an operator has attached to a network and no configuration names.
    pub(super) fn claim_attached(&mut self, network: &str, first: (usize, usize)) -> Vec<(usize, Promise)> {
        self.ports.claim_attached(network, first)
    }

    /// Has a port here opened when the other one has closed all of its own.
    pub(super) fn open_late(&mut self, place: (usize, usize)) {
        self.late.push(place);
    }
}

impl Daemon {
    /// The old one's half; how this one ends, if the new one has everything.
    pub(super) fn give_over(&mut self, number: u64) -> Option<Ended> {
        self.finish_what_is_begun();
        let link = Link::with(&self.connections.get(&number)?.channel);
        about_to("adopt: say what there is");
        // A new one that fails until here is let go, and nothing has changed.
        let ready = self.pass_everything(&link, number).and_then(|()| link.hear());
        let wanted = ready.ok().and_then(|(word, _)| serde_json::from_value::<Vec<usize>>(word["ready"].clone()).ok());
        let Some(wanted) = wanted else {
            self.serve_on_without(number);
            return None;
        };
        self.leave_everything_to(number, &wanted)
    }

    /// Waits for regions that are being made and for clients that are being entered, so that they are passed with the others, and for what
    /// clients and operators are about to be told; not for a port that is being opened, which may take for ever.
    fn finish_what_is_begun(&mut self) {
        let begun = clock::now();
        // The new one is still there then.
        let half = Time::from_nanoseconds(PATIENCE.nanoseconds() / 2);
        let worth = |one: &Connection| match one.port_move() {
            Some(PortMove::Opening) => None,
            Some(PortMove::Closing) => Some(CLOSING),
            None => (matches!(one.step, Step::Making(_)) || one.waits_for_threads()).then_some(half),
        };
        while let Some(most) = self.connections.values().filter_map(worth).max() {
            let left = Duration::from_nanos((begun + most).since(clock::now()).nanoseconds());
            let Ok(news) = self.news.recv_timeout(left) else { return };
            self.act_on(news);
        }
    }

    fn pass_everything(&self, link: &Link<'_>, heir: u64) -> io::Result<()> {
        let Daemon { next_session, next_circuit, .. } = *self;
        let (clients, guests, ports) = (self.sessions().count(), self.count_guests(heir), self.promises());
        let (kept, unread) = (self.kept.len(), self.unread.len());
        let metrics = self.metrics.as_ref().map(|metrics| metrics.listener.as_fd());
        let sockets: Vec<BorrowedFd<'_>> = [self.listener.as_fd()].into_iter().chain(metrics).collect();
        link.say(&json!(Head { next_session, next_circuit, clients, guests, kept, unread, ports }), &sockets)?;
        let reports: Vec<Report> = self.networks.iter().map(|network| network.report()).collect();
        for connection in self.connections.values() {
            let Step::Attached(session) = &connection.step else { continue };
            let Geometry { queues, descriptors, buffers, object_bytes } = session.geometry;
            let (network, report) = (&self.networks[session.network], &reports[session.network]);
            let party = Party::Client(session.session);
            let heir = Heir {
                session: session.session,
                name: session.name.as_str().to_owned(),
                network: network.config.name.clone(),
                mac: session.mac,
                queues,
                descriptors,
                buffers,
                object_bytes,
                headroom: [session.headroom.bytes, session.headroom.places],
                fences: session.fences,
                process: connection.peer.process,
                user: connection.peer.user,
                group: connection.peer.group,
                wired: passed_end(report, party, network.config.circuit_of_client(session.name.as_str())),
                mirror: network.mirror_to_pass(party, &report.mirrors),
            };
            let passed = [
                session.memory.descriptor(),
                connection.channel.as_fd(),
                connection.process.as_fd(),
                session.kick.as_fd(),
            ];
            link.say(&json!(heir), &passed)?;
            let bells: Vec<BorrowedFd<'_>> = session.bells.iter().map(AsFd::as_fd).collect();
            link.say_descriptors(&bells)?;
        }
        self.pass_guests(link, heir)?;
        self.pass_kept(link)?;
        self.pass_unread(link)
    }

    /// The new one's half: takes over from the daemon that listens at the configuration's socket.
    pub(super) fn take_over(&mut self, inheritance: Inheritance) -> Result<(), DaemonError> {
        let Inheritance { channel, listener, head, mut ports, late, .. } = inheritance;
        let Head { next_session, next_circuit, clients, guests, kept, unread, .. } = head;
        let link = Link::with(&channel);
        let mut arriving = (0..clients).map(|_| self.arrive(&link)).collect::<Result<Vec<_>, _>>()?;
        let guests = (0..guests).map(|_| hear_guest(&link)).collect::<Result<Vec<_>, _>>()?;
        let kept = (0..kept).map(|_| hear_kept(&link)).collect::<Result<Vec<_>, _>>()?;
        let unread = (0..unread).map(|_| hear_unread(&link)).collect::<Result<Vec<_>, _>>()?;
        self.settle_circuits(&ports, &mut arriving);
        about_to("adopt: say that it is ready");
        link.say(&json!({ "ready": ports.claimed() }), &[]).map_err(system("taking over"))?;
        let begun = clock::now();
        let (standing, closed) = self.hear_what_is_left(&link, arriving, &mut ports)?;
        about_to("adopt: say that everything is its own");
        // The word after which this one serves, and the other never again: until here nothing was touched that is the other's.
        link.say(&json!(MINE), &[]).map_err(|_| cannot(SERVES_ON))?;
        about_to("adopt: go on with clients");
        self.listener = Listener::of_descriptor(listener);
        // Not before: it would be the other's socket still. Where it cannot be, who may connect is who could before.
        if let Err(error) = set_mode(&self.config) {
            self.journal.say(&Event::ModeNotSet { text: error.to_string() });
        }
        self.next_session = next_session.max(1);
        self.next_circuit = next_circuit.max(self.next_circuit);
        standing.into_iter().for_each(|one| self.go_on_with(one));
        // Only now is this one who listens. Without, only who looks on is told the other.
        let _ = self.listener.listen_as_this_process();
        let to_be_opened = ports.split_off(&closed);
        self.inherit_ports(ports);
        about_to("adopt: begin");
        // Not before: a frame for a client that is not there yet would be nobody's.
        self.networks.iter().for_each(Network::begin);
        let clients = self.sessions().count();
        let microseconds = clock::now().since(begun).nanoseconds() / 1000;
        self.journal.say(&Event::Adopted { clients, microseconds });
        kept.into_iter().for_each(|kept| self.go_on_keeping(kept));
        unread.into_iter().for_each(|one| self.go_on_waiting_for(one));
        guests.into_iter().for_each(|guest| self.go_on_with_guest(guest));
        if !closed.is_empty() || !late.is_empty() {
            // Who dies instead has closed them too.
            let _ = link.hear();
            self.inherit_ports(to_be_opened);
            late.into_iter().for_each(|place| self.open_late(place));
        }
        Ok(())
    }

    /// Takes what the old one's threads have left, and touches none of it: the clients that go on, and the ports that are to be opened when
    /// the old one has closed them.
    fn hear_what_is_left(
        &mut self,
        link: &Link<'_>,
        arriving: Vec<Arriving>,
        ports: &mut Expected,
    ) -> Result<(Vec<Standing>, Vec<usize>), DaemonError> {
        let mut arriving: Vec<Option<Arriving>> = arriving.into_iter().map(Some).collect();
        let mut standing = Vec::new();
        loop {
            let (word, _) = link.hear().map_err(system("taking over"))?;
            let word =
                serde_json::from_value(word).map_err(|error| cannot(&format!("the other NIC's word: {error}")))?;
            let stood = match word {
                Last::Port(given) => {
                    ports.take(link, given).map_err(system("taking over"))?;
                    continue;
                }
                Last::Client(stood) => stood,
                Last::Done(closed) => return Ok((standing, closed)),
                Last::Closed => continue,
            };
            let is_it = |one: &&mut Option<Arriving>| one.as_ref().is_some_and(|one| one.heir.session == stood.session);
            if let Some(arriving) = arriving.iter_mut().find(is_it).and_then(Option::take) {
                let number = self.next;
                self.next += 1;
                // While the other one can go on still.
                self.watch(arriving.channel.as_fd(), number << 1)?;
                self.watch(arriving.process.as_fd(), number << 1 | 1)?;
                standing.push(Standing { number, arriving, stood });
            }
        }
    }

    /// Takes one client's things, and maps its region.
    fn arrive(&self, link: &Link<'_>) -> Result<Arriving, DaemonError> {
        let (word, descriptors) = link.hear().map_err(system("taking over"))?;
        let heir: Heir = serde_json::from_value(word).map_err(|error| cannot(&format!("a client's part: {error}")))?;
        let network = self.networks.iter().position(|network| network.config.name == heir.network);
        let network = network.ok_or_else(|| {
            cannot(&format!("it has clients on a network \"{}\", and this one has none of that name", heir.network))
        })?;
        if heir.fences && !self.fences {
            // It would miss what the client sends at the moment at which a queue is put to rest.
            return Err(cannot(
                "its clients rely on fences by membarrier(2), which this one may not use; a sandbox may forbid it",
            ));
        }
        let Ok([region, channel, process, kick]) = <[OwnedFd; 4]>::try_from(descriptors) else {
            return Err(cannot("a client's descriptors are missing"));
        };
        let bells = link.hear_descriptors(heir.queues as usize).map_err(system("taking over"))?;
        // Where the daemon before this one had not asked for it.
        bells.iter().for_each(|bell| refuse_descriptors(bell.as_fd()));
        let Heir { queues, descriptors, buffers, object_bytes, headroom: [bytes, places], .. } = heir;
        let geometry = Geometry { queues, descriptors, buffers, object_bytes };
        let (map, notices) = laid_out(geometry, Headroom { bytes, places })?;
        let memory = Memory::attach(region, map.layout.bytes()).map_err(|error| cannot(&error.to_string()))?;
        let (memory, map, kick) = (Arc::new(memory), Arc::new(map), Arc::new(kick));
        Ok(Arriving {
            heir,
            network,
            channel: Channel::of_descriptor(channel),
            process,
            memory,
            map,
            notices,
            kick,
            bells,
            circuit: None,
        })
    }

    /// Serves a client from where its queues stood.
    fn go_on_with(&mut self, one: Standing) {
        let Standing { number, arriving, mut stood } = one;
        let Arriving { mut heir, network, channel, process, memory, map, notices, kick, bells, circuit } = arriving;
        let bytes = map.layout.bytes().next_multiple_of(4096);
        // It had passed the old one's quota; a smaller one holds for new clients only.
        self.quota.take_regardless(heir.user, heir.queues, bytes);
        let (bells, mac) = (Arc::new(bells), stood.rules.mac);
        stood.rules.circuit = circuit;
        let suspended = Suspended { session: heir.session, rules: stood.rules, positions: stood.positions };
        self.networks[network].attach(Order::Resume {
            suspended,
            map: Arc::clone(&map),
            notices,
            memory: Arc::clone(&memory),
            kick: Arc::clone(&kick),
            bells: Arc::clone(&bells),
        });
        let mirrored = EndConfig::Client(heir.name.clone());
        let (party, passed) = (Party::Client(heir.session), heir.mirror.take());
        if let Some(event) = self.networks[network].begin_mirror(party, &mirrored, passed) {
            self.journal.say(&event);
        }
        let session = Session {
            session: heir.session,
            name: Name::new(&heir.name).unwrap_or_default(),
            network,
            queues: heir.queues,
            bytes,
            mac,
            memory,
            geometry: map.geometry,
            headroom: map.headroom,
            fences: heir.fences,
            kick,
            bells,
            has_asked: false,
        };
        let peer = Peer { process: heir.process, user: heir.user, group: heir.group };
        let step = Step::Attached(Box::new(session));
        self.connections.insert(number, Connection { channel, peer, process, step, deadline: Time::NEVER });
    }
}

/// Where everything lies in a client's region.
fn laid_out(geometry: Geometry, headroom: Headroom) -> Result<(Map, Notices), DaemonError> {
    let map = Map::with_headroom(geometry, Features::best(), headroom).map_err(|error| cannot(&error.to_string()))?;
    Ok(Notices::in_map(map))
}

fn cannot(why: &str) -> DaemonError {
    DaemonError::Cannot { what: "taking over".to_owned(), why: why.to_owned() }
}

/// Asks the daemon that listens at a socket to be adopted.
fn ask_to_adopt(channel: &Channel) -> Result<(), DaemonError> {
    about_to("adopt: ask");
    let hello = Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: Name::default() };
    channel.send(&Message::Hello(hello).encode(), &[]).map_err(system("speaking to the other NIC"))?;
    let until = clock::now() + PATIENCE;
    let welcome = loop {
        if let Some(received) = channel.receive().map_err(system("speaking to the other NIC"))? {
            break Message::decode(&received.bytes, received.descriptors.len());
        }
        if clock::now() >= until {
            return Err(cannot("the other NIC does not answer"));
        }
        channel.wait(NAP).map_err(system("speaking to the other NIC"))?;
    };
    match welcome {
        Ok(Message::Welcome(_)) => {}
        other => return Err(cannot(&format!("the other NIC said {other:?}"))),
    }
    let question = Message::Query(json!({ "ask": "adopt", "version": TAKING_OVER }).to_string());
    channel.send(&question.encode(), &[]).map_err(system("speaking to the other NIC"))
}
