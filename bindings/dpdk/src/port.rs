//! A connection to the daemon.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use conic_client::{AttachError, Client, Link, Name, Offloads, Options};
use conic_interface::ccnic::{CLASSES, Geometry, Headroom};

use crate::Half;

/// What a port wants of the daemon; `struct conic_wishes` in C.
#[repr(C)]
#[derive(Debug)]
pub struct Wishes {
    /// The daemon's socket, a C string.
    pub path: *const c_char,
    /// The network's name, a C string; empty for the daemon's first.
    pub network: *const c_char,
    /// What the client calls itself, a C string.
    pub name: *const c_char,
    /// Queue pairs.
    pub queues: u32,
    /// The MAC address.
    pub mac: [u8; 6],
    /// Descriptors of a ring.
    pub descriptors: u64,
    /// Buffers by size.
    pub buffers: [u64; CLASSES],
    /// Bytes before a received packet.
    pub headroom: u64,
    /// In how many places it begins.
    pub places: u64,
    /// Whether received TCP packets are joined, which come in chains.
    pub joins: bool,
}

/// A port; opaque in C.
#[derive(Debug)]
pub struct Port {
    client: Client,
}

/// What is known of a port; `struct conic_port_state` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortState {
    /// Whether the daemon is there.
    pub up: bool,
    /// Its number changes whenever the port has attached again.
    pub reconnects: u64,
    /// The longest frame of the network, in bytes without the frame check sequence.
    pub longest_frame: u32,
    /// Whether frames for stations that nobody is known to have come because they were asked for.
    pub promiscuous: bool,
}

/// Attaches, and gives the port; null, and the reason in `error`, if that cannot be. `senders` and `receivers` get a half for each
/// queue.
///
/// # Safety
///
/// `wishes` is valid with its strings, `error` has room for `error_bytes`, the others for as many pointers as there are queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_open(
    wishes: *const Wishes,
    senders: *mut *mut Half,
    receivers: *mut *mut Half,
    error: *mut c_char,
    error_bytes: usize,
) -> *mut Port {
    // SAFETY: as this function's contract says.
    let attached = unsafe { options_of(&*wishes) }
        .and_then(|(path, options)| Client::attach(Path::new(path), &options).map_err(|error| error.to_string()));
    match attached {
        Ok((client, queues)) => {
            for (index, queue) in queues.into_iter().enumerate() {
                let (send, mut receive) = queue.split();
                // An application that passes packets on need not look at them, and one that does asks for their lines itself.
                receive.leave_payloads();
                // SAFETY: there are as many queues as were asked for, and room for as many halves.
                unsafe {
                    *senders.add(index) = Box::into_raw(Box::new(Half::new(send)));
                    *receivers.add(index) = Box::into_raw(Box::new(Half::new(receive)));
                }
            }
            Box::into_raw(Box::new(Port { client }))
        }
        Err(text) => {
            // SAFETY: as this function's contract says.
            unsafe { write_text(&text, error, error_bytes) };
            ptr::null_mut()
        }
    }
}

/// # Safety
///
/// The strings are C strings.
unsafe fn options_of(wishes: &Wishes) -> Result<(&OsStr, Options), String> {
    // SAFETY: as this function's contract says, also below.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(wishes.path) }.to_bytes());
    let name_of = |text: *const c_char, what: &str| {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        Name::new(&text).map_err(|error| format!("{what} {text:?}: {error}"))
    };
    let options = Options {
        name: name_of(wishes.name, "the name")?,
        network: name_of(wishes.network, "the network")?,
        geometry: Geometry {
            queues: wishes.queues,
            descriptors: wishes.descriptors,
            buffers: wishes.buffers,
            object_bytes: 0,
        },
        headroom: Headroom { bytes: wishes.headroom, places: wishes.places },
        mac: Some(wishes.mac),
        // With one queue the NIC needs no hash; who asks the driver for it gets it from there.
        offloads: Offloads {
            requests: true,
            no_hash: wishes.queues == 1,
            unfinished: wishes.joins,
            join: wishes.joins,
            ..Offloads::default()
        },
        ..Options::default()
    };
    Ok((path, options))
}

