//! Reading what a C program points at, and writing there.

use std::ffi::{CStr, c_char};

/// Bytes that a structure which says its own size may have: more is a size that was never set.
const LONGEST: usize = 4096;

/// Structures that the program allocates, that begin with nothing but numbers, and that later versions of the library may
/// make longer: any bytes are a value of theirs.
///
/// # Safety
///
/// Only for `repr(C)` structures of integers and raw pointers without padding bytes.
pub(crate) unsafe trait Plain: Copy {}

/// A text of the program; `None` for a NULL one, an error for one that is no UTF-8.
///
/// # Safety
///
/// `text` is NULL or ends in a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<Option<&'a str>, ()> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller says that it ends in a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().map(Some).map_err(|_| ())
}

/// Writes a text, cut to fit and always ended by a zero byte; nothing where there is no room at all.
///
/// # Safety
///
/// `into` is NULL or has room for `size` bytes.
pub(crate) unsafe fn put_text(into: *mut c_char, size: usize, text: &str) {
    if into.is_null() || size == 0 {
        return;
    }
    let count = text.floor_char_boundary(text.len().min(size - 1));
    // SAFETY: `count` is less than `size`, for which there is room.
    unsafe {
        into.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count);
        into.add(count).write(0);
    }
}

/// Reads a structure of which the program has `size` bytes: what it does not have is as in `otherwise`. `None` where the
/// size cannot be, or the program sets what this library does not know.
///
/// # Safety
///
/// `from` is aligned, and `size` bytes can be read there.
pub(crate) unsafe fn read_sized<T: Plain>(from: *const T, size: usize, smallest: usize, otherwise: T) -> Option<T> {
    if !(smallest..=LONGEST).contains(&size) {
        return None;
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes can be read.
    let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|&byte| byte != 0) {
        return None;
    }
    let mut value = otherwise;
    // SAFETY: `known` is at most either size, and any bytes are a value.
    unsafe { std::ptr::from_mut(&mut value).cast::<u8>().copy_from_nonoverlapping(from.cast(), known) };
    Some(value)
}

/// Writes a structure for which the program has `size` bytes: what it does not know is left out, what this library does not
/// know is zero. False where the size cannot be.
///
/// # Safety
///
/// `size` bytes can be written at `to`.
pub(crate) unsafe fn write_sized<T: Plain>(to: *mut T, size: usize, smallest: usize, value: T) -> bool {
    if !(smallest..=LONGEST).contains(&size) {
        return false;
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `known` and what is behind it lie in the `size` bytes.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(std::ptr::from_ref(&value).cast(), known);
        to.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_always_ends() {
        let mut room = [0x7f as c_char; 8];
        // SAFETY: the room has the size that is said.
        unsafe { put_text(room.as_mut_ptr(), 4, "abé") };
        assert_eq!(room.map(|byte| byte as u8), *b"ab\0\x7f\x7f\x7f\x7f\x7f");
        // SAFETY: no room is written to.
        unsafe { put_text(room.as_mut_ptr(), 0, "x") };
        assert_eq!(room[0] as u8, b'a');
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Grown {
        first: u64,
        second: u64,
    }

    // SAFETY: two integers.
    unsafe impl Plain for Grown {}

    #[test]
    fn programs_with_shorter_and_longer_structures_are_understood() {
        let of = |from: &[u64; 3], size| {
            // SAFETY: three words can be read.
            unsafe { read_sized(from.as_ptr().cast::<Grown>(), size, 8, Grown { first: 7, second: 9 }) }
        };
        assert_eq!(of(&[1, 2, 0], 8), Some(Grown { first: 1, second: 9 }));
        assert_eq!(of(&[1, 2, 0], 24), Some(Grown { first: 1, second: 2 }));
        assert_eq!(of(&[1, 2, 3], 24), None, "it sets what this library does not know");
        assert_eq!((of(&[1, 2, 0], 7), of(&[1, 2, 0], LONGEST + 1)), (None, None));
        let mut to = [5u64; 3];
        // SAFETY: three words can be written.
        assert!(unsafe { write_sized(to.as_mut_ptr().cast(), 24, 8, Grown { first: 1, second: 2 }) });
        assert_eq!(to, [1, 2, 0]);
        let mut to = [5u64; 3];
        // SAFETY: three words can be written.
        assert!(unsafe { write_sized(to.as_mut_ptr().cast(), 8, 8, Grown { first: 1, second: 2 }) });
        assert_eq!(to, [1, 5, 5]);
    }
}
