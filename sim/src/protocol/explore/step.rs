//! What may happen next in the small machine, and what follows.

use crate::protocol::cache;
use crate::protocol::home::{self, Action, Choices, LastLevel};
use crate::protocol::{Ask, Asker, Copy, ToCore, ToHome};

use super::mutation::Mutation;
use super::state::{NEWEST, OLD, RECENT, Setting, State};

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A core's program needs a line: for a load, a store, a store of the whole line, a write past the caches.
    Access(u8, u8, Ask),
    /// A core gives its copy up.
    Evict(u8, u8),
    /// A node's last-level cache gives its copy up.
    EvictLastLevel(u8),
    /// A node's snoop filter gives the line's entry up, for another line.
    Recall(u8),
    /// The device asks; whether for a write that takes effect only when it says so.
    Device(Ask, bool),
    /// The device's ordered write takes effect.
    TakeEffect,
    /// The device's request arrives.
    DeviceRequest,
    /// A core's message arrives at its home agents: the how-manieth on its way.
    FromCore(u8, u8, u8),
    /// A message arrives at a core.
    ToCore(u8, u8),
    /// A message of this node arrives at the other: the how-manieth on its way.
    Cross(u8, u8),
    /// Memory answers.
    Memory(u8),
    /// The last-level cache answers.
    LastLevel(u8),
}

/// Whether a message has to be looked up in the home agents' pipeline first: one without may overtake it.
fn is_looked_up(message: &ToHome) -> bool {
    matches!(message, ToHome::Request { .. } | ToHome::Snoop(_))
}

/// Whether a message is a core's request for a copy, for which its node's snoop filter must have an entry.
fn needs_entry(message: &ToHome) -> bool {
    matches!(message, ToHome::Request { asker: Asker::Core(_), ask, .. } if ask.brings_copy())
}

/// Which of the messages on a channel may be the next to arrive: the first; and the first that is not looked up, if all
/// before it are.
fn first_to_arrive(mutation: Mutation, recalls: bool, channel: &[ToHome]) -> impl Iterator<Item = u8> {
    let overtakes = move |&at: &usize| {
        let message = &channel[at];
        // A request that needs an entry of the snoop filter may have to wait for one; any other message need not.
        let waits = |before| recalls && needs_entry(before) && !needs_entry(message);
        let looked_up = |before| is_looked_up(before) && !is_looked_up(message);
        let rule = |before| mutation.overtakes(before, message) || looked_up(before) || waits(before);
        channel[..at].iter().all(rule)
    };
    (0..channel.len()).filter(overtakes).map(|at| at as u8)
}

/// The messages that may arrive.
pub fn deliveries(setting: &Setting, mutation: Mutation, state: &State, steps: &mut Vec<Step>) {
    for (at, node) in state.nodes.iter().enumerate() {
        let at = at as u8;
        for (core, this) in node.cores.iter().enumerate() {
            let core = core as u8;
            let arrive = first_to_arrive(mutation, setting.recalls, &this.to_home);
            steps.extend(arrive.map(|place| Step::FromCore(at, core, place)));
            if !this.from_home.is_empty() {
                steps.push(Step::ToCore(at, core));
            }
        }
        let other = &state.nodes[1 - usize::from(at)];
        let waits = |place: u8| {
            let snoop = matches!(node.out[usize::from(place)], ToHome::Snoop(_));
            mutation == Mutation::SnoopWaits && snoop && !other.active.is_idle()
        };
        let arrive = first_to_arrive(mutation, false, &node.out).filter(|&place| !waits(place));
        steps.extend(arrive.map(|place| Step::Cross(at, place)));
        if node.memory_reads > 0 {
            steps.push(Step::Memory(at));
        }
        if node.last_level_reads > 0 {
            steps.push(Step::LastLevel(at));
        }
    }
    if state.device.request.is_some() {
        steps.push(Step::DeviceRequest);
    }
    if state.device.ready {
        steps.push(Step::TakeEffect);
    }
}

