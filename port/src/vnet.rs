//! Packets that come with a virtio header: what is left to do is done here, so that what leaves a port is a plain frame.

use std::io;

use crate::legacy::{Heir, broken};
use crate::offload::segment::{LEAST_PIECE_OF_PORT, LONGEST, Segments};
use crate::offload::virtio::{Checksum, Metadata, Segmentation};
use crate::offload::{Headers, checksum};

/// What a port has done for its frames, by what it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Checksums that were begun and have been completed.
    pub(crate) checksums_completed: u64,
    /// Large packets that were cut.
    pub(crate) packets_cut: u64,
    /// Large packets that were joined.
    pub(crate) packets_joined: u64,
    /// Frames that went into those.
    pub(crate) frames_joined: u64,
}

impl Work {
    pub(crate) fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("checksums_completed", self.checksums_completed),
            ("packets_cut", self.packets_cut),
            ("packets_joined", self.packets_joined),
            ("frames_joined", self.frames_joined),
        ]
    }
}

/// Completes what was begun, in a frame that is not to be cut; `false` where the metadata does not fit it.
pub(crate) fn complete(frame: &mut [u8], metadata: Metadata, work: &mut Work) -> bool {
    match metadata.checksum {
        Checksum::Partial { start, offset } => {
            work.checksums_completed += 1;
            checksum::complete(frame, usize::from(start), usize::from(offset))
        }
        Checksum::Unknown | Checksum::Valid => true,
    }
}

/// A large packet that is given as frames, one at a time.
pub(crate) struct Cutter {
    packet: Box<[u8]>,
    length: usize,
    cut: Option<Segments>,
}

impl Cutter {
    pub(crate) fn new() -> Cutter {
        Cutter { packet: vec![0; LONGEST].into_boxed_slice(), length: 0, cut: None }
    }

    /// What stands for one that is used elsewhere.
    pub(crate) fn nothing() -> Cutter {
        Cutter { packet: Box::default(), length: 0, cut: None }
    }

    /// What was put.
    pub(crate) fn taken(&self) -> &[u8] {
        &self.packet
    }

    /// Where the packet is to be put.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.cut = None;
        &mut self.packet
    }

    /// Begins with the packet in the first `length` bytes of the room; `false` where it is not what the metadata says, or
    /// its frames would be longer than `longest`, or crumbs.
    pub(crate) fn begin(&mut self, length: usize, metadata: Metadata, longest: usize, work: &mut Work) -> bool {
        let size = metadata.segmentation.map_or(0, |segmentation| segmentation.size);
        let planned = metadata
            .segmentation
            .and_then(|segmentation| Segments::of(self.packet.get(..length)?, segmentation))
            .filter(|segments| segments.longest() <= longest && (size >= LEAST_PIECE_OF_PORT || segments.is_one()));
        self.length = length;
        self.cut = planned;
        work.packets_cut += u64::from(planned.is_some());
        planned.is_some()
    }

    /// Writes the next frame; `None` where there is none left.
    pub(crate) fn next(&mut self, frame: &mut [u8]) -> Option<usize> {
        let cut = self.cut.as_mut()?;
        let length = cut.next(&self.packet[..self.length], frame);
        if length.is_none() || cut.is_done() {
            self.cut = None;
        }
        length
    }

    /// What whoever goes on needs to give the frames that are left, in words: bytes of the packet, of the payload in each frame and of that which
    /// was given, and the packet, eight bytes a word. Nothing where none are left.
    pub(crate) fn pass_on(&self, words: &mut Vec<u64>) {
        let Some(cut) = self.cut else { return };
        let (size, given) = cut.position();
        words.extend([self.length, size, given].map(|bytes| bytes as u64));
        let word = |bytes: &[u8]| u64::from_le_bytes(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)));
        words.extend(self.packet[..self.length].chunks(8).map(word));
    }

    /// Goes on with what another one has left, if there is more in its legacy.
    ///
    /// # Errors
    /// What there is is not all that belongs to such a packet, or more.
    pub(crate) fn go_on(&mut self, heir: &mut Heir) -> io::Result<()> {
        if heir.rest().is_empty() {
            return Ok(());
        }
        let (length, size, given) = (heir.number::<usize>()?, heir.number()?, heir.number()?);
        let packet = self.packet.get_mut(..length).ok_or_else(broken)?;
        for into in packet.chunks_mut(8) {
            let bytes = heir.number::<u64>()?.to_le_bytes();
            into.copy_from_slice(&bytes[..into.len()]);
        }
        let protocol = Headers::of(packet).ok_or_else(broken)?.protocol;
        let cut = Segments::of(packet, Segmentation { size, protocol }).and_then(|cut| cut.behind(given));
        (self.length, self.cut) = (length, Some(cut.filter(|_| heir.rest().is_empty()).ok_or_else(broken)?));
        Ok(())
    }

    /// Whether frames are left.
    pub(crate) fn is_busy(&self) -> bool {
        self.cut.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::TCP;

    /// A cutter with a TCP packet of so many bytes of payload, to be cut into frames of 100 each.
    fn cutter(payload: usize) -> (Cutter, usize, Metadata) {
        let mut cutter = Cutter::new();
        let mut packet = [&[2; 12][..], &[8, 0, 0x45, 0], &(40 + payload as u16).to_be_bytes()].concat();
        packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        packet.resize(54 + payload, 7);
        cutter.room()[..packet.len()].copy_from_slice(&packet);
        let segmentation = Some(Segmentation { size: 100, protocol: TCP });
        (cutter, packet.len(), Metadata { segmentation, ..Metadata::NONE })
    }

    #[test]
    fn a_packet_is_cut_to_its_end_and_counted_once() {
        let (mut cutter, length, metadata) = cutter(250);
        let mut work = Work::default();
        assert!(cutter.begin(length, metadata, 154, &mut work) && cutter.is_busy());
        let mut frame = [0; 154];
        let lengths = [cutter.next(&mut frame), cutter.next(&mut frame), cutter.next(&mut frame)];
        assert_eq!(lengths, [Some(154), Some(154), Some(104)]);
        assert!(!cutter.is_busy(), "nothing is left");
        assert_eq!((cutter.next(&mut frame), work.packets_cut), (None, 1));
    }

    #[test]
    fn frames_that_do_not_fit_are_not_begun_and_hold_up_nothing() {
        let (mut cutter, length, metadata) = cutter(250);
        let mut work = Work::default();
        assert!(!cutter.begin(length, metadata, 153, &mut work) && !cutter.is_busy());
        assert_eq!(work.packets_cut, 0);
        // Whoever brings less room later than was said loses the rest of the packet, and no more.
        assert!(cutter.begin(length, metadata, 154, &mut work));
        assert_eq!((cutter.next(&mut [0; 153]), cutter.is_busy()), (None, false));
    }
}
