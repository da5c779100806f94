//! What a client wants of the daemon.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::time::Duration;

use conic_client::{Name, Offloads};
use conic_interface::ccnic::Geometry;

use crate::memory::{Plain, read_sized, text, write_sized};
use crate::status::Status;

/// What a client wants of the daemon. Always begin with `conic_options_init`, then change what is to be different: programs
/// that do so go on working with later versions of the library, whose structure may be longer.
///
/// The texts are the caller's, and are not looked at any more when `conic_attach` returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of this structure, as the program knows it; set by `conic_options_init`.
    pub size: usize,
    /// The daemon's socket; NULL is `/run/conic/nic.sock`.
    pub socket: *const c_char,
    /// What the program calls itself, for people who look at the daemon: up to 32 letters, digits and `-_.:`; may be NULL.
    pub name: *const c_char,
    /// The network to attach to; NULL is the daemon's first.
    pub network: *const c_char,
    /// Queue pairs, at least 1.
    pub queues: u32,
    /// Descriptors of each ring, a power of two of at least 4.
    pub descriptors: u32,
    /// Buffers of 128 bytes, shared by the queues: zero or a power of two.
    pub small_buffers: u32,
    /// Buffers of 4096 bytes.
    pub large_buffers: u32,
    /// Buffers of 16384 bytes, for frames of up to 9600 bytes.
    pub jumbo_buffers: u32,
    /// How long the daemon may take for each step of attaching, in milliseconds.
    pub patience_ms: u32,
    /// The MAC address, if `has_mac` is 1.
    pub mac: [u8; 6],
    /// 1: the client wants the address in `mac`; 0: the daemon chooses one.
    pub has_mac: u8,
    /// 1: attach again when the daemon was gone and is back; 0: stay down.
    pub reconnect: u8,
    /// What the program makes of `metadata`: 0, or `CONIC_OFFLOAD_REQUESTS` and others with it.
    pub offloads: u32,
    /// 1: the client wants frames for stations that nobody is known to have, and not attach without; the NIC's configuration says whether it
    /// may. 0: it does not.
    pub promiscuous: u8,
    /// Zeroes.
    pub reserved: [u8; 3],
}

/// In `offloads`: what packets' metadata asks for is done (checksums, segmentation, VLAN tags), and received packets have the hash
/// of their flow.
pub const CONIC_OFFLOAD_REQUESTS: u32 = 1;
/// In `offloads`: received packets have a word on their checksums, which costs the NIC a look at each byte.
pub const CONIC_OFFLOAD_VERIFY: u32 = 2;
/// In `offloads`: VLAN tags of type 0x8100 are taken out of received packets and stand in their metadata.
pub const CONIC_OFFLOAD_STRIP: u32 = 4;
/// In `offloads`: packets may be received whose checksum is only begun, and packets that stand for several, in chains of up to 4
/// parts and 64 KiB.
pub const CONIC_OFFLOAD_UNFINISHED: u32 = 8;

/// In `offloads`, with `CONIC_OFFLOAD_UNFINISHED`: TCP frames of one flow that follow each other are received as one packet that stands
/// for them, which costs the NIC a look at each byte.
pub const CONIC_OFFLOAD_JOIN: u32 = 16;

const OFFLOADS: u32 =
    CONIC_OFFLOAD_REQUESTS | CONIC_OFFLOAD_VERIFY | CONIC_OFFLOAD_STRIP | CONIC_OFFLOAD_UNFINISHED | CONIC_OFFLOAD_JOIN;

/// Bytes of the structure as it was at first, and as programs of that time say.
const FIRST: usize = 64;

// SAFETY: integers and pointers; 8 + 3 * 8 + 6 * 4 + 8 + 4 + 4 bytes leave no padding.
unsafe impl Plain for Options {}

const _: () = assert!(size_of::<Options>() == FIRST + 8);

const SOCKET: &str = "/run/conic/nic.sock";

impl Options {
    fn new() -> Options {
        let defaults = conic_client::Options::default();
        let Geometry { queues, descriptors, buffers: [small, large, jumbo], .. } = defaults.geometry;
        Options {
            size: size_of::<Options>(),
            socket: std::ptr::null(),
            name: std::ptr::null(),
            network: std::ptr::null(),
            queues,
            descriptors: descriptors as u32,
            small_buffers: small as u32,
            large_buffers: large as u32,
            jumbo_buffers: jumbo as u32,
            patience_ms: defaults.patience.as_millis() as u32,
            mac: [0; 6],
            has_mac: 0,
            reconnect: u8::from(defaults.reconnect),
            offloads: 0,
            promiscuous: 0,
            reserved: [0; 3],
        }
    }

