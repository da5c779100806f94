//! Whoever is connected and has no queues, who goes on with the new daemon as well: a client between two steps of attaching, an operator
//! between two questions or in the middle of an answer. What they have said since is in their sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use conic_control::{Attach, Message, Name};
use conic_fabric::Time;
use conic_interface::metadata::Offloads;
use conic_native::channel::{Channel, Peer};
use conic_native::clock;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{Daemon, DaemonError, system};
use super::cannot;
use super::link::Link;
use crate::connection::{Connection, Step, Unsaid};

/// What an operator is told whose port is being opened or closed.
const TAKEN_OVER: &str = "another NIC has taken over: ask again";

/// What is said of one; with it come connection and process.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Guest {
    pub process: i32,
    pub user: u32,
    pub group: u32,
    pub stands: Stands,
}

/// How far it has come.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Stands {
    Connected,
    /// Offloads by their names; what it has asked for, as it was said, where that waits for memory that is on its way back.
    Negotiated {
        name: String,
        offloads: Vec<String>,
        wish: Option<Vec<u8>>,
    },
    /// An operator, and of the answer to it what there is still to say: no text between two questions.
    Asking {
        text: String,
        at: usize,
    },
}

/// One on its way to the new daemon.
pub(super) struct Coming {
    guest: Guest,
    channel: Channel,
    process: OwnedFd,
}

impl Guest {
    /// None for a client that has queues, or whose queues are on their way.
    fn of(connection: &Connection, wish: Option<&Attach>) -> Option<Guest> {
        let stands = match &connection.step {
            Step::Connected => Stands::Connected,
            Step::Negotiated { name, offloads } => {
                let offloads = offloads.named().into_iter().filter(|(_, is_there)| *is_there);
                let offloads = offloads.map(|(name, _)| name.to_owned()).collect();
                let wish = wish.map(|wish| Message::Attach(wish.clone()).encode());
                Stands::Negotiated { name: name.as_str().to_owned(), offloads, wish }
            }
            // The port is this one's, and gone with it.
            Step::Asking(_) if connection.port_move().is_some() => {
                Stands::Asking { text: json!({ "error": TAKEN_OVER }).to_string(), at: 0 }
            }
            Step::Asking(Unsaid { text, at, .. }) => Stands::Asking { text: text.clone(), at: *at },
            Step::Making(_) | Step::Entering(_) | Step::Attached(_) => return None,
        };
        let Peer { process, user, group } = connection.peer;
        Some(Guest { process, user, group, stands })
    }
}

impl Daemon {
    /// The old one's guests, but for the new one itself.
    fn guests(&self, heir: u64) -> impl Iterator<Item = (&Connection, Guest)> {
        let others = self.connections.iter().filter(move |(number, _)| **number != heir);
        others.filter_map(|(number, one)| {
            let wish = self.postponed.iter().find(|(waiting, _)| waiting == number).map(|(_, wish)| wish);
            Guest::of(one, wish).map(|guest| (one, guest))
        })
    }

    pub(super) fn count_guests(&self, heir: u64) -> usize {
        self.guests(heir).count()
    }

    pub(super) fn pass_guests(&self, link: &Link<'_>, heir: u64) -> io::Result<()> {
        self.guests(heir).try_for_each(|(connection, guest)| {
            link.say(&json!(guest), &[connection.channel.as_fd(), connection.process.as_fd()])
        })
    }

    /// Serves a guest of the old one, which has all the time of a step again. One that cannot be watched finds its connection closed: the
    /// old one is gone, and the others go on.
    pub(super) fn go_on_with_guest(&mut self, coming: Coming) {
        let Coming { guest, channel, process } = coming;
        let number = self.next;
        self.next += 1;
        let watched =
            self.watch(channel.as_fd(), number << 1).and_then(|()| self.watch(process.as_fd(), number << 1 | 1));
        if watched.is_err() {
            return self.close(channel);
        }
        let mut asked_for = None;
        let step = match guest.stands {
            Stands::Connected => Step::Connected,
            Stands::Negotiated { name, offloads, wish } => {
                asked_for = wish;
                let offloads = Offloads::from_named(|name| offloads.iter().any(|one| one == name));
                Step::Negotiated { name: Name::new(&name).unwrap_or_default(), offloads }
            }
            Stands::Asking { text, at } => Step::Asking(Unsaid { text, at, ..Unsaid::default() }),
        };
        let is_answered = matches!(&step, Step::Asking(unsaid) if !unsaid.text.is_empty());
        let deadline = match step {
            Step::Asking(_) if !is_answered => Time::NEVER,
            _ => clock::now() + self.step_timeout(),
        };
        let peer = Peer { process: guest.process, user: guest.user, group: guest.group };
        self.connections.insert(number, Connection { channel, peer, process, step, deadline });
        if is_answered {
            self.go_on_answering(number);
        }
        // What stood against it was the old one's.
        if let Some(Ok(Message::Attach(wish))) = asked_for.map(|wish| Message::decode(&wish, 0)) {
            self.attach(number, &wish);
        }
    }
}

/// Takes what comes with one.
pub(super) fn hear_guest(link: &Link<'_>) -> Result<Coming, DaemonError> {
    let (word, descriptors) = link.hear().map_err(system("taking over"))?;
    let guest: Guest = serde_json::from_value(word).map_err(|error| cannot(&format!("a guest's part: {error}")))?;
    if let Stands::Negotiated { wish: Some(wish), .. } = &guest.stands
        && !matches!(Message::decode(wish, 0), Ok(Message::Attach(_)))
    {
        return Err(cannot("a guest's wish is none"));
    }
    if matches!(&guest.stands, Stands::Asking { text, at } if !text.is_char_boundary(*at)) {
        return Err(cannot("a guest's answer goes on where there is none of it"));
    }
    let Ok([channel, process]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err(cannot("a guest's descriptors are missing"));
    };
    Ok(Coming { guest, channel: Channel::of_descriptor(channel), process })
}
