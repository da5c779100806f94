//! Single operations: data movement and synchronisation, over CXL and over PCIe, from idle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::cxl::{CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

use super::percentile;

/// How a device reaches the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// CXL.cache, with this hint.
    Cxl(StateHint),
    /// DMA that its logic does by itself.
    Dma,
    /// DMA that software on it sets up.
    SoftwareDma,
}

/// Where the operations work: words and descriptors in the host's memory, packets there, memory of the device, a register.
#[derive(Clone, Copy, Debug)]
struct Places {
    host: Address,
    packets: Address,
    device: Address,
    register: Address,
}

/// Most bytes that an operation moves.
const MOST: u64 = 16 << 10;
/// Times that an operation is done: memory's refresh meets some of them.
const ROUNDS: u64 = 11;

fn simulation(machine: &CxlParameters) -> (CxlSimulation, Places) {
    let mut layout = Layout::new();
    let host = layout.add("host", ROUNDS * MOST, 64, Home::Host, SynchronisingWords::ALL);
    let packets = layout.add("packets", ROUNDS * MOST, 64, Home::Host, SynchronisingWords::NONE);
    let device = layout.add("device", ROUNDS * MOST, 64, Home::Nic, SynchronisingWords::ALL);
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    (CxlSimulation::new(machine, &layout), Places { host, packets, device, register })
}

impl Places {
    /// The places of a round, which no round before has touched.
    fn of(self, round: u64) -> Places {
        let of = |first: Address| first + round * MOST;
        Places { host: of(self.host), packets: of(self.packets), device: of(self.device), ..self }
    }
}

/// When a round begins: at moments that no period of the machine's has.
fn begin(round: u64) -> Time {
    Time::from_nanoseconds(20_000 * (round + 1) + round * 389)
}

/// The median of an operation of the device that is done again and again, each time from idle, in nanoseconds.
fn of_device(machine: &CxlParameters, operation: impl Fn(&CxlDevice<'_>, Places) + 'static) -> Result<f64, Failure> {
    of_device_after(machine, |_, _| (), operation)
}

/// The same of an operation that something goes before, whose time does not count.
fn of_device_after(
    machine: &CxlParameters,
    before: impl Fn(&CxlDevice<'_>, Places) + 'static,
    operation: impl Fn(&CxlDevice<'_>, Places) + 'static,
) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    let taken = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Main, move |device| {
        for round in 0..ROUNDS {
            before(device, places.of(round));
            device.wait_until(begin(round));
            let start = device.now();
            operation(device, places.of(round));
            into.borrow_mut().push(device.now().since(start).picoseconds());
        }
    });
    simulation.run()?;
    let taken = taken.take();
    Ok(percentile(&taken, 0.5))
}

/// The same of an operation of a core.
fn of_core(machine: &CxlParameters, operation: impl Fn(&CxlCore<'_>, Places) + 'static) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    let taken = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        for round in 0..ROUNDS {
            core.wait_until(begin(round));
            let start = core.now();
            operation(core, places.of(round));
            into.borrow_mut().push(core.now().since(start).picoseconds());
        }
    });
    simulation.run()?;
    let taken = taken.take();
    Ok(percentile(&taken, 0.5))
}

fn nanoseconds(time: Time) -> f64 {
    time.picoseconds() as f64 / 1000.0
}

/// How long it takes the device to read so many bytes of the host's memory, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn read(machine: &CxlParameters, through: Through, bytes: usize) -> Result<f64, Failure> {
    of_device(machine, move |device, places| {
        get(device, through, places.packets, &mut vec![0; bytes]);
    })
}

fn get(device: &CxlDevice<'_>, through: Through, at: Address, into: &mut [u8]) {
    match through {
        Through::Cxl(hint) => device.read(at, into, hint),
        Through::Dma => device.dma().read(at, into, StateHint::NonCacheable),
        Through::SoftwareDma => {
            let dma = device.dma();
            dma.set_up_by_software();
            dma.read(at, into, StateHint::NonCacheable);
        }
    }
}

