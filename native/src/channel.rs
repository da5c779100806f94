//! Messages between processes: a Unix socket that keeps their boundaries, and descriptors that travel with them.
//!
//! Who owns a descriptor: [`Channel::send`] borrows, so what was passed stays the sender's too; what [`Channel::receive`]
//! returns is the receiver's, and closed when it is dropped, on every path.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, sendmsg, shutdown, socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::{about_to, socket};

/// The most descriptors that one message carries.
pub const MOST_DESCRIPTORS: usize = 16;

/// The most bytes of a message.
pub const LONGEST_MESSAGE: usize = 64 << 10;

/// `SO_PEERPIDFD` of `asm-generic/socket.h`.
const SO_PEERPIDFD: libc::c_int = 77;

/// `SO_PASSRIGHTS` of `asm-generic/socket.h`: whether descriptors can be sent to a socket.
const SO_PASSRIGHTS: libc::c_int = 83;

/// The most descriptors that the kernel passes with a message, whoever sends it (`SCM_MAX_FD`). For those that find no room it closes what
/// was passed before it gives the message, and that may take as long as their sender likes.
const MOST_THAT_COME: usize = 253;

/// No message weighs less in a socket's buffer, with what the kernel keeps of it. One that is being taken weighs a byte for a moment more.
const LIGHTEST_MESSAGE: libc::c_int = 256;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// A message that came.
#[derive(Debug, Default)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The descriptors that came with it, the receiver's.
    pub descriptors: Vec<OwnedFd>,
    /// It was longer, or carried more descriptors, than there was room for; the rest is gone.
    pub cut: bool,
}

/// Who is at the other end of a channel, as the kernel says it; what it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; 0 where this one's PID namespace does not have it.
    pub process: i32,
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
}

