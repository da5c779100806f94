//! What a program links to that wants packets from and to the NIC's daemon (`conic nic`).
//!
//! [`Client::attach`] meets the daemon and gives a [`Client`], which watches over the connection, and its [`Queue`]s, each for
//! one thread. Packets lie in [`Buffer`]s, which are owned: what was sent cannot be touched any more.
//!
//! ```no_run
//! use conic_client::{Client, Options};
//!
//! let (client, mut queues) = Client::attach("/run/conic/nic.sock".as_ref(), &Options::default())?;
//! let queue = &mut queues[0];
//! let mut frame = queue.allocate(60).ok_or("no buffer is free")?;
//! frame.fill(&[0xff; 60]);
//! let mut outgoing = vec![frame];
//! while queue.transmit(&mut outgoing) == 0 {
//!     std::hint::spin_loop();
//! }
//! let mut incoming = Vec::new();
//! queue.receive(&mut incoming, 32);
//! for frame in &incoming {
//!     println!("{} bytes for {:x?}", frame.len(), client.mac());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Packets of several segments
//!
//! A client that asks for joined or unfinished packets ([`Options::offloads`]) gets such as are longer than any buffer: each of
//! their segments is a [`Buffer`], and [`Buffer::has_next`] says that there is another. It may send such packets as well.
//!
//! # The daemon's death
//!
//! Whoever calls a queue or [`Client::maintain`] finds it: [`Client::link`] is down from then on, nothing can be sent, what had
//! been delivered is still received, and every buffer keeps its contents. As soon as a daemon listens again the client attaches
//! anew, with the same wishes, and its queues go on; a buffer of the time before is sent by copying it. What had been sent
//! and not yet read by the daemon that died is lost.
//!
//! No call of a queue waits for a daemon that listens and does not answer: each goes on with attaching as far as the answers have
//! come.
//!
//! A daemon that goes on and detaches a client, or that a client leaves, keeps the region's contents as long as a buffer of it, or anything
//! else, is held here, within the user's quota: where that has no room for more, the oldest such region becomes zeroes.
//!
//! # Threads
//!
//! A [`Queue`] may move to another thread and is used by one at a time; [`Client`] and [`Buffer`] by any.

mod attach;
mod buffer;
mod client;
mod error;
mod operator;
mod queue;
mod segments;
mod session;
mod shared_memory;

pub use buffer::Buffer;
pub use client::{Client, Link};
pub use conic_control::{Name, Reason, Refused};
pub use conic_interface::ccnic::MAX_SEGMENTS;
pub use conic_interface::metadata::{Begun, Metadata, Offloads};
pub use error::AttachError;
pub use operator::Operator;
pub use queue::{Queue, QueueFaults, Woken};
pub use segments::Segments;
pub use shared_memory::SharedMemory;

use std::time::Duration;

use conic_interface::ccnic::{Geometry, Headroom};

/// What a client wants of the daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it calls itself, for people who look at the daemon.
    pub name: Name,
    /// The network to attach to; the empty name is the daemon's first.
    pub network: Name,
    /// Queue pairs, descriptors a ring, buffers by size. Each queue pair keeps up to 256 buffers of a size on either side, a
    /// quarter of all at most: with several queue pairs have 1024 of each size in use for each of them, or frames are dropped for
    /// want of one.
    pub geometry: Geometry,
    /// What the program keeps of each buffer for itself.
    pub headroom: Headroom,
    /// The MAC address; the daemon chooses one where there is none.
    pub mac: Option<[u8; 6]>,
    /// It wants frames for stations that nobody is known to have, of its VLAN, and not attach without; the network's configuration says
    /// whether it may. [`Client::set_promiscuous`] asks for the same later.
    pub promiscuous: bool,
    /// What it makes of packets' metadata.
    pub offloads: Offloads,
    /// How long each step of attaching may take.
    pub patience: Duration,
    /// Attach again by itself when the daemon is gone and comes back.
    pub reconnect: bool,
}

impl Default for Options {
    /// One queue pair of 1024 descriptors with 2048 small, 1024 large and 64 jumbo buffers, on the daemon's first network.
    fn default() -> Options {
        Options {
            name: Name::default(),
            network: Name::default(),
            geometry: Geometry { queues: 1, descriptors: 1024, buffers: [2048, 1024, 64], object_bytes: 0 },
            headroom: Headroom::NONE,
            mac: None,
            promiscuous: false,
            offloads: Offloads::default(),
            patience: Duration::from_secs(5),
            reconnect: true,
        }
    }
}