/// Writes a text as a C string, as much of it as there is room for.
///
/// # Safety
///
/// `into` has room for `bytes`.
unsafe fn write_text(text: &str, into: *mut c_char, bytes: usize) {
    let Some(most) = bytes.checked_sub(1) else { return };
    let count = text.len().min(most);
    // SAFETY: `count` and a zero fit.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), into, count);
        *into.add(count) = 0;
    }
}

/// Detaches. The halves are closed before.
///
/// # Safety
///
/// `port` came from [`conic_port_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_close(port: *mut Port) {
    // SAFETY: as this function's contract says.
    drop(unsafe { Box::from_raw(port) });
}

/// Has the NIC give no joined packet of more than so many bytes from here on; false, and the reason in `error`, if that cannot be.
///
/// # Safety
///
/// `port` came from [`conic_port_open`], and `error` has room for `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_limit(
    port: *const Port,
    longest: u32,
    error: *mut c_char,
    error_bytes: usize,
) -> bool {
    // SAFETY: as this function's contract says.
    let limited = unsafe { (*port).client.limit_packets(longest) };
    if let Err(why) = &limited {
        // SAFETY: as above.
        unsafe { write_text(&why.to_string(), error, error_bytes) };
    }
    limited.is_ok()
}

/// Asks for another MAC address, of six bytes at `mac`; false, and the reason in `error`, if that cannot be.
///
/// # Safety
///
/// `port` came from [`conic_port_open`], `mac` is valid, and `error` has room for `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_set_mac(
    port: *const Port,
    mac: *const [u8; 6],
    error: *mut c_char,
    error_bytes: usize,
) -> bool {
    // SAFETY: as this function's contract says.
    let (client, mac) = unsafe { (&(*port).client, *mac) };
    // The ethdev layer sets it at each start, to what it is.
    let set = if client.mac() == mac { Ok(()) } else { client.set_mac(mac) };
    if let Err(why) = &set {
        // SAFETY: as above.
        unsafe { write_text(&why.to_string(), error, error_bytes) };
    }
    set.is_ok()
}

/// What became of a wish; `enum conic_granted` in C.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// It is so.
    Yes,
    /// The NIC's operator does not let this client.
    No,
    /// The NIC did not say.
    Unsaid,
}

/// Asks for frames for stations that nobody is known to have, or for none of them; the reason is in `error` where it is not so.
///
/// # Safety
///
/// `port` came from [`conic_port_open`], and `error` has room for `error_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_set_promiscuous(
    port: *const Port,
    on: bool,
    error: *mut c_char,
    error_bytes: usize,
) -> Granted {
    // SAFETY: as this function's contract says.
    let client = unsafe { &(*port).client };
    // The ethdev layer asks at each start, for what is so. For none it is asked always: what was not granted is still wished for.
    let set = if on && client.is_promiscuous() { Ok(()) } else { client.set_promiscuous(on) };
    if let Err(why) = &set {
        // SAFETY: as above.
        unsafe { write_text(&why.to_string(), error, error_bytes) };
    }
    match set {
        Ok(()) => Granted::Yes,
        // An older daemon gives such frames to everybody, and would if it was asked again.
        Err(AttachError::Older(_)) if !on => Granted::Yes,
        Err(AttachError::Promiscuous) => Granted::No,
        Err(_) => Granted::Unsaid,
    }
}

/// Looks after the connection, which may attach it again, and says how it is. Never waits for the daemon: attaching goes on from call
/// to call. From any thread.
///
/// # Safety
///
/// `port` came from [`conic_port_open`], and `state` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_port_look(port: *const Port, state: *mut PortState) {
    // SAFETY: as this function's contract says.
    let (client, state) = unsafe { (&(*port).client, &mut *state) };
    let up = client.look() == Link::Up;
    let longest_frame = client.attached().longest_frame;
    *state = PortState { up, reconnects: client.reconnects(), longest_frame, promiscuous: client.is_promiscuous() };
}
