//! A station that is here from now on, and whose driver does not say so itself: a frame is received as from it, by which bridges learn its place.
//!
//! Source: RFC 903 (the frame); QEMU, docs/interop/vhost-user.rst, VHOST_USER_SEND_RARP.

use super::Card;
use super::half::Half;
use super::ring::Taken;
use crate::MIN_FRAME;

/// For all; a reverse request of Ethernet's and IPv4's addresses.
const EVERYBODY: [u8; 6] = [0xff; 6];
const REVERSE_REQUEST: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];

/// Whether an address can be one station's.
pub(super) fn is_of_a_station(address: [u8; 6]) -> bool {
    address[0] & 1 == 0 && address != [0; 6]
}

/// Who has which address? asks the station, of itself.
pub(super) fn frame_of(station: [u8; 6]) -> [u8; MIN_FRAME] {
    let mut frame = [0; MIN_FRAME];
    let [hardware, other] = [&station[..], &[0; 4]];
    let said = [&EVERYBODY, hardware, &REVERSE_REQUEST, hardware, other, hardware, other].concat();
    frame[..said.len()].copy_from_slice(&said);
    frame
}

impl<H: Half> Card<H> {
    /// The frame of a station that is to be announced, if the last look at the socket has heard of one.
    pub(super) fn announced(&mut self, frame: &mut [u8]) -> Taken {
        let device = self.control.as_mut().and_then(|control| control.device_mut());
        match (device.and_then(H::announced), frame.first_chunk_mut()) {
            (Some(station), Some(first)) => {
                *first = frame_of(station);
                Taken::Packet(first.len())
            }
            _ => Taken::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_asks_for_its_own_address() {
        let station = [0x52, 0x54, 0, 0, 0, 2];
        let frame = frame_of(station);
        assert_eq!((&frame[..6], &frame[6..12], &frame[12..14]), (&[0xff; 6][..], &station[..], &[0x80, 0x35][..]));
        assert_eq!((frame[21], &frame[22..28], &frame[28..32]), (3, &station[..], &[0; 4][..]));
        assert_eq!((&frame[32..38], &frame[38..]), (&station[..], &[0; 22][..]));
        assert!(is_of_a_station(station) && !is_of_a_station([0; 6]) && !is_of_a_station([0x53, 0, 0, 0, 0, 2]));
    }
}
