//! The store, checked: one program, because what its tests share is then compiled once.
//!
//! | file | what it checks |
//! |---|---|
//! | `store` | the index alone |
//! | `served` | a store behind every interface, with each of its switches |
//! | `threads` | servers on threads of their own, that share a store |
//! | `clients` | that clients find out stores that do wrong |
//! | `misses` | what a modelled core is told of loads that wait for each other |
//! | `overlay` | a store behind an overlay |

mod clients;
mod misses;
mod overlay;
mod served;
mod store;
mod threads;
