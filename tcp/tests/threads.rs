//! Fast-path threads and an application on threads of their own, over ordinary memory.

use crate::common::{Faults, Faulty, Ground, Over, SMALL};
use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_load::{Network, Traffic};
use conic_native::{Flag, clock};
use conic_tcp::{Acknowledge, Application, Clients, Load, Shape, Timeouts};

const ANSWERS: u64 = 5_000;
const DEADLINE: Time = Time::from_nanoseconds(60_000_000_000);
/// Longer than a thread is without a core, mostly.
const TIMEOUT: Time = Time::from_nanoseconds(20_000_000);
const LONGEST: Time = Time::from_nanoseconds(160_000_000);

/// Two fast-path threads, each with its network; the first one's thread has the application, too: more threads than there are cores would
/// wait for each other's turns.
fn exchange(faults: Faults) {
    let ground = Ground::new(Over::CcNic(Features::best()), Shape { threads: 2, notices: 8, ..SMALL }, [7, 8]);
    let done = [Flag::new(), Flag::new()];
    let deadline = clock::now() + DEADLINE;
    let is_over = || done.iter().all(Flag::is_up) || clock::now() > deadline;
    let timeouts = Timeouts::new(TIMEOUT, TIMEOUT, LONGEST);
    let serve = |thread: u32| {
        let connections = ground.connections_of(thread);
        let clients = Clients::new(&connections, SMALL.buffers[0], Load { window: 8, requests_a_segment: 3 }, 4)
            .with_timeouts(timeouts);
        let faulty = Faulty::new(clients, faults, u64::from(thread));
        let mut network = Network::new(ground.core(), ground.nic(thread as usize), faulty);
        let mut fast_path = ground.fast_path(thread, Acknowledge::AtOnce).with_timeouts(timeouts);
        let mut application = (thread == 0).then(|| Application::new(ground.core(), &ground.service, 0));
        while !is_over() {
            fast_path.step();
            network.step();
            application.as_mut().map(Application::step);
            if network.account().received() >= ANSWERS {
                done[thread as usize].raise();
            }
        }
        let refused = application.map_or(0, |application| application.refused());
        (network.account().received(), network.account().corrupt() + refused, fast_path.counted())
    };
    let both = std::thread::scope(|scope| {
        let serve = &serve;
        let threads = [0, 1].map(|thread| scope.spawn(move || serve(thread)));
        threads.map(|thread| thread.join().expect("a thread that ends"))
    });
    for (received, corrupt, counted) in both {
        assert!(received >= ANSWERS && corrupt == 0, "{received} {corrupt} {counted:?}");
        let wrong = [counted.malformed, counted.for_slow_path, counted.unknown, counted.absurd, counted.refused];
        assert_eq!(wrong, [0; 5]);
    }
}

#[test]
fn threads_meet_in_shared_memory_alone() {
    exchange(Faults::default());
}

#[test]
fn threads_bear_a_network_that_loses_and_delays() {
    exchange(Faults { lost: 5, twice: 10, late: 20 });
}
