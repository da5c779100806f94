//! What every call of a function on the device is, whichever way it crosses: its request, what the device makes of it, and how
//! long it takes. Each response is checked by content and sequence.

use conic_fabric::Time;
use conic_load::Function;
use conic_load::functions::ELEMENT_BYTES;
use conic_sim::eci::parameters::EciDeviceParameters;

use super::simulated::Pipeline;

/// What a device makes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Makes {
    /// The request's bytes inverted, over and over, as many as asked for: no response is a request.
    #[default]
    Inverted,
    /// What a function gives.
    Result(Function),
}

impl Makes {
    /// How long the response to a request of so many bytes is; an inverted one may have any length, and has the request's.
    pub fn response_bytes(self, request: usize) -> usize {
        match self {
            Makes::Inverted => request,
            Makes::Result(function) => function.response_bytes(request),
        }
    }

    /// Writes a response of so many bytes, which replaces what is in `response`.
    pub(super) fn answer(self, request: &[u8], bytes: usize, response: &mut Vec<u8>) {
        response.clear();
        match self {
            Makes::Inverted => response.extend(request.iter().cycle().take(bytes).map(|byte| !byte)),
            Makes::Result(function) => {
                response.resize(bytes, 0);
                function.apply(request, response);
            }
        }
    }
}

/// How long a device's logic takes for a function of so many bytes, in cycles of its clock of so many picoseconds. Hashes have the
/// pipeline of section 5.3; an echo needs no logic, and a checksum is summed while its bytes come in.
pub fn service(function: Function, bytes: usize, logic: &EciDeviceParameters, cycle: u64) -> Time {
    match function {
        Function::Echo | Function::Checksum => Time::ZERO,
        Function::Bloom => {
            let elements = bytes.div_ceil(ELEMENT_BYTES) as u64;
            Pipeline { latency: logic.hash_latency, interval: logic.hash_interval }.time_of(cycle, elements)
        }
    }
}

/// The bytes of call `number`: its number, and what follows from number and place.
pub fn fill(bytes: &mut [u8], number: u64) {
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (place % 7 * 8)) as u8 ^ (place / 7) as u8;
    }
    let head = number.to_le_bytes();
    let length = bytes.len().min(head.len());
    bytes[..length].copy_from_slice(&head[..length]);
}

/// Calls one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calling {
    pub(super) request: usize,
    pub(super) response: usize,
    pub(super) makes: Makes,
    /// Calls before the first that counts, and those that count.
    pub(super) calls: (u64, u64),
}

/// How long calls took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timed {
    /// Each that counts, from before its request is written until its response was read, in picoseconds.
    pub(super) latencies: Vec<u64>,
    /// From the beginning of the first to the end of the last.
    pub(super) elapsed: Time,
}

impl Calling {
    /// Makes the calls by `call`, which is given the request and where the response goes; `counts` is told when the first is
    /// about to be made that counts.
    ///
    /// # Panics
    ///
    /// If a response is wrong.
    pub(super) fn time(
        self,
        now: impl Fn() -> Time,
        counts: impl FnOnce(),
        mut call: impl FnMut(&[u8], &mut Vec<u8>),
    ) -> Timed {
        let (mut request, mut response, mut right) = (vec![0; self.request], Vec::new(), Vec::new());
        let (mut latencies, mut began, mut counts) = (Vec::new(), Time::ZERO, Some(counts));
        for number in 0..self.calls.0 + self.calls.1 {
            fill(&mut request, number);
            if number == self.calls.0 {
                if let Some(counts) = counts.take() {
                    counts();
                }
                began = now();
            }
            let start = now();
            call(&request, &mut response);
            if number >= self.calls.0 {
                latencies.push(now().since(start).picoseconds());
            }
            self.makes.answer(&request, self.response, &mut right);
            assert!(response == right, "the response to call {number} is wrong");
        }
        Timed { latencies, elapsed: now().since(began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(makes: Makes, spoil: Option<u64>) -> Timed {
        let calling = Calling { request: 200, response: makes.response_bytes(200), makes, calls: (2, 3) };
        let mut number = 0;
        let clock = std::cell::Cell::new(0);
        calling.time(
            || Time::from_picoseconds(clock.get()),
            || assert_eq!(clock.get(), 14, "two calls come before"),
            |request, response| {
                makes.answer(request, calling.response, response);
                if spoil == Some(number) {
                    response[0] ^= 1;
                }
                number += 1;
                clock.set(clock.get() + 7);
            },
        )
    }

    #[test]
    fn those_that_count_are_timed_one_by_one() {
        let functions = Function::ALL.map(Makes::Result).into_iter();
        for makes in functions.chain([Makes::Inverted]) {
            let expected = Timed { latencies: vec![7; 3], elapsed: Time::from_picoseconds(21) };
            assert_eq!(timed(makes, None), expected, "{makes:?}");
        }
    }

    #[test]
    #[should_panic(expected = "the response to call 4 is wrong")]
    fn a_response_is_compared_with_what_the_function_gives() {
        timed(Makes::Result(Function::Bloom), Some(4));
    }

    #[test]
    fn hashes_take_their_pipeline_and_nothing_else_takes_time() {
        let machine = conic_sim::platform::Platform::<conic_sim::eci::EciParameters>::load_as("enzian");
        let logic = machine.expect("it is shipped").parameters().device.clone();
        let of = |function, bytes| service(function, bytes, &logic, 1000).picoseconds();
        // 64 cycles, and two for each further element, the last of which may be shorter (section 5.3).
        assert_eq!(
            [1, 128, 129, 1280].map(|bytes| of(Function::Bloom, bytes)),
            [64, 64, 66, 82].map(|time| time * 1000)
        );
        assert_eq!([of(Function::Echo, 4096), of(Function::Checksum, 4096)], [0, 0]);
    }
}
