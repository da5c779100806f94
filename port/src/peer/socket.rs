//! Unix sockets: who listens, and what is said with descriptors.

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

/// The most descriptors that are taken with a message: one is right, and this is what the kernel passes at most (`SCM_MAX_FD`). Those
/// that find no room it closes before it gives the message, and that may take as long as their sender likes.
const DESCRIPTORS: usize = 253;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 8;

fn address(path: &str) -> io::Result<SocketAddrUnix> {
    match path.strip_prefix('@') {
        Some(name) => Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?),
        None => Ok(SocketAddrUnix::new(path)?),
    }
}

fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, FLAGS, None)?)
}

/// Connects to who listens at a path, or at an abstract name that begins with `@`.
pub(crate) fn connect(path: &str, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = socket(kind)?;
    rustix::net::connect(&socket, &address(path)?)?;
    Ok(socket)
}

/// A socket that listens; its file is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: Option<String>,
    /// Another process goes on with it.
    is_passed_on: bool,
    closer: Closer,
}

impl Listener {
    /// Listens at a path, or at an abstract name that begins with `@`. A file that a process left behind that has ended is
    /// replaced. Only this user may connect to a path, or any user whom its folders let in.
    pub(crate) fn open(path: &str, kind: SocketType, any_user: bool, closer: &Closer) -> io::Result<Listener> {
        let address = address(path)?;
        let socket = socket(kind)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(path, kind, &address) => {
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
    pub(crate) fn inherit(socket: OwnedFd, path: &str, closer: &Closer) -> Listener {
        Listener { socket, path: file_of(path), is_passed_on: false, closer: closer.clone() }
    }

    /// The socket, for another process that goes on listening: its file stays.
    pub(crate) fn into_descriptor(mut self) -> io::Result<OwnedFd> {
        let socket = self.socket.try_clone()?;
        self.is_passed_on = true;
        Ok(socket)
    }

    /// The next connection, if somebody waits, with the user that its process runs as.
    pub(crate) fn accept(&self) -> io::Result<Option<(Held, u32)>> {
        match rustix::net::accept_with(&self.socket, FLAGS) {
            Ok(socket) => {
                let socket = Held::passed(socket, &self.closer);
                let user = peer(&socket)?.user;
                Ok(Some((socket, user)))
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

fn is_left_behind(path: &str, kind: SocketType, address: &SocketAddrUnix) -> bool {
    let is_socket =
        !path.starts_with('@') && Path::new(path).symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
    is_socket && socket(kind).is_ok_and(|probe| rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// What came in one piece: how many bytes, whether some found no room, and the descriptors.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: usize,
    pub(crate) is_cut: bool,
    pub(crate) descriptors: Vec<Held>,
}

/// Takes what lies unread in a socket, as much as there is room for. Every descriptor that comes is owned from here on. None: nothing now.
pub(crate) fn receive(socket: &impl AsFd, into: &mut [u8], closer: &Closer) -> io::Result<Option<Piece>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let descriptors = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .map(|descriptor| Held::passed(descriptor, closer))
        .collect();
    let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Some(Piece { bytes: received.bytes, is_cut, descriptors }))
}

/// Sends bytes, with a descriptor if there is one. What finds no room is an error: so little is said that a peer which lets it pile up is
/// broken.
pub(crate) fn send(socket: &impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
