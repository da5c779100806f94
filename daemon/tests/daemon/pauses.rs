//! A frame that comes after a pause, be it short or long, is taken soon.

use conic_client::{Client, Options, Queue};
use conic_fabric::Time;
use conic_native::{clock, yield_core};
use conic_nicd::config::{Config, NetworkConfig, NetworkMode};

use crate::served::Served;

/// From when a frame is sent until it is back.
fn there_and_back(queue: &mut Queue) -> Time {
    let mut frame = queue.allocate(60).expect("a buffer is free");
    frame.fill(&[0xff; 60]);
    let begun = clock::now();
    assert_eq!(queue.transmit(&mut vec![frame]), 1);
    let mut came = Vec::new();
    while queue.receive(&mut came, 1) == 0 {
        yield_core();
    }
    clock::now().since(begun)
}

#[test]
fn a_frame_waits_no_longer_after_a_pause_that_is_too_short_for_its_queue_to_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let networks = vec![NetworkConfig { mode: NetworkMode::Loopback, ..NetworkConfig::default() }];
    let config = Config { socket: folder.path().join("nic.sock"), networks, ..Config::default() };
    let served = Served::start(config.clone().checked().expect("a sound configuration"));
    let (client, mut queues) = Client::attach(&config.socket, &Options::default()).expect("it is served");
    for pause in [50, 120, 150, 190, 230, 400] {
        let mut took: Vec<u64> = (0..100)
            .map(|_| {
                let until = clock::now() + Time::from_nanoseconds(1000 * pause);
                while clock::now() < until {
                    yield_core();
                }
                there_and_back(&mut queues[0]).nanoseconds()
            })
            .collect();
        took.sort_unstable();
        // Nobody called a thread that napped beside a queue that was not at rest: a millisecond for most. Now and then another program
        // has the core.
        assert!(took[took.len() / 4] < 400_000, "{pause} us: {took:?} ns");
    }
    drop((client, queues));
    served.end();
}
