//! Images of a client's region, given to the switch, beside two clients that play by the rules.
//!
//! | asserted of each input | by |
//! |---|---|
//! | no panic | - |
//! | the switch touches nothing but what is its to touch, and no payload outside of one buffer | [`Guard`] |
//! | a step does a bounded number of memory operations in the client's region | [`STEP`] |
//! | what is refused is counted by reason, the reasons make the sum, and who did it is reported, nobody else | [`World::check_reports`] |
//! | frames between the two others arrive unchanged, in order, and all of them but those for which they had no room, which are counted | [`Bystander`] |
//! | the two others' memory is whole | the same |

use conic_fabric::Time;
use conic_interface::ccnic::Geometry;
use conic_interface::metadata::Offloads;
use conic_nicd::switch::{Mode, Ring, Rules, Switch, SwitchOptions};

use crate::bystander::{Bystander, mac};
use crate::guard::{Guard, Side};
use crate::image::{Region, Said, read};
use crate::target::Target;

/// Small enough that an image of all of it is, and with buffers of each size.
pub const GEOMETRY: Geometry = Geometry { queues: 1, descriptors: 16, buffers: [16, 8, 2], object_bytes: 1024 };

pub const OFFENDER: u64 = 3;

/// Faults after which a client is reported.
const MOST_FAULTS: u64 = 3;

/// Memory operations of a step in the offender's region, at most: 32 packets of four segments of 16 KiB, read by lines, and as many frames
/// written into it by words.
const STEP: u64 = 20_000;

/// Actions.
pub const STEP_ONCE: u8 = 0;
pub const TO_OFFENDER: u8 = 1;
pub const BETWEEN: u8 = 2;
pub const TO_ALL: u8 = 3;
pub const STEP_OFTEN: u8 = 4;
pub const FLOW: u8 = 5;
pub const LARGE: u8 = 6;

/// What the offender may ask for: the header's low bits.
fn offloads(header: u64) -> Offloads {
    let names = ["requests", "verify", "strip", "unfinished", "no_hash", "join"];
    Offloads::from_named(|name| names.iter().position(|one| *one == name).is_some_and(|bit| header >> bit & 1 == 1))
}

/// The header's bit for a network that returns everything.
pub const LOOPBACK: u64 = 1 << 6;

pub struct World {
    pub region: Region,
    switch: Switch<Guard>,
    /// The switch's accesses to the offender's region.
    nic: Guard,
    others: [Bystander; 2],
    now: Time,
    loopback: bool,
    worst: u64,
    rings: Vec<Ring>,
    reported: bool,
}

impl World {
    pub fn new(header: u64) -> World {
        let region = Region::new(GEOMETRY);
        let loopback = header & LOOPBACK != 0;
        let mode = if loopback { Mode::Loopback } else { Mode::Bridge };
        let options = SwitchOptions { mode, stations: 16, most_faults: MOST_FAULTS, ..SwitchOptions::default() };
        let mut switch = Switch::new(options, Vec::new());
        let others = [1, 2].map(|session| Bystander::attach(&mut switch, session));
        let nic = Guard::new(&region.memory, &region.map, "nic", Side::Nic);
        let rules =
            Rules { mac: mac(OFFENDER), own_address_only: true, offloads: offloads(header), ..Rules::default() };
        switch.attach(Time::ZERO, OFFENDER, rules, (&region.map, region.notices), || nic.clone());
        let (now, worst, rings, reported) = (Time::ZERO, 0, Vec::new(), false);
        World { region, switch, nic, others, now, loopback, worst, rings, reported }
    }

    /// The switch goes on with what it finds.
    pub fn act(&mut self, action: u8, value: u64) {
        let length = 60 + value as usize % 9541;
        match action {
            TO_OFFENDER => self.send(0, mac(OFFENDER), length),
            BETWEEN => self.exchange(value as usize % 2, length),
            TO_ALL => self.send(1, [0xff; 6], length.min(1500)),
            // These would come back finished or cut, as nobody has sent them.
            FLOW | LARGE if self.loopback => {}
            // Joined, where the offender has that done.
            FLOW => self.others[0].send_flow(mac(OFFENDER), 8000, 1 + value as usize % 15),
            // As it is, where the offender takes that, and cut otherwise.
            LARGE => self.others[1].send_flow(mac(OFFENDER), 1000 + value as usize % 15_000, 1),
            _ => {}
        }
        let steps = if action == STEP_OFTEN { 1 + value % 80 } else { 1 };
        for _ in 0..steps {
            self.step(value % (1 << 17));
        }
    }

    /// A frame between the two others.
    fn exchange(&mut self, from: usize, length: usize) {
        self.send(from, self.others[1 - from].mac, length);
    }

