//! Closing connections in which descriptors lie that their other sides have sent. To close the last copy of one may take as long as its
//! owner likes, as of a TCP connection with `SO_LINGER`; but not for a thread that ends: so one takes copies of all of this process's
//! descriptors, the connections are closed here, and it ends, and closes the last copies. There is one such thread at a time, for all
//! that are to be closed then, and it is there for a moment. What lies in the connections never becomes a descriptor of this process.
//!
//! A memif port closes otherwise, by a thread that stays ([`conic_native::Closer`]), and neither would do for both. That thread waits for as
//! long as one owner likes, and all that is to be closed behind it waits, too: there it is one port's peers, of whom there is one at a time;
//! here one client would shut the door for everybody. And what a memif peer passes is taken, since the protocol wants it so: a thread that
//! ends with copies of all descriptors would close such files like any other, which may be waited for by who is ending, too (what a file of a
//! FUSE does when it is closed), with everybody's copies still to be closed behind that.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use conic_native::channel::Channel;
use conic_native::descriptors;

use super::region::{Reports, aside};
use crate::order::News;

/// What is to be closed.
#[derive(Default)]
pub(super) struct Closing {
    waiting: Vec<Channel>,
    going: Option<Going>,
}

/// What a thread takes copies of.
struct Going {
    channels: Vec<Channel>,
    has_copies: Receiver<bool>,
    /// It ends with this.
    end: Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Closing {
    pub(super) fn push(&mut self, channel: Channel) {
        self.waiting.push(channel);
    }

    /// How many connections are still to be closed.
    pub(super) fn count(&self) -> usize {
        self.waiting.len() + self.going.as_ref().map_or(0, |going| going.channels.len())
    }

    /// Begins to close what waits; false if that is to be tried again later, for want of a thread.
    pub(super) fn begin(&mut self, reports: &Reports) -> bool {
        if self.going.is_some() || self.waiting.is_empty() {
            return true;
        }
        let (own, (tell, has_copies), (end, ended)) = (reports.clone(), channel(), channel::<Infallible>());
        let thread = aside(move || {
            // SAFETY: nothing below makes a descriptor or closes one: whoever else has what `own` is of waits for this thread's end.
            let copied = unsafe { descriptors::copy_for_this_thread() }.is_ok();
            // Who asks no more has ended.
            let _ = tell.send(copied);
            own.tell(News::Copied);
            let _ = ended.recv();
        });
        let Some(thread) = thread else { return false };
        self.going = Some(Going { channels: std::mem::take(&mut self.waiting), has_copies, end, thread });
        true
    }

    /// Waits for the thread's copies, which take no time, and lets it close them; false if it has none, and closing is to be tried again.
    pub(super) fn finish(&mut self) -> bool {
        let Some(Going { channels, has_copies, end, thread }) = self.going.take() else { return true };
        let copied = has_copies.recv() == Ok(true);
        if copied {
            drop(channels);
        } else {
            self.waiting.extend(channels);
        }
        drop(end);
        // It has let go of what it shares with this thread; its descriptors are closed behind that.
        let _ = thread.join();
        copied
    }
}

impl Closing {
    /// Closes all that is left, where there are threads for it.
    pub(super) fn end(&mut self, reports: &Reports) {
        while self.count() > 0 && self.begin(reports) && self.finish() {}
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.finish();
    }
}
