//! Each thread of a network is bound to the core that the configuration names for it. A program of its own: it looks at the threads of its
//! process by their names.

use conic_check::skipped;
use conic_daemon::{Daemon, Stop};
use conic_nicd::config::{Config, NetworkConfig};

/// The cores that each thread of a name of this process may run on, as the kernel writes them.
fn cores_of(name: &str) -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("they can be listed");
    let statuses = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let field = |status: &str, field: &str| {
        let lines = status.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        lines.map(|value| value.trim().to_owned()).next().unwrap_or_default()
    };
    let named = statuses.filter(|status| field(status, "Name") == name);
    named.map(|status| field(&status, "Cpus_allowed_list")).collect()
}

#[test]
fn a_thread_runs_on_its_own_core_and_on_any_where_none_is_named() {
    let cores = rustix::thread::sched_getaffinity(None).expect("it can be asked");
    let own: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| cores.is_set(core)).take(2).collect();
    let &[one, other] = own.as_slice() else { return skipped("two threads on cores of their own need two cores") };
    let folder = tempfile::tempdir().expect("a folder");
    let of = |name: &str, cores| NetworkConfig { name: name.to_owned(), threads: 2, cores, ..NetworkConfig::default() };
    let first = NetworkConfig { name: "first".to_owned(), core: Some(other), ..NetworkConfig::default() };
    let networks = vec![of("bound", vec![other, one]), of("free", Vec::new()), first];
    let config = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
    let config = config.checked().expect("a sound configuration");
    let stop = Stop::new().expect("a descriptor");
    let daemon = Daemon::start(config, stop.clone(), Box::new(|_| {})).expect("it starts");
    let bound = ["nic-0", "nic-0-1", "nic-2"].map(cores_of);
    assert_eq!(bound, [other, one, other].map(|core| vec![core.to_string()]));
    let free = cores_of("nic-1");
    assert_eq!((free.len(), cores_of("nic-1-1")), (1, free.clone()));
    assert!(![one, other].map(|core| core.to_string()).contains(&free[0]), "{free:?}");
    let daemon = std::thread::spawn(move || daemon.run());
    stop.raise();
    assert!(matches!(daemon.join(), Ok(Ok(_))));
}