/// What programs and caches may do of themselves.
pub fn initiatives(setting: &Setting, mutation: Mutation, state: &State, steps: &mut Vec<Step>) {
    // Lines might go to and fro again and again while memory has not answered what nothing waits for any more.
    if state.nodes.iter().any(|node| node.memory_reads > 1) {
        return;
    }
    for (at, node) in state.nodes.iter().enumerate() {
        let number = at as u8;
        for (core, this) in node.cores.iter().enumerate() {
            let core = core as u8;
            // Its program's accesses come after its own write past the caches, but a prefetch need not; and such a write
            // comes after the stores that it has buffered.
            if setting.past_caches && !this.writing && this.pending != Some(Ask::OwnWhole) {
                steps.push(Step::Access(number, core, Ask::WriteMemory));
            }
            if this.pending.is_some() {
                if mutation == Mutation::EvictsWhatItAskedFor && this.held.copy != Copy::Invalid {
                    steps.push(Step::Evict(number, core));
                }
                continue;
            }
            if this.held.copy == Copy::Invalid {
                steps.push(Step::Access(number, core, Ask::Read));
            } else {
                steps.push(Step::Evict(number, core));
            }
            if !this.writing || this.held.copy < Copy::Exclusive {
                steps.push(Step::Access(number, core, Ask::Own));
            }
            if setting.past_caches && !this.writing {
                steps.push(Step::Access(number, core, Ask::OwnWhole));
            }
        }
        let idle = node.active.is_idle() || mutation == Mutation::RecallsWhatIsUnderWay;
        if setting.recalls && idle && node.stable.copies != 0 {
            steps.push(Step::Recall(number));
        }
        // A node that keeps shared copies might write back again and again while the first is on its way.
        let write_backs = node.out.iter().filter(|message| matches!(message, ToHome::WriteBack { .. })).count();
        if node.active.is_idle() && node.stable.last_level != LastLevel::None && write_backs < 2 {
            steps.push(Step::EvictLastLevel(number));
        }
    }
    if setting.device.is_some() && state.device.pending.is_none() {
        steps.push(Step::Device(Ask::ReadCurrent, false));
        steps.extend([Ask::WriteCache, Ask::WriteMemory].map(|ask| Step::Device(ask, false)));
        steps.push(Step::Device(Ask::WriteCache, true));
        if setting.device == Some(0) {
            // The machine's device stands where all lines are home: no other makes such a write.
            steps.push(Step::Device(Ask::WriteMemory, true));
        }
    }
}

/// A state that changes, and what is the same for all states.
pub struct Change<'a> {
    pub setting: &'a Setting,
    pub mutation: Mutation,
    pub state: &'a mut State,
}

