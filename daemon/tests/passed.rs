//! Descriptors that clients pass, where the kernel lets them come: nobody waits for what takes long to close, and they take nothing of the
//! daemon's.

#[path = "support/served.rs"]
mod served;
#[path = "support/spoken.rs"]
mod spoken;
mod support;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use conic_check::lingering;
use conic_client::Client;
use conic_control::Message;
use conic_native::channel::Channel;
use conic_native::{clock, yield_core};
use conic_nicd::config::Config;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use served::Served;
use spoken::{greeted, hear, hello, say, wish};
use support::{VICTIM, held, options, settled, waiting};

/// `SO_PASSRIGHTS` of `asm-generic/socket.h`, which the kernel knows or does not; then descriptors come anyway.
const SO_PASSRIGHTS: i32 = 83;

/// What is held is counted by process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn nobody_waits_where_a_client_passes_what_takes_long_to_close() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = serve_as_before(&socket);
    for (is_read, _) in [(true, 0), (false, 0), (false, 1), (false, 2)] {
        let (stream, other_side) = lingering(5);
        let channel = Channel::connect(&socket).expect("it listens");
        if !is_read {
            // What comes behind this is never read.
            say(&channel, &Message::Detach);
        }
        if channel.send(&hello().encode(), &[stream.as_fd()]).is_err() {
            // It was not taken: nobody else has it.
            rustix::net::sockopt::set_socket_linger(&stream, None).expect("a socket");
        }
        drop(stream);
        let begun = clock::now();
        let _welcome = greeted(&socket);
        let took = clock::now().since(begun).seconds();
        assert!(took < 1.0, "read {is_read}: it waited for {took} s");
        drop(other_side);
    }
    served.end();
}

/// A daemon that serves as on a kernel before Linux 6.16.
fn serve_as_before(socket: &Path) -> Served {
    let config = Config { socket: socket.to_owned(), ..Config::default() };
    let served = Served::start(config.checked().expect("a sound configuration"));
    let_descriptors_come(socket);
    served
}

/// Has an older kernel's way for who connects from now on: descriptors can be sent to the daemon's ends.
fn let_descriptors_come(socket: &Path) {
    let listens = |number: i32| {
        // SAFETY: it is looked at while nobody closes it: the daemon's socket is open until the daemon's end, and of others nothing is kept.
        let one = unsafe { BorrowedFd::borrow_raw(number) };
        let address = rustix::net::getsockname(one).ok()?;
        let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
        let is_it = address.path_bytes() == Some(socket.as_os_str().as_encoded_bytes());
        (is_it && rustix::net::sockopt::socket_acceptconn(one).ok()?).then_some(one)
    };
    let numbers = std::fs::read_dir("/proc/self/fd").expect("they can be listed");
    let numbers: Vec<i32> = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let listener = numbers.into_iter().find_map(listens).expect("the daemon listens");
    // A kernel that does not know the word lets them come.
    let _ = conic_native::socket::set_option(listener, 1, SO_PASSRIGHTS, &1i32);
}

/// Sends a message with as many descriptors as the kernel passes: this first, then copies of one that costs nothing. Whether it was taken.
fn send_most(channel: &Channel, message: &Message, first: &TcpStream, nothing: &std::fs::File) -> bool {
    const MOST: usize = 253;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let mut descriptors = vec![nothing.as_fd(); MOST];
    descriptors[0] = first.as_fd();
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let bytes = message.encode();
    sendmsg(channel, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL).is_ok()
}

/// Whether a daemon of this process refuses descriptors at its ends of the bells that there are, or has the kernel not refuse them any more.
fn bells_refuse(let_come: bool) -> bool {
    let mut refuse = 0;
    for entry in std::fs::read_dir("/proc/self/fd").expect("they can be listed").flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: it is looked at for a moment, and one that is closed meanwhile is no such socket.
        let one = unsafe { BorrowedFd::borrow_raw(number) };
        let is_stream = rustix::net::sockopt::socket_type(one) == Ok(rustix::net::SocketType::STREAM);
        let is_local = rustix::net::sockopt::socket_domain(one) == Ok(rustix::net::AddressFamily::UNIX);
        if is_stream && is_local && conic_native::channel::refuses_descriptors(one) {
            refuse += 1;
            if let_come {
                conic_native::socket::set_option(one, 1, SO_PASSRIGHTS, &1i32).expect("it was set to zero");
            }
        }
    }
    refuse > 0
}

/// Sends what lingers over a bell; whether it was taken.
fn passes_what_lingers(bell: &OwnedFd, other_sides: &mut Vec<(TcpListener, TcpStream)>) -> bool {
    let (stream, other_side) = lingering(5);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let one = [stream.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&one)));
    let taken = sendmsg(bell, &[IoSlice::new(&[1])], &mut control, SendFlags::NOSIGNAL).is_ok();
    if !taken {
        // Nobody else has it.
        rustix::net::sockopt::set_socket_linger(&stream, None).expect("a socket");
    }
    other_sides.push(other_side);
    taken
}

