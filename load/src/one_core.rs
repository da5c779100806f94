//! Both halves of an interface on one core: what its instructions cost where no line moves between cores.

use conic_fabric::{Core, Time};
use conic_interface::burst::{HostQueue, NicQueue};

use crate::{Account, ClosedLoop, Traffic};

/// An application and the NIC that answers it, by turns.
#[derive(Debug)]
pub struct OneCore<Q, N> {
    application: ClosedLoop<Q>,
    nic: N,
    spans: [Time; 2],
}

impl<Q: HostQueue, N: NicQueue> OneCore<Q, N> {
    /// Two halves of one queue pair.
    pub fn new(application: ClosedLoop<Q>, nic: N) -> OneCore<Q, N> {
        OneCore { application, nic, spans: [Time::ZERO; 2] }
    }

    /// Forgets for how long the halves had the core: a warm-up ends.
    pub fn forget_spans(&mut self) {
        self.spans = [Time::ZERO; 2];
    }

    /// For how long the application, and the NIC, had the core since.
    pub fn spans(&self) -> [Time; 2] {
        self.spans
    }
}

impl<Q: HostQueue, N: NicQueue> Traffic for OneCore<Q, N> {
    /// A step of the application, and whatever that gives the NIC to do.
    #[inline(always)]
    fn step(&mut self) -> usize {
        let begins = self.application.queue().core().now();
        let received = self.application.step();
        let between = self.application.queue().core().now();
        self.nic.turn_around();
        let ends = self.application.queue().core().now();
        let spans = [between.since(begins), ends.since(between)];
        self.spans = [self.spans[0] + spans[0], self.spans[1] + spans[1]];
        received
    }
    fn account(&self) -> &Account {
        self.application.account()
    }
    fn account_mut(&mut self) -> &mut Account {
        self.application.account_mut()
    }
    fn pace(&mut self, start: Time, interval: Time) {
        self.application.pace(start, interval);
    }
}
