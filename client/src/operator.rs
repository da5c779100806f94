//! An operator's questions to the daemon.

use std::path::Path;
use std::time::Duration;

use conic_control::{Extensions, Hello, Message, Name, OLDEST, VERSION};
use conic_native::channel::Channel;

use crate::AttachError;
use crate::attach::{hear, say, unexpected};

/// The longest answer that is read: a daemon with a thousand clients needs less than a hundredth of it.
const LONGEST_ANSWER: usize = 64 << 20;

/// A connection to a daemon by which it is asked, and that has no queues. The daemon answers root and its own user.
#[derive(Debug)]
pub struct Operator {
    channel: Channel,
    patience: Duration,
}

impl Operator {
    /// Connects to the daemon that listens at `path`, and waits for each of its words for no longer than `patience`.
    ///
    /// # Errors
    ///
    /// Nobody listens, the daemon refuses, or takes too long.
    pub fn connect(path: &Path, patience: Duration) -> Result<Operator, AttachError> {
        let connected = Channel::connect(path);
        let channel = connected.map_err(|error| AttachError::Connect { path: path.to_owned(), error })?;
        let name = Name::new("operator").map_err(AttachError::from)?;
        let hello = Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name };
        say(&channel, &Message::Hello(hello))?;
        match hear(&channel, patience, "its welcome")?.0 {
            Message::Welcome(_) => Ok(Operator { channel, patience }),
            other => Err(unexpected("a welcome", &other)),
        }
    }

    /// The daemon's process.
    ///
    /// # Errors
    ///
    /// The system does not say.
    pub fn process(&self) -> Result<i32, AttachError> {
        let peer = self.channel.peer();
        peer.map(|peer| peer.process).map_err(|error| AttachError::Broken { doing: "asking who the NIC is", error })
    }

    /// Asks a question, in JSON, and gives the answer, in JSON. What can be asked stands in the daemon's `server::operator`.
    ///
    /// # Errors
    ///
    /// The daemon refuses this user, or is gone, or takes too long.
    pub fn ask(&self, question: &str) -> Result<String, AttachError> {
        say(&self.channel, &Message::Query(question.to_owned()))?;
        let mut answer = String::new();
        loop {
            match hear(&self.channel, self.patience, "its answer")?.0 {
                Message::Answer(piece) if piece.is_empty() => return Ok(answer),
                Message::Answer(piece) if answer.len() + piece.len() <= LONGEST_ANSWER => answer.push_str(&piece),
                Message::Answer(_) => {
                    return Err(AttachError::Peer(format!("its answer has more than {LONGEST_ANSWER} bytes")));
                }
                other => return Err(unexpected("an answer", &other)),
            }
        }
    }
}
