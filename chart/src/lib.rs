//! Charts as SVG text and in the terminal.