/// How long it takes the device to fetch a descriptor that a core has written, in nanoseconds: its line is in that core's cache.
///
/// # Errors
///
/// The simulator's.
pub fn read_descriptor(machine: &CxlParameters, through: Through) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    simulation.core("host", Role::Main, move |core| {
        for round in 0..ROUNDS {
            core.publish_line(places.of(round).host, &Line([round + 1; 8]));
        }
        core.full_fence();
    });
    let taken = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Main, move |device| {
        for round in 0..ROUNDS {
            device.wait_until(begin(round));
            let start = device.now();
            let mut line = [0; 64];
            get(device, through, places.of(round).host, &mut line);
            assert_eq!(line[0], round as u8 + 1, "the host has written it");
            into.borrow_mut().push(device.now().since(start).picoseconds());
        }
    });
    simulation.run()?;
    let taken = taken.take();
    Ok(percentile(&taken, 0.5))
}

/// How long it takes the device to write so many bytes of the host's memory, until it knows that they are there.
///
/// # Errors
///
/// The simulator's.
pub fn write(machine: &CxlParameters, through: Through, bytes: usize) -> Result<f64, Failure> {
    of_device(machine, move |device, places| {
        put(device, through, places.packets, &vec![1; bytes]);
        device.await_writes();
    })
}

fn put(device: &CxlDevice<'_>, through: Through, at: Address, from: &[u8]) {
    match through {
        Through::Cxl(hint) => device.write(at, from, hint),
        Through::Dma => device.dma().write(at, from, StateHint::NonCacheable),
        Through::SoftwareDma => {
            let dma = device.dma();
            dma.set_up_by_software();
            dma.write(at, from, StateHint::NonCacheable);
        }
    }
}

/// From the device's write of a word until a core that polls it has it, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn complete(machine: &CxlParameters, through: Through) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    let (begun, taken) = (Rc::new(Cell::new(Time::ZERO)), Rc::new(RefCell::new(Vec::new())));
    let (start, into) = (Rc::clone(&begun), Rc::clone(&taken));
    simulation.core("host", Role::Main, move |core| {
        for round in 0..ROUNDS {
            while core.load_acquire(places.of(round).host) == 0 {
                core.spin();
            }
            into.borrow_mut().push(core.now().since(start.get()).picoseconds());
        }
    });
    simulation.device("device", Role::Service, move |device| {
        for round in 0..ROUNDS {
            device.wait_until(begin(round));
            begun.set(device.now());
            put(device, through, places.of(round).host, &[1; 64]);
            device.await_writes();
        }
    });
    simulation.run()?;
    let taken = taken.take();
    Ok(percentile(&taken, 0.5))
}

/// From a core's store until a device that polls it has it, in nanoseconds: the mean over the moments between two looks at which the
/// core may store.
///
/// # Errors
///
/// The simulator's.
pub fn signal_by_polling(machine: &CxlParameters, hint: StateHint) -> Result<f64, Failure> {
    const STORES: u64 = 512;
    let (mut simulation, places) = simulation(machine);
    let (begun, period) = (Rc::new(Cell::new(Time::ZERO)), Rc::new(Cell::new(0)));
    let taken = Rc::new(Cell::new(0.0));
    let (start, looks) = (Rc::clone(&begun), Rc::clone(&period));
    simulation.core("host", Role::Main, move |core| {
        core.store_release(places.host, 0);
        core.wait_until(Time::from_nanoseconds(50_000));
        // The device looks at the line all the time: each store comes at another part of the time between two looks.
        let (idle, period) = (core.now().picoseconds(), looks.get());
        let apart = Time::from_nanoseconds(10_000).picoseconds().div_ceil(period) * period;
        for store in 1..=STORES {
            let at = idle + store * apart + (2 * store - 1) * period / (2 * STORES);
            core.wait_until(Time::from_picoseconds(at));
            start.set(core.now());
            core.store_release(places.host, store);
        }
        core.wait_until(core.now() + Time::from_nanoseconds(10_000));
    });
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Service, move |device| {
        let mut store = 1;
        loop {
            let looked = device.now();
            let found = device.read_word(places.host, hint);
            if found == store {
                into.set(into.get() + nanoseconds(device.now().since(begun.get())) / STORES as f64);
                store += 1;
            } else {
                period.set(device.now().since(looked).picoseconds());
            }
        }
    });
    simulation.run()?;
    Ok(taken.get())
}

