//! The messages.

use std::fmt;

use conic_interface::ccnic::{CLASSES, Features, Geometry, Headroom};

use crate::Extensions;
use crate::wire::{Malformed, Reader, Writer};

/// The most bells that come with one message; with region and kick no more descriptors than a message carries.
pub const MOST_BELLS: usize = 14;

/// Bytes of a name.
const NAME: usize = 32;

/// The name of a client or of a network: 1 to 32 bytes of letters, digits and `-_.:`; or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

impl Name {
    /// A name.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn new(text: &str) -> Result<Name, Malformed> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if text.len() > NAME || !text.bytes().all(allowed) {
            return Err(Malformed::new(format!(
                "a name is 1 to {NAME} letters, digits and -_.: and not {:?}",
                text.chars().take(2 * NAME).collect::<String>()
            )));
        }
        Ok(Name(text.to_owned()))
    }

    /// It as text; empty if there is none.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn write(&self, writer: &mut Writer) {
        let mut bytes = [0; NAME];
        bytes[..self.0.len()].copy_from_slice(self.0.as_bytes());
        writer.bytes(&bytes);
    }

    fn read(reader: &mut Reader<'_>, what: &str) -> Result<Name, Malformed> {
        let bytes: [u8; NAME] = reader.array(what)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        if bytes[end..].iter().any(|&byte| byte != 0) {
            return Err(Malformed::new(format!("{what} goes on after its end")));
        }
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed::new(format!("{what} is no text")))?;
        Name::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "-" } else { &self.0 })
    }
}

/// The network that a client wants to attach to, by name; none is the daemon's first.
pub type Network = Name;

/// How the NIC waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It never sleeps, so nobody need wake it.
    Spin,
    /// It may sleep: who gives it work looks at the notify flag. A daemon that another may take over from says this whether it sleeps or not.
    Notify,
}

/// The first that a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest version that it speaks.
    pub versions: (u16, u16),
    /// What it can do in addition.
    pub extensions: Extensions,
    /// What it calls itself, for people.
    pub name: Name,
}

/// The daemon's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version both speak from here on.
    pub version: u16,
    /// Extensions that both have.
    pub extensions: Extensions,
    /// The most queue pairs that this client may have.
    pub most_queues: u32,
    /// The most descriptors a ring may have.
    pub most_descriptors: u64,
    /// The most bytes that its region may have.
    pub most_bytes: u64,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// How large its region is to be.
    pub geometry: Geometry,
    /// What it keeps of each buffer for itself.
    pub headroom: Headroom,
    /// The network.
    pub network: Network,
    /// The MAC address that it wants; none lets the daemon choose.
    pub mac: Option<[u8; 6]>,
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The number of its session.
    pub session: u64,
    /// As it was asked for: client and daemon derive the region's layout from it, from `features` and `version`.
    pub geometry: Geometry,
    /// The interface's switches.
    pub features: Features,
    /// Bytes of the region at least.
    pub bytes: u64,
    /// The client's MAC address.
    pub mac: [u8; 6],
    /// The longest frame on its network, in bytes without the frame check sequence.
    pub longest_frame: u32,
    /// How the NIC waits.
    pub wait: Wait,
    /// The daemon issues the heavy half of asymmetric fences; else both sides use whole ones.
    pub fences: bool,
    /// The network.
    pub network: Network,
    /// Bells that come with this message.
    pub bells: u16,
}

/// Bells of further queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bells {
    /// The first queue.
    pub first: u32,
    /// How many.
    pub count: u16,
}

/// Why a client is refused or detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Reason {
    /// What it said cannot be understood, or not at this step.
    Malformed = 1,
    /// No version in common.
    Version = 2,
    /// Its user may not attach.
    NotAllowed = 3,
    /// A quota would be exceeded.
    Quota = 4,
    /// There is no such network.
    Network = 5,
    /// What it asks for cannot be.
    Geometry = 6,
    /// The daemon has no memory or no descriptors left.
    Resources = 7,
    /// It took too long for a step.
    Timeout = 8,
    /// It broke the rules of its queues too often.
    Faults = 9,
    /// An operator detached it, or the daemon ends.
    Operator = 10,
    /// The MAC address that it wants is another's, or none that a client can have.
    Mac = 11,
}

