//! A program behind the NIC chip: on the NIC's socket, or on the other one with overlay threads between (CC-NIC section 5.7).
//!
//! The NIC is behind node 0. Threads that drive it are there; where there is an overlay, the program is on node 1, and so CC-NIC's homes
//! are exchanged: its host is the node that is the NIC in a loopback.

use std::cell::RefCell;
use std::rc::Rc;

use conic_fabric::{Address, Device, Home, LINE_BYTES, Layout, PlayedByCore, SynchronisingWords, Time};
use conic_interface::burst::{HostQueue, NicQueue};
use conic_interface::overlay::Overlay;
use conic_interface::{ccnic, ring};
use conic_load::{FarEnd, Latency, Traffic};
use conic_sim::parameters::NicParameters;
use conic_sim::pcie::chip::Chip;
use conic_sim::{Parameters, Role, SimCore, SimDevice, Simulation};

use super::application::start_of;
use super::loopback::unoptimised_shape;
use super::pcie::{ChipNetwork, ChipQueue, Pair};
use super::unasked::Unasked;
use super::wire::Wire;
use crate::workload::{Interface, Reached};

/// Descriptors of each ring: a packet may take two.
const DESCRIPTORS: u64 = 512;

pub(super) type HostHalf<'a> = Box<dyn HostQueue<Core = &'a SimCore<'a>> + 'a>;
type MakeHost = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> HostHalf<'a>;
type MakeNic = dyn for<'a> Fn(&'a SimCore<'a>, usize) -> Box<dyn NicQueue + 'a>;

/// What a program wants of its queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// How it reaches the NIC.
    pub reached: Reached,
    /// Its threads that have queues.
    pub threads: usize,
    /// Packets of a queue that it may hold at once.
    pub window: u64,
    /// Bytes of the largest packet.
    pub most_bytes: u16,
    /// Bytes of its own objects, which it may send from where they lie.
    pub object_bytes: u64,
    /// The seed of when threads start.
    pub seed: u64,
}

/// What lies between the program and the threads on the NIC's socket.
struct Between {
    host: Rc<MakeHost>,
    nic: Rc<MakeNic>,
    fill: Option<ccnic::Map>,
}

/// A region, and who lies where in it.
pub(super) struct Laid<T> {
    /// The region.
    pub layout: Layout,
    /// What the program placed.
    pub own: T,
    wanted: Wanted,
    between: Option<Between>,
    /// The NIC's own queue pairs.
    pairs: Rc<Vec<Pair>>,
}

/// The NIC of a machine that has one behind PCIe.
pub(super) fn nic_of(machine: &Parameters) -> Result<NicParameters, String> {
    machine.nic.clone().filter(|_| machine.pcie.is_some()).ok_or_else(|| {
        let name = &machine.name;
        format!("{name} has no PCIe link with a NIC behind it: take a platform that has one, such as icx-cx6")
    })
}

impl Wanted {
    /// How many of the NIC's queues there are.
    pub fn queues(&self) -> usize {
        self.reached.queues(self.threads)
    }

    /// The shape of a NIC's own queue pair.
    fn shape(&self) -> Result<ring::Shape, String> {
        let most = u64::from(self.most_bytes);
        Ok(ring::Shape {
            descriptors: DESCRIPTORS,
            buffers: 2 * self.window + 2 * DESCRIPTORS,
            ..ring::Shape::for_packets(most).map_err(|error| error.to_string())?.with_pooled_metadata(most)
        })
    }

