//! Everything that clients and operators do to a daemon, in a random order, with one daemon after the other taking over in the middle.
//!
//! Clients attach to a bridge and to a loopback, send each other frames, move to other addresses, ask for frames for stations that nobody has,
//! leave, and are detached by an operator;
//! others are connected and go no further than a step of attaching, or die there. Each is let in exactly if the quota has room for it. No
//! frame is lost while daemons take over, and at the end everything can be had again.
//!
//! `cargo test -p conic-daemon --test sessions` goes through some seeds; `-- --seed N --seeds 1` through one of them again, `--actions`
//! says for how long. The seed decides what is done; what threads do meanwhile is the machine's.

mod support;

#[path = "support/served.rs"]
mod served;
#[path = "support/spoken.rs"]
mod spoken;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use conic_client::{AttachError, Client, Name, Operator, Options, Queue, Reason};
use conic_control::Message;
use conic_interface::ccnic::Geometry;
use conic_native::channel::Channel;
use conic_nicd::config::{Config, Limits, NetworkConfig, NetworkMode};

use served::Served;
use spoken::{hear_message, hello, say, wish};
use support::arguments::numbers;
use support::waiting::{self, try_until, wait_until};
use support::{numbered, settled, write_frame};

/// Seeds, and what is done for each.
const SEEDS: u64 = 20;
const ACTIONS: u64 = 80;

/// What a user may have, and how many connections there are at most that go no further.
const CLIENTS: u32 = 6;
const QUEUES: u32 = 12;
const HALVES: usize = 6;

/// A station that nobody has.
const NOBODY: [u8; 6] = [2, 0xab, 0, 0, 0, 0];

/// Frames on their way at most: fewer than a pool holds, and than a ring has lines. One that comes alone takes a line of its own, and the
/// host gives lines back late: of 64 descriptors, 16 lines, two frames of 24 found no place once in some thousand bursts.
const BURST: u64 = 24;
const DESCRIPTORS: u64 = 256;

fn main() -> ExitCode {
    let Some(given) = numbers("sessions", ["--seed", "--seeds", "--actions"]) else { return ExitCode::SUCCESS };
    let (first, seeds, actions) = (given[0].unwrap_or(2026), given[1].unwrap_or(SEEDS), given[2].unwrap_or(ACTIONS));
    let folder = tempfile::tempdir().expect("a folder");
    // What is opened at the first time stays: a sanitizer has descriptors of its own.
    live(&folder.path().join("nic.sock"), (first, actions.min(ACTIONS)), &mut Vec::new());
    let mut done = [0; 2];
    let before = settled();
    for seed in first..first + seeds {
        let mut told = Vec::new();
        let whole = || {
            let counts = live(&folder.path().join("nic.sock"), (seed, actions), &mut told);
            assert_eq!(settled(), before, "descriptors and mappings are as many as before");
            counts
        };
        match catch_unwind(AssertUnwindSafe(whole)) {
            Ok(counts) => done = [done[0] + counts[0], done[1] + counts[1]],
            Err(_) => {
                eprintln!("seed {seed} failed after:\n  {}", told.join("\n  "));
                let again = format!("--seed {seed} --seeds 1 --actions {actions}");
                eprintln!("again: cargo test -p conic-daemon --test sessions -- {again}");
                return ExitCode::FAILURE;
            }
        }
    }
    let [take_overs, frames] = done;
    println!("sessions: {seeds} seeds of {actions} actions, {take_overs} take-overs, {frames} frames, none lost");
    ExitCode::SUCCESS
}

fn config(socket: &Path) -> Config {
    let loopback = NetworkConfig { name: "loop".to_owned(), mode: NetworkMode::Loopback, ..NetworkConfig::default() };
    // Everybody may be promiscuous, also where all frames come back.
    let networks = vec![
        NetworkConfig { threads: 2, promiscuous: true, ..NetworkConfig::default() },
        NetworkConfig { promiscuous: true, ..loopback },
    ];
    let limits = Limits { clients_per_user: CLIENTS, queues_per_user: QUEUES, ..Limits::default() };
    // Who says nothing for long is not what this is about.
    let step_timeout_ms = 600_000;
    let config = Config { socket: socket.to_owned(), networks, limits, step_timeout_ms, ..Config::default() };
    config.checked().expect("a sound configuration")
}

/// A client with queues.
struct Whole {
    client: Client,
    queues: Vec<Queue>,
    loops: bool,
    /// It gets frames for stations that nobody has, if it is on the bridge.
    promiscuous: bool,
}

