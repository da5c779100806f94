//! CC-NIC: a host-NIC interface designed for coherence (the paper's sections 3.2 to 3.4), and what was measured to go
//! beyond it.
//!
//! | file | what it holds |
//! |---|---|
//! | `policy` | the switches: what an ablation turns off, what goes beyond the paper |
//! | `map` | where everything lies in a client's region; the contract between the sides |
//! | `descriptor` | the 16-byte descriptor |
//! | `queue` | one ring, its producer and its consumer; the protocol as tables |
//! | `posted` | the receive ring of a host that manages the pool alone: it posts buffers in it |
//! | `inline` | payloads inside the ring |
//! | `pool` | buffers, the shared free set, the recycling stacks; who owns a buffer |
//! | `ledger` | what the NIC holds, in its own memory |
//! | `notify` | how sides that sleep wake each other |
//! | `burst` | CC-NIC as one of the packet interfaces; the NIC as a wire |
//! | `bulk` | the same with an engine that copies payloads |
//! | `host`, `nic` | the two halves and their burst calls (Figure 5) |
//! | `retained` | what the host sent and keeps |
//! | `recovery` | starting over when a side has died |
//!
//! # Use
//!
//! ```
//! use conic_fabric::{Address, Core};
//! use conic_interface::burst::NicQueue;
//! use conic_interface::ccnic::{Descriptor, Features, Geometry, Host, Map, Nic, PhaseCredit, Wire, prepare};
//! use conic_native::{Memory, NativeCore, Pages};
//!
//! // One region for one client: both sides derive from geometry and features where everything lies.
//! let map = Map::new(Geometry::default(), Features::best()).expect("a geometry that can be");
//! let memory = Memory::create(&map.layout, Pages::HugeIfAvailable).expect("memory");
//! let core = NativeCore::new(&memory);
//! prepare(&core, &map);
//! // Each half belongs to one thread; here one thread plays both, and the NIC is a wire.
//! let mut host = Host::<_, PhaseCredit>::new(core, &map, 0);
//! let mut nic = Wire::new(Nic::<_, PhaseCredit>::new(core, &map, 0));
//!
//! let mut buffer = [Address(0)];
//! assert_eq!(host.buf_alloc(60, &mut buffer), 1);
//! host.core().write_bytes(buffer[0], &[7; 60]);
//! assert_eq!(host.tx_burst(&[Descriptor::new(buffer[0], 60)]), 1);
//!
//! assert_eq!(nic.turn_around(), 1);
//!
//! let mut packets = [Descriptor::BLANK; 32];
//! assert_eq!(host.rx_burst(&mut packets), 1);
//! let mut payload = [0; 60];
//! host.core().read_bytes(packets[0].address(), &mut payload);
//! assert_eq!(payload, [7; 60]);
//! host.buf_free(&[packets[0].address()]);
//! ```

mod bulk;
mod burst;
mod descriptor;
mod host;
mod inline;
mod ledger;
mod map;
mod nic;
pub mod notify;
mod policy;
mod pool;
mod posted;
mod queue;
mod recovery;
mod retained;

pub use bulk::{BulkWire, Completions, bulk_nic_queue};
pub use burst::{Turned, Wire, host_queue, nic_queue};
pub use descriptor::{Descriptor, Flags};
pub use host::{Host, HostFaults};
pub use inline::INLINE_BYTES;
pub use map::{Geometry, GeometryError, Headroom, Map, QueueMap};
pub use nic::{Nic, NicFaults, NicPosition};
pub use policy::{Compiled, Features, Packing, Paper, PhaseCredit, Policy, Signal, UnknownFeature};
pub use pool::{Allocator, AllocatorFeatures, BadMemory, CLASSES, ClassMap, PoolMap};
pub use queue::{Consumer, MAX_SEGMENTS, Position, Producer, QueueFaults, RingMap};
pub use recovery::{prepare, reset_rings};
