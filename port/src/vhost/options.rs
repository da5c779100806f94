//! How a vhost-user port is opened.

/// Who makes the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VhostRole {
    /// The port listens, and frontends connect: what QEMU's `-chardev socket` does by itself.
    #[default]
    Server,
    /// The port connects to a frontend that listens (`server=on`), and again when it is gone.
    Client,
}

impl std::str::FromStr for VhostRole {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<VhostRole, &'static str> {
        match text {
            "server" => Ok(VhostRole::Server),
            "client" => Ok(VhostRole::Client),
            _ => Err("a role is server or client"),
        }
    }
}

/// How a vhost-user port is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostOptions {
    /// The socket's path; an abstract name where it begins with `@`.
    pub socket: String,
    /// Who makes it.
    pub role: VhostRole,
    /// Pairs of rings that are offered, 1 to 16; one thread serves them all.
    pub queues: usize,
    /// Whether the driver may leave checksums and the cutting of TCP packets to the port, and takes packets of which these are left.
    pub offload: bool,
    /// Bytes of memory that a frontend may bring.
    pub most_bytes: u64,
    /// Whether memory is taken that the frontend can cut, or on reserved huge pages that it can give back: either ends this process.
    pub unsealed: bool,
    /// Whether frontends of other users are served. They may then connect to the socket's file too.
    pub any_user: bool,
}

impl VhostOptions {
    /// A server at this socket, with one pair of rings and no offloads, for a frontend of up to 1 TiB.
    pub fn new(socket: &str) -> VhostOptions {
        VhostOptions {
            socket: socket.to_owned(),
            role: VhostRole::Server,
            queues: 1,
            offload: false,
            most_bytes: 1 << 40,
            unsealed: false,
            any_user: false,
        }
    }
}
