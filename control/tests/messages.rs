//! Every message reads back; nothing else is taken, and nothing makes the decoder fail otherwise than by an error.

use conic_control::{
    Attach, Attached, Bells, Extensions, Hello, Message, Name, REASONS, Refused, Wait, Welcome, common_version,
};
use conic_interface::ccnic::{Features, Geometry, Headroom};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn messages() -> Vec<Message> {
    let geometry = Geometry { queues: 3, descriptors: 64, buffers: [128, 64, 0], object_bytes: 4096 };
    let attached = Attached {
        session: 7,
        geometry,
        features: Features::best(),
        bytes: 1 << 20,
        mac: [2, 0, 0, 0, 0, 1],
        longest_frame: 9600,
        wait: Wait::Notify,
        fences: true,
        network: name("default"),
        bells: 3,
    };
    let mut all = vec![
        Message::Hello(Hello { versions: (1, 3), extensions: Extensions(5), name: name("test.1") }),
        Message::Welcome(Welcome {
            version: 1,
            extensions: Extensions(1),
            most_queues: 64,
            most_descriptors: 4096,
            most_bytes: 1 << 30,
        }),
        Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: name(""), mac: None }),
        Message::Attach(Attach {
            geometry,
            headroom: Headroom { bytes: 320, places: 16 },
            network: name("a"),
            mac: Some([2, 1, 2, 3, 4, 5]),
        }),
        Message::Attached(attached.clone()),
        Message::Attached(Attached { wait: Wait::Spin, fences: false, bells: 0, ..attached }),
        Message::Bells(Bells { first: 14, count: 14 }),
        Message::Detach,
        Message::Query("{}".to_owned()),
        Message::Answer(String::new()),
    ];
    all.extend(REASONS.iter().map(|&(reason, name)| Message::Refused(Refused { reason, text: name.to_owned() })));
    all.push(Message::Part { descriptors: 2, text: "{}".to_owned() });
    all.push(Message::Longest(60_416));
    all.extend([false, true].map(|granted| Message::Address { mac: [2, 1, 2, 3, 4, 5], granted }));
    let both = [false, true];
    all.extend(both.iter().flat_map(|&on| both.map(|granted| Message::Promiscuous { on, granted })));
    all
}

#[test]
fn every_message_reads_back() {
    for message in messages() {
        assert_eq!(Message::decode(&message.encode(), message.descriptors()), Ok(message));
    }
}

