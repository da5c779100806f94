//! The Timely operators that stand in for the device's part of a graph.

use std::cell::RefCell;
use std::rc::Rc;

use timely::Accountable;
use timely::communication::{Pull, Push};
use timely::dataflow::Stream;
use timely::dataflow::channels::Message;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::channels::pushers::{Counter, Tee};
use timely::dataflow::operators::generic::builder_raw::OperatorBuilder;
use timely::progress::Timestamp;
use timely::progress::frontier::MutableAntichain;
use timely::progress::operate::{FrontierInterest, SharedProgress};

use crate::channel::{Channel, Statement};
use crate::device::{Device, Fault};
use crate::operator::Element;
use crate::planted::{Mistake, Planted};
use crate::program::{Chain, Program};
use crate::wire::CLOSED;

/// Whether the worker waits for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// It waits until all that came is done, as a core does whose load the device withholds.
    Blocking,
    /// It goes on; the device wakes the operator.
    Deferred,
}

/// What the parent graph sees of the device's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// One operator.
    Collapsed,
    /// All of its operators, each with what the device says that it consumed and produced.
    EachOperator,
}

impl Detail {
    /// How many operators that is of a program.
    pub fn operators(self, program: &Program) -> usize {
        match self {
            Detail::Collapsed => 1,
            Detail::EachOperator => program.operators(),
        }
    }
}

/// How a part is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Whether the worker waits.
    pub calls: Calls,
    /// What the parent sees.
    pub detail: Detail,
}

/// Places a chain of operators on devices, each of which runs all of it and holds one exchange at a time, and joins it to a
/// graph: inserts the channels, and the operators that stand in for it.
///
/// In the running graph, a device that cannot go on ends the worker with a panic that says why: an operator has nobody to
/// return an error to, and its frontier must not pass what was not computed.
///
/// # Errors
///
/// If there is no device, none of its exchanges could hold an element, or elements have no bytes.
pub fn offload<'scope, A: Element, D: Element, V: Device>(
    stream: Stream<'scope, u64, Vec<A>>,
    chain: &Chain<A, D>,
    devices: Vec<V>,
    how: Offload,
) -> Result<Stream<'scope, u64, Vec<D>>, Fault> {
    offload_with(stream, chain, devices, how, Planted::default())
}

/// The same with a mistake in it.
pub fn offload_with<'scope, A: Element, D: Element, V: Device>(
    stream: Stream<'scope, u64, Vec<A>>,
    chain: &Chain<A, D>,
    devices: Vec<V>,
    how: Offload,
    planted: Planted,
) -> Result<Stream<'scope, u64, Vec<D>>, Fault> {
    let program = chain.program();
    let operators = how.detail.operators(program);
    let mut channel = Channel::<A, D, V>::new(program, operators, devices)?;
    channel.planted = planted;
    let group = Group { channel: Rc::new(RefCell::new(channel)), calls: how.calls, keeps: program.keeps() };
    let take: Take<A, D, V, A> = Channel::take;
    let give: Give<A, D, V, D> = |channel, sink| {
        for (time, mut results) in channel.results() {
            Message::push_at(&mut results, time, sink);
        }
    };
    let no_take: Take<A, D, V, ()> = |_, _, _| ();
    let no_give: Give<A, D, V, ()> = |_, _| ();
    let name = |index| format!("device: {}", program.name(index));
    if operators == 1 {
        let name = format!("device: {} operators", program.operators());
        return Ok(group.stand_in(stream, &name, 0, take, give));
    }
    let mut between: Stream<'scope, u64, Vec<()>> = group.stand_in(stream, &name(0), 0, take, no_give);
    for index in 1..operators - 1 {
        between = group.stand_in(between, &name(index), index, no_take, no_give);
    }
    Ok(group.stand_in(between, &name(operators - 1), operators - 1, no_take, give))
}

/// Where an operator pushes what goes out.
type Sink<O> = Counter<u64, Tee<u64, Vec<O>>>;

/// Takes what comes in.
type Take<A, D, V, I> = fn(&mut Channel<A, D, V>, u64, Vec<I>);

/// Pushes what goes out.
type Give<A, D, V, O> = fn(&mut Channel<A, D, V>, &mut Sink<O>);

/// The operators that stand in for one part: the first exchanges with the devices, the last passes results on, and each says
/// to Timely what the device says of it. No data flows between them.
struct Group<A, D, V> {
    channel: Rc<RefCell<Channel<A, D, V>>>,
    calls: Calls,
    /// An operator has a state.
    keeps: bool,
}

