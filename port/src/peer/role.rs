//! Who makes the socket.

/// Who makes the socket. With memif the one who listens uses the other's memory; with vhost-user that is no matter of this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It listens.
    #[default]
    Server,
    /// It connects, and again when the other side is gone.
    Client,
}

impl std::str::FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Role, &'static str> {
        match text {
            "server" => Ok(Role::Server),
            "client" => Ok(Role::Client),
            _ => Err("a role is server or client"),
        }
    }
}
