//! The kinds of ports that have a text, and what their arguments mean.

use std::path::PathBuf;

use super::Kind;
use super::arguments::{Arguments, Grammar};
use crate::{
    DpdkOptions, Impairment, Ipv4Address, Loops, MemifOptions, Pace, PacketOptions, Rate, Replay, Role, Speed,
    TapOptions, VhostOptions, XdpOptions,
};

pub(super) const SYNTAX: &str = "\
loopback[:frames=256]
tap[:NAME][,mtu=BYTES][,address=ADDRESS/PREFIX][,queues=1][,offload][,down]
af-packet:INTERFACE[,frames=256][,queues=1][,offload][,traffic-control][,not-promiscuous]
af-xdp:INTERFACE[,queue=0][,queues=1][,frames=1024][,mode=auto|zero-copy|copy][,generic]
       [,complete-checksums][,forward=user|kernel]
memif:SOCKET|@ABSTRACT[,role=server|client][,id=0][,secret=TEXT][,queues=1][,slots=1024]
       [,buffer=2048][,memory=MIB][,unsealed][,any-user]
vhost-user:SOCKET|@ABSTRACT[,role=server|client][,queues=1][,offload][,memory=MIB][,unsealed]
       [,any-user]
virtio-user:SOCKET|@ABSTRACT[,role=client|server][,queues=1][,slots=256][,offload][,any-user]
dpdk:DEVICE[;KEY=VALUE...][,queues=1][,frames=1024][,memory=MB][,huge]
capture:[replay=FILE][,record=FILE][,pace=SPEED][,forever]
impair:[loss=1%][,duplicate=1%][,reorder=1%][,reorder-by=1ms][,corrupt=1%][,delay=1ms]
       [,jitter=100us][,rate=1G][,limit=FRAMES][,direction=receive|transmit|both][,seed=1]+PORT";

const LOOPBACK: Grammar = Grammar { first: "", optional: true, keys: &["frames"], switches: &[] };
const TAP: Grammar = Grammar {
    first: "the interface's name",
    optional: true,
    keys: &["mtu", "address", "queues"],
    switches: &["offload", "down"],
};
const PACKET: Grammar = Grammar {
    first: "the interface's name",
    optional: false,
    keys: &["frames", "queues"],
    switches: &["offload", "traffic-control", "not-promiscuous"],
};
const XDP: Grammar = Grammar {
    first: "the interface's name",
    optional: false,
    keys: &["queue", "queues", "frames", "mode", "forward"],
    switches: &["generic", "complete-checksums"],
};
const MEMIF: Grammar = Grammar {
    first: "the socket's path",
    optional: false,
    keys: &["role", "id", "secret", "queues", "slots", "buffer", "memory"],
    switches: &["unsealed", "any-user"],
};
const VHOST: Grammar = Grammar {
    first: "the socket's path",
    optional: false,
    keys: &["role", "queues", "memory"],
    switches: &["offload", "unsealed", "any-user"],
};
const VIRTIO: Grammar = Grammar {
    first: "the socket's path",
    optional: false,
    keys: &["role", "queues", "slots"],
    switches: &["offload", "any-user"],
};
const DPDK: Grammar = Grammar {
    first: "the device, as DPDK names it, with ';' for ','",
    optional: false,
    keys: &["queues", "frames", "memory"],
    switches: &["huge"],
};
const CAPTURE: Grammar =
    Grammar { first: "", optional: true, keys: &["replay", "record", "pace"], switches: &["forever"] };
pub(super) const IMPAIR: Grammar = Grammar {
    first: "",
    optional: true,
    keys: &[
        "loss",
        "duplicate",
        "reorder",
        "reorder-by",
        "corrupt",
        "delay",
        "jitter",
        "rate",
        "limit",
        "direction",
        "seed",
    ],
    switches: &[],
};

/// Those of all kinds.
#[cfg(test)]
pub(super) const GRAMMARS: [&Grammar; 10] =
    [&LOOPBACK, &TAP, &PACKET, &XDP, &MEMIF, &VHOST, &VIRTIO, &DPDK, &CAPTURE, &IMPAIR];

