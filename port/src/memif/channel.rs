//! The socket of the control channel: whole messages, each with the descriptors that came with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conic_native::{Closer, Held};
use rustix::net::{Shutdown, SocketType, shutdown};

use super::message::MESSAGE;
use crate::peer::socket;

/// What a look for a message came to.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    /// The bytes of a packet, cut to one more than a message has, and the descriptors with it.
    Packet(Vec<u8>, Vec<Held>),
    /// The other side is gone.
    End,
}

/// A connected socket. The other side is told at once when it is dropped; what lies unread in it may take longer.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Held,
    /// Another process goes on with it.
    is_passed_on: bool,
    closer: Closer,
}

impl Channel {
    /// A connection that was accepted.
    pub(super) fn of(socket: Held, closer: &Closer) -> Channel {
        Channel { socket, is_passed_on: false, closer: closer.clone() }
    }

    /// One that another process had and passed.
    pub(super) fn of_descriptor(socket: OwnedFd, closer: &Closer) -> Channel {
        Channel::of(Held::passed(socket, closer), closer)
    }

    /// The socket, for another process that goes on with the connection.
    pub(super) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.copy()?;
        self.is_passed_on = true;
        Ok(socket)
    }

    pub(super) fn connect(path: &str, closer: &Closer) -> io::Result<Channel> {
        Ok(Channel::of_descriptor(socket::connect(path, SocketType::SEQPACKET)?, closer))
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &[u8; MESSAGE], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        socket::send(&self.socket, message, descriptor)
    }

    /// The next packet, if there is one. Every descriptor that comes is owned from here on.
    pub(super) fn hear(&self) -> Heard {
        match self.take() {
            // The kernel may say so of a peer that spoke and went while it looked: what that said is there now. An empty packet, which
            // reads like the end, is one where nothing is behind it.
            Heard::End => match self.take() {
                Heard::Nothing => Heard::End,
                last => last,
            },
            heard => heard,
        }
    }

    fn take(&self) -> Heard {
        let mut bytes = vec![0; MESSAGE + 1];
        match socket::receive(&self.socket, &mut bytes, &self.closer) {
            Ok(None) => Heard::Nothing,
            Ok(Some(piece)) if piece.bytes > 0 => {
                // What did not fit is not a message: cutting to too long a packet says so.
                bytes.truncate(if piece.is_cut { MESSAGE + 1 } else { piece.bytes });
                Heard::Packet(bytes, piece.descriptors)
            }
            Ok(Some(_)) | Err(_) => Heard::End,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_passed_on {
            // A peer that is gone knows.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}