/// Every reason, with its name for counters and people.
pub const REASONS: [(Reason, &str); 11] = [
    (Reason::Malformed, "malformed"),
    (Reason::Version, "version"),
    (Reason::NotAllowed, "not_allowed"),
    (Reason::Quota, "quota"),
    (Reason::Network, "network"),
    (Reason::Geometry, "geometry"),
    (Reason::Resources, "resources"),
    (Reason::Timeout, "timeout"),
    (Reason::Faults, "faults"),
    (Reason::Operator, "operator"),
    (Reason::Mac, "mac"),
];

impl Reason {
    fn of(number: u16) -> Option<Reason> {
        REASONS.iter().map(|&(reason, _)| reason).find(|&reason| reason as u16 == number)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        REASONS.iter().find(|(reason, _)| *reason == self).map_or("", |(_, name)| name)
    }
}

/// A refusal, with what to do in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why, for programs.
    pub reason: Reason,
    /// Why, for people.
    pub text: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.reason.name())
    }
}

/// Kinds of messages, as they stand in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// [`Hello`].
    Hello = 1,
    /// [`Welcome`].
    Welcome = 2,
    /// [`Attach`].
    Attach = 3,
    /// [`Attached`].
    Attached = 4,
    /// [`Bells`].
    Bells = 5,
    /// The end of a session.
    Detach = 6,
    /// [`Refused`].
    Refused = 7,
    /// A question of an operator, as JSON.
    Query = 8,
    /// A piece of the answer, as JSON; the last is empty.
    Answer = 9,
    /// What one daemon says to the one that takes over from it, as JSON, with descriptors.
    Part = 10,
    /// How long packets that stand for several are at most.
    Longest = 11,
    /// The client's address.
    Address = 12,
    /// Whether the client gets frames whose station nobody is known to have.
    Promiscuous = 13,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// See [`Attach`].
    Attach(Attach),
    /// See [`Attached`].
    Attached(Attached),
    /// See [`Bells`].
    Bells(Bells),
    /// The client is done.
    Detach,
    /// From here on the client gets no packet that stands for several and is longer than so many bytes. Only with
    /// [`Extensions::LONGEST`].
    Longest(u32),
    /// The client wants another address; the answer repeats it. Only with [`Extensions::ADDRESS`].
    Address {
        /// The address.
        mac: [u8; 6],
        /// It is the client's from here on; of no meaning in what the client says, and false there.
        granted: bool,
    },
    /// From here on the client gets frames for stations that nobody is known to have, or none of them; the answer repeats it. Only with
    /// [`Extensions::PROMISCUOUS`].
    Promiscuous {
        /// Whether it wants them.
        on: bool,
        /// It is so from here on; of no meaning in what the client says, and false there.
        granted: bool,
    },
    /// See [`Refused`].
    Refused(Refused),
    /// An operator's question.
    Query(String),
    /// A piece of the answer; the last is empty.
    Answer(String),
    /// What one daemon says to the one that takes over from it.
    Part {
        /// How many descriptors come with it.
        descriptors: u16,
        /// What is said, as JSON.
        text: String,
    },
}

impl Message {
    /// How many descriptors come with it.
    pub fn descriptors(&self) -> usize {
        match self {
            Message::Attached(attached) => 2 + usize::from(attached.bells),
            Message::Bells(bells) => usize::from(bells.count),
            Message::Part { descriptors, .. } => usize::from(*descriptors),
            _ => 0,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Message::Hello(_) => Kind::Hello,
            Message::Welcome(_) => Kind::Welcome,
            Message::Attach(_) => Kind::Attach,
            Message::Attached(_) => Kind::Attached,
            Message::Bells(_) => Kind::Bells,
            Message::Detach => Kind::Detach,
            Message::Longest(_) => Kind::Longest,
            Message::Address { .. } => Kind::Address,
            Message::Promiscuous { .. } => Kind::Promiscuous,
            Message::Refused(_) => Kind::Refused,
            Message::Query(_) => Kind::Query,
            Message::Answer(_) => Kind::Answer,
            Message::Part { .. } => Kind::Part,
        }
    }

