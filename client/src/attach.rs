//! Meeting the daemon: the client's half of the steps in `conic_control`.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conic_control::{Attach, Attached, Extensions, Hello, Message, OLDEST, VERSION, Wait};
use conic_fabric::Time;
use conic_interface::ccnic::notify::{MOST_QUEUES, Notices};
use conic_interface::ccnic::{Features, Map, Packing, Signal};
use conic_native::channel::{Channel, Received};
use conic_native::{KeptCore, Memory, clock, fences};

use crate::session::{Region, Session};
use crate::{AttachError, Options};

/// Words of a daemon that one look goes through at most, should it say some without end.
pub(crate) const MOST_WORDS: usize = 64;

/// What is waited for where packets that stand for several were limited.
const LONGEST_WORD: &str = "its word on the longest packet";

/// The same where frames for stations that nobody is known to have were asked for.
const PROMISCUOUS_WORD: &str = "its word on frames for unknown stations";

/// What a client takes with it when it attaches again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    /// Its address.
    pub mac: Option<[u8; 6]>,
    /// The longest packet that stands for several, if the program has limited them.
    pub longest: Option<u32>,
    /// It is to get frames for stations that nobody is known to have.
    pub promiscuous: bool,
}

/// Words of the daemon on questions that this side has given up waiting for. They come all the same, in the questions' order, before its word
/// on the next one; what it has agreed to in them is so.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// How many are still to come.
    pub owed: u32,
    /// The address that came with one.
    pub mac: Option<[u8; 6]>,
    /// The longest packet that came with one.
    pub longest: Option<u32>,
    /// Whether it is promiscuous, as came with one.
    pub promiscuous: Option<bool>,
}

impl Late {
    /// Takes a word if it is on a question of before.
    pub(crate) fn take(&mut self, word: &Message) -> bool {
        if self.owed == 0 {
            return false;
        }
        match *word {
            Message::Address { mac, granted } => self.mac = granted.then_some(mac).or(self.mac),
            Message::Longest(longest) => self.longest = Some(longest),
            Message::Promiscuous { on, granted } => self.promiscuous = granted.then_some(on).or(self.promiscuous),
            _ => return false,
        }
        self.owed -= 1;
        true
    }
}

/// Attaches, step by step, each within the options' patience.
pub(crate) fn attach(path: &Path, options: &Options, kept: Kept) -> Result<Session, AttachError> {
    let mut attaching = Attaching::begin(path, options, kept)?;
    loop {
        if let Some(session) = attaching.go_on(options)? {
            return Ok(session);
        }
        attaching.channel.wait(attaching.left()).map_err(broken)?;
    }
}

/// An attachment that is on its way: what was said to the daemon, and what it is to say next.
#[derive(Debug)]
pub(crate) struct Attaching {
    pub channel: Arc<Channel>,
    kept: Kept,
    step: Step,
    /// When the patience for this step is over.
    until: Time,
}

/// What the daemon is to say next.
#[derive(Debug)]
enum Step {
    Welcome,
    Queues(Extensions),
    Bells(Extensions, Box<Given>),
    Longest(Box<Session>, u32),
    Promiscuous(Box<Session>),
    /// Nothing: it is over.
    Over,
}

/// What came with the queues.
#[derive(Debug)]
struct Given {
    attached: Attached,
    region: OwnedFd,
    kick: OwnedFd,
    bells: Vec<OwnedFd>,
}

impl Attaching {
    /// Greets the daemon that listens at `path`.
    pub fn begin(path: &Path, options: &Options, kept: Kept) -> Result<Attaching, AttachError> {
        // Refused here, before anybody is asked, with the reason.
        Map::with_headroom(options.geometry, Features::best(), options.headroom).map_err(AttachError::Geometry)?;
        let channel = Channel::connect(path).map_err(|error| AttachError::Connect { path: path.to_owned(), error })?;
        let own = Extensions::NOTIFY | Extensions::LONGEST | Extensions::ADDRESS | Extensions::PROMISCUOUS;
        let extensions = Extensions(own | Extensions::of_offloads(options.offloads).0);
        let hello = Hello { versions: (OLDEST, VERSION), extensions, name: options.name.clone() };
        say(&channel, &Message::Hello(hello))?;
        let until = end_of(options.patience);
        Ok(Attaching { channel: Arc::new(channel), kept, step: Step::Welcome, until })
    }

