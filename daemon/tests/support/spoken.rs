//! The words between a client and a daemon, said one by one.

use std::path::Path;

use conic_control::{Attach, Extensions, Hello, Message, Name, OLDEST, VERSION};
use conic_interface::ccnic::{Geometry, Headroom};
use conic_native::channel::{Channel, Received};

use crate::waiting::wait_until;

/// What the daemon says next.
pub fn hear(channel: &Channel) -> Received {
    let mut heard = None;
    wait_until("the daemon speaks", || {
        heard = channel.receive().expect("it does not close");
        heard.is_some()
    });
    heard.expect("it spoke")
}

/// The same as a message.
#[allow(dead_code, reason = "each test program uses a part of this")]
pub fn hear_message(channel: &Channel) -> Message {
    let heard = hear(channel);
    Message::decode(&heard.bytes, heard.descriptors.len()).expect("a sound message")
}

pub fn say(channel: &Channel, message: &Message) {
    channel.send(&message.encode(), &[]).expect("there is room");
}

pub fn hello() -> Message {
    Message::Hello(Hello { versions: (OLDEST, VERSION), extensions: Extensions::KNOWN, name: Name::default() })
}

/// A wish for so many queues on the first network.
#[allow(dead_code, reason = "each test program uses a part of this")]
pub fn wish(queues: u32) -> Message {
    let geometry = Geometry { queues, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
    Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: Name::default(), mac: None })
}

/// A connection that was greeted.
#[allow(dead_code, reason = "each test program uses a part of this")]
pub fn greeted(socket: &Path) -> Channel {
    let channel = Channel::connect(socket).expect("it listens");
    say(&channel, &hello());
    hear(&channel);
    channel
}
