//! What takes long with a region, and waits for nobody: to make one, which touches each of its pages, and to give one back. A thread
//! of its own does it, so that the control thread goes on with all others.

use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use conic_control::{Reason, Refused};
use conic_fabric::Time;
use conic_interface::ccnic::notify::Notices;
use conic_interface::ccnic::{Map, prepare};
use conic_native::channel::{Channel, refuse_descriptors};
use conic_native::{Memory, NativeCore, Pages, about_to, clock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::bell::Bell;
use crate::connection::refused;
use crate::order::News;

/// What a client has of its user's quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub user: u32,
    pub clients: u32,
    pub queues: u32,
    pub bytes: u64,
}

/// What a connection asks for.
pub(super) struct Wish {
    pub connection: u64,
    pub taken: Taken,
    pub map: Arc<Map>,
    pub notices: Notices,
}

/// A region with all that is passed to a client, and what stays here of it.
pub(crate) struct Region {
    pub memory: Arc<Memory>,
    pub map: Arc<Map>,
    pub notices: Notices,
    pub kick: Arc<OwnedFd>,
    /// This side's end of a bell for each queue, and the client's.
    pub bells: Arc<Vec<OwnedFd>>,
    pub theirs: Vec<OwnedFd>,
}

/// A region is made, or cannot be.
pub(crate) struct Made {
    /// The connection that it was made for.
    pub connection: u64,
    pub taken: Taken,
    pub region: Result<Region, Refused>,
}

/// A client whose region goes, for the log.
pub(crate) struct Leaving {
    pub session: u64,
    pub name: String,
    pub why: &'static str,
    pub faults: u64,
    /// When its end was noticed.
    pub noticed: Time,
}

/// A region that its client has no more.
pub(crate) struct Departing {
    pub memory: Arc<Memory>,
    pub taken: Taken,
    /// Whose it was; none if nobody has ever got it.
    pub leaving: Option<Leaving>,
    /// The connection by which descriptors of it went out and were not all taken.
    pub unread: Option<Channel>,
    /// This side's ends of its bells, which are closed when no thread has them any more; none where its client never had the others.
    pub bells: Arc<Vec<OwnedFd>>,
    /// The program that may use it still; none where it is given back at once.
    pub holder: Option<OwnedFd>,
}

impl Departing {
    /// A region whose client, if it had one, holds nothing that tells of its end, and is not told of either.
    pub(super) fn unheld(memory: Arc<Memory>, taken: Taken, unread: Option<Channel>) -> Departing {
        Departing { memory, taken, leaving: None, unread, bells: Arc::default(), holder: None }
    }
}

/// Nothing is left of a region.
pub(crate) struct Returned {
    pub taken: Taken,
    /// Whose it was; none if nobody has ever got it.
    pub leaving: Option<Leaving>,
    /// The connection by which descriptors of it went out and were not all taken.
    pub unread: Option<Channel>,
    /// When that was.
    pub at: Time,
}

/// Where threads tell the control thread what they have done.
#[derive(Clone)]
pub(crate) struct Reports {
    pub news: Sender<News>,
    pub bell: Bell,
}

impl Reports {
    pub(crate) fn tell(&self, news: News) {
        // A daemon that has ended asks no more; what was made for it goes with the message.
        let _ = self.news.send(news);
        self.bell.ring();
    }
}

/// Has a region made for a connection, of this memory where there is some.
pub(super) fn make(wish: Wish, memory: Option<Memory>, reports: &Reports) {
    let own = reports.clone();
    let Wish { connection, taken, map, notices } = wish;
    let begun = aside(move || {
        let region = unless_it_panics(|| {
            let memory = memory.map_or_else(|| lay_out(&map), Ok);
            memory.and_then(|memory| Region::new(memory, map, notices, taken.queues))
        });
        let mistake = "a mistake of the NIC in making the region, which its standard error tells of";
        let region = region.unwrap_or_else(|| Err(refused(Reason::Resources, mistake)));
        own.tell(News::Made(Box::new(Made { connection, taken, region })));
    });
    if begun.is_none() {
        let region = Err(refused(Reason::Resources, "no thread to make the region: try again"));
        reports.tell(News::Made(Box::new(Made { connection, taken, region })));
    }
}

/// Has the memory of a region made that nobody has asked for.
pub(super) fn make_spare(map: Arc<Map>, reports: &Reports) {
    let own = reports.clone();
    // What fails here fails again, and is said, when somebody asks for it.
    let begun = aside(move || own.tell(News::Spare(unless_it_panics(|| lay_out(&map).ok()).flatten())));
    if begun.is_none() {
        reports.tell(News::Spare(None));
    }
}

