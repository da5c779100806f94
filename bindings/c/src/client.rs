//! A client: attaching, detaching, and what is known of the connection.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use conic_client::Link;

use crate::burst::Queue;
use crate::memory::{Plain, put_text, write_sized};
use crate::options::Options;
use crate::regions::Regions;
use crate::status::Status;

/// A client of the daemon: a connection, and the memory that it shares with the daemon alone. Its functions may be called by
/// any thread at any time, but `conic_detach` by one, once, when no other call uses the client or a queue of it.
#[derive(Debug)]
pub struct Client {
    client: conic_client::Client,
    /// From `Box::into_raw`: the program has copies of these.
    queues: Vec<*mut Queue>,
}

/// What is known of a client.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The number of the present session with the daemon.
    pub session: u64,
    /// How often the client has attached again after the daemon was gone.
    pub reconnects: u64,
    /// Queue pairs.
    pub queues: u32,
    /// The longest frame on the network, in bytes without the frame check sequence.
    pub longest_frame: u32,
    /// 1 while packets flow, 0 while the daemon is gone or has detached the client.
    pub link: u32,
    /// The client's MAC address.
    pub mac: [u8; 6],
    /// 1 while the client gets frames for stations that nobody is known to have because it asked for them.
    pub promiscuous: u8,
    /// Zeroes.
    pub reserved: [u8; 5],
    /// The network's name, ended by a zero byte; empty where it is the daemon's first and was not named.
    pub network: [c_char; 40],
}

// SAFETY: integers; 2 * 8 + 3 * 4 + 12 + 40 bytes leave no padding.
unsafe impl Plain for Info {}

const _: () = assert!(size_of::<Info>() == 80);

/// Attaches to a daemon, waiting for it for no longer than the options' patience at each step.
///
/// `options` may be NULL for the defaults of `conic_options_init`. `client` is where the client is put: it belongs to the
/// program, which ends it with `conic_detach`; NULL is put there on failure. `text` has room for `text_size` bytes, into which a
/// failure is told, with what to do, cut to fit; it may be NULL. Any thread.
///
/// Returns 0 or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_attach(
    options: *const Options,
    client: *mut *mut Client,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    if client.is_null() || !client.is_aligned() {
        // SAFETY: the caller says that there is room.
        unsafe { put_text(text, text_size, "there is nowhere to put the client: `client` is NULL or not aligned") };
        return Status::Argument as c_int;
    }
    // SAFETY: as the caller says of `options`.
    let attached = unsafe { attach(options) };
    let (there, status) = match attached {
        Ok(made) => (Box::into_raw(Box::new(made)), 0),
        Err((status, reason)) => {
            // SAFETY: the caller says that there is room.
            unsafe { put_text(text, text_size, &reason) };
            (std::ptr::null_mut(), status as c_int)
        }
    };
    // SAFETY: neither NULL nor out of line, and the caller says that it may be written.
    unsafe { client.write(there) };
    status
}

/// # Safety
///
/// As [`conic_attach`] has it.
unsafe fn attach(options: *const Options) -> Result<Client, (Status, String)> {
    let wrong = |reason| (Status::Argument, reason);
    // SAFETY: as the caller says.
    let options = unsafe { Options::read(options) }.map_err(wrong)?;
    // SAFETY: as the caller says.
    let (socket, options) = unsafe { options.wishes() }.map_err(wrong)?;
    let (client, queues) =
        conic_client::Client::attach(&socket, &options).map_err(|error| (Status::from(&error), error.to_string()))?;
    let regions = Arc::new(Regions::default());
    let queues = queues.into_iter().map(|queue| Box::into_raw(Box::new(Queue::new(queue, Arc::clone(&regions)))));
    Ok(Client { client, queues: queues.collect() })
}

/// Ends a client and its queues: the daemon takes everything back, and no buffer of the client may be touched any more. NULL
/// is allowed and does nothing. No other thread may be using the client or one of its queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_detach(client: *mut Client) {
    if client.is_null() {
        return;
    }
    // SAFETY: it came from `Box::into_raw`, and is used no more.
    let client = unsafe { Box::from_raw(client) };
    for &queue in &client.queues {
        // SAFETY: likewise.
        drop(unsafe { Box::from_raw(queue) });
    }
}

/// One of a client's queues, `index` counting from 0; NULL if there is none or `client` is NULL. It belongs to the client and
/// lives as long. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_get_queue(client: *const Client, index: c_uint) -> *mut Queue {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { client.as_ref() }) else { return std::ptr::null_mut() };
    client.queues.get(index as usize).copied().unwrap_or(std::ptr::null_mut())
}

