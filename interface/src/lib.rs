//! Host-NIC interfaces, one module each.

pub mod buffer_metadata;
pub mod burst;
pub mod cachable_queue;
pub mod ccnic;
pub mod cni;
pub mod cxl;
pub mod fastforward;
pub mod metadata;
pub mod mlx5;
pub mod overlay;
pub mod pcie_pio;
pub mod pio;
pub mod ring;
pub mod serve;
pub mod work;
pub mod xdma;
