//! What is kept of a connection, and what a segment, an application's notice and time do to it: transitions without memory or clock.
//!
//! TAS keeps some hundred bytes a connection (TAS, EuroSys 2019: "minimal connection state"), and so do these: a line that never
//! changes, which [`crate::Service`] writes, and this one. Buffers are circular, a power of two of bytes at most 2^15; positions count
//! bytes from the connection's beginning, modulo 2^32, as sequence numbers do.
//!
//! | event | what happens | as in |
//! |---|---|---|
//! | data in order | into the receive buffer, with what lay apart and is joined by it | TAS's common case |
//! | data behind a gap | kept where it belongs, as one interval; what is not next to that is dropped | TAS: "one out-of-order interval" |
//! | data that came before | dropped, and acknowledged | RFC 9293 |
//! | an acknowledgement of what was sent | room in the transmit buffer; what was sent anew and had arrived is not sent again | RFC 9293 |
//! | three that say the same | all that is not acknowledged is sent again, once for each loss | TAS's fast recovery is go-back-N, too; once: RFC 6582 |
//! | no progress for a time | the same; a byte against a window that is closed | TAS's slow path does it; RFC 9293 section 3.8.6.1 |
//!
//! What time that is, [`round_trip`] says, and what of it all may be under way, [`congestion`]; both are parts of the same line.

mod congestion;
mod round_trip;

use conic_fabric::{Line, Time};

use self::congestion::Congestion;
pub use self::round_trip::Timeouts;
use self::round_trip::{RoundTrip, Timed, end_of, tick};
use crate::segment::{MOST_PAYLOAD, Segment};

/// Acknowledgements that say the same before what was sent is taken for lost: RFC 5681's.
const DUPLICATES: u8 = 3;

/// Behind eight bits of a line for duplicates: how often the timeout is doubled.
const DOUBLINGS: u32 = 31;
/// Behind those: whether a segment is timed, and whether the window is in use, and recovers ([`Congestion`]).
const TIMED: u32 = 1 << 13;
const USED: u32 = 1 << 14;
const RECOVERS: u32 = 1 << 15;

/// What is kept of a connection and changes: one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The sequence number that is expected next.
    pub received: u32,
    /// The position in the receive buffer of the byte with that number.
    pub receive_at: u32,
    /// Bytes from there on that the receive buffer has room for.
    pub receive_room: u32,
    /// The sequence number of the next byte to be sent.
    pub sent: u32,
    /// The position in the transmit buffer of that byte.
    pub transmit_at: u32,
    /// Bytes from there on that are to be sent.
    pub unsent: u32,
    /// Bytes before it that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// Bytes that the peer has room for behind what it acknowledged.
    pub window: u32,
    /// The sequence number of the first byte that lies behind a gap.
    pub apart: u32,
    /// How many lie there: 0 for none.
    pub apart_bytes: u32,
    /// Acknowledgements that said the same.
    pub duplicates: u8,
    /// The sequence number behind the last byte that was ever sent.
    pub highest: u32,
    /// What that was when bytes were last sent anew: acknowledgements of less say nothing of another loss.
    pub recover: u32,
    /// The tick in which something was last acknowledged, or sent, or a window closed, where nothing was under way.
    pub since: u32,
    /// How long its round trips take.
    pub round_trip: RoundTrip,
    /// What the network is thought to bear.
    pub congestion: Congestion,
}

/// What came of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the payload that are to be written into the receive buffer, from this one on.
    pub from: u32,
    /// How many.
    pub bytes: u32,
    /// The position where.
    pub at: u32,
    /// Bytes that are there in order now and were not before: these, and what lay apart.
    pub delivered: u32,
    /// Bytes of the transmit buffer that are free now.
    pub freed: u32,
    /// Whether the peer is to be told: it sent data.
    pub acknowledge: bool,
    /// Whether the data was not the next: the peer must learn of it at once.
    pub out_of_order: bool,
    /// Whether something may be sent now that could not be before.
    pub may_send: bool,
}

