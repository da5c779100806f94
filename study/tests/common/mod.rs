//! A machine of simple formulas, for tests alone: what it answers can be worked out on paper.

use conic_interface::ccnic::{Features, Packing, Signal};
use conic_sim::Parameters;
use conic_sim::parameters::{
    CacheParameters, CoreParameters, InterconnectParameters, MemoryParameters, NicParameters, NodeParameters,
    PcieParameters, ProtocolParameters, UncoreParameters,
};
use conic_study::ask::Answers;
use conic_study::experiment::{Effort, Platforms, Setting};
use conic_study::workload::{
    AccessLatency, AccessOutcome, Application, Attention, BurstOutcome, Engines, Failure, Holder, Home, Interface,
    KeyValue, KeyValueOutcome, Loopback, LoopbackOutcome, Machine, NicPlace, PingPong, PingPongLayout, PingPongOutcome,
    Question, Reached, ReadOnly, ReadOnlyOutcome, RegisterOutcome, RegisterRead, RemoteAccesses, Serving, StoreBurst,
    StoreTarget, StoreThroughput, Stream, StreamOutcome, StreamStores, TcpRpc, TcpRpcOutcome, ThroughputOutcome, Touch,
};

/// A machine that answers by formula.
#[derive(Clone, Copy, Debug, Default)]
pub struct Formulas;

/// Write-combining buffers of the formulas.
pub const BUFFERS: u32 = 10;

/// A crossing of the interconnect, nanoseconds.
fn crossing(machine: &Parameters) -> f64 {
    machine.links().crossing as f64 / 1000.0
}

/// What the interconnect carries, gigabits a second.
pub fn wire(machine: &Parameters) -> f64 {
    let wire = machine.links();
    8000.0 * f64::from(wire.flit_bytes * wire.links) / wire.flit_time as f64
}

/// A packet's round trip with nothing else under way, nanoseconds.
pub fn unloaded(question: &Loopback) -> f64 {
    let crossings = match question.nic_place {
        NicPlace::Remote => crossing(&question.machine),
        NicPlace::SameNode => 0.0,
    };
    let base = match question.interface {
        Interface::CcNic(features) => {
            let signal = if features.signal == Signal::Register { 200.0 } else { 0.0 };
            let packing = if features.packing == Packing::Packed { 100.0 } else { 0.0 };
            let pool = if features.shared_pool { 0.0 } else { 50.0 };
            100.0 + 4.0 * crossings + signal + packing + pool
        }
        Interface::UnoptimisedRing | Interface::Ring => 100.0 + 10.0 * crossings,
        Interface::PcieRing => 2000.0,
    };
    base + f64::from(question.packet_size) / 10.0
}

/// The most packets a second that the interface carries.
pub fn capacity(question: &Loopback) -> f64 {
    let each = match question.interface {
        Interface::CcNic(features) => {
            let mut rate = 20e6;
            for (lost, share) in [
                (!features.recycling, 0.8),
                (!features.small_buffers, 0.5),
                (!features.shared_pool, 0.75),
                (features.packing == Packing::Padded, 0.5),
                (features.signal == Signal::Register, 0.625),
                (features == Features::best(), 1.5),
            ] {
                rate *= if lost { share } else { 1.0 };
            }
            rate
        }
        Interface::UnoptimisedRing | Interface::Ring => 5e6,
        Interface::PcieRing => 4e6,
    };
    let batch = question.transmit_burst.min(4) as f64 / 4.0;
    let receive = if question.receive_burst == 1 { 0.9 } else { 1.0 };
    let prefetching =
        if question.prefetching.host { 1.25 } else { 1.0 } * if question.prefetching.nic { 0.5 } else { 1.0 };
    let cores = each * batch * receive * prefetching * question.threads as f64;
    let bits = f64::from(question.packet_size) * 8.0;
    cores.min(wire(&question.machine) * 1e9 / bits)
}

