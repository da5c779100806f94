//! Lines on their way: which credits they take, where they wait, and when credits are given back.

use std::collections::VecDeque;

use conic_fabric::Time;

use super::application::{Next, Program};
use super::cache::{CacheCounters, DirectCache, Written};
use super::controller::{Controller, Step, Traced};
use super::nic::{Frame, Nic};
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
    /// The work of a core that runs an application is done.
    Worked(u16),
    /// A device's next line is due.
    Due,
    /// A packet has come to the NIC.
    Packet,
    /// A frame of the NIC's is at its sender.
    AtSender(Frame),
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
    /// Of a core's read: the line, after which the evicted one follows. Of a device's: its number in memory.
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
    /// A line is due, and there is no credit for it, or the NIC has none.
    waits: bool,
    /// Where lines come from that are not simply there.
    nic: Option<Nic>,
}

impl Devices {
    fn new(parameters: &HostParameters, traffic: &Traffic, kind: DeviceTraffic) -> Devices {
        let (device, iio, nic) = (&parameters.device, &parameters.iio, &parameters.nic);
        let (rate, free) = match kind {
            DeviceTraffic::Writes => (device.write_megabits_per_second, iio.write_credits),
            // What a NIC sends is bounded by its network, what it receives by its packets.
            DeviceTraffic::Reads if traffic.nic => (nic.megabits_per_second, iio.read_credits),
            DeviceTraffic::Reads => (device.read_megabits_per_second, iio.read_credits),
        };
        let interval = traffic.device_gap.unwrap_or(64 * 8 * 1_000_000 / rate.max(1)).max(1);
        let memory = if traffic.nic { &parameters.nic_memory() } else { device };
        let source = DeviceSource::new(memory, traffic.seed);
        let receives = traffic.nic && kind == DeviceTraffic::Writes;
        Devices { traffic: kind, source, interval, free, waits: false, nic: receives.then(|| Nic::new(nic)) }
    }
}

