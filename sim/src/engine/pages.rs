//! Large tables on huge pages of the host.
//!
//! A random line of a large modelled memory is on a page that the host's translation buffers do not hold, so that even a
//! prefetch waits for a walk through the page tables. On pages of 2 MiB those of a whole region fit. The tables of a hundred
//! cores are as large together, though each is small: they lie side by side in a [`Room`].

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// Bytes of a huge page; what is smaller than one gains nothing.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a cache line of the host, at which every table begins.
const HOST_LINE: usize = 64;

/// Memory of the host, aligned to a huge page where it has one.
#[derive(Debug)]
struct Block {
    first: NonNull<u8>,
    layout: Layout,
}

impl Block {
    /// So many bytes, of which nothing is written, on huge pages where they fill one and the system has some.
    fn new(bytes: usize) -> Block {
        let align = if bytes < HUGE_PAGE { HOST_LINE } else { HUGE_PAGE };
        let size = bytes.max(1).next_multiple_of(align);
        let layout = Layout::from_size_align(size, align).expect("a table that the address space has room for");
        // SAFETY: the layout's size is not zero.
        let first = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // It is a wish: whether it is granted changes only times.
        #[cfg(all(target_os = "linux", not(miri)))]
        if align == HUGE_PAGE {
            // SAFETY: these whole pages were just allocated, and the advice changes neither their contents nor who may use them.
            unsafe { libc::madvise(first.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        Block { first, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and every table in it holds it: none is left.
        unsafe { dealloc(self.first.as_ptr(), self.layout) };
    }
}

/// Where tables are made side by side, on the same huge pages.
#[derive(Debug, Default)]
pub struct Room {
    block: Option<Rc<Block>>,
    /// Bytes of the block that tables have.
    used: usize,
    /// Bytes of a block at least.
    least: usize,
}

impl Room {
    /// Room for many tables, whole huge pages at a time. The default is room for one, and no more.
    pub fn for_many() -> Room {
        Room { least: HUGE_PAGE, ..Room::default() }
    }

    /// A table of the items of an iterator that knows how many it has.
    pub fn collect<T: Copy>(&mut self, items: impl ExactSizeIterator<Item = T>) -> Table<T> {
        let bytes = (items.len() * size_of::<T>()).next_multiple_of(HOST_LINE);
        let block = match &self.block {
            Some(block) if block.layout.size() - self.used >= bytes => Rc::clone(block),
            _ => {
                self.used = 0;
                Rc::clone(self.block.insert(Rc::new(Block::new(bytes.max(self.least)))))
            }
        };
        let first = self.used;
        self.used += bytes;
        Table::filled(block, first, items)
    }
}

/// A table whose length stays as it is; it dereferences to a slice of its items.
#[derive(Debug)]
pub struct Table<T> {
    first: NonNull<T>,
    items: usize,
    /// What it lies in, for as long as it does.
    _block: Rc<Block>,
}

impl<T: Copy> Table<T> {
    /// Writes a table into the bytes of a block from `begins` on, which no other table has.
    fn filled(block: Rc<Block>, begins: usize, items: impl ExactSizeIterator<Item = T>) -> Table<T> {
        const { assert!(align_of::<T>() <= HOST_LINE, "items are aligned to the host's cache lines at most") };
        let most = items.len();
        assert!(begins.is_multiple_of(HOST_LINE) && begins + most * size_of::<T>() <= block.layout.size());
        // SAFETY: the assertion has just checked that it lies in the block, or at its end.
        let first = unsafe { block.first.add(begins) }.cast::<T>();
        let mut written = 0;
        for item in items.take(most) {
            // SAFETY: there is room for `most` items from `first` on, by the assertion, and it is aligned for them.
            unsafe { first.add(written).write(item) };
            written += 1;
        }
        Table { first, items: written, _block: block }
    }
}

impl<T> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many items were written from `first` on into memory that lives as long as this, and that nobody else has.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.items) }
    }
}

impl<T> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: so many items were written from `first` on into memory that lives as long as this, and that nobody else has.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.items) }
    }
}

/// A table of its own, of the items of an iterator that knows how many it has: on huge pages where it is large.
pub fn collect<T: Copy>(items: impl ExactSizeIterator<Item = T>) -> Table<T> {
    Room::default().collect(items)
}
