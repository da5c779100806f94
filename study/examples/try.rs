//! x
use conic_interface::ccnic::Features;
use conic_study::workload::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let name = &args[1];
    let threads: usize = args[2].parse().unwrap();
    let window: u64 = args[3].parse().unwrap();
    let interface = match args[4].as_str() {
        "ring" => Interface::UnoptimisedRing,
        f => Interface::CcNic(f.parse::<Features>().unwrap()),
    };
    let size: u16 = args.get(5).map_or(64, |s| s.parse().unwrap());
    let packets: u64 = args.get(6).map_or(2000, |s| s.parse().unwrap());
    let burst: usize = args.get(7).map_or(32, |s| s.parse().unwrap());
    let mut p = conic_sim::platform::Platform::load(name).unwrap().parameters().clone();
    if let Ok(w) = std::env::var("MHZ") {
        p.core.frequency_megahertz = w.parse().unwrap();
    }
    if let Ok(w) = std::env::var("WORK") {
        p.core.work_scale = w.parse().unwrap();
    }
    let q = Loopback {
        machine: p,
        interface,
        nic_place: NicPlace::Remote,
        threads,
        packet_size: size,
        window,
        transmit_burst: burst,
        receive_burst: burst,
        offered: None,
        prefetching: Prefetching { host: std::env::var("PF").is_ok(), nic: false },
        packets: (packets / 2, packets),
        seed: 1,
    };
    let t = std::time::Instant::now();
    let o = conic_study::simulated::loopback(&q).unwrap();
    let wall = t.elapsed().as_secs_f64();
    println!(
        "{:.1} Mpps {:.1} Gb/s p50 {:.0} min {:.0} p99 {:.0} nic {:.2}/{:.2} host {:.2}/{:.2} link {:.2} {:.2} bytes {:.0} {:.0} wrong {} | {} ops {} events {:.2} s: {:.1} Mops/s {:.1} Mev/s",
        o.packets_per_second / 1e6,
        o.bits_per_second / 1e9,
        o.median_nanoseconds,
        o.minimum_nanoseconds,
        o.p99_nanoseconds,
        o.nic.reads,
        o.nic.rfos,
        o.host.reads,
        o.host.rfos,
        o.link_utilisation[0],
        o.link_utilisation[1],
        o.link_bytes[0],
        o.link_bytes[1],
        o.wrong,
        o.operations,
        o.events,
        wall,
        o.operations as f64 / wall / 1e6,
        o.events as f64 / wall / 1e6
    );
}
