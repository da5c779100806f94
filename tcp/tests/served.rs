//! Services and their clients on ordinary memory: every byte of every answer is checked by whoever asked. The clock is the test's.

use crate::common::{Faults, Faulty, Ground, Over, SMALL, TimedCore};
use conic_fabric::Time;
use conic_interface::ccnic::Features;
use conic_load::{FarEnd, Network, Traffic};
use conic_tcp::{Acknowledge, Application, Clients, FastPath, Load, Shape, Timeouts};

/// How long everybody's turn takes.
const ROUND: Time = Time::from_nanoseconds(3000);
/// What is under way for so long is sent again, before a round trip was measured, and so long beside one at least: everybody has had many
/// turns by then.
const TIMEOUT: Time = Time::from_nanoseconds(300_000);
const BESIDE: Time = Time::from_nanoseconds(100_000);
const LONGEST: Time = Time::from_nanoseconds(2_400_000);

struct Run {
    over: Over,
    shape: Shape,
    sequences: [u32; 2],
    acknowledge: Acknowledge,
    load: Load,
    faults: Faults,
    /// Rounds of the others for one of the application.
    lazy: usize,
}

const RUN: Run = Run {
    over: Over::CcNic(Features::best()),
    shape: SMALL,
    sequences: [1, 2],
    acknowledge: Acknowledge::AtOnce,
    load: Load { window: 8, requests_a_segment: 1 },
    faults: Faults { lost: 0, twice: 0, late: 0 },
    lazy: 1,
};

/// What came of a run: what the threads counted, all together.
#[derive(Debug, Default)]
struct Found {
    segments: u64,
    acknowledgements: u64,
    sent: u64,
    sent_bytes: u64,
    /// Requests that applications answered.
    answered: u64,
    fewest_answers: u64,
    /// Segments that said that there is no room.
    closed: u64,
    /// Segments with answers that never arrived.
    lost_data: u64,
    rounds: usize,
}

impl Run {
    /// Everybody by turns, until so many answers are there.
    fn exchange(&self, answers: u64) -> Found {
        let ground = Ground::new(self.over, self.shape, self.sequences);
        let [clock, sleeps_until] = Default::default();
        let core = TimedCore::new(ground.core(), &clock, &sleeps_until);
        let threads = 0..self.shape.threads;
        let timeouts = Timeouts::new(TIMEOUT, BESIDE, LONGEST);
        let fast_path = |thread: u32| {
            let queues = vec![ground.host_of(core, thread as usize)];
            FastPath::new(queues, &ground.service, thread, self.acknowledge).with_timeouts(timeouts)
        };
        let mut fast_paths: Vec<_> = threads.clone().map(fast_path).collect();
        let mut applications: Vec<_> = (0..self.shape.applications)
            .map(|number| Application::new(ground.core(), &ground.service, number))
            .collect();
        let mut networks: Vec<_> = threads
            .map(|thread| {
                let clients = Clients::new(&ground.connections_of(thread), self.shape.buffers[0], self.load, 5)
                    .with_timeouts(timeouts);
                let faulty = Faulty::new(clients, self.faults, u64::from(thread) + 3);
                Network::new(core, ground.nic(thread as usize), faulty)
            })
            .collect();
        let received = |networks: &[Network<_, _, Faulty<Clients>>]| -> u64 {
            networks.iter().map(|network| network.account().received()).sum()
        };
        let (mut since, mut last) = (0, 0);
        let mut round = 0;
        while last < answers {
            networks.iter_mut().for_each(|network| _ = network.step());
            fast_paths.iter_mut().for_each(|fast_path| _ = fast_path.step());
            if round % self.lazy == 0 {
                applications.iter_mut().for_each(|application| _ = application.step());
            }
            round += 1;
            clock.set(clock.get() + ROUND);
            let now = received(&networks);
            since = if now == last { since + 1 } else { 0 };
            last = now;
            assert!(since < 100_000, "it stands after {now} answers: {:?}", fast_paths[0].counted());
        }
        let mut found = Found { fewest_answers: u64::MAX, rounds: round, ..Found::default() };
        for network in &networks {
            assert_eq!(network.account().corrupt(), 0);
            let fewest = network.far_end().far_end().answered().into_iter().min().expect("it has a connection");
            found.fewest_answers = found.fewest_answers.min(fewest);
            found.closed += network.far_end().closed();
            found.lost_data += network.far_end().lost_data();
        }
        for fast_path in &fast_paths {
            let counted = fast_path.counted();
            let wrong = [counted.malformed, counted.for_slow_path, counted.unknown, counted.absurd, counted.refused];
            assert_eq!(wrong, [0; 5]);
            found.segments += counted.segments;
            found.acknowledgements += counted.acknowledgements;
            found.sent += counted.sent;
            found.sent_bytes += counted.sent_bytes;
        }
        found.answered = applications.iter().map(Application::answered).sum();
        assert!(applications.iter().all(|application| application.refused() == 0));
        found
    }
}