impl Change<'_> {
    /// Takes a step; says what is wrong with it, if something is.
    pub fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Access(node, core, ask) => self.access(node.into(), core.into(), ask),
            Step::Evict(node, core) => {
                let this = &mut self.state.nodes[usize::from(node)].cores[usize::from(core)];
                let held = std::mem::take(&mut this.held);
                let dirty = held.copy == Copy::Modified;
                this.to_home.push(self.mutation.evicted(ToHome::Evicted { core, dirty, version: held.version }));
                Ok(())
            }
            Step::EvictLastLevel(node) => {
                let mut actions = Vec::new();
                let at = usize::from(node);
                let stable = &mut self.state.nodes[at].stable;
                let before = *stable;
                home::evict_last_level(at == 0, stable, &mut actions);
                self.mutation.decided(&before, stable, &mut actions);
                self.act(at, actions)
            }
            Step::Recall(node) => self.at_home(node.into(), ToHome::Recall),
            Step::Device(ask, ordered) => {
                self.state.device.pending = Some(ask);
                self.state.device.request = Some(match ordered {
                    false => ToHome::Request { asker: Asker::Device(0), ask, has_data: false, write: 0 },
                    true => ToHome::OrderedWrite { request: 0, ask, write: 0 },
                });
                Ok(())
            }
            Step::TakeEffect => {
                self.state.device.ready = false;
                self.at_home(self.setting.device.expect("there is a device"), ToHome::TakeEffect)
            }
            Step::DeviceRequest => {
                let request = self.state.device.request.take().expect("the device has asked");
                self.at_home(self.setting.device.expect("there is a device"), request)
            }
            Step::FromCore(node, core, place) => {
                let at = usize::from(node);
                let message = self.state.nodes[at].cores[usize::from(core)].to_home.remove(place.into());
                self.at_home(at, message)
            }
            Step::ToCore(node, core) => self.at_core(node.into(), core.into()),
            Step::Cross(from, place) => {
                let message = self.state.nodes[usize::from(from)].out.remove(place.into());
                if self.mutation == Mutation::DoesNotWaitForComplete && message == ToHome::Complete {
                    return Ok(());
                }
                self.at_home(1 - usize::from(from), message)
            }
            Step::Memory(node) => {
                self.state.nodes[usize::from(node)].memory_reads -= 1;
                self.at_home(node.into(), ToHome::Memory)
            }
            Step::LastLevel(node) => {
                self.state.nodes[usize::from(node)].last_level_reads -= 1;
                self.at_home(node.into(), ToHome::LastLevel)
            }
        }
    }

    /// A core's program needs the line: it hits, or it asks.
    fn access(&mut self, node: usize, core: usize, ask: Ask) -> Result<(), String> {
        let this = &mut self.state.nodes[node].cores[core];
        if matches!(ask, Ask::Own | Ask::OwnWhole) && this.held.copy >= Copy::Exclusive {
            self.write(node, core);
            return Ok(());
        }
        match ask {
            Ask::WriteMemory => this.writing = true,
            _ => this.pending = Some(ask),
        }
        this.to_home.push(ToHome::Request { asker: Asker::Core(core as u8), ask, has_data: false, write: 0 });
        Ok(())
    }

    /// A core that owns the line writes it.
    fn write(&mut self, node: usize, core: usize) {
        let held = &mut self.state.nodes[node].cores[core].held;
        (held.copy, held.version) = (Copy::Modified, NEWEST + 1);
        self.state.rename_versions(NEWEST + 1);
    }

    fn at_core(&mut self, node: usize, core: usize) -> Result<(), String> {
        let this = &mut self.state.nodes[node].cores[core];
        match this.from_home.remove(self.mutation.next_to_core(&this.from_home)) {
            ToCore::Snoop(snoop) => {
                let had = this.held.copy;
                let found = self.mutation.found(snoop, cache::snooped(&mut this.held, snoop));
                this.held.copy = self.mutation.kept(snoop, had, this.held.copy);
                this.to_home.push(ToHome::CoreFound { core: core as u8, found });
                Ok(())
            }
            ToCore::Grant { copy, version, data } => {
                if copy == Copy::Invalid {
                    let writing = std::mem::take(&mut this.writing);
                    return if writing { Ok(()) } else { Err("a write is done that nobody asked for".to_owned()) };
                }
                let ask = this.pending.take().ok_or("a grant that nobody asked for")?;
                let has = this.held.copy != Copy::Invalid;
                if !data && ask == Ask::Own && !has {
                    return Err(format!("core {core} of node {node} is granted {copy:?} without data and has none"));
                }
                let version = if data { version } else { this.held.version };
                cache::granted(&mut this.held, copy, version);
                if ask == Ask::OwnWhole {
                    // It has no data but what it writes.
                    self.write(node, core);
                }
                Ok(())
            }
        }
    }

    fn at_home(&mut self, at: usize, message: ToHome) -> Result<(), String> {
        let node = &mut self.state.nodes[at];
        if let Some(answer) = self.mutation.answers_at_once(&node.active, message) {
            node.out.push(answer);
            return Ok(());
        }
        let mut actions = Vec::new();
        let mut newest = NEWEST;
        self.mutation.known(message, &mut node.stable);
        let (before, was_recalling) = (node.stable, node.active.is_recalling());
        let choices: &Choices = &self.setting.choices;
        if let ToHome::Reply { .. } = message {
            // Whoever delivers a reply acknowledges it.
            node.out.push(ToHome::Complete);
        }
        home::handle(at == 0, choices, &mut node.stable, &mut node.active, message, &mut newest, &mut actions);
        self.mutation.recalled(&before, was_recalling, &node.active, &mut node.stable);
        self.mutation.decided(&before, &mut node.stable, &mut actions);
        let asked = self.state.device.pending;
        self.act(at, actions)?;
        if newest != NEWEST || asked != self.state.device.pending {
            self.state.rename_versions(newest);
        }
        Ok(())
    }

    /// Does what a node's home agents have decided. A message without data names no version.
    fn act(&mut self, at: usize, actions: Vec<Action>) -> Result<(), String> {
        for action in actions {
            let node = &mut self.state.nodes[at];
            match action {
                Action::ToCore(core, mut message) => {
                    if let ToCore::Grant { version, data: false, .. } = &mut message {
                        *version = OLD;
                    }
                    node.cores[usize::from(core)].from_home.push(message);
                }
                Action::ToNode(mut message, _) => {
                    match &mut message {
                        ToHome::Reply { version, data: false, .. } => *version = OLD,
                        ToHome::NodeFound(found) if !found.data => found.version = OLD,
                        _ => {}
                    }
                    node.out.push(message);
                    if self.mutation == Mutation::DoesNotWaitForComplete && matches!(message, ToHome::Reply { .. }) {
                        self.at_home(at, ToHome::Complete)?;
                    }
                }
                Action::ToDevice(_, version) => {
                    let ask = self.state.device.pending.take().ok_or("the device is answered without having asked")?;
                    if ask == Ask::ReadCurrent && version < RECENT {
                        return Err("the device reads what was old before it asked".to_owned());
                    }
                }
                Action::ReadMemory => node.memory_reads += 1,
                Action::ReadLastLevel => node.last_level_reads += 1,
                Action::WriteMemory | Action::Written(_) => {}
                Action::Ready(_) => self.state.device.ready = true,
            }
        }
        Ok(())
    }
}
