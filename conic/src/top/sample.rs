//! What the daemon says of itself, and how busy its threads are.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use conic_client::Operator;
use conic_fabric::Time;
use conic_native::clock;
use serde::{Deserialize, Serialize};

/// Counters by name.
pub type Counts = BTreeMap<String, u64>;

/// One look at a daemon.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// The daemon's process; 0 if that is not known.
    pub process: i32,
    /// What it says.
    pub list: List,
    /// How long each network's threads have run, in ticks of the kernel's clock, by the network's number.
    pub ran: BTreeMap<usize, u64>,
}

/// The daemon's answer to `{"ask": "list"}`; what it says beside this is not looked at.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct List {
    /// Its networks.
    pub networks: Vec<Network>,
    /// Its clients.
    pub clients: Vec<Client>,
}

/// A network.
#[derive(Clone, Debug, Deserialize)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// How it joins its members.
    pub mode: String,
    /// Its ports.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// How long its threads leave queues between two looks.
    #[serde(default)]
    pub looks: Vec<Looks>,
}

/// Looks of a thread at its queues.
#[derive(Clone, Debug, Deserialize)]
pub struct Looks {
    /// The thread's number in its network.
    pub thread: usize,
    /// By the time since the look before.
    pub buckets: Vec<Bucket>,
}

/// Looks that came less than a time after the one before, and not less than half of it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Bucket {
    /// Picoseconds.
    pub below_ps: u64,
    /// How many.
    pub looks: u64,
}

/// A port.
#[derive(Clone, Debug, Deserialize)]
pub struct Port {
    /// Its number in the network; a NIC of before does not say it.
    pub number: Option<usize>,
    /// What it was asked to be.
    pub spec: String,
    /// Whether there is somebody at the other end.
    pub up: bool,
    /// What it counts.
    #[serde(default)]
    pub counters: Counts,
    /// What the switch counts of it.
    #[serde(default)]
    pub switch: Counts,
}

/// Who a client is, and what it was given.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Identity {
    /// Its session.
    pub session: u64,
    /// What it calls itself.
    pub name: String,
    /// Its user.
    pub user: u32,
    /// Its network.
    pub network: String,
    /// Its queue pairs.
    pub queues: u32,
    /// Bytes of its region.
    pub bytes: u64,
    /// Its MAC address.
    pub mac: String,
    /// It gets frames for stations that nobody is known to have.
    #[serde(default)]
    pub promiscuous: bool,
}

/// A client.
#[derive(Clone, Debug, Deserialize)]
pub struct Client {
    /// Who it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// What the switch counts of it.
    #[serde(default)]
    pub counters: Counts,
    /// What it did that it should not have.
    #[serde(default)]
    pub faults: Counts,
}

impl Sample {
    /// Looks.
    ///
    /// # Errors
    ///
    /// The daemon does not answer, or says what this program does not understand.
    pub fn take(operator: &Operator) -> Result<Sample, Box<dyn Error>> {
        let answer = operator.ask(r#"{"ask": "list"}"#)?;
        let list = read(&answer)?;
        let process = operator.process().unwrap_or(0);
        Ok(Sample { at: clock::now(), process, list, ran: ran(process) })
    }
}

/// Whether the process that a connection was made to has ended, where the kernel shows it: another has taken over what that had.
pub fn has_ended(process: i32) -> bool {
    // A process of another namespace has no number here.
    process > 0 && Path::new("/proc/self").exists() && !Path::new(&format!("/proc/{process}")).exists()
}

/// An answer of the daemon.
///
/// # Errors
///
/// It is an error, or what this program does not understand.
pub fn read(answer: &str) -> Result<List, Box<dyn Error>> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        List(List),
        Error { error: String },
    }
    match serde_json::from_str(answer) {
        Ok(Answer::List(list)) => Ok(list),
        Ok(Answer::Error { error }) => Err(format!("the NIC says: {error}").into()),
        Err(error) => Err(format!("the NIC's answer is not understood ({error}): is it of another version?").into()),
    }
}

/// How long the threads of a process have run that serve networks (`nic-0`, of several also `nic-0-1` and so on); nothing where the kernel does not say.
fn ran(process: i32) -> BTreeMap<usize, u64> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return BTreeMap::new() };
    let stats = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|stat| ticks_of(&stat)).fold(BTreeMap::new(), |mut ran, (network, ticks)| {
        *ran.entry(network).or_default() += ticks;
        ran
    })
}

/// The network's number and the ticks of a thread, from what the kernel says of it, if it serves a network.
pub fn ticks_of(stat: &str) -> Option<(usize, u64)> {
    let (before, rest) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let network = name.strip_prefix("nic-")?.split('-').next()?.parse().ok()?;
    // Fields 14 and 15 of proc(5) are the ticks in user and in kernel mode; `rest` begins with field 3.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((network, ticks(14)? + ticks(15)?))
}

/// Ticks of the kernel's clock in a second, as it tells programs of them.
pub fn ticks_a_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}