/// What switches beyond the paper make of a round trip and of the highest rate, and the bytes of a packet each way.
fn switched(question: &Loopback, alone: f64, most: f64) -> (f64, f64, f64) {
    let (switches, size) = (&question.switches, f64::from(question.packet_size));
    let (mut alone, mut most, mut bytes) = (alone, most, size + 64.0);
    if let Serving::Shared { queue_pairs, attention: Attention::Polling } = switches.serving {
        alone += 10.0 * queue_pairs as f64;
        most /= 1.0 + queue_pairs as f64 / 256.0;
    }
    let coherent = question.interface != Interface::PcieRing;
    match switches.application {
        Application::Loopback => {}
        Application::Forwarding(Touch::Header) if coherent => bytes = 128.0,
        Application::Forwarding(_) => (alone, most) = (2.0 * alone, 0.5 * most),
        // Engines move so many packets whatever their size; a core's time goes by bytes.
        Application::Copying if switches.engines == Engines::default() => most = 25e6 * 256.0 / size,
        Application::Copying => most = most.min(4e6),
    }
    (alone, most, bytes)
}

impl Machine for Formulas {
    fn loopback(&self, question: &Loopback) -> Result<LoopbackOutcome, Failure> {
        let (alone, most, bytes) = switched(question, unloaded(question), capacity(question));
        let in_flight = (question.threads as u64 * question.window) as f64;
        let (rate, latency) = match question.offered {
            Some(offered) => {
                let rate = (offered * question.threads as f64).min(most);
                (rate, alone * (1.0 + rate / most))
            }
            None => {
                let rate = (in_flight / alone * 1e9).min(most);
                (rate, in_flight / rate * 1e9)
            }
        };
        let reads = if question.window == 1 { 3.0 } else { 1.25 };
        let nic = match question.interface {
            Interface::CcNic(_) => RemoteAccesses { reads, rfos: 0.5 },
            _ => RemoteAccesses { reads: reads + 0.5, rfos: 1.0 },
        };
        let packets = question.packets.1 * question.threads as u64;
        Ok(LoopbackOutcome {
            packets_per_second: rate,
            bits_per_second: rate * f64::from(question.packet_size) * 8.0,
            median_nanoseconds: latency,
            median_from_writing_nanoseconds: latency,
            p99_nanoseconds: latency * 2.0,
            p999_nanoseconds: latency * 2.0,
            minimum_nanoseconds: alone,
            nic,
            host: nic,
            packets,
            link_bytes: [bytes; 2],
            ..LoopbackOutcome::default()
        })
    }

    fn key_value(&self, question: &KeyValue) -> Result<KeyValueOutcome, Failure> {
        // A thread's work, that of what it drives, and the chip.
        let (each, most) = match question.reached {
            Reached::Directly => (5e6, 60e6),
            Reached::Overlay { interface: Interface::CcNic(_), threads } => (7e6, 6e6 * threads as f64),
            Reached::Overlay { threads, .. } => (6e6, 4e6 * threads as f64),
        };
        let rate = (each * question.threads as f64).min(most).min(60e6);
        Ok(KeyValueOutcome {
            requests_per_second: rate,
            value_bits_per_second: rate * 1000.0,
            median_nanoseconds: 3000.0,
            p99_nanoseconds: 6000.0,
            requests: question.requests.1 * question.threads as u64,
            ..KeyValueOutcome::default()
        })
    }
    fn tcp_rpc(&self, question: &TcpRpc) -> Result<TcpRpcOutcome, Failure> {
        // A fast-path thread's work, and the application's.
        let each = match question.reached {
            Reached::Directly => 4e6,
            Reached::Overlay { .. } => 6e6,
        };
        let rate = (each * question.threads as f64).min(30e6);
        Ok(TcpRpcOutcome {
            requests_per_second: rate,
            requests: u64::from(question.flows) * question.requests.1,
            ..TcpRpcOutcome::default()
        })
    }
    fn access_latency(&self, question: &AccessLatency) -> Result<AccessOutcome, Failure> {
        let far = crossing(&question.machine) * 2.0;
        let median = match (question.holder, question.home) {
            (Holder::Memory, Home::Reader) => 80.0,
            (Holder::Memory, Home::Other) => 80.0 + far,
            (Holder::NeighbourCore, _) => 40.0,
            (Holder::OtherNodeCore, Home::Other) => 40.0 + far,
            (Holder::OtherNodeCore, Home::Reader) => 44.0 + far,
        };
        Ok(AccessOutcome { median_nanoseconds: median, minimum_nanoseconds: median })
    }

