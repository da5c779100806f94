//! Packets by value through the line pairs of coherent programmed I/O.

use conic_fabric::Core;
use conic_interface::pio::Features;
use conic_interface::pio::nic::{NicHost, NicLines, Receiver, Transmitter};

use super::{ReceivePacket, SendPacket, words_of};

/// Both ends of a NIC of line pairs, for packets of so many bytes.
pub fn line_pair_ends<C: Core>(
    lines: &NicLines,
    cores: [C; 2],
    features: Features,
    packet_size: u16,
) -> (LinePairSender<C>, LinePairReceiver<C>) {
    let NicHost { transmit, receive } = lines.host(cores, features);
    let bytes = vec![0; 8 * words_of(packet_size)];
    (LinePairSender { transmit, bytes: bytes.clone() }, LinePairReceiver { receive, bytes })
}

/// The end that sends, with the frame that it puts together.
#[derive(Debug)]
pub struct LinePairSender<C> {
    transmit: Transmitter<C>,
    bytes: Vec<u8>,
}

impl<C: Core> SendPacket for LinePairSender<C> {
    type Core = C;
    fn core(&self) -> &C {
        self.transmit.host().core()
    }
    #[inline(always)]
    fn try_send(&mut self, packet: &[u64]) -> bool {
        if !self.transmit.is_taken() {
            return false;
        }
        for (bytes, word) in self.bytes.chunks_exact_mut(8).zip(packet) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        // The lines were made for such packets.
        self.transmit.try_transmit(&self.bytes) == Ok(true)
    }
}

/// The end that receives, with the frame that it takes apart.
#[derive(Debug)]
pub struct LinePairReceiver<C> {
    receive: Receiver<C>,
    bytes: Vec<u8>,
}

impl<C: Core> ReceivePacket for LinePairReceiver<C> {
    #[inline(always)]
    fn try_receive(&mut self, packet: &mut [u64]) -> bool {
        if self.receive.receive(&mut self.bytes).is_none() {
            return false;
        }
        for (word, bytes) in packet.iter_mut().zip(self.bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("a chunk of eight bytes"));
        }
        true
    }
}