    /// It as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.kind() as u16, self.descriptors() as u16);
        match self {
            Message::Hello(hello) => hello.write(&mut writer),
            Message::Welcome(welcome) => welcome.write(&mut writer),
            Message::Attach(attach) => attach.write(&mut writer),
            Message::Attached(attached) => attached.write(&mut writer),
            Message::Bells(bells) => {
                writer.u32(bells.first);
                writer.u16(bells.count);
            }
            Message::Detach => {}
            Message::Longest(bytes) => writer.u32(*bytes),
            Message::Address { mac, granted } => {
                writer.bytes(mac);
                writer.u16(u16::from(*granted));
            }
            Message::Promiscuous { on, granted } => [on, granted].iter().for_each(|&&is| writer.u16(u16::from(is))),
            Message::Refused(refused) => {
                writer.u16(refused.reason as u16);
                writer.bytes(refused.text.as_bytes());
            }
            Message::Query(text) | Message::Answer(text) | Message::Part { text, .. } => writer.bytes(text.as_bytes()),
        }
        writer.finish()
    }

    /// A message from bytes, which are the whole message, and the number of descriptors that came with it.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn decode(bytes: &[u8], descriptors: usize) -> Result<Message, Malformed> {
        let mut reader = Reader::new(bytes)?;
        let said = usize::from(reader.descriptors);
        if said != descriptors {
            return Err(Malformed::new(format!(
                "it says that {said} descriptors come with it, and {descriptors} came"
            )));
        }
        let kinds = [Kind::Hello, Kind::Welcome, Kind::Attach, Kind::Attached, Kind::Bells, Kind::Detach];
        let kinds = kinds.into_iter().chain([
            Kind::Refused,
            Kind::Query,
            Kind::Answer,
            Kind::Part,
            Kind::Longest,
            Kind::Address,
            Kind::Promiscuous,
        ]);
        let number = reader.kind;
        let kind = kinds.into_iter().find(|&kind| kind as u16 == number);
        let message = match kind.ok_or_else(|| Malformed::new(format!("there is no kind {number} of message")))? {
            Kind::Hello => Message::Hello(Hello::read(&mut reader)?),
            Kind::Welcome => Message::Welcome(Welcome::read(&mut reader)?),
            Kind::Attach => Message::Attach(Attach::read(&mut reader)?),
            Kind::Attached => Message::Attached(Attached::read(&mut reader)?),
            Kind::Bells => Message::Bells(Bells {
                first: reader.u32("the first bell")?,
                count: reader.u16("the number of bells")?,
            }),
            Kind::Detach => Message::Detach,
            Kind::Longest => Message::Longest(reader.u32("the longest packet")?),
            Kind::Address => Message::Address {
                mac: reader.array("the MAC address")?,
                granted: read_flag(&mut reader, "whether it is the client's")?,
            },
            Kind::Promiscuous => Message::Promiscuous {
                on: read_flag(&mut reader, "whether it is promiscuous")?,
                granted: read_flag(&mut reader, "whether that is so")?,
            },
            Kind::Refused => {
                let number = reader.u16("the reason")?;
                let reason = Reason::of(number);
                let reason = reason.ok_or_else(|| Malformed::new(format!("there is no reason {number}")))?;
                Message::Refused(Refused { reason, text: reader.text("the reason's text")? })
            }
            Kind::Query => Message::Query(reader.text("the question")?),
            Kind::Answer => Message::Answer(reader.text("the answer")?),
            Kind::Part => Message::Part { descriptors: reader.descriptors, text: reader.text("the part")? },
        };
        if message.descriptors() != descriptors {
            let wanted = message.descriptors();
            return Err(Malformed::new(format!("{descriptors} descriptors came with it where {wanted} belong")));
        }
        reader.finish(message)
    }
}

impl Hello {
    fn write(&self, writer: &mut Writer) {
        writer.u16(self.versions.0);
        writer.u16(self.versions.1);
        writer.u64(self.extensions.0);
        self.name.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let versions = (reader.u16("the oldest version")?, reader.u16("the newest version")?);
        if versions.0 > versions.1 {
            let (oldest, newest) = versions;
            return Err(Malformed::new(format!("its oldest version {oldest} is newer than its newest {newest}")));
        }
        let extensions = Extensions(reader.u64("the extensions")?);
        Ok(Hello { versions, extensions, name: Name::read(reader, "the client's name")? })
    }
}