/// From a core's write of a register until the device has it, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn signal_by_register(machine: &CxlParameters) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    let (begun, taken) = (Rc::new(Cell::new(Time::ZERO)), Rc::new(Cell::new(0.0)));
    let start = Rc::clone(&begun);
    simulation.core("host", Role::Service, move |core| {
        core.wait_until(Time::from_nanoseconds(1_000));
        start.set(core.now());
        core.register_write(places.register, 1);
    });
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Main, move |device| {
        while device.own_register(places.register) == 0 {
            device.spin_until(Time::NEVER);
        }
        into.set(nanoseconds(device.now().since(begun.get())));
    });
    simulation.run()?;
    Ok(taken.get())
}

/// How long it takes a core to load so many bytes of the device's memory, over CXL.mem, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn load(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    of_core(machine, move |core, places| {
        core.read_bytes(places.device, &mut vec![0; bytes]);
        // A core goes on behind them.
        core.full_fence();
    })
}

/// The same of stores, until they are performed.
///
/// # Errors
///
/// The simulator's.
pub fn store(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    of_core(machine, move |core, places| {
        core.write_lines(places.device, &vec![Line::ZERO; bytes.div_ceil(64)]);
        core.full_fence();
    })
}

/// The same over MMIO: one access of a vector register is on its way.
///
/// # Errors
///
/// The simulator's.
pub fn load_registers(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    let accesses = bytes.div_ceil(machine.pcie.access_bytes as usize);
    of_core(machine, move |core, places| {
        for _ in 0..accesses {
            core.register_read(places.register);
        }
    })
}

/// The same of stores over MMIO.
///
/// # Errors
///
/// The simulator's.
pub fn store_registers(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    let accesses = bytes.div_ceil(machine.pcie.access_bytes as usize);
    of_core(machine, move |core, places| {
        for _ in 0..accesses {
            core.register_write(places.register, 1);
        }
        // A core goes on behind it; what takes its time is until the next one could follow.
        core.full_fence();
    })
}

/// How long the device takes to read a line of its own memory, which nobody caches, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn read_own(machine: &CxlParameters, device_bias: bool) -> Result<f64, Failure> {
    let bias = if device_bias { Bias::Device } else { Bias::Host };
    of_device_after(
        machine,
        move |device, places| device.switch_bias(places.device, 64, bias, true),
        |device, places| device.read(places.device, &mut [0; 64], StateHint::NonCacheable),
    )
}

/// How long a core's load takes of a line that the device has pushed into the host's cache, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn load_pushed(machine: &CxlParameters) -> Result<f64, Failure> {
    let (mut simulation, places) = simulation(machine);
    let taken = Rc::new(Cell::new(0.0));
    let into = Rc::clone(&taken);
    simulation.core("host", Role::Main, move |core| {
        core.wait_until(Time::from_nanoseconds(10_000));
        let start = core.now();
        core.load(places.device);
        into.set(nanoseconds(core.now().since(start)));
    });
    simulation.device("device", Role::Service, move |device| {
        device.write(places.device, &[1; 64], StateHint::NonCacheablePush);
    });
    simulation.run()?;
    Ok(taken.get())
}

/// How long the device takes to read a line of the host again that it has a copy of, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn read_again(machine: &CxlParameters) -> Result<f64, Failure> {
    let read = |device: &CxlDevice<'_>, places: Places| {
        device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
    };
    of_device_after(machine, read, read)
}
