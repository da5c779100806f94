//! Every value that a platform takes makes a machine that runs: the least and the largest of each key, one at a time.

use conic_fabric::{Address, Core, Device, Home, Layout, Line, StateHint, SynchronisingWords, Time};
use conic_sim::cxl::{CxlParameters, CxlSimulation};
use conic_sim::platform::{Field, Kind, ParameterSet, Platform};
use conic_sim::{Options, Parameters, Role, Simulation};

/// A field's values at the ends, in its own unit, as overrides.
fn ends(field: &Field) -> Vec<String> {
    if field.kind == Kind::Flag {
        return ["false", "true"].map(|flag| format!("{}={flag}", field.key)).to_vec();
    }
    let most = match field.kind {
        // The tags of a cache of the largest size take longer to make than all other machines.
        Kind::Bytes => field.least,
        // A millisecond is longer than any stage takes, and a run of many of them still ends.
        Kind::Picoseconds => 1e9,
        _ => field.most,
    };
    [field.least, most].map(|value| format!("{}={value}{}", field.key, field.kind.own_unit())).to_vec()
}

/// Gives a run each machine that differs from a platform in one value at its end, and how many there were.
fn with_each_end<P: ParameterSet>(name: &str, run: impl Fn(&P, &str)) -> usize {
    let platform: Platform<P> = Platform::load_as(name).expect("a platform that comes with the crate");
    let fields = P::MODEL.fields().filter(|field| platform.entry(field.key).is_some());
    let machines = fields.flat_map(ends).filter_map(|value| Some((platform.with(&[&value]).ok()?, value)));
    machines.map(|(platform, value)| run(platform.parameters(), &format!("{name} with {value}"))).count()
}

/// Writes lines, waits for the other's, looks at them, and says so: by turns with whoever does the same the other way round.
fn exchange(core: &impl Core, mine: Address, other: Address) {
    let wait_for = |flag: Address, value| {
        while core.load_acquire(flag) < value {
            core.spin();
        }
    };
    for round in 1..=2 {
        for line in 1..=6 {
            core.write_line(mine.lines(line), &Line([round; 8]));
        }
        core.write_nontemporal(mine.lines(7), &[Line([round; 8]); 2]);
        core.fence();
        core.store_release(mine, 2 * round);
        wait_for(other, 2 * round);
        let mut lines = [Line::ZERO; 8];
        core.read_lines(other.lines(1), &mut lines);
        assert!(lines.iter().all(|line| *line == Line([round; 8])), "round {round}: {lines:?}");
        core.fetch_or(mine, 1);
        wait_for(other, 2 * round + 1);
    }
}

/// A device copies lines of the host.
fn copy(device: &impl Device, from: Address, to: Address) {
    let mut bytes = [1; 300];
    device.read(from + 20, &mut bytes, StateHint::NonCacheable);
    assert!(bytes.iter().all(|byte| *byte == 0), "nobody writes there");
    device.write(to, &[7; 300], StateHint::NonCacheablePush);
    device.read(to, &mut bytes, StateHint::NonCacheable);
    assert!(bytes.iter().all(|byte| *byte == 7), "a device reads what it wrote");
}

#[test]
fn two_sockets_run_with_each_value_at_its_ends() {
    let mut layout = Layout::new();
    let host = layout.add("host", 4096, 64, Home::Host, SynchronisingWords::ALL);
    let nic = layout.add("nic", 4096, 64, Home::Nic, SynchronisingWords::ALL);
    let run = |parameters: &Parameters, what: &str| {
        let mut simulation = Simulation::new(parameters, &layout, Options { checked: true, ..Options::default() });
        simulation.core("one", 0, Role::Main, Time::ZERO, move |core| exchange(&core, host, nic));
        simulation.core("other", 1, Role::Main, Time::ZERO, move |core| exchange(&core, nic, host));
        if parameters.pcie.is_some() {
            simulation.device("device", Role::Main, Time::ZERO, move |device| {
                copy(&device, host.lines(20), host.lines(40));
            });
        }
        simulation.run().unwrap_or_else(|failure| panic!("{what}: {failure}"));
    };
    let machines = ["spr", "icx-e810", "pc-pcie"].map(|name| with_each_end::<Parameters>(name, run));
    assert!(machines.iter().all(|machines| *machines > 90), "{machines:?}");
}

#[test]
fn a_host_and_a_cxl_device_run_with_each_value_at_its_ends() {
    let mut layout = Layout::new();
    let host = layout.add("host", 4096, 64, Home::Host, SynchronisingWords::ALL);
    let device = layout.add("device", 4096, 64, Home::Nic, SynchronisingWords::ALL);
    let run = |parameters: &CxlParameters, what: &str| {
        let mut simulation = CxlSimulation::new(parameters, &layout);
        // Where there is only one core, it has nobody to exchange with but itself.
        let alone = parameters.core.cores == 1;
        simulation.core("one", Role::Main, move |core| exchange(&core, host, if alone { host } else { device }));
        if !alone {
            simulation.core("other", Role::Main, move |core| exchange(&core, device, host));
        }
        simulation.device("device", Role::Main, move |engine| {
            copy(&engine, host.lines(20), host.lines(40));
            copy(&engine, device.lines(20), device.lines(40));
        });
        simulation.run().unwrap_or_else(|failure| panic!("{what}: {failure}"));
    };
    let machines = ["agilex7", "cxl3-asic"].map(|name| with_each_end::<CxlParameters>(name, run));
    assert!(machines.iter().all(|machines| *machines > 150), "{machines:?}");
}
