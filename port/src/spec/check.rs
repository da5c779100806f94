//! What can be said against a port before it is opened.

use std::io;
use std::path::Path;

use super::{Kind, PortSpec, SpecError};
use crate::{MemifOptions, VhostOptions, netdevice};

/// What may not be there yet where a port is looked at before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made<'name> {
    /// An interface that another port makes.
    Interface(&'name str),
    /// A folder.
    Folder(&'name Path),
}

/// Bytes of an interface's name, at most, without the zero behind it.
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Bytes of a socket's path, at most: what `sockaddr_un` has, without the zero behind it.
const LONGEST_SOCKET: usize = 107;

impl PortSpec {
    /// The interface that opening it makes, where it is named.
    pub fn makes(&self) -> Option<&str> {
        match &self.kind {
            Kind::Impaired(_, below) => below.makes(),
            Kind::Tap(options) => options.name.as_deref(),
            _ => None,
        }
    }

    /// The file or the socket's path that it names and that is not a whole path: it is looked for where the process is, or made there.
    pub fn relative_path(&self) -> Option<&Path> {
        let named: [Option<&Path>; 2] = match &self.kind {
            Kind::Impaired(_, below) => return below.relative_path(),
            Kind::Memif(MemifOptions { socket, .. })
            | Kind::Vhost(VhostOptions { socket, .. })
            | Kind::Virtio(VhostOptions { socket, .. }) => {
                [Some(socket.as_str()).filter(|name| !name.starts_with('@')).map(Path::new), None]
            }
            Kind::Replay { file, record, .. } => [Some(file), record.as_deref()],
            Kind::Record { file } => [Some(file), None],
            _ => [None, None],
        };
        named.into_iter().flatten().find(|path| path.is_relative())
    }

    /// Whether this machine has what the port names of it: an interface, a file to replay, a folder for a socket or a file, DPDK in this
    /// program. Nothing is opened or made. `made` knows what is not there yet and will be, because another port or the program makes it.
    ///
    /// # Errors
    ///
    /// What is not there, or cannot be. What else may be in the way shows when the port is opened.
    pub fn check(&self, made: &dyn Fn(Made<'_>) -> bool) -> Result<(), SpecError> {
        let said = match &self.kind {
            Kind::Impaired(_, below) => return below.check(made),
            Kind::Loopback { .. } => Ok(()),
            Kind::Tap(options) => options.name.as_deref().map_or(Ok(()), length),
            Kind::Packet(options) => interface(&options.interface, made),
            Kind::Xdp(options) => interface(&options.interface, made),
            Kind::Memif(MemifOptions { socket: name, .. })
            | Kind::Vhost(VhostOptions { socket: name, .. })
            | Kind::Virtio(VhostOptions { socket: name, .. }) => socket(name, made),
            Kind::Dpdk(_) if cfg!(not(feature = "dpdk")) => {
                Err("this program was built without DPDK; build it with --features dpdk".to_owned())
            }
            Kind::Dpdk(_) => Ok(()),
            Kind::Replay { file, record, .. } => {
                replayed(file).and_then(|()| record.as_deref().map_or(Ok(()), |record| folder_of(record, made)))
            }
            Kind::Record { file } => folder_of(file, made),
        };
        said.map_err(|problem| SpecError { text: self.text.clone(), problem })
    }
}

fn length(name: &str) -> Result<(), String> {
    match name.len() {
        0..=LONGEST_NAME => Ok(()),
        long => Err(format!("an interface's name has at most {LONGEST_NAME} bytes, and '{name}' has {long}")),
    }
}

fn interface(name: &str, made: &dyn Fn(Made<'_>) -> bool) -> Result<(), String> {
    length(name)?;
    match netdevice::index(name) {
        // Any other error says nothing of the interface.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) && !made(Made::Interface(name)) => {
            Err(format!("there is no interface '{name}'; `ip link` lists those that there are"))
        }
        _ => Ok(()),
    }
}

fn socket(name: &str, made: &dyn Fn(Made<'_>) -> bool) -> Result<(), String> {
    if name.len() > LONGEST_SOCKET {
        return Err(format!("a socket's path has at most {LONGEST_SOCKET} bytes, and '{name}' has {}", name.len()));
    }
    if name.starts_with('@') { Ok(()) } else { folder_of(Path::new(name), made) }
}

/// Looks whether the folder is there in which a file is to be made, or will be, as `made` knows.
///
/// # Errors
///
/// It is not; the text says which, and what to do.
pub fn folder_of(file: &Path, made: &dyn Fn(Made<'_>) -> bool) -> Result<(), String> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() && !made(Made::Folder(folder)) => {
            Err(format!("there is no folder {} for {}: make it, or name another", folder.display(), file.display()))
        }
        _ => Ok(()),
    }
}

fn replayed(file: &Path) -> Result<(), String> {
    let about = file.metadata();
    match about {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!("there is no file {}", file.display())),
        Ok(about) if about.is_dir() => Err(format!("{} is a folder, and no capture", file.display())),
        _ => Ok(()),
    }
}