/// A port of any kind but `impair`.
pub(super) fn read(name: &str, rest: &str) -> Result<Kind, String> {
    match name {
        "loopback" => {
            let given = Arguments::read(rest, &LOOPBACK)?;
            Ok(Kind::Loopback { frames: given.number("frames", 1, 65_536)?.unwrap_or(256) as usize })
        }
        "tap" => Ok(Kind::Tap(tap(&Arguments::read(rest, &TAP)?)?)),
        "af-packet" => Ok(Kind::Packet(packet(&Arguments::read(rest, &PACKET)?)?)),
        "af-xdp" => Ok(Kind::Xdp(xdp(&Arguments::read(rest, &XDP)?)?)),
        "memif" => Ok(Kind::Memif(memif(&Arguments::read(rest, &MEMIF)?)?)),
        "vhost-user" => Ok(Kind::Vhost(vhost(&Arguments::read(rest, &VHOST)?)?)),
        "virtio-user" => Ok(Kind::Virtio(virtio(&Arguments::read(rest, &VIRTIO)?)?)),
        "dpdk" => Ok(Kind::Dpdk(dpdk(rest)?)),
        "capture" => capture(&Arguments::read(rest, &CAPTURE)?),
        _ => Err(format!("'{name}' is no kind of port; write one of:\n{SYNTAX}")),
    }
}

fn tap(given: &Arguments<'_>) -> Result<TapOptions, String> {
    Ok(TapOptions {
        name: given.first.map(str::to_owned),
        mtu: given.number("mtu", 68, 9586)?.map(|mtu| mtu as usize),
        address: given.value::<Ipv4Address>("address")?,
        up: !given.has("down"),
        queues: given.number("queues", 1, 256)?.unwrap_or(1) as usize,
        offload: given.has("offload"),
    })
}

fn packet(given: &Arguments<'_>) -> Result<PacketOptions, String> {
    let options = PacketOptions::new(given.first.unwrap_or_default());
    Ok(PacketOptions {
        frames: given.power_of_two("frames", 16, 16_384)?.map_or(options.frames, |frames| frames as usize),
        queues: given.number("queues", 1, 64)?.unwrap_or(1) as usize,
        promiscuous: !given.has("not-promiscuous"),
        traffic_control: given.has("traffic-control"),
        offload: given.has("offload"),
        ..options
    })
}

fn xdp(given: &Arguments<'_>) -> Result<XdpOptions, String> {
    let options = XdpOptions::new(given.first.unwrap_or_default());
    Ok(XdpOptions {
        queue: given.number("queue", 0, 1023)?.unwrap_or(0) as u32,
        queues: given.number("queues", 1, 64)?.unwrap_or(1) as usize,
        frames: given.power_of_two("frames", 64, 16_384)?.map_or(options.frames, |frames| frames as usize),
        mode: given.value("mode")?.unwrap_or_default(),
        generic: given.has("generic"),
        complete_checksums: given.has("complete-checksums"),
        forward: given.value("forward")?.unwrap_or_default(),
        ..options
    })
}

fn memif(given: &Arguments<'_>) -> Result<MemifOptions, String> {
    let options = MemifOptions::new(given.first.unwrap_or_default());
    let secret = given.text("secret").map(str::to_owned);
    if secret.as_ref().is_some_and(|secret| secret.is_empty() || secret.len() > 23) {
        // Its field has 24, and others take it for a text that ends there: they cut it, or find none equal.
        return Err("a secret has 1 to 23 bytes".to_owned());
    }
    // Beyond these a client's region would have offsets of more than 32 bits.
    let slots = given.power_of_two("slots", 2, 16_384)?.unwrap_or(1024);
    let buffer_bytes = given.number("buffer", 64, 16_384)?.unwrap_or(2048) as u32;
    let queues = given.number("queues", 1, 16)?.unwrap_or(1);
    if 2 * queues * slots * u64::from(buffer_bytes) > 1 << 31 {
        return Err("queues, slots and buffer ask for more than 2 GiB: give less of one".to_owned());
    }
    Ok(MemifOptions {
        role: given.value("role")?.unwrap_or_default(),
        id: given.number("id", 0, u64::from(u32::MAX))?.unwrap_or(0) as u32,
        secret,
        queues: queues as usize,
        log2_slots: slots.trailing_zeros() as u8,
        buffer_bytes: buffer_bytes / 64 * 64,
        most_bytes: given.number("memory", 1, 1 << 20)?.map_or(options.most_bytes, |mebibytes| mebibytes << 20),
        unsealed: given.has("unsealed"),
        any_user: given.has("any-user"),
        ..options
    })
}

