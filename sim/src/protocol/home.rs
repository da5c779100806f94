//! What a node's home agents do with a message about one line.

mod alone;
mod completion;
mod eviction;
mod finish;
mod recall;
mod serve;

use std::collections::VecDeque;

use super::{Ask, Asker, Copy, Found, Snoop, ToCore, ToHome, Version};
pub use alone::{Alone, asked_alone};
pub use completion::complete;
pub use eviction::evict_last_level;

/// What a node may do with a line; see the table in [`super`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Right {
    /// Nothing.
    #[default]
    None,
    /// Have clean copies.
    Shared,
    /// The same, and give them to its home, which asks (F); never a home's own.
    Forward,
    /// Anything: the other node has no copy.
    Exclusive,
}

/// A line's copy in a node's last-level cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LastLevel {
    /// None.
    #[default]
    None,
    /// As memory has it, or as the cores that have it.
    Clean,
    /// Newer than memory.
    Dirty,
}

/// What a node knows of a line while nothing is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stable {
    /// The cores that have a copy (snoop filter), a bit each.
    pub copies: u64,
    /// The data of the last-level cache's copy.
    pub last_level_version: Version,
    /// The data in memory, at the line's home.
    pub memory_version: Version,
    /// The one copy is exclusive or modified.
    pub exclusive: bool,
    /// The last-level cache's copy.
    pub last_level: LastLevel,
    /// The node's right; at the home, the directory.
    pub right: Right,
}

impl Stable {
    /// Whether a request of the other node changes the line's entry in the directory, in memory. Not if an earlier one has, after
    /// which the other node gave the line up without a word; and not where a cache here hands the line over, which home agents
    /// note beside their tags (Intel's manual of Skylake's uncore calls that HitME). To own a line whole nobody hands one over.
    fn must_set_directory(&self, choices: &Choices, asker: Asker, ask: Ask) -> bool {
        let nobody = self.copies == 0 && self.last_level == LastLevel::None;
        let changes = match ask {
            Ask::Read => nobody && choices.exclusive_grant,
            Ask::Own => nobody,
            Ask::OwnWhole => true,
            _ => false,
        };
        let set = self.right == Right::None;
        choices.directory_write && asker == Asker::Node && changes && !set
    }
}

/// The choices of the protocol that the transition functions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Loads hand modified lines over between nodes.
    pub migratory_between_nodes: bool,
    /// And between the cores of a node.
    pub migratory_within_node: bool,
    /// A remote read of a line that nobody caches gets it exclusive.
    pub exclusive_grant: bool,
    /// And that writes the directory to memory.
    pub directory_write: bool,
    /// Memory is read while the other node is snooped.
    pub speculative_memory_read: bool,
    /// A node gives a clean line to its home, if nobody else has it or it was the last to be given it (MESIF).
    pub forwards_clean: bool,
    /// A read asks the other node also where that can only have clean copies.
    pub snoops_shared: bool,
}

/// What a home has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It sends a message to a core.
    ToCore(u8, ToCore),
    /// It sends a message to the other node, on behalf of whoever asked for what, if anyone here did.
    ToNode(ToHome, Option<(Asker, Ask)>),
    /// It answers a device's request: the data, where it was a read.
    ToDevice(u16, Version),
    /// It reads memory; [`ToHome::Memory`] answers.
    ReadMemory,
    /// It reads the last-level cache; [`ToHome::LastLevel`] answers.
    ReadLastLevel,
    /// It writes memory.
    WriteMemory,
    /// An ordered write may take effect: nobody else has a copy, or can get one before.
    Ready(u32),
    /// The write that a `WriteCache` or `WriteMemory` request named takes effect: the line has its data from now on.
    Written(u32),
}

/// Whether a write waits for [`ToHome::TakeEffect`] before it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Order {
    /// No: it takes effect as soon as it can.
    Free,
    /// Yes, and it could not take effect yet.
    Ordered,
    /// Yes, and it has been said that it could.
    Ready,
}

