//! Calls of a function on a device, one after the other, each answer checked.

use conic_fabric::{Core, Time};
use conic_interface::pio::{Device, Host, NotBegun, Poll};

use crate::{Function, Latency};

/// Requests that are sent in turn; an answer to another one than the last is wrong.
const PATTERNS: usize = 5;

/// Calls between two looks at whether it is time to stop.
const BETWEEN_LOOKS: u32 = 16;

/// A caller.
#[derive(Debug)]
pub struct Caller<C> {
    host: Host<C>,
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
        Ok(Caller { host, requests, responses, read, next: 0, latency: Latency::new(), calls: 0, wrong: 0 })
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
        // Both fit, and the last call was answered.
        if self.host.begin(&self.requests[index], response).is_err() {
            self.wrong += 1;
        }
        let length = loop {
            match self.host.poll_in_time() {
                Poll::Response(length) => break length,
                Poll::Refused => break usize::MAX,
                Poll::NotYet => self.host.core().spin(),
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