/// One end of a connection between two processes.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Connects to a socket that another process listens at. Does not wait: a full queue of connections is an error.
    ///
    /// # Errors
    ///
    /// Nobody listens there, or this process may not connect.
    pub fn connect(path: &Path) -> io::Result<Channel> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        about_to("connect");
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Channel(socket))
    }

    /// Two ends of one connection, for tests and for children.
    ///
    /// # Errors
    ///
    /// The process has too many descriptors.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(one), Channel(other)))
    }

    /// A connection that another process had and passed over.
    pub fn of_descriptor(descriptor: OwnedFd) -> Channel {
        Channel(descriptor)
    }

    /// Sends a message with copies of descriptors; never waits, whatever the peer did to the socket.
    ///
    /// # Errors
    ///
    /// The peer is gone, or does not take what was sent before ([`io::ErrorKind::WouldBlock`]).
    ///
    /// # Panics
    ///
    /// With more than [`MOST_DESCRIPTORS`]: a mistake of the program.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        assert!(descriptors.len() <= MOST_DESCRIPTORS, "{} descriptors in a message", descriptors.len());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            debug_assert!(fits, "the space was made for as many");
        }
        about_to("send");
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next message; none if there is none now. Never waits.
    ///
    /// # Errors
    ///
    /// The peer is gone ([`io::ErrorKind::UnexpectedEof`]).
    pub fn receive(&self) -> io::Result<Option<Received>> {
        // The kernel looks for a message first and then whether this is the end, so that it may say so of a peer that spoke and went in
        // between: what it said is found by looking again. An empty message cannot be told from the end, and no protocol here has one.
        let is_end = |taken: &Received| taken.bytes.is_empty();
        let taken = self.take()?;
        if !taken.as_ref().is_some_and(is_end) {
            return Ok(taken);
        }
        let last = self.take()?.filter(|last| !is_end(last));
        last.map_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()), |last| Ok(Some(last)))
    }

    /// Takes the next message, which is empty at the end; none if there is none now.
    fn take(&self) -> io::Result<Option<Received>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_THAT_COME))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; LONGEST_MESSAGE];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        about_to("take what came");
        let mut received = Received { cut: message.flags.contains(ReturnFlags::TRUNC), ..Received::default() };
        received.cut |= message.flags.contains(ReturnFlags::CTRUNC);
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                received.descriptors.extend(descriptors);
            }
        }
        bytes.truncate(message.bytes);
        received.bytes = bytes;
        Ok(Some(received))
    }

    /// Whether descriptors come with the next message; false where there is none. None of them becomes this process's, and they stay where
    /// they are.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn carries_descriptors(&self) -> io::Result<bool> {
        loop {
            // Of what finds no room the kernel closes copies, and the message that is left has the descriptors still: that takes no time.
            let mut none = RecvAncillaryBuffer::default();
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut [0])], &mut none, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
                Ok(message) => return Ok(message.flags.contains(ReturnFlags::CTRUNC)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends the conversation, and drops what lies here unread, up to a message that carries descriptors; whether none does. Then this end
    /// can be closed without closing another's descriptor.
    pub fn end_without_descriptors(&self) -> bool {
        // Nothing more comes.
        self.end();
        if socket::set_option(self.0.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, &1i32).is_err() {
            return false;
        }
        loop {
            match self.next_message() {
                Ok(Some(false)) => {}
                Ok(None) => return true,
                Ok(Some(true)) | Err(_) => return false,
            }
            // An interrupted call took nothing, and the same message is looked at again.
            let _ = recv(&self.0, &mut [0], RecvFlags::DONTWAIT);
        }
    }

    /// Ends the conversation, and looks whether its other side had written nothing that lies here; of a stream.
    pub fn end_unwritten(&self) -> bool {
        self.end();
        recv(&self.0, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(read, _)| read == 0)
    }

    /// Whether there is a message, and if so whether it carries descriptors. An empty one is told from the end of the conversation by its
    /// sender, who stands with each where that is asked for (`SO_PASSCRED`).
    fn next_message(&self) -> io::Result<Option<bool>> {
        let mut sender = [0u64; 4];
        let mut byte = [0u8];
        let mut bytes = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: plain data, for which zeros are a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
        // As much as the sender takes, and nothing for descriptors.
        // SAFETY: a computation on a number.
        let room = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
        assert!(room <= size_of_val(&sender), "the sender has room");
        (message.msg_control, message.msg_controllen) = (sender.as_mut_ptr().cast(), room as _);
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: the call writes to these buffers, which are ours and of these sizes, and makes no descriptor for want of room.
        let result = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, flags) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let carries = message.msg_flags & libc::MSG_CTRUNC != 0;
        Ok((carries || message.msg_controllen > 0).then_some(carries))
    }

    /// Waits until there is a message, the peer is gone, or the time is over; whether there may be something to take.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        // Some centuries are as good as what the kernel does not take.
        let seconds = most.as_secs().min(1 << 34) as i64;
        let timeout = Timespec { tv_sec: seconds, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the peer has closed its end or is dead. A question to the kernel, of some hundred nanoseconds.
    pub fn is_closed(&self) -> bool {
        let mut asked = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        matches!(poll(&mut asked, Some(&now)), Ok(count) if count > 0) && asked[0].revents().intersects(gone)
    }

    /// Whether the kernel refuses descriptors that are sent to this end, so that none can lie in what is unread here.
    pub fn refuses_descriptors(&self) -> bool {
        refuses_descriptors(self.0.as_fd())
    }

    /// Whether the peer has something to read of what was sent; one that is gone has not. The kernel counts descriptors on their way to it as
    /// open files of whoever sent them.
    pub fn has_unread(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the call writes one integer, which is ours.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        result == 0 && bytes >= LIGHTEST_MESSAGE
    }

    /// Ends the conversation, though the channel stays: the peer reads what was sent, then the end, and can say nothing more.
    pub fn end(&self) {
        // A peer that is gone knows.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Hears the peer no more: what it has said is still read here, and its next word is refused it. The kernel decides between the two
    /// under the lock by which it enters a message, so that a word that was said is one that is read, and no other ever is.
    pub fn end_hearing(&self) {
        // A peer that is gone says nothing more either.
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Who is at the other end.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn peer(&self) -> io::Result<Peer> {
        peer(&self.0)
    }

    /// A descriptor of the process at the other end, which can be read when that has ended. The kernel is asked for it by the socket (Linux
    /// 6.5): the number may be another process's by now, and a process of another PID namespace has none here.
    ///
    /// # Errors
    ///
    /// What the system said, which of a process that has ended is `ESRCH`; [`io::ErrorKind::Unsupported`] where an older kernel would have to be asked by a number that there is not.
    pub fn peer_process(&self) -> io::Result<OwnedFd> {
        match socket::option::<i32>(self.0.as_fd(), libc::SOL_SOCKET, SO_PEERPIDFD) {
            // SAFETY: the kernel has just made it for this call, and nothing else owns it.
            Ok(descriptor) => return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
            Err(error) if error.raw_os_error() != Some(libc::ENOPROTOOPT) => return Err(of_process(error)),
            Err(_) => {}
        }
        let process = Pid::from_raw(self.peer()?.process).ok_or(io::ErrorKind::Unsupported)?;
        Ok(pidfd_open(process, PidfdFlags::NONBLOCK)?)
    }
}

/// What the system means by this where it is asked for a peer's process: of one that has ended, and that its parent has waited for, Linux
/// before 6.16 says that the argument is not valid, and there is none.
fn of_process(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::EINVAL) { io::Error::from_raw_os_error(libc::ESRCH) } else { error }
}

/// Who is at the other end of a Unix socket.
///
/// # Errors
///
/// What the system said.
pub fn peer(socket: &impl AsFd) -> io::Result<Peer> {
    // Not by way of a type whose process is never 0, which it is in another PID namespace.
    let libc::ucred { pid, uid, gid } = socket::option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Peer { process: pid, user: uid, group: gid })
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket at which processes connect. Where the kernel knows how (Linux 6.16), it refuses descriptors that they send.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens at a path, where nothing is.
    ///
    /// # Errors
    ///
    /// There is something at the path ([`io::ErrorKind::AddrInUse`]), or it cannot be made there.
    pub fn bind(path: &Path) -> io::Result<Listener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        refuse_descriptors(socket.as_fd());
        listen(&socket, BACKLOG)?;
        Ok(Listener(socket))
    }

    /// A socket at which nobody can connect: a place for one that is still to come.
    ///
    /// # Errors
    ///
    /// The process has too many descriptors.
    pub fn unbound() -> io::Result<Listener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Listener(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?))
    }

    /// A listening socket that another process had and passed over.
    pub fn of_descriptor(descriptor: OwnedFd) -> Listener {
        refuse_descriptors(descriptor.as_fd());
        Listener(descriptor)
    }

    /// Has whoever connects from now on told that this process listens: the kernel names the one that listened last (`unix_listen`), which
    /// without this is the one that made the socket.
    ///
    /// # Errors
    ///
    /// What the system said.
    pub fn listen_as_this_process(&self) -> io::Result<()> {
        Ok(listen(&self.0, BACKLOG)?)
    }

    /// The next connection; none if there is none now.
    ///
    /// # Errors
    ///
    /// What the system said, for example that this process has too many descriptors.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        match accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                about_to("take a connection");
                Ok(Some(Channel(socket)))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Has the kernel refuse descriptors that are sent to a local socket, or to what it accepts from now on: their sender hears of it, and they
