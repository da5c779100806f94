//! How far the headline results move when each guess of the platforms goes over its range.

use conic_chart::{Axis, Bar, Chart};

use crate::ask::{Answers, Ask};
use crate::experiment::{Found, HEADLINES, Platforms, Setting, Value, headlines};
use crate::report::Picture;
use crate::workload::Question;

/// A guess of the platforms `P`, at both ends of its range. Whoever knows the platform files resolves what depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess<P = Platforms> {
    /// Its platform and key.
    pub name: String,
    /// The ends of its range as they are written, such as `20 ns`.
    pub range: [String; 2],
    /// The machines with the guess at the low and at the high end, everything else as it is.
    pub platforms: [P; 2],
}

/// How far a guess moves a headline result.
#[derive(Clone, Debug, PartialEq)]
pub struct Movement {
    /// The guess.
    pub guess: String,
    /// The ends of its range.
    pub range: [String; 2],
    /// The headline result's id.
    pub headline: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The result as the platforms stand.
    pub nominal: f64,
    /// The result with the guess at the low and at the high end.
    pub ends: [f64; 2],
}

impl Movement {
    /// The larger change, relative to the result as the platforms stand.
    pub fn change(&self) -> f64 {
        self.ends.iter().map(|end| (end / self.nominal - 1.0).abs()).fold(0.0, f64::max)
    }
}

/// What the guesses do to the headline results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moves {
    /// How far each guess moves each headline result that it moves at all: by headline in their order, the largest change first.
    pub movements: Vec<Movement>,
    /// Which headline results have no value, and with what guess: their runs failed, or were not made.
    pub unknown: Vec<String>,
}

/// What the sensitivity report wants to know beyond the answers, each question once; none: it is complete.
pub fn questions(setting: &Setting, guesses: &[Guess], answers: &Answers) -> Vec<Question> {
    let mut ask = Ask::new(answers);
    headlines(setting, &mut ask);
    for platforms in guesses.iter().flat_map(|guess| &guess.platforms) {
        headlines(&with(setting, platforms), &mut ask);
    }
    let (mut wanted, _) = ask.finish();
    wanted.sort_by_key(|question| std::cmp::Reverse(question.weight()));
    wanted
}

fn with(setting: &Setting, platforms: &Platforms) -> Setting {
    Setting { platforms: platforms.clone(), ..setting.clone() }
}

/// What the guesses do to the headline results, as far as the answers say.
pub fn movements(setting: &Setting, guesses: &[Guess], answers: &Answers) -> Moves {
    let mut ask = Ask::new(answers);
    let nominal = headlines(setting, &mut ask);
    let ends = guesses.iter().map(|guess| {
        (guess, guess.platforms.each_ref().map(|platforms| headlines(&with(setting, platforms), &mut ask)))
    });
    moved(&HEADLINES, &nominal, ends)
}

/// Headline results of what experiments found, each a number; none of one that was not found.
pub fn numbers(found: &[Found], headlines: &[(&'static str, &'static str)]) -> Vec<Option<f64>> {
    let predictions = || found.iter().flat_map(|found| &found.findings.predictions);
    let of = |(id, _): &(&str, &str)| match predictions().find(|one| one.id == *id)?.value {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    };
    headlines.iter().map(of).collect()
}

/// What the guesses do to the headline results, from what these are with each guess at both ends.
pub fn moved<'a, P: 'a, R: AsRef<[Option<f64>]>>(
    headlines: &[(&'static str, &'static str)],
    nominal: &[Option<f64>],
    ends: impl IntoIterator<Item = (&'a Guess<P>, [R; 2])>,
) -> Moves {
    let mut found = Vec::new();
    let missing = headlines.iter().zip(nominal).filter(|(_, nominal)| nominal.is_none());
    let mut unknown: Vec<String> =
        missing.map(|((headline, _), _)| format!("{headline} as the platforms stand")).collect();
    for (guess, both) in ends {
        for (index, (headline, unit)) in headlines.iter().copied().enumerate() {
            let [low, high] = both.each_ref().map(|end| end.as_ref()[index]);
            for (_, value) in [low, high].iter().zip(&guess.range).filter(|(end, _)| end.is_none()) {
                unknown.push(format!("{headline} with {} at {value}", guess.name));
            }
            let (Some(nominal), Some(low), Some(high)) = (nominal[index], low, high) else { continue };
            if low != nominal || high != nominal {
                let (guess, range) = (guess.name.clone(), guess.range.clone());
                found.push((index, Movement { guess, range, headline, unit, nominal, ends: [low, high] }));
            }
        }
    }
    found.sort_by(|(one, a), (other, b)| one.cmp(other).then(b.change().total_cmp(&a.change())));
    Moves { movements: found.into_iter().map(|(_, movement)| movement).collect(), unknown }
}

/// Guesses of a picture at most: those that matter least are left out, and the note says how many.
const BARS: usize = 16;

/// A picture for each headline result: a bar with a whisker for each guess.
pub fn pictures(movements: &[Movement]) -> Vec<Picture> {
    // Those of one headline stand together.
    let of = |own: &[Movement]| {
        let (headline, unit) = (own[0].headline, own[0].unit);
        let bars = own.iter().take(BARS).map(|movement| {
            let [low, high] = movement.ends;
            let least = low.min(high).min(movement.nominal);
            let most = low.max(high).max(movement.nominal);
            let label = format!("{} ({} to {})", movement.guess, movement.range[0], movement.range[1]);
            Bar::new(label, movement.nominal)
                .spread(least, most)
                .annotation(format!("{:.1}%", 100.0 * movement.change()))
        });
        let left = own.len().saturating_sub(BARS);
        let mut note = "Whisker: the result with this guess over its range; the share is the larger change.".to_owned();
        if left > 0 {
            note += &format!(" {left} more guesses move it less.");
        }
        let chart = Chart::bars(format!("What the guesses do to {headline}"), Axis::linear(headline, unit), bars);
        Picture { name: format!("sensitivity-{headline}"), chart: chart.note(note) }
    };
    movements.chunk_by(|one, other| one.headline == other.headline).map(of).collect()
}