/// A request that is under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Running {
    asker: Asker,
    ask: Ask,
    has_data: bool,
    write: u32,
    order: Order,
    /// Cores whose answers are awaited.
    cores: u64,
    /// The other node's answer to a snoop is awaited.
    node: bool,
    /// The home's reply is awaited, or has come.
    asked_home: bool,
    reply: Option<(Copy, Version, bool)>,
    memory_awaited: bool,
    memory_read: bool,
    last_level_awaited: bool,
    /// What the snooped cores had: any data, and whether one had changed it.
    from_core: Option<Found>,
    from_node: Option<Found>,
    /// The directory in memory must be changed before the other node may have the line: it says that nobody else has it.
    sets_directory: bool,
}

impl Running {
    /// A request for which nothing has been asked yet, that takes effect as soon as it can.
    #[inline(always)]
    fn started(asker: Asker, ask: Ask, has_data: bool) -> Running {
        Running {
            asker,
            ask,
            has_data,
            write: 0,
            order: Order::Free,
            cores: 0,
            node: false,
            asked_home: false,
            reply: None,
            memory_awaited: false,
            memory_read: false,
            last_level_awaited: false,
            from_core: None,
            from_node: None,
            sets_directory: false,
        }
    }

    /// Whether something must come before it can go on.
    fn awaits(&self) -> bool {
        // All of them at once: each for itself is hard for the host to foresee.
        (self.cores != 0)
            | self.node
            | self.memory_awaited
            | self.last_level_awaited
            | (self.asked_home & self.reply.is_none())
    }
}

/// A snoop of the home that is under way, or a recall of the node itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Serving {
    snoop: Snoop,
    cores: u64,
    from_core: Option<Found>,
}

/// A request that waits for the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiting {
    asker: Asker,
    ask: Ask,
    has_data: bool,
    write: u32,
    order: Order,
}

/// What is under way for a line in a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Active {
    running: Option<Running>,
    serving: Option<Serving>,
    /// A snoop that came while cores' answers to this node's own request were awaited.
    deferred: Option<Snoop>,
    /// The other node has been answered and has not said yet that it has the answer.
    completing: bool,
    /// When it will have said so, where that is known before: [`Active::completes_at`].
    completion: Option<u64>,
    /// Memory's answers that nothing waits for any more: the next so many change nothing.
    unneeded: u32,
    waiting: VecDeque<Waiting>,
}

impl Active {
    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        let nothing = self.running.is_none() && self.serving.is_none() && self.deferred.is_none();
        nothing && !self.completing && self.waiting.is_empty() && self.unneeded == 0
    }

    /// Requests that wait for the one before them.
    pub fn waiting_requests(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the other node's answer to a snoop is awaited: until it comes, an answer of memory changes nothing but what
    /// [`Active::memory_has_answered`] does.
    pub fn awaits_node(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.node)
    }

    /// Notes memory's answer, without going on: for whoever knows that [`ToHome::Memory`] would have come before what comes now.
    ///
    /// # Panics
    ///
    /// If no request is under way.
    pub fn memory_has_answered(&mut self) {
        debug_assert!(self.unneeded == 0, "memory answers in order");
        let running = self.running.as_mut().expect("memory answers a request");
        (running.memory_awaited, running.memory_read) = (false, true);
    }

    /// Lets a test rename the versions that are on their way through it.
    #[cfg(test)]
    pub(super) fn change_versions(&mut self, change: &mut impl FnMut(&mut Version)) {
        let served = self.serving.iter_mut().filter_map(|serving| serving.from_core.as_mut());
        let running = self.running.iter_mut().flat_map(|running| {
            let found = running.from_core.iter_mut().chain(&mut running.from_node);
            let reply = running.reply.iter_mut().map(|(_, version, _)| version);
            found.map(|found| &mut found.version).chain(reply)
        });
        served.map(|found| &mut found.version).chain(running).for_each(change);
    }
}

/// A node's view of a line while a message is handled.
struct Handling<'a> {
    is_home: bool,
    choices: &'a Choices,
    stable: &'a mut Stable,
    active: &'a mut Active,
    newest: &'a mut Version,
    actions: &'a mut Vec<Action>,
}

