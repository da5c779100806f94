//! The interfaces, checked: one program, because what its tests share is then compiled once. CC-NIC (`ccnic/`) and coherent programmed
//! I/O (`pio/`) have programs of their own.
//!
//! | files | what they check |
//! |---|---|
//! | `ring`, `ring_segments`, `ring_crash`, `ring_loom` | descriptor rings with registers |
//! | `mlx5`, `mlx5_loom` | the rings of a ConnectX |
//! | `queues`, `queues_native`, `queues_crash`, `queues_loom` | the one-way queues: FastForward and cachable queues |
//! | `cxl`, `cxl_gate`, `cxl_push`, `cxl_serving`, `cxl_serving_values` | the CXL NIC's rings, what it pushes and when not, and the store on it |
//! | `pcie_pio`, `xdma` | programmed I/O over PCIe, and lists of descriptors |
//! | `burst`, `bulk`, `mixed`, `overlay`, `ownership`, `serve` | what interfaces have in common, on memory of a thread or of the machine |
//! | `common` | memory of one thread whose accesses are checked and counted |

mod bulk;
mod burst;
mod common;
mod cxl;
mod cxl_gate;
mod cxl_push;
mod cxl_serving;
mod cxl_serving_values;
mod mixed;
mod mlx5;
mod mlx5_loom;
mod overlay;
mod ownership;
mod pcie_pio;
mod queues;
mod queues_crash;
mod queues_loom;
mod queues_native;
mod ring;
mod ring_crash;
mod ring_loom;
mod ring_segments;
mod serve;
mod xdma;
