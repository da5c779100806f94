//! The seam over real shared memory and real cores.
