//! The system calls of a TAP interface. All of this room's unsafe code is here.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::error::{TapError, TapProblem};

/// An attached TAP interface.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    name: String,
}

impl Device {
    /// Makes or attaches to the interface, without packet information before each frame, not blocking.
    pub(super) fn open(name: Option<&str>) -> Result<Device, TapError> {
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
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        ioctl(file.as_fd(), libc::TUNSETIFF, &mut request).map_err(|error| {
            failed(match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => TapProblem::NotPermitted,
                Some(libc::EBUSY) => TapProblem::Busy,
                Some(libc::EINVAL | libc::EEXIST) => TapProblem::NotTap,
                _ => TapProblem::Driver(error),
            })
        })?;
        let name = request.ifr_name.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
        let name = String::from_utf8_lossy(&name.collect::<Vec<u8>>()).into_owned();
        Ok(Device { file, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads one frame; a result longer than `frame` says that it did not fit.
    pub(super) fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        // The kernel cuts what does not fit without a word; one byte of room beyond shows it.
        let mut beyond = [0u8; 1];
        let parts = [
            libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() },
            libc::iovec { iov_base: beyond.as_mut_ptr().cast(), iov_len: beyond.len() },
        ];
        // SAFETY: both parts are memory that is borrowed here for writing, of the lengths given, and outlive the call.
        let length = unsafe { libc::readv(self.file.as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(length).map_err(|_| io::Error::last_os_error())
    }

    /// Writes one frame.
    pub(super) fn write(&self, frame: &[u8]) -> io::Result<()> {
        // The driver takes a frame whole or not at all.
        (&self.file).write(frame).map(|_| ())
    }

    pub(super) fn mtu(&self) -> Result<usize, TapError> {
        let mut request = request(&self.name);
        self.control(libc::SIOCGIFMTU, &mut request).map_err(|error| self.refused("the MTU", "link show", error))?;
        // SAFETY: the kernel has answered SIOCGIFMTU, which fills in this member; any bits are an integer.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(usize::try_from(mtu).unwrap_or(0))
    }

    pub(super) fn set_mtu(&self, mtu: usize) -> Result<(), TapError> {
        let mut request = request(&self.name);
        request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
        self.control(libc::SIOCSIFMTU, &mut request)
            .map_err(|error| self.refused("the MTU", "link set mtu BYTES", error))
    }

    pub(super) fn set_address(&self, address: Ipv4Addr, mask: Ipv4Addr) -> Result<(), TapError> {
        // The mask belongs to the address that is there, so the address is set first.
        for (setting, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
            let mut request = request(&self.name);
            request.ifr_ifru.ifru_addr = socket_address(value);
            self.control(setting, &mut request)
                .map_err(|error| self.refused("the address", "address add ADDRESS/PREFIX", error))?;
        }
        Ok(())
    }

    pub(super) fn bring_up(&self) -> Result<(), TapError> {
        let mut request = request(&self.name);
        let refused = |error| self.refused("the state", "link set up", error);
        self.control(libc::SIOCGIFFLAGS, &mut request).map_err(refused)?;
        // SAFETY: the kernel has answered SIOCGIFFLAGS, which fills in this member; any bits are an integer.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let up = libc::IFF_UP as libc::c_short;
        if flags & up != 0 {
            return Ok(());
        }
        request.ifr_ifru.ifru_flags = flags | up;
        self.control(libc::SIOCSIFFLAGS, &mut request).map_err(refused)
    }

    /// A request about the interface, which goes through any socket of the network namespace.
    fn control(&self, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        ioctl(socket.as_fd(), code, request)
    }

    fn refused(&self, what: &'static str, command: &'static str, error: io::Error) -> TapError {
        TapError { name: self.name.clone(), problem: TapProblem::Setting { what, command, error } }
    }
}

/// Whether the kernel takes this as the name of an interface.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..libc::IFNAMSIZ).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all members are integers, addresses of integers, or a raw pointer, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0, whatever the name.
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // A sockaddr_in is the family, the port in 2 bytes, then the address.
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

fn ioctl(file: BorrowedFd<'_>, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every code used here reads and writes one `ifreq`, which is borrowed for writing and fully initialised.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), code, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
