//! The platforms of the study, and each of their guesses at the ends of its range.

use conic_sim::Parameters;
use conic_sim::cxl::CxlParameters;
use conic_sim::eci::EciParameters;
use conic_sim::platform::{Entry, ParameterSet, Platform, PlatformError, Value};
use conic_study::coherent_pio::Machines;
use conic_study::cxl_nic::Machines as CxlMachines;
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
                guesses.extend(guess(platform, entry, |parameters| with(&platforms, platform.name(), parameters))?);
            }
        }
    }
    Ok((platforms, guesses))
}

/// Each guess of coherent programmed I/O's platforms that there are results of.
///
/// # Errors
///
/// As for [`load`].
pub fn of_coherent_pio(
    [enzian, cxl]: [&Platform<EciParameters>; 2],
    thunderx: &Platform,
    [enzian_pcie, pc_pcie]: [&Platform; 2],
    machines: &Machines,
) -> Result<Vec<Guess<Machines>>, String> {
    let mut guesses = Vec::new();
    for entry in enzian.guesses() {
        guesses.extend(guess(enzian, entry, |enzian| Machines { enzian, ..machines.clone() })?);
    }
    for entry in cxl.guesses() {
        guesses.extend(guess(cxl, entry, |cxl| Machines { cxl, ..machines.clone() })?);
    }
    for entry in thunderx.guesses() {
        guesses.extend(guess(thunderx, entry, |thunderx| Machines { thunderx, ..machines.clone() })?);
    }
    // What stands in the file that both extend is one guess, which both machines follow.
    let is_shared = |one: &Entry| pc_pcie.entries().any(|other| other.key == one.key && other.file == one.file);
    for entry in enzian_pcie.guesses() {
        let of_both = is_shared(entry);
        guesses.extend(guess_of(enzian_pcie, entry, |value| {
            let pc_pcie = if of_both { pc_pcie.vary(&entry.key, value)? } else { machines.pc_pcie.clone() };
            Ok(Machines { enzian_pcie: enzian_pcie.vary(&entry.key, value)?, pc_pcie, ..machines.clone() })
        })?);
    }
    let pc_alone = |entry: &&Entry| !enzian_pcie.entries().any(|one| one.key == entry.key && one.file == entry.file);
    for entry in pc_pcie.guesses().filter(pc_alone) {
        guesses.extend(guess(pc_pcie, entry, |pc_pcie| Machines { pc_pcie, ..machines.clone() })?);
    }
    Ok(guesses)
}

/// Each guess of the CXL-NIC's two hosts. One that both have alike is a guess about the host that they are, and changed in both.
///
/// # Errors
///
/// As for [`load`].
pub fn of_cxl_nic(
    agilex: &Platform<CxlParameters>,
    bluefield: &Platform<CxlParameters>,
) -> Result<Vec<Guess<CxlMachines>>, String> {
    let is_shared = |key: &str| agilex.entry(key).is_some() && agilex.entry(key) == bluefield.entry(key);
    let mut guesses = Vec::new();
    for entry in agilex.guesses() {
        guesses.extend(guess_of(agilex, entry, |value| {
            let shared = is_shared(&entry.key);
            let bluefield = if shared { bluefield.vary(&entry.key, value)? } else { bluefield.parameters().clone() };
            Ok(CxlMachines { agilex: agilex.vary(&entry.key, value)?, bluefield })
        })?);
    }
    for entry in bluefield.guesses().filter(|entry| !is_shared(&entry.key)) {
        let with = |bluefield| CxlMachines { agilex: agilex.parameters().clone(), bluefield };
        guesses.extend(guess(bluefield, entry, with)?);
    }
    Ok(guesses)
}

/// A guess at both ends of its range, in all platforms; none where the range has no width.
fn guess<P: ParameterSet, S>(
    platform: &Platform<P>,
    entry: &Entry,
    with: impl Fn(P) -> S,
) -> Result<Option<Guess<S>>, String> {
    guess_of(platform, entry, |value| Ok(with(platform.vary(&entry.key, value)?)))
}

/// The same, where `at` says what the platforms are with a value of the guess.
fn guess_of<P: ParameterSet, S>(
    platform: &Platform<P>,
    entry: &Entry,
    at: impl Fn(f64) -> Result<S, PlatformError>,
) -> Result<Option<Guess<S>>, String> {
    let Some((low, high)) = entry.range.filter(|(low, high)| low < high) else {
        return Ok(None);
    };
    let at = |value: f64| at(value).map_err(|error| error.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_about_the_cxl_nics_host_is_varied_in_both_platforms() {
        let load = |name| Platform::<CxlParameters>::load_as(name).expect("a platform that comes with the simulator");
        let (agilex, bluefield) = (load("agilex7"), load("bf3"));
        let all = of_cxl_nic(&agilex, &bluefield).expect("every end of every guess can be");
        let named = |name: &str| all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}"));
        let crossing = named("agilex7 link.crossing");
        assert_eq!(crossing.platforms.each_ref().map(|machines| machines.agilex.link.crossing), [35_000, 55_000]);
        assert_eq!(crossing.platforms[0].bluefield.link.crossing, 35_000);
        let software = named("bf3 software.hit");
        assert_eq!(&software.platforms[0].agilex, agilex.parameters());
        assert!(all.iter().filter(|one| one.name.ends_with(" link.crossing")).count() == 1);
        let own = bluefield.guesses().filter(|entry| agilex.entry(&entry.key) != Some(entry)).count();
        assert_eq!(all.len(), agilex.guesses().count() + own);
    }
}
