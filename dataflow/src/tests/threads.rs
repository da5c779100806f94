//! Devices that other threads play, on real memory; and several workers.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use conic_fabric::{Home, Layout};
use conic_interface::pio::{Features, Host, Lines, Played, Shape};
use conic_native::{Memory, NativeCore, Pages, yield_core};
use timely::dataflow::operators::{Input, Inspect};

use super::equality::{expected, ways};
use super::rig::{Rig, Shared};
use crate::{
    Calls, Chain, Detail, Drops, Exchange, Executor, Fault, Inline, Offload, Serving, offload, trivial_filters,
};

/// Batches of all sizes, empty ones and ones that are split among them.
fn batches() -> Vec<(u64, Vec<u64>)> {
    (0..200_u64).map(|time| (time, (0..time * 7 % 90).map(|number| number * time).collect())).collect()
}

fn chain(filters: &[Drops]) -> Chain<u64, u64> {
    filters[1..].iter().fold(Chain::new(filters[0]), |chain, filter| chain.then(*filter))
}

fn played(way: Offload) {
    let filters = trivial_filters(31);
    let chain = chain(&filters);
    let mut layout = Layout::new();
    // 31 operators' words, and 25 numbers.
    let lines: [Lines; 2] =
        std::array::from_fn(|_| Shape::groups(464).place(&mut layout, Home::Nic).expect("the shape can be"));
    // A graph's operators live as long as they like, and so must the region.
    let memory: &'static Memory = Box::leak(Box::new(Memory::create(&layout, Pages::Plain).expect("memory")));
    let batches = batches();
    thread::scope(|scope| {
        let mut exchanges = Vec::new();
        for lines in lines {
            let (tell, told) = channel();
            let program = chain.program().clone();
            scope.spawn(move || {
                let device = Played::new(NativeCore::new(memory), lines);
                let mut serving = Serving::new(device, Executor::new(program), lines.shape().capacity() as usize);
                // It ends when the graph says that nothing more comes, or is gone.
                while !serving.is_closed() {
                    match told.try_recv() {
                        Ok(activator) => serving.wake(activator),
                        Err(TryRecvError::Empty) => {}
                        Err(TryRecvError::Disconnected) => return,
                    }
                    if !serving.serve() {
                        yield_core();
                    }
                }
            });
            let host = Host::new(NativeCore::new(memory), lines, Features::PLAYED);
            exchanges.push(Exchange::new(host, move |activator| drop(tell.send(activator))));
        }
        let desk = Shared::default();
        let mut rig =
            Rig::<u64, u64>::new(&desk, |stream| offload(stream, &chain, exchanges, way).expect("there is room"));
        for (time, batch) in &batches {
            rig.send(*time, batch.clone());
            rig.advance_to(time + 1);
            rig.wait_until(*time, yield_core);
        }
        let results = rig.end(&[], |number| *number).expect("it ends");
        assert_eq!(results, expected(&batches, &filters), "{way:?}");
    });
}

#[test]
fn devices_played_by_other_threads_make_what_software_makes() {
    ways().for_each(played);
}

#[test]
fn a_device_that_hears_late_whom_to_wake_wakes_for_what_it_did_before() {
    let chain = chain(&trivial_filters(2));
    let mut layout = Layout::new();
    let lines = Shape::groups(464).place(&mut layout, Home::Nic).expect("the shape can be");
    let memory: &'static Memory = Box::leak(Box::new(Memory::create(&layout, Pages::Plain).expect("memory")));
    let core = || NativeCore::new(memory);
    let mut serving = Serving::new(
        Played::new(core(), lines),
        Executor::new(chain.program().clone()),
        lines.shape().capacity() as usize,
    );
    let (tell, told) = channel();
    let exchange = Exchange::new(Host::new(core(), lines, Features::PLAYED), move |activator| {
        tell.send(activator).expect("this thread listens");
    });
    let way = Offload { calls: Calls::Deferred, detail: Detail::Collapsed };
    let mut rig = Rig::<u64, u64>::new(&Shared::default(), |stream| {
        offload(stream, &chain, vec![exchange], way).expect("there is room")
    });
    rig.send(0, vec![5, 7]);
    rig.advance_to(1);
    rig.step().expect("it waits");
    assert!(serving.serve(), "the request is there");
    serving.wake(told.recv().expect("it was told when the graph was built"));
    rig.step().expect("it goes on");
    assert!(rig.came(0) && !rig.may_come(0), "nobody looked for the answer");
}