    /// Whether an address was asked for.
    pub fn wants_mac(&self) -> bool {
        self.kept.mac.is_some()
    }

    /// How long the daemon may still take for its next word.
    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.until.since(clock::now()).nanoseconds().max(1))
    }

    /// Goes on as far as the daemon has answered; the session when it is there. Never waits.
    pub fn go_on(&mut self, options: &Options) -> Result<Option<Session>, AttachError> {
        while let Some((answer, descriptors)) = hear_now(&self.channel)? {
            self.step = match std::mem::replace(&mut self.step, Step::Over) {
                Step::Welcome => self.ask_for_queues(&answer, options)?,
                Step::Queues(extensions) => Step::Bells(extensions, given(answer, descriptors)?),
                Step::Bells(extensions, mut given) => {
                    given.add(&answer, descriptors)?;
                    Step::Bells(extensions, given)
                }
                Step::Longest(session, longest) => {
                    agree_on_longest(&answer, longest)?;
                    match self.ask_for_strays(session)? {
                        Ok(session) => return Ok(Some(session)),
                        Err(step) => step,
                    }
                }
                Step::Promiscuous(mut session) => {
                    session.promiscuous = agree_on_strays(&answer, true)?;
                    return Ok(Some(*session));
                }
                Step::Over => return Err(unexpected("nothing", &answer)),
            };
            if let Step::Bells(_, given) = &self.step
                && given.is_whole()
                && let Some(session) = self.map(options)?
            {
                return Ok(Some(session));
            }
            self.until = end_of(options.patience);
        }
        if self.until <= clock::now() {
            return Err(AttachError::Timeout { waiting_for: self.step.name() });
        }
        Ok(None)
    }

    fn ask_for_queues(&self, answer: &Message, options: &Options) -> Result<Step, AttachError> {
        let Message::Welcome(welcome) = answer else { return Err(unexpected("a welcome", answer)) };
        if !(OLDEST..=VERSION).contains(&welcome.version) {
            return Err(AttachError::Peer(format!("it chose version {}", welcome.version)));
        }
        let attach = Attach {
            geometry: options.geometry,
            headroom: options.headroom,
            network: options.network.clone(),
            mac: self.kept.mac,
        };
        say(&self.channel, &Message::Attach(attach))?;
        Ok(Step::Queues(welcome.extensions))
    }

    /// Maps what was given, and says how long packets may be where the program has limited them, and whether it is promiscuous; the session
    /// where there is nothing to say.
    fn map(&mut self, options: &Options) -> Result<Option<Session>, AttachError> {
        let Step::Bells(extensions, given) = std::mem::replace(&mut self.step, Step::Over) else { return Ok(None) };
        let Given { attached, region, kick, bells } = *given;
        let region = Arc::new(map_region(region, options, &attached, kick, bells)?);
        let promiscuous = false;
        let session = Session { channel: Arc::clone(&self.channel), region, attached, extensions, promiscuous };
        if let Some(longest) = self.kept.longest {
            ask_for_longest(&session, longest)?;
            self.step = Step::Longest(Box::new(session), longest);
            return Ok(None);
        }
        match self.ask_for_strays(Box::new(session))? {
            Ok(session) => Ok(Some(session)),
            Err(step) => {
                self.step = step;
                Ok(None)
            }
        }
    }

    /// Asks for frames for stations that nobody is known to have, if the program wants them: then that is the next step, else the session
    /// is there.
    fn ask_for_strays(&self, mut session: Box<Session>) -> Result<Result<Session, Step>, AttachError> {
        if !self.kept.promiscuous {
            return Ok(Ok(*session));
        }
        if !session.extensions.has(Extensions::PROMISCUOUS) {
            // An older daemon gives them to everybody.
            session.promiscuous = true;
            return Ok(Ok(*session));
        }
        say(&session.channel, &Message::Promiscuous { on: true, granted: false })?;
        Ok(Err(Step::Promiscuous(session)))
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Step::Welcome => "its welcome",
            Step::Queues(_) => "its queues",
            Step::Bells(..) => "the rest of its bells",
            Step::Longest(..) => LONGEST_WORD,
            Step::Promiscuous(_) => PROMISCUOUS_WORD,
            Step::Over => "nothing",
        }
    }
}

