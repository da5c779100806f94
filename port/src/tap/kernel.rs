//! The system calls of a TAP interface.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::error::{TapError, TapProblem};
use crate::netdevice::{self, ioctl, is_name, request};
use crate::offload::virtio::HEADER_BYTES;

/// What the kernel may leave to us: checksums, and cutting TCP packets. Linux, `linux/if_tun.h`.
const LEFT_TO_US: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;

/// One queue of an attached TAP interface.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    name: String,
}

impl Device {
    /// Makes or attaches to the interface, without packet information before each frame, not blocking: as one of several
    /// queues, with a virtio header before each frame.
    pub(super) fn open(name: Option<&str>, multiple: bool, offload: bool) -> Result<Device, TapError> {
        let failed = |problem| TapError { name: name.unwrap_or_default().to_owned(), problem };
        // The kernel puts a number in place of "%d", and so no name given may have one.
        let mut request = match name {
            Some(name) if is_name(name) => request(name),
            Some(_) => return Err(failed(TapProblem::Name)),
            None => request("conic%d"),
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(|error| failed(TapProblem::Driver(error)))?;
        let mut flags = libc::IFF_TAP | libc::IFF_NO_PI;
        if multiple {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        if offload {
            flags |= libc::IFF_VNET_HDR;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        ioctl(file.as_fd(), libc::TUNSETIFF, &mut request).map_err(|error| {
            failed(match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => TapProblem::NotPermitted,
                Some(libc::EBUSY) => TapProblem::Busy,
                Some(libc::EINVAL | libc::EEXIST) => TapProblem::NotTap,
                Some(libc::E2BIG) => TapProblem::Queues,
                _ => TapProblem::Driver(error),
            })
        })?;
        if offload {
            // SAFETY: this request takes its flags by value and touches no memory.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, LEFT_TO_US) };
            if result < 0 {
                return Err(failed(TapProblem::Driver(io::Error::last_os_error())));
            }
        }
        Ok(Device { file, name: name_of(&request) })
    }

    /// Goes on with a queue that another process has opened and passed; the settings must be those that it was opened with.
    pub(super) fn resume(descriptor: OwnedFd, multiple: bool, offload: bool) -> Result<Device, TapError> {
        let file = File::from(descriptor);
        let mut request = request("");
        ioctl(file.as_fd(), libc::TUNGETIFF, &mut request)
            .map_err(|error| TapError { name: String::new(), problem: TapProblem::Driver(error) })?;
        // SAFETY: the call just filled in this member of the union.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let device = Device { file, name: name_of(&request) };
        let has = |flag: libc::c_int| flags & flag != 0;
        let same = has(libc::IFF_TAP) && has(libc::IFF_NO_PI);
        if !same || has(libc::IFF_MULTI_QUEUE) != multiple || has(libc::IFF_VNET_HDR) != offload {
            return Err(TapError { name: device.name, problem: TapProblem::NotTap });
        }
        Ok(device)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads one frame; a result longer than `frame` says that it did not fit, and that the rest is in `beyond`, as far
    /// as that reaches. The header is only there where the interface was opened with one.
    pub(super) fn read(
        &self,
        header: Option<&mut [u8; HEADER_BYTES]>,
        frame: &mut [u8],
        beyond: &mut [u8],
    ) -> io::Result<usize> {
        // The kernel cuts what does not fit without a word; room beyond shows it.
        let part = |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let before = header.as_ref().map_or(0, |header| header.len());
        let parts = [header.map_or_else(|| part(&mut []), |header| part(&mut header[..])), part(frame), part(beyond)];
        // SAFETY: all parts are memory that is borrowed here for writing, of the lengths given, and outlive the call.
        let length = unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), 3) };
        match usize::try_from(length) {
            Ok(length) => Ok(length.saturating_sub(before)),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Writes one frame, which the driver takes whole or not at all; with a header where the interface was opened with
    /// one.
    pub(super) fn write(&self, header: Option<&[u8; HEADER_BYTES]>, frame: &[u8]) -> io::Result<()> {
        let header = header.map_or(&[][..], |header| &header[..]);
        let part = |bytes: &[u8]| libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let parts = [part(header), part(frame)];
        // SAFETY: both parts are memory that is borrowed here, of the lengths given; the call only reads them.
        let length = unsafe { libc::writev(self.file.as_raw_fd(), parts.as_ptr(), 2) };
        if length < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub(super) fn mtu(&self) -> Result<usize, TapError> {
        netdevice::mtu(&self.name).map_err(|error| self.refused("the MTU", "link show", error))
    }

    pub(super) fn set_mtu(&self, mtu: usize) -> Result<(), TapError> {
        netdevice::set_mtu(&self.name, mtu).map_err(|error| self.refused("the MTU", "link set mtu BYTES", error))
    }

    pub(super) fn set_address(&self, address: Ipv4Addr, mask: Ipv4Addr) -> Result<(), TapError> {
        netdevice::set_address(&self.name, address, mask)
            .map_err(|error| self.refused("the address", "address add ADDRESS/PREFIX", error))
    }

    pub(super) fn bring_up(&self) -> Result<(), TapError> {
        netdevice::bring_up(&self.name).map_err(|error| self.refused("the state", "link set up", error))
    }

    fn refused(&self, what: &'static str, command: &'static str, error: io::Error) -> TapError {
        TapError { name: self.name.clone(), problem: TapProblem::Setting { what, command, error } }
    }
}

fn name_of(request: &libc::ifreq) -> String {
    let name = request.ifr_name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    String::from_utf8_lossy(&name.collect::<Vec<u8>>()).into_owned()
}
