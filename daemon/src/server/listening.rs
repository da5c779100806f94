//! The sockets at which clients, operators and Prometheus find the daemon, and the other end of one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use conic_native::channel::{Channel, Listener};
use conic_nicd::config::Config;

use super::DaemonError;
use super::metrics::Metrics;

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

/// Listens at the configuration's socket. What a daemon left behind that is gone is removed.
pub(super) fn listen(config: &Config) -> Result<Listener, DaemonError> {
    let path = &config.socket;
    let cannot = |why: String| DaemonError::Cannot { what: format!("socket {}", path.display()), why };
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        // The folder where everybody looks may be gone with the last boot. Any other that is not there is more likely
        // misspelt than wanted, and what clients are told to look for must not be made by accident.
        if *path != Config::default().socket {
            let folder = folder.display();
            return Err(cannot(format!("there is no folder {folder}: make it, or name another socket with --socket")));
        }
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
        io::ErrorKind::AddrInUse if !is_socket(path) => {
            cannot("something is there that is no socket: name another with --socket".to_owned())
        }
        io::ErrorKind::AddrInUse => cannot("another NIC listens there: name another with --socket".to_owned()),
        _ => cannot(format!("{error}; name another with --socket")),
    })?;
    let mode = config.mode_bits().map_err(|error| cannot(error.to_string()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, mode).map_err(|error| cannot(format!("its permissions cannot be set: {error}")))?;
    Ok(listener)
}

/// Whether a socket is there at which nobody listens any more. The kernel refuses a connection to any other file in the same words.
fn is_left_behind(path: &Path) -> bool {
    is_socket(path) && Channel::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
}
