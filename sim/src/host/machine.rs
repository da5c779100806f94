//! Lines on their way: which credits they take, where they wait, and when credits are given back.

use std::collections::VecDeque;

use conic_fabric::Time;

use super::controller::{Controller, Step, Traced};
use super::parameters::HostParameters;
use super::place::{AddressMap, Place};
use super::report::{Domain, DomainReport, HostReport};
use super::source::{CoreSource, DeviceSource};
use super::traffic::{DeviceTraffic, Traffic};
use crate::engine::{EventQueue, Key};
use crate::entries::Entries;
use crate::probe::occupancy::Occupancy;

/// What happened on each channel, each with its time in picoseconds, in order.
pub type Trace = Vec<Vec<(u64, Traced)>>;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A line fill buffer of a core is free, and its next miss comes.
    Miss(u16),
    /// A device's next line is due.
    Due,
    /// A request comes to its slice.
    AtHome(u32),
    /// It comes to the memory controller.
    AtMemory(u32),
    /// A channel's controller has something to do.
    Controller(u8),
    /// Memory's data is back.
    Returned(u32),
    /// A device's read has come to its end.
    AtDevice(u64),
}

/// A line on its way.
#[derive(Clone, Copy, Debug)]
struct Request {
    domain: Domain,
    core: u16,
    place: Place,
    /// Of a core's read: the line, after which the evicted one follows.
    line: u64,
    /// When its line fill buffer was taken.
    buffered: u64,
    /// When its credit was taken, it came to its slice, it had an entry, and it was held back at the controller.
    taken: u64,
    arrived: u64,
    admitted: u64,
    blocked: u64,
}

#[derive(Clone, Debug, Default)]
struct Probes {
    lines: u64,
    credits: Occupancy,
    admission: Occupancy,
    home: Occupancy,
    blocked: Occupancy,
}

/// Devices, all together.
#[derive(Debug)]
struct Devices {
    traffic: DeviceTraffic,
    source: DeviceSource,
    interval: u64,
    free: u32,
    /// A line is due, and there is no credit for it.
    waits: bool,
}

struct Machine<'a> {
    parameters: &'a HostParameters,
    traffic: &'a Traffic,
    map: AddressMap,
    now: u64,
    sequence: u64,
    queue: EventQueue<Event>,
    requests: Vec<Request>,
    unused: Vec<u32>,
    cores: Vec<CoreSource>,
    devices: Option<Devices>,
    slices: Vec<Entries>,
    controllers: Vec<Controller>,
    /// When each channel's controller looks next.
    looks: Vec<u64>,
    /// Reads and writes that a channel's queue has no room for.
    held: Vec<[VecDeque<u32>; 2]>,
    fill_buffers: Occupancy,
    probes: [Probes; 4],
}

/// Runs traffic on a host.
pub fn run(parameters: &HostParameters, traffic: &Traffic) -> HostReport {
    Machine::new(parameters, traffic).run().0
}

/// The same; returns what happened on each channel, too, from the beginning on.
pub fn run_traced(parameters: &HostParameters, traffic: &Traffic) -> (HostReport, Trace) {
    let mut machine = Machine::new(parameters, traffic);
    machine.controllers.iter_mut().for_each(|one| one.trace = Some(Vec::new()));
    machine.run()
}

