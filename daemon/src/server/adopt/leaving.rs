//! The old daemon's last steps: it stops serving, gives what it has left, and ends if the new one says that everything is its own. Where that
//! one does not, it takes up again what it had left, and serves on.
//!
//! Who of the two may serve is decided by one word of the new one, "mine", and by where the kernel puts it. As long as the old one hears, the
//! word is entered in its socket, and the new one's from then on; the old one reads it, sooner or later, and gives up what it has. The old
//! one may cease to hear instead ([`Channel::end_hearing`]); a word that was entered before counts still, and every later one is refused to
//! the new one, which has touched nothing and ends. The kernel does the one or the other under one lock: no message is on its way between the
//! two, and neither has to be waited for.
//!
//! | reached | the old one | the new one |
//! |---|---|---|
//! | begun | serves | opens and prepares what is its own |
//! | ready | its threads stand still, with their ports and all that they have left | has what was passed, and has touched none of it |
//! | done | waits for a word, [`BLACKOUT`] at most | has all; says "mine" |
//! | mine | is over: closes what is left, and ends | serves |
//! | heard no more | takes up what its threads have left, and serves | is refused its word, and ends with an error |
//!
//! | who | dies | stands still |
//! |---|---|---|
//! | the new one before "mine" | the connection ends: the old one serves on at once | the old one serves on, before "ready" after [`PATIENCE`], behind it after [`BLACKOUT`]; the new one is refused its word when it goes on |
//! | the new one behind "mine" | nobody serves, as where any daemon dies that serves: what it was to tell where a queue stands is gone with it | nobody serves until it goes on |
//! | the old one before it has said all, or "mine" was said | the new one ends with an error; nobody serves until a daemon is started | the new one waits for [`PATIENCE`] and ends; the old one then serves on when it goes on |
//! | the old one behind "mine" | the new one serves | the new one serves; devices and files that the old one is to close first come when it goes on, or after [`PATIENCE`] |

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use conic_fabric::Time;
use conic_native::channel::Channel;
use conic_native::{about_to, clock};
use conic_nicd::switch::Suspended;
use conic_port::Legacy;
use serde_json::json;

use super::super::listening::set_mode;
use super::super::{Daemon, Ended};
use super::link::Link;
use super::ports::give;
use super::{Last, MINE, Stood, laid_out};
use crate::capture::Writers;
use crate::connection::{Session, Step};
use crate::event::Event;
use crate::order::{Left, Order};

#[cfg(doc)]
use super::PATIENCE;

/// How long clients are served by nobody at most where the new one does not say that everything is its own. It has nothing to do but
/// that, and a take-over that comes too late costs less than clients that wait.
const BLACKOUT: Time = Time::from_nanoseconds(2_000_000_000);

/// What a network's threads have left, and which of its ports are wanted, by promise and number.
type LeftOf = (Vec<(usize, usize)>, Left);

impl Daemon {
    /// Stops serving, gives ports that are wanted, and where each queue stood; how this one ends, if the new one has said that everything
    /// is its own.
    pub(super) fn leave_everything_to(&mut self, number: u64, wanted: &[usize]) -> Option<Ended> {
        let begun = clock::now();
        about_to("adopt: stop serving");
        let networks = self.networks.iter().enumerate();
        let left: Vec<LeftOf> = networks
            .map(|(index, network)| {
                let ports = self.wanted(index, wanted);
                let left = network.suspend(ports.iter().map(|&(_, port)| port));
                (ports, left)
            })
            .collect();
        let heir = self.connections.get(&number);
        if !heir.is_some_and(|heir| is_given(&heir.channel, &left, begun + BLACKOUT)) {
            self.take_up(left.into_iter().map(|(_, left)| left).collect());
            self.serve_on_without(number);
            let microseconds = clock::now().since(begun).nanoseconds() / 1000;
            self.journal.say(&Event::ServesOn { microseconds });
            return None;
        }
        about_to("adopt: let everything go");
        let heir = self.connections.remove(&number)?;
        drop(left);
        // Behind the clients, who need not wait for it: a device takes its time.
        let (writers, unfinished) = self.end_networks();
        about_to("adopt: say that it is closed");
        let _ = Link::with(&heir.channel).say(&json!(Last::Closed), &[]);
        Writers::wait_for(writers);
        self.journal.end();
        Some(Ended { heir: Some(heir.peer.process), unfinished })
    }