    /// The program's options; the defaults for NULL.
    ///
    /// # Safety
    ///
    /// `options` is NULL, or aligned with as many bytes to read as it says.
    pub(crate) unsafe fn read(options: *const Options) -> Result<Options, String> {
        if options.is_null() {
            return Ok(Options::new());
        }
        if !options.is_aligned() {
            return Err("the options are not aligned".to_owned());
        }
        // SAFETY: the caller says so; the size is what it begins with.
        let size = unsafe { options.cast::<usize>().read() };
        // SAFETY: the caller says that as many bytes can be read.
        let read = unsafe { read_sized(options, size, FIRST, Options::new()) };
        read.ok_or_else(|| {
            format!(
                "the options say that they have {size} bytes, or set what this library does not know: begin with \
                 conic_options_init, and link to the library that the header belongs to"
            )
        })
    }

    /// The socket, and what the Rust client is asked.
    ///
    /// # Safety
    ///
    /// Each text is NULL or ends in a zero byte.
    pub(crate) unsafe fn wishes(&self) -> Result<(PathBuf, conic_client::Options), String> {
        // SAFETY: as the caller says, here and below.
        let socket = unsafe { text(self.socket) }.map_err(|()| "the socket's path is no UTF-8".to_owned())?;
        let name = |from, what: &str| {
            // SAFETY: as above.
            let text = unsafe { text(from) }.map_err(|()| format!("{what} is no UTF-8"))?;
            Name::new(text.unwrap_or_default()).map_err(|error| format!("{what}: {error}"))
        };
        let flag = |value: u8, what: &str| match value {
            0 | 1 => Ok(value == 1),
            _ => Err(format!("{what} is 0 or 1 and not {value}")),
        };
        let has_mac = flag(self.has_mac, "has_mac")?;
        let has = |bit| self.offloads & bit == bit;
        let alone = self.offloads != 0 && !has(CONIC_OFFLOAD_REQUESTS)
            || has(CONIC_OFFLOAD_JOIN) && !has(CONIC_OFFLOAD_UNFINISHED);
        if self.offloads & !OFFLOADS != 0 || alone || self.reserved != [0; 3] {
            return Err(format!(
                "offloads are 0, or CONIC_OFFLOAD_REQUESTS and other CONIC_OFFLOAD_ bits, CONIC_OFFLOAD_JOIN with \
                 CONIC_OFFLOAD_UNFINISHED only, and not {:#x}; reserved is 0",
                self.offloads
            ));
        }
        let options = conic_client::Options {
            name: name(self.name, "the client's name")?,
            network: name(self.network, "the network's name")?,
            geometry: Geometry {
                queues: self.queues,
                descriptors: self.descriptors.into(),
                buffers: [self.small_buffers.into(), self.large_buffers.into(), self.jumbo_buffers.into()],
                object_bytes: 0,
            },
            mac: has_mac.then_some(self.mac),
            promiscuous: flag(self.promiscuous, "promiscuous")?,
            offloads: Offloads {
                requests: has(CONIC_OFFLOAD_REQUESTS),
                verify: has(CONIC_OFFLOAD_VERIFY),
                strip: has(CONIC_OFFLOAD_STRIP),
                unfinished: has(CONIC_OFFLOAD_UNFINISHED),
                no_hash: false,
                join: has(CONIC_OFFLOAD_JOIN),
            },
            patience: Duration::from_millis(self.patience_ms.into()),
            reconnect: flag(self.reconnect, "reconnect")?,
            ..conic_client::Options::default()
        };
        Ok((PathBuf::from(socket.unwrap_or(SOCKET)), options))
    }
}

/// Sets `options` to what a client gets that asks for nothing: one queue pair of 1024 descriptors with 2048 small, 1024 large
/// and 64 jumbo buffers on the daemon's first network, a MAC address that the daemon chooses, 5 seconds of patience, and
/// reconnecting. `size` is `sizeof(struct conic_options)`. Any thread.
///
/// Returns 0, or `CONIC_ERROR_ARGUMENT` if `options` is NULL or not aligned, or `size` is less than the structure ever had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conic_options_init(options: *mut Options, size: usize) -> c_int {
    if options.is_null() || !options.is_aligned() {
        return Status::Argument as c_int;
    }
    let defaults = Options { size, ..Options::new() };
    // SAFETY: the caller says that there is room for `size` bytes.
    let written = unsafe { write_sized(options, size, FIRST, defaults) };
    if written { 0 } else { Status::Argument as c_int }
}
