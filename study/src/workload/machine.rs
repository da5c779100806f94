//! Whoever answers: the simulator, and in tests a machine of simple formulas.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    AccessLatency, AccessOutcome, BurstOutcome, Interface, KeyValue, KeyValueOutcome, Loopback, LoopbackOutcome,
    PingPong, PingPongOutcome, Reached, ReadOnly, ReadOnlyOutcome, RegisterOutcome, RegisterRead, StoreBurst,
    StoreThroughput, Stream, StreamOutcome, Switches, TcpRpc, TcpRpcOutcome, ThroughputOutcome,
};

/// Why a question got no answer: what was wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// A modelled machine. The same question always gets the same answer; questions are asked from several threads at once.
///
/// # Errors
///
/// Every method gives a [`Failure`] where the machine lacks what is asked about, or the run ended in an error.
pub trait Machine: Sync {
    /// Runs a loopback.
    fn loopback(&self, question: &Loopback) -> Result<LoopbackOutcome, Failure>;
    /// Runs a key-value store.
    fn key_value(&self, question: &KeyValue) -> Result<KeyValueOutcome, Failure>;
    /// Runs an echo server over a TCP service.
    fn tcp_rpc(&self, question: &TcpRpc) -> Result<TcpRpcOutcome, Failure>;
    /// Times loads of lines in a given state.
    fn access_latency(&self, question: &AccessLatency) -> Result<AccessOutcome, Failure>;
    /// Times loads of a device's register.
    fn register_read(&self, question: &RegisterRead) -> Result<RegisterOutcome, Failure>;
    /// Times round trips between two cores.
    fn ping_pong(&self, question: &PingPong) -> Result<PingPongOutcome, Failure>;
    /// Measures streams from node to node.
    fn stream(&self, question: &Stream) -> Result<StreamOutcome, Failure>;
    /// Measures reads across the interconnect.
    fn read_only(&self, question: &ReadOnly) -> Result<ReadOnlyOutcome, Failure>;
    /// Measures one core's stores with fences.
    fn store_throughput(&self, question: &StoreThroughput) -> Result<ThroughputOutcome, Failure>;
    /// Times a burst of stores to a device.
    fn store_burst(&self, question: &StoreBurst) -> Result<BurstOutcome, Failure>;
}

/// A kind of question, and what answers it.
pub trait Asked: Into<Question> {
    /// What is answered.
    type Outcome;

    /// The outcome in an answer; none where it answers another kind of question.
    fn outcome(answer: &Answer) -> Option<Self::Outcome>;
}