    /// A place for the program's objects in a layout, if it has any.
    fn place_objects(&self, layout: &mut Layout) -> (Address, u64) {
        let bytes = self.object_bytes;
        let place =
            |layout: &mut Layout| layout.add("objects", bytes, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
        (if bytes > 0 { place(layout) } else { Address(0) }, bytes)
    }
}

/// Places everything, what the program places with its objects' place among it: what is on the program's node first, where that is not
/// the NIC's.
pub(super) fn lay<T>(
    wanted: Wanted,
    nic: &NicParameters,
    own: impl FnOnce(&mut Layout, (Address, u64)) -> Result<T, String>,
) -> Result<Laid<T>, String> {
    let shape = wanted.shape()?;
    let place = |layout: &mut Layout, count| -> Result<Vec<_>, String> {
        (0..count).map(|_| Pair::place(layout, shape, nic, count)).collect()
    };
    match wanted.reached {
        Reached::Directly => {
            let mut layout = Layout::new();
            let objects = wanted.place_objects(&mut layout);
            let own = own(&mut layout, objects)?;
            let with_objects = |pair: Pair| pair.with_objects(objects.0, objects.1);
            let pairs = Rc::new(place(&mut layout, wanted.threads)?.into_iter().map(with_objects).collect());
            Ok(Laid { layout, own, wanted, between: None, pairs })
        }
        Reached::Overlay { interface, threads } => {
            if threads < wanted.threads {
                return Err(format!(
                    "{} threads that drive queues need an overlay thread each, not {threads}",
                    wanted.threads
                ));
            }
            let (mut layout, between, objects) = match interface {
                Interface::CcNic(features) => over_ccnic(&wanted, features, threads)?,
                Interface::UnoptimisedRing => over_ring(&wanted, threads)?,
                _ => return Err("an overlay is between CC-NIC or the unoptimised ring and the NIC".to_owned()),
            };
            let own = own(&mut layout, objects)?;
            let mut layout = layout.with_homes_exchanged();
            let pairs = Rc::new(place(&mut layout, threads)?);
            Ok(Laid { layout, own, wanted, between: Some(between), pairs })
        }
    }
}

/// A layout, what makes the halves, and where objects may lie.
type Under = (Layout, Between, (Address, u64));

fn over_ccnic(wanted: &Wanted, features: ccnic::Features, threads: usize) -> Result<Under, String> {
    let queues = threads as u64;
    let each = (2 * wanted.window + 1024).next_power_of_two();
    // Without small buffers small packets lie in large ones as well.
    let (small, large) = if features.small_buffers { (each, each / 4) } else { (0, each) };
    let in_rings = if features.shared_pool { 0 } else { 2 * DESCRIPTORS };
    let of = |each: u64| if each == 0 { 0 } else { ((each + in_rings) * queues).next_power_of_two() };
    // Packets of a page fit into large ones.
    let jumbo = if wanted.most_bytes > 4096 { of(wanted.window) } else { 0 };
    let geometry = ccnic::Geometry {
        queues: threads as u32,
        descriptors: DESCRIPTORS,
        buffers: [of(small), of(large), jumbo],
        object_bytes: wanted.object_bytes,
    };
    let map = ccnic::Map::with_metadata(geometry, features).map_err(|error| error.to_string())?;
    let (layout, objects) = (map.layout.clone(), map.objects());
    let shared = Rc::new(map.clone());
    let for_nic = Rc::clone(&shared);
    let between = Between {
        host: Rc::new(move |core, queue| ccnic::host_queue(core, &shared, queue)),
        nic: Rc::new(move |core, queue| ccnic::nic_queue(core, &for_nic, queue)),
        fill: Some(map),
    };
    Ok((layout, between, objects))
}

fn over_ring(wanted: &Wanted, threads: usize) -> Result<Under, String> {
    let shape = ring::Shape {
        descriptors: DESCRIPTORS,
        ..unoptimised_shape(wanted.most_bytes.into(), 2 * wanted.window + 2 * DESCRIPTORS)?
    };
    let mut layout = Layout::new();
    let objects = wanted.place_objects(&mut layout);
    let pairs: Result<Vec<_>, _> = (0..threads).map(|_| shape.place(&mut layout)).collect();
    let with_objects = |pair: ring::QueuePair| pair.with_objects(objects.0, objects.1);
    let pairs = Rc::new(pairs.map_err(|error| error.to_string())?.into_iter().map(with_objects).collect::<Vec<_>>());
    let for_nic = Rc::clone(&pairs);
    let between = Between {
        host: Rc::new(move |core, queue| Box::new(pairs[queue].host(core))),
        nic: Rc::new(move |core, queue| {
            Box::new(ring::Wire::new(for_nic[queue].nic(Unasked(PlayedByCore(core))), shape))
        }),
        fill: None,
    };
    Ok((layout, between, objects))
}

impl<T> Laid<T> {
    /// Fills the pool of buffers, where there is one.
    pub fn fill(&self, simulation: &Simulation) {
        if let Some(map) = self.between.as_ref().and_then(|between| between.fill.as_ref()) {
            map.pool.fill(&simulation.setup());
        }
    }

