//! Nodes with a network interface: what lies where in each, and the engines of the device.

use conic_fabric::{Address, Core, Home, Layout, RegisterAccess, SynchronisingWords, Time, delegate_core};
use conic_interface::cni::endpoint::Buffers;
use conic_interface::cni::{Device, Endpoint, Kind, MESSAGE_LINES, Message, Place, ReceiveEngine, SendEngine, Way};
use conic_sim::Role;
use conic_sim::bus::{Attachment, BusCore, BusParameters, BusSimulation, EngineShape};

/// An engine of the modelled machine as the interfaces' devices want it.
#[derive(Clone, Copy)]
pub struct Port<'a>(pub BusCore<'a>);

delegate_core!(['a] Port<'a>, self => &self.0);

impl Device for Port<'_> {
    fn next_access(&self, registers: Address) -> Option<RegisterAccess> {
        self.0.next_access(registers)
    }
    fn may_inject(&self, to: u16) -> bool {
        self.0.may_inject(to.into())
    }
    fn next_acknowledgement(&self) -> Option<u16> {
        Some(self.0.take_acknowledgement()? as u16)
    }
    fn inject(&self, message: &Message) {
        self.0.inject(message.peer().into(), message.used());
    }
    fn next_arrival(&self) -> Option<Message> {
        let packet = self.0.take_packet()?;
        let lines: [_; MESSAGE_LINES] = packet.lines;
        Some(Message { lines }.with_peer(packet.from as u16))
    }
}

/// Which nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// The machine.
    pub machine: BusParameters,
    /// Where the interface is.
    pub attachment: Attachment,
    /// Which interface it is.
    pub kind: Kind,
    /// How many nodes.
    pub count: usize,
}

/// Where things lie in each node.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The network interface.
    pub interface: Place,
    /// Messages taken in by the messaging layer.
    pub buffers: Buffers,
    /// The user's memory.
    pub user: Address,
}

/// Buffers for messages that are taken in while others cannot be sent.
const BUFFERS: u64 = 256;

/// When a run of this study has gone wrong: none simulates a second.
const LIMIT: Time = Time::from_nanoseconds(2_000_000_000);

/// The program of one of the nodes' processors.
pub type Program = Box<dyn FnOnce(&BusCore<'_>, Places)>;

impl Nodes {
    /// The nodes with their devices, and where things lie in each; `user_bytes`: how much memory the user has.
    pub fn build(&self, user_bytes: u64) -> (BusSimulation, Places) {
        let mut layout = Layout::new();
        let interface = self.kind.place(self.count as u16, &mut layout);
        let buffers = Buffers::place(&mut layout, BUFFERS);
        let user = layout.add("the user's memory", user_bytes, 64, Home::Host, SynchronisingWords::ALL);
        let places = Places { interface, buffers, user };
        let mut simulation = BusSimulation::new(&self.machine, &layout, self.count, self.attachment);
        simulation.set_limit(LIMIT);
        let fifo = self.machine.device.fifo_messages as usize;
        for node in 0..self.count {
            let Place { send, receive, kind, window } = interface;
            simulation.engine(node, "send engine", &shape(kind, &send), move |core| {
                let mut engine = SendEngine::new(send, window, Port(*core), fifo);
                run(core, || engine.step());
            });
            simulation.engine(node, "receive engine", &shape(kind, &receive), move |core| {
                let mut engine = ReceiveEngine::new(receive, Port(*core), fifo);
                run(core, || engine.step());
            });
        }
        (simulation, places)
    }

    /// Adds a node's processor.
    pub fn processor(
        &self,
        simulation: &mut BusSimulation,
        node: usize,
        role: Role,
        places: Places,
        program: impl FnOnce(&BusCore<'_>, Endpoint<BusCore<'_>>) + 'static,
    ) {
        let (fifo, window) = (self.machine.device.fifo_messages.into(), self.machine.network.window.into());
        simulation.processor(node, &format!("node {node}"), role, move |core| {
            program(core, Endpoint::new(places.interface, *core, fifo, window, places.buffers));
        });
    }
}

fn shape(kind: Kind, way: &Way) -> EngineShape {
    let [from, to] = way.cached;
    EngineShape { blocks: kind.cached_blocks(), lines: from..to, registers: way.watched_registers() }
}

/// Lets an engine run for ever.
fn run(core: &BusCore<'_>, mut step: impl FnMut() -> bool) {
    loop {
        if !step() {
            core.spin();
        }
    }
}
