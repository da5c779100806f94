//! An overlay between two rings: what goes through it, and what does not.

use crate::common::{Agent, Memory, bytes};
use conic_fabric::{Address, Core, Home, LINE_BYTES, Layout, PlayedByCore, SynchronisingWords};
use conic_interface::burst::{HostQueue, NicQueue, Packet};
use conic_interface::ccnic::Flags;
use conic_interface::overlay::Overlay;
use conic_interface::ring::{Host, Nic, QueuePair, Shape, Wire};

/// An application, and the network that it reaches through an overlay.
struct Ground<'memory> {
    application: Host<Agent<'memory>>,
    overlay: Overlay<Wire<Nic<PlayedByCore<Agent<'memory>>>>, Host<Agent<'memory>>>,
    network: Wire<Nic<PlayedByCore<Agent<'memory>>>>,
    object: Address,
}

/// Pairs of small rings, above and below, with buffers of so many bytes; and an object.
fn place(above: u64, below: u64) -> (Layout, [QueuePair; 2], Address) {
    let mut layout = Layout::new();
    let object = layout.add("objects", 4096, LINE_BYTES, Home::Host, SynchronisingWords::NONE);
    let pairs = [above, below].map(|buffer_bytes| {
        let shape = Shape { descriptors: 8, buffers: 64, buffer_bytes, rx_refill_threshold: 1, ..Shape::default() };
        shape.place(&mut layout).expect("a queue pair").with_objects(object, 4096)
    });
    (layout, pairs, object)
}

impl<'memory> Ground<'memory> {
    fn new(memory: &'memory Memory, pairs: [QueuePair; 2], object: Address, most: u16) -> Ground<'memory> {
        let [above, below] = pairs;
        let device = |agent| PlayedByCore(memory.agent(agent));
        Ground {
            application: above.host(memory.agent(0)),
            overlay: Overlay::new(Wire::new(above.nic(device(1)), above.shape()), below.host(memory.agent(1)), most),
            network: Wire::new(below.nic(device(0)), below.shape()),
            object,
        }
    }

    /// Sends a frame; its second half is an object, if it has one.
    fn send(&mut self, frame: &[u8], in_halves: bool) -> bool {
        let mut at = [Address(0)];
        if HostQueue::buf_alloc(&mut self.application, 1, &mut at) == 0 {
            return false;
        }
        let first = if in_halves { frame.len() / 2 } else { frame.len() };
        self.application.core().write_bytes(at[0], &frame[..first]);
        let packet = Packet::new(at[0], first as u16);
        let mut packets = vec![packet];
        if in_halves {
            self.application.core().write_bytes(self.object, &frame[first..]);
            let rest = Packet::new(self.object, (frame.len() - first) as u16).with(Flags::RETAIN);
            packets = vec![packet.with(Flags::NEXT), rest];
        }
        let sent = HostQueue::tx_burst(&mut self.application, &packets);
        if sent == 0 {
            HostQueue::buf_free(&mut self.application, &at);
        }
        sent > 0
    }

    /// What has come to the application.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = [Packet::BLANK; 16];
        let count = HostQueue::rx_burst(&mut self.application, &mut packets);
        let taken = packets[..count].iter().map(|packet| {
            let mut frame = vec![0; packet.length().into()];
            self.application.core().read_bytes(packet.address(), &mut frame);
            frame
        });
        let taken = taken.collect();
        HostQueue::buf_free(
            &mut self.application,
            &packets[..count].iter().map(|one| one.address()).collect::<Vec<_>>(),
        );
        taken
    }

    /// What has come to the network.
    fn take(&mut self) -> Vec<Vec<u8>> {
        let mut frame = vec![0; 9600];
        std::iter::from_fn(|| self.network.take_frame(&mut frame).map(|length| frame[..length].to_vec())).collect()
    }
}

#[test]
fn frames_cross_both_ways_whole_and_in_order_however_often_a_ring_is_full() {
    let frames: Vec<_> = (0..500).map(|index| bytes(index, (index as usize * 37) % 512 + 1)).collect();
    // How often the overlay, the network and the application have their turn.
    for [between, network, application] in [[1, 1, 1], [1, 20, 20], [20, 1, 20], [20, 20, 1], [30, 3, 7]] {
        let (layout, pairs, object) = place(512, 512);
        let memory = Memory::new(&layout);
        let mut ground = Ground::new(&memory, pairs, object, 512);
        let (mut sent, mut delivered, mut down, mut up) = (0, 0, Vec::new(), Vec::new());
        for round in 0..20_000 {
            if round % between == 0 {
                ground.overlay.step();
            }
            // A frame in halves is not written again before it was taken: one at a time.
            let is_alone = sent == down.len();
            if round % application == 0 {
                while sent < frames.len() && ground.send(&frames[sent], false) {
                    sent += 1;
                }
                up.extend(ground.receive());
            }
            if is_alone && sent < frames.len() && frames[sent].len() > 1 && ground.send(&frames[sent], true) {
                sent += 1;
            }
            if round % network == 0 {
                while delivered < frames.len() && ground.network.deliver_frame(&frames[delivered]) {
                    delivered += 1;
                }
                down.extend(ground.take());
            }
        }
        assert_eq!((sent, delivered), (500, 500));
        assert!(
            down == frames && up == frames,
            "turns {:?}: {} and {} came",
            [between, network, application],
            down.len(),
            up.len()
        );
        let above = ground.overlay.above();
        assert_eq!((above.dropped(), above.refused()), (0, 0));
        assert_eq!(ground.overlay.below().statistics().refused_frees, 0);
        // Posted, in the overlay's hand, or free: none is lost.
        let below = ground.overlay.below();
        assert!(below.free_buffers() + below.device_buffers() + 32 >= 64);
    }
}

#[test]
fn a_frame_that_the_other_side_cannot_hold_is_dropped_and_counted_and_the_next_one_comes() {
    let (layout, pairs, object) = place(256, 512);
    let memory = Memory::new(&layout);
    let mut ground = Ground::new(&memory, pairs, object, 300);
    let [short, long] = [bytes(1, 100), bytes(2, 400)];
    // From above: longer than the overlay was told to expect.
    assert!(ground.send(&long, true) && ground.send(&short, false));
    (0..4).for_each(|_| _ = ground.overlay.step());
    assert_eq!((ground.take(), ground.overlay.above().dropped()), (vec![short.clone()], 1));
    // From below: longer than a buffer above.
    assert!(ground.network.deliver_frame(&long) && ground.network.deliver_frame(&short));
    (0..4).for_each(|_| _ = ground.overlay.step());
    assert_eq!((ground.receive(), ground.overlay.above().dropped()), (vec![short], 2));
}

#[test]
#[should_panic = "no buffer below holds a frame of 513 bytes"]
fn an_overlay_for_frames_that_no_buffer_below_holds_is_refused() {
    let (layout, pairs, object) = place(512, 512);
    let memory = Memory::new(&layout);
    let _ = Ground::new(&memory, pairs, object, 513);
}
