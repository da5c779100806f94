//! A client gets its region and its queues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use conic_control::{Attach, Attached, Bells, MOST_BELLS, Message, Name, Reason, Refused, Wait};
use conic_fabric::Time;
use conic_interface::ccnic::notify::{MOST_QUEUES, Notices};
use conic_interface::ccnic::{Features, Geometry, Headroom, Map, prepare};
use conic_native::channel::Channel;
use conic_native::{Memory, NativeCore, Pages, about_to};
use conic_nicd::config::WaitMode;
use conic_nicd::switch::Rules;
use conic_port::MAX_FRAME;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::Daemon;
use crate::connection::{Session, Step, mac_text, refused};
use crate::event::Event;
use crate::worker::Order;

/// What was made for a client: its region, its kick, this side's ends of its bells.
type Made = (Arc<Memory>, Arc<OwnedFd>, Arc<Vec<OwnedFd>>);

/// What is passed to a client, and what stays here of it.
struct Passed {
    kick: OwnedFd,
    /// Both ends of a bell for each queue.
    ours: Vec<OwnedFd>,
    theirs: Vec<OwnedFd>,
}

impl Daemon {
    /// Gives a client what it asks for, or says why not.
    pub(super) fn attach(&mut self, number: u64, wish: &Attach) {
        match self.make_session(number, wish) {
            Ok(session) => {
                let Some(connection) = self.connections.get_mut(&number) else { return };
                let (process, user) = (connection.peer.process, connection.peer.user);
                let event = Event::Attached {
                    session: session.session,
                    name: session.name.to_string(),
                    process,
                    user,
                    network: self.networks[session.network].config.name.clone(),
                    queues: session.queues,
                    bytes: session.bytes,
                    mac: mac_text(session.mac),
                };
                about_to("enter a session");
                connection.step = Step::Attached(Box::new(session));
                connection.deadline = Time::NEVER;
                (self.log)(&event);
            }
            Err(refusal) => self.refuse(number, refusal),
        }
    }

    fn make_session(&mut self, number: u64, wish: &Attach) -> Result<Session, Refused> {
        let network = self.network_of(&wish.network)?;
        let (map, notices) = self.map_of(&wish.geometry, wish.headroom)?;
        let mac = self.mac_for(network, wish.mac)?;
        let bytes = map.layout.bytes().next_multiple_of(4096);
        let queues = wish.geometry.queues;
        let Some(connection) = self.connections.get(&number) else {
            return Err(refused(Reason::Malformed, "the connection is gone"));
        };
        let Step::Negotiated { name, offloads } = &connection.step else {
            return Err(refused(Reason::Malformed, "nothing was negotiated"));
        };
        let (user, name, offloads) = (connection.peer.user, name.clone(), *offloads);
        about_to("take a quota");
        self.quota.take(user, queues, bytes).map_err(|why| refused(Reason::Quota, why))?;
        let rules = Rules { offloads, ..self.networks[network].config.rules_for(name.as_str(), user, mac) };
        let session = self.next_session;
        let made = self.make_region(number, session, network, (map, notices), rules, wish);
        match made {
            Ok((memory, kick, bells)) => {
                self.next_session += 1;
                let (geometry, headroom) = (wish.geometry, wish.headroom);
                Ok(Session { session, name, network, queues, bytes, mac, memory, geometry, headroom, kick, bells })
            }
            Err(refusal) => {
                self.quota.give_back(user, queues, bytes);
                Err(refusal)
            }
        }
    }

    /// Makes the region, gives it to the network's thread, and passes it to the client.
    fn make_region(
        &mut self,
        number: u64,
        session: u64,
        network: usize,
        (map, notices): (Arc<Map>, Notices),
        rules: Rules,
        wish: &Attach,
    ) -> Result<Made, Refused> {
        let resources = |what: &str, why: &dyn std::fmt::Display| refused(Reason::Resources, format!("{what}: {why}"));
        // A client can give pages of its region back to the system: a plain page comes again, empty, at the next access, as
        // does a transparent huge one; where one of the reserved huge pages does not, that access would end the daemon.
        let memory = Memory::create(&map.layout, Pages::Plain).map_err(|error| resources("no memory", &error))?;
        prepare(&NativeCore::new(&memory), &map);
        let memory = Arc::new(memory);
        about_to("make bells");
        let passed = Passed::new(wish.geometry.queues).map_err(|error| resources("no descriptors", &error))?;
        let config = &self.networks[network].config;
        let attached = Attached {
            session,
            geometry: wish.geometry,
            features: map.features,
            bytes: map.layout.bytes(),
            mac: rules.mac,
            longest_frame: MAX_FRAME as u32,
            wait: if config.wait == WaitMode::Spin { Wait::Spin } else { Wait::Notify },
            fences: self.fences,
            network: Name::new(&config.name).unwrap_or_default(),
            bells: passed.theirs.len().min(MOST_BELLS) as u16,
        };
        let worker = &self.networks[network].worker;
        let Passed { kick, theirs, ours } = passed;
        let (kick, bells) = (Arc::new(kick), Arc::new(ours));
        let (map, memory_too) = (Arc::clone(&map), Arc::clone(&memory));
        let (its_kick, its_bells) = (Arc::clone(&kick), Arc::clone(&bells));
        about_to("order a client's service");
        worker.attach(Order::Attach {
            session,
            rules,
            map,
            notices,
            memory: memory_too,
            kick: its_kick,
            bells: its_bells,
        });
        let Some(connection) = self.connections.get(&number) else {
            return Err(refused(Reason::Malformed, "the connection is gone"));
        };
        if let Err(error) = pass(&connection.channel, &memory, &kick, &theirs, attached) {
            worker.detach(session);
            return Err(resources("the queues could not be passed", &error));
        }
        Ok((memory, kick, bells))
    }