fn vhost(given: &Arguments<'_>) -> Result<VhostOptions, String> {
    let options = VhostOptions::new(given.first.unwrap_or_default());
    Ok(VhostOptions {
        role: given.value("role")?.unwrap_or_default(),
        queues: given.number("queues", 1, 16)?.unwrap_or(1) as usize,
        offload: given.has("offload"),
        most_bytes: given.number("memory", 1, 1 << 24)?.map_or(options.most_bytes, |mebibytes| mebibytes << 20),
        unsealed: given.has("unsealed"),
        any_user: given.has("any-user"),
        ..options
    })
}

fn virtio(given: &Arguments<'_>) -> Result<VhostOptions, String> {
    Ok(VhostOptions {
        role: given.value("role")?.unwrap_or(Role::Client),
        queues: given.number("queues", 1, 16)?.unwrap_or(1) as usize,
        log2_slots: given.power_of_two("slots", 64, 4096)?.unwrap_or(256).trailing_zeros() as u8,
        offload: given.has("offload"),
        any_user: given.has("any-user"),
        ..VhostOptions::new(given.first.unwrap_or_default())
    })
}

fn dpdk(rest: &str) -> Result<DpdkOptions, String> {
    // The device's own arguments have keys and values too: it is told apart before the rest is read.
    let (device, rest) = rest.split_once(',').unwrap_or((rest, ""));
    if device.is_empty() {
        return Err(format!("give {} behind the colon", DPDK.first));
    }
    let given = Arguments::read(rest, &Grammar { first: "", optional: true, ..DPDK })?;
    let options = DpdkOptions::new(&device.replace(';', ","));
    Ok(DpdkOptions {
        queues: given.number("queues", 1, 64)?.unwrap_or(1) as usize,
        frames: given.power_of_two("frames", 64, 16_384)?.map_or(options.frames, |frames| frames as usize),
        megabytes: given.number("memory", 64, 65_536)?.map_or(options.megabytes, |megabytes| megabytes as usize),
        huge_pages: given.has("huge"),
        ..options
    })
}

fn capture(given: &Arguments<'_>) -> Result<Kind, String> {
    let record = given.text("record").map(PathBuf::from);
    let speed = given.value::<Speed>("pace")?;
    let options = Replay {
        pace: speed.map_or(Pace::AsFastAsPossible, Pace::Recorded),
        loops: if given.has("forever") { Loops::Forever } else { Loops::ONCE },
        ..Replay::default()
    };
    match (given.text("replay"), record) {
        (Some(file), record) => Ok(Kind::Replay { file: file.into(), options, record }),
        (None, None) => Err("give replay=FILE, record=FILE or both".to_owned()),
        (None, Some(_)) if speed.is_some() || given.has("forever") => {
            Err("pace= and forever are for a file to replay: give replay=FILE".to_owned())
        }
        (None, Some(file)) => Ok(Kind::Record { file }),
    }
}

pub(super) fn impairment(given: &Arguments<'_>) -> Result<Impairment, String> {
    let none = Impairment::NONE;
    Ok(Impairment {
        seed: given.number("seed", 0, u64::MAX)?.unwrap_or(none.seed),
        loss: given.value("loss")?.unwrap_or(none.loss),
        duplicate: given.value("duplicate")?.unwrap_or(none.duplicate),
        reorder: given.value("reorder")?.unwrap_or(none.reorder),
        reorder_by: given.time("reorder-by")?.unwrap_or(none.reorder_by),
        corrupt: given.value("corrupt")?.unwrap_or(none.corrupt),
        delay: given.time("delay")?.unwrap_or(none.delay),
        jitter: given.time("jitter")?.unwrap_or(none.jitter),
        rate: given.value::<Rate>("rate")?,
        limit: given.number("limit", 1, Impairment::MOST as u64)?.map_or(none.limit, |limit| limit as usize),
        direction: given.value("direction")?.unwrap_or_default(),
    })
}
