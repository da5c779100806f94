//! What an operator makes of a daemon whose answer has no end: the daemon is played here.

use std::time::Duration;

use crate::support::{hear, welcome};
use conic_client::{AttachError, Operator};
use conic_control::{Extensions, Message, VERSION};
use conic_native::channel::{Channel, Listener};

/// The most bytes of an answer that an operator reads, and those of a piece.
const LONGEST: usize = 64 << 20;
const PIECE: usize = 32 << 10;

/// What the kernel holds between the two at most.
const ON_THE_WAY: usize = 8 << 20;

/// Says one piece of an answer when there is room for it; false if the operator is gone.
fn say(channel: &Channel, piece: &str) -> bool {
    let message = Message::Answer(piece.to_owned()).encode();
    loop {
        match channel.send(&message, &[]) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => conic_native::spin(),
            sent => return sent.is_ok(),
        }
    }
}

/// What an operator has of a daemon that answers so, and what that has said.
fn asked<T: Send>(answer: impl FnOnce(&Channel) -> T + Send) -> (Result<usize, AttachError>, T) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let listener = Listener::bind(&socket).expect("a socket");
    std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let channel = welcome(&listener, Extensions::KNOWN, VERSION);
            assert_eq!(hear(&channel), Message::Query("what?".to_owned()));
            answer(&channel)
        });
        let operator = Operator::connect(&socket, Duration::from_secs(60)).unwrap_or_else(|error| panic!("{error}"));
        let answer = operator.ask("what?").map(|answer| answer.len());
        // A daemon that goes on notices it.
        drop(operator);
        (answer, daemon.join().expect("it plays to its end"))
    })
}

#[test]
fn an_answer_of_the_greatest_length_is_read_and_one_without_end_is_cut_off() {
    let piece = "x".repeat(PIECE);
    let (answer, said) = asked(|channel| (0..LONGEST / PIECE).all(|_| say(channel, &piece)) && say(channel, ""));
    assert!(said && matches!(answer, Ok(LONGEST)), "{answer:?}");
    let (answer, said) = asked(|channel| {
        // For ever, but for an operator that would read for ever.
        (1..=2 * LONGEST / PIECE).take_while(|_| say(channel, &piece)).count() * PIECE
    });
    assert!(matches!(answer, Err(AttachError::Peer(_))), "{answer:?}");
    let text = answer.expect_err("it has no end").to_string();
    assert!(text.contains("its answer has more than 67108864 bytes"), "{text}");
    // No more is taken, and so nothing more is kept.
    assert!((LONGEST + PIECE..=LONGEST + PIECE + ON_THE_WAY).contains(&said), "{said} bytes");
}
