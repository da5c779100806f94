//! The state of the small machine: one CPU with its cache, one device, and what is on its way between them.

use conic_interface::pio::protocol::{Exchange, Plan};
use conic_sim::protocol::homed::{Cached, Copy, Entry, ToCache, ToHome};

/// Lines at most.
pub const LINES: usize = 6;

/// What half a line holds. Only what belongs to the exchange that runs has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Anything older, or nothing.
    #[default]
    Old,
    /// What the CPU wrote for this exchange.
    Request,
    /// What the device answered in this exchange.
    Response,
    /// The last "try again".
    TryAgain,
}

/// Both halves of a line.
pub type Data = [Value; 2];

/// Which of the protocol's variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// (a): from the CPU to the device, with overflow lines.
    Transmit,
    /// (b): from the device to the CPU, with overflow lines.
    Receive,
    /// (c): both ways, in groups.
    Invoke {
        /// Lines of the request.
        request: u16,
        /// Lines of the response.
        response: u16,
    },
}

/// When lines of a response are asked for ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Never.
    No,
    /// With the load that signals the request.
    WithSignal,
    /// When that load has its answer.
    AfterControl,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Setting {
    pub variant: Variant,
    pub plan: Plan,
    /// The device returns lines exclusive.
    pub exclusive: bool,
    /// When the CPU may prefetch the lines of the response.
    pub prefetch: Prefetch,
    /// The cache may give lines up at any time.
    pub evictions: bool,
    /// The device's timer may run out at any time.
    pub time_outs: bool,
    /// The device may have lines of its response before all of it, and before all of the request.
    pub fills: bool,
    /// A prefetcher may ask for the other line of a pair at any time.
    pub prefetcher: bool,
    /// The cache writes a changed line back before it answers a recall, as over CXL.mem.
    pub writes_back_first: bool,
    /// The CPU's cache handles a line's transactions in the unit that this names, so many at once in each.
    pub units: Option<([u8; LINES], u8)>,
}

impl Setting {
    /// The lines that the CPU writes, the control line last.
    pub fn request_lines(&self, current: u16) -> Vec<u16> {
        match self.variant {
            Variant::Transmit => {
                let overflow = (0..self.plan.overflow).map(|index| 2 * self.plan.group + index);
                overflow.chain([self.plan.line(current, 0)]).collect()
            }
            Variant::Receive => Vec::new(),
            Variant::Invoke { request, .. } => (0..request).rev().map(|index| self.plan.line(current, index)).collect(),
        }
    }

    /// The lines that it reads, the control line first.
    pub fn response_lines(&self, current: u16) -> Vec<u16> {
        let control = self.plan.line(1 - current, 0);
        match self.variant {
            Variant::Transmit => vec![control],
            Variant::Receive => {
                let overflow = (0..self.plan.overflow).map(|index| 2 * self.plan.group + index);
                [control].into_iter().chain(overflow).collect()
            }
            Variant::Invoke { response, .. } => (0..response).map(|index| self.plan.line(1 - current, index)).collect(),
        }
    }
}

/// Where the CPU's program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// It stores the n-th half of the request.
    Write(u8),
    /// It may prefetch, and then loads.
    Prefetch,
    /// It loads the n-th half of the response.
    Load(u8),
    /// It was told to try again, and loads the lines that it prefetched, from this on.
    Settle(u8),
}

/// The CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    pub place: Place,
    /// The group that it writes.
    pub current: u16,
    /// The places in the response of the lines that it prefetched.
    pub prefetched: u8,
    /// Stores that have not reached the cache; none but with a mistake.
    pub buffered: u8,
    /// It loaded data before control; a mistake.
    pub read_ahead: Option<Value>,
}

/// A message on its way. They may overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    pub line: u16,
    pub kind: Kind,
    pub data: Data,
}

/// Which way, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ToHome(ToHome),
    ToCache(ToCache),
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub cpu: Cpu,
    pub cached: [Cached; LINES],
    pub cache_data: [Data; LINES],
    pub messages: Vec<Message>,
    pub entries: [Entry; LINES],
    pub home_data: [Data; LINES],
    pub exchange: Exchange<1>,
    /// The timer that runs, and one that was stopped too late.
    pub timers: [Option<u32>; 2],
    /// The device took the request of the exchange that runs.
    pub delivered: bool,
    /// It published its response.
    pub responded: bool,
    /// Its next response is not the one that is due; a mistake.
    pub wrong: bool,
    /// Exchanges so far, modulo two: that one is complete is a step from one to the other.
    pub parity: bool,
}

impl State {
    pub fn new(setting: &Setting) -> State {
        State {
            cpu: Cpu {
                place: if setting.request_lines(0).is_empty() { Place::Prefetch } else { Place::Write(0) },
                current: 0,
                prefetched: 0,
                buffered: 0,
                read_ahead: None,
            },
            cached: Default::default(),
            cache_data: Default::default(),
            messages: Vec::new(),
            entries: Default::default(),
            home_data: Default::default(),
            exchange: Exchange::new(setting.plan).expect("a plan of few lines"),
            timers: [None; 2],
            delivered: false,
            responded: false,
            wrong: false,
            parity: false,
        }
    }

    /// Puts a message on its way.
    pub fn send(&mut self, line: u16, kind: Kind) {
        let at = usize::from(line);
        let data = match kind {
            Kind::ToHome(ToHome::Victim { dirty: true } | ToHome::Recalled { dirty: true, .. }) => self.cache_data[at],
            Kind::ToCache(ToCache::Grant { .. }) => self.home_data[at],
            _ => Data::default(),
        };
        let message = Message { line, kind, data };
        let place = self.messages.partition_point(|other| *other < message);
        self.messages.insert(place, message);
    }

    /// Words that the home has a line, and victims of which it will say so, that are on their way.
    pub fn written_under_way(&self, line: u16) -> usize {
        let is_one = |message: &&Message| {
            let written = Kind::ToCache(ToCache::Written);
            let victim = Kind::ToHome(ToHome::Victim { dirty: true });
            message.line == line && [written, victim].contains(&message.kind)
        };
        self.messages.iter().filter(is_one).count()
    }

    /// Renames what halves of lines hold, wherever they are.
    pub fn rename(&mut self, rename: impl Fn(Value) -> Value) {
        let data = self.cache_data.iter_mut().chain(&mut self.home_data);
        data.chain(self.messages.iter_mut().map(|message| &mut message.data))
            .flatten()
            .for_each(|value| *value = rename(*value));
        self.messages.sort_unstable();
    }

    /// Forgets the data of lines that the cache does not have, so that states differ only in what can matter.
    pub fn tidy(&mut self) {
        for (cached, data) in self.cached.iter().zip(&mut self.cache_data) {
            if cached.copy == Copy::Invalid {
                *data = Data::default();
            }
        }
    }
}