/// A part of the transmit buffer that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSend {
    /// The sequence number of its first byte.
    pub sequence: u32,
    /// The position of that byte.
    pub at: u32,
    /// How many bytes.
    pub bytes: u32,
}

impl Flow {
    /// An established connection: the next sequence numbers of the peer and of this side, the receive buffer's bytes and the peer's
    /// window.
    pub fn established(received: u32, sent: u32, receive_bytes: u32, window: u32) -> Flow {
        Flow { received, sent, highest: sent, recover: sent, receive_room: receive_bytes, window, ..Flow::default() }
    }

    /// What a line says.
    #[inline]
    pub fn from_line(line: &Line) -> Flow {
        let word = |index: usize| (line.0[index / 2] >> (32 * (index % 2))) as u32;
        let halves = |index: usize| (word(index) & 0xffff, word(index) >> 16);
        let (receive_room, unsent) = halves(4);
        let (unacknowledged, window) = halves(5);
        let (apart_bytes, small) = halves(7);
        let (congestion_window, threshold) = halves(15);
        let timed = Timed { end: word(14), at: word(11) };
        Flow {
            received: word(0),
            receive_at: word(1),
            sent: word(2),
            transmit_at: word(3),
            receive_room,
            unsent,
            unacknowledged,
            window,
            apart: word(6),
            apart_bytes,
            duplicates: small as u8,
            highest: word(8),
            recover: word(9),
            since: word(10),
            round_trip: RoundTrip {
                smoothed: word(12),
                deviation: word(13),
                doublings: (small >> 8 & DOUBLINGS) as u8,
                timed: (small & TIMED > 0).then_some(timed),
            },
            congestion: Congestion {
                window: congestion_window,
                threshold,
                is_used: small & USED > 0,
                recovers: small & RECOVERS > 0,
            },
        }
    }

    /// The line that says it. Amounts of bytes have 16 bits where that saves a line: no buffer has more than 2^15 bytes, and no window more
    /// than 16 bits.
    #[inline]
    pub fn to_line(&self) -> Line {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let halves = |low: u32, high: u32| {
            debug_assert!(low.max(high) <= u16::MAX.into(), "{low} and {high} are no two halves");
            low | high << 16
        };
        let RoundTrip { smoothed, deviation, doublings, timed } = self.round_trip;
        let Congestion { window, threshold, is_used, recovers } = self.congestion;
        let flag = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
        let flags = flag(timed.is_some(), TIMED) | flag(is_used, USED) | flag(recovers, RECOVERS);
        let small = u32::from(self.duplicates) | u32::from(doublings) << 8 | flags;
        let Timed { end, at } = timed.unwrap_or_default();
        Line([
            pair(self.received, self.receive_at),
            pair(self.sent, self.transmit_at),
            pair(halves(self.receive_room, self.unsent), halves(self.unacknowledged, self.window)),
            pair(self.apart, halves(self.apart_bytes, small)),
            pair(self.highest, self.recover),
            pair(self.since, at),
            pair(smoothed, deviation),
            pair(end, halves(window, threshold)),
        ])
    }

    /// Takes a segment; none, and nothing changes, where it acknowledges what was never sent.
    pub fn take(&mut self, segment: &Segment, now: Time) -> Option<Taken> {
        let mut taken = Taken::default();
        self.take_acknowledgement(segment, now, &mut taken)?;
        if segment.payload_bytes > 0 {
            taken.acknowledge = true;
            self.take_data(segment.sequence, segment.payload_bytes.into(), &mut taken);
        }
        Some(taken)
    }

