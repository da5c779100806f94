//! Fences of which one side pays for both: `membarrier(2)`.
//!
//! The sleeping side asks the kernel to run a full fence on every core that runs a thread of a registered process; so the side
//! that is awake needs none of its own, only that the compiler keeps its order. A process that is not registered uses a whole
//! fence on its light side, and is none the worse off but for its time.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

/// Whether this process is registered.
static REGISTERED: AtomicBool = AtomicBool::new(false);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers alone and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers this process, so that its light fences cost nothing; false where the kernel does not have it. For who knows that its
/// peers' heavy fences go through the kernel.
pub fn register() -> bool {
    // A heavy fence once, too: a sandbox may allow the one and not the other.
    let registered = membarrier(REGISTER_GLOBAL_EXPEDITED) && membarrier(GLOBAL_EXPEDITED);
    if registered {
        // Release: pairs with nothing; a thread that still reads false uses a whole fence.
        REGISTERED.store(true, Ordering::Release);
    }
    registered
}

#[inline(always)]
pub(crate) fn light() {
    // Relaxed: whichever of the two it reads is right, see above.
    if REGISTERED.load(Ordering::Relaxed) {
        // SeqCst, for the compiler alone: the store before stays before the load behind; the processor is told by the heavy half.
        compiler_fence(Ordering::SeqCst);
    } else {
        // SeqCst: a load stays behind an earlier store.
        fence(Ordering::SeqCst);
    }
}

pub(crate) fn heavy() {
    // SeqCst: this side's own store stays before its own load, whatever the kernel does.
    fence(Ordering::SeqCst);
    // Where it fails the peer was told so, and puts a whole fence before its light ones.
    membarrier(GLOBAL_EXPEDITED);
}
