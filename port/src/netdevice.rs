//! Network interfaces of the kernel: what every port on one asks of them.
//!
//! Source: netdevice(7).

use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::offload::vlan::{TAG_BYTES, Tag};

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_HEADER: usize = 14;

/// How long a frame that begins like this one may be for an interface of this MTU: a tag is not part of that.
pub(crate) fn longest_within_mtu(frame: &[u8], mtu: usize) -> usize {
    let tag = if Tag::of(frame).is_some() { TAG_BYTES } else { 0 };
    mtu + ETHERNET_HEADER + tag
}

/// Whether a frame is longer than an interface of this MTU sends.
pub(crate) fn is_over_mtu(frame: &[u8], mtu: usize) -> bool {
    frame.len() > longest_within_mtu(frame, mtu)
}

/// Whether the kernel takes this as the name of an interface.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..libc::IFNAMSIZ).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

/// A request about the interface of this name, which is cut to what the kernel takes.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: all members are integers, addresses of integers, or a raw pointer, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays 0, whatever the name.
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// The interface's MTU, in bytes without the Ethernet header.
pub(crate) fn mtu(name: &str) -> io::Result<usize> {
    let mut request = request(name);
    control(libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has answered SIOCGIFMTU, which fills in this member; any bits are an integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or(0))
}

/// Sets the MTU.
pub(crate) fn set_mtu(name: &str, mtu: usize) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
    control(libc::SIOCSIFMTU, &mut request)
}

/// The interface's number.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    let mut request = request(name);
    control(libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel has answered SIOCGIFINDEX, which fills in this member; any bits are an integer.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))
}

/// What interfaces are asked about again and again through: a process that is out of descriptors asks on.
pub(crate) fn inquiry() -> io::Result<OwnedFd> {
    socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
}

/// Whether there is no interface of this number any more, by a socket of its network namespace. A number is nobody else's later, a name
/// may be; an answer that does not come says nothing of it.
pub(crate) fn is_gone(through: BorrowedFd<'_>, index: u32) -> bool {
    let mut request = request("");
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    let named = ioctl(through, libc::SIOCGIFNAME, &mut request);
    named.is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

/// Whether the interface was taken down, by a socket of its network namespace.
pub(crate) fn is_down(through: BorrowedFd<'_>, name: &str) -> bool {
    let mut request = request(name);
    // SAFETY: the kernel has answered SIOCGIFFLAGS, which fills in this member; any bits are an integer.
    let flags = ioctl(through, libc::SIOCGIFFLAGS, &mut request).map(|()| unsafe { request.ifr_ifru.ifru_flags });
    flags.is_ok_and(|flags| i32::from(flags) & libc::IFF_UP == 0)
}

/// Whether the interface of this name is the one that had this index; an error if it is another, or there is none.
pub(crate) fn is_still(name: &str, index: u32) -> io::Result<()> {
    if self::index(name)? == index { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENODEV)) }
}

/// Whether the interface is up and has a carrier.
pub(crate) fn is_running(name: &str) -> bool {
    let running = libc::IFF_UP | libc::IFF_RUNNING;
    flags(name).is_ok_and(|flags| flags & running == running)
}

/// Gives the interface an IPv4 address.
pub(crate) fn set_address(name: &str, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
    // The mask belongs to the address that is there, so the address is set first.
    for (setting, value) in [(libc::SIOCSIFADDR, address), (libc::SIOCSIFNETMASK, mask)] {
        let mut request = request(name);
        request.ifr_ifru.ifru_addr = socket_address(value);
        control(setting, &mut request)?;
    }
    Ok(())
}

/// The interface's flags, such as `IFF_UP`.
pub(crate) fn flags(name: &str) -> io::Result<i32> {
    let mut request = request(name);
    control(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has answered SIOCGIFFLAGS, which fills in this member; any bits are an integer.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Brings the interface up, where it is not.
pub(crate) fn bring_up(name: &str) -> io::Result<()> {
    let flags = flags(name)?;
    if flags & libc::IFF_UP != 0 {
        return Ok(());
    }
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (flags | libc::IFF_UP) as libc::c_short;
    control(libc::SIOCSIFFLAGS, &mut request)
}

/// Has an interface of the kernel join what it receives (generic receive offload), or not. A veth interface takes what programs of other
/// interfaces redirect to it only while its other end does so, or has a program itself.
///
/// # Errors
///
/// There is no such interface, it cannot, or the process may not.
pub fn set_receive_offload(name: &str, on: bool) -> io::Result<()> {
    /// `ETHTOOL_SGRO`.
    const SET_RECEIVE_OFFLOAD: u32 = 0x2c;
    set(name, SET_RECEIVE_OFFLOAD, on)
}

/// Has an interface of the kernel complete the checksums of what it sends, or else whoever sends. A veth interface that has it on leaves
/// them as they were begun.
///
/// # Errors
///
/// As for [`set_receive_offload`].
pub fn set_checksum_offload(name: &str, on: bool) -> io::Result<()> {
    /// `ETHTOOL_STXCSUM`.
    const SET_CHECKSUM_OFFLOAD: u32 = 0x17;
    set(name, SET_CHECKSUM_OFFLOAD, on)
}

/// Sets what ethtool sets by a number and a value.
fn set(name: &str, what: u32, on: bool) -> io::Result<()> {
    let mut value = [what, u32::from(on)];
    let mut request = request(name);
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    control(libc::SIOCETHTOOL as libc::Ioctl, &mut request)
}

/// A request about an interface, which goes through any socket of the network namespace.
fn control(code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    ioctl(inquiry()?.as_fd(), code, request)
}

/// A socket that is closed when another program is run.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

pub(crate) fn ioctl(file: BorrowedFd<'_>, code: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every code used in this room reads and writes one `ifreq`, which is borrowed for writing and initialised, and what that
    // points to, if the code has it so: memory of that caller's, of the size that the command in it says.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), code, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // A sockaddr_in is the family, the port in 2 bytes, then the address.
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_still_there_only_with_its_own_number() {
        let loopback = index("lo").expect("Linux has one");
        assert!(is_still("lo", loopback).is_ok());
        for (name, number) in [("lo", loopback + 1), ("absent", loopback)] {
            let error = is_still(name, number).expect_err("it is another");
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name} {number}");
        }
    }

    #[test]
    fn an_interface_is_gone_only_where_the_kernel_says_that_its_number_is_nobodys() {
        let (asks, loopback) = (inquiry().expect("a socket"), index("lo").expect("Linux has one"));
        assert!(!is_gone(asks.as_fd(), loopback));
        assert!(is_gone(asks.as_fd(), 0x7fff_ffff));
        // What is no socket gives no answer.
        let file = std::fs::File::open("/dev/null").expect("Linux has one");
        assert!(!is_gone(file.as_fd(), 0x7fff_ffff));
    }
}
