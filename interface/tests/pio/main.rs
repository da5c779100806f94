//! Coherent programmed I/O, checked.
//!
//! | file | what it checks |
//! |---|---|
//! | `explore` | the protocol: every interleaving of a cache, a directory and the device, and mistakes that must be found |
//! | `calls` | shapes, limits, and any sequence of calls against a model |
//! | `messages` | the halves over coherence messages: lines given up at any moment, prefetches in any order, time-outs |
//! | `round_trips` | how many messages an exchange takes |
//! | `crash` | a death at every memory operation of either side, and who takes over |
//! | `hostile` | a peer that writes anything |
//! | `model_checked` | every schedule and ordering, and that each edge is needed |
//! | `threads` | many frames and calls between threads on real memory |

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod crash;
mod explore;
mod hostile;
mod messages;
mod model_checked;
mod threads;
