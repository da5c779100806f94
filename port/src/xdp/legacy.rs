//! A socket goes on in another process: what has come waits in its rings, and what is under way stays accounted for.
//!
//! | in order | |
//! |---|---|
//! | descriptors | the socket, its memory, the program's map and its link; with `forward=kernel` its tables (`forward.rs`) |
//! | words | whether the program is in the network stack; whether what is to be sent waits for a call; whether the rest of a packet is to be let pass; bytes of a frame; where each frame is |
//!
//! Where the rings stand is read from the rings: whoever stops has shown and given back everything.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use conic_native::Mapping;

use super::frames::Frames;
use super::kernel::Socket;
use super::program::{Attachment, Program};
use super::{ForwardMode, XdpError, XdpOptions, XdpProblem, XdpSocket};
use crate::legacy::{Heir, broken};
use crate::{Legacy, PortError, netdevice};

impl XdpSocket {
    /// Stops here.
    pub(super) fn pass_on(&mut self) -> io::Result<Legacy> {
        // What the kernel does not take now stays in the ring, for whoever goes on.
        let _ = self.kick();
        self.reap();
        self.rings.receive.release();
        self.refill();
        let generic = self.program.attachment == Attachment::Generic;
        // The kernel shows packets whole. Should it not, what has been gathered of one is not passed, and it is let pass.
        let spoilt = self.spoilt || !self.gathered.is_empty();
        let mut words = vec![generic.into(), self.unsent.into(), spoilt.into(), self.frames.frame_bytes() as u64];
        words.extend(self.frames.places());
        let descriptors = [self.socket.as_fd(), self.memory.as_fd()].into_iter().chain(self.program.descriptors());
        let descriptors = descriptors.map(|one| one.try_clone_to_owned()).collect::<io::Result<_>>()?;
        Ok(Legacy { words, descriptors, ..Legacy::default() })
    }

    /// Goes on with the sockets of another process, which had the same options.
    ///
    /// # Errors
    /// What was given is not of such sockets, or the kernel does not map the rings of a bound socket.
    pub fn inherit(options: &XdpOptions, legacies: Vec<Legacy>) -> Result<Vec<XdpSocket>, PortError> {
        let failed = |queue: u32, error| {
            let problem = XdpProblem::of("going on with another process' socket", error);
            PortError::from(XdpError { interface: options.interface.clone(), queue, problem })
        };
        if legacies.len() != options.queues {
            return Err(failed(options.queue, broken()));
        }
        let mut program = None;
        let queues = legacies.into_iter().zip(options.queue..);
        let inherit = |(legacy, queue)| {
            XdpSocket::of_heir(options, Heir::of(legacy), queue, &mut program).map_err(|error| failed(queue, error))
        };
        queues.map(inherit).collect()
    }

    fn of_heir(
        options: &XdpOptions,
        mut heir: Heir,
        queue: u32,
        program: &mut Option<Arc<Program>>,
    ) -> io::Result<XdpSocket> {
        let [socket, memory, map, link] =
            [heir.descriptor()?, heir.descriptor()?, heir.descriptor()?, heir.descriptor()?];
        let [generic, unsent, spoilt] =
            [heir.number::<u8>()? == 1, heir.number::<u8>()? == 1, heir.number::<u8>()? == 1];
        let attachment = if generic { Attachment::Generic } else { Attachment::Native };
        let tables = match options.forward {
            ForwardMode::User => None,
            ForwardMode::Kernel => {
                Some([heir.descriptor()?, heir.descriptor()?, heir.descriptor()?, heir.descriptor()?])
            }
        };
        // One program serves all queues; the others' copies of its descriptors are closed.
        let program = match program {
            Some(program) => program,
            None => program.insert(Arc::new(Program::of_descriptors([map, link], tables, attachment)?)),
        };
        let socket = Socket::of_descriptor(socket);
        let frame_bytes = heir.number()?;
        let frames = frames(options, frame_bytes, &memory, heir.rest())?;
        let rings = socket.map_rings(options.frames as u32)?;
        let index = netdevice::index(&options.interface)?;
        let mtu = netdevice::mtu(&options.interface)?;
        let asks = netdevice::inquiry()?;
        let bound = super::Bound { socket, asks, rings, frames, memory, bind_retries: 0 };
        let port = XdpSocket::of(options, (index, queue), mtu, Arc::clone(program), bound);
        Ok(XdpSocket { unsent, spoilt, ..port })
    }
}

/// The memory of a socket, and who has which frame of it.
fn frames(options: &XdpOptions, frame_bytes: usize, memory: &OwnedFd, places: &[u64]) -> io::Result<Frames> {
    if ![2048, 4096].contains(&frame_bytes) {
        return Err(broken());
    }
    let mapping = Mapping::of(memory.as_fd(), 2 * options.frames * frame_bytes, 0)?;
    Frames::at(mapping, frame_bytes, places).ok_or_else(broken)
}
