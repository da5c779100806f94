//! An application on the service: it meets it in context queues and buffers alone, and answers each request of 64 bytes with the same
//! bytes, as TAS's echo server does (its `micro_rpc`; CC-NIC section 5.7).

use conic_fabric::Core;
use conic_interface::fastforward::Receiver;

use crate::REQUEST_BYTES;
use crate::context::{Notice, Outbox, receive};
use crate::service::{Service, read_parts, write_parts};

/// Lines of notices that are taken from a fast-path thread at once.
const LINES_OF_NOTICES: usize = 8;
/// Requests of a connection whose lines are asked for before any is read.
const ASKED_AHEAD: u32 = 4;

/// Cycles that an application works for a notice, counted and scaled as [`conic_interface::work`] says: a guess from the code here.
const WORK_NOTICE: u32 = 8;
/// The same for a request, sockets left out: to find it, and to answer it.
const WORK_REQUEST: u32 = 12;

/// What an application knows of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Connected {
    /// The fast-path thread that tells of it.
    thread: u32,
    read_at: u32,
    readable: u32,
    write_at: u32,
    writable: u32,
    /// Whether it is among those that are to be served.
    is_told: bool,
}

/// An application thread.
#[derive(Debug)]
pub struct Application<C> {
    core: C,
    service: Service,
    /// By fast-path thread.
    inboxes: Vec<Receiver<C>>,
    outboxes: Vec<Outbox<C>>,
    /// By connection.
    connected: Vec<Connected>,
    told: Vec<u32>,
    answered: u64,
    refused: u64,
}

impl<C: Core + Clone> Application<C> {
    /// The application thread of this number. Nothing has come or gone on its connections.
    pub fn new(core: C, service: &Service, number: u32) -> Application<C> {
        let shape = service.shape();
        let contexts: Vec<_> = (0..shape.threads).map(|thread| service.context(thread, number)).collect();
        Application {
            inboxes: contexts.iter().map(|context| context.up.receiver(core.clone())).collect(),
            outboxes: contexts.iter().map(|of| Outbox::new(of.down.sender(core.clone()), shape.flows)).collect(),
            connected: vec![Connected { writable: shape.buffers[1], ..Connected::default() }; shape.flows as usize],
            told: Vec::new(),
            answered: 0,
            refused: 0,
            service: service.clone(),
            core,
        }
    }

    /// Requests that it answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Notices that could not be: none, of a fast path that does as it says.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes what each fast-path thread tells, answers what is whole, and tells them; returns how much there was to do, and spins where
    /// there was nothing.
    pub fn step(&mut self) -> usize {
        let mut moved = 0;
        for thread in 0..self.inboxes.len() {
            for _ in 0..LINES_OF_NOTICES {
                match self.take_line(thread) {
                    0 => break,
                    count => moved += count,
                }
            }
        }
        // Lines of requests were written by other cores: all are asked for before one is read.
        for &flow in &self.told {
            let Connected { read_at, readable, .. } = self.connected[flow as usize];
            let requests = (readable / REQUEST_BYTES).min(ASKED_AHEAD);
            for request in 0..requests {
                let [(start, _), _] =
                    self.service.receive_parts(flow, read_at.wrapping_add(request * REQUEST_BYTES), 1);
                self.core.prefetch_read(start.line());
            }
        }
        for index in 0..self.told.len() {
            let flow = self.told[index];
            self.connected[flow as usize].is_told = false;
            self.answer(flow);
        }
        self.told.clear();
        moved += self.outboxes.iter_mut().map(Outbox::flush).sum::<usize>();
        if moved == 0 {
            self.core.spin();
        }
        moved
    }

    fn take_line(&mut self, thread: usize) -> usize {
        let Application { core, service, inboxes, connected, told, refused, .. } = self;
        let [receive_bytes, transmit_bytes] = service.shape().buffers;
        receive(&mut inboxes[thread], |notice| {
            core.work(WORK_NOTICE);
            let known = connected.get_mut(notice.flow as usize);
            let Some(connection) = known.filter(|known| {
                known.readable + notice.received <= receive_bytes && known.writable + notice.transmit <= transmit_bytes
            }) else {
                *refused += 1;
                return;
            };
            connection.thread = thread as u32;
            connection.readable += notice.received;
            connection.writable += notice.transmit;
            if !connection.is_told {
                connection.is_told = true;
                told.push(notice.flow);
            }
        })
    }

    /// Answers what requests of a connection are whole, as far as there is room.
    fn answer(&mut self, flow: u32) {
        let connection = &mut self.connected[flow as usize];
        let requests = connection.readable.min(connection.writable) / REQUEST_BYTES;
        let mut request = [0; REQUEST_BYTES as usize];
        for _ in 0..requests {
            let from = self.service.receive_parts(flow, connection.read_at, REQUEST_BYTES);
            let to = self.service.transmit_parts(flow, connection.write_at, REQUEST_BYTES);
            read_parts(&self.core, from, &mut request);
            self.core.work(WORK_REQUEST);
            write_parts(&self.core, to, &request);
            connection.read_at = connection.read_at.wrapping_add(REQUEST_BYTES);
            connection.write_at = connection.write_at.wrapping_add(REQUEST_BYTES);
        }
        let bytes = requests * REQUEST_BYTES;
        connection.readable -= bytes;
        connection.writable -= bytes;
        self.answered += u64::from(requests);
        self.outboxes[connection.thread as usize].add(Notice { flow, received: bytes, transmit: bytes });
    }
}

#[cfg(test)]
mod tests {
    use conic_fabric::{Home, Layout};
    use conic_native::{Memory, NativeCore, Pages};

    use super::*;
    use crate::service::Shape;

    /// Positions are 32 bits: a connection of four gigabytes has gone around them.
    #[test]
    fn requests_are_found_and_answered_where_positions_begin_anew() {
        let shape = Shape { flows: 1, buffers: [1024; 2], notices: 16, ..Shape::default() };
        let mut layout = Layout::new();
        let service = Service::place(&mut layout, shape, Home::Host).expect("a service that can be");
        let memory = Memory::create(&layout, Pages::Plain).expect("a small region");
        let core = NativeCore::new(&memory);
        let mut application = Application::new(core, &service, 0);
        let (mut fast_path, mut told) =
            (service.context(0, 0).up.sender(core), service.context(0, 0).down.receiver(core));
        // Two requests before that, and two behind.
        let start = 0_u32.wrapping_sub(2 * REQUEST_BYTES);
        let asked: Vec<u8> = (0..4 * REQUEST_BYTES).map(|byte| byte as u8).collect();
        (application.connected[0].read_at, application.connected[0].write_at) = (start, start);
        write_parts(&core, service.receive_parts(0, start, 4 * REQUEST_BYTES), &asked);
        let came = Notice { flow: 0, received: 4 * REQUEST_BYTES, transmit: 0 }.word();
        assert!(fast_path.try_send(&[came, 0, 0, 0, 0, 0, 0]));
        assert!(application.step() > 0);
        assert_eq!((application.answered(), application.refused()), (4, 0));
        let mut answered = vec![0; asked.len()];
        read_parts(&core, service.transmit_parts(0, start, 4 * REQUEST_BYTES), &mut answered);
        assert_eq!(answered, asked);
        let line = told.try_receive().expect("a line");
        let both = Notice { flow: 0, received: 4 * REQUEST_BYTES, transmit: 4 * REQUEST_BYTES };
        assert_eq!(Notice::of_word(line[0]), Some(both));
        assert_eq!(application.connected[0].read_at, 2 * REQUEST_BYTES);
    }
}
