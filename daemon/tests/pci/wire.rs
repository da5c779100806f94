//! A wire to a NIC that QEMU plays: what is sent at one end of a socket without connections is a frame at the other.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use conic_native::{clock, yield_core};

use super::waiting::wait_until;

/// For local experiments (IEEE 802).
const TYPE: [u8; 2] = [0x88, 0xb5];

/// All stations.
pub const ALL: [u8; 6] = [0xff; 6];

/// This end of a wire.
pub struct Wire {
    socket: UnixDatagram,
    far: PathBuf,
    /// The address of the station at this end.
    pub station: [u8; 6],
}

impl Wire {
    /// The end of a wire of this number, in a folder.
    pub fn new(folder: &Path, number: usize) -> Wire {
        let [near, far] = ["near", "far"].map(|end| folder.join(format!("{end}{number}")));
        let socket = UnixDatagram::bind(near).expect("a socket");
        socket.set_nonblocking(true).expect("it can be");
        Wire { socket, far, station: [2, 0, 0, 0, 0, 0x10 + number as u8] }
    }

    /// What QEMU is told of it.
    pub fn argument(&self, folder: &Path, number: usize) -> String {
        let near = folder.join(format!("near{number}"));
        let (far, near) = (self.far.display(), near.display());
        format!("dgram,id=net{number},local.type=unix,local.path={far},remote.type=unix,remote.path={near}")
    }

    /// Sends a frame; false where the other end takes none now, or is not there.
    pub fn try_send(&self, frame: &[u8]) -> bool {
        match self.socket.send_to(frame, &self.far) {
            Ok(_) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => false,
            Err(error) => panic!("{}: {error}", self.far.display()),
        }
    }

    pub fn send(&self, frame: &[u8]) {
        wait_until("a frame is taken", || self.try_send(frame));
    }

    /// The next frame of the experiment to a station within some milliseconds.
    pub fn receive(&self, milliseconds: u64) -> Option<Vec<u8>> {
        self.hear(milliseconds, |frame| frame[..6] != ALL)
    }

    /// Whether a station's frame to all comes within some milliseconds.
    pub fn is_called(&self, by: [u8; 6], milliseconds: u64) -> bool {
        self.hear(milliseconds, |frame| frame[..6] == ALL && frame[6..12] == by).is_some()
    }

    fn hear(&self, milliseconds: u64, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut frame = vec![0; 1 << 16];
        let begun = clock::now();
        while clock::now().since(begun).nanoseconds() < milliseconds * 1_000_000 {
            match self.socket.recv(&mut frame) {
                Ok(length) if length >= 60 && frame[12..14] == TYPE && wanted(&frame) => {
                    frame.truncate(length);
                    return Some(frame);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => yield_core(),
                Err(error) => panic!("{error}"),
            }
        }
        None
    }

    /// Forgets what has come.
    pub fn forget(&self) {
        while self.receive(1).is_some() {}
    }

    /// A frame to a station, which says which it is.
    pub fn frame(&self, to: [u8; 6], length: usize, number: u32) -> Vec<u8> {
        let mut frame: Vec<u8> = (0..length).map(|at| (at * 7) as u8 ^ number as u8).collect();
        frame[..14].copy_from_slice(&[&to[..], &self.station, &TYPE].concat());
        frame[20..24].copy_from_slice(&number.to_be_bytes());
        frame
    }
}