    fn take_acknowledgement(&mut self, segment: &Segment, now: Time, taken: &mut Taken) -> Option<()> {
        let oldest = self.sent.wrapping_sub(self.unacknowledged);
        let ahead = segment.acknowledged.wrapping_sub(oldest);
        if ahead as i32 > 0 && ahead > self.highest.wrapping_sub(oldest) {
            return None;
        }
        if (ahead as i32) < 0 {
            // An older one, that others overtook: what it carries may be new all the same.
            return Some(());
        }
        let window = u32::from(segment.window);
        if ahead > 0 {
            taken.freed = ahead;
            // What is to be sent anew and had arrived before is behind the peer already.
            let skipped = ahead.saturating_sub(self.unacknowledged);
            self.unacknowledged -= ahead - skipped;
            self.unsent -= skipped;
            self.sent = self.sent.wrapping_add(skipped);
            self.transmit_at = self.transmit_at.wrapping_add(skipped);
            self.duplicates = 0;
            let oldest = oldest.wrapping_add(ahead);
            self.since = tick(now);
            self.round_trip.acknowledged(oldest, self.since);
            self.congestion.acknowledged(ahead);
            // It stays within half of all numbers behind what is acknowledged, or it would seem to lie ahead.
            if oldest.wrapping_sub(self.recover) as i32 >= 0 {
                self.recover = oldest;
                self.congestion.recovered();
            }
        } else if segment.payload_bytes == 0 && window == self.window && self.unacknowledged > 0 {
            self.duplicates = self.duplicates.saturating_add(1);
            // Of what was under way at the last loss, all was sent again: a loss of that, time will tell.
            if self.duplicates == DUPLICATES && oldest.wrapping_sub(self.recover) as i32 >= 0 {
                self.congestion.lost(self.highest.wrapping_sub(oldest));
                self.go_back(now);
            }
        }
        if window == 0 && ahead == 0 && self.unacknowledged == 1 {
            // There was no room for the byte that tried it: it goes with what is sent when there is, instead of leaving a gap.
            self.take_back();
        } else if window == 0 && self.window > 0 && self.unacknowledged == 0 {
            // It may have been waiting for its turn until now.
            self.since = tick(now);
        }
        self.window = window;
        taken.may_send = self.sendable(MOST_PAYLOAD.into()) > 0;
        Some(())
    }

    fn take_data(&mut self, sequence: u32, bytes: u32, taken: &mut Taken) {
        let gap = sequence.wrapping_sub(self.received);
        if gap as i32 > 0 {
            taken.out_of_order = true;
            return self.take_apart(gap, bytes, taken);
        }
        let before = self.received.wrapping_sub(sequence);
        let bytes = bytes.saturating_sub(before).min(self.receive_room);
        taken.out_of_order = before > 0;
        if bytes == 0 {
            return;
        }
        (taken.from, taken.bytes, taken.at) = (before, bytes, self.receive_at);
        taken.delivered = bytes;
        if self.apart_bytes > 0 {
            let until_apart = self.apart.wrapping_sub(self.received);
            let end = until_apart + self.apart_bytes;
            if bytes >= until_apart {
                taken.delivered = bytes.max(end);
                self.apart_bytes = 0;
            }
        }
        self.received = self.received.wrapping_add(taken.delivered);
        self.receive_at = self.receive_at.wrapping_add(taken.delivered);
        self.receive_room -= taken.delivered;
    }

    /// Data behind a gap: it is written where it belongs, if there is room and nothing else lies apart, or what does is next to it.
    fn take_apart(&mut self, gap: u32, bytes: u32, taken: &mut Taken) {
        let bytes = bytes.min(self.receive_room.saturating_sub(gap));
        if bytes == 0 {
            return;
        }
        let (mut start, mut end) = (gap, gap + bytes);
        if self.apart_bytes > 0 {
            let apart = self.apart.wrapping_sub(self.received);
            let apart_end = apart + self.apart_bytes;
            if start > apart_end || end < apart {
                return;
            }
            (start, end) = (start.min(apart), end.max(apart_end));
        }
        (self.apart, self.apart_bytes) = (self.received.wrapping_add(start), end - start);
        (taken.bytes, taken.at) = (bytes, self.receive_at.wrapping_add(gap));
    }

