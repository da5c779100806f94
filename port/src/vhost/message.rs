//! The messages of vhost-user, as bytes.
//!
//! A message is a header of 12 bytes (what is asked, flags, how many bytes follow) and what follows, in the machine's byte order, over a
//! stream. Its descriptors come with its first byte. The frontend (a virtual machine's monitor, a program with a virtio driver) asks, and
//! this side, the backend, answers.
//!
//! Source: QEMU, docs/interop/vhost-user.rst.

/// Bytes of a header.
pub(super) const HEADER: usize = 12;
/// Bytes that may follow one: no message that is known has more.
pub(super) const MOST_BODY: usize = 512;
/// Regions of memory that one message may bring, and that there may be where they come one by one.
pub(super) const MOST_REGIONS: usize = 32;

/// The version, in the two lowest flags.
const VERSION: u32 = 1;
const VERSION_FLAGS: u32 = 3;
const REPLY: u32 = 1 << 2;
const NEEDS_REPLY: u32 = 1 << 3;

/// Of a ring's descriptor: there is none, the ring is polled.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// Of a ring's addresses: writes to what the device uses are logged.
const LOGGED: u32 = 1;

/// A header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked for.
    pub(super) request: u32,
    /// Whether the frontend wants to hear how it went, where the request has no answer of its own.
    pub(super) needs_reply: bool,
    /// Whether it is the backend's answer.
    pub(super) is_reply: bool,
    /// Bytes that follow.
    pub(super) bytes: usize,
}

impl Header {
    /// Reads a header.
    pub(super) fn read(bytes: &[u8; HEADER]) -> Result<Header, &'static str> {
        let mut body = Body(bytes);
        let (request, flags, length) = (body.number()?, body.number()?, body.number()?);
        if flags & VERSION_FLAGS != VERSION {
            return Err("another version of vhost-user");
        }
        let bytes = length as usize;
        if bytes > MOST_BODY {
            return Err("a message is too long");
        }
        Ok(Header { request, needs_reply: flags & NEEDS_REPLY != 0, is_reply: flags & REPLY != 0, bytes })
    }
}

/// Writes the answer to a request.
pub(super) fn answer(request: u32, answer: Answer) -> Vec<u8> {
    let body = match answer {
        Answer::Word(word) => word.to_ne_bytes(),
        Answer::Ring { ring, base } => {
            let [low, high] = [u32::from(ring), base].map(u32::to_ne_bytes);
            [low, high].concat().try_into().unwrap_or_default()
        }
    };
    let header = [request, VERSION | REPLY, body.len() as u32];
    header.into_iter().flat_map(u32::to_ne_bytes).chain(body).collect()
}

/// Writes a request of a frontend: what is asked for, and the body's numbers of 32 bits, of which two are a word.
pub(super) fn ask(request: u32, needs_reply: bool, body: &[u32]) -> Vec<u8> {
    let flags = VERSION | if needs_reply { NEEDS_REPLY } else { 0 };
    let header = [request, flags, 4 * body.len() as u32];
    header.iter().chain(body).copied().flat_map(u32::to_ne_bytes).collect()
}

/// A word as two numbers of a body, in this machine's order.
pub(super) fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// The word that an answer is.
pub(super) fn word(body: &[u8]) -> Result<u64, &'static str> {
    Body(body).word()
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Word(u64),
    /// Where a ring has stopped.
    Ring {
        ring: u8,
        base: u32,
    },
}

/// A region of the frontend's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Where descriptors say that it begins.
    pub(super) guest: u64,
    /// Its bytes.
    pub(super) bytes: u64,
    /// Where it begins for the frontend, which names rings by its own addresses.
    pub(super) user: u64,
    /// Where it begins in its descriptor.
    pub(super) offset: u64,
}

impl Place {
    /// Whether its ends are numbers.
    pub(super) fn is_sound(&self) -> bool {
        let ends = [self.guest, self.user, self.offset].map(|start| start.checked_add(self.bytes));
        self.bytes > 0 && ends.iter().all(Option::is_some)
    }
}

/// Where a ring's three parts lie, by the frontend's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
}

/// Where a log of pages lies in its descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPlace {
    pub(super) bytes: u64,
    pub(super) offset: u64,
}

