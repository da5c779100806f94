//! The software NIC, checked: one program, because what its tests share is then compiled once.
//!
//! | files | what they check |
//! |---|---|
//! | `path` | one queue pair and one port: what passes, and what is counted |
//! | `address`, `switch`, `shares`, `offload`, `rest`, `wiring` | the switch of one thread: who is where, who gets what, fair shares, offloads, queues at rest, wiring |
//! | `join`, `leaving`, `counted` | clients that come and go, and what is counted of them |
//! | `comings` | ports that come and go |
//! | `forwarded` | ports that forward by themselves |
//! | `stray` | frames for stations that nobody is known to have |
//! | `threads`, `between`, `held`, `parts` | a network of several threads |
//! | `burst` | frames of one burst, each by itself |
//! | `loom_sleep` | going to sleep and being woken, every schedule |
//! | `support` | clients, ports and threads that a test plays |

mod address;
mod between;
mod burst;
mod comings;
mod counted;
mod forwarded;
mod held;
mod join;
mod leaving;
mod loom_sleep;
mod offload;
mod parts;
mod path;
mod rest;
mod shares;
mod stray;
mod support;
mod switch;
mod threads;
mod wiring;
