//! The kernel's network as a peer. Each test has a network namespace of its own, so that nothing on the machine is touched;
//! without the right to make one, a test says that it is skipped.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

use conic_check::skipped;
use conic_fabric::Time;
use conic_port::{MAX_FRAME, Port, Receive};

/// The EtherType for local experiments (IEEE 802), which nothing in the kernel sends or takes.
pub const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// Puts this thread into a network namespace of its own.
pub fn alone() -> bool {
    // SAFETY: no memory is passed; only this thread's namespace changes.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        let error = io::Error::last_os_error();
        skipped(&format!("making a network namespace needs CAP_SYS_ADMIN ({error})"));
        return false;
    }
    true
}

/// Runs a program in this thread's namespace; `false`, with a word about it, where there is no such program.
pub fn run(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {arguments:?}: {text}");
            true
        }
        Err(error) => {
            skipped(&format!("there is no {program} here ({error})"));
            false
        }
    }
}

/// A pair of connected interfaces, `v0` and `v1`, up and without addresses, in a namespace of its own. `false`, with a word
/// about it, where that cannot be made.
pub fn pair(mtu: usize) -> bool {
    let mtu = mtu.to_string();
    // Without IPv6 nothing sends on them by itself.
    alone()
        && std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").is_ok()
        && run("ip", &["link", "add", "v0", "mtu", &mtu, "type", "veth", "peer", "name", "v1", "mtu", &mtu])
        && run("ip", &["link", "set", "v0", "up"])
        && run("ip", &["link", "set", "v1", "up"])
}

/// Takes all descriptors that the process may have, in a table that from now on is this thread's own: other tests notice nothing.
pub fn out_of_descriptors() -> Vec<OwnedFd> {
    // SAFETY: no memory is passed; every descriptor that is open stays open under its number.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0, "{}", io::Error::last_os_error());
    let first = File::open("/dev/null").unwrap();
    let taken = std::iter::repeat_with(|| first.as_fd().try_clone_to_owned());
    let taken = taken.take_while(Result::is_ok).map(Result::unwrap).collect();
    let error = File::open("/dev/null").expect_err("there is none left");
    assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    taken
}

pub fn frame(length: usize, kind: [u8; 2], seed: u8) -> Vec<u8> {
    let mut frame = vec![seed; length];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, seed]);
    frame[12..14].copy_from_slice(&kind);
    frame
}

/// A socket that sends and receives whole frames on the interface, as another program of the machine would.
pub fn packet_socket(name: &str) -> File {
    let protocol = 0x0003u16.to_be();
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, i32::from(protocol)) };
    assert!(socket >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor was just opened and nothing else owns it.
    let socket = unsafe { File::from_raw_fd(socket) };
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: all members are integers or arrays of them.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    // SAFETY: the name ends with a zero and outlives the call.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    let size = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address is of the size given and outlives the call.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    socket
}

/// Waits up to a second for the descriptor to be readable.
pub fn wait(file: &impl AsFd) {
    wait_for(file, 1000);
}

/// Waits up to so many milliseconds for the descriptor to be readable.
pub fn wait_for(file: &impl AsFd, milliseconds: i32) {
    let mut poll = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, borrowed for writing.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
}

/// The next frame of the experimental EtherType that the socket receives.
pub fn receive_at(socket: &mut File) -> Vec<u8> {
    let mut buffer = [0; 2 * MAX_FRAME];
    for _ in 0..1000 {
        match socket.read(&mut buffer) {
            Ok(length) if buffer[12..14] == EXPERIMENT => return buffer[..length].to_vec(),
            Ok(_) => {}
            Err(_) => wait(socket),
        }
    }
    panic!("no frame came");
}

/// The next frame that the port receives.
pub fn receive(port: &mut impl Port) -> Vec<u8> {
    let mut buffer = [0xee; MAX_FRAME];
    for _ in 0..1000 {
        match port.receive(Time::ZERO, &mut buffer).unwrap() {
            Receive::Frame { length, .. } => return buffer[..length].to_vec(),
            Receive::None => wait(&port.descriptor().expect("a port on an interface has a descriptor")),
            Receive::Skipped => {}
            Receive::End => panic!("the port has ended"),
        }
    }
    panic!("no frame came: {:?}", port.counters());
}

/// The value of one of the port's own counters.
pub fn detail(port: &impl Port, name: &str) -> u64 {
    port.details().iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1
}
