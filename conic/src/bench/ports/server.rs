//! What is measured: a process that carries frames, or the kernel's bridge, and the interfaces that it works on.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use conic_port::{
    MAX_FRAME, Memif, MemifOptions, PacketOptions, PacketSocket, Port, PortError, Role, VhostOptions, VhostUser,
    VirtioUser, set_receive_offload,
};

use super::client::Ends;
use crate::bench::failure::Failure;
use crate::bench::temporary::{Folder, Program};

/// What contestants are compared within.
pub const GROUPS: [&str; 7] = ["memif", "two-memif", "vhost", "virtio", "packet", "xdp", "tap"];

/// How a contestant is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `conic bridge`, with these ports.
    Conic(&'static [&'static str]),
    /// `conic nic`, with these ports, through whose switch frames go.
    Switch(&'static [&'static str]),
    /// `conic nic`, with these ports, between which the kernel forwards.
    Kernel(&'static [&'static str]),
    /// `dpdk-testpmd`, with these devices, in this mode of forwarding.
    Dpdk(&'static [&'static str], &'static str),
    /// A bridge of the kernel.
    Bridge,
}

/// A contestant.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub group: &'static str,
    kind: Kind,
    /// Which of conic's it is compared with.
    pub against: &'static [&'static str],
}

impl Contestant {
    /// Whether it is one of ours.
    pub fn is_conic(&self) -> bool {
        matches!(self.kind, Kind::Conic(_) | Kind::Switch(_) | Kind::Kernel(_))
    }
}

const fn conic(name: &'static str, group: &'static str, ports: &'static [&'static str]) -> Contestant {
    Contestant { name, group, kind: Kind::Conic(ports), against: &[] }
}

const fn dpdk(
    name: &'static str,
    group: &'static str,
    against: &'static [&'static str],
    devices: &'static [&'static str],
    mode: &'static str,
) -> Contestant {
    Contestant { name, group, kind: Kind::Dpdk(devices, mode), against }
}

/// Those whose frames the kernel forwards, at either hook.
const IN_DRIVER: &str = "conic kernel, driver";
const IN_STACK: &str = "conic kernel, stack";

const fn kernel(name: &'static str, ports: &'static [&'static str]) -> Contestant {
    Contestant { name, group: "xdp", kind: Kind::Kernel(ports), against: &["conic af-xdp"] }
}

const fn switch(name: &'static str, group: &'static str, ports: &'static [&'static str]) -> Contestant {
    Contestant { name, group, kind: Kind::Switch(ports), against: &[] }
}

/// All contestants; in texts, `SOCKET` stands for the path of a socket, and with what is behind it for that of another.
pub const CONTESTANTS: [Contestant; 21] = [
    conic("conic memif", "memif", &["memif:SOCKET"]),
    dpdk(
        "DPDK net_memif",
        "memif",
        &["conic memif"],
        &["net_memif0,role=server,id=0,socket=SOCKET,socket-abstract=no"],
        "macswap",
    ),
    conic("conic two memif", "two-memif", &["memif:SOCKET", "memif:SOCKET-b"]),
    switch("conic nic, memif", "two-memif", &["memif:SOCKET", "memif:SOCKET-b"]),
    dpdk(
        "DPDK two net_memif",
        "two-memif",
        &["conic two memif", "conic nic, memif"],
        &[
            "net_memif0,role=server,id=0,socket=SOCKET,socket-abstract=no",
            "net_memif1,role=server,id=0,socket=SOCKET-b,socket-abstract=no",
        ],
        "io",
    ),
    // Both sides of vhost-user: the client is the driver's half in front of the one, the device's in front of the other.
    conic("conic vhost-user", "vhost", &["vhost-user:SOCKET"]),
    dpdk("DPDK net_vhost", "vhost", &["conic vhost-user"], &["net_vhost0,iface=SOCKET"], "macswap"),
    conic("conic virtio-user", "virtio", &["virtio-user:SOCKET"]),
    dpdk("DPDK net_virtio_user", "virtio", &["conic virtio-user"], &["net_virtio_user0,path=SOCKET"], "macswap"),
    conic("conic af-packet", "packet", &["af-packet:a1", "af-packet:b1"]),
    switch("conic nic, af-packet", "packet", &["af-packet:a1", "af-packet:b1"]),
    dpdk(
        "DPDK net_af_packet",
        "packet",
        &["conic af-packet", "conic nic, af-packet"],
        &["net_af_packet0,iface=a1", "net_af_packet1,iface=b1"],
        "io",
    ),
    conic("conic af-xdp", "xdp", &["af-xdp:a1", "af-xdp:b1"]),
    switch("conic nic, af-xdp", "xdp", &["af-xdp:a1", "af-xdp:b1"]),
    kernel(IN_DRIVER, &["af-xdp:a1,forward=kernel", "af-xdp:b1,forward=kernel"]),
    kernel(IN_STACK, &["af-xdp:a1,generic,forward=kernel", "af-xdp:b1,generic,forward=kernel"]),
    dpdk(
        "DPDK net_af_xdp",
        "xdp",
        &["conic af-xdp", "conic nic, af-xdp"],
        &["net_af_xdp0,iface=a1", "net_af_xdp1,iface=b1"],
        "io",
    ),
    Contestant {
        name: "kernel bridge",
        group: "xdp",
        kind: Kind::Bridge,
        against: &["conic af-xdp", "conic nic, af-xdp", IN_DRIVER, IN_STACK],
    },
    conic("conic tap", "tap", &["tap:a0", "tap:b0"]),
    switch("conic nic, tap", "tap", &["tap:a0", "tap:b0"]),
    dpdk("DPDK net_tap", "tap", &["conic tap", "conic nic, tap"], &["net_tap0,iface=a0", "net_tap1,iface=b0"], "io"),
];

