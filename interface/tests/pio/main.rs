//! Coherent programmed I/O: its protocol explored, and its halves in every world.

mod explore;