/// The state of the link: 1 while packets flow, 0 while the daemon is gone or has detached the client. Asks the kernel, and
/// attaches again if the daemon is back and the client reconnects (which waits for the daemon for no longer than its patience):
/// for programs that do not call their queues all the time, which do the same now and then. Any thread.
///
/// Returns 1 or 0, or `CONIC_ERROR_ARGUMENT` if `client` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_link(client: *const Client) -> c_int {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { client.as_ref() }) else { return Status::Argument as c_int };
    c_int::from(client.client.maintain() == Link::Up)
}

/// Says what is known of a client. `info` has room for `size` bytes, `sizeof(struct conic_info)`. Any thread.
///
/// Returns 0, or `CONIC_ERROR_ARGUMENT` if one is NULL, `info` is not aligned, or `size` is less than the structure ever had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_get_info(client: *const Client, info: *mut Info, size: usize) -> c_int {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { client.as_ref() }) else { return Status::Argument as c_int };
    if info.is_null() || !info.is_aligned() {
        return Status::Argument as c_int;
    }
    let attached = client.client.attached();
    let mut network = [0; 40];
    // SAFETY: the array has that size.
    unsafe { put_text(network.as_mut_ptr(), network.len(), attached.network.as_str()) };
    let known = Info {
        session: attached.session,
        reconnects: client.client.reconnects(),
        queues: attached.geometry.queues,
        longest_frame: attached.longest_frame,
        link: u32::from(client.client.link() == Link::Up),
        mac: attached.mac,
        promiscuous: u8::from(client.client.is_promiscuous()),
        reserved: [0; 5],
        network,
    };
    // SAFETY: the caller says that there is room for `size` bytes.
    let written = unsafe { write_sized(info, size, size_of::<Info>(), known) };
    if written { 0 } else { Status::Argument as c_int }
}

/// Asks for another MAC address, six bytes at `mac`, which the client has when this returns, and after a reconnection: what is for the
/// old one is its no longer, and it may not send from that where it may send from its own alone. Waits for the daemon for no longer than
/// the client's patience; while the daemon is gone, it is asked when it is back. Any thread.
///
/// Returns 0, `CONIC_ERROR_ARGUMENT` if one is NULL, `CONIC_ERROR_REFUSED` if another client of the network has the address or it is that
/// of no single station, or `CONIC_ERROR_PEER`; the client has its old one then. `CONIC_ERROR_TIMEOUT` if the daemon did not answer in time:
/// it may still give the address, which the client has as soon as that answer comes; `conic_get_info` says which it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_set_mac(client: *const Client, mac: *const u8) -> c_int {
    // SAFETY: as the caller says, also below.
    let Some(client) = (unsafe { client.as_ref() }) else { return Status::Argument as c_int };
    // SAFETY: bytes are always aligned.
    let Some(&mac) = (unsafe { mac.cast::<[u8; 6]>().as_ref() }) else { return Status::Argument as c_int };
    match client.client.set_mac(mac) {
        Ok(()) => 0,
        Err(error) => Status::from(&error) as c_int,
    }
}

/// Asks for frames for stations that nobody is known to have, of the client's VLAN (`on` is 1), or for none of them (0), which is so when
/// this returns, and after a reconnection if the NIC grants it then. A client that may send from other addresses than its own gets them
/// anyway. Waits for the daemon for no longer than the client's patience; while the daemon is gone, it is asked when it is back. Any
/// thread.
///
/// Returns 0, `CONIC_ERROR_ARGUMENT` if `client` is NULL or `on` is neither, `CONIC_ERROR_REFUSED` if the NIC's configuration does not let
/// this client have them, `CONIC_ERROR_TIMEOUT` if the daemon did not answer in time, or `CONIC_ERROR_PEER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_set_promiscuous(client: *const Client, on: c_int) -> c_int {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { client.as_ref() }) else { return Status::Argument as c_int };
    if !(0..=1).contains(&on) {
        return Status::Argument as c_int;
    }
    match client.client.set_promiscuous(on == 1) {
        Ok(()) => 0,
        Err(error) => Status::from(&error) as c_int,
    }
}

/// Why the daemon detached the client last, if it said so, or why the last attempt to attach again failed at a daemon that was there,
/// put into `text`, which has room for `text_size` bytes. Any thread.
///
/// Returns 1 if it said so, 0 (and an empty text) if it did not, or `CONIC_ERROR_ARGUMENT` if `client` or `text` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_detached(client: *const Client, text: *mut c_char, text_size: usize) -> c_int {
    // SAFETY: as the caller says.
    let Some(client) = (unsafe { client.as_ref() }) else { return Status::Argument as c_int };
    if text.is_null() {
        return Status::Argument as c_int;
    }
    let refused = client.client.detached();
    let reason = refused.as_ref().map(ToString::to_string).unwrap_or_default();
    // SAFETY: the caller says that there is room.
    unsafe { put_text(text, text_size, &reason) };
    c_int::from(refused.is_some())
}
