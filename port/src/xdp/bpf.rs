//! The system call `bpf`: maps, programs, links.
//!
//! Sources: bpf(2); Linux, `linux/bpf.h`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::assembly::Instruction;

const MAP_CREATE: i32 = 0;
const MAP_LOOK_UP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const MAP_NEXT_KEY: i32 = 4;
const PROGRAM_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

/// `BPF_PROG_TYPE_XDP`.
const XDP: u32 = 6;
/// `BPF_XDP`, where a program is attached.
const ATTACH_XDP: u32 = 37;
/// `BPF_F_XDP_HAS_FRAGS`: the program bears packets of several buffers.
const HAS_FRAGMENTS: u32 = 1 << 5;

/// How often a call that signals end is tried again.
const DISTURBED_AT_MOST: u32 = 100;

/// What a map is, as `enum bpf_map_type` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    Hash = 1,
    Array = 2,
    /// An array with a value for each processor.
    ArrayOfEach = 6,
    /// Interfaces, to which packets are redirected.
    Devices = 14,
    /// AF_XDP sockets, likewise.
    Sockets = 17,
}

/// A map of the kernel's, by whose keys and values of these sizes it is reached.
#[derive(Debug)]
pub(super) struct Map<const KEY: usize, const VALUE: usize>(OwnedFd);

impl<const KEY: usize, const VALUE: usize> Map<KEY, VALUE> {
    pub(super) fn create(kind: MapKind, entries: u32, name: &str) -> io::Result<Self> {
        #[repr(C)]
        struct Create {
            kind: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
            flags: u32,
            inner: u32,
            node: u32,
            name: [u8; 16],
        }
        let create = Create {
            kind: kind as u32,
            key_bytes: KEY as u32,
            value_bytes: VALUE as u32,
            entries,
            flags: 0,
            inner: 0,
            node: 0,
            name: padded(name),
        };
        // SAFETY: integers alone.
        unsafe { make(MAP_CREATE, &create) }.map(Map)
    }

    /// One that another process has made.
    pub(super) fn of_descriptor(map: OwnedFd) -> Self {
        Map(map)
    }

    /// Puts a value in, in place of what was there.
    pub(super) fn update(&self, key: [u8; KEY], value: [u8; VALUE]) -> io::Result<()> {
        // SAFETY: key and value have the map's sizes and outlive the call.
        unsafe { self.act(MAP_UPDATE, key.as_ptr(), value.as_ptr()) }
    }

    /// Takes a value out; none is there behind it, whether or not one was before.
    pub(super) fn remove(&self, key: [u8; KEY]) -> io::Result<()> {
        // SAFETY: the key has the map's size and outlives the call, which looks at no value.
        absent(unsafe { self.act(MAP_DELETE, key.as_ptr(), std::ptr::null()) }).map(|_| ())
    }

    /// The value of a key, if there is one.
    pub(super) fn get(&self, key: [u8; KEY]) -> io::Result<Option<[u8; VALUE]>> {
        let mut value = [0; VALUE];
        // SAFETY: key and value have the map's sizes and outlive the call, which writes the value alone.
        let got = absent(unsafe { self.act(MAP_LOOK_UP, key.as_ptr(), value.as_mut_ptr().cast_const()) })?;
        Ok(got.map(|()| value))
    }

    /// The values of a key, one for each processor that there may be: of an [`MapKind::ArrayOfEach`].
    pub(super) fn get_of_each(&self, key: [u8; KEY]) -> io::Result<Vec<[u8; VALUE]>> {
        // Each takes a multiple of eight bytes, which all of ours are.
        let mut values = vec![[0; VALUE]; processors()?];
        // SAFETY: the key has the map's size, there is a value for each processor, and all outlive the call.
        unsafe { self.act(MAP_LOOK_UP, key.as_ptr(), values.as_mut_ptr().cast::<u8>().cast_const()) }?;
        Ok(values)
    }