/// Handles a message about a line in one node: `is_home` if the line's home is there. What follows is appended to `actions`,
/// in the order in which it must be sent. `newest` is the line's newest version; a write past the caches that takes effect
/// makes the next.
///
/// # Panics
///
/// On a message that the protocol does not allow: a mistake of the model, never of the program it runs.
// In the one place where a machine calls it: the message is in the host's registers there.
#[inline(always)]
pub fn handle(
    is_home: bool,
    choices: &Choices,
    stable: &mut Stable,
    active: &mut Active,
    message: ToHome,
    newest: &mut Version,
    actions: &mut Vec<Action>,
) {
    let mut handling = Handling { is_home, choices, stable, active, newest, actions };
    match message {
        ToHome::Request { asker, ask, has_data, write } => {
            handling.request(Waiting { asker, ask, has_data, write, order: Order::Free });
        }
        ToHome::OrderedWrite { request, ask, write } => {
            let asker = Asker::Device(request);
            handling.request(Waiting { asker, ask, has_data: false, write, order: Order::Ordered });
        }
        ToHome::TakeEffect => {
            let running = handling.active.running.as_mut().expect("an ordered write takes effect");
            debug_assert!(running.order == Order::Ready, "only a write that is ready takes effect");
            running.order = Order::Free;
            handling.advance();
        }
        ToHome::Evicted { core, dirty, version } => handling.stable.evicted(core, dirty, version),
        ToHome::CoreFound { core, found } => handling.core_found(core, found),
        ToHome::NodeFound(found) => handling.node_found(found),
        ToHome::Snoop(snoop) => handling.snooped(snoop),
        ToHome::Reply { grant, version, data } => {
            let running = handling.active.running.as_mut().expect("a reply answers a request");
            running.reply = Some((grant, version, data));
            handling.advance();
        }
        ToHome::Complete => {
            (handling.active.completing, handling.active.completion) = (false, None);
            handling.start_next();
        }
        ToHome::WriteBack { keeps, version } => {
            handling.stable.memory_version = version;
            handling.actions.push(Action::WriteMemory);
            if !keeps {
                handling.stable.right = Right::Exclusive;
            }
        }
        ToHome::Recall => handling.recall(),
        // A channel answers in order, so what nothing waits for comes before what something does.
        ToHome::Memory if handling.active.unneeded > 0 => handling.active.unneeded -= 1,
        ToHome::Memory => {
            handling.active.memory_has_answered();
            handling.advance();
        }
        ToHome::LastLevel => {
            let running = handling.active.running.as_mut().expect("the last level answers a request");
            running.last_level_awaited = false;
            handling.advance();
        }
    }
}