/// A ring's descriptor, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bell {
    /// The frontend rings it.
    Kick,
    /// This side rings it.
    Call,
    /// This side could say by it that a ring is broken.
    Error,
}

/// What the frontend asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    Reset,
    SetMemory(Vec<Place>),
    /// A bit for each page that this side writes.
    SetLog(LogPlace),
    /// An eventfd by which this side could say that it has set some: who migrates looks by itself.
    SetLogBell,
    AddMemory(Place),
    RemoveMemory(Place),
    SetSlots {
        ring: u32,
        slots: u32,
    },
    SetParts {
        ring: u32,
        parts: Parts,
        /// By which address writes to what the device uses are logged, if they are.
        log: Option<u64>,
    },
    SetBase {
        ring: u32,
        base: u32,
    },
    GetBase {
        ring: u32,
    },
    SetBell {
        ring: u32,
        bell: Bell,
        is_none: bool,
    },
    Enable {
        ring: u32,
        is_on: bool,
    },
    GetProtocol,
    SetProtocol(u64),
    GetQueues,
    GetMostRegions,
    SetStatus(u64),
    GetStatus,
    /// The station with this address is here now, and does not say so itself.
    Announce([u8; 6]),
    /// Nothing that this side does anything about: an MTU.
    Nothing,
}

impl Request {
    /// Reads what follows a header.
    pub(super) fn read(request: u32, bytes: &[u8]) -> Result<Request, &'static str> {
        let mut body = Body(bytes);
        let read = match request {
            1 => Request::GetFeatures,
            2 => Request::SetFeatures(body.word()?),
            3 => Request::SetOwner,
            4 | 34 => Request::Reset,
            5 => Request::SetMemory(body.places()?),
            6 => Request::SetLog(LogPlace { bytes: body.word()?, offset: body.word()? }),
            // The eventfd comes with an empty word or without.
            7 => Request::SetLogBell,
            8 => Request::SetSlots { ring: body.number()?, slots: body.number()? },
            9 => {
                let (ring, flags) = (body.number()?, body.number()?);
                let parts = Parts { descriptors: body.word()?, used: body.word()?, available: body.word()? };
                let log = body.word()?;
                Request::SetParts { ring, parts, log: (flags & LOGGED != 0).then_some(log) }
            }
            10 => Request::SetBase { ring: body.number()?, base: body.number()? },
            11 => Request::GetBase { ring: body.ring_and_nothing()? },
            12 => body.bell(Bell::Kick)?,
            13 => body.bell(Bell::Call)?,
            14 => body.bell(Bell::Error)?,
            15 => Request::GetProtocol,
            16 => Request::SetProtocol(body.word()?),
            17 => Request::GetQueues,
            18 => Request::Enable { ring: body.number()?, is_on: body.number()? != 0 },
            19 => {
                let [a, b, c, d, e, f, ..] = body.word()?.to_ne_bytes();
                Request::Announce([a, b, c, d, e, f])
            }
            20 => {
                body.word()?;
                Request::Nothing
            }
            36 => Request::GetMostRegions,
            37 | 38 => {
                let _padding = body.word()?;
                let place = body.place()?;
                if request == 37 { Request::AddMemory(place) } else { Request::RemoveMemory(place) }
            }
            39 => Request::SetStatus(body.word()?),
            40 => Request::GetStatus,
            _ => return Err("a message that was not agreed on"),
        };
        // Some frontends send an empty word with a message that needs none.
        if body.0.len() > 8 { Err("a message is longer than it says") } else { Ok(read) }
    }

    /// How many descriptors come with it, if a number is right.
    pub(super) fn descriptors(&self) -> usize {
        match self {
            Request::SetMemory(places) => places.len(),
            Request::AddMemory(_) | Request::SetBell { is_none: false, .. } => 1,
            Request::SetLog(_) | Request::SetLogBell => 1,
            _ => 0,
        }
    }
}

/// What is left to read of a message.
struct Body<'a>(&'a [u8]);

