//! A key-value store on the device, one request at a time: on the NIC's own logic, or on a SmartNIC's cores.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use conic_fabric::{Core, LINE_BYTES, Layout, StateHint, Time};
use conic_interface::cxl::serving::{Answer, DatabaseShape, Handler, Request, ServingStatistics, Through};
use conic_kv::Zipf;
use conic_sim::cxl::{CxlDevice, CxlParameters, CxlSimulation};
use conic_sim::draws::Draws;
use conic_sim::protocol::cxl::Bias;
use conic_sim::{Failure, Role};

/// Where requests are answered. Both keep what a client stores until its place is needed (section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// By logic on a CXL device of type 2, which reads what it lacks coherently.
    Logic,
    /// By a core of a SmartNIC, which reads what it lacks by RDMA and does not see the host's updates.
    Software,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The machine.
    pub machine: CxlParameters,
    /// Who answers.
    pub server: Server,
    /// Keys.
    pub keys: u64,
    /// Buckets of four keys in the device's memory, a power of two.
    pub buckets: u64,
    /// Bytes of each value, at least 8.
    pub value_bytes: usize,
    /// The exponent of Zipf's law; none: every key is as likely.
    pub zipf: Option<f64>,
    /// Writes among a thousand requests.
    pub writes: u64,
    /// The keys that are asked for most are in the device's memory before the first request, as many as it has room for, and the
    /// host's table is in memory and in no cache of the host.
    pub preloaded: bool,
    /// Requests before the first that counts, and those that count.
    pub requests: (u64, u64),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// From a request's arrival at the device until its answer leaves, in picoseconds.
    pub latencies: Vec<u64>,
    /// What the handler did, from its start on.
    pub statistics: ServingStatistics,
    /// The part of the requests that count whose key was in the device's memory.
    pub hits: f64,
}

/// Keys of a bucket in the device's memory.
const KEYS_OF_A_BUCKET: u64 = 4;

/// Draws keys.
struct Keys {
    /// None: every key is as likely.
    law: Option<Zipf>,
    keys: u64,
    draws: Draws,
}

impl Keys {
    fn new(keys: u64, zipf: Option<f64>) -> Keys {
        Keys { law: zipf.map(|exponent| Zipf::new(keys as u32, exponent)), keys, draws: Draws::new(1) }
    }

