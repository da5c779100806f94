//! The socket of the other half: whole messages out of a stream, each with the descriptors that came with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use conic_native::{Closer, Held};
use rustix::net::{Shutdown, shutdown};

use super::message::{HEADER, Header, MOST_BODY, MOST_REGIONS};
use crate::peer::socket;

/// What a look for a message came to.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    /// A message: its header, what follows it, and its descriptors.
    Message(Header, Vec<u8>, Vec<Held>),
    /// What came is no message.
    Broken(&'static str),
    /// The other side is gone.
    End,
}

/// A connected socket, and what has come of a message. The other side is told at once when it is dropped; what lies unread in it may
/// take longer.
#[derive(Debug)]
pub struct Channel {
    socket: Held,
    /// Another process goes on with it.
    is_passed_on: bool,
    closer: Closer,
    /// What has come of a message, and how much.
    bytes: Box<[u8; HEADER + MOST_BODY]>,
    come: usize,
    header: Option<Header>,
    descriptors: Vec<Held>,
}

impl Channel {
    pub(super) fn of(socket: Held, closer: &Closer) -> Channel {
        Channel {
            socket,
            is_passed_on: false,
            closer: closer.clone(),
            bytes: Box::new([0; HEADER + MOST_BODY]),
            come: 0,
            header: None,
            descriptors: Vec::new(),
        }
    }

    /// Whether a message has begun and not ended.
    pub(super) fn is_amid(&self) -> bool {
        self.come > 0
    }

    /// The socket, for another process that goes on with the connection; none in the middle of a message.
    pub(super) fn into_descriptor(mut self) -> io::Result<Option<OwnedFd>> {
        if self.is_amid() {
            return Ok(None);
        }
        let socket = self.socket.copy()?;
        self.is_passed_on = true;
        Ok(Some(socket))
    }

    /// Sends a message, with a descriptor if there is one.
    pub(super) fn send(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        socket::send(&self.socket, bytes, descriptor)
    }

    /// The next message, if all of it has come. No byte behind it is read: the next one's descriptors come with its first.
    pub(super) fn hear(&mut self) -> Heard {
        loop {
            let wanted = HEADER + self.header.map_or(0, |header| header.bytes);
            if self.come < wanted {
                match socket::receive(&self.socket, &mut self.bytes[self.come..wanted], &self.closer) {
                    Ok(None) => return Heard::Nothing,
                    Ok(Some(piece)) if piece.bytes > 0 => {
                        self.come += piece.bytes;
                        self.descriptors.extend(piece.descriptors);
                        if piece.is_cut || self.descriptors.len() > MOST_REGIONS {
                            return Heard::Broken("more descriptors than a message may have");
                        }
                    }
                    Ok(Some(_)) | Err(_) => return Heard::End,
                }
                continue;
            }
            let Some(header) = self.header.take() else {
                let header = self.bytes.first_chunk().map_or(Err("no header"), Header::read);
                match header {
                    Ok(header) => self.header = Some(header),
                    Err(why) => return Heard::Broken(why),
                }
                continue;
            };
            self.come = 0;
            let body = self.bytes[HEADER..wanted].to_vec();
            return Heard::Message(header, body, std::mem::take(&mut self.descriptors));
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