impl Body<'_> {
    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], &'static str> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or("a message is shorter than it should be")?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_ne_bytes)
    }

    fn word(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_ne_bytes)
    }

    fn place(&mut self) -> Result<Place, &'static str> {
        let place = Place { guest: self.word()?, bytes: self.word()?, user: self.word()?, offset: self.word()? };
        if place.is_sound() { Ok(place) } else { Err("a region of memory is empty or has no end") }
    }

    fn places(&mut self) -> Result<Vec<Place>, &'static str> {
        let (count, _padding) = (self.number()?, self.number()?);
        if !(1..=MOST_REGIONS).contains(&(count as usize)) {
            return Err("there are no regions of memory, or too many");
        }
        (0..count).map(|_| self.place()).collect()
    }

    fn ring_and_nothing(&mut self) -> Result<u32, &'static str> {
        let ring = self.number()?;
        self.number().map(|_| ring)
    }

    fn bell(&mut self, bell: Bell) -> Result<Request, &'static str> {
        let word = self.word()?;
        Ok(Request::SetBell { ring: (word & 0xff) as u32, bell, is_none: word & NO_DESCRIPTOR != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn a_header_has_its_version_and_no_more_bytes_than_any_message() {
        let header = |flags: u32, bytes: u32| {
            let words = [5, flags, bytes].map(u32::to_ne_bytes).concat();
            Header::read(&words.try_into().expect("twelve bytes"))
        };
        assert_eq!(header(1, 8), Ok(Header { request: 5, needs_reply: false, is_reply: false, bytes: 8 }));
        assert_eq!(header(9, 512).map(|header| header.needs_reply), Ok(true));
        assert!(header(2, 8).is_err() && header(0, 8).is_err() && header(1, 513).is_err());
    }

    #[test]
    fn what_is_shorter_than_its_kind_is_no_message() {
        let place = [0x1000, 0x2000, 0x7000, 0];
        let sound = words(&[&[1][..], &place].concat());
        let place = Place { guest: 0x1000, bytes: 0x2000, user: 0x7000, offset: 0 };
        assert_eq!(Request::read(5, &sound), Ok(Request::SetMemory(vec![place])));
        assert_eq!(Request::read(5, &sound).map(|request| request.descriptors()), Ok(1));
        for length in 0..sound.len() {
            assert!(Request::read(5, &sound[..length]).is_err(), "{length}");
        }
        let (none, many) = (words(&[0]), words(&[MOST_REGIONS as u64 + 1]));
        assert!(Request::read(5, &none).is_err() && Request::read(5, &many).is_err());
        for request in [2, 6, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 37, 38, 39] {
            assert!(Request::read(request, &[0; 7]).is_err(), "{request}");
        }
        assert!(Request::read(21, &[0; 16]).is_err() && Request::read(41, &[]).is_err());
        assert!(Request::read(1, &[0; 9]).is_err() && Request::read(1, &[0; 8]).is_ok());
    }

    #[test]
    fn regions_have_ends() {
        let region = |place: [u64; 4]| Request::read(37, &words(&[&[0][..], &place].concat())).is_ok();
        assert!(region([0, 1, 0, 0]) && region([u64::MAX - 8, 8, 0, 0]));
        assert!(!region([0, 0, 0, 0]) && !region([u64::MAX - 8, 9, 0, 0]));
        assert!(!region([0, 9, u64::MAX - 8, 0]) && !region([0, 9, 0, u64::MAX - 8]));
    }

    #[test]
    fn a_bell_says_its_ring_and_whether_there_is_one() {
        let kick = |word| Request::read(12, &words(&[word]));
        assert_eq!(kick(3), Ok(Request::SetBell { ring: 3, bell: Bell::Kick, is_none: false }));
        let none = kick(0x103).expect("a message");
        assert_eq!((none.descriptors(), none), (0, Request::SetBell { ring: 3, bell: Bell::Kick, is_none: true }));
    }

    #[test]
    fn an_answer_says_what_it_answers() {
        let said = answer(11, Answer::Ring { ring: 1, base: 0x1234 });
        assert_eq!(said[..12], [11u32, 5, 8].map(u32::to_ne_bytes).concat());
        assert_eq!(said[12..], [1u32, 0x1234].map(u32::to_ne_bytes).concat());
        assert_eq!(answer(1, Answer::Word(u64::MAX))[12..], [0xff; 8]);
    }
}
