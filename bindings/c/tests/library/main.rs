//! The library as programs meet it: the header, the examples, the interface's promises, the Python module.

mod common;
mod examples;
mod header;
mod python;