/// Has memory unmapped that nobody has had.
pub(super) fn let_go(memory: Memory) {
    // A thread that does not begin lets go of it at once.
    aside(move || drop(memory));
}

/// Has a region emptied and unmapped, of which nobody else here has anything any more. Its client may have copies of the descriptor, by which
/// memory would stay that its user's share no longer counts. Gives it back to the caller, whole, where there is no thread for it now.
pub(super) fn give_back(region: Departing, reports: &Reports) -> Option<Departing> {
    let own = reports.clone();
    // Not the thread's alone: with work that does not begin it would be dropped as it is.
    let region = Arc::new(Mutex::new(Some(region)));
    let its = Arc::clone(&region);
    let take = |region: &Mutex<Option<Departing>>| region.lock().unwrap_or_else(PoisonError::into_inner).take();
    let begun = aside(move || {
        let Some(Departing { memory, taken, leaving, unread, .. }) = take(&its) else { return };
        // Not by dropping it: what a daemon leaves to the one that takes over is dropped too.
        let _ = unless_it_panics(|| {
            memory.empty();
            drop(memory);
        });
        own.tell(News::Returned(Returned { taken, leaving, unread, at: clock::now() }));
    });
    if begun.is_none() { take(&region) } else { None }
}

/// Whoever waits for what a thread does here is told in any case: what a user's quota has for it would be gone for ever otherwise.
pub(super) fn unless_it_panics<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Nothing that the work has touched is looked at again.
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Runs work in a thread of its own; none if the system gives none, and the work is dropped.
pub(super) fn aside(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    #[cfg(test)]
    if tests::WITHOUT_THREADS.get() {
        return None;
    }
    std::thread::Builder::new().name("nic-region".to_owned()).spawn(work).ok()
}

fn resources(what: &str, why: &dyn std::fmt::Display) -> Refused {
    refused(Reason::Resources, format!("{what}: {why}"))
}

/// The memory of a region, as its two sides find it.
fn lay_out(map: &Map) -> Result<Memory, Refused> {
    // A client can give pages of its region back to the system: a plain page comes again, empty, at the next access, as
    // does a transparent huge one; where one of the reserved huge pages does not, that access would end the daemon.
    let memory = Memory::create(&map.layout, Pages::Plain).map_err(|error| resources("no memory", &error))?;
    prepare(&NativeCore::new(&memory), map);
    Ok(memory)
}

impl Region {
    fn new(memory: Memory, map: Arc<Map>, notices: Notices, queues: u32) -> Result<Region, Refused> {
        about_to("make bells");
        let no_descriptors = |error| resources("no descriptors", &error);
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(no_descriptors)?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..queues {
            // Sockets and not eventfds: their sender can say with each call that it does not wait, while the flag of an eventfd
            // is the client's too, who could fill it, clear the flag, and so stop this side at its next ring.
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (own, other) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(no_descriptors)?;
            // What a client passed would be closed by whoever of this process lets go of the bell last.
            refuse_descriptors(own.as_fd());
            ours.push(own);
            theirs.push(other);
        }
        Ok(Region { memory: Arc::new(memory), map, notices, kick: Arc::new(kick), bells: Arc::new(ours), theirs })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use conic_interface::ccnic::Geometry;

    use super::*;

    thread_local! {
        /// The system gives this thread no other.
        pub(super) static WITHOUT_THREADS: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_region_for_which_there_is_no_thread_stays_as_it_is_and_is_emptied_later() {
        let geometry = Geometry { queues: 1, descriptors: 64, buffers: [64, 64, 0], object_bytes: 0 };
        let map = Map::new(geometry, conic_interface::ccnic::Features::best()).expect("a geometry that can be");
        let memory = Arc::new(lay_out(&map).expect("a small region"));
        let copy = memory.descriptor().try_clone_to_owned().expect("a second descriptor");
        let blocks = || rustix::fs::fstat(&copy).expect("a file").st_blocks;
        let (send, news) = std::sync::mpsc::channel();
        let reports = Reports { news: send, bell: Bell::new().expect("a descriptor") };
        let taken = Taken { user: 0, clients: 1, queues: 1, bytes: memory.bytes() };
        WITHOUT_THREADS.set(true);
        let region = Departing::unheld(memory, taken, None);
        let region = give_back(region, &reports).expect("nobody has it");
        assert!(news.try_recv().is_err() && blocks() > 0, "it counts as long as it is there");
        WITHOUT_THREADS.set(false);
        assert!(give_back(region, &reports).is_none());
        let told = news.recv_timeout(Duration::from_secs(20)).expect("it is told");
        assert!(matches!(told, News::Returned(_)) && blocks() == 0);
    }
}
