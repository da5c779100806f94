//! Reads a trace. Field numbers are written out again here, from Perfetto's `.proto` files, so that a wrong one in the
//! writer does not agree with itself.

use std::collections::BTreeMap;

/// A field's value.
enum Value<'a> {
    Integer(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn integer(&self) -> u64 {
        match self {
            Value::Integer(value) => *value,
            _ => panic!("not a varint"),
        }
    }

    fn fixed(&self) -> u64 {
        match self {
            Value::Fixed(value) => *value,
            _ => panic!("not a fixed64"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            _ => panic!("not bytes"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("a string is UTF-8")
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Integer(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Value::Fixed(u64::from_le_bytes(value.try_into().expect("eight bytes")))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Value::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, value));
    }
    fields
}

#[derive(Debug, Default)]
pub struct Track {
    pub uuid: u64,
    pub name: String,
    pub parent: Option<u64>,
    pub rank: u64,
    pub counter: bool,
    pub ordered_by_rank: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Begin,
    End,
    Moment,
    Counter(u64),
}

#[derive(Debug, Default)]
pub struct Event {
    pub time: u64,
    pub track: u64,
    pub kind: Kind,
    pub name: String,
    pub flows: Vec<u64>,
    pub terminating: Vec<u64>,
    pub arguments: Vec<(String, String)>,
}

/// A begin and its end, or an instant.
#[derive(Debug)]
pub struct Slice {
    pub row: String,
    pub name: String,
    pub begin: u64,
    pub end: u64,
    pub flows: Vec<u64>,
    pub terminating: Vec<u64>,
    pub arguments: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub struct Trace {
    pub tracks: BTreeMap<u64, Track>,
    pub events: Vec<Event>,
    /// Names by table and number.
    pub names: BTreeMap<(u64, u64), String>,
}

impl Trace {
    /// The slices in the order in which they begin; panics where two overlap on one track.
    pub fn slices(&self) -> Vec<Slice> {
        let mut slices: Vec<Slice> = Vec::new();
        let mut open: BTreeMap<u64, usize> = BTreeMap::new();
        for event in &self.events {
            match event.kind {
                Kind::Begin | Kind::Moment => {
                    assert!(!open.contains_key(&event.track), "a slice begins before the last one of its track ends");
                    if event.kind == Kind::Begin {
                        open.insert(event.track, slices.len());
                    }
                    slices.push(Slice {
                        row: self.tracks.get(&event.track).map(|track| track.name.clone()).unwrap_or_default(),
                        name: event.name.clone(),
                        begin: event.time,
                        end: event.time,
                        flows: event.flows.clone(),
                        terminating: event.terminating.clone(),
                        arguments: event.arguments.clone(),
                    });
                }
                Kind::End => {
                    let slice = open.remove(&event.track).expect("an end without a beginning");
                    slices[slice].end = event.time;
                }
                Kind::Counter(_) => {}
            }
        }
        assert!(open.is_empty(), "slices that never end");
        slices
    }

    fn interned(&mut self, data: &[u8]) {
        for (table, entry) in fields(data) {
            assert!([2, 3, 29].contains(&table), "table {table}");
            let (mut number, mut text) = (0, String::new());
            for (field, value) in fields(entry.bytes()) {
                match field {
                    1 => number = value.integer(),
                    2 => text = value.text(),
                    other => panic!("field {other} of an interned string"),
                }
            }
            assert_ne!(number, 0, "0 is no number of an interned string");
            assert_eq!(self.names.insert((table, number), text), None);
        }
    }

    fn track(&mut self, descriptor: &[u8]) {
        let mut track = Track::default();
        for (field, value) in fields(descriptor) {
            match field {
                1 => track.uuid = value.integer(),
                2 => track.name = value.text(),
                5 => track.parent = Some(value.integer()),
                8 => {
                    assert!(value.bytes().is_empty());
                    track.counter = true;
                }
                11 => track.ordered_by_rank = value.integer() == 3,
                12 => track.rank = value.integer(),
                other => panic!("field {other} of a track descriptor"),
            }
        }
        assert!(track.parent.is_none_or(|parent| self.tracks.contains_key(&parent)), "a track before its parent");
        assert_ne!(track.uuid, 0, "0 is the track of nobody");
        assert!(self.tracks.insert(track.uuid, track).is_none(), "a track described twice");
    }

    fn event(&self, time: u64, event: &[u8]) -> Event {
        let mut found = Event { time, ..Event::default() };
        let (mut kind, mut counter) = (0, None);
        for (field, value) in fields(event) {
            match field {
                4 => found.arguments.push(self.argument(value.bytes())),
                9 => kind = value.integer(),
                10 => found.name = self.names[&(2, value.integer())].clone(),
                11 => found.track = value.integer(),
                30 => counter = Some(value.integer()),
                47 => found.flows.push(value.fixed()),
                48 => found.terminating.push(value.fixed()),
                other => panic!("field {other} of a track event"),
            }
        }
        found.kind = match (kind, counter) {
            (1, None) => Kind::Begin,
            (2, None) => Kind::End,
            (3, None) => Kind::Moment,
            (4, Some(value)) => Kind::Counter(value),
            other => panic!("an event of kind and counter {other:?}"),
        };
        found
    }

    fn argument(&self, annotation: &[u8]) -> (String, String) {
        let (mut name, mut text) = (String::new(), String::new());
        for (field, value) in fields(annotation) {
            match field {
                1 => name = self.names[&(3, value.integer())].clone(),
                3 => text = value.integer().to_string(),
                17 => text = self.names[&(29, value.integer())].clone(),
                other => panic!("field {other} of a debug annotation"),
            }
        }
        (name, text)
    }
}

/// Reads a trace; panics where it is none, or where its packets do not stand in the order of time.
pub fn trace(bytes: &[u8]) -> Trace {
    let mut trace = Trace::default();
    let mut last = 0;
    for (number, (field, packet)) in fields(bytes).into_iter().enumerate() {
        assert_eq!(field, 1, "a trace is packets");
        let mut time = None;
        let (mut flags, mut sequence) = (0, 0);
        for (field, value) in fields(packet.bytes()) {
            match field {
                8 => time = Some(value.integer()),
                10 => sequence = value.integer(),
                11 => {
                    let time = time.expect("an event's time stands before it");
                    assert!(last <= time, "events are not in the order of time");
                    last = time;
                    let event = trace.event(time, value.bytes());
                    trace.events.push(event);
                }
                12 => trace.interned(value.bytes()),
                13 => flags = value.integer(),
                60 => trace.track(value.bytes()),
                other => panic!("field {other} of a packet"),
            }
        }
        assert_eq!(sequence, 1);
        // The first packet begins the sequence's numbered names (1), and every packet uses them (2).
        assert_eq!(flags, if number == 0 { 3 } else { 2 }, "packet {number}");
    }
    trace
}