    /// The node that the program is on.
    pub fn node(&self) -> usize {
        usize::from(self.between.is_some())
    }

    /// Overlay threads.
    pub fn overlay_threads(&self) -> usize {
        if self.between.is_some() { self.wanted.queues() } else { 0 }
    }

    /// Adds a thread of the program that has queues, the `thread`-th: with an overlay its share of them.
    pub fn add_thread(
        &self,
        simulation: &mut Simulation,
        (thread, name): (usize, &str),
        run: impl for<'a> FnOnce(&'a SimCore<'a>, Vec<HostHalf<'a>>) + 'static,
    ) {
        let (pairs, threads, queues) = (Rc::clone(&self.pairs), self.wanted.threads, self.wanted.queues());
        let host = self.between.as_ref().map(|between| Rc::clone(&between.host));
        let start = start_of(self.wanted.seed, thread as u64);
        let agent = simulation.core(&format!("{name} {thread}"), self.node(), Role::Service, start, move |core| {
            let make = |queue: usize| match &host {
                None => pairs[queue].host(core),
                Some(host) => host(core, queue),
            };
            let queues = (thread..queues).step_by(threads).map(make).collect();
            run(core, queues);
        });
        simulation.machine().borrow_mut().set_prefetchers(agent, true);
    }

    /// Adds the overlay's threads, where there is one; each does `begins` first, with its number.
    pub fn add_overlay(
        &self,
        simulation: &mut Simulation,
        begins: impl for<'a> Fn(&'a SimCore<'a>, usize) + Clone + 'static,
    ) {
        let Some(between) = &self.between else { return };
        for thread in 0..self.wanted.queues() {
            let (pairs, nic, begins) = (Rc::clone(&self.pairs), Rc::clone(&between.nic), begins.clone());
            let (start, most) =
                (start_of(self.wanted.seed, (self.wanted.threads + thread) as u64), self.wanted.most_bytes);
            let agent = simulation.core(&format!("overlay {thread}"), 0, Role::Service, start, move |core| {
                let mut overlay = Overlay::new(nic(core, thread), pairs[thread].host(core), most);
                begins(core, thread);
                loop {
                    overlay.step();
                }
            });
            simulation.machine().borrow_mut().set_prefetchers(agent, false);
        }
    }

    /// Adds the NIC's queues, each with a far end behind it, and has them measured.
    pub fn add_chip<E: FarEnd>(
        &self,
        simulation: &mut Simulation,
        nic: &NicParameters,
        ends: &Rc<impl Ends<E> + 'static>,
    ) {
        let chip = Rc::new(RefCell::new(Chip::new(nic)));
        let queues = self.pairs.len();
        for queue in 0..queues {
            let (ends, chip, nic) = (Rc::clone(ends), Rc::clone(&chip), nic.clone());
            let pair = self.pairs[queue];
            let start = start_of(self.wanted.seed, queue as u64);
            simulation.device(&format!("NIC queue {queue}"), Role::Main, start, move |device| {
                ends.wait(device);
                let chip_queue = ChipQueue::new(&pair, device, &nic, &chip);
                let mut network = ChipNetwork::new(chip_queue, ends.far_end(queue));
                measure(&*ends, device, &mut network, (queue, queues));
            });
        }
    }
}