    fn network_of(&self, name: &Name) -> Result<usize, Refused> {
        if name.as_str().is_empty() {
            return Ok(0);
        }
        self.networks.iter().position(|network| network.config.name == name.as_str()).ok_or_else(|| {
            let names: Vec<&str> = self.networks.iter().map(|network| network.config.name.as_str()).collect();
            refused(Reason::Network, format!("there is no network {name}; there are {}", names.join(", ")))
        })
    }

    /// The layout of the region asked for. What is too large is refused before anything is computed from it.
    fn map_of(&self, geometry: &Geometry, headroom: Headroom) -> Result<(Arc<Map>, Notices), Refused> {
        let limits = self.quota.limits();
        let most_bytes = limits.mib_per_client << 20;
        let too_much = |what: &str, asked: u64, most: u64| {
            (asked > most).then(|| refused(Reason::Quota, format!("{asked} {what} asked for, at most {most}")))
        };
        let most_queues = u64::from(limits.queues_per_client).min(MOST_QUEUES as u64);
        let refusal = too_much("queues", geometry.queues.into(), most_queues)
            .or_else(|| too_much("descriptors a ring", geometry.descriptors, limits.descriptors))
            .or_else(|| too_much("bytes of objects", geometry.object_bytes, most_bytes));
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let map = Map::with_headroom(*geometry, Features::best(), headroom);
        let map = map.map_err(|error| refused(Reason::Geometry, error.to_string()))?;
        let (map, notices) = Notices::in_map(map);
        Ok((Arc::new(map), notices))
    }

    /// A client's address: what it wants, if nobody else has it, or one made of its session's number.
    fn mac_for(&self, network: usize, wanted: Option<[u8; 6]>) -> Result<[u8; 6], Refused> {
        let taken = |mac: [u8; 6]| {
            let sessions = self.connections.values().filter_map(|one| match &one.step {
                Step::Attached(session) => Some(session),
                _ => None,
            });
            sessions.into_iter().any(|session| session.network == network && session.mac == mac)
        };
        if let Some(mac) = wanted {
            if mac[0] & 1 == 1 || mac == [0; 6] {
                return Err(refused(Reason::Mac, format!("{} is no address of one station", mac_text(mac))));
            }
            if taken(mac) {
                return Err(refused(Reason::Mac, format!("{} is another client's", mac_text(mac))));
            }
            return Ok(mac);
        }
        let made = (self.next_session..).map(|number| {
            let [.., a, b, c, d] = number.to_be_bytes();
            // Locally administered, of one station.
            [0x02, 0xc0, a, b, c, d]
        });
        Ok(made.into_iter().find(|&mac| !taken(mac)).unwrap_or([0x02, 0xc0, 0, 0, 0, 0]))
    }
}

impl Passed {
    fn new(queues: u32) -> rustix::io::Result<Passed> {
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..queues {
            // Sockets and not eventfds: their sender can say with each call that it does not wait, while the flag of an eventfd
            // is the client's too, who could fill it, clear the flag, and so stop this side at its next ring.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (own, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            ours.push(own);
            theirs.push(other);
        }
        Ok(Passed { kick, ours, theirs })
    }
}

/// Passes everything to a client, in as many messages as it takes.
fn pass(
    channel: &Channel,
    memory: &Memory,
    kick: &OwnedFd,
    bells: &[OwnedFd],
    attached: Attached,
) -> std::io::Result<()> {
    let (first, rest) = bells.split_at(usize::from(attached.bells));
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![memory.descriptor(), kick.as_fd()];
    descriptors.extend(first.iter().map(AsFd::as_fd));
    channel.send(&Message::Attached(attached).encode(), &descriptors)?;
    for (index, some) in rest.chunks(MOST_BELLS).enumerate() {
        let bells = Bells { first: (first.len() + index * MOST_BELLS) as u32, count: some.len() as u16 };
        let descriptors: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        channel.send(&Message::Bells(bells).encode(), &descriptors)?;
    }
    Ok(())
}
