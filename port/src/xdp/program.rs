//! The program in the kernel that hands packets to the sockets: five instructions, loaded by the system call itself.
//!
//! `return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`: a packet of a queue that has a socket goes to it,
//! any other to the kernel's network stack. With `forward=kernel` more stand before them (`forward.rs`). The link on the interface goes
//! when its descriptor does, so a process that dies leaves nothing behind.
//!
//! Sources: Linux, `linux/bpf.h`, Documentation/bpf/map_xskmap.rst; RFC 9669 (the instructions).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::assembly::{Assembly, Instruction, Register, Sum};
use super::bpf::{self, Map, MapKind};
use super::forward::{self, Queues, TABLES, Tables};

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

/// What a port's program does beside handing packets to sockets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forward {
    /// Frames whose checksums are begun are left to the sockets.
    pub(super) leaves_begun_checksums: bool,
}

/// The program on an interface; it goes when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    sockets: Map<4, 4>,
    /// As long as it is there the program stays.
    link: OwnedFd,
    pub(super) attachment: Attachment,
    /// What it looks into where it forwards frames itself.
    pub(super) tables: Option<Tables>,
}

impl Program {
    /// Loads the program and attaches it, in the driver where that can.
    pub(super) fn attach(
        interface: u32,
        queues: Queues,
        generic: bool,
        forward: Option<Forward>,
    ) -> io::Result<Program> {
        let sockets = Map::create(MapKind::Sockets, queues.first + queues.count, "conic_sockets")?;
        let tables = forward.map(|_| Tables::create()).transpose()?;
        let instructions = match (&tables, forward) {
            (Some(tables), Some(Forward { leaves_begun_checksums })) => {
                forward::instructions(sockets.as_fd(), tables, queues, leaves_begun_checksums)
            }
            _ => instructions(sockets.as_fd()),
        };
        let program = bpf::load(&instructions, "conic_sockets")?;
        let link = |attachment: Attachment| bpf::link(program.as_fd(), interface, attachment.flags());
        let native =
            if generic { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) } else { link(Attachment::Native) };
        let (link, attachment) = match native {
            Ok(link) => (link, Attachment::Native),
            // Another program is there: the generic hook would only hide that.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
            Err(_) => (link(Attachment::Generic)?, Attachment::Generic),
        };
        Ok(Program { sockets, link, attachment, tables })
    }

    /// A program that another process has attached, by its map and its link, and by its tables where it has some: what they knew is
    /// known no more.
    pub(super) fn of_descriptors(
        [sockets, link]: [OwnedFd; 2],
        tables: Option<[OwnedFd; TABLES]>,
        attachment: Attachment,
    ) -> io::Result<Program> {
        let tables = tables.map(Tables::of_descriptors).transpose()?;
        Ok(Program { sockets: Map::of_descriptor(sockets), link, attachment, tables })
    }

    /// Its map and its link, and its tables where it has some, for another process.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let tables = self.tables.iter().flat_map(Tables::descriptors);
        [self.sockets.as_fd(), self.link.as_fd()].into_iter().chain(tables)
    }

    /// From now on packets of a queue go to a socket, which must be bound.
    pub(super) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.update(queue.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes())
    }
}

fn instructions(sockets: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut program = Assembly::default();
    program.compute(Sum::Move, Register::R6, Register::R1);
    forward::to_the_socket(&mut program, sockets);
    program.finish()
}
