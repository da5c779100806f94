//! What one process passes to another, which goes on with its port.

use std::io;
use std::os::fd::OwnedFd;

/// What another process needs to go on with a queue of a port exactly where this one stopped: given by [`crate::Port::bequeath`],
/// taken by [`crate::PortSpec::inherit`]. What the parts mean is the kind's affair.
#[derive(Debug, Default)]
pub struct Legacy {
    /// What the other end calls itself, where it does.
    pub peer: String,
    /// Where the queue stood.
    pub words: Vec<u64>,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

impl Legacy {
    /// Whether nothing is passed but the place: the port was in use, and is free when whoever gave this has dropped it.
    pub fn is_nothing(&self) -> bool {
        self.peer.is_empty() && self.words.is_empty() && self.descriptors.is_empty()
    }
}

/// Reads a legacy's words and descriptors in order.
pub(crate) struct Heir {
    pub(crate) peer: String,
    words: std::vec::IntoIter<u64>,
    descriptors: std::vec::IntoIter<OwnedFd>,
}

/// What is said where something is missing, or cannot be.
pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what the other process passed is not all that belongs to the port")
}

impl Heir {
    pub(crate) fn of(legacy: Legacy) -> Heir {
        let Legacy { peer, words, descriptors } = legacy;
        Heir { peer, words: words.into_iter(), descriptors: descriptors.into_iter() }
    }

    /// The next word, as a number of the type that is wanted.
    pub(crate) fn number<T: TryFrom<u64>>(&mut self) -> io::Result<T> {
        self.words.next().and_then(|word| T::try_from(word).ok()).ok_or_else(broken)
    }

    /// The words that are left.
    pub(crate) fn rest(&self) -> &[u64] {
        self.words.as_slice()
    }

    pub(crate) fn descriptor(&mut self) -> io::Result<OwnedFd> {
        self.descriptors.next().ok_or_else(broken)
    }
}
