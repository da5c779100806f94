//! What an interface can do for XDP programs, as the kernel says it.
//!
//! Sources: Linux (6.3 or newer), Documentation/netlink/specs/netdev.yaml; `linux/netdev.h`, `linux/genetlink.h`; netlink(7).

use std::fs::File;
use std::io::{self, Read, Write};

use crate::netdevice;

/// `GENL_ID_CTRL`: who knows the numbers of the others, and what it is asked for.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// What the family `netdev` is asked for.
const DEVICE_GET: u8 = 1;
const INTERFACE: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// `NETDEV_XDP_ACT_NDO_XMIT`: it sends packets of other interfaces' programs.
const SENDS_FOR_OTHERS: u64 = 4;

/// Bytes of a message's header, and of the generic one behind it.
const HEADER: usize = 16;
const GENERIC: usize = 4;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// Whether an interface sends packets that programs of other interfaces redirect to it.
pub(super) fn sends_for_others(interface: u32) -> io::Result<bool> {
    let mut socket = File::from(netdevice::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?);
    let family = ask(&mut socket, CONTROLLER, GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)?;
    let family = family.get(..2).and_then(|id| id.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(odd)?;
    let features = ask(&mut socket, family, DEVICE_GET, INTERFACE, &interface.to_ne_bytes(), XDP_FEATURES)?;
    let features = features.get(..8).and_then(|bits| bits.try_into().ok()).map(u64::from_ne_bytes).ok_or_else(odd)?;
    Ok(features & SENDS_FOR_OTHERS != 0)
}

fn odd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about the interface is not understood")
}

/// Asks one thing, by one attribute, and gives another attribute of the answer.
fn ask(socket: &mut File, family: u16, command: u8, attribute: u16, value: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let length = HEADER + GENERIC + 4 + value.len().next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // No number, and from nobody in particular: the socket has one question at a time.
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend((4 + value.len() as u16).to_ne_bytes());
    request.extend(attribute.to_ne_bytes());
    request.extend(value);
    request.resize(length, 0);
    socket.write_all(&request)?;
    let mut answer = [0; 8192];
    let length = socket.read(&mut answer)?;
    answer_of(&answer[..length], wanted)
}

/// An attribute of an answer, or the error that it is.
fn answer_of(answer: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let half = |at: usize| answer.get(at..at + 2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
    if half(4).ok_or_else(odd)? == ERROR {
        let code = answer.get(HEADER..HEADER + 4).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
        return Err(io::Error::from_raw_os_error(-code.ok_or_else(odd)?));
    }
    let mut at = HEADER + GENERIC;
    while let (Some(length), Some(kind)) = (half(at), half(at + 2)) {
        let length = usize::from(length);
        let value = answer.get(at + 4..at + length).ok_or_else(odd)?;
        if kind == wanted {
            return Ok(value.to_vec());
        }
        at += length.next_multiple_of(4);
    }
    Err(odd())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, rest: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; HEADER];
        answer[4..6].copy_from_slice(&kind.to_ne_bytes());
        answer.extend(rest);
        answer
    }

    #[test]
    fn an_attribute_is_found_behind_others_and_an_answer_that_is_cut_is_an_error() {
        let mut rest = vec![0; GENERIC];
        for (kind, value) in [(7u16, &[1u8, 2, 3][..]), (3, &[4, 5, 6, 7])] {
            rest.extend((4 + value.len() as u16).to_ne_bytes());
            rest.extend(kind.to_ne_bytes());
            rest.extend(value);
            rest.resize(rest.len().next_multiple_of(4), 0);
        }
        let whole = answer(20, &rest);
        assert_eq!(answer_of(&whole, 3).ok(), Some(vec![4, 5, 6, 7]));
        assert_eq!(answer_of(&whole, 7).ok(), Some(vec![1, 2, 3]));
        assert!(answer_of(&whole, 4).is_err());
        for length in 0..whole.len() {
            assert!(answer_of(&whole[..length], 3).is_err(), "{length} bytes");
        }
        // An attribute without a length leads nowhere.
        assert!(answer_of(&answer(20, &[0; GENERIC + 8]), 3).is_err());
        let refused = answer_of(&answer(ERROR, &(-libc::ENODEV).to_ne_bytes()), 3).expect_err("it is an error");
        assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_kernel_answers_for_its_loopback_interface_and_for_none_that_is_not_there() {
        match sends_for_others(netdevice::index("lo").expect("Linux has one")) {
            // Kernels before 6.3 know no such family.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
            Ok(sends) => assert!(!sends),
        }
        assert!(sends_for_others(i32::MAX as u32).is_err());
    }
}
