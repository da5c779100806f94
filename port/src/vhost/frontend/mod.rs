//! The frontend: the driver's half, in memory of its own. It asks, and the backend answers.
//!
//! | step | what is said |
//! |---|---|
//! | 1 | which features has the backend; which of the protocol's, where it has such; how many queues, where it may be several |
//! | 2 | these are used; here is the memory |
//! | 3 | of each ring: slots, where it begins, where it lies, what is rung when something was used, what is rung when something is available; enabled |
//!
//! From step 2 on one message waits for another's answer, where the backend has agreed to answer; otherwise all are said at once. The memory is
//! new for each connection, and the backend may do with it what it likes: what is read there is checked (`ring.rs`), and what has to be
//! remembered is remembered elsewhere.

mod ring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::{Held, Mapping};
use rustix::event::{EventfdFlags, eventfd};

use super::channel::Channel;
use super::half::{Device, Half, Outside, Queue, Side, feature, protocol};
use super::message::{Header, Place, ask, halves, word};
use super::{Card, Counts, VhostOptions};
use crate::Legacy;
use ring::{BUFFER, DriverRing, Layout};

/// Where the memory begins, for the backend: an address like another.
const BEGIN: u64 = 1 << 32;

/// What is asked for (`message.rs` has the other half's view).
mod request {
    pub(super) const GET_FEATURES: u32 = 1;
    pub(super) const SET_FEATURES: u32 = 2;
    pub(super) const SET_OWNER: u32 = 3;
    pub(super) const SET_MEMORY: u32 = 5;
    pub(super) const SET_SLOTS: u32 = 8;
    pub(super) const SET_PARTS: u32 = 9;
    pub(super) const SET_BASE: u32 = 10;
    pub(super) const SET_KICK: u32 = 12;
    pub(super) const SET_CALL: u32 = 13;
    pub(super) const GET_PROTOCOL: u32 = 15;
    pub(super) const SET_PROTOCOL: u32 = 16;
    pub(super) const GET_QUEUES: u32 = 17;
    pub(super) const ENABLE: u32 = 18;
}

/// What the backend of a card may have and its frontend does not use.
const NOT_HERE: u64 = feature::INDIRECT | feature::ANY_LAYOUT | feature::PACKED;

/// A message that waits for its turn, with its descriptor.
type Waiting = (u32, Vec<u32>, Option<OwnedFd>);

/// The driver's half.
#[derive(Debug)]
pub struct Frontend {
    /// Pairs of rings that are wanted, and then those that there are.
    pairs: usize,
    layout: Layout,
    /// What the protocol was agreed to have.
    protocol: u64,
    /// The request whose answer is awaited.
    expected: Option<u32>,
    waiting: VecDeque<Waiting>,
    /// The rings, until the backend has heard of all.
    made: Vec<DriverRing>,
}

impl Half for Frontend {
    type Ring = DriverRing;
    const KIND: &'static str = "virtio-user";
    const OUT: usize = 1;
    const CHECKSUM: u64 = feature::CHECKSUM;
    const TCP: [u64; 2] = feature::HOST_TCP;
    const SAYS_VALID: bool = false;

    fn new(options: &VhostOptions) -> Frontend {
        Frontend {
            pairs: options.queues,
            layout: Layout::of(1 << options.log2_slots),
            protocol: 0,
            expected: None,
            waiting: VecDeque::new(),
            made: Vec::new(),
        }
    }

    fn bell(queue: &Queue) -> Option<&Arc<Held>> {
        queue.kick.as_ref()
    }

    fn awaited(queue: &Queue) -> Option<&Arc<Held>> {
        queue.call.as_ref()
    }

    fn greet(device: &mut Device<Frontend>, channel: &Channel) -> Result<(), &'static str> {
        device.half.expect(request::GET_FEATURES, channel)
    }

    fn is_expecting(device: &Device<Frontend>) -> bool {
        device.half.expected.is_some()
    }

    fn hear(
        device: &mut Device<Frontend>,
        (header, body, descriptors): (Header, &[u8], Vec<Held>),
        channel: &Channel,
        options: &VhostOptions,
        outside: &Outside<DriverRing>,
        counts: &mut Counts,
    ) -> Result<(), &'static str> {
        if !header.is_reply || !descriptors.is_empty() || device.half.expected.take() != Some(header.request) {
            return Err("an answer to nothing that was asked");
        }
        let said = word(body)?;
        match header.request {
            request::GET_FEATURES => {
                // Merged buffers, or the long header of version 1: without either a frame of more than one buffer could not come.
                device.features = said & feature::offered(options) & !NOT_HERE;
                device.half.say(request::SET_OWNER, &[], None);
                if device.has(feature::PROTOCOL) {
                    return device.half.expect(request::GET_PROTOCOL, channel);
                }
                device.half.pairs = 1;
            }
            request::GET_PROTOCOL => {
                let several = if device.half.pairs > 1 { protocol::SEVERAL_QUEUES } else { 0 };
                device.half.protocol = said & (protocol::REPLIES | several);
                let chosen = halves(device.half.protocol);
                // It has no answer by itself, and replies are agreed on only with it.
                channel.send(&ask(request::SET_PROTOCOL, false, &chosen), None).map_err(|_| UNSAID)?;
                if device.half.protocol & protocol::SEVERAL_QUEUES != 0 && device.has(feature::SEVERAL_QUEUES) {
                    return device.half.expect(request::GET_QUEUES, channel);
                }
                device.half.pairs = 1;
            }
            request::GET_QUEUES => {
                let most = usize::try_from(said).unwrap_or(usize::MAX);
                device.half.pairs = device.half.pairs.min(most).max(1);
            }
            _ if said != 0 => {
                counts.failed += 1;
                return Err("the backend could not do what it was asked");
            }
            _ => return device.go_on(channel, outside),
        }
        if device.half.pairs == 1 {
            device.features &= !feature::SEVERAL_QUEUES;
        }
        device.make(options, outside).map_err(|_| "no memory for the rings")?;
        device.go_on(channel, outside)
    }

    /// The backend knows this process's memory by its connection: another one connects anew when this one has hung up.
    fn pass_on(_card: &mut Card<Frontend>) -> Option<Legacy> {
        Some(Legacy::default())
    }
}

