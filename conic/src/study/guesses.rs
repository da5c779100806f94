//! The platforms of the study, and each of their guesses at the ends of its range.

use conic_sim::Parameters;
use conic_sim::platform::{Entry, Platform, Value};
use conic_study::experiment::Platforms;
use conic_study::sensitivity::Guess;

/// The platforms that come with the program, and if asked for, their guesses.
///
/// # Errors
///
/// A message, if a platform is faulty, or an end of a guess's range gives none that can be.
pub fn load(with_guesses: bool) -> Result<(Platforms, Vec<Guess>), String> {
    let of = |name: &str| Platform::load(name).map_err(|error| error.to_string());
    let (icx, spr) = (of("icx")?, of("spr")?);
    let platforms = Platforms {
        icx: icx.parameters().clone(),
        spr: spr.parameters().clone(),
        icx_cx6: of("icx-cx6")?.parameters().clone(),
        icx_e810: of("icx-e810")?.parameters().clone(),
    };
    let mut guesses = Vec::new();
    if with_guesses {
        for platform in [&icx, &spr] {
            for entry in platform.guesses() {
                guesses.extend(guess(platform, entry, &platforms)?);
            }
        }
    }
    Ok((platforms, guesses))
}

/// A guess at both ends of its range; none where the range has no width.
fn guess(platform: &Platform, entry: &Entry, platforms: &Platforms) -> Result<Option<Guess>, String> {
    let Some((low, high)) = entry.range.filter(|(low, high)| low < high) else {
        return Ok(None);
    };
    let at = |value: f64| -> Result<Platforms, String> {
        let parameters = platform.vary(&entry.key, value).map_err(|error| error.to_string())?;
        Ok(with(platforms, platform.name(), parameters))
    };
    let written = |value: f64| match entry.value {
        Value::Flag(_) => Value::Flag(value != 0.0).to_string(),
        Value::Number(_) => format!("{} {}", Value::Number(value), entry.unit).trim().to_owned(),
    };
    Ok(Some(Guess {
        name: format!("{} {}", platform.name(), entry.key),
        range: [written(low), written(high)],
        platforms: [at(low)?, at(high)?],
    }))
}

fn with(platforms: &Platforms, name: &str, parameters: Parameters) -> Platforms {
    let mut platforms = platforms.clone();
    match name {
        "icx" => platforms.icx = parameters,
        _ => platforms.spr = parameters,
    }
    platforms
}
