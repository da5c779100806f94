//! What two daemons say to each other is what their number stands for.

use conic_interface::metadata::Offloads;
use conic_nicd::switch::{Circuit, Pin, RateLimit};
use serde_json::to_string;

use super::guests::{Guest, Stands};
use super::*;

/// Each word of version 6. A daemon leaves out in silence what it does not know, and a client would lose it: whoever changes a word
/// here changes the number too.
#[test]
fn the_words_are_those_of_the_number() {
    let circuit = Some(Circuit { number: 7, far: true });
    let mirror = || Some(Asked { file: "a.pcap".into(), most_bytes: 8 });
    let promise = Promise { network: "n".to_owned(), spec: "tap".to_owned(), given: true, circuit, mirror: mirror() };
    let given = Given { promise: 1, peer: "p".to_owned(), words: vec![2], descriptors: 3 };
    let heir = Heir {
        session: 1,
        name: "c".to_owned(),
        network: "n".to_owned(),
        mac: [2; 6],
        queues: 1,
        descriptors: 64,
        buffers: [3; 3],
        object_bytes: 4,
        headroom: [5; 2],
        process: 6,
        user: 7,
        group: 8,
        mirror: mirror(),
    };
    let pattern = "protocol=tcp".parse().expect("a pattern");
    let rules = Rules {
        mac: [2; 6],
        own_address_only: true,
        vlan: Some(9),
        limit: Some(RateLimit { bytes_per_second: 10, burst_bytes: 11 }),
        circuit,
        offloads: Offloads::default(),
        longest: Some(12),
        pins: vec![Pin { pattern, queue: Some(13) }],
    };
    let stood = Stood { session: 1, rules, positions: vec![[14; 3]] };
    let guest = |stands| to_string(&Guest { process: 15, user: 16, group: 17, stands });
    let said = [
        to_string(&promise),
        to_string(&heir),
        to_string(&Last::Port(given)),
        to_string(&Last::Client(stood)),
        to_string(&Last::Done(vec![15])),
        to_string(&Last::Closed),
        guest(Stands::Connected),
        guest(Stands::Negotiated { name: "g".to_owned(), offloads: vec!["verify".to_owned()] }),
        guest(Stands::Asking { text: "t".to_owned(), at: 1 }),
    ];
    let words = [
        r#"{"network":"n","spec":"tap","given":true,"circuit":{"number":7,"far":true},"mirror":{"file":"a.pcap","most_bytes":8}}"#,
        r#"{"session":1,"name":"c","network":"n","mac":[2,2,2,2,2,2],"queues":1,"descriptors":64,"buffers":[3,3,3],"object_bytes":4,"headroom":[5,5],"process":6,"user":7,"group":8,"mirror":{"file":"a.pcap","most_bytes":8}}"#,
        r#"{"Port":{"promise":1,"peer":"p","words":[2],"descriptors":3}}"#,
        r#"{"Client":{"session":1,"rules":{"mac":[2,2,2,2,2,2],"own_address_only":true,"vlan":9,"limit":{"bytes_per_second":10,"burst_bytes":11},"circuit":{"number":7,"far":true},"offloads":{"join":false,"no_hash":false,"requests":false,"strip":false,"unfinished":false,"verify":false},"longest":12,"pins":[{"match":"protocol=tcp","queue":13}]},"positions":[[14,14,14]]}}"#,
        r#"{"Done":[15]}"#,
        r#""Closed""#,
        r#"{"process":15,"user":16,"group":17,"stands":"Connected"}"#,
        r#"{"process":15,"user":16,"group":17,"stands":{"Negotiated":{"name":"g","offloads":["verify"]}}}"#,
        r#"{"process":15,"user":16,"group":17,"stands":{"Asking":{"text":"t","at":1}}}"#,
    ];
    assert_eq!(said.map(|text| text.expect("it can be said")), words);
    assert_eq!(TAKING_OVER, 6);
}
