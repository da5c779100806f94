//! What two sides have agreed on: the server's half, which checks what a client brings, and the client's, which makes it.
//!
//! Both are driven by messages alone; neither has a clock or a socket. What is refused is refused with a reason for the peer,
//! and ends the connection: every descriptor that it brought is closed, on another thread, every region unmapped.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use conic_native::{Held, Mapping};
use rustix::event::{EventfdFlags, eventfd};

use super::message::{AddRing, ETHERNET, Hello, Init, Message, SECRET, Text, VERSION};
use super::ring::{LEAST_BUFFER, MOST_LOG2_SLOTS, Place, Regions, Ring, Side};
use super::{MemifOptions, NAME};
use crate::peer::{map_region, take_interrupt};

/// Regions of a client at most.
pub(super) const MOST_REGIONS: usize = 16;
/// Rings in each direction at most.
pub(super) const MOST_RINGS: usize = 16;

/// A ring and the descriptor that says that there is something in it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ring: Ring,
    pub(super) interrupt: Held,
}

/// What was agreed: memory and rings, ready to be used.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) regions: Regions,
    /// The regions' descriptors, for a process that goes on with the session.
    pub(super) memory: Vec<Held>,
    pub(super) receive: Vec<Link>,
    pub(super) transmit: Vec<Link>,
    /// The other side's name, as it says.
    pub(super) peer: String,
}

/// What to do about a message.
#[derive(Debug)]
pub(super) enum Reply {
    /// Wait for the next.
    Wait,
    Send(Message),
    /// Send this with a descriptor.
    Pass(Message, OwnedFd),
    /// The session stands; the message, if any, tells the other side.
    Ready(Session, Option<Message>),
}

/// What is said to every client that connects.
pub(super) fn hello() -> Message {
    Message::Hello(Hello {
        name: Text::new(NAME),
        least_version: VERSION,
        most_version: VERSION,
        last_region: MOST_REGIONS as u16 - 1,
        last_to_client: MOST_RINGS as u16 - 1,
        last_to_server: MOST_RINGS as u16 - 1,
        most_log2_slots: MOST_LOG2_SLOTS,
    })
}

/// The server's half.
#[derive(Debug, Default)]
pub(super) struct Acceptance {
    /// Rings to transmit with that there must be.
    parts: usize,
    introduced: bool,
    peer: String,
    /// Before their descriptors: whoever lets go of the last of memory gives all its pages back, and that is not to be this thread.
    regions: Regions,
    memory: Vec<Held>,
    bytes: u64,
    to_server: Vec<(Place, Held)>,
    to_client: Vec<(Place, Held)>,
}

impl Acceptance {
    /// For a port of so many parts, each of which needs a ring to transmit with.
    pub(super) fn for_parts(parts: usize) -> Acceptance {
        Acceptance { parts, ..Acceptance::default() }
    }