impl Welcome {
    fn write(&self, writer: &mut Writer) {
        writer.u16(self.version);
        writer.u64(self.extensions.0);
        writer.u32(self.most_queues);
        writer.u64(self.most_descriptors);
        writer.u64(self.most_bytes);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Welcome, Malformed> {
        Ok(Welcome {
            version: reader.u16("the version")?,
            extensions: Extensions(reader.u64("the extensions")?),
            most_queues: reader.u32("the most queues")?,
            most_descriptors: reader.u64("the most descriptors")?,
            most_bytes: reader.u64("the most bytes")?,
        })
    }
}

fn write_geometry(geometry: &Geometry, writer: &mut Writer) {
    writer.u32(geometry.queues);
    writer.u64(geometry.descriptors);
    geometry.buffers.iter().for_each(|&count| writer.u64(count));
    writer.u64(geometry.object_bytes);
}

fn read_geometry(reader: &mut Reader<'_>) -> Result<Geometry, Malformed> {
    let (queues, descriptors) = (reader.u32("the number of queues")?, reader.u64("the number of descriptors")?);
    let mut buffers = [0; CLASSES];
    for count in &mut buffers {
        *count = reader.u64("the number of buffers")?;
    }
    Ok(Geometry { queues, descriptors, buffers, object_bytes: reader.u64("the bytes of objects")? })
}

impl Attach {
    fn write(&self, writer: &mut Writer) {
        write_geometry(&self.geometry, writer);
        writer.u64(self.headroom.bytes);
        writer.u64(self.headroom.places);
        self.network.write(writer);
        writer.u16(u16::from(self.mac.is_some()));
        writer.bytes(&self.mac.unwrap_or_default());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Attach, Malformed> {
        let geometry = read_geometry(reader)?;
        let headroom = Headroom { bytes: reader.u64("the headroom")?, places: reader.u64("the headroom's places")? };
        let network = Name::read(reader, "the network's name")?;
        let has_mac = read_flag(reader, "whether there is a MAC address")?;
        let mac: [u8; 6] = reader.array("the MAC address")?;
        if !has_mac && mac != [0; 6] {
            return Err(Malformed::new("it has a MAC address and says that it has none"));
        }
        Ok(Attach { geometry, headroom, network, mac: has_mac.then_some(mac) })
    }
}

fn read_flag(reader: &mut Reader<'_>, what: &str) -> Result<bool, Malformed> {
    match reader.u16(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Malformed::new(format!("{what} is 0 or 1, not {other}"))),
    }
}

impl Attached {
    fn write(&self, writer: &mut Writer) {
        writer.u64(self.session);
        write_geometry(&self.geometry, writer);
        writer.u64(self.bytes);
        writer.bytes(&self.mac);
        writer.u32(self.longest_frame);
        writer.u16(u16::from(self.wait == Wait::Notify));
        writer.u16(u16::from(self.fences));
        self.network.write(writer);
        writer.u16(self.bells);
        writer.bytes(self.features.to_string().as_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Attached, Malformed> {
        let session = reader.u64("the session's number")?;
        let geometry = read_geometry(reader)?;
        let bytes = reader.u64("the bytes of the region")?;
        let mac = reader.array("the MAC address")?;
        let longest_frame = reader.u32("the longest frame")?;
        let wait = if read_flag(reader, "how the NIC waits")? { Wait::Notify } else { Wait::Spin };
        let fences = read_flag(reader, "whether there are fences")?;
        let network = Name::read(reader, "the network's name")?;
        let bells = reader.u16("the number of bells")?;
        if usize::from(bells) > MOST_BELLS {
            return Err(Malformed::new(format!("{bells} bells are more than come at once")));
        }
        let features = reader.text("the list of features")?;
        let features = features.parse().map_err(|error| Malformed::new(format!("{error}")))?;
        Ok(Attached { session, geometry, features, bytes, mac, longest_frame, wait, fences, network, bells })
    }
}