/// never come. They come where an older kernel than Linux 6.16 does not know this; see [`refuses_descriptors`].
pub fn refuse_descriptors(socket: BorrowedFd<'_>) {
    let _ = socket::set_option(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, &0i32);
}

/// Whether the kernel refuses descriptors that are sent to this end of a local socket.
pub fn refuses_descriptors(socket: BorrowedFd<'_>) -> bool {
    socket::option::<i32>(socket, libc::SOL_SOCKET, SO_PASSRIGHTS).is_ok_and(|passes| passes == 0)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_boundaries_and_their_descriptors() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        let file = std::fs::File::open("/dev/null").expect("a file");
        one.send(b"first", &[file.as_fd(), file.as_fd()]).expect("there is room");
        one.send(b"second", &[]).expect("there is room");
        assert!(other.wait(Duration::ZERO).expect("a socket"));
        let first = other.receive().expect("the peer lives").expect("a message");
        assert_eq!((&first.bytes[..], first.descriptors.len(), first.cut), (&b"first"[..], 2, false));
        let second = other.receive().expect("the peer lives").expect("a message");
        assert_eq!((&second.bytes[..], second.descriptors.len()), (&b"second"[..], 0));
        assert!(other.receive().expect("the peer lives").is_none());
    }

    /// The kernel's own end in front of a message cannot be had at will. An empty message reads like it.
    #[test]
    fn what_lies_behind_what_reads_like_the_end_is_heard() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        other.send(b"", &[]).expect("there is room");
        other.send(b"last", &[]).expect("there is room");
        drop(other);
        assert_eq!(one.receive().expect("it has spoken").expect("it is here").bytes, b"last");
        assert_eq!(one.receive().expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
        let (one, other) = Channel::pair().expect("a pair of sockets");
        other.send(b"", &[]).expect("there is room");
        assert_eq!(one.receive().expect_err("nothing is behind it").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_peer_that_is_gone_is_found_by_all_calls() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        assert!(!one.is_closed());
        drop(other);
        assert!(one.is_closed());
        assert_eq!(one.receive().expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
        assert!(one.send(b"to nobody", &[]).is_err());
    }

    #[test]
    fn what_the_peer_has_not_read_is_told_and_what_is_said_last_is_read() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        assert!(!one.has_unread());
        one.send(&[1], &[]).expect("there is room");
        one.send(&[2], &[]).expect("there is room");
        one.end();
        for _ in 0..2 {
            assert!(one.has_unread());
            assert!(other.receive().expect("it was said").is_some());
        }
        assert!(!one.has_unread() && other.receive().is_err() && other.send(&[3], &[]).is_err());
        let (one, other) = Channel::pair().expect("a pair of sockets");
        one.send(&[1], &[]).expect("there is room");
        drop(other);
        assert!(!one.has_unread());
    }

    #[test]
    fn what_was_said_before_nobody_heard_any_more_is_read_and_nothing_behind_it() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        other.send(&[1], &[]).expect("there is room");
        one.end_hearing();
        assert_eq!(other.send(&[2], &[]).expect_err("it is refused").kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(one.receive().expect("it was said").expect("before").bytes, [1]);
        assert!(one.receive().is_err(), "nothing follows");
        // The other way goes on.
        one.send(&[3], &[]).expect("there is room");
        assert_eq!(other.receive().expect("it was said").expect("one word").bytes, [3]);
    }

    #[test]
    fn descriptors_that_come_are_told_and_stay_where_they_are() {
        let file = std::fs::File::open("/dev/null").expect("a file");
        let carried = |descriptors: &[BorrowedFd<'_>]| {
            let (one, other) = Channel::pair().expect("a pair of sockets");
            one.send(b"first", &[]).expect("there is room");
            // No protocol here has an empty one.
            one.send(b"", &[]).expect("there is room");
            one.send(b"", descriptors).expect("there is room");
            (one, other)
        };
        let (one, other) = carried(&[]);
        assert!(!one.carries_descriptors().expect("a socket") && !other.carries_descriptors().expect("a socket"));
        assert!(other.end_without_descriptors() && one.receive().is_err());
        let (_one, other) = carried(&[file.as_fd()]);
        assert!(!other.carries_descriptors().expect("a socket"), "the third does");
        assert!(!other.end_without_descriptors() && other.carries_descriptors().expect("a socket"));
        let (one, other) = Channel::pair().expect("a pair of sockets");
        drop(one);
        assert!(other.end_without_descriptors());
    }

    #[test]
    fn there_is_no_time_too_long_to_wait() {
        let (one, other) = Channel::pair().expect("a pair of sockets");
        one.send(b"here", &[]).expect("there is room");
        assert!(other.wait(Duration::MAX).expect("a time like any other"));
    }

    #[test]
    fn a_peer_that_takes_nothing_does_not_hold_its_sender() {
        let (one, _other) = Channel::pair().expect("a pair of sockets");
        let refused = (0..100_000).find_map(|_| one.send(&[7; 1000], &[]).err()).expect("its room ends");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_peer_is_who_the_kernel_says() {
        let (one, _other) = Channel::pair().expect("a pair of sockets");
        let peer = one.peer().expect("credentials");
        assert_eq!(peer.process as u32, std::process::id());
    }
}
