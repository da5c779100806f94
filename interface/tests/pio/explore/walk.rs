//! Random runs of machines that are too large to be explored: any step that may happen, drawn evenly.

use super::mutation::Mutation;
use super::search::check;
use super::state::{Setting, State};
use super::step::{Change, Step, steps};

/// What a run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub steps: u64,
    pub evictions: u64,
    pub time_outs: u64,
}

/// Runs until so many exchanges are complete; each must carry its own request and response.
pub fn walk(setting: &Setting, seed: u64, exchanges: u64) -> Result<Walked, String> {
    let mut state = State::new(setting);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut walked, mut possible, mut complete) = (Walked::default(), Vec::new(), 0);
    while complete < exchanges {
        possible.clear();
        steps(setting, Mutation::None, &state, &mut possible);
        let Some(&step) = random.choice(&possible) else {
            return Err(format!("deadlock after {walked:?}\n{state:#?}"));
        };
        // Evictions and time-outs are rarer than what they disturb, or nothing would ever come to pass.
        if matches!(step, Step::Evict(_) | Step::Expire(_)) && random.u8(..8) > 0 {
            continue;
        }
        walked.steps += 1;
        walked.evictions += u64::from(matches!(step, Step::Evict(_)));
        walked.time_outs += u64::from(matches!(step, Step::Expire(_)));
        let mut change = Change { setting, mutation: Mutation::None, state: &mut state, complete: false };
        let taken = change.take(step);
        complete += u64::from(change.complete);
        let seeded = |why| format!("seed {seed}, {walked:?}, {step:?}: {why}");
        taken.and_then(|()| check(setting, &state)).map_err(seeded)?;
        state.tidy();
    }
    Ok(walked)
}
