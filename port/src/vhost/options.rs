//! How a vhost-user port is opened.

use crate::peer::Role;

/// How a vhost-user port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostOptions {
    /// The socket's path; an abstract name where it begins with `@`.
    pub socket: String,
    /// Who makes it.
    pub role: Role,
    /// Pairs of rings that are offered, or asked for, 1 to 16. Of `open_queues`: the parts.
    pub queues: usize,
    /// Whether the other side may leave checksums and the cutting of TCP packets to the port, and is given packets of which these are left.
    pub offload: bool,
    /// As frontend: slots of each ring, as a power of two, 1 to 15.
    pub log2_slots: u8,
    /// As backend: bytes of memory that a frontend may bring.
    pub most_bytes: u64,
    /// As backend: whether memory is taken that the frontend can cut, or on reserved huge pages that it can give back: either ends this process.
    pub unsealed: bool,
    /// Whether processes of other users are let in. They may then connect to the socket's file too.
    pub any_user: bool,
}

impl VhostOptions {
    /// A server at this socket, with one pair of rings and no offloads: for a frontend of up to 1 TiB, or with 256 slots in each ring.
    pub fn new(socket: &str) -> VhostOptions {
        VhostOptions {
            socket: socket.to_owned(),
            role: Role::Server,
            queues: 1,
            offload: false,
            log2_slots: 8,
            most_bytes: 1 << 40,
            unsealed: false,
            any_user: false,
        }
    }
}