#[test]
fn every_cut_and_every_addition_is_refused() {
    for message in messages() {
        let bytes = message.encode();
        for length in 0..bytes.len() {
            assert!(Message::decode(&bytes[..length], message.descriptors()).is_err(), "{message:?} cut to {length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Message::decode(&longer, message.descriptors()).is_err(), "{message:?} and a byte");
        // Also where the header counts it; a zero behind a text is a text too.
        let length = longer.len() as u32;
        longer[8..12].copy_from_slice(&length.to_le_bytes());
        let ends_in_text = matches!(
            message,
            Message::Attached(_) | Message::Refused(_) | Message::Query(_) | Message::Answer(_) | Message::Part { .. }
        );
        if !ends_in_text {
            let error = Message::decode(&longer, message.descriptors()).expect_err("a byte too many").to_string();
            assert!(error.contains("1 bytes more than its kind"), "{message:?} and a byte that it counts: {error}");
        }
    }
}

#[test]
fn descriptors_that_do_not_belong_are_refused() {
    for message in messages() {
        for wrong in [message.descriptors() + 1, message.descriptors().wrapping_sub(1)] {
            assert!(Message::decode(&message.encode(), wrong).is_err(), "{message:?} with {wrong}");
        }
        // Also where the header says that they come; with a part as many come as it says.
        if let Message::Part { .. } = message {
            continue;
        }
        let mut bytes = message.encode();
        bytes[12..14].copy_from_slice(&(message.descriptors() as u16 + 1).to_le_bytes());
        let count = message.descriptors() + 1;
        assert!(Message::decode(&bytes, count).is_err(), "{message:?} says {count}");
    }
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let bytes = Message::Detach.encode();
    let changed = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        Message::decode(&bytes, 0).expect_err("it was changed").to_string()
    };
    assert!(changed(0, b'X').contains("does not begin"));
    assert!(changed(4, 77).contains("no kind 77"));
    assert!(changed(8, 17).contains("says that it has 17 bytes"));
    assert!(changed(14, 1).contains("reserved"));
    assert!(Name::new("a b").expect_err("a space").to_string().contains("letters, digits"));
}

#[test]
fn a_name_has_up_to_32_bytes_and_none_that_means_something_in_a_path() {
    assert_eq!(name(&"n".repeat(32)).as_str().len(), 32);
    assert!(Name::new(&"n".repeat(33)).is_err());
    assert!(name("aZ09-_.:").as_str().starts_with("aZ"));
    for wrong in ["a/b", "a\\b", "a\0b", "a\n", "\u{e9}"] {
        assert!(Name::new(wrong).is_err(), "{wrong:?}");
    }
}

/// Offsets of an [`Attached`] behind header, session, geometry, bytes, address and longest frame.
const WAIT_AT: usize = 16 + 8 + 44 + 8 + 6 + 4;
const BELLS_AT: usize = WAIT_AT + 4 + 32;

#[test]
fn flags_and_bells_that_cannot_be_are_refused() {
    let attached = &messages()[4];
    let changed = |at: usize, value: u16, descriptors: usize| {
        let mut bytes = attached.encode();
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        bytes[12..14].copy_from_slice(&(descriptors as u16).to_le_bytes());
        Message::decode(&bytes, descriptors)
    };
    assert_eq!(changed(WAIT_AT, 1, 5).as_ref(), Ok(attached), "the offset is right");
    assert!(changed(WAIT_AT, 2, 5).expect_err("no flag").to_string().contains("0 or 1, not 2"));
    assert!(changed(WAIT_AT + 2, 2, 5).expect_err("no flag").to_string().contains("0 or 1, not 2"));
    // As many bells as come with one message, and one more.
    assert!(matches!(changed(BELLS_AT, 14, 16), Ok(Message::Attached(Attached { bells: 14, .. }))));
    assert!(changed(BELLS_AT, 15, 17).expect_err("too many").to_string().contains("more than come at once"));
}

/// Programs of other versions know them by these bits.
#[test]
fn extensions_have_the_bits_that_others_know() {
    let bits = [
        Extensions::NOTIFY,
        Extensions::OFFLOADS,
        Extensions::VERIFY,
        Extensions::STRIP,
        Extensions::UNFINISHED,
        Extensions::NO_HASH,
        Extensions::JOIN,
        Extensions::LONGEST,
        Extensions::ADDRESS,
        Extensions::PROMISCUOUS,
    ];
    assert_eq!(bits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
}

#[test]
fn an_address_that_is_said_not_to_be_there_is_refused() {
    let geometry = Geometry { queues: 1, descriptors: 64, buffers: [128, 64, 0], object_bytes: 0 };
    let mut bytes =
        Message::Attach(Attach { geometry, headroom: Headroom::NONE, network: name("a"), mac: None }).encode();
    *bytes.last_mut().expect("it has bytes") = 1;
    assert!(Message::decode(&bytes, 0).expect_err("it was changed").to_string().contains("says that it has none"));
}

#[test]
fn versions_meet_where_they_overlap() {
    assert_eq!(common_version((1, 3), (2, 5)), Some(3));
    assert_eq!(common_version((2, 2), (1, 9)), Some(2));
    assert_eq!(common_version((1, 1), (2, 3)), None);
    assert_eq!(common_version((4, 5), (2, 3)), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, rng_seed: RngSeed::Fixed(6), ..ProptestConfig::default() })]

    /// Whatever is taken is a message that encodes to the very same bytes, version apart.
    #[test]
    fn what_is_decoded_encodes_to_the_same(which in 0usize..25, at in 0usize..200, value: u8, descriptors in 0usize..17) {
        let all = messages();
        let message = &all[which % all.len()];
        let mut bytes = message.encode();
        let at = at % bytes.len();
        bytes[at] = value;
        bytes[6..8].copy_from_slice(&conic_control::VERSION.to_le_bytes());
        if let Ok(decoded) = Message::decode(&bytes, descriptors) {
            prop_assert_eq!(decoded.descriptors(), descriptors);
            if !matches!(decoded, Message::Attached(_)) {
                prop_assert_eq!(decoded.encode(), bytes);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_fail_otherwise(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u16..12) {
        let _ = Message::decode(&bytes, 0);
        let mut framed = b"CNIC".to_vec();
        framed.extend(kind.to_le_bytes());
        framed.extend([1, 0]);
        framed.extend((16 + bytes.len() as u32).to_le_bytes());
        framed.extend([0; 4]);
        framed.extend(&bytes);
        if let Ok(message) = Message::decode(&framed, 0) {
            prop_assert_eq!(message.descriptors(), 0);
        }
    }
}

/// Where the kept inputs are: each kind of message, and what was once read wrongly.
fn corpus() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

#[test]
fn the_corpus_has_every_message() {
    for (number, message) in messages().iter().enumerate() {
        let path = corpus().join(format!("message-{number:02}.bin"));
        // One that cannot be read holds nothing.
        let kept = std::fs::read(&path).unwrap_or_default();
        let digits: String = message.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(kept, message.encode(), "{} is to hold {message:?}: {digits}", path.display());
    }
}

#[test]
fn what_is_nearly_a_message_is_read_as_what_it_says_or_refused() {
    let mut read = 0u64;
    let inputs = conic_check::fuzz(&corpus(), 2026, 200_000, |bytes| {
        for descriptors in [0, 2, 5, 16] {
            if let Ok(message) = Message::decode(bytes, descriptors) {
                assert_eq!(message.descriptors(), descriptors, "{message:?}");
                assert_eq!(Message::decode(&message.encode(), descriptors).as_ref(), Ok(&message));
                read += 1;
            }
        }
    });
    assert!(read > inputs / 100, "{read} of {inputs} inputs were messages: the mutations are too coarse");
}