impl<'a> Machine<'a> {
    fn new(parameters: &'a HostParameters, traffic: &'a Traffic) -> Machine<'a> {
        let cores = traffic.cores.iter().enumerate();
        let cores = cores.map(|(number, core)| CoreSource::new(number as u64, *core, parameters, traffic.seed));
        let channels = parameters.controller.channels as usize;
        let devices = traffic.devices.map(|kind| {
            let (rate, free) = match kind {
                DeviceTraffic::Writes => (parameters.device.write_megabits_per_second, parameters.iio.write_credits),
                DeviceTraffic::Reads => (parameters.device.read_megabits_per_second, parameters.iio.read_credits),
            };
            let interval = traffic.device_gap.unwrap_or(64 * 8 * 1_000_000 / rate.max(1)).max(1);
            Devices { traffic: kind, source: DeviceSource::new(parameters, traffic.seed), interval, free, waits: false }
        });
        Machine {
            parameters,
            traffic,
            map: AddressMap::new(parameters, traffic.seed),
            now: 0,
            sequence: 0,
            queue: EventQueue::default(),
            requests: Vec::new(),
            unused: Vec::new(),
            cores: cores.collect(),
            devices,
            slices: vec![Entries::default(); parameters.home.slices as usize],
            controllers: (0..channels).map(|_| Controller::new(parameters)).collect(),
            looks: vec![u64::MAX; channels],
            held: vec![Default::default(); channels],
            fill_buffers: Occupancy::new(Time::from_picoseconds(0)),
            probes: Default::default(),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Key::new(time, 0, self.sequence), event);
    }

    fn time(&self) -> Time {
        Time::from_picoseconds(self.now)
    }

    fn run(mut self) -> (HostReport, Trace) {
        let cycle = 1_000_000 / u64::from(self.parameters.core.frequency_megahertz.max(1));
        for core in 0..self.cores.len() {
            for buffer in 0..u64::from(self.parameters.core.line_fill_buffers) {
                self.at(buffer * cycle, Event::Miss(core as u16));
            }
        }
        if self.devices.is_some() {
            self.at(0, Event::Due);
        }
        let begins = self.traffic.warm_up;
        self.run_until(begins);
        self.restart();
        self.run_until(begins + self.traffic.window);
        self.finish()
    }

    fn run_until(&mut self, end: u64) {
        while self.queue.first_time().is_some_and(|time| time <= end)
            && let Some((key, event)) = self.queue.pop()
        {
            self.now = key.time;
            self.happens(event);
        }
        self.now = end;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Miss(core) => self.miss(core),
            Event::Due => self.device_due(),
            Event::AtHome(request) => self.at_home(request),
            Event::AtMemory(request) => self.at_memory(request),
            Event::Controller(channel) => self.look(channel.into()),
            Event::Returned(request) => self.returned(request),
            Event::AtDevice(taken) => self.credit_back(Domain::DeviceRead, taken),
        }
    }

    /// Takes a credit and sends a line to its slice, where it comes after `way`.
    fn send(&mut self, domain: Domain, core: u16, (line, place): (u64, Place), buffered: u64, way: u64) {
        let now = self.now;
        let request = Request { domain, core, place, line, buffered, taken: now, arrived: 0, admitted: 0, blocked: 0 };
        let time = self.time();
        self.probes[domain as usize].credits.enter(time);
        let id = match self.unused.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        self.at(now + way, Event::AtHome(id));
    }

    fn miss(&mut self, core: u16) {
        let read = self.cores[usize::from(core)].read(&self.map);
        self.fill_buffers.enter(self.time());
        self.send(Domain::CoreRead, core, read, self.now, self.parameters.core.to_home);
    }

    fn device_due(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        if devices.free == 0 {
            devices.waits = true;
            return;
        }
        devices.free -= 1;
        let (place, evicted) = devices.source.next(&self.map);
        let next = self.now + devices.interval;
        let iio = &self.parameters.iio;
        let (domain, way) = match devices.traffic {
            DeviceTraffic::Writes => (Domain::DeviceWrite, iio.write_to_home),
            DeviceTraffic::Reads => (Domain::DeviceRead, iio.read_to_home),
        };
        // What comes to memory is then what the cache has no room for.
        let place = if domain == Domain::DeviceWrite && iio.writes_to_cache { evicted } else { place };
        self.send(domain, 0, (0, place), self.now, way);
        self.at(next, Event::Due);
    }

    /// A device's credit is free again.
    fn credit_back(&mut self, domain: Domain, taken: u64) {
        let time = self.time();
        let probes = &mut self.probes[domain as usize];
        probes.credits.leave(time, Time::from_picoseconds(taken));
        probes.lines += 1;
        let Some(devices) = &mut self.devices else { return };
        devices.free += 1;
        if std::mem::take(&mut devices.waits) {
            self.device_due();
        }
    }

    /// A core's credit is free; where that ends what its buffer was for, the buffer is as well.
    fn core_credit_back(&mut self, request: Request, ends: bool) {
        let time = self.time();
        let probes = &mut self.probes[request.domain as usize];
        probes.credits.leave(time, Time::from_picoseconds(request.taken));
        probes.lines += 1;
        if ends {
            self.fill_buffers.leave(time, Time::from_picoseconds(request.buffered));
            let work = self.traffic.cores[usize::from(request.core)].work;
            self.at(self.now + self.parameters.core.refill + work, Event::Miss(request.core));
        }
    }

    fn at_home(&mut self, id: u32) {
        let (now, time) = (self.now, self.time());
        let request = &mut self.requests[id as usize];
        request.arrived = now;
        let (domain, slice) = (request.domain, usize::from(request.place.slice));
        self.probes[domain as usize].admission.enter(time);
        if self.slices[slice].arrive(self.parameters.home.limits(), id, domain.writes(), now) {
            self.admitted(id);
        }
    }

    fn admitted(&mut self, id: u32) {
        let (now, time) = (self.now, self.time());
        self.requests[id as usize].admitted = now;
        let request = self.requests[id as usize];
        let probes = &mut self.probes[request.domain as usize];
        probes.admission.leave(time, Time::from_picoseconds(request.arrived));
        probes.home.enter(time);
        let (home, to_cache) = (&self.parameters.home, self.parameters.iio.writes_to_cache);
        let way = match request.domain {
            Domain::CoreRead | Domain::DeviceRead => home.to_memory,
            Domain::DeviceWrite if !to_cache => home.device_write_to_memory,
            Domain::CoreWrite | Domain::DeviceWrite => home.core_write_to_memory,
        };
        self.at(now + way, Event::AtMemory(id));
        match request.domain {
            Domain::CoreWrite => self.core_credit_back(request, true),
            Domain::DeviceWrite if to_cache => self.credit_back(Domain::DeviceWrite, request.taken),
            _ => {}
        }
    }

    fn at_memory(&mut self, id: u32) {
        let Request { domain, place, .. } = self.requests[id as usize];
        let (channel, of) = (usize::from(place.channel), usize::from(domain.writes()));
        if self.held[channel][of].is_empty() && self.controllers[channel].has_room(domain.writes()) {
            self.enter_controller(id);
        } else {
            self.requests[id as usize].blocked = self.now;
            let time = self.time();
            self.probes[domain as usize].blocked.enter(time);
            self.held[channel][of].push_back(id);
        }
    }

    fn enter_controller(&mut self, id: u32) {
        let request = self.requests[id as usize];
        let Place { channel, bank, row, .. } = request.place;
        let writes = request.domain.writes();
        self.controllers[usize::from(channel)].enter(id, (bank, row), writes, self.now);
        self.look_at(channel.into(), self.now);
        if writes {
            self.leave_home(id);
            if request.domain == Domain::DeviceWrite && !self.parameters.iio.writes_to_cache {
                self.credit_back(Domain::DeviceWrite, request.taken);
            }
            self.unused.push(id);
        }
    }

    /// A request's entry of its slice is free.
    fn leave_home(&mut self, id: u32) {
        let request = self.requests[id as usize];
        let time = self.time();
        self.probes[request.domain as usize].home.leave(time, Time::from_picoseconds(request.admitted));
        let slice = &mut self.slices[usize::from(request.place.slice)];
        if let Some((next, _)) = slice.leave(self.parameters.home.limits(), request.domain.writes()) {
            self.admitted(next);
        }
    }

    fn returned(&mut self, id: u32) {
        self.leave_home(id);
        let request = self.requests[id as usize];
        self.unused.push(id);
        if request.domain == Domain::DeviceRead {
            return self.at(self.now + self.parameters.iio.read_return, Event::AtDevice(request.taken));
        }
        let writes = self.traffic.cores[usize::from(request.core)].writes;
        self.core_credit_back(request, !writes);
        if writes {
            let evicted = self.cores[usize::from(request.core)].evicted(&self.map, request.line);
            let way = self.parameters.core.write_to_home;
            self.send(Domain::CoreWrite, request.core, (request.line, evicted), request.buffered, way);
        }
    }

    /// A channel's controller looks at a time, unless it does before.
    fn look_at(&mut self, channel: usize, time: u64) {
        if time < self.looks[channel] {
            self.looks[channel] = time;
            self.at(time, Event::Controller(channel as u8));
        }
    }

    fn look(&mut self, channel: usize) {
        if self.looks[channel] != self.now {
            return;
        }
        self.looks[channel] = u64::MAX;
        loop {
            match self.controllers[channel].step(self.now) {
                Step::Done { request, writes, data } => {
                    if !writes {
                        self.at(data + self.parameters.home.from_memory, Event::Returned(request));
                    }
                    self.admit_held(channel, writes);
                }
                Step::Prepared => {}
                Step::Wait(until) => return self.look_at(channel, until),
                Step::Idle => return,
            }
        }
    }

    /// A queue of a controller has room for one more.
    fn admit_held(&mut self, channel: usize, writes: bool) {
        if let Some(id) = self.held[channel][usize::from(writes)].pop_front() {
            let request = self.requests[id as usize];
            let time = self.time();
            let blocked = Time::from_picoseconds(request.blocked);
            self.probes[request.domain as usize].blocked.leave(time, blocked);
            self.enter_controller(id);
        }
    }

    /// The window begins.
    fn restart(&mut self) {
        let time = self.time();
        self.fill_buffers.restart(time);
        for Probes { lines, credits, admission, home, blocked } in &mut self.probes {
            *lines = 0;
            [credits, admission, home, blocked].into_iter().for_each(|one| one.restart(time));
        }
        self.controllers.iter_mut().for_each(|one| one.restart(self.now));
    }

    fn finish(mut self) -> (HostReport, Trace) {
        let (now, time) = (self.now, self.time());
        self.controllers.iter_mut().for_each(|one| one.finish(now));
        let of = |probes: &Probes| DomainReport {
            lines: probes.lines,
            credits: probes.credits.little(time),
            admission: probes.admission.little(time),
            home: probes.home.little(time),
            blocked: probes.blocked.little(time),
        };
        let report = HostReport {
            window: self.traffic.window,
            domains: self.probes.each_ref().map(of),
            fill_buffers: self.fill_buffers.little(time),
            channels: self.controllers.iter().map(|one| one.counters).collect(),
            read_queues: self.controllers.iter().map(|one| one.read_queue.little(time)).collect(),
            write_queues: self.controllers.iter().map(|one| one.write_queue.little(time)).collect(),
            bank_deviations: self.controllers.iter().flat_map(|one| one.deviations.clone()).collect(),
        };
        let traced = |one: Controller| {
            let mut trace = one.trace.unwrap_or_default();
            trace.sort_by_key(|(at, _)| *at);
            trace
        };
        (report, self.controllers.into_iter().map(traced).collect())
    }
}
