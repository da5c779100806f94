//! What crosses: little-endian 64-bit words, then elements.
//!
//! | words | request | response |
//! |---|---|---|
//! | 0 | bits 0 to 15 operators, 16 to 47 elements, 48 the time is complete: what was kept of it is wanted | the same; bits 48 to 63 why it was refused, 0 if it was not |
//! | 1 | the batch's time | the same |
//! | one for each operator | the time up to which its input is complete | bits 0 to 31 records consumed, 32 to 63 produced |
//! | the rest | elements | elements |
//!
//! A request for what was kept has no elements, and its response as many as there is room for; it is repeated until there are none.
//!
//! "Operators" are those that the parent graph sees: one for a collapsed part, otherwise all. [`CLOSED`] as the time up to which
//! an input is complete says that nothing more comes; it can therefore be the time of no batch. A refusal has words 0 and 1 alone.

use std::fmt;

/// The frontier of an input to which nothing more comes.
pub const CLOSED: u64 = u64::MAX;

/// Operators of a request at most.
pub const MOST_OPERATORS: usize = u16::MAX as usize;

/// Bytes before the operators' words.
const HEADER: usize = 16;

/// Why a device, or what stands for it, refused a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// It is shorter than it says, or longer.
    Length = 1,
    /// It has neither one operator nor as many as the program, or not as many as the requests before.
    Operators = 2,
    /// Its elements are of a time that is complete, or their time is [`CLOSED`].
    Time = 3,
    /// Progress went back.
    Progress = 4,
    /// The response has no room.
    Room = 5,
    /// A response's numbers contradict one another or the request.
    Count = 6,
    /// What was kept is wanted of a time that is not complete, with elements, or of a program that keeps nothing.
    Kept = 7,
    /// An operator panicked, at this request or before.
    Failed = 8,
}

impl Reason {
    const ALL: [Reason; 8] = [
        Reason::Length,
        Reason::Operators,
        Reason::Time,
        Reason::Progress,
        Reason::Room,
        Reason::Count,
        Reason::Kept,
        Reason::Failed,
    ];

    fn of(code: u64) -> Option<Reason> {
        Reason::ALL.into_iter().find(|&reason| reason as u64 == code)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Length => "it is not as long as its header says",
            Reason::Operators => {
                "it has neither one operator nor as many as the device's program, or not as many as before"
            }
            Reason::Time => "its elements are of a time that was said to be complete",
            Reason::Progress => "its progress goes back",
            Reason::Room => "the response does not fit",
            Reason::Count => "its numbers of records contradict one another",
            Reason::Kept => "it wants what was kept of a time where that cannot be",
            Reason::Failed => "an operator panicked on the device",
        })
    }
}

/// How many records an operator consumed and produced of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Taken.
    pub consumed: u32,
    /// Made.
    pub produced: u32,
}

impl Flow {
    /// Adds what it consumed and produced of more of the batch.
    pub fn add(&mut self, consumed: u32, produced: u32) {
        self.consumed += consumed;
        self.produced += produced;
    }
}

/// Bytes before the elements of a message.
pub fn prefix(operators: usize) -> usize {
    HEADER + 8 * operators
}

/// Bytes of an exchange, each way, that holds so many elements of so many bytes where the parent graph sees so many operators.
pub fn exchange_bytes(elements: usize, element_bytes: usize, operators: usize) -> usize {
    prefix(operators) + elements * element_bytes
}

/// The other way round: elements at most in an exchange of so many bytes.
pub fn elements_in(bytes: usize, element_bytes: usize, operators: usize) -> usize {
    bytes.saturating_sub(prefix(operators)) / element_bytes
}

/// The operators that a message speaks of, by its header; none where it has none.
pub fn operators_of(message: &[u8]) -> usize {
    message.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes).into())
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let bytes = bytes.get(8 * index..8 * index + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn put(bytes: &mut [u8], index: usize, word: u64) {
    bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_le_bytes());
}

/// Begins a request; the elements are to follow.
pub fn begin_request(into: &mut Vec<u8>, time: u64, elements: u32, frontiers: &[u64]) {
    into.clear();
    into.extend_from_slice(&(frontiers.len() as u64 | u64::from(elements) << 16).to_le_bytes());
    into.extend_from_slice(&time.to_le_bytes());
    for frontier in frontiers {
        into.extend_from_slice(&frontier.to_le_bytes());
    }
}

/// In a request's first word: its time is complete, and what was kept of it is wanted.
const WANTS_KEPT: u64 = 1 << 48;

/// Makes a request that has no elements one for what was kept of its time.
pub fn want_kept(request: &mut [u8]) {
    let first = word(request, 0).unwrap_or(0);
    put(request, 0, first | WANTS_KEPT);
}