/// How often the devices' ways are written over before a run: in sets of two ways, of which a hash chooses one for each line, one in 330 then still has room.
const FILLS: usize = 4;

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
    /// Further cores, counted after those.
    programs: Vec<Program>,
    /// Operations of theirs before the window.
    operations_before: u64,
    devices: Option<Devices>,
    /// The ways that devices write to, with direct cache access.
    cache: Option<DirectCache>,
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
        let first = traffic.cores.len() as u64;
        let programs = traffic.applications.iter().zip(first..).map(|(application, number)| {
            Program::new(application, parameters.core.line_fill_buffers, traffic.seed ^ (number + 1) << 32)
        });
        let channels = parameters.controller.channels as usize;
        let mut machine = Machine {
            parameters,
            traffic,
            map: AddressMap::new(parameters, traffic.seed),
            now: 0,
            sequence: 0,
            queue: EventQueue::default(),
            requests: Vec::new(),
            unused: Vec::new(),
            cores: cores.collect(),
            programs: programs.collect(),
            operations_before: 0,
            devices: traffic.devices.map(|kind| Devices::new(parameters, traffic, kind)),
            cache: None,
            slices: vec![Entries::default(); parameters.home.slices as usize],
            controllers: (0..channels).map(|_| Controller::new(parameters)).collect(),
            looks: vec![u64::MAX; channels],
            held: vec![Default::default(); channels],
            fill_buffers: Occupancy::new(Time::from_picoseconds(0)),
            probes: Default::default(),
        };
        machine.fill_cache();
        machine
    }

    /// The devices' ways as they are when devices have written for long: without this a run of a millisecond would mostly find room there.
    fn fill_cache(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        if !self.parameters.iio.writes_to_cache || devices.traffic != DeviceTraffic::Writes {
            return;
        }
        let mut cache = DirectCache::new(self.parameters);
        for _ in 0..FILLS * cache.room() {
            let line = devices.source.next(&self.map);
            cache.write(self.map.of_physical(line).slice, line);
        }
        self.cache = Some(cache);
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
        for program in 0..self.programs.len() {
            self.at(0, Event::Worked((self.cores.len() + program) as u16));
        }
        if let Some(devices) = &self.devices {
            if let Some(nic) = &devices.nic {
                self.at(nic.interval(), Event::Packet);
            }
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
            Event::Miss(core) if usize::from(core) < self.cores.len() => self.miss(core),
            Event::Miss(core) => {
                self.programs[usize::from(core) - self.cores.len()].buffer_is_free();
                self.run_program(core);
            }
            Event::Worked(core) => self.run_program(core),
            Event::Due => self.device_due(),
            Event::Packet => self.packet(),
            Event::AtSender(frame) => self.at_sender(frame),
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

    /// A core that runs an application goes on as far as it can.
    fn run_program(&mut self, core: u16) {
        let at = usize::from(core) - self.cores.len();
        loop {
            match self.programs[at].next(self.now) {
                Next::Load(line) => {
                    self.fill_buffers.enter(self.time());
                    let read = (line, self.map.place(core.into(), line));
                    self.send(Domain::CoreRead, core, read, self.now, self.parameters.core.to_home);
                }
                Next::Work(until) => return self.at(until, Event::Worked(core)),
                Next::Wait => return,
            }
        }
    }

    fn packet(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        let Some(nic) = &mut devices.nic else { return };
        if nic.is_stopped() {
            return;
        }
        let (interval, frame) = (nic.interval(), nic.packet());
        let waits = devices.free > 0 && std::mem::take(&mut devices.waits);
        self.at(self.now + interval, Event::Packet);
        self.tell_sender(frame);
        if waits {
            self.device_due();
        }
    }

    fn tell_sender(&mut self, frame: Option<Frame>) {
        if let Some(frame) = frame {
            self.at(self.now + self.parameters.nic.pause_delay, Event::AtSender(frame));
        }
    }

    fn at_sender(&mut self, frame: Frame) {
        let now = self.now;
        let Some(nic) = self.nic() else { return };
        if nic.at_sender(frame, now) {
            let interval = nic.interval();
            self.at(now + interval, Event::Packet);
        }
    }

    fn device_due(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        if devices.free == 0 || devices.nic.as_ref().is_some_and(Nic::is_empty) {
            devices.waits = true;
            return;
        }
        devices.free -= 1;
        let line = devices.source.next(&self.map);
        let frame = devices.nic.as_mut().and_then(Nic::line_leaves);
        let next = self.now + devices.interval;
        let iio = &self.parameters.iio;
        let (domain, way) = match devices.traffic {
            DeviceTraffic::Writes => (Domain::DeviceWrite, iio.write_to_home),
            DeviceTraffic::Reads => (Domain::DeviceRead, iio.read_to_home),
        };
        self.send(domain, 0, (line, self.map.of_physical(line)), self.now, way);
        self.at(next, Event::Due);
        self.tell_sender(frame);
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
            let work = self.traffic.cores.get(usize::from(request.core)).map_or(0, |core| core.work);
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
        if request.domain == Domain::DeviceWrite && self.cache.is_some() {
            return self.write_to_cache(id, request);
        }
        let home = &self.parameters.home;
        let way = match request.domain {
            Domain::CoreRead | Domain::DeviceRead => home.to_memory,
            Domain::DeviceWrite => home.device_write_to_memory,
            Domain::CoreWrite => home.core_write_to_memory,
        };
        self.at(now + way, Event::AtMemory(id));
        if request.domain == Domain::CoreWrite {
            self.core_credit_back(request, true);
        }
    }

    /// A device's line is in the cache, which gives back its credit; what has to go for it has its entry until the controller has that.
    fn write_to_cache(&mut self, id: u32, request: Request) {
        let Some(cache) = &mut self.cache else { return };
        match cache.write(request.place.slice, request.line) {
            Written::Evicted(line) => {
                self.requests[id as usize].place = self.map.of_physical(line);
                self.at(self.now + self.parameters.home.core_write_to_memory, Event::AtMemory(id));
            }
            Written::Overwritten | Written::Allocated => {
                self.leave_home(id);
                self.unused.push(id);
            }
        }
        self.credit_back(Domain::DeviceWrite, request.taken);
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
            if request.domain == Domain::DeviceWrite && self.cache.is_none() {
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
        let stream = self.traffic.cores.get(usize::from(request.core));
        let writes = stream.is_some_and(|stream| stream.writes);
        let runs = stream.is_none();
        self.core_credit_back(request, !writes);
        if runs {
            self.programs[usize::from(request.core) - self.cores.len()].arrives();
            self.run_program(request.core);
        }
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
        self.operations_before = self.operations();
        self.cache.iter_mut().for_each(|cache| cache.counters = CacheCounters::default());
        let now = self.now;
        self.nic().into_iter().for_each(|nic| nic.restart(now));
    }

    fn operations(&self) -> u64 {
        self.programs.iter().map(|program| program.operations).sum()
    }

    fn nic(&mut self) -> Option<&mut Nic> {
        self.devices.as_mut()?.nic.as_mut()
    }

    fn finish(mut self) -> (HostReport, Trace) {
        let (now, time) = (self.now, self.time());
        self.controllers.iter_mut().for_each(|one| one.finish(now));
        self.nic().into_iter().for_each(|nic| nic.finish(now));
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
            operations: self.operations() - self.operations_before,
            cache: self.cache.as_ref().map_or(CacheCounters::default(), |cache| cache.counters),
            nic: self.nic().map(|nic| nic.counters),
        };
        let traced = |one: Controller| {
            let mut trace = one.trace.unwrap_or_default();
            trace.sort_by_key(|(at, _)| *at);
            trace
        };
        (report, self.controllers.into_iter().map(traced).collect())
    }
}
