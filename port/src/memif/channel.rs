//! The socket of the control channel: whole messages, each with the descriptors that came with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use conic_native::channel::peer;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::message::MESSAGE;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The most descriptors that are taken with a message: one is right, more are noticed.
const DESCRIPTORS: usize = 4;

fn address(path: &str) -> io::Result<SocketAddrUnix> {
    match path.strip_prefix('@') {
        Some(name) => Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?),
        None => Ok(SocketAddrUnix::new(path)?),
    }
}

fn socket() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

/// A socket that listens; its file is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    path: Option<String>,
}

impl Listener {
    /// Listens at a path, or at an abstract name that begins with `@`. A file that a process left behind that has ended is
    /// replaced. Only this user may connect to a path, or any user whom its folders let in.
    pub(super) fn open(path: &str, any_user: bool) -> io::Result<Listener> {
        let address = address(path)?;
        let socket = socket()?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(path, &address) => {
                std::fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            bound => bound?,
        }
        let path = file_of(path);
        if let Some(path) = &path {
            let mode = if any_user { 0o666 } else { 0o600 };
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        rustix::net::listen(&socket, 8)?;
        Ok(Listener { socket, path })
    }

    /// Goes on listening at the same path in place of another process, which passed its socket.
    pub(super) fn inherit(socket: OwnedFd, path: &str) -> Listener {
        Listener { socket, path: file_of(path) }
    }

    /// The socket, for another process that goes on listening: its file stays.
    pub(super) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.try_clone()?;
        self.path = None;
        Ok(socket)
    }

    /// The next connection, if somebody waits, with the user that its process runs as.
    pub(super) fn accept(&self) -> io::Result<Option<(Channel, u32)>> {
        match rustix::net::accept_with(&self.socket, FLAGS) {
            Ok(socket) => {
                let user = peer(&socket)?.user;
                Ok(Some((Channel { socket }, user)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Somebody who removed it already did what is to be done.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The file of a socket, where it has one.
fn file_of(path: &str) -> Option<String> {
    (!path.starts_with('@')).then(|| path.to_owned())
}

fn is_left_behind(path: &str, address: &SocketAddrUnix) -> bool {
    let is_socket =
        !path.starts_with('@') && Path::new(path).symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    is_socket && socket().is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// What a look for a message came to.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    /// The bytes of a packet, cut to one more than a message has, and the descriptors with it.
    Packet(Vec<u8>, Vec<OwnedFd>),
    /// The other side is gone.
    End,
}

/// A connected socket.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

impl Channel {
    /// A connection of another process, which passed it.
    pub(super) fn of_descriptor(socket: OwnedFd) -> Channel {
        Channel { socket }
    }

    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.socket
    }

    pub(super) fn connect(path: &str) -> io::Result<Channel> {
        let socket = socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Ok(Channel { socket })
    }

    /// Sends a message. One that finds no room is an error: so few are sent that a peer which lets them pile up is broken.
    pub(super) fn send(&self, message: &[u8; MESSAGE], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let parts = [IoSlice::new(message)];
        rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next packet, if there is one. Every descriptor that comes is owned from here on.
    pub(super) fn hear(&self) -> Heard {
        let mut bytes = vec![0; MESSAGE + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Err(_) => return Heard::End,
        };
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Heard::End;
        }
        // What did not fit is not a message: cutting to too long a packet says so.
        let cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        bytes.truncate(if cut { MESSAGE + 1 } else { received.bytes });
        Heard::Packet(bytes, descriptors)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
