//! Charts as SVG text and in the terminal, and text tables, for every command and study of the project.
//!
//! One [`Chart`] is drawn by [`Chart::to_svg`] and by [`Chart::draw_terminal`]: same data, same axes, same ticks.
//! Input is never trusted: a value that cannot be placed (NaN, infinite, not positive on a logarithmic axis, outside
//! a fixed range) is left out, and the chart says how many were; a chart without any point says "no data".
//! The same chart always gives the same bytes.

mod format;
mod model;
mod plan;
mod scale;
pub mod sequence;
mod svg;
mod table;
mod terminal;
mod text;

pub use format::{grouped, quantity, si, significant, thousands};
pub use model::{Axis, Bar, Body, Chart, Guide, GuideKind, Mark, Point, Scale, Series};
pub use table::{Align, Cell, Column, Table};
pub use terminal::TerminalStyle;
