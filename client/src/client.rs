//! A client: the connection, and what becomes of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conic_control::{Attached, Message, Reason, Refused};
use conic_fabric::Time;
use conic_native::{Count, clock};

use crate::attach::{Attaching, Kept, Late, MOST_WORDS, attach, limit_packets, set_mac, set_promiscuous};
use crate::session::Session;
use crate::{AttachError, Options, Queue};

/// How long after an attempt to reconnect the next one is made.
const BETWEEN_ATTEMPTS: Time = Time::from_nanoseconds(10_000_000);

/// How long a thread sleeps that waits for the daemon's word on an attempt: another one may take the word.
const SLICE: Duration = Duration::from_millis(1);

/// The state of the connection to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Packets flow.
    Up,
    /// The daemon is gone, or has detached this client.
    Down,
}

/// A client of the daemon. Dropping it and its queues detaches.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What a client and its queues share.
#[derive(Debug)]
pub(crate) struct Shared {
    path: PathBuf,
    options: Options,
    /// Odd while the link is up; one more with each change.
    generation: Count,
    state: Mutex<State>,
    /// Held while the daemon is asked something: one question at a time.
    question: Mutex<()>,
}

#[derive(Debug)]
struct State {
    session: Arc<Session>,
    /// A thread waits for the daemon's answer, and hears what else it says.
    is_heard: bool,
    next_attempt: Time,
    /// The attempt to attach again that is on its way.
    attaching: Option<Attaching>,
    /// Threads that wait for its end; none is begun meanwhile.
    waiting: u32,
    /// Why the daemon detached this client, or did not let it in again, if that was said.
    detached: Option<Refused>,
    reconnects: u64,
    kept: Kept,
    /// The program wants the address that is kept, and no other.
    wants_mac: bool,
    /// What the daemon owes of its words.
    late: Late,
    /// It gets frames for stations that nobody is known to have.
    promiscuous: bool,
}

