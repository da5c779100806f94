//! What programs in C link to: `libconic`, declared in `conic.h`, which cbindgen writes from these sources.
//!
//! | file | what is there |
//! |---|---|
//! | `status` | what went wrong |
//! | `options` | what a client wants |
//! | `client` | attaching, detaching, the link |
//! | `queue` | the burst calls of CC-NIC's Figure 5, as C sees them |
//! | `burst` | what lies behind them |
//! | `wait` | waiting for packets, as C sees it |
//! | `alarm` | the descriptor that a program waits on |
//! | `regions` | regions of daemons that are gone, in which the program still holds buffers |
//! | `memory` | reading what a C program points at, and writing there |
//!
//! A panic in a function that C calls ends the process: it is a mistake of the library, and nothing unwinds into C.

// What each pointer must be stands in the functions' comments and in the header's introduction, for people who write C.
#![allow(clippy::missing_safety_doc)]

mod alarm;
mod burst;
mod client;
mod memory;
mod options;
mod queue;
mod regions;
mod status;
mod wait;
