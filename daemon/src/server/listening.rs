//! The sockets at which clients, operators and Prometheus find the daemon, and the other end of one.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use conic_native::channel::{Channel, Listener};
use conic_native::may_run_on;
use conic_nicd::config::Config;
use conic_port::{Made, folder_of};
use rustix::net::SocketAddrUnix;

use super::metrics::Metrics;
use super::{Daemon, DaemonError};

/// A connection to the daemon that listens at a path.
pub(super) fn connect(path: &Path) -> Result<Channel, DaemonError> {
    Channel::connect(path).map_err(|error| DaemonError::Cannot {
        what: format!("taking over at {}", path.display()),
        why: format!("{error}; without --adopt a NIC starts afresh"),
    })
}

/// Listens where Prometheus asks, with the socket of the daemon before this one where that listens there: two cannot at one time.
pub(super) fn listen_for_metrics(address: SocketAddr, passed: Option<TcpListener>) -> Result<Metrics, DaemonError> {
    if let Some(listener) = passed.filter(|passed| passed.local_addr().is_ok_and(|own| own == address)) {
        return Ok(Metrics::new(listener));
    }
    let cannot = |error: io::Error| DaemonError::Cannot {
        what: format!("metrics at {address}"),
        why: format!("{error}; name another address with --metrics"),
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(Metrics::new(listener))
}

impl Daemon {
    /// Whether this machine has what a configuration names of it: cores, what its ports name, the folders of mirrors, and a place for the
    /// socket. Nothing is made or opened.
    ///
    /// # Errors
    ///
    /// What it has not, as starting the daemon would say.
    pub fn check(config: &Config) -> Result<(), DaemonError> {
        check_beside(config, folder_to_make(&config.socket)?)
    }
}

/// Whether this machine has what a configuration names of it beside the socket, where its start makes this folder before anything else.
fn check_beside(config: &Config, folder: Option<&Path>) -> Result<(), DaemonError> {
    let ports = || config.networks.iter().flat_map(|network| &network.ports).filter_map(|port| port.spec().ok());
    let interfaces: BTreeSet<String> = ports().filter_map(|port| port.makes().map(str::to_owned)).collect();
    let made = |what: Made<'_>| match what {
        Made::Interface(name) => interfaces.contains(name),
        Made::Folder(one) => folder == Some(one),
    };
    for network in &config.networks {
        let cannot = |why: String| DaemonError::Cannot { what: format!("network \"{}\"", network.name), why };
        let mut specs = network.ports.iter().filter_map(|port| port.spec().ok());
        specs.try_for_each(|port| port.check(&made)).map_err(|error| cannot(error.to_string()))?;
        for mirror in &network.mirrors {
            folder_of(&mirror.file, &made).map_err(|why| cannot(format!("the mirror of {}: {why}", mirror.end)))?;
        }
        let named = (0..network.threads).filter_map(|thread| network.core_of(thread));
        named.into_iter().try_for_each(may_run_on).map_err(|error| cannot(error.to_string()))?;
    }
    Ok(())
}

fn no_socket(path: &Path, why: String) -> DaemonError {
    DaemonError::Cannot { what: format!("socket {}", path.display()), why }
}

/// The folder that is to be made before a socket can be there, if it is not.
///
/// # Errors
///
/// There can be no socket.
fn folder_to_make(path: &Path) -> Result<Option<&Path>, DaemonError> {
    if SocketAddrUnix::new(path).is_err() {
        return Err(no_socket(path, "its path is longer than a socket's may be (107 bytes)".to_owned()));
    }
    if path.symlink_metadata().is_ok_and(|file| !file.file_type().is_socket()) {
        return Err(no_socket(path, "something is there that is no socket: name another with --socket".to_owned()));
    }
    let missing = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    // The folder where everybody looks may be gone with the last boot. Any other that is not there is more likely
    // misspelt than wanted, and what clients are told to look for must not be made by accident.
    match missing {
        Some(folder) if *path != Config::default().socket => {
            let folder = folder.display();
            let why = format!("there is no folder {folder}: make it, or name another socket with --socket");
            Err(no_socket(path, why))
        }
        missing => Ok(missing),
    }
}

/// Listens at the configuration's socket. What a daemon left behind that is gone is removed.
pub(super) fn listen(config: &Config) -> Result<Listener, DaemonError> {
    let path = &config.socket;
    let cannot = |why: String| no_socket(path, why);
    if let Some(folder) = folder_to_make(path)? {
        std::fs::create_dir_all(folder)
            .map_err(|error| cannot(format!("its folder cannot be made: {error}; name another with --socket")))?;
    }
    let bound = match Listener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_behind(path) => {
            std::fs::remove_file(path)
                .map_err(|error| cannot(format!("what is left there cannot be removed: {error}")))?;
            Listener::bind(path)
        }
        bound => bound,
    };
    let listener = bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => cannot("another NIC listens there: name another with --socket".to_owned()),
        _ => cannot(format!("{error}; name another with --socket")),
    })?;
    set_mode(config)?;
    Ok(listener)
}

/// Lets those connect to the configuration's socket who may.
pub(super) fn set_mode(config: &Config) -> Result<(), DaemonError> {
    let cannot = |why: String| no_socket(&config.socket, why);
    let mode = config.mode_bits().map_err(|error| cannot(error.to_string()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(&config.socket, mode)
        .map_err(|error| cannot(format!("its permissions cannot be set: {error}")))
}

/// Whether a socket is there at which nobody listens any more. The kernel refuses a connection to any other file in the same words.
fn is_left_behind(path: &Path) -> bool {
    is_socket(path) && Channel::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use conic_nicd::config::{MirrorConfig, NetworkConfig, PortConfig};

    use super::*;
    use crate::bell::Stop;

    /// Sockets and files in a folder, of a network of a daemon at a socket.
    fn config(socket: &Path, folder: &Path) -> Config {
        let texts = ["vhost-user:{}/a.sock", "memif:{}/b.sock", "capture:record={}/c.pcap"];
        let port = |text: &str| PortConfig { spec: text.replace("{}", &folder.display().to_string()), vlan: None };
        let end = "port:0".parse().expect("an end");
        let mirrors = vec![MirrorConfig { end, file: folder.join("d.pcap"), most_bytes: None }];
        let networks = vec![NetworkConfig { ports: texts.map(port).to_vec(), mirrors, ..NetworkConfig::default() }];
        let config = Config { socket: socket.to_owned(), networks, ..Config::default() };
        config.checked().expect("a sound configuration")
    }

    #[test]
    fn what_is_to_be_in_the_folder_that_a_start_makes_can_be_there() {
        let socket = Config::default().socket;
        let folder = socket.parent().expect("it has one");
        // Whether or not it is there on this machine.
        assert!(Daemon::check(&config(&socket, folder)).is_ok());
        let temporary = tempfile::tempdir().expect("a folder");
        let (socket, folder) = (temporary.path().join("nic.sock"), temporary.path().join("made"));
        let config = config(&socket, &folder);
        assert!(check_beside(&config, Some(&folder)).is_ok());
        // A start makes no other: what it would say, the check says.
        let log = || Box::new(|_: &_| {});
        for why in
            [Daemon::check(&config), Daemon::start(config.clone(), Stop::new().expect("a descriptor"), log()).map(drop)]
        {
            let why = why.expect_err("it is not there").to_string();
            assert!(why.contains("network"), "{why}");
        }
        std::fs::create_dir(&folder).expect("a folder");
        assert!(Daemon::check(&config).is_ok());
        assert!(Daemon::start(config, Stop::new().expect("a descriptor"), log()).is_ok());
    }
}
