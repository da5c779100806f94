//! A switch's hold on what a port forwards in the kernel.

use std::io;
use std::sync::Arc;

use super::features;
use super::forward::{HERE, Tables};
use super::program::{Attachment, Program};
use crate::forwarding::{Egress, Forwarding, PORTS};
use crate::netdevice::{self, longest_within_mtu};

/// The tables of a port's program, with its interface. The program stays as long as it is there.
pub(super) struct Forwarder {
    program: Arc<Program>,
    interface: String,
    index: u32,
    /// What was counted before this began, by port.
    before: Vec<(u64, u64)>,
}

impl Forwarder {
    pub(super) fn new(program: Arc<Program>, interface: String, index: u32) -> Forwarder {
        let mut own = Forwarder { program, interface, index, before: Vec::new() };
        own.before = (0..PORTS).map(|port| own.counted(port).unwrap_or_default()).collect();
        own
    }

    fn tables(&self) -> io::Result<&Tables> {
        self.program.tables.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// What the program has counted towards a port since it was loaded.
    fn counted(&self, port: u32) -> io::Result<(u64, u64)> {
        let each = self.tables()?.counts.get_of_each(port.to_ne_bytes())?;
        let counted = each.into_iter().map(|value| {
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| value[at + index]));
            (word(0), word(8))
        });
        Ok(counted.fold((0, 0), |(frames, bytes), (more, of)| (frames + more, bytes + of)))
    }
}

/// A station as the program finds it in a frame, and two zero bytes.
fn key(station: u64) -> [u8; 8] {
    (station << 16).to_be_bytes()
}

/// What is known of a station: behind which port it is, and whether a frame came from it.
fn value(port: u32, mark: u32) -> [u8; 8] {
    let mut value = [0; 8];
    value[..4].copy_from_slice(&port.to_ne_bytes());
    value[4..].copy_from_slice(&mark.to_ne_bytes());
    value
}

impl Forwarding for Forwarder {
    fn device(&self) -> u32 {
        self.index
    }

    fn is_in_driver(&self) -> bool {
        self.program.attachment == Attachment::Native
    }

    fn egress(&self) -> Result<Egress, String> {
        let name = &self.interface;
        netdevice::is_still(name, self.index).map_err(|error| format!("{name} is gone ({error})"))?;
        if !netdevice::is_running(name) {
            return Err(format!("{name} is down, or has no carrier"));
        }
        let mtu = netdevice::mtu(name).map_err(|error| format!("the MTU of {name} cannot be read ({error})"))?;
        // Frames with tags, which may be longer, are not forwarded so.
        let longest = longest_within_mtu(&[], mtu) as u32;
        let from_drivers = features::sends_for_others(self.index).unwrap_or(false);
        Ok(Egress { longest, from_drivers })
    }

    fn open(&mut self, port: u32, device: u32, longest: u32) -> io::Result<()> {
        let (tables, port) = (self.tables()?, port.to_ne_bytes());
        if longest == 0 {
            tables.ways.update(port, [0; 4])?;
            return tables.devices.remove(port);
        }
        tables.devices.update(port, device.to_ne_bytes())?;
        tables.ways.update(port, longest.to_ne_bytes())
    }

    fn place(&mut self, station: u64, port: Option<u32>) -> io::Result<()> {
        self.tables()?.stations.update(key(station), value(port.unwrap_or(HERE), 0))
    }

    fn forget(&mut self, station: u64) -> io::Result<()> {
        self.tables()?.stations.remove(key(station))
    }

    fn was_seen(&mut self, station: u64) -> io::Result<bool> {
        let stations = &self.tables()?.stations;
        let marked = stations.get(key(station))? == Some(value(HERE, 1));
        if marked {
            stations.update(key(station), value(HERE, 0))?;
        }
        Ok(marked)
    }

    fn forwarded(&self, port: u32) -> io::Result<(u64, u64)> {
        let (frames, bytes) = self.counted(port)?;
        let (frames_before, bytes_before) = self.before.get(port as usize).copied().unwrap_or_default();
        Ok((frames.saturating_sub(frames_before), bytes.saturating_sub(bytes_before)))
    }
}
