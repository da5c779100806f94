//! A client gets its region and its queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use conic_control::{Attach, Attached, Bells, MOST_BELLS, Message, Name, Reason, Refused, Wait};
use conic_fabric::Time;
use conic_interface::ccnic::notify::{MOST_QUEUES, Notices};
use conic_interface::ccnic::{Features, Geometry, Headroom, Map};
use conic_native::channel::Channel;
use conic_native::{Memory, about_to, clock};
use conic_nicd::config::EndConfig;
use conic_nicd::switch::{Party, Rules};
use conic_port::MAX_FRAME;
use rustix::event::epoll;

use super::Daemon;
use super::region::{self, Departing, Leaving, Made, Region, Returned, Taken, Wish};
use super::spare::Next;
use crate::connection::{Entering, Making, Session, Step, mac_text, refused};
use crate::event::Event;
use crate::order::{Answer, News, Order};

/// When what there was no thread for is tried again.
const RETRY: Time = Time::from_nanoseconds(10_000_000);

impl Daemon {
    /// Begins to give a client what it asks for, or says why not.
    pub(super) fn attach(&mut self, number: u64, wish: &Attach) {
        if self.is_postponed(number) {
            return self.refuse(number, refused(Reason::Malformed, "it waits for what it has asked for already"));
        }
        match self.begin_session(number, wish) {
            Ok(Some(making)) => {
                let Some(connection) = self.connections.get_mut(&number) else { return };
                connection.step = Step::Making(Box::new(making));
                // What is waited for now is this side's.
                connection.deadline = Time::NEVER;
            }
            Ok(None) => self.postponed.push((number, wish.clone())),
            Err(refusal) => self.refuse(number, refusal),
        }
    }

    /// Whether it waits for one of its user's regions to be given back.
    pub(super) fn is_postponed(&self, number: u64) -> bool {
        self.postponed.iter().any(|(waiting, _)| *waiting == number)
    }

    /// Checks a client's wish and has its region made; none if that must wait until one of its user's is given back.
    fn begin_session(&mut self, number: u64, wish: &Attach) -> Result<Option<Making>, Refused> {
        let network = self.network_of(&wish.network)?;
        let (map, notices) = self.map_of(&wish.geometry, wish.headroom)?;
        let bytes = map.layout.bytes().next_multiple_of(4096);
        let queues = wish.geometry.queues;
        let Some(connection) = self.connections.get(&number) else {
            return Err(refused(Reason::Malformed, "the connection is gone"));
        };
        let Step::Negotiated { name, offloads } = &connection.step else {
            return Err(refused(Reason::Malformed, "nothing was negotiated"));
        };
        let (user, name, offloads) = (connection.peer.user, name.clone(), *offloads);
        let mac = self.mac_for(network, (name.as_str(), user), wish.mac)?;
        about_to("take a quota");
        if let Err(why) = self.quota.take(user, queues, bytes) {
            // A region that is on its way back, or can be, may be all that stands against it.
            return if self.make_room(user, queues, bytes) { Ok(None) } else { Err(refused(Reason::Quota, why)) };
        }
        let rules = Rules { offloads, ..self.networks[network].config.rules_for(name.as_str(), user, mac) };
        let session = self.next_session;
        self.next_session += 1;
        let taken = Taken { user, clients: 1, queues, bytes };
        let asked = Wish { connection: number, taken, map, notices };
        if let Some((asked, memory)) = self.spare.provide(asked) {
            region::make(asked, memory, &self.reports);
        }
        let (geometry, headroom) = (wish.geometry, wish.headroom);
        Ok(Some(Making { session, name, network, mac, geometry, headroom, rules }))
    }

    /// Goes on with a client whose region is made, or cannot be.
    pub(super) fn finish_session(&mut self, made: Made) {
        let map = made.region.as_ref().ok().map(|region| Arc::clone(&region.map));
        self.give_region(made);
        // Behind the client's answer, and also where nobody is there to get it: the spare one may have gone into this.
        if let Some(map) = map {
            self.keep_spare(map);
        }
    }

