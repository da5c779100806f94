//! The modelled machine, checked: one program, because the simulator is then compiled once.
//!
//! | files | what they check |
//! |---|---|
//! | `latency`, `messages`, `gates`, `slices`, `prefetchers`, `publish` | what an access costs and sends, message by message, to the picosecond |
//! | `last_level`, `full_set`, `watch`, `copy_engine` | what caches keep, cores that are told of snoops, engines that copy |
//! | `pcie`, `pcie_order`, `device_memory`, `cxl` | devices behind PCIe, ECI and CXL, and their memory |
//! | `bus` | nodes whose processor and network interface share snooping buses |
//! | `host` | a host's ways to memory: credits, back-pressure, every command on a channel's wires |
//! | `litmus`, `random` | memory orders, and values that no load may see, on random programs |
//! | `entries` | requests that home agents can be busy with, and that nobody waits for ever for one |
//! | `snoop_filter` | lines that home agents can know to be in private caches, and what is recalled for another |
//! | `causes` | which message a recording says has caused another |
//! | `queues`, `timer`, `watchdog`, `extremes`, `pages` | probes, interrupts, runs that would never end, values at their bounds, the host's own memory |
//! | `common` | numbers from a seed, and machines that are hard on their protocol |

mod bus;
mod causes;
mod common;
mod copy_engine;
mod cxl;
mod device_memory;
mod entries;
mod extremes;
mod full_set;
mod gates;
mod host;
mod last_level;
mod latency;
mod litmus;
mod messages;
mod pages;
mod pcie;
mod pcie_order;
mod prefetchers;
mod publish;
mod queues;
mod random;
mod slices;
mod snoop_filter;
mod timer;
mod watch;
mod watchdog;