    /// Enters that the application has read so many bytes and written so many; false, and nothing changes, where there are not so many
    /// to read, or there is no room for so many. The buffers have these sizes.
    #[must_use]
    pub fn bump(&mut self, read: u32, written: u32, buffers: [u32; 2], now: Time) -> bool {
        let [receive_bytes, transmit_bytes] = buffers;
        let readable = receive_bytes.saturating_sub(self.receive_room);
        let writable = transmit_bytes.saturating_sub(self.unsent.saturating_add(self.unacknowledged));
        if read > readable || written > writable {
            return false;
        }
        if self.unsent == 0 && self.unacknowledged == 0 && written > 0 {
            self.since = tick(now);
        }
        self.receive_room += read;
        self.unsent += written;
        true
    }

    /// Bytes of a segment that may be sent now, `most` at most; none where the network bears a part of them only, and the rest soon.
    #[inline]
    pub fn sendable(&self, most: u32) -> u32 {
        let bytes = self.unsent.min(self.window.saturating_sub(self.unacknowledged)).min(most);
        // While nothing is under way there is room for a segment: what waits here waits for an acknowledgement, or for time.
        if bytes <= self.congestion.window.saturating_sub(self.unacknowledged) { bytes } else { 0 }
    }

    /// Takes what is to be sent next, `most` bytes at most.
    pub fn next(&mut self, most: u32, now: Time) -> Option<ToSend> {
        let bytes = self.sendable(most);
        if bytes == 0 {
            return None;
        }
        let send = ToSend { sequence: self.sent, at: self.transmit_at, bytes };
        let tick = tick(now);
        if self.unacknowledged == 0 {
            self.since = tick;
        }
        let is_new = self.sent == self.highest;
        self.sent = self.sent.wrapping_add(bytes);
        self.transmit_at = self.transmit_at.wrapping_add(bytes);
        self.unsent -= bytes;
        self.unacknowledged += bytes;
        self.congestion.sent(self.unacknowledged);
        if is_new {
            self.round_trip.sent(self.sent, tick);
        }
        if self.sent.wrapping_sub(self.highest) as i32 > 0 {
            self.highest = self.sent;
        }
        Some(send)
    }

    /// When what waits for the peer has waited for long enough, which is not later than now where it has; none where nothing waits.
    #[inline]
    pub fn due(&self, now: Time, timeouts: &Timeouts) -> Option<Time> {
        let waits = self.unacknowledged > 0 || (self.unsent > 0 && self.window == 0);
        waits.then(|| end_of(self.since, self.round_trip.timeout(timeouts), now))
    }

    /// It has waited for long enough: has all that is not acknowledged sent again; against a closed window, a byte of it.
    pub fn run_out(&mut self, now: Time) {
        // A window that the peer has closed says nothing of the network.
        if self.window > 0 {
            let oldest = self.sent.wrapping_sub(self.unacknowledged);
            self.congestion.ran_out(self.highest.wrapping_sub(oldest), self.round_trip.doublings > 0);
        }
        self.round_trip.ran_out();
        self.go_back(now);
        self.window = self.window.max(1);
    }

    fn go_back(&mut self, now: Time) {
        self.take_back();
        self.duplicates = 0;
        self.recover = self.highest;
        self.since = tick(now);
    }

    /// Has all that is not acknowledged be as if it was not sent.
    fn take_back(&mut self) {
        self.unsent += self.unacknowledged;
        self.sent = self.sent.wrapping_sub(self.unacknowledged);
        self.transmit_at = self.transmit_at.wrapping_sub(self.unacknowledged);
        self.unacknowledged = 0;
        self.round_trip.forget();
    }

    /// The window to be told to the peer.
    pub fn advertised(&self) -> u16 {
        self.receive_room.min(u16::MAX.into()) as u16
    }
}

#[cfg(test)]
mod tests;