/// What is behind the NIC's queues, and how much of it is measured.
pub(super) trait Ends<E> {
    /// Returns when the far ends may begin.
    fn wait(&self, _device: &SimDevice<'_>) {}
    /// The far end of a queue.
    fn far_end(&self, queue: usize) -> E;
    /// Its requests before measuring starts, and those measured.
    fn requests(&self, queue: usize) -> (u64, u64);
    /// Bytes of payload that a far end got so far.
    fn payload_bytes(&self, far_end: &E) -> u64;
    /// Whether answers come in bunches as large as what is measured: then all queues measure over one span, or each would measure from one
    /// of its bunches to another.
    fn come_in_bunches(&self) -> bool {
        false
    }
    /// Notes what else is known of a far end that has measured.
    fn note(&self, _far_end: &E) {}
    /// What was measured.
    fn measured(&self) -> &RefCell<Measured>;
}

/// What the NIC's queues measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Queues that are warm, that have had what was to be measured, and that have measured.
    warm: usize,
    done: usize,
    queues: usize,
    /// Requests that were answered while measuring, and how many a second.
    pub requests: u64,
    pub rate: f64,
    /// Bits of payload a second.
    pub payload_bits: f64,
    /// Requests lost, or answered wrongly.
    pub wrong: u64,
    latency: Latency,
    wire: Option<[Wire; 2]>,
}

impl Measured {
    /// The latency at a quantile, nanoseconds.
    pub fn nanoseconds(&self, quantile: f64) -> f64 {
        self.latency.quantile(quantile).picoseconds() as f64 / 1e3
    }

    /// Share of the PCIe link's time that was used, from the host to the NIC and back.
    pub fn link_utilisation(&self) -> [f64; 2] {
        let [before, after] = self.wire.unwrap_or_default();
        after.utilisation_since(&before, 1)
    }
}

/// Warms up, measures, and keeps the load until every queue has measured.
fn measure<E: FarEnd>(
    ends: &impl Ends<E>,
    device: &SimDevice<'_>,
    network: &mut ChipNetwork<'_, E>,
    (queue, queues): (usize, usize),
) {
    let (warm, measured) = ends.requests(queue);
    while network.account().received() < warm {
        network.step();
    }
    ends.measured().borrow_mut().warm += 1;
    while ends.come_in_bunches() && ends.measured().borrow().warm < queues {
        network.step();
    }
    network.account_mut().forget_latency();
    let wire_now = || Wire::of_pcie(&device.machine().borrow());
    let (begins, received, bytes, wire) =
        (device.now(), network.account().received(), ends.payload_bytes(network.far_end()), wire_now());
    let until = if ends.come_in_bunches() { received } else { warm } + measured;
    while network.account().received() < until {
        network.step();
    }
    ends.measured().borrow_mut().done += 1;
    while ends.come_in_bunches() && ends.measured().borrow().done < queues {
        network.step();
    }
    let seconds = device.now().since(begins).seconds().max(Time::from_picoseconds(1).seconds());
    let account = network.account();
    let mut all = ends.measured().borrow_mut();
    all.queues += 1;
    all.requests += account.received() - received;
    all.rate += (account.received() - received) as f64 / seconds;
    all.payload_bits += (ends.payload_bytes(network.far_end()) - bytes) as f64 * 8.0 / seconds;
    all.latency.add(account.latency());
    all.wrong += account.lost() + account.corrupt();
    if queue == 0 {
        all.wire = Some([wire, wire_now()]);
    }
    drop(all);
    ends.note(network.far_end());
    while ends.measured().borrow().queues < queues {
        network.step();
    }
}
