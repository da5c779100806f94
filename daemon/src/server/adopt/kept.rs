//! Regions that programs may use still which were detached go on with the new daemon as well, and count there; and so do connections of
//! clients that have left and have not read all that they were told.

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
use super::cannot;
use super::link::Link;

/// What is said of a region; with it come region, process, bell and, where not all was read by it, the connection. And of a connection
/// alone, which comes with it.
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

    pub(super) fn pass_unread(&self, link: &Link<'_>) -> io::Result<()> {
        self.unread.values().try_for_each(|(channel, taken)| {
            let Taken { user, clients, queues, bytes } = *taken;
            link.say(&json!(Remainder { user, clients, queues, bytes }), &[channel.as_fd()])
        })
    }

    /// Keeps what a client of the old one has of its quota until it has read what it was told.
    pub(super) fn go_on_waiting_for(&mut self, (channel, taken): (Channel, Taken)) {
        let Taken { user, clients, queues, bytes } = taken;
        self.quota.take_part(user, clients, queues, bytes);
        self.keep_unread(channel, taken);
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
    let (taken, descriptors) = hear_remainder(link)?;
    let mut descriptors = descriptors.into_iter();
    let [Some(region), Some(process), Some(bell)] = [(); 3].map(|()| descriptors.next()) else {
        return Err(cannot("a kept region's descriptors are missing"));
    };
    refuse_descriptors(bell.as_fd());
    let memory = Memory::attach(region, taken.bytes).map_err(|error| cannot(&error.to_string()))?;
    let unread = descriptors.next().map(|descriptor: OwnedFd| Channel::of_descriptor(descriptor));
    Ok(Kept { memory: Arc::new(memory), taken, process, bell, unread })
}

/// Takes a connection that comes alone.
pub(super) fn hear_unread(link: &Link<'_>) -> Result<(Channel, Taken), DaemonError> {
    let (taken, descriptors) = hear_remainder(link)?;
    let Ok([channel]) = <[OwnedFd; 1]>::try_from(descriptors) else {
        return Err(cannot("the connection of a client that has left is missing"));
    };
    Ok((Channel::of_descriptor(channel), taken))
}

fn hear_remainder(link: &Link<'_>) -> Result<(Taken, Vec<OwnedFd>), DaemonError> {
    let (word, descriptors) = link.hear().map_err(system("taking over"))?;
    let remainder =
        serde_json::from_value(word).map_err(|error| cannot(&format!("the part of one that has left: {error}")))?;
    let Remainder { user, clients, queues, bytes } = remainder;
    Ok((Taken { user, clients, queues, bytes }, descriptors))
}
