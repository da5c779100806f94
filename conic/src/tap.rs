//! `conic tap`: the software NIC on a network interface of the kernel, and an application that answers.

use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use conic_fabric::{Address, Core, Time};
use conic_interface::burst::{HostQueue, Packet};
use conic_interface::ccnic::{Features, Geometry, Map, host_queue, nic_queue, prepare};
use conic_native::{Flag, Memory, NativeCore, Pages, pin};
use conic_nicd::SoftwareNic;
use conic_port::{Ipv4Address, MAX_FRAME, Port, Tap, TapOptions};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde_json::{Map as Object, Value, json};
use smoltcp::wire::EthernetAddress;

use crate::bench::common::nanoseconds;
use crate::responder::{self, ECHO_PORT, Responder};
use crate::value::{Cores, grouped, span};

/// How long a side without work spins before it sleeps: longer than the other side takes to answer.
const SPIN: Time = Time::from_nanoseconds(100_000);

/// How long the NIC waits for an application that takes no frames. The kernel's queue stands behind the interface, and
/// waking a thread on a busy machine can take tens of milliseconds.
const PATIENCE: Time = Time::from_nanoseconds(1_000_000_000);

/// How long the application sleeps at most; the NIC wakes it when there is a frame.
const SLEEP: Duration = Duration::from_millis(500);

const SECOND: Time = Time::from_nanoseconds(1_000_000_000);

/// Make a network interface with an application behind it that answers ping and UDP echo.
///
/// The kernel's frames go from the TAP interface through the software NIC and the ccnic interface to the application, in a
/// thread of its own, and its answers the same way back. Needs CAP_NET_ADMIN, or an interface that has been made for you.
/// Neither thread burns a core while nothing happens.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The interface's name
    #[arg(long, default_value = "conic0")]
    name: String,
    /// The kernel's address on it; the application has the next one, or the one before where there is none behind it
    #[arg(long, default_value = "10.9.0.1/24", value_parser = address, value_name = "ADDRESS/PREFIX")]
    address: Ipv4Address,
    /// The application's hardware address
    #[arg(long, default_value = "02:c0:1c:00:00:02", value_parser = hardware_address)]
    mac: EthernetAddress,
    /// The longest packet, in bytes without the Ethernet header: up to 9586
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    mtu: usize,
    /// How long to run, such as 10s; without it, until interrupted
    #[arg(long, value_name = "TIME", value_parser = span)]
    duration: Option<Time>,
    /// The interface's switches, such as paper or best,no-inline-payload
    #[arg(long, default_value = "best")]
    features: Features,
    /// The cores of the application and of the NIC; without it, wherever the kernel puts them
    #[arg(long, value_name = "APP,NIC")]
    cores: Option<Cores>,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  sudo conic tap                                     then: ping 10.9.0.2
  sudo conic tap --duration 60s --json               for a minute, with what passed at the end
  sudo conic tap --name lab0 --address 10.8.0.1/24   another interface: ping 10.8.0.2";

fn address(text: &str) -> Result<Ipv4Address, String> {
    let address: Ipv4Address = text.parse()?;
    match application_address(address) {
        Some(_) => Ok(address),
        None => Err("there is no address for the application beside it: give a prefix of at most 30".to_owned()),
    }
}

/// The address after the kernel's; the one before it where that is none for a host.
fn application_address(kernel: Ipv4Address) -> Option<Ipv4Addr> {
    let (own, mask) = (kernel.address().to_bits(), kernel.mask().to_bits());
    let is_host = |bits: &u32| bits & mask == own & mask && bits & !mask != 0 && bits & !mask != !mask;
    let beside = [own.wrapping_add(1), own.wrapping_sub(1)];
    beside.into_iter().filter(|_| is_host(&own)).find(is_host).map(Ipv4Addr::from_bits)
}

fn hardware_address(text: &str) -> Result<EthernetAddress, String> {
    match text.parse::<EthernetAddress>() {
        Ok(address) if address.is_unicast() => Ok(address),
        _ => Err("give a unicast address such as 02:c0:1c:00:00:02".to_owned()),
    }
}

/// Runs the interface until its time is over or it is interrupted.
///
/// # Errors
///
/// The interface cannot be made, is removed, or the machine refuses memory or cores.
pub fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let application = application_address(options.address).ok_or("there is no address for the application")?;
    let name = Some(options.name.clone());
    let settings = TapOptions { name, mtu: Some(options.mtu), address: Some(options.address), ..TapOptions::default() };
    let tap = TapOptions { up: true, ..settings };
    let tap = Tap::open(&tap)?;
    let stop = Arc::new(Flag::new());
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (raised, rung) = (stop.clone(), bell.clone());
    ctrlc::set_handler(move || {
        raised.raise();
        ring(&rung);
    })?;
    let responder = Responder::new(options.mac, application);
    if !options.json {
        print_welcome(options, &tap, application, &responder);
    }
    let map = Map::new(Geometry { buffers: [2048, 512, 256], ..Geometry::default() }, options.features)?;
    let memory = Memory::create(&map.layout, Pages::HugeIfAvailable)?;
    prepare(&NativeCore::new(&memory), &map);
    serve(&map, &memory, tap, responder, &Shared { stop, bell }, options)?;
    Ok(ExitCode::SUCCESS)
}

