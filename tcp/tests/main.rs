//! The TCP service, checked: one program, because what its tests share is then compiled once.
//!
//! | file | what it checks |
//! |---|---|
//! | `served` | every byte of every answer, over every interface and over networks that lose, repeat and delay |
//! | `hostile` | segments and notices that cannot be, between good ones; an application that never listens |
//! | `threads` | fast path and application on threads of their own |
//! | `timers` | what waits for time: acknowledgements that are owed, timeouts, windows that are closed, on a clock of the test's |
//! | `congested` | many connections over slow networks, on such a clock |
//! | `overlay` | a service behind an overlay |
//! | `misses` | what a modelled core is told of loads that wait for each other |
//! | `context_loom` | buffers and notices in every order that memory allows |
//! | `common` | a service, its clients and their network on memory |

mod common;
mod congested;
mod context_loom;
mod hostile;
mod misses;
mod overlay;
mod served;
mod threads;
mod timers;