/// A request, its length checked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The batch's time.
    pub time: u64,
    /// Operators that the parent graph sees.
    pub operators: usize,
    /// Number of elements.
    pub elements: usize,
    /// The time is complete, and what was kept of it is wanted.
    pub wants_kept: bool,
    bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads a request whose elements have `element_bytes` bytes each.
    ///
    /// # Errors
    ///
    /// [`Reason::Length`].
    pub fn read(bytes: &'a [u8], element_bytes: usize) -> Result<Request<'a>, Reason> {
        Request::begun(bytes, bytes.len(), element_bytes)?.ok_or(Reason::Length)
    }

    /// Reads what has come of a request of `of` bytes; none where what is before the elements is not there yet.
    ///
    /// # Errors
    ///
    /// [`Reason::Length`].
    pub fn begun(bytes: &'a [u8], of: usize, element_bytes: usize) -> Result<Option<Request<'a>>, Reason> {
        let Some((first, time)) = word(bytes, 0).zip(word(bytes, 1)) else { return Ok(None) };
        let (operators, elements) = ((first & 0xffff) as usize, ((first & !WANTS_KEPT) >> 16) as usize);
        let wants_kept = first & WANTS_KEPT != 0;
        let length = elements.checked_mul(element_bytes).and_then(|bytes| bytes.checked_add(prefix(operators)));
        if length != Some(of) || bytes.len() > of {
            return Err(Reason::Length);
        }
        Ok((bytes.len() >= prefix(operators)).then_some(Request { time, operators, elements, wants_kept, bytes }))
    }

    /// Up to where an operator's input is complete.
    pub fn frontier(&self, operator: usize) -> u64 {
        word(self.bytes, HEADER / 8 + operator).unwrap_or(CLOSED)
    }

    /// The elements, as far as they have come.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[prefix(self.operators)..]
    }
}

/// Writes all of a response but the elements; `into` has room for [`prefix`] bytes.
pub fn write_response(into: &mut [u8], time: u64, elements: u32, flows: impl ExactSizeIterator<Item = Flow>) {
    put(into, 0, flows.len() as u64 | u64::from(elements) << 16);
    put(into, 1, time);
    for (index, flow) in flows.enumerate() {
        put(into, HEADER / 8 + index, u64::from(flow.consumed) | u64::from(flow.produced) << 32);
    }
}

/// Writes a refusal, and gives its bytes; none if there is no room even for that.
pub fn write_refusal(into: &mut [u8], reason: Reason) -> usize {
    if into.len() < HEADER {
        return 0;
    }
    put(into, 0, (reason as u64) << 48);
    put(into, 1, 0);
    HEADER
}

/// A response, checked.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    operators: usize,
    bytes: &'a [u8],
}

/// A response that says that the request was refused, or that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadResponse {
    /// The device refused the request.
    Refused(Reason),
    /// The response itself is refused.
    Malformed(Reason),
}

impl<'a> Response<'a> {
    /// Reads the response to a request of so many elements of a time, with elements of `element_bytes` bytes.
    ///
    /// # Errors
    ///
    /// If the device refused, or if the response contradicts the request or itself: what one operator produced is what the
    /// next one consumed, and none makes records of nothing.
    pub fn read(
        bytes: &'a [u8],
        element_bytes: usize,
        time: u64,
        consumed: u32,
        operators: usize,
    ) -> Result<Response<'a>, BadResponse> {
        let (response, elements) = Response::of(bytes, element_bytes, time, operators)?;
        let mut expected = consumed;
        for flow in response.flows() {
            if flow.consumed != expected || flow.produced > flow.consumed {
                return Err(BadResponse::Malformed(Reason::Count));
            }
            expected = flow.produced;
        }
        if u64::from(expected) != elements {
            return Err(BadResponse::Malformed(Reason::Count));
        }
        Ok(response)
    }

    /// Reads the response to a request for what one operator kept of a time.
    ///
    /// # Errors
    ///
    /// If the device refused, or if the response contradicts itself: it consumed nothing, and produced its elements.
    pub fn read_kept(bytes: &'a [u8], element_bytes: usize, time: u64) -> Result<Response<'a>, BadResponse> {
        let (response, elements) = Response::of(bytes, element_bytes, time, 1)?;
        let right = |flow: Flow| flow.consumed == 0 && u64::from(flow.produced) == elements;
        if !response.flows().all(right) {
            return Err(BadResponse::Malformed(Reason::Count));
        }
        Ok(response)
    }

    /// A response whose header is right, and how many elements it has.
    fn of(
        bytes: &'a [u8],
        element_bytes: usize,
        time: u64,
        operators: usize,
    ) -> Result<(Response<'a>, u64), BadResponse> {
        let malformed = BadResponse::Malformed;
        let (first, at) = word(bytes, 0).zip(word(bytes, 1)).ok_or(malformed(Reason::Length))?;
        if first >> 48 != 0 {
            return Err(Reason::of(first >> 48).map_or(malformed(Reason::Count), BadResponse::Refused));
        }
        if (first & 0xffff) as usize != operators {
            return Err(malformed(Reason::Operators));
        }
        if at != time {
            return Err(malformed(Reason::Time));
        }
        let elements = first >> 16;
        let length =
            (elements as usize).checked_mul(element_bytes).and_then(|more| more.checked_add(prefix(operators)));
        if length != Some(bytes.len()) {
            return Err(malformed(Reason::Length));
        }
        Ok((Response { operators, bytes }, elements))
    }

    /// What each operator consumed and produced.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + 'a {
        let bytes = self.bytes;
        (0..self.operators).filter_map(move |index| {
            let word = word(bytes, HEADER / 8 + index)?;
            Some(Flow { consumed: word as u32, produced: (word >> 32) as u32 })
        })
    }

    /// The elements.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[prefix(self.operators)..]
    }
}
