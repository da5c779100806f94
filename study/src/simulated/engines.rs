//! Copy engines for the cores of a side.

use conic_sim::Simulation;

use crate::workload::{Application, Loopback};

/// Refuses engines where there are none, or nothing for them to do.
///
/// # Errors
///
/// What is wrong, and what to do.
pub(super) fn check(question: &Loopback) -> Result<(), String> {
    let switches = &question.switches;
    let name = &question.machine.name;
    if !switches.engines.host && !switches.engines.nic {
        return Ok(());
    }
    if question.machine.engine.is_none() {
        return Err(format!("{name} has no copy engines: take a platform that has an [engine], such as spr"));
    }
    if switches.engines.host && switches.application != Application::Copying {
        return Err("the host's copy engine has nothing to do where the host does not copy its packets".to_owned());
    }
    if switches.engines.nic && matches!(switches.application, Application::Forwarding(_)) {
        return Err("the NIC's copy engine has nothing to do where packets are forwarded in their buffers".to_owned());
    }
    Ok(())
}

/// Gives the host's cores, on node 0, and the NIC's the engines that they are to have.
pub(super) fn give(question: &Loopback, simulation: &mut Simulation, hosts: &[usize], nics: (usize, &[usize])) {
    if question.switches.engines.host {
        add(simulation, "host", 0, hosts);
    }
    if question.switches.engines.nic {
        add(simulation, "NIC", nics.0, nics.1);
    }
}

/// Adds engines to a node and gives them to these cores in turn.
fn add(simulation: &mut Simulation, side: &str, node: usize, cores: &[usize]) {
    let most = simulation.machine().borrow().engines_of_a_node() as usize;
    let engine = |index: usize| simulation.engine(&format!("{side} engine {index}"), node);
    let engines: Vec<usize> = (0..most.min(cores.len())).map(engine).collect();
    for (&core, &engine) in cores.iter().zip(engines.iter().cycle()) {
        simulation.machine().borrow_mut().set_engine(core, engine);
    }
}
