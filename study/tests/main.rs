//! The studies, checked: one program, because the interfaces on modelled machines are then compiled once.
//!
//! | files | what they check |
//! |---|---|
//! | `experiments`, `isolation`, `kept`, `report` | what studies make of answers, from questions to the page |
//! | `pcie`, `behind_chip`, `stores`, `cni`, `cni_window`, `cxl_nic`, `cxl_pressure`, `enzian`, `enzian_pcie`, `host_network` | what the modelled machines answer, each with its interfaces and applications |
//! | `switches_copying`, `switches_forwarding`, `switches_serving` | what goes beyond the paper |
//! | `bursts`, `few_packets`, `open_loop`, `recorded`, `shortcuts`, `stalled_peer`, `warm_up` | how a run on a modelled machine is measured, and what is written down of it |
//! | `predictions` | key results that change knowingly alone, and hardly with the seed |
//! | `common` | answers by formulas, and a setting to ask them in |

mod behind_chip;
mod bursts;
mod cni;
mod cni_window;
mod common;
mod cxl_nic;
mod cxl_pressure;
mod enzian;
mod enzian_pcie;
mod experiments;
mod few_packets;
mod host_network;
mod isolation;
mod kept;
mod open_loop;
mod pcie;
mod predictions;
mod recorded;
mod report;
mod shortcuts;
mod stalled_peer;
mod stores;
mod switches_copying;
mod switches_forwarding;
mod switches_serving;
mod warm_up;
