//! Who comes in: connections are accepted as long as there are descriptors for them.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

use conic_control::{Message, Reason};
use conic_fabric::Time;
use conic_native::channel::Channel;
use conic_native::clock;
use rustix::event::epoll;
use rustix::io::Errno;

use super::{Daemon, DaemonError, LISTENER, METRICS};
use crate::connection::{Connection, Step, refused, say};
use crate::event::Event;

/// Connections of one user that are attaching at one time: whoever says nothing takes the place of nobody else.
const MOST_WAITING: usize = 64;

/// Connections that wait to be closed: beyond, nobody is let in for a while. They wait for a moment where the system gives threads.
const MOST_CLOSING: usize = 256;

/// For how long nobody is let in when descriptors have run out.
const SHUT: Time = Time::from_nanoseconds(100_000_000);

/// What becomes of who comes where the system gives no descriptor of his process.
#[derive(Debug, PartialEq, Eq)]
struct Unwatched {
    /// What he is told, if he is there to hear it.
    text: Option<String>,
    /// It would be so with the next one too: nobody is let in for a while.
    shuts: bool,
}

impl Unwatched {
    /// By what the system says. Whoever may connect can end at once, again and again: that keeps nobody else out.
    fn of(error: &io::Error) -> Unwatched {
        let of = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
        // A process that has ended already wants nothing.
        if of(Errno::SRCH) {
            return Unwatched { text: None, shuts: false };
        }
        if error.kind() == ErrorKind::Unsupported {
            let text = "the NIC does not see the processes of your PID namespace: give it the same, or Linux 6.5";
            return Unwatched { text: Some(text.to_owned()), shuts: false };
        }
        let text = format!("the NIC cannot watch one process more: {error}: try again");
        let shuts = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS].into_iter().any(of);
        Unwatched { text: Some(text), shuts }
    }
}

impl Daemon {
    /// Lets people in, from now on.
    pub(super) fn open_door(&mut self) -> Result<(), DaemonError> {
        self.shut_until = None;
        self.watch(self.listener.as_fd(), LISTENER)?;
        if let Some(metrics) = &self.metrics {
            self.watch(metrics.listener.as_fd(), METRICS)?;
        }
        Ok(())
    }

    /// The same of a daemon that has clients: where it cannot be, they are served on, and it is tried again.
    pub(super) fn open_door_sometime(&mut self) {
        if let Err(error) = self.open_door() {
            self.shut_door(&error);
        }
    }

    /// Lets nobody in for a while: who waits would otherwise be spoken of again and again, and this thread never sleep.
    pub(super) fn shut_door(&mut self, error: &dyn std::error::Error) {
        let _ = epoll::delete(&self.epoll, self.listener.as_fd());
        if let Some(metrics) = &self.metrics {
            let _ = epoll::delete(&self.epoll, metrics.listener.as_fd());
        }
        self.shut_until = Some(clock::now() + SHUT);
        if !std::mem::replace(&mut self.crowded, true) {
            let clients = self.sessions().count();
            self.journal.say_of(None, &Event::Crowded { clients, text: error.to_string() }, clock::now());
        }
    }

    /// Takes one connection in.
    pub(super) fn accept(&mut self) {
        let channel = match self.listener.accept() {
            Ok(Some(channel)) => channel,
            Ok(None) => return,
            Err(error) => return self.shut_door(&error),
        };
        let Ok(peer) = channel.peer() else { return self.close(channel) };
        let is_waiting = |one: &&Connection| !matches!(one.step, Step::Attached(_)) && one.peer.user == peer.user;
        let waiting = self.connections.values().filter(is_waiting).count();
        if waiting >= MOST_WAITING {
            let text = format!("{waiting} programs of user {} are attaching at this moment: try again", peer.user);
            say(&channel, &Message::Refused(refused(Reason::Resources, text)));
            return self.close(channel);
        }
        let process = match channel.peer_process() {
            Ok(process) => process,
            Err(error) => {
                let unwatched = Unwatched::of(&error);
                if let Some(text) = unwatched.text {
                    say(&channel, &Message::Refused(refused(Reason::Resources, text)));
                }
                self.close(channel);
                if unwatched.shuts {
                    self.shut_door(&error);
                }
                return;
            }
        };
        let number = self.next;
        self.next += 1;
        let watched =
            self.watch(channel.as_fd(), number << 1).and_then(|()| self.watch(process.as_fd(), number << 1 | 1));
        if watched.is_err() {
            return self.close(channel);
        }
        let deadline = clock::now() + self.step_timeout();
        self.crowded = false;
        self.connections.insert(number, Connection { channel, peer, process, step: Step::Connected, deadline });
    }