    /// Gives a client its region, or says why there is none; it may be gone.
    fn give_region(&mut self, made: Made) {
        let Made { connection: number, taken, region } = made;
        let connection = self.connections.get_mut(&number);
        let step = connection.map(|connection| std::mem::replace(&mut connection.step, Step::Connected));
        let (making, region) = match (step, region) {
            (Some(Step::Making(making)), Ok(region)) => (*making, region),
            (Some(Step::Making(_)), Err(refusal)) => {
                self.give_back_quota(taken);
                return self.refuse(number, refusal);
            }
            // Numbers of connections do not come again: who this was for is gone.
            (_, region) => {
                let Ok(Region { memory, .. }) = region else {
                    self.expect_no_more(taken.user);
                    return self.give_back_quota(taken);
                };
                return self.give_back(Departing::unheld(memory, taken, None));
            }
        };
        self.enter(number, making, taken, region);
    }

    /// Has a region made for who asks next for what this one asked for, unless it is too large to be kept for nobody.
    fn keep_spare(&mut self, map: Arc<Map>) {
        if map.layout.bytes() > self.config.limits.spare_mib << 20 {
            return;
        }
        match self.spare.was_asked_for(&map) {
            Next::Nothing => {}
            Next::Make => region::make_spare(map, &self.reports),
            Next::LetGo(memory) => region::let_go(memory),
        }
    }

    /// Goes on with who waited for the spare region, if somebody did.
    pub(super) fn spare_is_made(&mut self, memory: Option<Memory>) {
        if let Some((wish, memory)) = self.spare.is_made(memory) {
            region::make(wish, memory, &self.reports);
        }
    }

    /// Gives the region to one of the network's threads, and tells all of them of the client. A client that knows that it is attached may tell
    /// others, whose frames come by any thread: it is told when every thread has entered it.
    fn enter(&mut self, number: u64, making: Making, taken: Taken, region: Region) {
        let Making { session, name, network, mac, geometry, headroom, rules } = making;
        let Region { memory, map, notices, kick, bells, theirs } = region;
        let config = &self.networks[network].config;
        let attached = Attached {
            session,
            geometry,
            features: map.features,
            bytes: map.layout.bytes(),
            mac,
            longest_frame: MAX_FRAME as u32,
            // Also where these threads never sleep: those of another daemon that takes over may.
            wait: Wait::Notify,
            fences: self.fences,
            network: Name::new(&config.name).unwrap_or_default(),
            bells: theirs.len().min(MOST_BELLS) as u16,
        };
        about_to("order a client's service");
        self.networks[network].attach(Order::Attach {
            session,
            rules,
            map,
            notices,
            memory: Arc::clone(&memory),
            kick: Arc::clone(&kick),
            bells: Arc::clone(&bells),
        });
        // Before the client can send anything.
        let mirrored = EndConfig::Client(name.to_string());
        if let Some(event) = self.networks[network].begin_mirror(Party::Client(session), &mirrored, None) {
            self.journal.say_of(Some(taken.user), &event, clock::now());
        }
        self.networks[network].confirm(Answer::new(News::Entered { connection: number }, &self.reports));
        let deadline = clock::now() + self.step_timeout();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Taken { queues, bytes, .. } = taken;
        let session = Session {
            session,
            name,
            network,
            queues,
            bytes,
            mac,
            memory,
            geometry,
            headroom,
            fences: self.fences,
            kick,
            bells,
            has_asked: false,
        };
        connection.step = Step::Entering(Box::new(Entering { session, attached, theirs }));
        connection.deadline = deadline;
    }

    /// Passes its queues to a client whom every thread of its network has entered; it may be gone.
    pub(super) fn pass_queues(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let step = std::mem::replace(&mut connection.step, Step::Connected);
        let Step::Entering(entering) = step else { return connection.step = step };
        let passed = pass(&connection.channel, &entering);
        if let Err(error) = passed {
            connection.step = Step::Entering(entering);
            let text = format!("the queues could not be passed: {error}");
            return self.refuse(number, refused(Reason::Resources, text));
        }
        let Session { session, network, queues, bytes, mac, ref name, .. } = entering.session;
        let user = connection.peer.user;
        let event = Event::Attached {
            session,
            name: name.to_string(),
            process: connection.peer.process,
            user,
            network: self.networks[network].config.name.clone(),
            queues,
            bytes,
            mac: mac_text(mac),
        };
        about_to("enter a session");
        connection.step = Step::Attached(Box::new(entering.session));
        connection.deadline = Time::NEVER;
        self.journal.say_of(Some(user), &event, clock::now());
    }