macro_rules! questions {
    ($($name:ident($question:ty) => $method:ident -> $outcome:ty;)*) => {
        /// Any question to a [`Machine`].
        #[derive(Clone, Debug, PartialEq)]
        pub enum Question {
            $(#[doc = concat!("For [`Machine::", stringify!($method), "`].")] $name($question),)*
        }

        /// What was answered.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Answer {
            $(#[doc = concat!("Of [`Machine::", stringify!($method), "`].")] $name($outcome),)*
        }

        impl Question {
            /// Asks the machine.
            ///
            /// # Errors
            ///
            /// The machine's, and where packets were lost or spoilt, so that their rate means nothing.
            pub fn ask(&self, machine: &impl Machine) -> Result<Answer, Failure> {
                let answer = match self {
                    $(Question::$name(question) => Answer::$name(machine.$method(question)?),)*
                };
                match &answer {
                    Answer::Loopback(outcome) if outcome.wrong() > 0 => {
                        Err(Failure(format!("{} of {} packets were lost or spoilt", outcome.wrong(), outcome.packets)))
                    }
                    Answer::KeyValue(outcome) if outcome.wrong > 0 => {
                        Err(Failure(format!("{} requests were lost or answered wrongly", outcome.wrong)))
                    }
                    Answer::TcpRpc(outcome) if outcome.wrong > 0 => {
                        Err(Failure(format!("{} requests were answered wrongly", outcome.wrong)))
                    }
                    _ => Ok(answer),
                }
            }
        }

        $(
            impl From<$question> for Question {
                fn from(question: $question) -> Question {
                    Question::$name(question)
                }
            }

            impl Asked for $question {
                type Outcome = $outcome;

                fn outcome(answer: &Answer) -> Option<$outcome> {
                    match answer {
                        Answer::$name(outcome) => Some(outcome.clone()),
                        _ => None,
                    }
                }
            }
        )*
    };
}

fn named(interface: &Interface) -> String {
    match interface {
        Interface::CcNic(features) => format!("CC-NIC ({features})"),
        Interface::UnoptimisedRing => "the unoptimised ring".to_owned(),
        Interface::Ring => "the ring".to_owned(),
        Interface::PcieRing => "the ring over PCIe".to_owned(),
    }
}

fn over(reached: &Reached) -> String {
    match reached {
        Reached::Directly => String::new(),
        Reached::Overlay { interface, threads } => {
            format!(" over {}, {threads} overlay threads", named(interface))
        }
    }
}

impl Question {
    /// The question as text: two questions are the same exactly if their texts are.
    pub fn text(&self) -> String {
        format!("{self:?}")
    }

    /// The question in a few words, for messages; several questions may share them.
    pub fn summary(&self) -> String {
        match self {
            Question::Loopback(question) => {
                let Loopback { machine, interface, threads, packet_size, window, switches, .. } = question;
                let interface = named(interface);
                let load =
                    question.offered.map_or(String::new(), |rate| format!(", {:.3} Mpps offered each", rate / 1e6));
                let bursts = format!("bursts of {} and {}", question.transmit_burst, question.receive_burst);
                let name = &machine.name;
                let beyond = if *switches == Switches::default() { String::new() } else { format!(", {switches:?}") };
                format!(
                    "{interface} on {name}, {packet_size} bytes, {threads} threads, window {window}, {bursts}{load}{beyond}"
                )
            }
            Question::KeyValue(KeyValue { machine, reached, threads, demand, .. }) => {
                let over = over(reached);
                format!("a key-value store on {}{over}, {threads} threads, {:?}", machine.name, demand.sizes)
            }
            Question::TcpRpc(TcpRpc { machine, reached, threads, load, .. }) => {
                let (over, each) = (over(reached), load.requests_a_segment);
                format!(
                    "a TCP service on {}{over}, {threads} fast-path threads, {each} requests a segment",
                    machine.name
                )
            }
            Question::AccessLatency(AccessLatency { machine, holder, home, .. }) => {
                format!("a load on {}, holder {holder:?}, home {home:?}", machine.name)
            }
            Question::RegisterRead(RegisterRead { machine, bytes, .. }) => {
                format!("a load of {bytes} bytes from the device of {}", machine.name)
            }
            Question::PingPong(PingPong { machine, layout, .. }) => {
                format!("a ping-pong on {}, {layout:?}", machine.name)
            }
            Question::Stream(Stream { machine, stores, pairs, .. }) => {
                format!("{pairs} streams on {}, {stores:?} stores", machine.name)
            }
            Question::ReadOnly(ReadOnly { machine, threads, .. }) => format!("{threads} readers on {}", machine.name),
            Question::StoreThroughput(StoreThroughput { machine, target, bytes_per_barrier, .. }) => {
                format!("stores on {}, {target:?}, {bytes_per_barrier} bytes a barrier", machine.name)
            }
            Question::StoreBurst(StoreBurst { machine, stores, .. }) => {
                format!("a burst of {stores} stores to the device of {}", machine.name)
            }
        }
    }

    /// About how many lines are touched: what a run's length goes by.
    pub fn weight(&self) -> u64 {
        match self {
            Question::Loopback(question) => {
                let packets = (question.packets.0 + question.packets.1) * question.threads as u64;
                packets * (8 + 4 * u64::from(question.packet_size).div_ceil(64))
            }
            Question::KeyValue(question) => {
                let queues = question.reached.queues(question.threads);
                // The region is made first: about as long as some lines for each key.
                4 * u64::from(question.demand.keys) + 60 * queues as u64 * (question.requests.0 + question.requests.1)
            }
            Question::TcpRpc(question) => {
                let queues = question.reached.queues(question.threads) as u64;
                // Queues are polled, whether anything comes or not.
                (60 + 10 * queues) * u64::from(question.flows) * (question.requests.0 + question.requests.1)
            }
            Question::AccessLatency(question) => 4 * question.accesses,
            Question::RegisterRead(question) => question.accesses,
            Question::PingPong(question) => 8 * (question.rounds.0 + question.rounds.1),
            Question::Stream(question) => {
                let lines = (question.chunks.0 + question.chunks.1) * question.chunk_bytes / 64;
                3 * lines * question.pairs as u64
            }
            Question::ReadOnly(question) => (question.lines.0 + question.lines.1) * question.threads as u64,
            Question::StoreThroughput(question) => (question.bytes.0 + question.bytes.1) / 64,
            Question::StoreBurst(question) => u64::from(question.stores) * u64::from(question.bursts),
        }
    }
}

questions! {
    Loopback(Loopback) => loopback -> LoopbackOutcome;
    KeyValue(KeyValue) => key_value -> KeyValueOutcome;
    TcpRpc(TcpRpc) => tcp_rpc -> TcpRpcOutcome;
    AccessLatency(AccessLatency) => access_latency -> AccessOutcome;
    RegisterRead(RegisterRead) => register_read -> RegisterOutcome;
    PingPong(PingPong) => ping_pong -> PingPongOutcome;
    Stream(Stream) => stream -> StreamOutcome;
    ReadOnly(ReadOnly) => read_only -> ReadOnlyOutcome;
    StoreThroughput(StoreThroughput) => store_throughput -> ThroughputOutcome;
    StoreBurst(StoreBurst) => store_burst -> BurstOutcome;
}