/// A connection that went as far as this.
struct Half {
    channel: Channel,
    stands: Stands,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stands {
    Silent,
    Greeted,
    /// It has not heard yet that it has so many queues.
    Wished(u32),
    Attached(u32),
}

impl Half {
    fn queues(&self) -> Option<u32> {
        match self.stands {
            Stands::Silent | Stands::Greeted => None,
            Stands::Wished(queues) | Stands::Attached(queues) => Some(queues),
        }
    }
}

/// The daemon and everybody who is there.
struct World<'told> {
    socket: PathBuf,
    random: fastrand::Rng,
    served: Option<Served>,
    wholes: Vec<Whole>,
    halves: Vec<Half>,
    /// The number of the next frame.
    number: u64,
    frames: u64,
    take_overs: u32,
    told: &'told mut Vec<String>,
}

/// Does what follows from a seed; take-overs and frames.
fn live(socket: &Path, (seed, actions): (u64, u64), told: &mut Vec<String>) -> [u64; 2] {
    let mut world = World {
        socket: socket.to_owned(),
        random: fastrand::Rng::with_seed(seed),
        served: Some(Served::start(config(socket))),
        wholes: Vec::new(),
        halves: Vec::new(),
        number: 0,
        frames: 0,
        take_overs: 0,
        told,
    };
    for _ in 0..actions {
        world.act();
        world.check_list();
    }
    world.everybody_goes();
    world.everything_can_be_had();
    world.everybody_goes();
    world.tell("the daemon ends".to_owned());
    world.served.take().expect("it serves").end();
    let counts = [world.take_overs.into(), world.frames];
    drop(world);
    counts
}