    /// Nothing is left of a region: whoever waits for its place may have it.
    pub(super) fn region_is_back(&mut self, back: Returned) {
        let Returned { taken, leaving, unread, at } = back;
        self.expect_no_more(taken.user);
        if let Some(leaving) = leaving {
            self.log_leaving(taken.user, leaving, (at, false));
        }
        match unread {
            Some(channel) if channel.has_unread() => self.keep_unread(channel, taken),
            read => {
                read.into_iter().for_each(|channel| self.close(channel));
                self.give_back_quota(taken);
            }
        }
    }

    /// Has a region given back that nobody is to have any more.
    pub(super) fn give_back(&mut self, departing: Departing) {
        if let Some(departing) = region::give_back(departing, &self.reports) {
            self.unreturned.push(departing);
            self.try_again_later();
        }
    }

    pub(super) fn try_again_later(&mut self) {
        self.retry = Some(clock::now() + RETRY);
    }

    /// Tries again what there was no thread for.
    pub(super) fn try_again(&mut self) {
        if self.retry.take_if(|retry| *retry <= clock::now()).is_some() {
            std::mem::take(&mut self.unreturned).into_iter().for_each(|departing| self.give_back(departing));
            self.close_what_waits();
        }
    }

    /// Says that a client has left, and whether its memory is kept, or was back at this moment.
    pub(super) fn log_leaving(&mut self, user: u32, leaving: Leaving, (at, kept): (Time, bool)) {
        let Leaving { session, name, why, faults, noticed } = leaving;
        let microseconds = at.since(noticed).nanoseconds() / 1000;
        let event = Event::Detached { session, name, why, faults, microseconds, kept };
        if why == Reason::Operator.name() {
            // That is the operator's doing.
            self.journal.say(&event);
        } else {
            self.journal.say_of(Some(user), &event, clock::now());
        }
    }

    /// Keeps what a client has of its quota until it has read what it was told: the descriptors that lie in its socket count as open files of
    /// this daemon's user, and none would be left for others.
    pub(super) fn keep_unread(&mut self, channel: Channel, taken: Taken) {
        let number = self.next;
        self.next += 1;
        // Each message that is taken makes room, which is told.
        let (event, taking) = (epoll::EventData::new_u64(number << 1), epoll::EventFlags::OUT | epoll::EventFlags::ET);
        if epoll::add(&self.epoll, &channel, event, taking).is_err() {
            self.close(channel);
            return self.give_back_quota(taken);
        }
        self.unread.insert(number, (channel, taken));
        self.attend_to_postponed();
    }

    /// Lets a connection of [`Daemon::keep_unread`] go whose other side has read all, or is gone.
    pub(super) fn look_at_unread(&mut self, number: u64) {
        if self.unread.get(&number).is_none_or(|(channel, _)| channel.has_unread()) {
            return;
        }
        if let Some((channel, taken)) = self.unread.remove(&number) {
            let _ = epoll::delete(&self.epoll, &channel);
            self.close(channel);
            self.give_back_quota(taken);
        }
    }

    /// One of a user's regions is no longer on its way back.
    pub(super) fn expect_no_more(&mut self, user: u32) {
        if let Some(position) = self.returning.iter().position(|&one| one == user) {
            self.returning.swap_remove(position);
        }
    }

    fn give_back_quota(&mut self, Taken { user, clients, queues, bytes }: Taken) {
        about_to("give a quota back");
        self.quota.give_back(user, clients, queues, bytes);
        self.attend_to_postponed();
    }

    /// Gives those who wait for memory of their users what they asked for, or says why not.
    pub(super) fn attend_to_postponed(&mut self) {
        for (number, wish) in std::mem::take(&mut self.postponed) {
            self.attach(number, &wish);
        }
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
}

/// Passes everything to a client, in as many messages as it takes.
fn pass(channel: &Channel, entering: &Entering) -> std::io::Result<()> {
    let Entering { session, attached, theirs } = entering;
    let (first, rest) = theirs.split_at(usize::from(attached.bells));
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![session.memory.descriptor(), session.kick.as_fd()];
    descriptors.extend(first.iter().map(AsFd::as_fd));
    channel.send(&Message::Attached(attached.clone()).encode(), &descriptors)?;
    for (index, some) in rest.chunks(MOST_BELLS).enumerate() {
        let bells = Bells { first: (first.len() + index * MOST_BELLS) as u32, count: some.len() as u16 };
        let descriptors: Vec<BorrowedFd<'_>> = some.iter().map(AsFd::as_fd).collect();
        channel.send(&Message::Bells(bells).encode(), &descriptors)?;
    }
    Ok(())
}