    fn register_read(&self, question: &RegisterRead) -> Result<RegisterOutcome, Failure> {
        let pcie = question.machine.pcie.as_ref().ok_or_else(|| Failure("the machine has no PCIe link".to_owned()))?;
        let crossings = 2.0 * pcie.crossing as f64 / 1000.0;
        Ok(RegisterOutcome { median_nanoseconds: crossings + f64::from(question.bytes) })
    }

    fn ping_pong(&self, question: &PingPong) -> Result<PingPongOutcome, Failure> {
        let trip = 4.0 * crossing(&question.machine);
        let (times, remote_requests) = match question.layout {
            PingPongLayout::OneLine { .. } => (1.0, 2.0),
            PingPongLayout::WriterHomed => (1.75, 4.0),
            PingPongLayout::SeparateLines { .. } => (2.0, 4.0),
            PingPongLayout::ReaderHomed => (2.5, 4.0),
        };
        Ok(PingPongOutcome { median_nanoseconds: trip * times, remote_requests })
    }

    fn stream(&self, question: &Stream) -> Result<StreamOutcome, Failure> {
        let most = wire(&question.machine) * 1e9;
        let share = match question.stores {
            StreamStores::Caching => 0.5,
            StreamStores::NonTemporal => 0.25,
        };
        let bits_per_second = (most * share).min(question.pairs as f64 * 1e11);
        Ok(StreamOutcome { bits_per_second, link_utilisation: [0.0; 2] })
    }

    fn read_only(&self, question: &ReadOnly) -> Result<ReadOnlyOutcome, Failure> {
        let bits_per_second = (wire(&question.machine) * 1e9).min(question.threads as f64 * 1e11);
        Ok(ReadOnlyOutcome { bits_per_second, link_utilisation: [0.0; 2] })
    }

    fn store_throughput(&self, question: &StoreThroughput) -> Result<ThroughputOutcome, Failure> {
        let bytes = question.bytes_per_barrier as f64;
        let fence = match question.target {
            StoreTarget::DeviceWriteCombining => 400.0,
            StoreTarget::MemoryWriteCombining => 100.0,
            StoreTarget::MemoryWriteBack => 0.0,
        };
        // A byte takes a tenth of a nanosecond, so that 400 ns are the time of 4000 bytes.
        Ok(ThroughputOutcome { bits_per_second: bytes * 8e9 / (bytes / 10.0 + fence) })
    }

    fn store_burst(&self, question: &StoreBurst) -> Result<BurstOutcome, Failure> {
        let stalled = question.stores.saturating_sub(BUFFERS);
        let total_nanoseconds = f64::from(question.stores) + 190.0 * f64::from(stalled);
        Ok(BurstOutcome { total_nanoseconds })
    }
}

/// A core of round numbers.
fn core_parameters(cores: u32) -> CoreParameters {
    CoreParameters {
        cores,
        frequency_megahertz: 2000,
        issue_cycles: 1,
        l1_hit_cycles: 5,
        l2_hit_cycles: 15,
        atomic_cycles: 20,
        poll_exit_cycles: 0,
        pause_cycles: 1,
        clock_cycles: 0,
        line_fill_buffers: 12,
        store_fill_buffers: 12,
        load_buffer: 64,
        reorder_buffer: 300,
        work_instructions: 3.0,
        store_buffer: 64,
        write_combining_buffers: BUFFERS,
        work_scale: 1.0,
        prefetch_next_line: true,
        prefetch_stride: true,
        prefetch_adjacent: true,
    }
}