impl World<'_> {
    fn act(&mut self) {
        match self.random.u32(0..22) {
            0..=4 => self.attach(),
            5 | 6 => self.leave(),
            7 => self.leave_in_the_middle(),
            8 => self.operator_detaches(),
            9 | 10 => self.connect(),
            11..=13 => self.go_further(),
            14 => self.die(),
            15 => self.move_away(),
            16 | 17 => self.exchange(),
            18 => self.turn(),
            19 => self.send_astray(),
            _ => self.take_over(),
        }
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }

    /// Who has queues, and how many all have together.
    fn taken(&self) -> (usize, u32) {
        let wholes = self.wholes.iter().map(|one| one.queues.len() as u32);
        let all: Vec<u32> = wholes.chain(self.halves.iter().filter_map(Half::queues)).collect();
        (all.len(), all.iter().sum())
    }

    fn has_room(&self, queues: u32) -> bool {
        let (clients, taken) = self.taken();
        clients < CLIENTS as usize && taken + queues <= QUEUES
    }

    fn attach(&mut self) {
        let (queues, loops) = (self.random.u32(1..=3), self.random.bool());
        let has_room = self.has_room(queues);
        self.tell(format!("attach, {queues} queues, loops: {loops}, room: {has_room}"));
        match (attach(&self.socket, queues, loops), has_room) {
            (Ok((client, queues)), true) => self.wholes.push(Whole { client, queues, loops, promiscuous: false }),
            (Err(AttachError::Refused(refused)), false) if refused.reason == Reason::Quota => {}
            (Ok(_), false) => panic!("it was let in, and there is no room"),
            (Err(error), _) => panic!("it was not let in: {error}"),
        }
    }

    /// One of them, by chance.
    fn choose(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.random.usize(..count))
    }

    fn leave(&mut self) {
        let Some(which) = self.choose(self.wholes.len()) else { return };
        self.tell(format!("client {which} leaves"));
        self.wholes.swap_remove(which);
    }

    /// What it has sent is on its way when it leaves.
    fn leave_in_the_middle(&mut self) {
        let Some(which) = self.choose(self.wholes.len()) else { return };
        let to = self.random.usize(..self.wholes.len());
        self.tell(format!("client {which} leaves while it sends to {to}"));
        let mut burst = self.burst((which, to));
        burst.send(&mut self.wholes[which].queues);
        self.wholes.swap_remove(which);
    }

    fn operator_detaches(&mut self) {
        let Some(which) = self.choose(self.wholes.len()) else { return };
        self.tell(format!("client {which} is detached"));
        let one = self.wholes.swap_remove(which);
        let session = one.client.attached().session;
        let answer = ask(&self.socket, &format!(r#"{{"ask": "detach", "client": {session}}}"#));
        assert_eq!(answer, r#"{"done":true}"#);
    }

    fn connect(&mut self) {
        if self.halves.len() < HALVES {
            self.tell("somebody connects".to_owned());
            let channel = Channel::connect(&self.socket).expect("it listens");
            self.halves.push(Half { channel, stands: Stands::Silent });
        }
    }

    /// A connection says its next word, or hears it.
    fn go_further(&mut self) {
        let Some(which) = self.choose(self.halves.len()) else { return };
        let queues = self.random.u32(1..=3);
        let has_room = self.has_room(queues);
        let half = &mut self.halves[which];
        let stood = half.stands;
        match stood {
            Stands::Silent => {
                say(&half.channel, &hello());
                let heard = hear_message(&half.channel);
                assert!(matches!(heard, Message::Welcome(_)), "{heard:?}");
                half.stands = Stands::Greeted;
            }
            Stands::Greeted => {
                say(&half.channel, &wish(queues));
                half.stands = Stands::Wished(queues);
            }
            Stands::Wished(queues) => {
                let heard = hear_message(&half.channel);
                assert!(matches!(heard, Message::Attached(_)), "{heard:?}");
                half.stands = Stands::Attached(queues);
            }
            Stands::Attached(_) => {}
        }
        self.tell(format!("half {which} goes further from {stood:?}, room for {queues}: {has_room}"));
        if stood == Stands::Greeted && !has_room {
            let heard = hear_message(&self.halves[which].channel);
            assert!(matches!(&heard, Message::Refused(refused) if refused.reason == Reason::Quota), "{heard:?}");
            self.halves.swap_remove(which);
        }
    }

    fn die(&mut self) {
        let Some(which) = self.choose(self.halves.len()) else { return };
        self.tell(format!("half {which} dies as {:?}", self.halves[which].stands));
        self.halves.swap_remove(which);
    }

    fn move_away(&mut self) {
        let Some(which) = self.choose(self.wholes.len()) else { return };
        let address = [2, 0xaa, 0, 0, 0, self.random.u8(..)];
        let is_taken = self.wholes.iter().any(|one| one.client.mac() == address);
        self.tell(format!("client {which} moves to {address:?}, taken: {is_taken}"));
        if !is_taken {
            self.wholes[which].client.set_mac(address).expect("nobody has it");
        }
    }

    /// A client asks for frames for stations that nobody has, or for none of them.
    fn turn(&mut self) {
        let Some(which) = self.choose(self.wholes.len()) else { return };
        let one = &mut self.wholes[which];
        one.promiscuous ^= true;
        let on = one.promiscuous;
        one.client.set_promiscuous(on).expect("everybody may");
        self.tell(format!("client {which} is promiscuous: {on}"));
    }

    /// One on the bridge sends a frame for nobody, and then one for everybody: who gets the first is known, and gets it first.
    fn send_astray(&mut self) {
        let Some((from, _)) = self.ends().filter(|&(from, _)| !self.wholes[from].loops) else { return };
        let (astray, last) = (self.number, self.number + 1);
        self.number += 2;
        self.tell(format!("client {from} sends frame {astray} astray"));
        let (source, which) = (self.wholes[from].client.mac(), astray as usize % self.wholes[from].queues.len());
        for (to, number) in [(NOBODY, astray), ([0xff; 6], last)] {
            let queue = &mut self.wholes[from].queues[which];
            let mut frame = queue.allocate(60).expect("a buffer is free");
            write_frame(&mut frame, source, to, number);
            assert_eq!(queue.transmit(&mut vec![frame]), 1, "there is room");
        }
        for (index, one) in self.wholes.iter_mut().enumerate().filter(|(index, one)| *index != from && !one.loops) {
            let mut came = Vec::new();
            let mut receive = |came: &mut Vec<u64>| {
                let mut some = Vec::new();
                one.queues.iter_mut().for_each(|queue| _ = queue.receive(&mut some, 32));
                came.extend(some.iter().map(|frame| numbered(&frame.to_vec())).filter(|&number| number >= astray));
            };
            let all = try_until("the last frame comes", || {
                receive(&mut came);
                came.contains(&last) && (!one.promiscuous || came.contains(&astray))
            });
            // What came before it may lie in a queue that was looked at first.
            receive(&mut came);
            all.unwrap_or_else(|why| panic!("{why}: {index} got {came:?}"));
            assert_eq!(came.contains(&astray), one.promiscuous, "client {index}");
        }
    }

    fn burst(&mut self, ends: (usize, usize)) -> Burst {
        let first = self.number;
        self.number += self.random.u64(1..=BURST);
        let (from, to) = (self.wholes[ends.0].client.mac(), self.wholes[ends.1].client.mac());
        Burst { ends, from, to, first, sent: first, came: first, end: self.number }
    }

    /// Two that can send to each other, once one to itself.
    fn ends(&mut self) -> Option<(usize, usize)> {
        let from = self.choose(self.wholes.len())?;
        if self.wholes[from].loops {
            return Some((from, from));
        }
        let others = self.wholes.iter().enumerate().filter(|(index, one)| *index != from && !one.loops);
        let others: Vec<usize> = others.map(|(index, _)| index).collect();
        self.choose(others.len()).map(|which| (from, others[which]))
    }

    fn exchange(&mut self) {
        let Some(ends) = self.ends() else { return };
        let burst = self.burst(ends);
        self.tell(format!("{burst:?}"));
        self.finish(burst);
    }

    fn finish(&mut self, mut burst: Burst) {
        let mut queues: Vec<&mut Vec<Queue>> = self.wholes.iter_mut().map(|one| &mut one.queues).collect();
        let came = try_until("the frames come", || burst.step(&mut queues));
        came.unwrap_or_else(|why| panic!("{why}: {burst:?}; {}", list(&self.socket)));
        self.frames += burst.end - burst.first;
    }

    /// Frames are on their way meanwhile.
    fn take_over(&mut self) {
        let mut burst = self.ends().map(|ends| self.burst(ends));
        self.take_overs += 1;
        let others = self.halves.iter().filter(|one| matches!(one.stands, Stands::Attached(_))).count();
        // One whose wish is still to be read is the other daemon's.
        let most = self.halves.iter().filter_map(Half::queues).count();
        self.tell(format!("another takes over from {burst:?}"));
        let served = self.served.take().expect("it serves");
        let wholes = self.wholes.iter_mut().map(|one| (&one.client, &mut one.queues));
        let (clients, mut queues): (Vec<&Client>, Vec<&mut Vec<Queue>>) = wholes.unzip();
        self.served = Some(served.taken_over_with_others(self.take_overs, &clients, others..=most, || {
            if let Some(burst) = &mut burst {
                burst.step(&mut queues);
            }
        }));
        if let Some(burst) = burst {
            self.finish(burst);
        }
    }

    /// The daemon knows of all who are there, and of nobody else.
    fn check_list(&self) {
        let (clients, queues) = self.taken();
        wait_until("the daemon knows who is there", || {
            let list: serde_json::Value = serde_json::from_str(&list(&self.socket)).expect("an answer");
            let listed = list["clients"].as_array().expect("clients");
            let taken: u64 = listed.iter().map(|one| one["queues"].as_u64().expect("a number")).sum();
            listed.len() == clients && taken == u64::from(queues)
        });
    }

    fn everybody_goes(&mut self) {
        self.tell("everybody goes".to_owned());
        self.wholes.clear();
        self.halves.clear();
        self.check_list();
    }

    fn everything_can_be_had(&mut self) {
        self.tell("everything is had".to_owned());
        for _ in 0..CLIENTS {
            let (client, queues) = attach(&self.socket, QUEUES / CLIENTS, false).expect("there is room for it");
            self.wholes.push(Whole { client, queues, loops: false, promiscuous: false });
        }
    }
}

/// Frames from one to another.
#[derive(Debug)]
struct Burst {
    /// The two, by their places.
    ends: (usize, usize),
    from: [u8; 6],
    to: [u8; 6],
    first: u64,
    sent: u64,
    came: u64,
    end: u64,
}

impl Burst {
    fn send(&mut self, queues: &mut [Queue]) {
        let which = self.first as usize % queues.len();
        let queue = &mut queues[which];
        while self.sent < self.end
            && let Some(mut frame) = queue.allocate(60 + (self.sent * 37 % 1400) as usize)
        {
            write_frame(&mut frame, self.from, self.to, self.sent);
            if queue.transmit(&mut vec![frame]) == 0 {
                return;
            }
            self.sent += 1;
        }
    }

    /// Frames of those who have left since may come as well.
    fn receive(&mut self, queues: &mut [Queue]) {
        let mut came = Vec::new();
        queues.iter_mut().for_each(|queue| _ = queue.receive(&mut came, 32));
        for bytes in came.iter().map(|frame| frame.to_vec()) {
            let number = numbered(&bytes);
            if number >= self.first {
                assert_eq!((number, &bytes[..6]), (self.came, &self.to[..]), "a frame was lost, or came twice");
                self.came += 1;
            }
        }
    }

    /// Sends and receives what can be; true if all is there.
    fn step(&mut self, queues: &mut [&mut Vec<Queue>]) -> bool {
        self.send(queues[self.ends.0]);
        self.receive(queues[self.ends.1]);
        self.came == self.end
    }
}

fn attach(socket: &Path, queues: u32, loops: bool) -> Result<(Client, Vec<Queue>), AttachError> {
    let geometry = Geometry { queues, descriptors: DESCRIPTORS, buffers: [64, 64, 0], object_bytes: 0 };
    let network = Name::new(if loops { "loop" } else { "" }).expect("a name");
    Client::attach(socket, &Options { geometry, network, ..Options::default() })
}

fn ask(socket: &Path, question: &str) -> String {
    Operator::connect(socket, Duration::from_secs(20)).and_then(|one| one.ask(question)).expect("it answers")
}

fn list(socket: &Path) -> String {
    ask(socket, r#"{"ask": "list"}"#)
}
