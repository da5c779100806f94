//! What went wrong, as a number and as text.

use std::ffi::{c_char, c_int};

use conic_client::AttachError;

/// What went wrong: calls that return an `int` return one of these, all of them negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// An argument is NULL, or is not what the function's comment asks for.
    Argument = -1,
    /// Nobody listens at the socket, or this process may not connect to it.
    Connect = -2,
    /// The daemon refused, for the reason in the text.
    Refused = -3,
    /// The daemon did not answer in time.
    Timeout = -4,
    /// The daemon said or did what cannot be.
    Peer = -5,
    /// The numbers of queues, descriptors or buffers cannot be.
    Geometry = -6,
    /// The memory that came from the daemon was refused or could not be mapped.
    Memory = -7,
    /// A packet lies in no buffer, has no bytes, is longer than its buffer, or is a chain without an end.
    Buffer = -8,
    /// The kernel refused something.
    System = -9,
}

/// What goes wrong, with its text, as C strings.
const TEXTS: [(Status, &std::ffi::CStr); 9] = [
    (Status::Argument, c"an argument is NULL or is not what the function asks for"),
    (Status::Connect, c"nobody listens at the socket, or this process may not connect to it"),
    (Status::Refused, c"the daemon refused"),
    (Status::Timeout, c"the daemon did not answer in time"),
    (Status::Peer, c"the daemon said or did what cannot be"),
    (Status::Geometry, c"the numbers of queues, descriptors or buffers cannot be"),
    (Status::Memory, c"the memory that came from the daemon was refused or could not be mapped"),
    (Status::Buffer, c"a packet does not lie in a buffer, or is a chain without an end"),
    (Status::System, c"the kernel refused something"),
];

impl From<&AttachError> for Status {
    fn from(error: &AttachError) -> Status {
        match error {
            AttachError::Connect { .. } => Status::Connect,
            AttachError::Broken { .. } | AttachError::Older(_) | AttachError::Peer(_) => Status::Peer,
            AttachError::Refused(_) | AttachError::Address(_) | AttachError::Promiscuous => Status::Refused,
            AttachError::Timeout { .. } => Status::Timeout,
            AttachError::Geometry(_) => Status::Geometry,
            AttachError::Memory(_) => Status::Memory,
        }
    }
}

/// What a status means, in a few words; never NULL. The text is constant and belongs to the library. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn conic_strerror(status: c_int) -> *const c_char {
    let known = TEXTS.iter().find(|(known, _)| *known as c_int == status);
    known.map_or(if status < 0 { c"an unknown error" } else { c"success" }, |(_, text)| text).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_text_of_its_own() {
        let text = |status| {
            // SAFETY: the function gives constant C strings.
            unsafe { std::ffi::CStr::from_ptr(conic_strerror(status)) }.to_str().expect("it is ASCII")
        };
        let mut texts: Vec<&str> = (-9..=0).map(text).collect();
        texts.push(text(-10));
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), 11);
        assert_eq!((text(5), text(i32::MIN)), ("success", "an unknown error"));
    }
}