/// A graph over one device that this thread plays, and that is gone when the closure says so.
fn watched(
    calls: Calls,
    is_gone: impl Fn() -> bool + 'static,
) -> (Rig<u64, u64>, Serving<Played<NativeCore<'static>>>) {
    let chain = chain(&trivial_filters(2));
    let mut layout = Layout::new();
    let lines = Shape::groups(464).place(&mut layout, Home::Nic).expect("the shape can be");
    let memory: &'static Memory = Box::leak(Box::new(Memory::create(&layout, Pages::Plain).expect("memory")));
    let core = || NativeCore::new(memory);
    let device = Played::new(core(), lines);
    let mut serving = Serving::new(device, Executor::new(chain.program().clone()), lines.shape().capacity() as usize);
    let (tell, told) = channel();
    let host = Host::new(core(), lines, Features::PLAYED);
    let exchange = Exchange::new(host, move |activator| drop(tell.send(activator))).watching(is_gone);
    let way = Offload { calls, detail: Detail::Collapsed };
    let mut rig = Rig::<u64, u64>::new(&Shared::default(), |stream| {
        offload(stream, &chain, vec![exchange], way).expect("there is room")
    });
    rig.send(0, vec![5, 7]);
    rig.advance_to(1);
    if let Ok(activator) = told.try_recv() {
        serving.wake(activator);
    }
    (rig, serving)
}

/// What a graph that cannot go on says.
fn why(rig: &mut Rig<u64, u64>) -> String {
    let end = catch_unwind(AssertUnwindSafe(|| rig.step()));
    *end.expect_err("it cannot go on").downcast::<String>().expect("it says why")
}

#[test]
fn a_device_that_is_gone_is_not_waited_for() {
    for calls in [Calls::Blocking, Calls::Deferred] {
        let (mut rig, _serving) = watched(calls, || true);
        assert!(why(&mut rig).contains(&Fault::Stopped.to_string()), "{calls:?}");
    }
}

#[test]
fn a_device_that_goes_wakes_whoever_waits_for_its_answer() {
    let gone = Rc::new(Cell::new(false));
    let is_gone = Rc::clone(&gone);
    let (mut rig, serving) = watched(Calls::Deferred, move || is_gone.get());
    rig.step().expect("it waits");
    gone.set(true);
    rig.step().expect("nobody was woken");
    drop(serving);
    assert!(why(&mut rig).contains(&Fault::Stopped.to_string()));
}

#[test]
fn what_a_device_answered_before_it_went_is_taken() {
    let gone = Rc::new(Cell::new(false));
    let is_gone = Rc::clone(&gone);
    let (mut rig, mut serving) = watched(Calls::Deferred, move || is_gone.get());
    rig.step().expect("it waits");
    assert!(serving.serve(), "the request is there");
    gone.set(true);
    drop(serving);
    rig.step().expect("the answer is there");
    assert!(rig.came(0) && !rig.may_come(0));
}

#[test]
fn what_a_device_answered_just_before_it_was_seen_to_be_gone_is_taken() {
    let serving = Rc::new(RefCell::new(None::<Serving<Played<NativeCore<'static>>>>));
    let last = Rc::clone(&serving);
    let serves = move || last.borrow_mut().as_mut().is_some_and(Serving::serve);
    let (mut rig, device) = watched(Calls::Blocking, serves);
    *serving.borrow_mut() = Some(device);
    rig.step().expect("the answer is there");
    assert!(rig.came(0) && !rig.may_come(0));
}

#[test]
fn several_workers_have_devices_of_their_own() {
    for way in ways() {
        let results = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&results);
        let guards = timely::execute(timely::Config::process(2), move |worker| {
            let into = Arc::clone(&into);
            let mut input = worker.dataflow::<u64, _, _>(|scope| {
                let (input, stream) = scope.new_input::<Vec<u64>>();
                let chain = chain(&trivial_filters(31));
                let devices = vec![Inline::new(chain.program(), 400), Inline::new(chain.program(), 500)];
                let output = offload(stream, &chain, devices, way).expect("there is room");
                output.inspect_time(move |time, number| into.lock().expect("nobody died").push((*time, *number)));
                input
            });
            for (time, mut batch) in batches() {
                input.advance_to(time);
                input.send_batch(&mut batch);
                worker.step();
            }
        });
        assert!(guards.expect("the workers start").join().into_iter().all(|worker| worker.is_ok()));
        let mut twice: Vec<(u64, u64)> = expected(&batches(), &trivial_filters(31))
            .into_iter()
            .flat_map(|(time, batch)| batch.into_iter().flat_map(move |number| [(time, number); 2]))
            .collect();
        twice.sort_unstable();
        let mut results = results.lock().expect("nobody died").clone();
        results.sort_unstable();
        assert_eq!(results, twice, "{way:?}");
    }
}