impl Handling<'_> {
    /// Starts a request at once, or has it wait for those before it.
    fn request(&mut self, request: Waiting) {
        if self.active.is_idle() {
            self.start(request.asker, request.ask, request.has_data, request.write, request.order);
        } else {
            self.active.waiting.push_back(request);
        }
        self.start_next();
    }

    fn start_next(&mut self) {
        while self.active.running.is_none() && self.active.serving.is_none() && !self.active.completing {
            if let Some(snoop) = self.active.deferred.take() {
                self.serve(snoop);
                continue;
            }
            let Some(next) = self.active.waiting.pop_front() else { return };
            self.start(next.asker, next.ask, next.has_data, next.write, next.order);
        }
    }

    /// Starts a request: asks those who may have the line.
    // Not told by a [`Waiting`], which would have to be read just after it was written, part by part.
    fn start(&mut self, asker: Asker, ask: Ask, has_data: bool, write: u32, order: Order) {
        let sets_directory = self.stable.must_set_directory(self.choices, asker, ask);
        let mut running = Running { write, order, sets_directory, ..Running::started(asker, ask, has_data) };
        if asker == Asker::Node && self.stable.right == Right::None {
            // It asks, so it has given the line up.
            self.stable.right = Right::Exclusive;
        }
        self.ask_cores(&mut running);
        if self.is_home {
            self.ask_node(&mut running);
        }
        let local = running.cores != 0 || running.last_level_awaited;
        // The directory's entry lies in the check bits of the line, which must be read before both are written again.
        if self.is_home && (!local && self.needs_data(&running) || running.sets_directory) {
            let remote_may_have_it = running.node && self.stable.right == Right::None;
            if !remote_may_have_it || self.choices.speculative_memory_read {
                running.memory_awaited = true;
                self.actions.push(Action::ReadMemory);
            }
        }
        self.active.running = Some(running);
        self.advance();
    }

    fn ask_cores(&mut self, running: &mut Running) {
        let own = core_bit(running.asker);
        let others = self.stable.copies & !own;
        if running.ask.takes_all() {
            let besides = if running.ask.writes() { self.stable.copies } else { others };
            running.cores = besides;
            self.snoop_cores(besides, Snoop::Invalidate);
            let owner = self.stable.exclusive && besides != 0;
            if self.needs_data(running) && !owner && self.stable.last_level != LastLevel::None {
                running.last_level_awaited = true;
                self.actions.push(Action::ReadLastLevel);
            }
        } else if self.stable.exclusive && others != 0 {
            let migratory = match running.asker {
                Asker::Node => self.choices.migratory_between_nodes,
                _ => self.choices.migratory_within_node,
            };
            running.cores = others;
            let snoop = match running.ask {
                Ask::ReadCurrent => Snoop::Current,
                _ if migratory => Snoop::Migrate,
                _ => Snoop::Share,
            };
            self.snoop_cores(others, snoop);
        } else if self.stable.last_level != LastLevel::None {
            running.last_level_awaited = true;
            self.actions.push(Action::ReadLastLevel);
        } else if others != 0 {
            // One of those that share it forwards it.
            running.cores = others & others.wrapping_neg();
            self.snoop_cores(running.cores, if running.ask == Ask::Read { Snoop::Share } else { Snoop::Current });
        }
    }

    fn snoop_cores(&mut self, mut cores: u64, snoop: Snoop) {
        while cores != 0 {
            self.actions.push(Action::ToCore(cores.trailing_zeros() as u8, ToCore::Snoop(snoop)));
            cores &= cores - 1;
        }
    }

    /// At the home: asks the other node, if it may have what is wanted.
    fn ask_node(&mut self, running: &mut Running) {
        if running.asker == Asker::Node {
            return;
        }
        let local = running.cores != 0 || running.last_level_awaited;
        let asks = match self.stable.right {
            Right::None => true,
            Right::Shared => running.ask.takes_all() || self.choices.snoops_shared && !local,
            _ => false,
        };
        if !asks {
            return;
        }
        let snoop = match running.ask {
            Ask::Read if self.choices.migratory_between_nodes => Snoop::Migrate,
            Ask::Read => Snoop::Share,
            Ask::ReadCurrent => Snoop::Current,
            _ if !local && self.needs_data(running) => Snoop::Own,
            _ => Snoop::Invalidate,
        };
        running.node = true;
        self.actions.push(Action::ToNode(ToHome::Snoop(snoop), Some((running.asker, running.ask))));
    }

    /// Whether the asker must be given the data.
    fn needs_data(&self, running: &Running) -> bool {
        match running.ask {
            Ask::Read | Ask::ReadCurrent => true,
            Ask::Own => match running.asker {
                Asker::Node => !(running.has_data && self.stable.right == Right::Shared),
                asker => self.stable.copies & core_bit(asker) == 0,
            },
            _ => false,
        }
    }

    fn core_found(&mut self, core: u8, found: Found) {
        let bit = 1 << core;
        if !found.keeps {
            self.stable.copies &= !bit;
            self.stable.exclusive = false;
        } else if self.asked_to_share() {
            self.stable.exclusive = false;
        }
        let awaited = if let Some(serving) = self.active.serving.as_mut() {
            (&mut serving.cores, &mut serving.from_core)
        } else {
            let running = self.active.running.as_mut().expect("a core answers a snoop");
            (&mut running.cores, &mut running.from_core)
        };
        debug_assert!(*awaited.0 & bit != 0, "each core answers once");
        *awaited.0 &= !bit;
        if found.was != Copy::Invalid && awaited.1.is_none_or(|before| before.was != Copy::Modified) {
            *awaited.1 = Some(found);
        }
        self.advance();
    }

    /// Whether the core that keeps its copy has only a shared one now.
    fn asked_to_share(&self) -> bool {
        match (&self.active.serving, &self.active.running) {
            (Some(serving), _) => serving.snoop != Snoop::Current,
            (None, Some(running)) => running.ask != Ask::ReadCurrent,
            (None, None) => false,
        }
    }

    fn node_found(&mut self, found: Found) {
        let running = self.active.running.as_mut().expect("the other node answers a snoop");
        running.node = false;
        running.from_node = Some(found);
        if found.data && running.memory_awaited && !running.sets_directory {
            // The data is here: memory was read for nothing, and answers for nothing.
            running.memory_awaited = false;
            self.active.unneeded += 1;
        }
        self.advance();
    }

    /// Goes on with what is under way, if nothing is awaited any more.
    fn advance(&mut self) {
        if let Some(serving) = &self.active.serving {
            if serving.cores == 0 {
                self.finish_serving();
                self.start_next();
            }
            return;
        }
        let Some(running) = self.active.running.as_ref().filter(|running| !running.awaits()) else { return };
        let asks_home = self.must_ask_home(running);
        let reads_memory = !asks_home && self.is_home && self.lacks_data(running);
        if !asks_home && !reads_memory && running.order == Order::Free {
            if let Some(running) = self.active.running.take() {
                self.finish(&running);
                self.start_next();
            }
            return;
        }
        if asks_home {
            return self.ask_home();
        }
        // Changed where it is: taken out and put back it would be copied twice.
        let Some(running) = self.active.running.as_mut() else { return };
        if reads_memory {
            running.memory_awaited = true;
            self.actions.push(Action::ReadMemory);
        } else {
            if running.order == Order::Ordered {
                self.actions.push(Action::Ready(running.write));
            }
            running.order = Order::Ready;
        }
    }

    fn has_local_data(&self, running: &Running) -> bool {
        running.from_core.is_some() || self.stable.last_level != LastLevel::None
    }

    fn lacks_data(&self, running: &Running) -> bool {
        let from_node = running.from_node.is_some_and(|found| found.data);
        !running.memory_read && !from_node && !self.has_local_data(running) && self.needs_data(running)
    }

    fn must_ask_home(&self, running: &Running) -> bool {
        if self.is_home || running.asked_home {
            return false;
        }
        match running.ask {
            Ask::Read | Ask::ReadCurrent => !self.has_local_data(running),
            _ => self.stable.right != Right::Exclusive,
        }
    }

    fn ask_home(&mut self) {
        let Some(running) = self.active.running.as_mut() else { return };
        running.asked_home = true;
        let (asker, asked, write) = (running.asker, running.ask, running.write);
        let from_core = running.from_core;
        if let Some(found) = from_core.filter(|found| found.was == Copy::Modified) {
            // A write past the caches has taken the line from its cores. Until it takes effect, a snoop must find what they wrote.
            (self.stable.last_level, self.stable.last_level_version) = (LastLevel::Dirty, found.version);
        }
        let ask = if asked.writes() { Ask::OwnWhole } else { asked };
        let has_local_data = from_core.is_some() || self.stable.last_level != LastLevel::None;
        let shares = matches!(self.stable.right, Right::Shared | Right::Forward);
        let has_data = shares && (has_local_data || self.stable.copies & core_bit(asker) != 0);
        let request = ToHome::Request { asker: Asker::Node, ask, has_data, write };
        self.actions.push(Action::ToNode(request, Some((asker, asked))));
        if let Some(snoop) = self.active.deferred.take() {
            self.serve(snoop);
        }
    }
}

fn core_bit(asker: Asker) -> u64 {
    match asker {
        Asker::Core(core) => 1 << core,
        _ => 0,
    }
}