    /// Lets one go that was to take over, and has not.
    pub(super) fn serve_on_without(&mut self, number: u64) {
        self.let_go(number, "closed");
        // It may have let others connect before it failed. A socket that is gone lets nobody in whatever is done here.
        let _ = set_mode(&self.config);
        self.give_time_again();
    }

    /// Goes on with what the networks' threads have left.
    fn take_up(&mut self, left: Vec<Left>) {
        about_to("adopt: serve on");
        let stood: BTreeSet<u64> =
            left.iter().flat_map(|left| &left.clients).map(|Suspended { session, .. }| *session).collect();
        for (index, Left { clients, ports }) in left.into_iter().enumerate() {
            let clients = clients.into_iter().filter_map(|suspended| self.order_to_resume(suspended)).collect();
            let network = &self.networks[index];
            for text in network.take_up(clients, ports) {
                let network = network.config.name.clone();
                self.journal.say(&Event::PortFailed { network, text });
            }
        }
        // Whom a thread could not stop where it stood.
        let lost = self
            .connections
            .iter()
            .filter(|(_, one)| session_of(&one.step).is_some_and(|own| !stood.contains(&own.session)));
        let lost: Vec<u64> = lost.map(|(&number, _)| number).collect();
        lost.into_iter().for_each(|number| self.let_go(number, "closed"));
    }

    /// Has a client be served again from where it stood.
    fn order_to_resume(&self, suspended: Suspended) -> Option<Order> {
        let mut sessions = self.connections.values().filter_map(|one| session_of(&one.step));
        let own = sessions.find(|own| own.session == suspended.session)?;
        // It was laid out so before.
        let (map, notices) = laid_out(own.geometry, own.headroom).ok()?;
        let (memory, kick, bells) = (Arc::clone(&own.memory), Arc::clone(&own.kick), Arc::clone(&own.bells));
        Some(Order::Resume { suspended, map: Arc::new(map), notices, memory, kick, bells })
    }
}

/// What a client has that its network's threads serve.
fn session_of(step: &Step) -> Option<&Session> {
    match step {
        Step::Attached(session) => Some(session),
        Step::Entering(entering) => Some(&entering.session),
        Step::Connected | Step::Negotiated { .. } | Step::Making(_) | Step::Asking(_) => None,
    }
}

/// Gives what is left, and whether the new one has said that everything is its own. Where it has not by then, it never will.
pub(super) fn is_given(channel: &Channel, left: &[LeftOf], until: Time) -> bool {
    let link = Link::until(channel, until);
    let is_mine = |link: &Link<'_>| link.hear().is_ok_and(|(word, _)| word == MINE);
    if say_what_is_left(&link, left).is_ok() && is_mine(&link) {
        return true;
    }
    channel.end_hearing();
    // What it had said before that counts.
    is_mine(&Link::until(channel, clock::now()))
}

fn say_what_is_left(link: &Link<'_>, left: &[LeftOf]) -> io::Result<()> {
    about_to("adopt: say what is left");
    let mut to_be_closed = Vec::new();
    for (wanted, Left { clients, ports }) in left {
        for (port, queues) in ports {
            let Some((promise, _)) = wanted.iter().find(|(_, own)| own == port) else { continue };
            if !queues.is_empty() && queues.iter().all(Legacy::is_nothing) {
                to_be_closed.push(*promise);
            } else {
                queues.iter().try_for_each(|queue| give(link, *promise, queue))?;
            }
        }
        for Suspended { session, rules, positions } in clients {
            let stood = Stood { session: *session, rules: rules.clone(), positions: positions.clone() };
            link.say(&json!(Last::Client(stood)), &[])?;
        }
    }
    about_to("adopt: say that this was all");
    link.say(&json!(Last::Done(to_be_closed)), &[])?;
    about_to("adopt: hear whose it is");
    Ok(())
}
