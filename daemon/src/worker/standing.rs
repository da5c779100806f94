//! A thread that stands still while one daemon takes over from another: of the new one until it begins, of the old one until its end, or
//! until it goes on after all.

use std::sync::mpsc::Sender;

use conic_native::clock;
use conic_port::Port;

use super::Loop;
use crate::order::{Left, Order};

impl Loop {
    /// Takes clients over until it is told to begin; false if it never is to.
    pub(super) fn waits_to_begin(&mut self) -> bool {
        let Ok(mut order) = self.orders.recv() else { return false };
        // Who is connected to whom is settled while the other daemon's threads serve still.
        while matches!(order, Order::Connect { .. }) {
            self.act_on(order);
            let Ok(next) = self.orders.recv() else { return false };
            order = next;
        }
        // They serve no more. A packet socket gets a copy of each frame; until now they had them too.
        self.switch.forget_received();
        matches!(order, Order::Begin) || self.act_on(order) && self.waits_for_begin()
    }

    /// Does what it is told and serves nobody, until it is told to begin; false if it never is to.
    fn waits_for_begin(&mut self) -> bool {
        while let Ok(order) = self.orders.recv() {
            if matches!(order, Order::Begin) {
                self.active = clock::now();
                return true;
            }
            if !self.act_on(order) {
                return false;
            }
        }
        false
    }

    /// Stops serving, and waits; false at the end.
    pub(super) fn suspend(&mut self, ports: Vec<usize>, answer: &Sender<Left>) -> bool {
        let clients = self.switch.suspend();
        // Who was about to be rung is rung once too often.
        self.ring();
        let ports = ports.into_iter().map(|port| (port, self.switch.bequeath(port))).collect();
        let _ = answer.send(Left { clients, ports });
        // The ports are about to be another daemon's: a frame that was taken here would be lost.
        self.waits_for_begin()
    }

    /// Goes on after all, with these ports as they are; clients and the other ports follow.
    pub(super) fn take_up(&mut self, ports: Vec<usize>) {
        self.switch.take_up();
        ports.into_iter().for_each(|port| self.switch.take_back(port));
    }

    /// Goes on with a port, in place of what it has given of it if that was so.
    pub(super) fn inherit(&mut self, port: usize, queues: Vec<Box<dyn Port>>) {
        let given = self.switch.take_bequeathed(port);
        self.listen_no_more_to(&given);
        queues.iter().for_each(|queue| self.listen_to(&**queue));
        self.switch.inherit(port, queues);
    }

    /// Takes what the other threads have sent, and nothing else, when all of them are quiet; then ends.
    pub(super) fn waits_to_end(&mut self) -> bool {
        let Ok(order) = self.orders.recv() else { return false };
        while self.switch.serve_trunks(clock::now()) > 0 {}
        self.act_on(order)
    }
}