/// What a daemon gives with its queues.
fn given(answer: Message, descriptors: Vec<OwnedFd>) -> Result<Box<Given>, AttachError> {
    let Message::Attached(attached) = answer else { return Err(unexpected("queues", &answer)) };
    let mut descriptors = descriptors.into_iter();
    let (Some(region), Some(kick)) = (descriptors.next(), descriptors.next()) else {
        return Err(AttachError::Peer("it passed no region".to_owned()));
    };
    let bells = descriptors.take(attached.bells.into()).collect();
    Ok(Box::new(Given { attached, region, kick, bells }))
}

impl Given {
    fn is_whole(&self) -> bool {
        self.bells.len() >= self.attached.geometry.queues as usize
    }

    /// Adds more bells.
    fn add(&mut self, answer: &Message, more: Vec<OwnedFd>) -> Result<(), AttachError> {
        let Message::Bells(bells) = answer else { return Err(unexpected("bells", answer)) };
        if bells.first as usize != self.bells.len() || bells.count == 0 {
            return Err(AttachError::Peer(format!(
                "its bells begin at {} and not at {}",
                bells.first,
                self.bells.len()
            )));
        }
        self.bells.extend(more);
        Ok(())
    }
}

/// Has the NIC give no packet that stands for several and is longer than so many bytes.
pub(crate) fn limit_packets(
    session: &Session,
    options: &Options,
    longest: u32,
    late: &mut Late,
) -> Result<(), AttachError> {
    ask_for_longest(session, longest)?;
    agree_on_longest(&hear_word(session, options, late, LONGEST_WORD)?, longest)
}

fn ask_for_longest(session: &Session, longest: u32) -> Result<(), AttachError> {
    if !session.extensions.has(Extensions::LONGEST) {
        return Err(AttachError::Older(format!("keep packets to {longest} bytes")));
    }
    say(&session.channel, &Message::Longest(longest))
}

fn agree_on_longest(answer: &Message, longest: u32) -> Result<(), AttachError> {
    match answer {
        Message::Longest(agreed) if *agreed == longest => Ok(()),
        answer => Err(unexpected("the longest packet", answer)),
    }
}

/// Asks for another address.
pub(crate) fn set_mac(session: &Session, options: &Options, mac: [u8; 6], late: &mut Late) -> Result<(), AttachError> {
    if !session.extensions.has(Extensions::ADDRESS) {
        return Err(AttachError::Older("give another address".to_owned()));
    }
    say(&session.channel, &Message::Address { mac, granted: false })?;
    match hear_word(session, options, late, "its word on the address")? {
        Message::Address { mac: asked, granted } if asked == mac => {
            if granted {
                Ok(())
            } else {
                Err(AttachError::Address(mac))
            }
        }
        answer => Err(unexpected("an address", &answer)),
    }
}

/// Asks for frames for stations that nobody is known to have, or for none of them.
pub(crate) fn set_promiscuous(
    session: &Session,
    options: &Options,
    on: bool,
    late: &mut Late,
) -> Result<(), AttachError> {
    if !session.extensions.has(Extensions::PROMISCUOUS) {
        // An older daemon gives them to everybody.
        return if on { Ok(()) } else { Err(AttachError::Older("keep such frames from anybody".to_owned())) };
    }
    say(&session.channel, &Message::Promiscuous { on, granted: false })?;
    let granted = agree_on_strays(&hear_word(session, options, late, PROMISCUOUS_WORD)?, on)?;
    if granted { Ok(()) } else { Err(AttachError::Promiscuous) }
}

/// Whether the daemon has granted it.
fn agree_on_strays(answer: &Message, wanted: bool) -> Result<bool, AttachError> {
    match answer {
        Message::Promiscuous { on, granted } if *on == wanted => Ok(*granted),
        answer => Err(unexpected(PROMISCUOUS_WORD, answer)),
    }
}