    /// A frame of one of the two, which the other expects if it is for that one, or this one where everything comes back.
    fn send(&mut self, from: usize, to: [u8; 6], length: usize) {
        let Some(frame) = self.others[from].send(to, length) else { return };
        if self.loopback {
            self.others[from].expect(frame);
        } else if to != mac(OFFENDER) {
            self.others[1 - from].expect(frame);
        }
    }

    fn step(&mut self, nanoseconds: u64) {
        self.now += Time::from_nanoseconds(nanoseconds);
        let before = self.nic.crash().operations();
        self.switch.step(self.now);
        let operations = self.nic.crash().operations() - before;
        self.worst = self.worst.max(operations);
        assert!(operations <= STEP, "a step did {operations} operations in the client's region");
        let sound = self.others.each_ref().map(|other| other.mac);
        self.others.iter_mut().for_each(|other| other.receive(&sound));
        self.switch.take_rings(&mut self.rings);
        for ring in self.rings.drain(..) {
            assert!(matches!(ring, Ring::Client { session: 1..=OFFENDER, queue: 0 }), "{ring:?} is to be rung");
        }
        for offender in self.switch.take_offenders() {
            assert_eq!((offender.session, self.reported), (OFFENDER, false), "{offender:?} is reported");
            assert!(offender.faults.total() > MOST_FAULTS);
            self.reported = true;
        }
    }

    /// What was refused, by reason; the counts of what became of the offender's frames.
    fn check_reports(&mut self) -> u64 {
        // An audit comes every 64 steps.
        (0..2 * 64).for_each(|_| self.step(1));
        let mut faults = 0;
        for (session, counters, found) in self.switch.clients() {
            let sum: u64 = found.named().iter().map(|(_, count)| count).sum();
            assert_eq!(sum, found.total(), "each fault has a reason, and one: {found:?}");
            if session == OFFENDER {
                faults = sum;
                continue;
            }
            assert_eq!(sum, 0, "client {session} did nothing: {found:?}");
            let dropped = counters.dropped_full + counters.dropped_no_buffer;
            let other = self.others.iter_mut().find(|other| other.session == session).expect("one of the two");
            other.settle();
            assert!(other.lost <= dropped, "client {session} lost {} frames, and {dropped} had no room", other.lost);
            let others = [counters.dropped_length, counters.dropped_spoofed, counters.dropped_vlan];
            assert_eq!(others, [0; 3], "client {session} did nothing: {counters:?}");
        }
        assert_eq!(self.reported, faults > MOST_FAULTS, "{faults} faults");
        faults
    }

    /// Without the offender all is as before.
    fn check_whole(mut self) -> (u64, u64) {
        let received = |others: &[Bystander; 2]| others.iter().map(|other| other.received).sum::<u64>();
        if !self.loopback {
            assert!(self.switch.detach(OFFENDER).is_some(), "it was served");
            // Places that were left to others for its sake are taken again with time; a frame at a time finds room.
            let (before, touched) = (received(&self.others), self.nic.crash().operations());
            for (number, length) in [60, 128, 129, 1514, 4097, 9600].into_iter().enumerate() {
                (0..2).for_each(|from| self.exchange((from + number) % 2, length));
                (0..2).for_each(|_| self.step(1000));
            }
            assert_eq!(
                received(&self.others) - before,
                12,
                "frames between the others are lost when the offender is gone"
            );
            assert_eq!(self.nic.crash().operations(), touched, "who is gone is not looked at");
        }
        assert!(!self.switch.suspend().is_empty());
        self.others.iter_mut().for_each(|other| {
            other.receive(&[]);
            other.check_whole();
        });
        (self.worst, received(&self.others))
    }
}

/// Images for the switch.
#[derive(Default)]
pub struct NicHalf {
    worst: u64,
    faults: u64,
    reported: u64,
    received: u64,
}

impl Target for NicHalf {
    fn run(&mut self, input: &[u8]) {
        let (header, said) = read(input);
        let mut world = World::new(header);
        for one in said {
            match one {
                Said::Word(word, value) => world.region.write(word, value),
                Said::Action(action, value) => world.act(action, value),
            }
        }
        world.act(BETWEEN, 0);
        self.faults += world.check_reports();
        self.reported += u64::from(world.reported);
        let (worst, received) = world.check_whole();
        (self.worst, self.received) = (self.worst.max(worst), self.received + received);
    }

    fn end(&mut self) -> String {
        let NicHalf { worst, faults, reported, received } = *self;
        assert!(faults > 100 && reported > 10 && received > 100, "{faults} faults, {reported} reported: too coarse");
        format!(
            "{faults} faults, {reported} reported, {received} frames of the others; {worst} operations in a step at most"
        )
    }
}
