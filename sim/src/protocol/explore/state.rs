//! The state of the small machine.

use crate::protocol::cache::Held;
use crate::protocol::home::{Active, Choices, Right, Stable};
use crate::protocol::{Ask, Copy, ToCore, ToHome, Version};

/// The newest version. A version counts the writes of the line without an end; the protocol never compares two, so that
/// three names are enough.
pub const NEWEST: Version = 2;
/// A version that was the newest at some time since the device's read began, while there is one.
pub const RECENT: Version = 1;
/// Any older version; also what stands where a message carries no data.
pub const OLD: Version = 0;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Cores of each node; node 0 is the line's home.
    pub cores: [usize; 2],
    /// The node that has a device, if one does.
    pub device: Option<usize>,
    /// Whether cores write whole lines too: without their data, and past the caches.
    pub past_caches: bool,
    /// Whether snoop filters have a limit: a line may be recalled from a node, and a core's request may wait for an entry.
    pub recalls: bool,
    /// The protocol's choices.
    pub choices: Choices,
}

/// A core, and the channels between it and its home agents, first in, first out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Core {
    pub held: Held,
    /// What it has asked for, to have a copy.
    pub pending: Option<Ask>,
    /// Whether a write of its own past the caches is under way.
    pub writing: bool,
    pub to_home: Vec<ToHome>,
    pub from_home: Vec<ToCore>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub stable: Stable,
    pub active: Active,
    pub cores: Vec<Core>,
    /// Reads of memory that are not back yet.
    pub memory_reads: u8,
    /// Reads of the last-level cache that are not back yet.
    pub last_level_reads: u8,
    /// Messages on their way to the other node.
    pub out: Vec<ToHome>,
}

/// The device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// What it has asked for.
    pub pending: Option<Ask>,
    /// That request, until it is at the home agents.
    pub request: Option<ToHome>,
    /// Its ordered write may take effect.
    pub ready: bool,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub nodes: [Node; 2],
    pub device: Device,
}

impl State {
    /// Nobody has a copy, and nothing is on its way.
    pub fn new(setting: &Setting) -> State {
        let node = |node: usize| Node {
            stable: Stable {
                right: if node == 0 { Right::Exclusive } else { Right::None },
                memory_version: if node == 0 { NEWEST } else { OLD },
                ..Stable::default()
            },
            cores: vec![Core::default(); setting.cores[node]],
            ..Node::default()
        };
        State { nodes: [node(0), node(1)], device: Device::default() }
    }

    /// Whether no message is on its way.
    pub fn is_silent(&self) -> bool {
        let silent = |node: &Node| {
            let cores = node.cores.iter().all(|core| core.to_home.is_empty() && core.from_home.is_empty());
            cores && node.memory_reads == 0 && node.last_level_reads == 0 && node.out.is_empty()
        };
        self.nodes.iter().all(silent) && self.device.request.is_none() && !self.device.ready
    }

    /// Whether nobody waits for anything and the home agents have nothing under way.
    pub fn is_at_rest(&self) -> bool {
        let rests = |node: &Node| {
            node.active.is_idle() && node.cores.iter().all(|core| core.pending.is_none() && !core.writing)
        };
        self.is_silent() && self.nodes.iter().all(rests) && self.device.pending.is_none()
    }

    /// The cores that have a copy: node, core, copy.
    pub fn copies(&self) -> impl Iterator<Item = (usize, usize, Held)> {
        let all = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.cores.iter().enumerate().map(move |(core, this)| (at, core, this.held)));
        all.filter(|(_, _, held)| held.copy != Copy::Invalid)
    }

    /// Renames all versions, after writes up to version `newest`: it is the newest now, and what was it before is not.
    pub fn rename_versions(&mut self, newest: Version) {
        let reading = self.device.pending == Some(Ask::ReadCurrent);
        let mut rename = |version: &mut Version| {
            *version = match *version {
                same if same == newest => NEWEST,
                NEWEST.. | RECENT if reading => RECENT,
                _ => OLD,
            }
        };
        for node in &mut self.nodes {
            let stable = &mut node.stable;
            rename(&mut stable.last_level_version);
            rename(&mut stable.memory_version);
            node.active.change_versions(&mut rename);
            node.out.iter_mut().for_each(|message| message_version(message, &mut rename));
            for core in &mut node.cores {
                rename(&mut core.held.version);
                core.to_home.iter_mut().for_each(|message| message_version(message, &mut rename));
                for message in &mut core.from_home {
                    if let ToCore::Grant { version, .. } = message {
                        rename(version);
                    }
                }
            }
        }
    }
}

fn message_version(message: &mut ToHome, rename: &mut impl FnMut(&mut Version)) {
    match message {
        ToHome::Evicted { version, .. } | ToHome::Reply { version, .. } | ToHome::WriteBack { version, .. } => {
            rename(version);
        }
        ToHome::CoreFound { found, .. } | ToHome::NodeFound(found) => rename(&mut found.version),
        _ => {}
    }
}
