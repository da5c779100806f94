//! A key-value store served on the NIC: keys that are asked for often have a copy in the device's memory, all others are fetched
//! from the host's (section 5.4).
//!
//! | file | what |
//! |---|---|
//! | `database.rs` | the host's half: the whole database, in the host's memory, and its updates |
//! | `entry.rs` | an entry's line, and where the bytes of its value are |
//! | `handler.rs` | the device's: answers requests out of packets |
//! | `request.rs` | what a request and its answer look like in a packet |
//!
//! # Where a key is
//!
//! The database is a hash table of lines in the host's memory, an entry each, with linear probing. The device's memory holds a
//! subset: buckets of four keys, a line of keys and the lines of each value, least recently used first to go. It is written
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
//!
//! # Values of several lines
//!
//! A value that its entry has no room for is in a buffer, and the entry says in which. Neither side may lock the other out: CXL 1.1
//! has no atomic operation for a device. So an entry has four buffers, two that only the host's cores write and two that only the
//! device writes, and no buffer is written while its entry points to it:
//!
//! | step | who stores | who reads |
//! |---|---|---|
//! | 1 | fills, of its own two buffers, the one that the entry does not point to | reads the entry |
//! | 2 | then writes the entry: buffer, length, and a version that it has not used for this entry before | reads the buffer |
//! | 3 | - | reads the entry again: the same, and the value counts; else begins anew with what it is now |
//!
//! While a reader has bytes of a buffer that is being filled anew, the entry no longer points there: its second look finds that. Of
//! two sides that store at once the later entry stands, as with short values, and each has written only into its own buffer. Who dies
//! within a step stops no reader. A copy on the device is taken in under the stamp that was read before, as short ones are.
//!
//! What is not said: how a core's store of a whole short entry is seen. Here it is one line at once; a core that stores it in parts
//! may be overtaken by a reader between them.

mod database;
mod entry;
mod handler;
mod request;

pub use database::{Database, DatabaseShape, MOST_VALUE_BYTES};
pub use entry::INLINE_BYTES;
pub use handler::{Handler, ServingStatistics, Through};
pub use request::{Answer, BadRequest, MOST_KEYS, REQUEST_BYTES, Request};
