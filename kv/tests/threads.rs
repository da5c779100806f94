//! Servers on threads of their own, that share a store.

use std::sync::Arc;

use conic_fabric::Time;
use conic_interface::ccnic;
use conic_kv::{Clients, Demand, Sizes};
use conic_load::{Network, Traffic};
use conic_native::{Flag, clock, cores};

use crate::served::Ground;

/// Two servers put values to the same few keys and send them: what is torn or busy is said to be, and nothing else is wrong.
#[test]
fn servers_that_share_a_store_never_give_a_value_for_another() {
    let demand = Demand { keys: 3, sizes: Sizes::Bytes(2000), zipf: 0.0, sets: 500, seed: 3 };
    let ground = Ground::new(ccnic::Features::best(), demand, 2);
    let stop = Flag::new();
    let run = |queue: usize| {
        let clients = Clients::new(Arc::new(ground.catalogue.clone()), 16, queue as u64);
        let mut network = Network::new(ground.core(), ccnic::nic_queue(ground.core(), &ground.map, queue), clients);
        let mut server = ground.server(queue, 0);
        let deadline = clock::now() + Time::from_nanoseconds(3_000_000_000);
        while !stop.is_up() && clock::now() < deadline {
            server.step();
            network.step();
            if network.account().received() > 200_000 {
                stop.raise();
            }
        }
        let account = network.account();
        (account.received(), account.lost() + account.corrupt(), network.far_end().answers())
    };
    let both = std::thread::scope(|scope| {
        let threads = [0, 1].map(|queue| scope.spawn(move || run(queue)));
        threads.map(|thread| thread.join().expect("a thread that ends"))
    });
    // A value that is torn may be so by its own server's next set; one that is busy is another's.
    let busy: u64 = both.iter().map(|(_, _, answers)| answers.busy).sum();
    assert!(busy > 0 || cores().len() < 2, "they never met: {both:?}");
    for (received, wrong, answers) in both {
        assert!(received > 1000, "{both:?}");
        assert_eq!(wrong, 0, "{both:?}");
        assert_eq!(answers.gets + answers.sets + answers.torn + answers.busy, received, "{both:?}");
    }
}
