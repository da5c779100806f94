//! Packets that come with a virtio header: what is left to do is done here, so that what leaves a port is a plain frame.

use crate::offload::checksum;
use crate::offload::segment::{LONGEST, Segments};
use crate::offload::virtio::{Checksum, Metadata};

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

    /// Where the packet is to be put.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.cut = None;
        &mut self.packet
    }

    /// Begins with the packet in the first `length` bytes of the room; `false` where it is not what the metadata says, or
    /// its frames would be longer than `longest`.
    pub(crate) fn begin(&mut self, length: usize, metadata: Metadata, longest: usize, work: &mut Work) -> bool {
        let planned = metadata
            .segmentation
            .and_then(|segmentation| Segments::of(self.packet.get(..length)?, segmentation))
            .filter(|segments| segments.longest() <= longest);
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

    /// Whether frames are left.
    pub(crate) fn is_busy(&self) -> bool {
        self.cut.is_some()
    }
}
