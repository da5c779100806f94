//! CC-NIC: a host-NIC interface designed for coherence (the paper's sections 3.2 to 3.4), and what was measured to go
//! beyond it.
//!
//! | file | what it holds |
//! |---|---|
//! | `policy` | the switches: what an ablation turns off, what goes beyond the paper |
//! | `map` | where everything lies in a client's region; the contract between the sides |
//! | `descriptor` | the 16-byte descriptor |
//! | `queue` | one ring, its producer and its consumer; the protocol as tables |
//! | `inline` | payloads inside the ring |
//! | `pool` | buffers, the shared free set, the recycling stacks; who owns a buffer |
//! | `burst` | CC-NIC as one of the packet interfaces; the NIC as a wire |
//! | `host`, `nic` | the two halves and their burst calls (Figure 5) |
//! | `retained` | what the host sent and keeps |
//! | `recovery` | starting over when a side has died |

mod burst;
mod descriptor;
mod host;
mod inline;
mod map;
mod nic;
mod policy;
mod pool;
mod queue;
mod recovery;
mod retained;

pub use burst::{Wire, host_queue, nic_queue};
pub use descriptor::{Descriptor, Flags};
pub use host::{Host, HostFaults};
pub use inline::INLINE_BYTES;
pub use map::{Geometry, GeometryError, Map, QueueMap};
pub use nic::{Nic, NicFaults};
pub use policy::{Compiled, Features, Packing, Paper, PhaseCredit, Policy, Signal, UnknownFeature};
pub use pool::{Allocator, AllocatorFeatures, BadMemory, CLASSES, ClassMap, PoolMap};
pub use queue::{Consumer, MAX_SEGMENTS, Producer, QueueFaults, RingMap};
pub use recovery::{prepare, reset_rings};