    fn next(&mut self) -> u64 {
        let part = self.draws.part();
        match &self.law {
            Some(law) => law.rank(part) as u64,
            None => ((part * self.keys as f64) as u64).min(self.keys - 1),
        }
    }
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![number as u8; bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Serves requests.
///
/// # Errors
///
/// The simulator's, or that no software runs on the device, as a deadlock that says so.
///
/// # Panics
///
/// If an answer is wrong.
pub fn serve(question: &Serving) -> Result<Served, Failure> {
    let machine = match question.server {
        Server::Logic => question.machine.clone(),
        Server::Software => question.machine.seen_by_software().ok_or_else(|| {
            Failure::Deadlock(vec![format!("{}: no software runs on its device", question.machine.name)])
        })?,
    };
    let mut layout = Layout::new();
    let entries = (question.keys * 8 / 5).next_power_of_two();
    let stamps = (machine.dcoh.hmc_bytes / 64 / 2).next_power_of_two() / 2;
    let (buckets, value_bytes) = (question.buckets, question.value_bytes as u64);
    let database = DatabaseShape { entries, stamps: stamps.max(8), buckets, value_bytes }.place(&mut layout);
    let mut simulation = CxlSimulation::new(&machine, &layout);
    let loaded = Rc::new(Cell::new(false));
    let (keys, bytes, done) = (question.keys, question.value_bytes, Rc::clone(&loaded));
    let table = question.preloaded.then(|| layout.segments()[0].clone());
    simulation.core("host", Role::Main, move |core| {
        for key in 0..keys {
            assert!(database.insert(core, key, &value(key, bytes)), "the table has room");
        }
        if let Some(table) = table {
            // Most of a large table has not been used for long.
            (0..table.bytes / LINE_BYTES).for_each(|line| core.flush(table.start.lines(line)));
        }
        done.set(true);
    });
    let served = Rc::new(RefCell::new(Served::default()));
    let (asked, into) = (question.clone(), Rc::clone(&served));
    simulation.device("handler", Role::Main, move |device| {
        while !loaded.get() {
            device.wait_until(device_now(device) + Time::from_nanoseconds(100_000));
        }
        let (at, bytes) = database.of_device();
        device.switch_bias(at, bytes, Bias::Device, true);
        match asked.server {
            Server::Logic => {
                let through = Through::Coherent { read: StateHint::CacheableOwned, write: StateHint::CacheableOwned };
                let handler = Handler::new(*device, *device, database, through, (0, 0)).writing_back();
                answer(handler, device, &asked, &into);
            }
            Server::Software => {
                let remote = device.dma();
                remote.set_up_by_rdma();
                let handler = Handler::new(*device, remote, database, Through::Remote, (0, 0)).writing_back();
                answer(handler, device, &asked, &into);
            }
        }
    });
    simulation.run()?;
    drop(simulation);
    Ok(served.take())
}

fn device_now(device: &CxlDevice<'_>) -> Time {
    conic_fabric::Device::now(device)
}

fn answer<L, R>(mut handler: Handler<L, R>, device: &CxlDevice<'_>, asked: &Serving, into: &RefCell<Served>)
where
    L: conic_fabric::Device,
    R: conic_fabric::Device,
{
    let (before, after) = {
        let machine = device.machine().borrow();
        let p = machine.parameters();
        match (asked.server, &p.software) {
            (Server::Software, Some(software)) => (software.request_in, software.request_out),
            _ => (p.device.request, 0),
        }
    };
    let mut keys = Keys::new(asked.keys, asked.zipf);
    let mut current: Vec<u64> = (0..asked.keys).collect();
    if asked.preloaded {
        // The most wanted last, so that they are what was used last.
        for key in (0..asked.keys.min(KEYS_OF_A_BUCKET * asked.buckets)).rev() {
            handler.serve(&Request::Get(key).packet()).expect("it is a request");
        }
    }
    let mut before_counting = handler.statistics();
    for number in 0..asked.requests.0 + asked.requests.1 {
        if number == asked.requests.0 {
            before_counting = handler.statistics();
        }
        let key = keys.next();
        let write = keys.draws.part() < asked.writes as f64 / 1000.0;
        let new = value(number, asked.value_bytes);
        let request = if write { Request::Put(key, &new) } else { Request::Get(key) };
        let arrived = device_now(device);
        device.wait_until(arrived + Time::from_picoseconds(before));
        let answer = handler.serve(&request.packet()).expect("it is a request");
        device.wait_until(device_now(device) + Time::from_picoseconds(after));
        match (write, answer) {
            (true, Answer::Stored) => current[key as usize] = number,
            (false, Answer::Found(found)) => {
                assert_eq!(found, value(current[key as usize], asked.value_bytes), "key {key}");
            }
            (_, other) => panic!("{request:?} was answered {other:?}"),
        }
        let mut served = into.borrow_mut();
        if number >= asked.requests.0 {
            served.latencies.push(device_now(device).since(arrived).picoseconds());
        }
        served.statistics = handler.statistics();
        let counted = |of: fn(&ServingStatistics) -> u64| (of(&served.statistics) - of(&before_counting)) as f64;
        let (hits, misses) = (counted(|of| of.hits), counted(|of| of.misses));
        served.hits = hits / (hits + misses);
        drop(served);
        // What goes on behind an answer is over before the next request.
        handler.settle();
        device.wait_until(device_now(device) + Time::from_nanoseconds(5_000));
    }
}
