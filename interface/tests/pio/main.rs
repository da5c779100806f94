//! Coherent programmed I/O, checked.
//!
//! | file | what it checks |
//! |---|---|
//! | `explore` | the protocol: every interleaving of a cache, a directory and the device, and mistakes that must be found |
//! | `calls` | shapes, limits, and any sequence of calls against a model |
//! | `messages` | the halves over coherence messages: lines given up at any moment, prefetches in any order, time-outs |
//! | `crash` | a death at every memory operation of either side, and who takes over |
//! | `hostile` | a peer that writes anything |
//! | `loom_exchange` | every schedule and ordering, and that each edge is needed |
//! | `threads` | many frames and calls between threads on real memory |
//!
//! What is easy to get wrong, and what then fails (a name in capitals is a planted mistake, which the exploration must find):
//!
//! | mistake | where it shows |
//! |---|---|
//! | no fence between request and signal, or between control and data | `NoFence`, `DataBeforeControl`; `loom_exchange` on memory |
//! | the line is not changed after "try again"; the two sides count differently | `TurnsOnlyOnResponse`; successors in `calls` and `crash` |
//! | "try again" is recalled when it is answered | `RecallsTryAgainAtOnce` |
//! | a packet that comes at the time-out is lost, or comes twice | `LosesResponseAtTimeOut`, `RespondsTwice` |
//! | a line that was given up is not merged, or not answered again | `ForgetsVictims`, `AnswersOnce` |
//! | the other line is answered before the recall is | `AnswersBeforeRecalled` |
//! | the line that is asked for is recalled | `RecallsWhatIsAsked`; the receiver that asks too early |
//! | a recalled line stays locked | `ForgetsUnlock` |
//! | a recall crosses a request to write a shared copy | `conic_sim::protocol::homed`: `KeepsSharedCopy`, `ForgetsRecall` |
//! | one line too few | `RecallsOneTooFew`; the published layout in `calls` |
//! | both lines of a pair in one unit of the cache | the deadlocks of `explore`, [`conic_interface::pio::Shape::can_deadlock`] |
//! | the order or the number of prefetches counts | `CountsRequests`, `OnlyFirstLineSignals`; deadlocks of groups |
//! | a dropped or late prefetch | `ForgetsPrefetched`; `messages`, where one in eight is dropped |
//! | a prefetcher that fetches the other line | the false signal in `explore`, the alignment in `calls` |
//! | a shared return that costs nothing | the messages of an exchange in `explore` |
//! | a recall that finds nothing is taken for done | `IgnoresCrossingVictim`; `homed`: `DoesNotWaitForVictim` |
//! | the load that follows "try again" is taken for a request | `TakesContinueForRequest`; `messages` |
//! | a line of a response is answered before it is filled, or before the request's is back | `AnswersUnfilled`, `FillsBeforeRecalled` |
//! | a frame is replayed | sequence numbers and contents in `threads` and `messages` |

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod crash;
mod explore;
mod hostile;
mod loom_exchange;
mod messages;
mod threads;
