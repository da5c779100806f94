//! A key-value store served on the NIC: keys that are asked for often have a copy in the device's memory, all others are fetched
//! from the host's (section 5.4).
//!
//! | file | what |
//! |---|---|
//! | `database.rs` | the host's half: the whole database, in the host's memory, and its updates |
//! | `handler.rs` | the device's: answers requests out of packets |
//! | `request.rs` | what a request and its answer look like in a packet |
//!
//! # Where a key is
//!
//! The database is a hash table of lines in the host's memory, an entry each, with linear probing. The device's memory holds a
//! subset: buckets of four keys, a line of keys and a line for each value, least recently used first to go. It is written
//! through: what the device takes in, its logic may drop again without a word.
//!
//! # Why a copy is never old
//!
//! The device's table is read in device-bias, so a store of the host to it would not be seen. Instead each entry of the database
//! belongs to a *stamp*, a word in the host's memory of which the device keeps a shared copy in its cache; so looking at it
//! costs no message until a core of the host stores it.
//!
//! | step | host updates | device answers a GET | device performs a PUT |
//! |---|---|---|---|
//! | 1 | makes the stamp odd, by an atomic operation | reads the stamp, and the keys of the bucket | reads the stamp |
//! | 2 | stores the entry | even, and the copy was taken in at this stamp: the copy | writes the entry |
//! | 3 | makes the stamp even again, two more | else: the entry from the host; taken in if the stamp is even | takes it in if the stamp was even |
//!
//! Whoever has seen a new entry can only do so after the stamp was odd: from then on no copy of before counts. An entry is a line,
//! written at once; of a PUT of the device and an update of the host the later in the line's order stands, and if that is the
//! host's, the stamp that the device has read before is old.

mod database;
mod handler;
mod request;

pub use database::{Database, DatabaseShape};
pub use handler::{Handler, ServingStatistics, Through};
pub use request::{Answer, BadRequest, Bytes, MOST_KEYS, MOST_VALUE_BYTES, REQUEST_BYTES, Request};
