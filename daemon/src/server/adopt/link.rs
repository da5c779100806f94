//! Words between two daemons, of which one takes over from the other.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use conic_control::Message;
use conic_fabric::Time;
use conic_native::channel::Channel;
use conic_native::clock;
use serde_json::{Value, json};

use super::super::operator::split_piece;
use super::{NAP, PATIENCE};

/// Descriptors that come with one part.
const DESCRIPTORS: usize = 14;

/// The other daemon, and messages with it.
pub(super) struct Link<'channel> {
    channel: &'channel Channel,
    /// All that is said and heard is so by then; none: each word has its own time.
    until: Option<Time>,
}

impl<'channel> Link<'channel> {
    pub(super) fn with(channel: &'channel Channel) -> Link<'channel> {
        Link { channel, until: None }
    }

    /// The same where all of it is to be over by then.
    pub(super) fn until(channel: &'channel Channel, until: Time) -> Link<'channel> {
        Link { channel, until: Some(until) }
    }

    fn last_moment(&self) -> Time {
        self.until.unwrap_or_else(|| clock::now() + PATIENCE)
    }

    /// Says something in as many parts as it takes: one whose text is not all of it goes on in the next. Descriptors come with the first.
    pub(super) fn say(&self, text: &Value, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = text.to_string();
        let (first, mut rest) = split_piece(&text);
        self.say_part(first, descriptors)?;
        while !rest.is_empty() {
            let piece;
            (piece, rest) = split_piece(rest);
            self.say_part(piece, &[])?;
        }
        Ok(())
    }

    fn say_part(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let message = Message::Part { descriptors: descriptors.len() as u16, text: text.to_owned() }.encode();
        let until = self.last_moment();
        loop {
            match self.channel.send(&message, descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < until => {
                    self.channel.wait(NAP)?;
                }
                sent => return sent,
            }
        }
    }

    /// Passes so many descriptors, in as many parts as it takes.
    pub(super) fn say_descriptors(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        descriptors.chunks(DESCRIPTORS).try_for_each(|some| self.say(&json!("descriptors"), some))
    }

    pub(super) fn hear_descriptors(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            let (_, more) = self.hear()?;
            if more.is_empty() {
                return Err(wrong("descriptors are missing".to_owned()));
            }
            descriptors.extend(more);
        }
        Ok(descriptors)
    }

    pub(super) fn hear(&self) -> io::Result<(Value, Vec<OwnedFd>)> {
        let (mut text, mut descriptors) = self.hear_part()?;
        loop {
            match serde_json::from_str(&text) {
                Ok(value) => return Ok((value, descriptors)),
                Err(error) if error.is_eof() => {
                    let (piece, more) = self.hear_part()?;
                    text += &piece;
                    descriptors.extend(more);
                }
                Err(error) => return Err(wrong(error.to_string())),
            }
        }
    }

    fn hear_part(&self) -> io::Result<(String, Vec<OwnedFd>)> {
        let until = self.last_moment();
        loop {
            // What lies there is heard however late it is.
            let Some(received) = self.channel.receive().map_err(of_the_end)? else {
                let left = until.since(clock::now());
                if left == Time::ZERO {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the other NIC does not answer"));
                }
                self.channel.wait(Duration::from_nanos(left.nanoseconds()))?;
                continue;
            };
            return match Message::decode(&received.bytes, received.descriptors.len()) {
                Ok(Message::Part { text, .. }) => Ok((text, received.descriptors)),
                Ok(Message::Refused(refused)) => Err(wrong(format!("the other NIC refused: {refused}"))),
                Ok(Message::Answer(text)) => Err(wrong(format!("the other NIC said {text}"))),
                other => Err(wrong(format!("the other NIC said {other:?}"))),
            };
        }
    }
}

/// What is said where the other one says nothing more.
fn of_the_end(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            io::Error::new(error.kind(), "the other NIC has ended, or goes on without this one")
        }
        _ => error,
    }
}

pub(super) fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
