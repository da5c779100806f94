//! A service on ordinary memory, and everybody by turns on one thread.
#![allow(dead_code, reason = "not every test binary uses all of it")]

mod faults;
mod timed;

pub use faults::{Faults, Faulty};
pub use timed::TimedCore;

use conic_fabric::{Core, Home, Layout, PlayedByCore};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::{ccnic, ring};
use conic_native::{Memory, NativeCore, Pages};
use conic_tcp::segment::{End, HEADER_BYTES, Segment};
use conic_tcp::{Acknowledge, Clients, Connection, FastPath, Service, Shape};

pub const SMALL: Shape = Shape { flows: 10, threads: 1, applications: 1, buffers: [1024; 2], notices: 16 };

/// Which interface the segments come over.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    CcNic(ccnic::Features),
    /// With so many descriptors.
    Ring(u64),
}

enum Queues {
    CcNic(Box<ccnic::Map>),
    Ring(Vec<ring::QueuePair>),
}

/// A service whose threads have a queue pair each.
pub struct Ground {
    memory: Memory,
    queues: Queues,
    pub service: Service,
    pub connections: Vec<Connection>,
}

/// The connections of a shape: the n-th is of thread n modulo their number.
pub fn connections(shape: Shape, sequences: [u32; 2]) -> Vec<Connection> {
    let local = End { station: [2, 0, 0, 0, 0, 1], address: 0x0a00_0001, port: 7 };
    let connection = |flow: u32| Connection {
        local,
        peer: End { station: [2, 0, 0, 0, 0, 2], address: 0x0a00_0002 + flow % 3, port: 1024 + flow as u16 },
        received: sequences[0].wrapping_add(1000 * flow),
        sent: sequences[1].wrapping_sub(777 * flow),
        window: Clients::window_bytes(),
        thread: flow % shape.threads,
        application: flow / shape.threads % shape.applications,
    };
    (0..shape.flows).map(connection).collect()
}

/// The segment of a connection's peer with so many bytes from its first on.
pub fn segment(connection: &Connection, payload_bytes: u16) -> Segment {
    Segment {
        from: connection.peer,
        to: connection.local,
        sequence: connection.received,
        acknowledged: connection.sent,
        window: connection.window,
        payload_at: HEADER_BYTES,
        payload_bytes,
    }
}

impl Ground {
    pub fn new(over: Over, shape: Shape, sequences: [u32; 2]) -> Ground {
        let (mut layout, queues) = match over {
            Over::CcNic(features) => {
                let buffers = if features.small_buffers { [1024, 512, 0] } else { [0, 1024, 0] };
                let geometry = ccnic::Geometry { queues: shape.threads, descriptors: 64, buffers, object_bytes: 0 };
                let map = ccnic::Map::new(geometry, features).expect("a region that can be");
                (map.layout.clone(), Queues::CcNic(Box::new(map)))
            }
            Over::Ring(descriptors) => {
                let shape_of_one = ring::Shape::for_packets(1536).expect("frames fit");
                let shape_of_one = ring::Shape { descriptors, buffers: 3 * descriptors + 128, ..shape_of_one };
                let mut layout = Layout::new();
                let place = |_| shape_of_one.place(&mut layout).expect("a queue pair");
                let pairs = (0..shape.threads).map(place).collect();
                (layout, Queues::Ring(pairs))
            }
        };
        let service = Service::place(&mut layout, shape, Home::Host).expect("a service that can be");
        let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
        let core = NativeCore::new(&memory);
        if let Queues::CcNic(map) = &queues {
            map.pool.fill(&core);
        }
        let connections = connections(shape, sequences);
        for (flow, connection) in (0..).zip(&connections) {
            assert!(service.install(&core, flow, connection), "connection {flow}");
        }
        Ground { memory, queues, service, connections }
    }

    pub fn core(&self) -> NativeCore<'_> {
        NativeCore::new(&self.memory)
    }

    pub fn host(&self, queue: usize) -> Box<dyn HostQueue<Core = NativeCore<'_>> + '_> {
        self.host_of(self.core(), queue)
    }

    /// A queue's host half on a core of the caller's, which is one over this memory.
    pub fn host_of<'a, C: Core + Clone + 'a>(&'a self, core: C, queue: usize) -> Box<dyn HostQueue<Core = C> + 'a> {
        match &self.queues {
            Queues::CcNic(map) => Box::new(ccnic::host_queue(core, map, queue)),
            Queues::Ring(pairs) => Box::new(pairs[queue].host(core)),
        }
    }

    pub fn nic(&self, queue: usize) -> Box<dyn NicQueue + '_> {
        match &self.queues {
            Queues::CcNic(map) => Box::new(ccnic::nic_queue(self.core(), map, queue)),
            Queues::Ring(pairs) => {
                let pair = &pairs[queue];
                Box::new(ring::Wire::new(pair.nic(PlayedByCore(self.core())), pair.shape()))
            }
        }
    }

    pub fn fast_path(
        &self,
        thread: u32,
        acknowledge: Acknowledge,
    ) -> FastPath<Box<dyn HostQueue<Core = NativeCore<'_>> + '_>> {
        FastPath::new(vec![self.host(thread as usize)], &self.service, thread, acknowledge)
    }

    /// The connections whose segments come from a thread's queue.
    pub fn connections_of(&self, thread: u32) -> Vec<Connection> {
        self.connections.iter().copied().filter(|connection| connection.thread == thread).collect()
    }
}