    /// Takes a message of the client with the descriptors that came with it.
    pub(super) fn hear(
        &mut self,
        message: Message,
        mut descriptors: Vec<Held>,
        options: &MemifOptions,
    ) -> Result<Reply, &'static str> {
        let wanted = usize::from(matches!(message, Message::AddRegion { .. } | Message::AddRing(_)));
        if descriptors.len() != wanted {
            return Err(if wanted == 1 { "one descriptor belongs to this message" } else { "unexpected descriptor" });
        }
        match (message, descriptors.pop()) {
            (Message::Init(init), None) if !self.introduced => self.introduce(&init, options),
            (Message::AddRegion { index, bytes }, Some(memory)) if self.introduced => {
                self.add_region(index, bytes, memory, options)
            }
            (Message::AddRing(ring), Some(interrupt)) if self.introduced => self.add_ring(&ring, interrupt),
            (Message::Connect(_), None) if self.introduced => {
                let session = std::mem::take(self).establish()?;
                return Ok(Reply::Ready(session, Some(Message::Connected(Text::new(NAME)))));
            }
            _ => Err("unexpected message"),
        }?;
        Ok(Reply::Send(Message::Acknowledge))
    }

    fn introduce(&mut self, init: &Init, options: &MemifOptions) -> Result<(), &'static str> {
        if init.version != VERSION {
            return Err("incompatible version");
        }
        if init.id != options.id {
            return Err("there is no interface with this id");
        }
        if init.mode != ETHERNET {
            return Err("only Ethernet mode is supported");
        }
        let expected = Text::<SECRET>::new(options.secret.as_deref().unwrap_or_default()).0;
        // Every byte up to the end is looked at, whatever the first ones are. What is behind it means nothing: libmemif sends there what lay
        // in its memory.
        let text = expected.iter().position(|&byte| byte == 0).map_or(SECRET, |end| end + 1);
        let differs = init.secret.iter().zip(&expected).take(text);
        let differs = differs.fold(0, |differs, (given, wanted)| differs | (given ^ wanted));
        if options.secret.is_some() && differs != 0 {
            return Err("wrong secret");
        }
        self.introduced = true;
        self.peer = init.name.to_string();
        Ok(())
    }

    fn add_region(&mut self, index: u16, bytes: u64, memory: Held, options: &MemifOptions) -> Result<(), &'static str> {
        if usize::from(index) != self.regions.0.len() || self.regions.0.len() == MOST_REGIONS {
            return Err("invalid region index");
        }
        self.bytes = self.bytes.checked_add(bytes).ok_or("the regions are too large")?;
        if bytes == 0 || self.bytes > options.most_bytes {
            return Err("the regions are empty or too large");
        }
        self.regions.0.push(map_region(0, bytes, &memory, options.unsealed)?.0);
        self.memory.push(memory);
        Ok(())
    }

    fn add_ring(&mut self, ring: &AddRing, interrupt: Held) -> Result<(), &'static str> {
        let rings = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        if usize::from(ring.index) != rings.len() || rings.len() == MOST_RINGS {
            return Err("invalid ring index");
        }
        if ring.private_header != 0 {
            return Err("private headers are not supported");
        }
        let place = Place { region: ring.region, offset: ring.offset, log2_slots: ring.log2_slots };
        if !place.is_in(&self.regions) {
            return Err("the ring does not lie in its region");
        }
        take_interrupt(&interrupt)?;
        rings.push((place, interrupt));
        Ok(())
    }

    fn establish(self) -> Result<Session, &'static str> {
        if self.to_server.is_empty() && self.to_client.is_empty() {
            return Err("there are no rings");
        }
        if self.parts > 1 && self.to_client.len() < self.parts {
            return Err("fewer rings to you than this port has queues: ask for more");
        }
        let regions = self.regions;
        if self.to_server.iter().chain(&self.to_client).any(|(place, _)| !place.has_cookie(&regions)) {
            return Err("a ring does not begin with its cookie");
        }
        let link = |(place, interrupt)| Link { ring: Ring::new(place, Side::Server), interrupt };
        Ok(Session {
            receive: self.to_server.into_iter().map(link).collect(),
            transmit: self.to_client.into_iter().map(link).collect(),
            regions,
            memory: self.memory,
            peer: self.peer,
        })
    }
}

/// The client's half: what it will send, one message for each acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// Rings to transmit with that there must be.
    parts: usize,
    session: Option<Session>,
    /// Rings of both directions.
    rings: usize,
    waiting: VecDeque<(Message, Option<OwnedFd>)>,
}

impl Offer {
    /// For a port of so many parts, each of which needs a ring to transmit with.
    pub(super) fn for_parts(parts: usize) -> Offer {
        Offer { parts, ..Offer::default() }
    }