/// A network namespace of this thread alone, and a folder for sockets.
pub struct Ground {
    folder: Folder,
}

impl Ground {
    /// Puts this thread into a new namespace.
    ///
    /// # Errors
    ///
    /// Without the right to, or without a folder for temporary files.
    pub fn new() -> Result<Ground, Failure> {
        // SAFETY: only this thread's view of the network changes; no descriptor of others depends on it.
        let entered = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) };
        entered.map_err(|error| {
            Failure::failed(format!("making a network namespace needs root ({error}): run with sudo"))
        })?;
        // Without IPv6 nothing sends on the interfaces by itself.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        Ok(Ground { folder: Folder::new("conic-bench-ports")? })
    }

    /// The path that stands for `SOCKET`.
    fn socket(&self) -> String {
        self.folder.join("socket").display().to_string()
    }

    /// The path that stands for `SOCKET-b`.
    fn second_socket(&self) -> String {
        format!("{}-b", self.socket())
    }
}

/// This program again, with these arguments and ports.
fn conic_command(ground: &Ground, arguments: &[&str], ports: &[&str]) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    for port in ports {
        command.args(["--port", &port.replace("SOCKET", &ground.socket())]);
    }
    Ok(command)
}

fn ip(line: &str) -> Result<(), Failure> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|error| Failure::missing(format!("the command ip is needed ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::failed(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// A contestant at work; it and its interfaces go when it is dropped.
pub struct Server {
    child: Option<Program>,
    group: &'static str,
    /// The client's port, where it must be there before the process.
    waiting: Option<VhostUser>,
}

impl Server {
    /// Makes the interfaces and starts the process, and waits until that carries frames.
    ///
    /// # Errors
    ///
    /// The program is missing or does not start.
    pub fn start(ground: &Ground, contestant: &Contestant, cores: (usize, usize)) -> Result<Server, Failure> {
        let mut server = Server { child: None, group: contestant.group, waiting: None };
        if matches!(contestant.group, "packet" | "xdp") {
            for end in ["a", "b"] {
                ip(&format!("link add {end}0 type veth peer name {end}1"))?;
                ip(&format!("link set {end}0 up"))?;
                ip(&format!("link set {end}1 up"))?;
                if let Kind::Kernel(_) = contestant.kind {
                    // Else the other end takes nothing that a program redirects to it.
                    let offload = set_receive_offload(&format!("{end}0"), true);
                    offload.map_err(|error| Failure::failed(format!("generic receive offload on {end}0: {error}")))?;
                }
            }
        }
        // A server that was killed leaves its socket behind.
        for left in [ground.socket(), ground.second_socket()] {
            let _ = std::fs::remove_file(left);
        }
        if contestant.group == "virtio" {
            // DPDK's memory is not sealed.
            let options = VhostOptions { unsealed: true, ..VhostOptions::new(&ground.socket()) };
            server.waiting = Some(VhostUser::open(&options).map_err(|error| Failure::failed(error.to_string()))?);
        }
        match contestant.kind {
            Kind::Bridge => {
                ip("link add br0 type bridge")?;
                ip("link set a1 master br0")?;
                ip("link set b1 master br0")?;
                ip("link set br0 up")?;
            }
            Kind::Conic(ports) => {
                let core = cores.1.to_string();
                let command = conic_command(ground, &["bridge", "--spin", "--core", &core], ports)?;
                server.child = Some(begin(command, "Ctrl-C ends it")?);
            }
            Kind::Switch(ports) => server.child = Some(begin_nic(ground, cores.1, "spin", ports)?),
            Kind::Kernel(ports) => server.child = Some(begin_nic(ground, cores.1, "adaptive", ports)?),
            Kind::Dpdk(devices, mode) => {
                let mut command = Command::new("dpdk-testpmd");
                let list = format!("{},{}", cores.0, cores.1);
                command.args(["-l", &list, "--no-pci", "--no-huge", "--no-shconf", "--no-telemetry", "-m", "512"]);
                for device in devices {
                    command.arg(format!("--vdev={}", device.replace("SOCKET", &ground.socket())));
                }
                let mode = format!("--forward-mode={mode}");
                command.args(["--", "--total-num-mbufs=16384", &mode, "--auto-start", "--no-lsc-interrupt"]);
                command.args(["--no-flush-rx", "--stats-period=3600"]).env("XDG_RUNTIME_DIR", &*ground.folder);
                server.child = Some(server.attended(|| begin(command, "packet forwarding"))?);
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        Ok(server)
    }

    /// Does something while the client's port, where there is one already, answers what is asked.
    fn attended<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> T {
        let Some(port) = &mut self.waiting else { return work() };
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                // What is wrong shows when it does not come up.
                let _ = port.receive(conic_native::clock::now(), &mut [0; MAX_FRAME]);
                std::thread::sleep(Duration::from_millis(1));
            }
            working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The client's side.
    ///
    /// # Errors
    ///
    /// A port of the client cannot be opened.
    pub fn client_ends(&mut self, ground: &Ground) -> Result<Ends, Failure> {
        let failed = |error: PortError| Failure::failed(error.to_string());
        let socket = ground.socket();
        let memif = |socket: &str| {
            let options = MemifOptions { role: Role::Client, ..MemifOptions::new(socket) };
            joined(Memif::open(&options).map_err(failed)?)
        };
        if self.group == "two-memif" {
            return Ok(Ends { send: memif(&socket)?, receive: Some(memif(&ground.second_socket())?) });
        }
        let one = match self.group {
            "memif" => Some(memif(&socket)?),
            "vhost" => {
                let options = VhostOptions { role: Role::Client, ..VhostOptions::new(&socket) };
                Some(joined(VirtioUser::open(&options).map_err(failed)?)?)
            }
            _ => None,
        };
        if let Some(send) = one.or(self.waiting.take().map(joined).transpose()?) {
            return Ok(Ends { send, receive: None });
        }
        if self.group == "tap" {
            ip("link set a0 up")?;
            ip("link set b0 up")?;
        }
        let open = |interface| PacketSocket::open(&PacketOptions { frames: 1024, ..PacketOptions::new(interface) });
        let (send, receive) = (open("a0").map_err(failed)?, open("b0").map_err(failed)?);
        Ok(Ends { send: Box::new(send), receive: Some(Box::new(receive)) })
    }

    /// Refuses what was measured of a process that has ended meanwhile.
    ///
    /// # Errors
    ///
    /// It has.
    pub fn still_runs(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.child else { return Ok(()) };
        match child.has_ended() {
            Ok(false) => Ok(()),
            Ok(true) => Err(Failure::failed("it has ended while it was measured")),
            Err(error) => Err(Failure::failed(format!("whether it still runs: {error}"))),
        }
    }

    /// Seconds that the process has spent in user mode and in the kernel; zeros for the kernel's bridge, which works within others.
    pub fn spent(&self) -> (f64, f64) {
        let Some(child) = &self.child else { return (0.0, 0.0) };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        // Behind the name, which may hold anything: state, then 10 fields, then the two in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let seconds = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
        (seconds(11), seconds(12))
    }
}

/// Starts `conic nic` on a core, which waits in this way.
fn begin_nic(ground: &Ground, core: usize, wait: &str, ports: &[&str]) -> Result<Program, Failure> {
    let (core, socket) = (core.to_string(), ground.folder.join("nic").display().to_string());
    let arguments = ["nic", "--core", &core, "--wait", wait, "--socket", &socket];
    begin(conic_command(ground, &arguments, ports)?, "listening")
}

/// A port of the client's, as soon as somebody is at its other end.
fn joined(mut port: impl Port + 'static) -> Result<Box<dyn Port>, Failure> {
    let begun = conic_native::clock::now();
    while !port.is_up() {
        let now = conic_native::clock::now();
        port.receive(now, &mut [0; MAX_FRAME]).map_err(|error| Failure::failed(error.to_string()))?;
        if now.since(begun).seconds() > 10.0 {
            return Err(Failure::failed(format!("no connection: {}", port.description())));
        }
    }
    Ok(Box::new(port))
}

/// Starts a program and waits until it says that it has begun; all that it says later is thrown away.
fn begin(mut command: Command, sign: &str) -> Result<Program, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    // An open pipe as input: testpmd ends when its input does.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let missing = |error| Failure::missing(format!("{name} cannot be run: {error}"));
    let mut child = Program::start(command, missing)?;
    let errors = child.pipes().stderr.take();
    let errors = std::thread::spawn(move || {
        errors.map(|errors| BufReader::new(errors).lines().map_while(Result::ok).collect::<Vec<String>>())
    });
    let mut lines = child.pipes().stdout.take().map(|output| BufReader::new(output).lines().map_while(Result::ok));
    if lines.as_mut().is_some_and(|lines| lines.any(|line| line.contains(sign))) {
        std::thread::spawn(move || lines.into_iter().flatten().for_each(drop));
        return Ok(child);
    }
    // Its output has ended, so it has.
    let _ = child.wait();
    let said = errors.join().ok().flatten().unwrap_or_default();
    let last = said.iter().rev().find(|line| !line.trim().is_empty()).cloned().unwrap_or_default();
    Err(Failure::failed(format!("{name} has ended at once: {last}")))
}

impl Drop for Server {
    fn drop(&mut self) {
        // Before its interfaces.
        drop(self.child.take());
        // Some are not there, some go with the process.
        for interface in ["br0", "a0", "b0"] {
            let _ = ip(&format!("link delete {interface}"));
        }
    }
}