    /// Takes all values out, of a map that holds no more than it did when it was made.
    pub(super) fn clear(&self) -> io::Result<()> {
        let mut key = [0; KEY];
        // SAFETY: without a key the first one is asked for; it is written, and has the map's size.
        while absent(unsafe { self.act(MAP_NEXT_KEY, std::ptr::null(), key.as_mut_ptr().cast_const()) })?.is_some() {
            self.remove(key)?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// What the command reads or writes at key and value has the map's sizes.
    unsafe fn act(&self, command: i32, key: *const u8, value: *const u8) -> io::Result<()> {
        #[repr(C)]
        struct Element {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let map = self.0.as_raw_fd() as u32;
        let element = Element { map, padding: 0, key: key as u64, value: value as u64, flags: 0 };
        // SAFETY: the caller's.
        unsafe { bpf(command, &element) }.map(|_| ())
    }
}

impl<const KEY: usize, const VALUE: usize> AsFd for Map<KEY, VALUE> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What the kernel says where there is no such key is no error.
fn absent(outcome: io::Result<()>) -> io::Result<Option<()>> {
    match outcome {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        other => other.map(Some),
    }
}

/// How many processors there may ever be: so many values a map of each has.
fn processors() -> io::Result<usize> {
    count_processors(&fs::read_to_string("/sys/devices/system/cpu/possible")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel's list of processors is not understood"))
}

/// How many there are in a list such as `0-3,5`.
fn count_processors(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|more| more + 1)
    };
    list.trim().split(',').map(count).sum()
}

/// Loads a program.
pub(super) fn load(instructions: &[Instruction], name: &str) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        licence: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
        interface: u32,
        attach_type: u32,
    }
    let load = Load {
        kind: XDP,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        licence: c"BSD".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: HAS_FRAGMENTS,
        name: padded(name),
        interface: 0,
        attach_type: ATTACH_XDP,
    };
    // SAFETY: the instructions and the text outlive the call.
    match unsafe { make(PROGRAM_LOAD, &load) } {
        // Kernels before 5.18 know nothing of packets of several buffers.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: as above.
            unsafe { make(PROGRAM_LOAD, &Load { flags: 0, ..load }) }
        }
        loaded => loaded,
    }
}

/// Attaches a program to an interface, for as long as the descriptor is there; `flags` say where.
pub(super) fn link(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Link {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    let link = Link { program, interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: integers alone.
    unsafe { make(LINK_CREATE, &link) }
}

fn padded(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    // The last byte stays 0.
    for (to, from) in padded[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    padded
}

/// A call of `bpf`; what it gives is not negative.
///
/// # Safety
///
/// The attributes are those of the command, and what they point to outlives the call.
unsafe fn bpf<T>(command: i32, attributes: &T) -> io::Result<RawFd> {
    let size = size_of::<T>();
    for attempt in 0.. {
        // SAFETY: the attributes are read, `size` bytes of them; the rest is the caller's.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
        if result >= 0 {
            return Ok(result as RawFd);
        }
        let error = io::Error::last_os_error();
        // A signal ends the look at a program with "again", and other things as everywhere.
        let disturbed = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR));
        if !disturbed || attempt == DISTURBED_AT_MOST {
            return Err(error);
        }
    }
    unreachable!("an attempt is the last")
}

/// The descriptor that a call of `bpf` has made.
///
/// # Safety
///
/// As for [`bpf`], and the command makes a descriptor.
unsafe fn make<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's; the descriptor was just made and nothing else owns it. The kernel closes it on exec.
    unsafe { bpf(command, attributes).map(|descriptor| OwnedFd::from_raw_fd(descriptor)) }
}

/// Runs a program on a packet as if it had come by queue 0: what it returns (`BPF_PROG_TEST_RUN`).
#[cfg(test)]
pub(super) fn try_out(program: BorrowedFd<'_>, packet: &[u8]) -> io::Result<u32> {
    #[repr(C)]
    struct Test {
        program: u32,
        returned: u32,
        data_bytes: u32,
        out_bytes: u32,
        data: u64,
        out: u64,
        repeat: u32,
        duration: u32,
        context_bytes: u32,
        context_out_bytes: u32,
        context: u64,
        context_out: u64,
    }
    const PROGRAM_TEST: libc::c_long = 10;
    let mut test = Test {
        program: program.as_raw_fd() as u32,
        returned: 0,
        data_bytes: packet.len() as u32,
        out_bytes: 0,
        data: packet.as_ptr() as u64,
        out: 0,
        repeat: 1,
        duration: 0,
        context_bytes: 0,
        context_out_bytes: 0,
        context: 0,
        context_out: 0,
    };
    // SAFETY: the packet is read, and outlives the call; the attributes are written.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROGRAM_TEST, &raw mut test, size_of::<Test>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(test.returned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        for (list, count) in [("0\n", Some(1)), ("0-1\n", Some(2)), ("0-3,5,8-9", Some(7)), ("", None), ("3-1", None)] {
            assert_eq!(count_processors(list), count, "{list:?}");
        }
    }

    #[test]
    fn a_name_is_cut_to_what_the_kernel_takes() {
        assert_eq!(padded("conic"), *b"conic\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(padded("conic_of_sixteen_bytes"), *b"conic_of_sixtee\0");
    }
}
