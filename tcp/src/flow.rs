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
//! There is no congestion control: TAS's slow path sets a rate for each connection, and here there is none.

use conic_fabric::{Line, Time};

use crate::segment::Segment;

/// Acknowledgements that say the same before what was sent is taken for lost: RFC 5681's.
const DUPLICATES: u32 = 3;

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
    pub duplicates: u32,
    /// The sequence number behind the last byte that was ever sent.
    pub highest: u32,
    /// What that was when bytes were last sent anew: acknowledgements of less say nothing of another loss.
    pub recover: u32,
    /// When something was last acknowledged, or sent where nothing was under way, in picoseconds.
    pub since: u64,
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
        let of = |index: usize| (line.0[index / 2] >> (32 * (index % 2))) as u32;
        Flow {
            received: of(0),
            receive_at: of(1),
            receive_room: of(2),
            sent: of(3),
            transmit_at: of(4),
            unsent: of(5),
            unacknowledged: of(6),
            window: of(7),
            apart: of(8),
            apart_bytes: of(9),
            duplicates: of(10),
            highest: of(11),
            recover: of(12),
            since: line.0[7],
        }
    }

    /// The line that says it.
    #[inline]
    pub fn to_line(&self) -> Line {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Line([
            pair(self.received, self.receive_at),
            pair(self.receive_room, self.sent),
            pair(self.transmit_at, self.unsent),
            pair(self.unacknowledged, self.window),
            pair(self.apart, self.apart_bytes),
            pair(self.duplicates, self.highest),
            pair(self.recover, 0),
            self.since,
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
            self.since = now.picoseconds();
            // It stays within half of all numbers behind what is acknowledged, or it would seem to lie ahead.
            let oldest = oldest.wrapping_add(ahead);
            if oldest.wrapping_sub(self.recover) as i32 > 0 {
                self.recover = oldest;
            }
        } else if segment.payload_bytes == 0 && window == self.window && self.unacknowledged > 0 {
            self.duplicates = self.duplicates.saturating_add(1);
            // Of what was under way at the last loss, all was sent again: a loss of that, time will tell.
            if self.duplicates == DUPLICATES && oldest.wrapping_sub(self.recover) as i32 >= 0 {
                self.go_back(now);
            }
        }
        self.window = window;
        taken.may_send = self.sendable() > 0;
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
            self.since = now.picoseconds();
        }
        self.receive_room += read;
        self.unsent += written;
        true
    }

    /// Bytes that may be sent now.
    pub fn sendable(&self) -> u32 {
        self.unsent.min(self.window.saturating_sub(self.unacknowledged))
    }

    /// Takes what is to be sent next, `most` bytes at most.
    pub fn next(&mut self, most: u32, now: Time) -> Option<ToSend> {
        let bytes = self.sendable().min(most);
        if bytes == 0 {
            return None;
        }
        let send = ToSend { sequence: self.sent, at: self.transmit_at, bytes };
        if self.unacknowledged == 0 {
            self.since = now.picoseconds();
        }
        self.sent = self.sent.wrapping_add(bytes);
        self.transmit_at = self.transmit_at.wrapping_add(bytes);
        self.unsent -= bytes;
        self.unacknowledged += bytes;
        if self.sent.wrapping_sub(self.highest) as i32 > 0 {
            self.highest = self.sent;
        }
        Some(send)
    }

    /// When what waits for the peer has waited for so long; none where nothing does.
    pub fn due(&self, timeout: Time) -> Option<Time> {
        let waits = self.unacknowledged > 0 || (self.unsent > 0 && self.window == 0);
        waits.then(|| Time::from_picoseconds(self.since) + timeout)
    }

    /// Has all that is not acknowledged sent again; against a closed window, a byte of it.
    pub fn go_back(&mut self, now: Time) {
        self.unsent += self.unacknowledged;
        self.sent = self.sent.wrapping_sub(self.unacknowledged);
        self.transmit_at = self.transmit_at.wrapping_sub(self.unacknowledged);
        self.unacknowledged = 0;
        self.duplicates = 0;
        self.recover = self.highest;
        self.since = now.picoseconds();
        self.window = self.window.max(1);
    }

    /// The window to be told to the peer.
    pub fn advertised(&self) -> u16 {
        self.receive_room.min(u16::MAX.into()) as u16
    }
}

#[cfg(test)]
mod tests;