/// A platform of round numbers.
pub fn parameters(name: &str, cores: u32, crossing: u64, links: u32) -> Parameters {
    Parameters {
        name: name.to_owned(),
        core: core_parameters(cores),
        cache: CacheParameters {
            l1_bytes: 48 << 10,
            l1_ways: 12,
            l2_bytes: 1 << 20,
            l2_ways: 16,
            llc_bytes: 32 << 20,
            llc_ways: 16,
            device_write_ways: 2,
        },
        node: NodeParameters {
            core_to_home: 10_000,
            home_to_core: 10_000,
            home_lookup: 5_000,
            home_slices: 16,
            home_service: 1_000,
            home_entries: 16,
            home_own_entries: 12,
            llc_read: 5_000,
            snoop_lookup: 10_000,
            write_latency: 50_000,
        },
        memory: MemoryParameters { latency: 50_000, channels: 8, line_time: 2_500 },
        interconnect: InterconnectParameters {
            links,
            crossing,
            flit_time: 1000,
            flit_bytes: 25,
            flit_slots: 3,
            data_flits: 4,
            data_slots: 9,
            header_slots: 1,
            request_credits: 64,
        },
        snoop_filter: None,
        uncore: (name == "spr").then_some(UncoreParameters {
            frequency_megahertz: 2000,
            second_node_megahertz: 2000,
            crossing_part: 20_000,
            flit_time: 1000,
        }),
        protocol: ProtocolParameters {
            migratory_between_nodes: true,
            migratory_within_node: true,
            exclusive_grant: true,
            directory_write: true,
            speculative_memory_read: true,
            speculative_read_penalty: 0,
            full_line_store_without_data: true,
            forwards_clean: true,
            snoops_shared: false,
        },
        pcie: None,
        nic: None,
        engine: None,
        fpga: None,
        driver: None,
        refresh: None,
        timer: None,
    }
}

fn with_pcie(mut machine: Parameters) -> Parameters {
    machine.pcie = Some(PcieParameters {
        megabits_per_second: 252_000,
        crossing: 400_000,
        max_payload: 256,
        max_read_request: 512,
        read_completion_boundary: 64,
        write_overhead: 24,
        read_overhead: 24,
        completion_overhead: 20,
        link_layer_permille: 50,
        tags: 256,
        posted_credits: 92,
        root_to_home: 30_000,
        core_to_root: 30_000,
        register_read: 100_000,
        uncached_store: 100_000,
        write_combining_flush: 100_000,
        access_bytes: 64,
    });
    machine.nic = Some(NicParameters {
        packets_per_second: 100_000_000,
        megabits_per_second: 200_000,
        mlx5_rings: false,
        descriptor_batch: 8,
        write_back_batch: 8,
        write_back_wait: 100_000,
        doorbell_time: 100_000,
        pipeline_time: 300_000,
    });
    machine
}

/// The platforms of the formulas: Ice Lake with 8 cores and 2 links of 200 Gb/s, Sapphire Rapids with 24 and 4.
pub fn setting(effort: Effort) -> Setting {
    let icx = |name| parameters(name, 8, 30_000, 2);
    let platforms = Platforms {
        icx: icx("icx"),
        spr: parameters("spr", 24, 50_000, 4),
        icx_cx6: with_pcie(icx("icx-cx6")),
        icx_e810: with_pcie(icx("icx-e810")),
    };
    Setting { platforms, effort, seed: 1 }
}

/// Asks the formulas until nothing is open.
#[allow(dead_code, reason = "not every test binary asks for a whole study")]
pub fn answered(open: impl Fn(&Answers) -> Vec<Question>) -> Answers {
    let mut answers = Answers::default();
    // The deepest chain of questions halves a range of threads.
    for _ in 0..20 {
        let questions = open(&answers);
        if questions.is_empty() {
            return answers;
        }
        for question in questions {
            answers.insert(&question, question.ask(&Formulas));
        }
    }
    panic!("{} questions are still open", open(&answers).len())
}

/// The rest of a machine, answered as by [`Formulas`].
#[allow(unused_macros, reason = "not every test binary makes a machine of its own")]
macro_rules! as_formulas {
    () => {
        common::as_formulas! {
            key_value(KeyValue) -> KeyValueOutcome,
            tcp_rpc(TcpRpc) -> TcpRpcOutcome,
            access_latency(AccessLatency) -> AccessOutcome,
            register_read(RegisterRead) -> RegisterOutcome,
            ping_pong(PingPong) -> PingPongOutcome,
            stream(Stream) -> StreamOutcome,
            read_only(ReadOnly) -> ReadOnlyOutcome,
            store_throughput(StoreThroughput) -> ThroughputOutcome,
            store_burst(StoreBurst) -> BurstOutcome,
        }
    };
    ($($method:ident($question:ident) -> $outcome:ident,)*) => {
        $(fn $method(
            &self,
            question: &conic_study::workload::$question,
        ) -> Result<conic_study::workload::$outcome, conic_study::workload::Failure> {
            Formulas.$method(question)
        })*
    };
}
#[allow(unused_imports, reason = "not every test binary makes a machine of its own")]
pub(crate) use as_formulas;
