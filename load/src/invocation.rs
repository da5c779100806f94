//! Calls of a function on a device, one after the other, each answer checked.

use conic_fabric::{Core, Time};
use conic_interface::pio::{Device, Host, NotBegun, Poll};

use crate::{Function, Latency};

/// Requests that are sent in turn; an answer to another one than the last is wrong.
const PATTERNS: usize = 5;

/// Calls between two looks at whether it is time to stop.
const BETWEEN_LOOKS: u32 = 16;

/// Looks for a response as `poll` does. Where there is none, and whoever plays the device is gone, it looks once more, as there may have
/// been an answer between the two; none where there will be none. `poll` is told whether it is the last look: that one may not be left out
/// as one that comes too early.
#[inline]
pub fn look(mut poll: impl FnMut(bool) -> Poll, is_gone: impl FnOnce() -> bool) -> Option<Poll> {
    match poll(false) {
        Poll::NotYet if is_gone() => Some(poll(true)).filter(|last| !matches!(last, Poll::NotYet)),
        poll => Some(poll),
    }
}

/// A caller.
pub struct Caller<C> {
    host: Host<C>,
    is_gone: Box<dyn FnMut() -> bool>,
    requests: Vec<Vec<u8>>,
    responses: Vec<Vec<u8>>,
    read: Vec<u8>,
    next: usize,
    latency: Latency,
    calls: u64,
    wrong: u64,
}

impl<C: Core> Caller<C> {
    /// Calls of `function` with `bytes` bytes each.
    ///
    /// # Errors
    ///
    /// If request or response do not fit the lines.
    pub fn new(host: Host<C>, function: Function, bytes: usize) -> Result<Caller<C>, NotBegun> {
        let (most, capacity) = (bytes.max(function.response_bytes(bytes)), host.lines().shape().capacity());
        if most as u64 > capacity {
            return Err(NotBegun::TooLong { bytes: most as u64, capacity });
        }
        let byte = |seed: usize, place: usize| (place.wrapping_mul(2 * seed + 3) >> 2) as u8 ^ seed as u8;
        let request = |seed| (0..bytes).map(|place| byte(seed, place)).collect();
        let requests: Vec<Vec<u8>> = (0..PATTERNS).map(request).collect();
        let response = |request: &Vec<u8>| {
            let mut response = vec![0; function.response_bytes(bytes)];
            function.apply(request, &mut response);
            response
        };
        let responses = requests.iter().map(response).collect();
        let read = vec![0; capacity as usize];
        let is_gone = Box::new(|| false);
        Ok(Caller { host, is_gone, requests, responses, read, next: 0, latency: Latency::new(), calls: 0, wrong: 0 })
    }

    /// Waits for no answer once `is_gone` says that whoever plays the device is gone, which lines do not show: what it did not answer
    /// counts as wrong.
    pub fn watch(&mut self, is_gone: impl FnMut() -> bool + 'static) {
        self.is_gone = Box::new(is_gone);
    }

    /// Calls until a time has come; gives when it stopped.
    pub fn call_until(&mut self, until: Time) -> Time {
        loop {
            let mut now = Time::ZERO;
            for _ in 0..BETWEEN_LOOKS {
                now = self.call();
            }
            if now >= until {
                return now;
            }
        }
    }

    /// One call: from just before its request is written to just after its response is read. Gives the time after it.
    #[inline]
    fn call(&mut self) -> Time {
        let index = self.next;
        self.next = (index + 1) % PATTERNS;
        let response = self.responses[index].len();
        let start = self.host.core().now();
        // Both fit; the last call was answered, unless the device is gone.
        if self.host.begin(&self.requests[index], response).is_err() {
            (self.calls, self.wrong) = (self.calls + 1, self.wrong + 1);
            return start;
        }
        let length = loop {
            let host = &mut self.host;
            match look(|is_last| if is_last { host.poll() } else { host.poll_in_time() }, &mut self.is_gone) {
                Some(Poll::Response(length)) => break length,
                Some(Poll::NotYet) => self.host.core().spin(),
                Some(Poll::Refused) | None => break usize::MAX,
            }
        };
        let read = self.host.read(&mut self.read);
        let end = self.host.core().now();
        self.latency.record(end.since(start), 1);
        self.calls += 1;
        if length != response || self.read[..read] != self.responses[index][..] {
            self.wrong += 1;
        }
        end
    }