const INTERFACES: [Over; 4] =
    [Over::CcNic(Features::best()), Over::CcNic(Features::paper()), Over::Ring(64), Over::Ring(8)];

#[test]
fn every_answer_is_right_over_every_interface() {
    for over in INTERFACES {
        for (window, requests_a_segment) in [(1, 1), (8, 1), (16, 4), (200, 22)] {
            for acknowledge in [Acknowledge::AtOnce, Acknowledge::Delayed(Time::from_nanoseconds(20_000))] {
                let load = Load { window, requests_a_segment };
                let found = Run { over, load, acknowledge, ..RUN }.exchange(20_000);
                assert!(found.fewest_answers > 500, "{over:?} {load:?}: no connection is left out: {found:?}");
            }
        }
    }
}

#[test]
fn data_is_acknowledged_alone_as_tas_does_it_or_with_the_answer() {
    let at_once = RUN.exchange(20_000);
    assert!(at_once.acknowledgements >= 20_000, "{at_once:?}");
    let delayed = Run { acknowledge: Acknowledge::Delayed(Time::from_nanoseconds(1_000_000)), ..RUN }.exchange(20_000);
    assert!(delayed.acknowledgements < 1000, "{delayed:?}");
    // Who is late is told alone.
    let impatient = Run { acknowledge: Acknowledge::Delayed(Time::ZERO), lazy: 4, ..RUN }.exchange(20_000);
    assert!(impatient.acknowledgements > 5000, "{impatient:?}");
}

#[test]
fn what_is_lost_comes_twice_or_late_arrives_once_and_in_order() {
    for over in INTERFACES {
        for faults in [
            Faults { lost: 20, twice: 0, late: 0 },
            Faults { lost: 0, twice: 100, late: 0 },
            Faults { lost: 0, twice: 0, late: 100 },
            Faults { lost: 30, twice: 30, late: 60 },
        ] {
            for requests_a_segment in [1, 5] {
                let load = Load { window: 16, requests_a_segment };
                let found = Run { over, faults, load, ..RUN }.exchange(10_000);
                assert!(found.fewest_answers > 100, "{over:?} {faults:?}: {found:?}");
                // What was lost and arrived was sent again.
                assert!(faults.lost == 0 || found.lost_data > 5, "{faults:?}: {found:?}");
                // It does not take longer than with a timeout that neither followed round trips nor was doubled: 2870 at most.
                assert!(faults.lost == 0 || found.rounds < 2900, "{over:?} {faults:?}: {found:?}");
            }
        }
    }
}

#[test]
fn an_application_that_seldom_reads_closes_windows_and_loses_nothing() {
    // Requests under way fill the receive buffer twice.
    for lazy in [50, 5000] {
        for faults in [Faults::default(), Faults { lost: 20, twice: 20, late: 20 }] {
            let load = Load { window: 32, requests_a_segment: 8 };
            let shape = Shape { flows: 3, ..SMALL };
            let found = Run { lazy, load, faults, shape, ..RUN }.exchange(3000);
            assert!(found.closed > 100, "{lazy} {faults:?}: {found:?}");
        }
    }
}

#[test]
fn sequence_numbers_and_buffers_go_round() {
    for sequences in [[u32::MAX - 500, 0x7fff_fff0], [0x7fff_ff00, u32::MAX - 100]] {
        for faults in [Faults::default(), Faults { lost: 20, twice: 20, late: 20 }] {
            let load = Load { window: 8, requests_a_segment: 3 };
            // Ten times around each buffer and more.
            let found = Run { sequences, faults, load, ..RUN }.exchange(5000);
            assert!(found.fewest_answers > 160, "{found:?}");
        }
    }
}

#[test]
fn threads_share_connections_and_applications() {
    for (threads, applications) in [(2, 1), (3, 2), (1, 3)] {
        let shape = Shape { flows: 13, threads, applications, ..SMALL };
        for faults in [Faults::default(), Faults { lost: 10, twice: 10, late: 10 }] {
            let found = Run { shape, faults, ..RUN }.exchange(20_000);
            assert!(found.fewest_answers > 300, "{threads} {applications}: {found:?}");
        }
    }
}

#[test]
fn a_few_lines_of_notices_are_enough() {
    let shape = Shape { flows: 40, notices: 1, ..SMALL };
    let found = Run { shape, ..RUN }.exchange(20_000);
    assert!(found.fewest_answers > 100, "{found:?}");
}

/// A network that loses all of one kind would stop it: the tests' faults do happen.
#[test]
fn a_network_that_delivers_nothing_is_noticed() {
    let ground = Ground::new(Over::CcNic(Features::best()), SMALL, [1, 2]);
    let clients = Clients::new(&ground.connections, SMALL.buffers[0], RUN.load, 5);
    let mut faulty = Faulty::new(clients, Faults { lost: 1000, twice: 0, late: 0 }, 1);
    assert!(faulty.packets(Time::ZERO).is_empty());
    assert!(faulty.account().in_flight() > 0);
    let again = faulty.next_due();
    assert!(again > Time::ZERO && again < Time::NEVER);
}
