//! The socket of the control channel: whole messages, each with the descriptors that came with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use conic_native::channel::peer;
use conic_native::{Closer, Held};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, shutdown,
};

use super::message::MESSAGE;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The most descriptors that are taken with a message: one is right, and this is what the kernel passes at most (`SCM_MAX_FD`). Those
/// that find no room it closes before it gives the message, and that may take as long as their sender likes.
const DESCRIPTORS: usize = 253;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 8;

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
    /// Another process goes on with it.
    is_passed_on: bool,
    closer: Closer,
}

impl Listener {
    /// Listens at a path, or at an abstract name that begins with `@`. A file that a process left behind that has ended is
    /// replaced. Only this user may connect to a path, or any user whom its folders let in.
    pub(super) fn open(path: &str, any_user: bool, closer: &Closer) -> io::Result<Listener> {
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
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Listener { socket, path, is_passed_on: false, closer: closer.clone() })
    }

    /// Goes on listening at the same path in place of another process, which passed its socket.
    pub(super) fn inherit(socket: OwnedFd, path: &str, closer: &Closer) -> Listener {
        Listener { socket, path: file_of(path), is_passed_on: false, closer: closer.clone() }
    }

    /// The socket, for another process that goes on listening: its file stays.
    pub(super) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.try_clone()?;
        self.is_passed_on = true;
        Ok(socket)
    }

    /// The next connection, if somebody waits, with the user that its process runs as.
    pub(super) fn accept(&self) -> io::Result<Option<(Channel, u32)>> {
        match rustix::net::accept_with(&self.socket, FLAGS) {
            Ok(socket) => {
                let channel = Channel::of_descriptor(socket, &self.closer);
                let user = peer(&channel.socket)?.user;
                Ok(Some((channel, user)))
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
        if self.is_passed_on {
            return;
        }
        // Who waits to be accepted may have sent descriptors, which go with the socket: nobody comes any more, and then nobody is there.
        // The socket itself is closed here and now, because an abstract name is free again only then.
        let _ = shutdown(&self.socket, Shutdown::Both);
        while let Ok(Some(_)) = self.accept() {}
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
    Packet(Vec<u8>, Vec<Held>),
    /// The other side is gone.
    End,
}

/// A connected socket. The other side is told at once when it is dropped; what lies unread in it may take longer.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Held,
    /// Another process goes on with it.
    is_passed_on: bool,
    closer: Closer,
}

impl Channel {
    /// A connection that was accepted, or that another process had and passed.
    pub(super) fn of_descriptor(socket: OwnedFd, closer: &Closer) -> Channel {
        Channel { socket: Held::passed(socket, closer), is_passed_on: false, closer: closer.clone() }
    }

    /// The socket, for another process that goes on with the connection.
    pub(super) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.copy()?;
        self.is_passed_on = true;
        Ok(socket)
    }

    pub(super) fn connect(path: &str, closer: &Closer) -> io::Result<Channel> {
        let socket = socket()?;
        rustix::net::connect(&socket, &address(path)?)?;
        Ok(Channel::of_descriptor(socket, closer))
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
        match self.take() {
            // The kernel may say so of a peer that spoke and went while it looked: what that said is there now. An empty packet, which
            // reads like the end, is one where nothing is behind it.
            Heard::End => match self.take() {
                Heard::Nothing => Heard::End,
                last => last,
            },
            heard => heard,
        }
    }

    fn take(&self) -> Heard {
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
        let descriptors: Vec<Held> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .map(|descriptor| Held::passed(descriptor, &self.closer))
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

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_passed_on {
            // A peer that is gone knows.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}