    /// Forgets what was measured before, for a warm-up.
    pub fn forget(&mut self) {
        (self.latency, self.calls) = (Latency::new(), 0);
    }

    /// Calls since the warm-up.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Answers that were wrong, ever.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// How long calls took.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// The exchange.
    pub fn host(&self) -> &Host<C> {
        &self.host
    }
}

/// What a device makes of requests.
pub trait Answer {
    /// Bytes that the longest response to a request of `capacity` bytes may have.
    fn room(&self, capacity: usize) -> usize;
    /// Writes the response to a request, and gives its length.
    fn answer(&mut self, request: &[u8], response: &mut [u8]) -> usize;
}

impl Answer for Function {
    fn room(&self, capacity: usize) -> usize {
        self.response_bytes(capacity).max(capacity)
    }

    #[inline(always)]
    fn answer(&mut self, request: &[u8], response: &mut [u8]) -> usize {
        self.apply(request, response)
    }
}

/// A device that computes a function of each request.
#[derive(Debug)]
pub struct Service<D, A = Function> {
    device: D,
    function: A,
    request: Vec<u8>,
    response: Vec<u8>,
    /// The length of a response that was computed and not taken.
    ready: Option<usize>,
}

impl<D: Device, A: Answer> Service<D, A> {
    /// A service with room for requests and responses of `capacity` bytes, what the lines hold.
    pub fn new(device: D, function: A, capacity: usize) -> Service<D, A> {
        let response = vec![0; function.room(capacity)];
        Service { device, function, request: vec![0; capacity], response, ready: None }
    }

    /// Serves a request, if there is one.
    #[inline(always)]
    pub fn serve(&mut self) -> bool {
        if self.ready.is_none()
            && let Some(length) = self.device.poll()
        {
            self.device.read(&mut self.request);
            self.ready = Some(self.function.answer(&self.request[..length], &mut self.response));
        }
        let Some(length) = self.ready else { return false };
        let taken = self.device.respond(&self.response[..length]);
        if taken {
            self.ready = None;
        }
        taken
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What it makes of requests.
    pub fn function(&self) -> &A {
        &self.function
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use conic_fabric::{Home, Layout};
    use conic_interface::pio::{Features, Played, Shape};
    use conic_native::{Memory, NativeCore, Pages};

    use super::*;

    #[test]
    fn an_answer_that_came_before_its_device_went_is_found_by_the_last_look() {
        // Looks that are not likely to find anything are left out, however many follow each other.
        let poll = |is_last| if is_last { Poll::Response(3) } else { Poll::NotYet };
        assert!(matches!(look(poll, || true), Some(Poll::Response(3))));
        assert!(matches!(look(poll, || false), Some(Poll::NotYet)));
        assert!(look(|_| Poll::NotYet, || true).is_none());
    }

    #[test]
    fn calls_that_a_device_did_not_answer_before_it_went_are_wrong_and_no_other() {
        let bytes = 56;
        let mut layout = Layout::new();
        let lines = Shape::groups(bytes).place(&mut layout, Home::Nic).expect("the shape can be");
        let memory = Arc::new(Memory::create(&layout, Pages::Plain).expect("a small region"));
        let (ask, asked) = channel::<()>();
        let (tell, told) = channel();
        let plays = Arc::clone(&memory);
        let device = thread::spawn(move || {
            let device = Played::new(NativeCore::new(&plays), lines);
            let mut service = Service::new(device, Function::Echo, lines.shape().capacity() as usize);
            for () in asked {
                tell.send(service.serve()).expect("it is waited for");
            }
        });
        let host = Host::new(NativeCore::new(&memory), lines, Features::PLAYED);
        let mut caller = Caller::new(host, Function::Echo, bytes as usize).expect("the lines were made for it");
        // The device answers three calls when it is asked whether it is gone, the last of them just before it goes.
        let mut left = 3;
        caller.watch(move || {
            if left > 0 {
                ask.send(()).expect("the device is there");
                assert!(told.recv().expect("the device answers"), "a request is there");
                left -= 1;
            }
            left == 0
        });
        caller.call_until(Time::ZERO);
        assert_eq!((caller.calls(), caller.wrong()), (u64::from(BETWEEN_LOOKS), u64::from(BETWEEN_LOOKS) - 3));
        drop(caller);
        device.join().expect("it ends when nobody asks");
    }
}