/// Why a connection ends that takes nothing more.
const UNSAID: &str = "a request cannot be sent";

impl Frontend {
    /// Asks for a word.
    fn expect(&mut self, request: u32, channel: &Channel) -> Result<(), &'static str> {
        self.expected = Some(request);
        channel.send(&ask(request, false, &[]), None).map_err(|_| UNSAID)
    }

    /// Says something when it is its turn.
    fn say(&mut self, request: u32, body: &[u32], descriptor: Option<OwnedFd>) {
        self.waiting.push_back((request, body.to_vec(), descriptor));
    }
}

impl Device<Frontend> {
    /// Makes memory and rings, and all messages that the backend is to hear of them.
    fn make(&mut self, options: &VhostOptions, outside: &Outside<DriverRing>) -> io::Result<()> {
        let layout = self.half.layout;
        let rings = 2 * self.half.pairs;
        let bytes = rings * layout.bytes();
        let (mapping, memory) = Mapping::sealed(bytes)?;
        drop(mapping);
        let place = Place { guest: BEGIN, bytes: bytes as u64, user: BEGIN, offset: 0 };
        let passed = memory.try_clone()?;
        let added = self.memory().and_then(|regions| regions.add(place, Held::own(memory), false, bytes as u64));
        added.map_err(io::Error::other)?;
        let [features, begin, size] = [self.features, BEGIN, bytes as u64].map(halves);
        self.half.say(request::SET_FEATURES, &features, None);
        self.half.say(request::SET_MEMORY, &[&[1, 0], &begin[..], &size, &begin, &[0, 0]].concat(), Some(passed));
        let agreed = self.agreed();
        for number in 0..rings {
            let ring = DriverRing::make(&self.regions, layout, number, agreed);
            let [kick, call] = [event()?, event()?];
            let ring_number = number as u32;
            self.half.say(request::SET_SLOTS, &[ring_number, 1 << options.log2_slots], None);
            self.half.say(request::SET_BASE, &[ring_number, 0], None);
            let parts = layout.parts(number);
            let places = [parts.descriptors, parts.used, parts.available, 0].map(halves).concat();
            self.half.say(request::SET_PARTS, &[&[ring_number, 0], &places[..]].concat(), None);
            self.half.say(request::SET_CALL, &halves(number as u64), Some(call.try_clone()?));
            self.half.say(request::SET_KICK, &halves(number as u64), Some(kick.try_clone()?));
            self.queues[number].kick = Some(Arc::new(Held::own(kick)));
            self.queues[number].call = Some(Arc::new(Held::own(call)));
            self.await_word(number, outside)?;
            self.half.made.push(ring);
        }
        if self.has(feature::PROTOCOL) {
            (0..rings as u32).for_each(|number| self.half.say(request::ENABLE, &[number, 1], None));
        }
        Ok(())
    }

    /// Says what comes next; begins behind the last.
    fn go_on(&mut self, channel: &Channel, outside: &Outside<DriverRing>) -> Result<(), &'static str> {
        let replies = self.half.protocol & protocol::REPLIES != 0;
        while let Some((request, body, descriptor)) = self.half.waiting.pop_front() {
            let message = ask(request, replies, &body);
            channel.send(&message, descriptor.as_ref().map(AsFd::as_fd)).map_err(|_| UNSAID)?;
            if replies {
                self.half.expected = Some(request);
                return Ok(());
            }
        }
        for (number, ring) in std::mem::take(&mut self.half.made).into_iter().enumerate() {
            ring.interrupt(&self.regions, false);
            self.serve(number, ring, outside);
        }
        Ok(())
    }
}

/// A bell.
fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// The longest frame takes so many buffers with the longest header.
const _: () = assert!((crate::MAX_FRAME + super::ring::LONG_HEADER).div_ceil(BUFFER) < super::ring::MOST_PIECES);

#[cfg(test)]
mod tests;
