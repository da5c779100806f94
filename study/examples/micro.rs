//! x
use conic_study::simulated::Simulator;
use conic_study::workload::*;
fn main() {
    for name in ["icx", "spr"] {
        let p = conic_sim::platform::Platform::load(name).unwrap().parameters().clone();
        for (h, w) in [
            (Holder::Memory, Home::Reader),
            (Holder::Memory, Home::Other),
            (Holder::NeighbourCore, Home::Reader),
            (Holder::OtherNodeCore, Home::Other),
            (Holder::OtherNodeCore, Home::Reader),
        ] {
            let o = Simulator
                .access_latency(&AccessLatency { machine: p.clone(), holder: h, home: w, accesses: 500, seed: 1 })
                .unwrap();
            println!("{name} {h:?} {w:?} {o:?}");
        }
        for l in [
            PingPongLayout::SeparateLines { node: 0 },
            PingPongLayout::SeparateLines { node: 1 },
            PingPongLayout::ReaderHomed,
            PingPongLayout::WriterHomed,
            PingPongLayout::OneLine { node: 0 },
            PingPongLayout::OneLine { node: 1 },
        ] {
            println!(
                "{name} {l:?} {:?}",
                Simulator.ping_pong(&PingPong { machine: p.clone(), layout: l, rounds: (20, 200), seed: 1 }).unwrap()
            );
        }
        let n = p.core.cores as usize;
        let o = Simulator.read_only(&ReadOnly { machine: p.clone(), threads: n, lines: (500, 3000), seed: 1 }).unwrap();
        println!("{name} read only {:.0} Gb/s {:?}", o.bits_per_second / 1e9, o.link_utilisation);
        for s in [StreamStores::Caching] {
            let t = std::time::Instant::now();
            let o = Simulator
                .stream(&Stream {
                    machine: p.clone(),
                    stores: s,
                    pairs: n,
                    chunk_bytes: 65536,
                    region_chunks: 4,
                    chunks: (4, 8),
                    seed: 1,
                })
                .unwrap();
            println!(
                "{name} stream {s:?} {:.0} Gb/s {:?} {:.1}s",
                o.bits_per_second / 1e9,
                o.link_utilisation,
                t.elapsed().as_secs_f64()
            );
        }
    }
}
