//! Regions that programs may use still which were detached go on with the new daemon as well, and count there.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::Memory;
use conic_native::channel::{Channel, refuse_descriptors};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::kept::Kept;
use super::super::region::Taken;
use super::super::{Daemon, DaemonError, system};
use super::{Link, cannot};

/// What is said of one; with it come region, process, bell and, where not all was read by it, the connection.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Remainder {
    pub user: u32,
    pub clients: u32,
    pub queues: u32,
    pub bytes: u64,
}

impl Daemon {
    pub(super) fn pass_kept(&self, link: &Link<'_>) -> io::Result<()> {
        self.kept.values().try_for_each(|Kept { memory, taken, process, bell, unread }| {
            let Taken { user, clients, queues, bytes } = *taken;
            let passed = [memory.descriptor(), process.as_fd(), bell.as_fd()];
            let passed: Vec<_> = passed.into_iter().chain(unread.as_ref().map(AsFd::as_fd)).collect();
            link.say(&json!(Remainder { user, clients, queues, bytes }), &passed)
        })
    }

    /// Keeps what the old one kept.
    pub(super) fn go_on_keeping(&mut self, kept: Kept) {
        let Taken { user, clients, queues, bytes } = kept.taken;
        self.quota.take_part(user, clients, queues, bytes);
        self.keep(kept);
    }
}

/// Takes what comes with one.
pub(super) fn hear_kept(link: &Link<'_>) -> Result<Kept, DaemonError> {
    let (word, descriptors) = link.hear().map_err(system("taking over"))?;
    let remainder = serde_json::from_value(word).map_err(|error| cannot(&format!("a kept region's part: {error}")))?;
    let Remainder { user, clients, queues, bytes } = remainder;
    let mut descriptors = descriptors.into_iter();
    let [Some(region), Some(process), Some(bell)] = [(); 3].map(|()| descriptors.next()) else {
        return Err(cannot("a kept region's descriptors are missing"));
    };
    refuse_descriptors(bell.as_fd());
    let memory = Memory::attach(region, bytes).map_err(|error| cannot(&error.to_string()))?;
    let unread = descriptors.next().map(|descriptor: OwnedFd| Channel::of_descriptor(descriptor));
    let taken = Taken { user, clients, queues, bytes };
    Ok(Kept { memory: Arc::new(memory), taken, process, bell, unread })
}
