//! Queues go to rest while their hosts go on: what a host does between any two accesses of the switch loses it nothing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::support::clients::{Client, Outside, frame, mac, plain, port};
use conic_fabric::{Time, delegate_core};
use conic_native::KeptCore;
use conic_nicd::switch::{Switch, SwitchOptions};

/// What happens before the n-th access of a switch, once.
#[derive(Default)]
struct Moment {
    left: Cell<u64>,
    happens: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Moment {
    fn is_over(&self) -> bool {
        self.happens.borrow().is_none()
    }
}

/// A core before one of whose accesses something else happens.
struct Interrupted {
    core: KeptCore,
    moment: Rc<Moment>,
}

impl Interrupted {
    fn accesses(&self) -> &KeptCore {
        self.moment.left.set(self.moment.left.get().saturating_sub(1));
        if self.moment.left.get() == 0
            && let Some(happens) = self.moment.happens.take()
        {
            happens();
        }
        &self.core
    }
}

delegate_core!([] Interrupted, self => self.accesses());

/// A client of two queues of which the second has sent something, and the first is to be put to rest, in a step of a switch; before
/// the step's n-th access the client sends on the first. Whether the step had so many, and whether what was sent is taken in the
/// steps behind it, while the second queue sends on.
fn sends_before(access: u64) -> (bool, bool) {
    let (outside, moment) = (Outside::default(), Rc::new(Moment::default()));
    let mut switch = Switch::new(SwitchOptions::default(), vec![port(&outside, None)]);
    let interrupted = |core: &KeptCore| Interrupted { core: core.clone(), moment: Rc::clone(&moment) };
    let client = Client::attach_through(&mut switch, Time::ZERO, 1, 2, plain(1), interrupted);
    let client = Rc::new(RefCell::new(client));
    let mut now = Time::ZERO;
    switch.step(now);
    now += SwitchOptions::default().rest_after;
    let [busy, late] = [1, 2].map(|flow| frame(mac(1), mac(200), flow, access, 100));
    assert!(client.borrow_mut().send(1, &busy, 1));
    let (sender, sent) = (Rc::clone(&client), late.clone());
    moment.left.set(access);
    moment.happens.replace(Some(Box::new(move || assert!(sender.borrow_mut().send(0, &sent, 1)))));
    switch.step(now);
    if !moment.is_over() {
        return (false, false);
    }
    for _ in 0..64 {
        now += Time::from_nanoseconds(1000);
        assert!(client.borrow_mut().send(1, &busy, 1));
        switch.step(now);
    }
    (true, outside.take().contains(&late))
}

#[test]
fn a_queue_that_sends_while_it_is_put_to_rest_is_served() {
    let mut access = 1;
    loop {
        let (happened, taken) = sends_before(access);
        if !happened {
            break;
        }
        assert!(taken, "what was sent before access {access} is never looked at");
        access += 1;
    }
    println!("{access} accesses");
    assert!(access > 30, "the step has shrunk: {access} accesses");
}

#[test]
fn a_queue_that_is_passed_over_twice_in_a_step_is_one_of_those_that_may_rest() {
    let outside = Outside::default();
    let options = SwitchOptions { always_awake: 2, ..SwitchOptions::default() };
    let mut switch = Switch::new(options, vec![port(&outside, None)]);
    let mut clients = [1, 2].map(|number| Client::attach(&mut switch, Time::ZERO, number, 2, plain(number)));
    switch.step(Time::ZERO);
    // The next step begins with this one, and looks at its other queue twice.
    assert!(clients[1].send(1, &frame(mac(2), mac(200), 1, 1, 100), 1));
    switch.step(SwitchOptions::default().rest_after);
    let rests = |client: &Client| (0..2).filter(|&queue| client.notices.call_if_resting(&client.core, queue)).count();
    assert_eq!(clients.iter().map(rests).sum::<usize>(), 2);
}

#[test]
fn waits_for_a_look_are_known_by_the_times_of_steps_but_for_sleep() {
    let mut switch: Switch<KeptCore> = Switch::new(SwitchOptions::default(), Vec::new());
    let step = |switch: &mut Switch<KeptCore>, times: &[u64]| {
        times.iter().for_each(|&nanoseconds| _ = switch.step(Time::from_nanoseconds(nanoseconds)));
    };
    // The second at one moment makes nobody wait.
    step(&mut switch, &[1000, 1050, 1100, 1100]);
    switch.has_slept();
    step(&mut switch, &[5_000_000, 5_001_000]);
    // In picoseconds: twice 50,000, and once a million.
    assert_eq!(switch.looks().buckets().collect::<Vec<_>>(), [(1 << 16, 2), (1 << 20, 1)]);
    assert_eq!(switch.looks().total(), Time::from_nanoseconds(1100));
}