fn print_welcome(options: &Options, tap: &Tap, application: Ipv4Addr, responder: &Responder) {
    let kernel = options.address.address();
    println!("{} is up: the kernel has {kernel}, the application behind ccnic has {application}", tap.name());
    println!("  try:  ping {application}");
    println!("        ping {}%{}", responder.ipv6(), tap.name());
    println!("        echo hello | nc -u -w1 {application} {ECHO_PORT}");
    match options.duration {
        Some(duration) => {
            println!("It ends after {}, or with Ctrl-C.", nanoseconds(duration.nanoseconds() as f64));
        }
        None => println!("Ctrl-C ends it."),
    }
}

/// What the two threads share beside the interface.
struct Shared {
    stop: Arc<Flag>,
    /// Wakes the NIC, which sleeps on it and on the TAP interface.
    bell: Arc<OwnedFd>,
}

/// Wakes the NIC.
fn ring(bell: &OwnedFd) {
    // A bell that has rung too often to count is as good as one that rings.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn serve(
    map: &Map,
    memory: &Memory,
    tap: Tap,
    responder: Responder,
    shared: &Shared,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let wire = nic_queue(NativeCore::new(memory), map, 0);
    let working = conic_nicd::Options { patience: PATIENCE, ..conic_nicd::Options::default() };
    let mut nic = SoftwareNic::new(tap, [wire], working);
    let (result, served) = std::thread::scope(|scope| {
        let application = scope.spawn(|| {
            let bound = options.cores.map_or(Ok(()), |cores| pin(cores.application));
            let host = host_queue(NativeCore::new(memory), map, 0);
            (bound, Application::new(host, responder).run(shared))
        });
        let bound = options.cores.map_or(Ok(()), |cores| pin(cores.nic)).map_err(Into::into);
        let driven =
            bound.and_then(|()| drive(&mut nic, &NativeCore::new(memory), application.thread(), shared, options));
        shared.stop.raise();
        application.thread().unpark();
        let (bound, served) = application.join().expect("the application thread answers whatever it gets");
        (driven.and(bound.map_err(Into::into)), served)
    });
    if options.json && result.is_ok() {
        println!("{}", summary(&nic, &served));
    } else if !options.json {
        print_summary(&nic, &served);
    }
    result
}

/// The NIC's thread: moves frames while there are any, then sleeps until the kernel or the application has one.
fn drive(
    nic: &mut SoftwareNic<impl conic_interface::burst::NicQueue, Tap>,
    core: &NativeCore<'_>,
    application: &Thread,
    shared: &Shared,
    options: &Options,
) -> Result<(), Box<dyn Error>> {
    let begun = core.now();
    let end = options.duration.map_or(Time::NEVER, |duration| begun + duration);
    let mut active = begun;
    let mut seconds = Seconds::new(begun);
    while !shared.stop.is_up() {
        let now = core.now();
        if now >= end {
            break;
        }
        let step = nic.step(now)?;
        if step.received > 0 {
            application.unpark();
        }
        if !options.json {
            seconds.show(now, nic);
        }
        if !step.is_idle() {
            active = now;
        } else if now.since(active) < SPIN || nic.next_due().is_some() {
            core.spin();
        } else {
            sleep(nic.port(), shared, seconds.next.min(end).since(now))?;
        }
    }
    Ok(())
}