impl Client {
    /// Attaches to the daemon that listens at `path`, and gives the client and its queues.
    ///
    /// # Errors
    ///
    /// Nobody listens, the daemon refuses, or takes too long; the text says what to do.
    pub fn attach(path: &Path, options: &Options) -> Result<(Client, Vec<Queue>), AttachError> {
        let wanted = Kept { mac: options.mac, longest: None, promiscuous: options.promiscuous };
        let session = attach(path, options, wanted)?;
        if options.promiscuous && !session.promiscuous {
            return Err(AttachError::Promiscuous);
        }
        let kept = Kept { mac: Some(session.attached.mac), ..wanted };
        let queues = session.attached.geometry.queues as usize;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            options: options.clone(),
            generation: Count::new(1),
            state: Mutex::new(State {
                session: Arc::new(session),
                is_heard: false,
                next_attempt: Time::ZERO,
                attaching: None,
                waiting: 0,
                detached: None,
                reconnects: 0,
                kept,
                wants_mac: options.mac.is_some(),
                late: Late::default(),
                promiscuous: options.promiscuous,
            }),
            question: Mutex::new(()),
        });
        let queues = (0..queues).map(|index| Queue::new(Arc::clone(&shared), index)).collect();
        Ok((Client { shared }, queues))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Client {
        Client { shared }
    }

    /// The link as it was last seen: by a queue, or by [`Client::maintain`].
    pub fn link(&self) -> Link {
        self.shared.link()
    }

    /// Asks the kernel whether the daemon is there, and attaches again if it is back, waiting for it for no longer than the options'
    /// patience at each step. Queues do this by themselves while they are called, without waiting; a program that does not call
    /// them does it here.
    pub fn maintain(&self) -> Link {
        self.shared.maintain();
        self.link()
    }

    /// The same without waiting: an attempt to attach again goes on as far as the daemon has answered, and further in the next
    /// call, of this or of a queue.
    pub fn look(&self) -> Link {
        self.shared.look();
        self.link()
    }

    /// This client's MAC address; while the daemon is gone, the one that it asks for when that is back.
    pub fn mac(&self) -> [u8; 6] {
        self.shared.state().mac()
    }

    /// What the daemon said of the present session.
    pub fn attached(&self) -> Attached {
        let state = self.shared.state();
        Attached { mac: state.mac(), ..state.session.attached.clone() }
    }

    /// How often it has attached again.
    pub fn reconnects(&self) -> u64 {
        self.shared.state().reconnects
    }

    /// From here on no packet comes that stands for several and is longer than so many bytes, also after a reconnection. What came before
    /// may be there still. With [`crate::Offloads::unfinished`]; without, none comes at all. Other threads' calls do not wait for the
    /// daemon's answer, but those of this one.
    ///
    /// # Errors
    ///
    /// The daemon is older than this, refuses, or takes too long.
    pub fn limit_packets(&self, longest: u32) -> Result<(), AttachError> {
        let limit =
            |session: &Session, options: &Options, late: &mut Late| limit_packets(session, options, longest, late);
        self.ask(limit, |state| state.kept.longest = Some(longest))
    }

    /// Asks for another MAC address, which this client has when this returns, and after a reconnection: what is for the old one is its no
    /// longer, and it may not send from that where it may send from its own alone. What was sent before from the old one and was not
    /// looked at is lost then. Other threads' calls do not wait for the daemon's answer, but those of this one.
    ///
    /// # Errors
    ///
    /// Another client of the network has the address, or it is that of no single station; the daemon is older than this, or takes too long.
    /// A daemon that takes too long may still give it: the client has it then as soon as the answer comes, and [`Client::mac`] says so.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), AttachError> {
        if mac[0] & 1 == 1 || mac == [0; 6] {
            return Err(AttachError::Address(mac));
        }
        let change = |session: &Session, options: &Options, late: &mut Late| set_mac(session, options, mac, late);
        self.ask(change, |state| (state.kept.mac, state.wants_mac) = (Some(mac), true))
    }

    /// Asks for frames for stations that nobody is known to have, of its VLAN, or for none of them, which are those that it gets when this
    /// returns. A client that may send from other addresses than its own gets them anyway, because their stations may be behind it.
    /// While the daemon is gone, it is asked when that is back; should it not grant it then, the client attaches without, and
    /// [`Client::is_promiscuous`] says so. Other threads' calls do not wait for the daemon's answer, but those of this one.
    ///
    /// # Errors
    ///
    /// The operator does not let this client have them; the daemon is older than this, and gives them to everybody, or takes too long.
    pub fn set_promiscuous(&self, on: bool) -> Result<(), AttachError> {
        let change =
            |session: &Session, options: &Options, late: &mut Late| set_promiscuous(session, options, on, late);
        self.ask(change, |state| (state.kept.promiscuous, state.promiscuous) = (on, on))
    }

    /// Whether the daemon has granted this client frames for stations that nobody is known to have; while it is gone, whether it is asked
    /// when it is back.
    pub fn is_promiscuous(&self) -> bool {
        self.shared.state().promiscuous
    }

    /// Asks the daemon something, one question at a time, and enters what it has agreed to; where it is gone, what it will be asked then.
    fn ask(
        &self,
        question: impl FnOnce(&Session, &Options, &mut Late) -> Result<(), AttachError>,
        enter: impl FnOnce(&mut State),
    ) -> Result<(), AttachError> {
        let _asked = unpoisoned(self.shared.question.lock());
        let (session, mut late) = {
            // An attempt that is on its way would miss what is asked for now.
            let mut state = self.shared.finish(self.shared.state());
            if self.link() == Link::Down {
                enter(&mut state);
                return Ok(());
            }
            state.is_heard = true;
            (Arc::clone(&state.session), std::mem::take(&mut state.late))
        };
        let answer = question(&session, &self.shared.options, &mut late);
        let mut state = self.shared.state();
        // The session is still that one: nobody attaches again while the daemon is heard here.
        (state.is_heard, state.late) = (false, late);
        state.enter_late();
        match &answer {
            Ok(()) => enter(&mut state),
            Err(AttachError::Refused(refused)) => state.detached = Some(refused.clone()),
            Err(_) => {}
        }
        answer
    }

    /// Why the daemon detached this client last, if it said so, or why the last attempt to attach again failed at a daemon that was
    /// there.
    pub fn detached(&self) -> Option<Refused> {
        self.shared.state().detached.clone()
    }
}

impl Shared {
    /// The number of the present state: odd while the link is up.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    pub(crate) fn link(&self) -> Link {
        if self.generation() % 2 == 1 { Link::Up } else { Link::Down }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// The present session's parts for a queue, with its generation, if the link is up.
    pub(crate) fn with_session<T>(&self, take: impl FnOnce(&Session, u64) -> T) -> Option<T> {
        let state = self.state();
        let generation = self.generation();
        (generation % 2 == 1).then(|| take(&state.session, generation))
    }