    /// Closes a connection. What its other side has passed and nobody has taken may take as long to close as the other side likes, and is
    /// left to a thread where the kernel lets such things come.
    pub(super) fn close(&mut self, channel: Channel) {
        if channel.refuses_descriptors() || channel.end_without_descriptors() {
            return;
        }
        self.close_aside(channel);
    }

    fn close_aside(&mut self, channel: Channel) {
        self.closing.push(channel);
        self.close_what_waits();
        if self.closing.count() > MOST_CLOSING {
            self.shut_door(&io::Error::other("connections cannot be closed for want of a thread"));
        }
    }

    /// Closes this side's end of a bell, which no thread has any more. Its client has no reason to write into it, and nothing that it wrote is looked at.
    pub(super) fn close_bell(&mut self, bell: OwnedFd) {
        let bell = Channel::of_descriptor(bell);
        if !bell.refuses_descriptors() && !bell.end_unwritten() {
            self.close_aside(bell);
        }
    }

    /// Begins to close what waits for that.
    pub(super) fn close_what_waits(&mut self) {
        if !self.closing.begin(&self.reports) {
            self.try_again_later();
        }
    }

    /// A thread has copies of the connections that are to be closed.
    pub(super) fn finish_closing(&mut self) {
        if self.closing.finish() {
            self.close_what_waits();
        } else {
            self.try_again_later();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use conic_client::{Client, Options};
    use conic_interface::ccnic::Geometry;
    use conic_nicd::config::Config;

    use super::*;
    use crate::bell::Stop;

    /// The system refuses to watch what is watched already, as it does where it has no memory.
    #[test]
    fn a_door_that_cannot_be_opened_is_tried_again_and_said_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { socket: folder.path().join("nic.sock"), ..Config::default() };
        let config = config.checked().expect("a sound configuration");
        let (stop, (tell, told)) = (Stop::new().expect("a descriptor"), channel());
        let log = Box::new(move |event: &Event| _ = tell.send(event.clone()));
        let mut daemon = Daemon::start(config, stop.clone(), log).expect("it starts");
        let socket = daemon.config.socket.clone();
        for _ in 0..2 {
            daemon.open_door_sometime();
            assert!(daemon.shut_until.is_some(), "it is open already, and was opened");
            daemon.open_door().expect("it was shut");
        }
        let is_crowded = |event: &Event| matches!(event, Event::Crowded { .. });
        assert_eq!(told.try_iter().filter(is_crowded).count(), 1);
        (daemon.crowded, daemon.shut_until) = (false, Some(Time::ZERO));
        let thread = std::thread::spawn(move || daemon.run());
        let shut = told.recv_timeout(Duration::from_secs(20));
        let geometry = Geometry { queues: 1, descriptors: 128, buffers: [256, 128, 16], object_bytes: 0 };
        let attached = Client::attach(&socket, &Options { geometry, ..Options::default() });
        stop.raise();
        let ended = thread.join();
        assert!(matches!(ended, Ok(Ok(_))), "{ended:?}");
        assert!(shut.as_ref().is_ok_and(is_crowded), "{shut:?}");
        attached.expect("somebody is let in again");
    }

    #[test]
    fn only_where_descriptors_or_memory_have_run_out_is_nobody_let_in() {
        let of = |errno: Errno| Unwatched::of(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert!(of(errno).shuts && of(errno).text.is_some_and(|text| text.contains("try again")), "{errno}");
        }
        for errno in [Errno::INVAL, Errno::PERM, Errno::NODATA] {
            assert!(!of(errno).shuts && of(errno).text.is_some(), "{errno}");
        }
        assert_eq!(of(Errno::SRCH), Unwatched { text: None, shuts: false });
        let namespace = Unwatched::of(&ErrorKind::Unsupported.into());
        assert!(!namespace.shuts && namespace.text.is_some_and(|text| text.contains("PID namespace")));
    }
}
