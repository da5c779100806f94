//! The same operators on the CPU.

use timely::container::CapacityContainerBuilder;
use timely::dataflow::Stream;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Operator as _;

use crate::operator::{Element, Operator};

/// An operator of Timely's that does what `operator` does.
pub fn software<'scope, O: Operator>(
    stream: Stream<'scope, u64, Vec<O::Input>>,
    operator: O,
) -> Stream<'scope, u64, Vec<O::Output>> {
    let name = operator.name();
    on_cpu(stream, &name, move |element| operator.apply(&element))
}

/// One operator of Timely's that does what all of them do, one after the other for each element: what can be had without any
/// device.
pub fn fused<'scope, D: Element, O: Operator<Input = D, Output = D>>(
    stream: Stream<'scope, u64, Vec<D>>,
    operators: Vec<O>,
) -> Stream<'scope, u64, Vec<D>> {
    let name = format!("{} operators", operators.len());
    on_cpu(stream, &name, move |element| {
        operators.iter().try_fold(element, |element, operator| operator.apply(&element))
    })
}

fn on_cpu<'scope, A: Element, D: Element>(
    stream: Stream<'scope, u64, Vec<A>>,
    name: &str,
    apply: impl Fn(A) -> Option<D> + 'static,
) -> Stream<'scope, u64, Vec<D>> {
    stream.unary::<CapacityContainerBuilder<Vec<D>>, _, _, _>(Pipeline, name, |_capability, _information| {
        move |input, output| {
            input.for_each_time(|time, batches| {
                let elements = batches.flat_map(|batch| batch.drain(..));
                output.session(&time).give_iterator(elements.filter_map(&apply));
            });
        }
    })
}
