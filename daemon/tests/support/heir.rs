//! A daemon that is to take over, played word by word: it has everything in its hands, and has not said that it is its own.

use std::path::Path;

use conic_control::Message;
use conic_native::channel::{Channel, Received};

use crate::spoken::{greeted, hear, say};

/// The question that asks for everything, with the number that stands in `daemon/src/server/adopt.rs`.
pub const ADOPT: &str = r#"{"ask":"adopt","version":14}"#;

/// The new daemon. The old one's threads stand still as long as it is there, and as the old one waits for its word.
pub struct Heir {
    pub channel: Channel,
    /// Descriptors of clients and ports.
    pub passed: Vec<Received>,
}

impl Heir {
    /// Asks the daemon at a socket for everything, with the ports of these numbers among those that it can give, and takes it.
    pub fn of(socket: &Path, ports: &[usize]) -> Heir {
        let channel = greeted(socket);
        say(&channel, &Message::Query(ADOPT.to_owned()));
        // What it has is heard behind this; the old one waits for room meanwhile.
        let mut heir = Heir { channel, passed: Vec::new() };
        heir.say(&format!(r#"{{"ready":{ports:?}}}"#));
        while !heir.passed.last().is_some_and(|last| text_of(last).starts_with(r#"{"Done""#)) {
            heir.passed.push(hear(&heir.channel));
        }
        heir
    }

    pub fn say(&self, word: &str) {
        say(&self.channel, &Message::Part { descriptors: 0, text: word.to_owned() });
    }

    /// Says that everything is its own; whether that is heard.
    pub fn takes_all(&self) -> bool {
        let mine = Message::Part { descriptors: 0, text: r#""mine""#.to_owned() };
        self.channel.send(&mine.encode(), &[]).is_ok()
    }
}

fn text_of(received: &Received) -> String {
    match Message::decode(&received.bytes, received.descriptors.len()) {
        Ok(Message::Part { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}
