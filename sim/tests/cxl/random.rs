//! Random programs of cores and engines over few lines: every word of a line has one writer, who counts up, so that a reader that
//! sees a word go back has seen stale data.

use conic_fabric::{Address, Core, Device, StateHint};
use conic_sim::Role;
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::draws::Draws;

use super::{machine, places};

const LINES: u64 = 6;
const HINTS: [StateHint; 4] =
    [StateHint::NonCacheable, StateHint::NonCacheablePush, StateHint::CacheableShared, StateHint::CacheableOwned];

/// What a reader has seen of each word, and checks that nothing goes back.
#[derive(Default)]
struct Seen(std::collections::BTreeMap<u64, u64>);

impl Seen {
    fn check(&mut self, at: Address, value: u64) {
        let before = self.0.entry(at.0).or_insert(0);
        assert!(value >= *before, "{at} went back from {before} to {value}");
        *before = value;
    }
}

/// The place of a writer's word.
fn word(places: super::Places, random: &mut Draws, writer: usize) -> Address {
    let line = random.below(2 * LINES);
    let base = if line < LINES { places.host } else { places.device };
    base.lines(line % LINES).word(writer)
}

fn core_program(core: &impl Core, places: super::Places, writer: usize, seed: u64, steps: u64) {
    let mut random = Draws::new(seed);
    let (mut seen, mut value) = (Seen::default(), 0);
    for _ in 0..steps {
        let at = word(places, &mut random, writer);
        match random.below(12) {
            0..=2 => {
                value += 1;
                core.store(at, value);
            }
            8 => core.prefetch_read(at.line()),
            9 => core.prefetch_write(at.line()),
            3..=5 => {
                let other = random.below(4) as usize;
                let at = at.line().word(other);
                seen.check(at, core.load(at));
            }
            // The program goes on behind these, and what it loads next may not be older.
            10..=11 => {
                let line = core.read_line(at.line());
                for word in 0..4 {
                    seen.check(at.line().word(word), line.0[word]);
                }
            }
            6 => core.flush(at.line()),
            _ => core.demote(at.line()),
        }
        if random.below(4) == 0 {
            core.work(random.below(300) as u32);
        }
    }
}

fn device_program(device: &impl Device, places: super::Places, writer: usize, seed: u64, steps: u64) {
    let mut random = Draws::new(seed);
    let (mut seen, mut value) = (Seen::default(), 0);
    for _ in 0..steps {
        let at = word(places, &mut random, writer);
        let hint = HINTS[random.below(4) as usize];
        if random.below(2) == 0 {
            value += 1;
            device.write_word(at, value, hint);
        } else {
            let at = at.line().word(random.below(4) as usize);
            seen.check(at, device.read_word(at, hint));
        }
        if random.below(4) == 0 {
            device.work(random.below(100) as u32);
        }
    }
}

pub(super) fn random_run(parameters: &CxlParameters, seed: u64) -> CxlSimulation {
    let (layout, places) = places(LINES);
    let mut simulation = CxlSimulation::new(parameters, &layout);
    simulation.machine().borrow_mut().disturb(seed, 100_000);
    for writer in 0..2 {
        simulation
            .core("core", Role::Main, move |core| core_program(core, places, writer, seed * 4 + writer as u64, 600));
    }
    for writer in 2..4 {
        simulation.device("engine", Role::Main, move |device| {
            device_program(device, places, writer, seed * 4 + writer as u64, 400);
        });
    }
    simulation.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    simulation
}

#[test]
fn no_word_ever_goes_back() {
    for seed in 1..60 {
        random_run(&machine("agilex7"), seed);
    }
}

#[test]
fn nor_where_the_devices_caches_hold_two_lines() {
    let mut parameters = machine("agilex7");
    (parameters.dcoh.hmc_bytes, parameters.dcoh.hmc_ways) = (128, 2);
    (parameters.dcoh.dmc_bytes, parameters.dcoh.dmc_ways) = (128, 2);
    (parameters.cache.l1_bytes, parameters.cache.l1_ways) = (128, 2);
    (parameters.cache.l2_bytes, parameters.cache.l2_ways) = (128, 2);
    (parameters.cache.llc_bytes, parameters.cache.llc_ways) = (256, 4);
    for seed in 100..150 {
        random_run(&parameters, seed);
    }
}
