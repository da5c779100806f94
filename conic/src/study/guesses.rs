//! The platforms of the study, and each of their guesses at the ends of its range.

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
    let (icx, spr, icx_cx6, icx_e810) = (of("icx")?, of("spr")?, of("icx-cx6")?, of("icx-e810")?);
    let platforms = Platforms {
        icx: icx.parameters().clone(),
        spr: spr.parameters().clone(),
        icx_cx6: icx_cx6.parameters().clone(),
        icx_e810: icx_e810.parameters().clone(),
    };
    let guesses = if with_guesses { of_ccnic([&icx, &spr, &icx_cx6, &icx_e810], &platforms)? } else { Vec::new() };
    Ok((platforms, guesses))
}

/// Each guess of CC-NIC's platforms. What stands in Ice Lake's file is one guess, which the machines with a NIC behind PCIe follow.
fn of_ccnic(
    [icx, spr, icx_cx6, icx_e810]: [&Platform; 4],
    platforms: &Platforms,
) -> Result<Vec<Guess<Platforms>>, String> {
    let mut guesses = Vec::new();
    for entry in icx.guesses() {
        let follow = |platform: &Platform, value| match is_in(platform, entry) {
            true => platform.vary(&entry.key, value),
            false => Ok(platform.parameters().clone()),
        };
        guesses.extend(guess_of(icx, entry, |value| {
            let (icx_cx6, icx_e810) = (follow(icx_cx6, value)?, follow(icx_e810, value)?);
            Ok(Platforms { icx: icx.vary(&entry.key, value)?, icx_cx6, icx_e810, ..platforms.clone() })
        })?);
    }
    for entry in spr.guesses() {
        guesses.extend(guess(spr, entry, |spr| Platforms { spr, ..platforms.clone() })?);
    }
    for entry in icx_cx6.guesses().filter(|entry| !is_in(icx, entry)) {
        guesses.extend(guess(icx_cx6, entry, |icx_cx6| Platforms { icx_cx6, ..platforms.clone() })?);
    }
    for entry in icx_e810.guesses().filter(|entry| !is_in(icx, entry)) {
        guesses.extend(guess(icx_e810, entry, |icx_e810| Platforms { icx_e810, ..platforms.clone() })?);
    }
    Ok(guesses)
}

/// Whether a platform has an entry from the same place of the same file.
fn is_in<P: ParameterSet>(platform: &Platform<P>, entry: &Entry) -> bool {
    platform.entries().any(|other| other.key == entry.key && other.file == entry.file)
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
    for entry in enzian_pcie.guesses() {
        let of_both = is_in(pc_pcie, entry);
        guesses.extend(guess_of(enzian_pcie, entry, |value| {
            let pc_pcie = if of_both { pc_pcie.vary(&entry.key, value)? } else { machines.pc_pcie.clone() };
            Ok(Machines { enzian_pcie: enzian_pcie.vary(&entry.key, value)?, pc_pcie, ..machines.clone() })
        })?);
    }
    for entry in pc_pcie.guesses().filter(|entry| !is_in(enzian_pcie, entry)) {
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

/// Each guess of a study's platforms. What stands in a file that several extend is one guess, which all of these follow.
///
/// # Errors
///
/// As for [`load`].
pub fn of_family<P: ParameterSet + Clone>(platforms: &[Platform<P>]) -> Result<Vec<Guess<Vec<P>>>, String> {
    let mut guesses = Vec::new();
    for (index, platform) in platforms.iter().enumerate() {
        let seen = |entry: &Entry| platforms[..index].iter().any(|before| is_in(before, entry));
        for entry in platform.guesses().filter(|entry| !seen(entry)) {
            guesses.extend(guess_of(platform, entry, |value| {
                let follow = |platform: &Platform<P>| match is_in(platform, entry) {
                    true => platform.vary(&entry.key, value),
                    false => Ok(platform.parameters().clone()),
                };
                platforms.iter().map(follow).collect()
            })?);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_about_ice_lake_is_varied_once_in_all_its_machines_and_each_nic_has_its_own() {
        let (_, all) = load(true).expect("every end of every guess can be");
        let named = |name: &str| {
            let mut found = all.iter().filter(|one| one.name == name);
            let one = found.next().unwrap_or_else(|| panic!("{name}"));
            assert!(found.next().is_none(), "{name} is there once");
            one
        };
        let clock = named("icx core.frequency_megahertz");
        let of = |of: fn(&Platforms) -> u32| clock.platforms.each_ref().map(of);
        let varied = of(|platforms| platforms.icx.core.frequency_megahertz);
        assert!(varied[0] < varied[1]);
        assert_eq!(of(|platforms| platforms.icx_cx6.core.frequency_megahertz), varied);
        assert_eq!(of(|platforms| platforms.icx_e810.core.frequency_megahertz), varied);
        let tags = named("icx-cx6 pcie.tags");
        assert_eq!(tags.platforms[0].icx_e810, tags.platforms[1].icx_e810);
        named("icx-e810 pcie.tags");
        assert!(!all.iter().any(|one| one.name == "icx-cx6 core.frequency_megahertz"));
    }

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

    #[test]
    fn every_guess_of_a_study_on_one_platform_can_be_varied() {
        fn of<P: ParameterSet + Clone>(name: &str) {
            let platform = Platform::<P>::load_as(name).expect("a platform that comes with the simulator");
            let all = of_family(std::slice::from_ref(&platform)).expect("every end of every guess can be");
            let wide = platform.guesses().filter(|entry| entry.range.is_some_and(|(low, high)| low < high));
            let wide: Vec<String> = wide.map(|entry| format!("{name} {}", entry.key)).collect();
            assert!(!wide.is_empty());
            assert_eq!(all.iter().map(|guess| guess.name.clone()).collect::<Vec<_>>(), wide);
        }
        of::<conic_sim::bus::BusParameters>("hypersparc");
        of::<conic_sim::host::HostParameters>("cascade-lake");
    }

    #[test]
    fn a_guess_that_one_host_has_of_the_other_is_varied_in_both_and_its_own_in_itself() {
        use conic_sim::host::HostParameters;
        let load = |name| Platform::<HostParameters>::load_as(name).expect("a platform that comes with the simulator");
        let all = of_family(&["cascade-lake", "ice-lake"].map(load)).expect("every end of every guess can be");
        let of = |name: &str, of: fn(&HostParameters) -> u64| {
            let mut found = all.iter().filter(|one| one.name == name);
            let one = found.next().unwrap_or_else(|| panic!("{name}"));
            assert!(found.next().is_none(), "{name} is there once");
            one.platforms.each_ref().map(|hosts| [of(&hosts[0]), of(&hosts[1])])
        };
        let writes = of("cascade-lake controller.most_writes", |host| host.controller.most_writes.into());
        assert_eq!(writes, [[32, 32], [128, 128]]);
        let refill = of("ice-lake core.refill", |host| host.core.refill);
        assert_eq!((refill[0][0], [refill[0][1], refill[1][1]]), (refill[1][0], [3_000, 10_000]));
        assert!(!all.iter().any(|one| one.name == "ice-lake controller.most_writes"));
    }
}
