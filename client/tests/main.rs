//! What a program links to, checked against daemons that are played here, message by message: one program, because what its tests share is
//! then compiled once.
//!
//! | file | what it checks |
//! |---|---|
//! | `queues` | queues and buffers: what is sent and received, and that no buffer is lost |
//! | `played` | a daemon that answers late, goes away, or is older |
//! | `address` | a client has the same address when it attaches again, and may ask for another |
//! | `promiscuous` | a client asks for frames for unknown stations |
//! | `operator` | an operator's connection, and an answer without an end |
//! | `support` | the daemon |

mod address;
mod operator;
mod played;
mod promiscuous;
mod queues;
mod support;
