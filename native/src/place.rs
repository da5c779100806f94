//! Where threads and memory sit: cores, NUMA nodes, and what machine this is.

use std::io;
use std::path::Path;

/// The cores this process may run on, in order.
pub fn cores() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain data for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes into a structure that is ours, of the size it is told.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return vec![0];
    }
    // SAFETY: every index is below the number of bits of the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Whether this thread may run on a core, as a process that has bound none of its threads may wherever it may at all.
///
/// # Errors
///
/// It may not, or there is none; the error names it and those that there are.
pub fn may_run_on(core: usize) -> io::Result<()> {
    let there = cores();
    if there.contains(&core) {
        return Ok(());
    }
    let why = format!("this process may not run on core {core}; it may on {there:?}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Binds the calling thread to one core.
///
/// # Errors
///
/// That of [`may_run_on`], or what the system said.
pub fn pin(core: usize) -> io::Result<()> {
    if core >= libc::CPU_SETSIZE as usize {
        return may_run_on(core);
    }
    // SAFETY: `cpu_set_t` is plain data for which zeroes are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index was checked above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the call reads a structure that is ours, of the size it is told.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Not asked before: a thread that was bound to one core may be bound to another.
    may_run_on(core).and(Err(error))
}

/// Lets another thread have this core: for loops that may share it, as tests do on a busy machine.
pub fn yield_core() {
    std::thread::yield_now();
}

/// A hint to the core that this thread looks again at once: [`conic_fabric::Core::spin`] for who has no region at hand.
pub fn spin() {
    std::hint::spin_loop();
}

/// The NUMA nodes that have cores, in order: not those of memory alone, such as memory behind CXL.
pub fn numa_nodes() -> Vec<usize> {
    numa_nodes_in(Path::new("/sys/devices/system/node"))
}

fn numa_nodes_in(folder: &Path) -> Vec<usize> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![0] };
    let has_cores = |entry: &std::fs::DirEntry| {
        let list = std::fs::read_to_string(entry.path().join("cpulist"));
        list.is_ok_and(|list| !list.trim().is_empty())
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<usize> = entries.flatten().filter(has_cores).filter_map(number).collect();
    nodes.sort_unstable();
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// Asks that a range of pages, which begins and ends with one, be allocated on a NUMA node. A preference: a node without memory left is no
/// error.
///
/// # Errors
/// The system knows no such wishes (`ENOSYS`), lets nobody have any (`EPERM`), or the range begins within a page (`EINVAL`).
pub(crate) fn prefer_node(start: *mut u8, bytes: usize, node: usize) -> std::io::Result<()> {
    const MPOL_PREFERRED: libc::c_long = 1;
    // As many nodes as Linux knows at most.
    let mut mask = [0u64; 16];
    let Some(word) = mask.get_mut(node / 64) else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    *word = 1 << (node % 64);
    // The kernel takes one bit less than it is told.
    let bits = 64 * mask.len() + 1;
    // SAFETY: the range lies in a mapping of the caller's; the call reads a mask of so many bits, which is ours.
    let failed = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, MPOL_PREFERRED, mask.as_ptr(), bits, 0) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// What machine a figure was measured on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The processor's own name.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// NUMA nodes.
    pub numa_nodes: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Whether a hypervisor stands between.
    pub virtual_machine: bool,
}

impl Machine {
    /// Asks this machine.
    pub fn here() -> Machine {
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = information.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cores().len(),
            numa_nodes: numa_nodes().len(),
            kernel: kernel.trim().to_owned(),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_its_core_alone() {
        let last = *cores().last().expect("a process runs on some core");
        std::thread::spawn(move || {
            pin(last).expect("a core of our own");
            assert_eq!(cores(), [last]);
        })
        .join()
        .expect("the pinned thread");
    }

    #[test]
    fn a_node_of_memory_alone_is_no_place_for_a_side() {
        let folder = std::env::temp_dir().join(format!("conic-nodes-{}", std::process::id()));
        for (node, list) in [("node0", "0-3\n"), ("node2", "4-7\n"), ("node1", "\n")] {
            std::fs::create_dir_all(folder.join(node)).expect("a folder");
            std::fs::write(folder.join(node).join("cpulist"), list).expect("a file");
        }
        let found = numa_nodes_in(&folder);
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(found, [0, 2]);
        assert_eq!(numa_nodes_in(Path::new("/nonexistent")), [0]);
    }

    #[test]
    fn a_core_that_does_not_exist_is_an_error() {
        assert!(pin(100_000).is_err());
    }
}