/// One operator's view of its input's frontier, and whether it has begun.
struct Tracked {
    frontier: MutableAntichain<u64>,
    begun: bool,
}

impl Tracked {
    /// Gives up the capability that every operator begins with, and takes what the parent says of the input's frontier.
    fn update(&mut self, progress: &mut SharedProgress<u64>, planted: Planted) -> Option<u64> {
        if !self.begun && !planted.is(Mistake::KeepsCapability) {
            progress.internals[0].update(u64::minimum(), -1);
        }
        self.begun = true;
        if progress.frontiers[0].is_empty() {
            return None;
        }
        self.frontier.update_iter(progress.frontiers[0].drain());
        Some(self.frontier.frontier().first().copied().unwrap_or(CLOSED))
    }
}

impl<A: Element, D: Element, V: Device> Group<A, D, V> {
    /// Inserts the `index`-th stand-in.
    fn stand_in<'scope, I: Clone + 'static, O: Clone + 'static>(
        &self,
        stream: Stream<'scope, u64, Vec<I>>,
        name: &str,
        index: usize,
        take: Take<A, D, V, I>,
        give: Give<A, D, V, O>,
    ) -> Stream<'scope, u64, Vec<O>> {
        let scope = stream.scope();
        let mut builder = OperatorBuilder::new(name.to_owned(), scope);
        let mut source = builder.new_input(stream, Pipeline);
        let (tee, output) = builder.new_output::<Vec<O>>();
        // Timely calls it when records are sent to it, those that a stand-in before it only says were produced among them; of
        // progress the device hears with the next batch.
        // Where something is kept, its times must be heard of: it holds them.
        let interest = if self.keeps { FrontierInterest::IfCapability } else { FrontierInterest::Never };
        builder.set_notify_for(0, interest);
        let (shared, calls) = (Rc::clone(&self.channel), self.calls);
        let planted = shared.borrow().planted;
        if index == 0 && calls == Calls::Deferred && !planted.is(Mistake::NoWaking) {
            let address = builder.operator_info().address;
            for device in shared.borrow_mut().devices() {
                device.wake_by(scope.worker().sync_activator_for(address.to_vec()));
            }
        }
        let mut sink: Sink<O> = Counter::new(tee);
        let mut tracked = Tracked { frontier: MutableAntichain::new(), begun: false };
        builder.build(move |progress| {
            let channel = &mut *shared.borrow_mut();
            if let Some(frontier) = tracked.update(progress, planted) {
                channel.learn(index, frontier);
            }
            while let Some(message) = source.recv() {
                if planted.is(Mistake::ConsumesEarly) {
                    progress.consumeds[0].update(message.time, message.data.record_count());
                }
                take(channel, message.time, message.data);
            }
            if index == 0 {
                or_panic(channel.pump(calls));
            }
            give(channel, &mut sink);
            sink.done();
            let pushed = &mut *sink.produced().borrow_mut();
            let stated = state(progress, channel.statements(index), planted);
            // The device's count stands; what was pushed is the same.
            pushed.clear();
            or_panic(channel.close());
            stated || (index == 0 && channel.is_busy())
        });
        output
    }
}

/// States what the device said of an operator: whether there was anything.
fn state(
    progress: &mut SharedProgress<u64>,
    statements: impl Iterator<Item = (u64, Statement)>,
    planted: Planted,
) -> bool {
    let mut stated = false;
    for (time, statement) in statements {
        let flow = match statement {
            Statement::Flow(flow) => flow,
            // A capability, held for as long as the device keeps something of the time.
            Statement::Keeps | Statement::KeepsNoMore => {
                let change = if matches!(statement, Statement::Keeps) { 1 } else { -1 };
                progress.internals[0].update(time, change);
                stated = true;
                continue;
            }
        };
        let consumed = if planted.is(Mistake::CountsMessages) { 1 } else { i64::from(flow.consumed) };
        if !planted.is(Mistake::ConsumesEarly) {
            progress.consumeds[0].update(time, consumed);
        }
        let more = i64::from(planted.is(Mistake::ProducesMore));
        progress.produceds[0].update(time, i64::from(flow.produced) + more);
        stated = true;
    }
    stated
}

fn or_panic(result: Result<(), Fault>) {
    if let Err(fault) = result {
        panic!("the part of the graph that is on the device cannot go on: {fault}");
    }
}