    /// Looks after the connection without waiting, and says whether an attempt to attach again is on its way; nothing where another
    /// thread is at it.
    pub(crate) fn look(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        self.look_after(&mut state);
        state.attaching.is_some()
    }

    /// Looks after the connection, and waits for the end of an attempt to attach again.
    fn maintain(&self) {
        let mut state = self.state();
        self.look_after(&mut state);
        drop(self.finish(state));
    }

    /// Waits for the end of the attempt to attach again that is on its way, if there is one. Others have the state meanwhile.
    fn finish<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        while let Some(attaching) = &state.attaching {
            let (channel, left) = (Arc::clone(&attaching.channel), attaching.left());
            drop(state);
            // What is wrong with it is found in going on.
            let _ = channel.wait(left.min(SLICE));
            state = self.state();
            self.go_on(&mut state);
        }
        state.waiting -= 1;
        state
    }

    fn look_after(&self, state: &mut State) {
        let generation = self.generation();
        if generation % 2 == 1 {
            if state.is_heard {
                // Its end is noticed there too, at once.
                return;
            }
            // First what the daemon has said: it closes behind it.
            if state.has_been_detached() || state.session.channel.is_closed() {
                self.generation.set(generation + 1);
            }
            return;
        }
        if state.attaching.is_some() {
            return self.go_on(state);
        }
        if self.options.reconnect && state.waiting == 0 && clock::now() >= state.next_attempt {
            self.begin(state, state.kept);
        }
    }

    /// Begins an attempt to attach again.
    fn begin(&self, state: &mut State, kept: Kept) {
        match Attaching::begin(&self.path, &self.options, kept) {
            Ok(begun) => state.attaching = Some(begun),
            Err(error) => self.end(state, Err(error)),
        }
    }

    /// Goes on with the attempt that is on its way, as far as the daemon has answered.
    fn go_on(&self, state: &mut State) {
        let Some(attaching) = &mut state.attaching else { return };
        let Some(attached) = attaching.go_on(&self.options).transpose() else { return };
        let wanted_mac = attaching.wants_mac();
        state.attaching = None;
        match attached {
            // Somebody else has it meanwhile, and the program wanted none in particular.
            Err(AttachError::Refused(why)) if why.reason == Reason::Mac && wanted_mac && !state.wants_mac => {
                self.begin(state, Kept { mac: None, ..state.kept });
            }
            ended => self.end(state, ended),
        }
    }

    /// Enters how an attempt has ended.
    fn end(&self, state: &mut State, attached: Result<Session, AttachError>) {
        match attached {
            Ok(session) => {
                state.kept.mac = Some(session.attached.mac);
                state.promiscuous = session.promiscuous;
                state.session = Arc::new(session);
                state.late = Late::default();
                state.reconnects += 1;
                self.generation.set(self.generation() + 1);
            }
            Err(error) => {
                // Where nobody is, what was said last still holds.
                if let Some(refused) = error.refusal() {
                    state.detached = Some(refused);
                }
            }
        }
        state.next_attempt = clock::now() + BETWEEN_ATTEMPTS;
    }
}

/// Whoever panicked did not leave a state half changed: each change is one assignment.
fn unpoisoned<T>(locked: LockResult<MutexGuard<'_, T>>) -> MutexGuard<'_, T> {
    locked.unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn mac(&self) -> [u8; 6] {
        self.kept.mac.unwrap_or(self.session.attached.mac)
    }

    /// Enters what the daemon has agreed to in words that nobody waited for.
    fn enter_late(&mut self) {
        if let Some(mac) = self.late.mac.take() {
            (self.kept.mac, self.wants_mac) = (Some(mac), true);
        }
        self.kept.longest = self.late.longest.take().or(self.kept.longest);
        if let Some(on) = self.late.promiscuous.take() {
            (self.kept.promiscuous, self.promiscuous) = (on, on);
        }
    }

    /// Whether the daemon has said that this client is detached.
    fn has_been_detached(&mut self) -> bool {
        // All that there is: behind an answer that came late there may be the last word, and behind that the end.
        for _ in 0..MOST_WORDS {
            let received = match self.session.channel.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return false,
                Err(_) => return true,
            };
            match Message::decode(&received.bytes, received.descriptors.len()) {
                Ok(Message::Refused(refused)) => {
                    self.detached = Some(refused);
                    return true;
                }
                Ok(word) => {
                    self.late.take(&word);
                    self.enter_late();
                }
                // A daemon that says what this program does not understand may be newer; its queues speak for it.
                Err(_) => {}
            }
        }
        false
    }
}
