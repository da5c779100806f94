//! Charts as lines of text.

mod bars;
mod screen;
#[cfg(test)]
mod tests;
mod xy;

use crate::model::{Body, Chart};
use crate::plan::{BarPlan, XyPlan};
use crate::text::{columns, printable, wrap};
use screen::Screen;

/// What the terminal can show. The caller decides: it knows whether output goes to a terminal, and of NO_COLOR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Use the terminal's own six colours (never black, white or grey, which vanish on some backgrounds).
    /// Without, series still differ by glyph.
    pub colour: bool,
    /// Nothing beyond ASCII: letters for points, dots for lines.
    pub ascii: bool,
}

/// Smallest and largest width in columns.
const WIDTHS: (usize, usize) = (40, 200);
/// Smallest and largest height in lines.
const HEIGHTS: (usize, usize) = (12, 100);

impl Chart {
    /// The chart as at most `height` lines of at most `width` columns, each ended by a newline. `width` is held within
    /// 40 and 200, `height` within 12 and 100.
    pub fn draw_terminal(&self, width: usize, height: usize, style: TerminalStyle) -> String {
        let width = width.clamp(WIDTHS.0, WIDTHS.1);
        let height = height.clamp(HEIGHTS.0, HEIGHTS.1);
        let mut screen = Screen::new(width, height, style);
        let drawn = match &self.body {
            Body::Xy { x, y, series } => XyPlan::new(self, x, y, series).map(|plan| xy::draw(&mut screen, self, &plan)),
            Body::Bars { value, bars } => {
                BarPlan::new(self, value, bars).map(|plan| bars::draw(&mut screen, self, &plan))
            }
        };
        if drawn.is_none() {
            let top = heading(&mut screen, self);
            screen.text((width - 7) / 2, top + 2, "no data", None);
        }
        screen.finish()
    }
}

/// Writes title and note; returns the first free line.
fn heading(screen: &mut Screen, chart: &Chart) -> usize {
    let dots = if screen.style.ascii { "..." } else { "…" };
    let fits = |s: &str| columns(s) <= screen.width;
    // On a low screen the plot needs the lines more.
    let most = if screen.height < 20 { 1 } else { 2 };
    let mut lines = Vec::new();
    for text in [&chart.title, &chart.note] {
        lines.extend(wrap(&printable(text, screen.style.ascii), most, dots, fits));
    }
    for (y, line) in lines.iter().enumerate() {
        screen.text(0, y, line, None);
    }
    lines.len()
}
