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
//! subset: buckets of four keys, a line of keys and the lines of each value, least recently used first to go.
//!
//! # Where a PUT goes
//!
//! | | written through ([`Handler::new`]) | written back ([`Handler::writing_back`]) |
//! |---|---|---|
//! | a PUT of a key on the device | to the host's memory, and is answered when it is there; then to the device | to the device, marked as the only one (*dirty*): no message to the host |
//! | a PUT of another key | the same | its entry is read (CO-read), so that a key that is absent is told; answered at once, and taken in behind the answer |
//! | a key that has to go | is forgotten | behind the answer, a dirty value is read, its place taken, and it is written to the host's memory: before the next request, so that a later miss of the key finds it |
//! | who may write | clients; and the host's cores ([`Database::update`]), any key at any time | clients; and the host's cores only keys of which the device has no dirty value: keys that no client PUTs, or any from a recall on until PUTs go on |
//! | what a GET finds | the last value of both: all reads and writes have one order (linearizable) | the last value of the clients, or the host's where they have stored none; one order for all who ask the handler |
//! | what a core of the host finds ([`Database::get`]) | the last value | a value that the key has had, whole; the last one that was written out |
//! | everything in the host's memory | always | once a recall ([`Database::recall`], [`Handler::attend`]) is answered, everything that was stored before it; after [`Handler::write_out`] everything |
//! | a device that is lost | loses nothing | takes the values with it that were not written out |
//!
//! Section 5.4 has the second. The first is for a host that updates the table itself at any time: a copy's stamp tells that the host has
//! changed some key, not which, so a dirty value and a host's newer one could not be told apart.
//!
//! # Why a copy is never old
//!
//! The device's table is read in device-bias, so a store of the host to it would not be seen. Instead each entry of the database
//! belongs to a *stamp*, a word in the host's memory of which the device keeps a shared copy in its cache; so looking at it
//! costs no message until a core of the host stores it. A dirty value needs none: nobody else may have a newer one.
//!
//! | step | host updates | device answers a GET | device performs a PUT, written through |
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