/// Sleeps until the kernel has sent something, the application has, or the time is over.
fn sleep(tap: &Tap, shared: &Shared, most: Time) -> io::Result<()> {
    let timeout = Duration::from_nanos(most.nanoseconds());
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    let mut waited = [PollFd::new(tap, PollFlags::IN), PollFd::from_borrowed_fd(shared.bell.as_fd(), PollFlags::IN)];
    match poll(&mut waited, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    // Nothing to read is as good as silence.
    let _ = rustix::io::read(&shared.bell, &mut [0; 8]);
    Ok(())
}

/// Shows the counters of each second in which something moved.
struct Seconds {
    begun: Time,
    next: Time,
    before: conic_nicd::Counters,
}

impl Seconds {
    fn new(begun: Time) -> Seconds {
        Seconds { begun, next: begun + SECOND, before: conic_nicd::Counters::default() }
    }

    fn show(&mut self, now: Time, nic: &SoftwareNic<impl conic_interface::burst::NicQueue, Tap>) {
        if now < self.next {
            return;
        }
        let counters = nic.counters();
        if counters != self.before {
            println!(
                "{:5.0} s  received {} frames, {} bytes; sent {} frames, {} bytes; dropped {}",
                now.since(self.begun).seconds(),
                grouped(counters.received_frames - self.before.received_frames),
                grouped(counters.received_bytes - self.before.received_bytes),
                grouped(counters.transmitted_frames - self.before.transmitted_frames),
                grouped(counters.transmitted_bytes - self.before.transmitted_bytes),
                grouped(counters.dropped() - self.before.dropped()),
            );
        }
        self.before = counters;
        while self.next <= now {
            self.next += SECOND;
        }
    }
}

/// What the application did.
struct Served {
    responder: responder::Counters,
    /// Answers that were not sent because there was no buffer for them.
    no_buffer: u64,
}

/// The application's thread.
struct Application<Q> {
    queue: Q,
    responder: Responder,
    no_buffer: u64,
    request: Box<[u8; MAX_FRAME]>,
    reply: Box<[u8; MAX_FRAME]>,
}

impl<Q: HostQueue> Application<Q> {
    fn new(queue: Q, responder: Responder) -> Application<Q> {
        Application {
            queue,
            responder,
            no_buffer: 0,
            request: Box::new([0; MAX_FRAME]),
            reply: Box::new([0; MAX_FRAME]),
        }
    }

    /// Answers until it is told to stop.
    fn run(mut self, shared: &Shared) -> Served {
        let mut packets = [Packet::BLANK; 32];
        let mut active = self.queue.core().now();
        while !shared.stop.is_up() {
            let count = self.queue.rx_burst(&mut packets);
            if count > 0 {
                let answers = packets[..count].iter().filter(|packet| self.answer(packet, &shared.stop)).count();
                if answers > 0 {
                    ring(&shared.bell);
                }
                active = self.queue.core().now();
            } else if self.queue.core().now().since(active) < SPIN {
                self.queue.core().spin();
            } else {
                // The NIC wakes this thread after each delivery; what was delivered before is seen by the next round.
                std::thread::park_timeout(SLEEP);
                active = self.queue.core().now();
            }
        }
        Served { responder: self.responder.counters(), no_buffer: self.no_buffer }
    }

    /// Answers one frame, frees it, and says whether there was an answer.
    fn answer(&mut self, packet: &Packet, stop: &Flag) -> bool {
        let request = &mut self.request[..usize::from(packet.length())];
        self.queue.core().read_bytes(packet.address(), request);
        // Freed before the answer's buffer is allocated, which is then likely to be the same, with its lines at hand.
        self.queue.buf_free(&[packet.address()]);
        let Some(length) = self.responder.answer(request, &mut self.reply[..]) else { return false };
        let mut buffer = [Address(0)];
        if self.queue.buf_alloc(length as u64, &mut buffer) == 0 {
            self.no_buffer += 1;
            return false;
        }
        self.queue.core().write_bytes(buffer[0], &self.reply[..length]);
        let answer = [Packet::new(buffer[0], length as u16)];
        // A full ring is emptied by the NIC, which is awake: it has just delivered this.
        while self.queue.tx_burst(&answer) == 0 && !stop.is_up() {
            self.queue.core().spin();
        }
        true
    }
}

/// What passed, for programs.
fn summary(nic: &SoftwareNic<impl conic_interface::burst::NicQueue, Tap>, served: &Served) -> Value {
    let object = |counters: &[(&str, u64)]| -> Object<String, Value> {
        counters.iter().map(|(name, count)| ((*name).to_owned(), (*count).into())).collect()
    };
    json!({
        "schema": "conic.tap/1",
        "interface": object(&nic.port().counters().named()),
        "nic": object(&nic.counters().named()),
        "application": object(&served.responder.named()),
        "answers_without_buffer": served.no_buffer,
    })
}

fn print_summary(nic: &SoftwareNic<impl conic_interface::burst::NicQueue, Tap>, served: &Served) {
    let list = |counters: &[(&str, u64)]| {
        let seen: Vec<String> =
            counters.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        if seen.is_empty() { "nothing".to_owned() } else { seen.join(", ") }
    };
    println!("interface    {}", list(&nic.port().counters().named()));
    println!("NIC          {}", list(&nic.counters().named()));
    println!("application  {}", list(&served.responder.named()));
    if served.no_buffer > 0 {
        println!("             {} answers not sent for want of a buffer", served.no_buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_application_has_the_address_beside_the_kernels() {
        let beside =
            |text: &str| application_address(text.parse().expect("an address")).map(|address| address.to_string());
        assert_eq!(beside("10.9.0.1/24").as_deref(), Some("10.9.0.2"));
        assert_eq!(beside("10.9.0.254/24").as_deref(), Some("10.9.0.253"));
        assert_eq!(beside("10.9.0.1/30").as_deref(), Some("10.9.0.2"));
        for none in ["10.9.0.1/31", "10.9.0.1/32", "10.9.0.0/24", "10.9.0.255/24", "255.255.255.255/0"] {
            assert_eq!(beside(none), None, "{none}");
        }
    }
}