    /// Takes a message of the server.
    pub(super) fn hear(
        &mut self,
        message: Message,
        descriptors: &[Held],
        options: &MemifOptions,
    ) -> Result<Reply, &'static str> {
        if !descriptors.is_empty() {
            return Err("unexpected descriptor");
        }
        match message {
            Message::Hello(hello) if self.session.is_none() => {
                if !(hello.least_version..=hello.most_version).contains(&VERSION) {
                    return Err("incompatible version");
                }
                if usize::from(hello.last_to_server) + 1 < self.parts {
                    return Err("the server takes fewer rings than this port has queues");
                }
                self.make(&hello, options).map_err(|_| "no memory for the rings")?;
                self.next()
            }
            Message::Acknowledge if self.session.is_some() => self.next(),
            Message::Connected(_) if self.session.is_some() && self.waiting.is_empty() => {
                let session = self.session.take().ok_or("unexpected message")?;
                Ok(Reply::Ready(session, None))
            }
            _ => Err("unexpected message"),
        }
    }

    /// Why the server has probably gone without a word, by what it was told last.
    pub(super) fn parting(&self) -> String {
        // Who, the memory, each ring, and that this is all.
        let said = if self.session.is_some() { self.rings + 3 - self.waiting.len() } else { 0 };
        match said {
            0 => "the server has closed before it said what it is".to_owned(),
            1 | 2 => "the server has closed behind id and secret: does it have this id, and this secret?".to_owned(),
            _ if said <= self.rings + 2 => {
                format!(
                    "the server has closed behind ring {} of {}: give queues= a smaller number",
                    said - 2,
                    self.rings
                )
            }
            _ => "the server has closed behind the last ring".to_owned(),
        }
    }

    fn next(&mut self) -> Result<Reply, &'static str> {
        Ok(match self.waiting.pop_front() {
            Some((message, None)) => Reply::Send(message),
            Some((message, Some(descriptor))) => Reply::Pass(message, descriptor),
            None => Reply::Wait,
        })
    }

    /// Makes region, rings and messages within what the server can bear.
    fn make(&mut self, hello: &Hello, options: &MemifOptions) -> std::io::Result<()> {
        let rings = |last: u16| options.queues.clamp(1, MOST_RINGS).min(usize::from(last) + 1);
        let (to_server, to_client) = (rings(hello.last_to_server), rings(hello.last_to_client));
        let log2_slots = options.log2_slots.min(hello.most_log2_slots).clamp(1, MOST_LOG2_SLOTS);
        let slots = 1usize << log2_slots;
        let ring_bytes = Place::bytes(log2_slots).next_multiple_of(64);
        let count = to_server + to_client;
        self.rings = count;
        let buffers = (count * ring_bytes).next_multiple_of(4096);
        let buffer_bytes = options.buffer_bytes.max(LEAST_BUFFER as u32);
        let of_ring = slots * buffer_bytes as usize;
        let (mapping, memory) = Mapping::sealed(buffers + count * of_ring)?;
        let bytes = mapping.bytes() as u64;
        let regions = Regions(vec![mapping]);
        let Text(secret) = Text::new(options.secret.as_deref().unwrap_or_default());
        let init = Init { version: VERSION, id: options.id, mode: ETHERNET, secret, name: Text::new(NAME) };
        self.waiting.push_back((Message::Init(init), None));
        self.waiting.push_back((Message::AddRegion { index: 0, bytes }, Some(memory.try_clone()?)));
        let (mut receive, mut transmit) = (Vec::new(), Vec::new());
        for number in 0..count {
            let (is_to_server, index) = if number < to_server { (true, number) } else { (false, number - to_server) };
            let place = Place { region: 0, offset: (number * ring_bytes) as u32, log2_slots };
            let side = Side::Client { buffers: (buffers + number * of_ring) as u32, buffer_bytes };
            let ring = Ring::new(place, side);
            ring.prepare(&regions, !is_to_server);
            let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let message = AddRing {
                to_server: is_to_server,
                index: index as u16,
                region: 0,
                offset: place.offset,
                log2_slots,
                private_header: 0,
            };
            self.waiting.push_back((Message::AddRing(message), Some(interrupt.try_clone()?)));
            let links = if is_to_server { &mut transmit } else { &mut receive };
            links.push(Link { ring, interrupt: Held::own(interrupt) });
        }
        self.waiting.push_back((Message::Connect(Text::new(NAME)), None));
        self.session =
            Some(Session { regions, memory: vec![Held::own(memory)], receive, transmit, peer: hello.name.to_string() });
        Ok(())
    }
}
