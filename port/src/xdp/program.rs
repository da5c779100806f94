//! The program in the kernel that hands packets to the sockets: five instructions, loaded by the system call itself.
//!
//! `return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`: a packet of a queue that has a socket goes to it,
//! any other to the kernel's network stack. The link on the interface goes when its descriptor does, so a process that dies
//! leaves nothing behind.
//!
//! Sources: Linux, `linux/bpf.h`, Documentation/bpf/map_xskmap.rst; RFC 9669 (the instructions).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: i32 = 0;
const MAP_UPDATE: i32 = 2;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

/// `BPF_MAP_TYPE_XSKMAP`.
const SOCKET_MAP: u32 = 17;
/// `BPF_PROG_TYPE_XDP`.
const XDP: u32 = 6;
/// `BPF_XDP`, where a program is attached.
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program bears packets of several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// How often a call that signals end is tried again.
const DISTURBED_AT_MOST: u32 = 100;

/// How the program is attached to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attachment {
    /// In the driver.
    Native,
    /// In the kernel's network stack, for drivers that cannot.
    Generic,
}

impl Attachment {
    fn flags(self) -> u32 {
        match self {
            Attachment::Native => 1 << 2,
            Attachment::Generic => 1 << 1,
        }
    }
}

/// The program on an interface; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    map: OwnedFd,
    /// As long as it is there the program stays.
    link: OwnedFd,
    pub(super) attachment: Attachment,
}

impl Program {
    /// Loads the program and attaches it, in the driver where that can.
    pub(super) fn attach(interface: u32, queues: u32, generic: bool) -> io::Result<Program> {
        let map = create_map(queues)?;
        let program = load(map.as_fd())?;
        let native = if generic {
            Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
        } else {
            link(program.as_fd(), interface, Attachment::Native)
        };
        let (link, attachment) = match native {
            Ok(link) => (link, Attachment::Native),
            // Another program is there: the generic hook would only hide that.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            Err(_) => (link(program.as_fd(), interface, Attachment::Generic)?, Attachment::Generic),
        };
        Ok(Program { map, link, attachment })
    }

    /// A program that another process has attached, by its map and its link.
    pub(super) fn of_descriptors(map: OwnedFd, link: OwnedFd, attachment: Attachment) -> Program {
        Program { map, link, attachment }
    }

    /// Its map and its link, for another process.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.map.as_fd(), self.link.as_fd()]
    }

    /// From now on packets of a queue go to a socket, which must be bound.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let update = Update {
            map: self.map.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: key and value are integers of the map's sizes that outlive the call.
        unsafe { bpf(MAP_UPDATE, &update) }.map(|_| ())
    }
}

/// A call of `bpf`; what it gives is not negative.
///
/// # Safety
///
/// The attributes are those of the command, and what they point to outlives the call.
unsafe fn bpf<T>(command: i32, attributes: &T) -> io::Result<RawFd> {
    let size = size_of::<T>();
    for attempt in 0.. {
        // SAFETY: the attributes are read, `size` bytes of them; the rest is the caller's.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
        if result >= 0 {
            return Ok(result as RawFd);
        }
        let error = io::Error::last_os_error();
        // A signal ends the look at a program with "again", and other things as everywhere.
        let disturbed = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
        if !disturbed || attempt == DISTURBED_AT_MOST {
            return Err(error);
        }
    }
    unreachable!("an attempt is the last")
}

/// The descriptor that a call of `bpf` has made.
///
/// # Safety
///
/// As for [`bpf`], and the command makes a descriptor.
unsafe fn make<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's; the descriptor was just made and nothing else owns it. The kernel closes it on exec.
    unsafe { bpf(command, attributes).map(|descriptor| OwnedFd::from_raw_fd(descriptor)) }
}

fn create_map(entries: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        kind: u32,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
        flags: u32,
        inner: u32,
        node: u32,
        name: [u8; 16],
    }
    let create =
        Create { kind: SOCKET_MAP, key_bytes: 4, value_bytes: 4, entries, flags: 0, inner: 0, node: 0, name: name() };
    // SAFETY: integers alone.
    unsafe { make(MAP_CREATE, &create) }
}

fn name() -> [u8; 16] {
    *b"conic_sockets\0\0\0"
}

/// An instruction: operation, registers (destination in the low half), offset, constant.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    operation: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

fn instructions(map: RawFd) -> [Instruction; 6] {
    let one = |operation, registers, offset, constant| Instruction { operation, registers, offset, constant };
    const RX_QUEUE_INDEX: i16 = 16;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        // r2 = context->rx_queue_index
        one(0x61, 0x12, RX_QUEUE_INDEX, 0),
        // r1 = the map: 64 bits in two instructions, the source register saying that it is a descriptor
        one(0x18, 0x11, 0, map),
        one(0, 0, 0, 0),
        // r3 = XDP_PASS
        one(0xb7, 0x03, 0, XDP_PASS),
        // r0 = bpf_redirect_map(r1, r2, r3)
        one(0x85, 0, 0, REDIRECT_MAP),
        // return r0
        one(0x95, 0, 0, 0),
    ]
}

fn load(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        licence: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let instructions = instructions(map.as_raw_fd());
    let load = Load {
        kind: XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        licence: c"BSD".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGMENTS,
        name: name(),
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: the instructions and the text outlive the call.
    match unsafe { make(PROGRAM_LOAD, &load) } {
        // Kernels before 5.18 know nothing of packets of several buffers.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: as above.
            unsafe { make(PROGRAM_LOAD, &Load { flags: 0, ..load }) }
        }
        loaded => loaded,
    }
}

fn link(program: BorrowedFd<'_>, interface: u32, attachment: Attachment) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Link {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    let link = Link { program, interface, attach_type: ATTACH_XDP, flags: attachment.flags() };
    // SAFETY: integers alone.
    unsafe { make(LINK_CREATE, &link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_eight_bytes_as_the_kernel_reads_them() {
        assert_eq!(size_of::<Instruction>(), 8);
        let [load, map, ..] = instructions(7);
        assert_eq!((load.operation, load.registers, load.offset), (0x61, 0x12, 16));
        assert_eq!((map.operation, map.registers, map.constant), (0x18, 0x11, 7));
    }
}
