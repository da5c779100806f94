//! Single operations: data movement and synchronisation, over CXL and over PCIe, from idle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Address, Core, Device, Home, Layout, Line, MemoryType, StateHint, SynchronisingWords, Time};
use conic_sim::cxl::{CxlCore, CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::{Failure, Role};

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

/// Where the operations work: memory of the host, memory of the device, a register.
#[derive(Clone, Copy, Debug)]
struct Places {
    host: Address,
    device: Address,
    register: Address,
}

/// Most bytes that an operation moves.
const MOST: u64 = 16 << 10;

fn simulation(machine: &CxlParameters) -> (CxlSimulation, Places) {
    let mut layout = Layout::new();
    let host = layout.add("host", 4 * MOST, 64, Home::Host, SynchronisingWords::ALL);
    let device = layout.add("device", 4 * MOST, 64, Home::Nic, SynchronisingWords::ALL);
    let register = layout.add_registers("register", 64, Home::Nic, MemoryType::Uncached);
    (CxlSimulation::new(machine, &layout), Places { host, device, register })
}

/// Runs one program of the device; its result.
fn of_device<T: 'static>(
    machine: &CxlParameters,
    program: impl Fn(&CxlDevice<'_>, Places) -> T + 'static,
) -> Result<T, Failure> {
    let (mut simulation, places) = simulation(machine);
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    simulation.device("device", Role::Main, move |device| *into.borrow_mut() = Some(program(device, places)));
    simulation.run()?;
    drop(simulation);
    Ok(result.take().expect("the program ended"))
}

/// Runs one program of a core; its result.
fn of_core<T: 'static>(
    machine: &CxlParameters,
    program: impl Fn(&CxlCore<'_>, Places) -> T + 'static,
) -> Result<T, Failure> {
    let (mut simulation, places) = simulation(machine);
    let result = Rc::new(RefCell::new(None));
    let into = Rc::clone(&result);
    simulation.core("host", Role::Main, move |core| *into.borrow_mut() = Some(program(core, places)));
    simulation.run()?;
    drop(simulation);
    Ok(result.take().expect("the program ended"))
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
        let mut into = vec![0; bytes];
        let start = device.now();
        match through {
            Through::Cxl(hint) => device.read(places.host, &mut into, hint),
            Through::Dma => device.dma().read(places.host, &mut into, StateHint::NonCacheable),
            Through::SoftwareDma => {
                let dma = device.dma();
                dma.set_up_by_software();
                dma.read(places.host, &mut into, StateHint::NonCacheable);
            }
        }
        nanoseconds(device.now().since(start))
    })
}

/// How long it takes the device to write so many bytes of the host's memory, until it knows that they are there.
///
/// # Errors
///
/// The simulator's.
pub fn write(machine: &CxlParameters, through: Through, bytes: usize) -> Result<f64, Failure> {
    of_device(machine, move |device, places| {
        let from = vec![1; bytes];
        let start = device.now();
        put(device, through, places.host, &from);
        device.await_writes();
        nanoseconds(device.now().since(start))
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
    let (begun, taken) = (Rc::new(Cell::new(Time::ZERO)), Rc::new(Cell::new(0.0)));
    let (start, into) = (Rc::clone(&begun), Rc::clone(&taken));
    simulation.core("host", Role::Main, move |core| {
        while core.load_acquire(places.host) == 0 {
            core.spin();
        }
        into.set(nanoseconds(core.now().since(start.get())));
    });
    simulation.device("device", Role::Service, move |device| {
        device.wait_until(Time::from_nanoseconds(5_000));
        begun.set(device.now());
        put(device, through, places.host, &[1; 64]);
        device.await_writes();
    });
    simulation.run()?;
    Ok(taken.get())
}

/// From a core's store until a device that polls it has it, in nanoseconds: the mean over the moments at which the core may store.
///
/// # Errors
///
/// The simulator's.
pub fn signal_by_polling(machine: &CxlParameters, hint: StateHint) -> Result<f64, Failure> {
    const ROUNDS: u64 = 64;
    let (mut simulation, places) = simulation(machine);
    let (begun, taken) = (Rc::new(Cell::new(Time::ZERO)), Rc::new(Cell::new(0.0)));
    let start = Rc::clone(&begun);
    simulation.core("host", Role::Main, move |core| {
        for round in 1..=ROUNDS {
            // Any phase of the polling, in an order that follows no period.
            core.wait_until(Time::from_nanoseconds(round * 10_000 + round * 389 % 1_000));
            start.set(core.now());
            core.store_release(places.host, round);
        }
        core.wait_until(core.now() + Time::from_nanoseconds(10_000));
    });
    let into = Rc::clone(&taken);
    simulation.device("device", Role::Service, move |device| {
        for round in 1..=ROUNDS {
            while device.read_word(places.host, hint) < round {}
            into.set(into.get() + nanoseconds(device.now().since(begun.get())) / ROUNDS as f64);
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
        let start = core.now();
        core.read_bytes(places.device, &mut vec![0; bytes]);
        nanoseconds(core.now().since(start))
    })
}

/// The same of stores, until they are performed.
///
/// # Errors
///
/// The simulator's.
pub fn store(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    of_core(machine, move |core, places| {
        let start = core.now();
        core.write_lines(places.device, &vec![Line::ZERO; bytes.div_ceil(64)]);
        core.full_fence();
        nanoseconds(core.now().since(start))
    })
}

/// The same over MMIO, 64 bytes at a time: one access is on its way.
///
/// # Errors
///
/// The simulator's.
pub fn load_registers(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    of_core(machine, move |core, places| {
        let start = core.now();
        for _ in 0..bytes.div_ceil(64) {
            core.register_read(places.register);
        }
        nanoseconds(core.now().since(start))
    })
}

/// The same of stores over MMIO.
///
/// # Errors
///
/// The simulator's.
pub fn store_registers(machine: &CxlParameters, bytes: usize) -> Result<f64, Failure> {
    of_core(machine, move |core, places| {
        let start = core.now();
        for _ in 0..bytes.div_ceil(64) {
            core.register_write(places.register, 1);
        }
        nanoseconds(core.now().since(start))
    })
}

/// How long the device takes to read a line of its own memory, which nobody caches, in nanoseconds.
///
/// # Errors
///
/// The simulator's.
pub fn read_own(machine: &CxlParameters, device_bias: bool) -> Result<f64, Failure> {
    of_device(machine, move |device, places| {
        if device_bias {
            device.switch_bias(places.device, 64, conic_sim::protocol::cxl::Bias::Device, true);
        }
        let start = device.now();
        device.read(places.device, &mut [0; 64], StateHint::NonCacheable);
        nanoseconds(device.now().since(start))
    })
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
    of_device(machine, |device, places| {
        device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
        let start = device.now();
        device.read(places.host, &mut [0; 64], StateHint::CacheableShared);
        nanoseconds(device.now().since(start))
    })
}