/// How a client goes whose bells carry what takes long to close.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    /// With its connection, and then all that it has.
    Dies,
    /// It says so, and lets go of all.
    Leaves,
    /// It says so, and has its region for a while longer.
    Keeps,
}

#[test]
fn nobody_waits_where_a_client_passes_by_a_bell_what_takes_long_to_close() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let config = Config { socket: socket.clone(), ..Config::default() };
    let served = Served::start(config.checked().expect("a sound configuration"));
    // Another client of the network: its thread must not wait either.
    let bystander = Client::attach(&socket, &options(VICTIM)).expect("it is let in");
    let bells_refuse_them = bells_refuse(false);
    let (own, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let kernel_can = conic_native::socket::set_option(own.as_fd(), 1, SO_PASSRIGHTS, &0i32).is_ok();
    assert_eq!(bells_refuse_them, kernel_can);
    let mut other_sides = Vec::new();
    for (goes, as_before) in
        [Goes::Dies, Goes::Leaves, Goes::Keeps].into_iter().flat_map(|goes| [(goes, false), (goes, true)])
    {
        let channel = greeted(&socket);
        say(&channel, &wish(3));
        let mut passed = hear(&channel).descriptors;
        assert_eq!(passed.len(), 2 + 3, "region, kick, bells");
        if as_before {
            bells_refuse(true);
        }
        for bell in &passed[2..] {
            let taken = passes_what_lingers(bell, &mut other_sides);
            assert_eq!(taken, as_before || !bells_refuse_them, "{goes:?}, as before {as_before}");
        }
        if goes != Goes::Dies {
            say(&channel, &Message::Detach);
        }
        if goes != Goes::Keeps {
            passed.clear();
        }
        drop(channel);
        for what in ["it went", "it let go of all"] {
            let begun = clock::now();
            drop(greeted(&socket));
            drop(Client::attach(&socket, &options([2, 0, 0, 0, 0, 9])).expect("it is let in"));
            let took = clock::now().since(begun).seconds();
            assert!(took < 1.0, "{goes:?}, as before {as_before}: when {what}, they waited for {took} s");
            passed.clear();
        }
    }
    // One that is still there at the daemon's end.
    let channel = greeted(&socket);
    say(&channel, &wish(1));
    let passed = hear(&channel).descriptors;
    bells_refuse(true);
    assert!(passes_what_lingers(&passed[2], &mut other_sides));
    let begun = clock::now();
    served.end();
    assert!(clock::now().since(begun).seconds() < 2.0, "nor does the daemon's end");
    drop((bystander, passed));
}

#[test]
fn what_clients_pass_takes_neither_the_daemons_descriptors_nor_its_threads() {
    const MESSAGES: usize = 20;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nic.sock");
    let served = serve_as_before(&socket);
    let nothing = std::fs::File::open("/dev/null").expect("a file");
    let threads = || std::fs::read_dir("/proc/self/task").expect("they can be listed").count();
    let (before, threads_before) = (settled().0, threads());
    let mut other_sides = Vec::new();
    for number in 0..MESSAGES {
        let (stream, other_side) = lingering(5);
        let channel = Channel::connect(&socket).expect("it listens");
        if number % 2 == 1 {
            // What comes behind this is never looked at.
            say(&channel, &Message::Detach);
        }
        if !send_most(&channel, &hello(), &stream, &nothing) {
            assert!(number % 2 == 1, "there is room");
            // Nobody else has it.
            rustix::net::sockopt::set_socket_linger(&stream, None).expect("a socket");
        }
        drop((stream, channel));
        other_sides.push(other_side);
        let begun = clock::now();
        drop(greeted(&socket));
        let took = clock::now().since(begun).seconds();
        assert!(took < 1.0, "message {number}: it waited for {took} s");
    }
    // The test's own ends of the connections.
    let own = before + 2 * MESSAGES;
    let is_closed = || held().0 <= own && threads() <= threads_before;
    // Less than one of them lingers. It may do so here, where the daemon was the first to close it.
    let begun = clock::now();
    while !is_closed() {
        let (descriptors, threads) = (held().0.saturating_sub(own), threads().saturating_sub(threads_before));
        assert!(clock::now().since(begun).seconds() < 2.0, "{descriptors} descriptors, {threads} threads more");
        yield_core();
    }
    let begun = clock::now();
    drop(Client::attach(&socket, &options(VICTIM)).expect("it is let in"));
    assert!(clock::now().since(begun).seconds() < 1.0);
    served.end();
}