/// The daemon's word on what was asked now, behind those that it owes; each within the options' patience.
fn hear_word(
    session: &Session,
    options: &Options,
    late: &mut Late,
    waiting_for: &'static str,
) -> Result<Message, AttachError> {
    loop {
        let heard = hear(&session.channel, options.patience, waiting_for);
        // Nobody waits any more for what was asked now, either.
        late.owed += u32::from(matches!(heard, Err(AttachError::Timeout { .. })));
        let (word, _) = heard?;
        if !late.take(&word) {
            return Ok(word);
        }
    }
}

fn map_region(
    descriptor: OwnedFd,
    options: &Options,
    attached: &Attached,
    kick: OwnedFd,
    bells: Vec<OwnedFd>,
) -> Result<Region, AttachError> {
    if attached.geometry != options.geometry {
        return Err(AttachError::Peer(format!("it made {:?} of {:?}", attached.geometry, options.geometry)));
    }
    let Features { signal, packing, whole_line, .. } = attached.features;
    if (signal, packing, whole_line) != (Signal::Phase, Packing::Grouped, true) {
        let features = attached.features;
        return Err(AttachError::Peer(format!("its rings are of another kind than this program's: {features}")));
    }
    let map = Map::with_headroom(attached.geometry, attached.features, options.headroom);
    let map = map.map_err(AttachError::Geometry)?;
    if map.queues.len() > MOST_QUEUES {
        return Err(AttachError::Peer(format!("it gave {} queues", map.queues.len())));
    }
    let (map, notices) = Notices::in_map(map);
    let memory = Memory::attach(descriptor, map.layout.bytes()).map_err(AttachError::Memory)?;
    let core = KeptCore::new(Arc::new(memory));
    let kick = (attached.wait == Wait::Notify).then_some(kick);
    // The light half may cost nothing only if the daemon's half is heavy.
    let fences = attached.fences && fences::register();
    Ok(Region { core, map, notices, kick, bells, fences })
}

pub(crate) fn say(channel: &Channel, message: &Message) -> Result<(), AttachError> {
    let Err(error) = channel.send(&message.encode(), &[]) else { return Ok(()) };
    // A NIC that closes has said why, just before; and before that it may have answered what nobody waits for any more.
    for _ in 0..MOST_WORDS {
        let Ok(Some(received)) = channel.receive() else { break };
        if let Ok(Message::Refused(refused)) = Message::decode(&received.bytes, received.descriptors.len()) {
            return Err(AttachError::Refused(refused));
        }
    }
    Err(AttachError::Broken { doing: "speaking to the NIC", error })
}

pub(crate) fn unexpected(wanted: &str, message: &Message) -> AttachError {
    match message {
        Message::Refused(refused) => AttachError::Refused(refused.clone()),
        other => AttachError::Peer(format!("{other:?} instead of {wanted}")),
    }
}

/// The next message, within so much time.
pub(crate) fn hear(
    channel: &Channel,
    patience: Duration,
    waiting_for: &'static str,
) -> Result<(Message, Vec<OwnedFd>), AttachError> {
    let until = end_of(patience);
    loop {
        if let Some(heard) = hear_now(channel)? {
            return Ok(heard);
        }
        let left = until.since(clock::now());
        if left == Time::ZERO {
            return Err(AttachError::Timeout { waiting_for });
        }
        channel.wait(Duration::from_nanos(left.nanoseconds().max(1))).map_err(broken)?;
    }
}

/// The next message, if it has come.
fn hear_now(channel: &Channel) -> Result<Option<(Message, Vec<OwnedFd>)>, AttachError> {
    let Some(Received { bytes, descriptors, cut }) = channel.receive().map_err(broken)? else { return Ok(None) };
    if cut {
        return Err(AttachError::Peer("its message was longer than messages are".to_owned()));
    }
    Ok(Some((Message::decode(&bytes, descriptors.len())?, descriptors)))
}

fn broken(error: std::io::Error) -> AttachError {
    AttachError::Broken { doing: "listening to the NIC", error }
}

/// When so much patience is over that begins now.
fn end_of(patience: Duration) -> Time {
    clock::now() + Time::from_nanoseconds(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX))
}
