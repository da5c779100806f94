//! Charts as self-contained SVG text.

mod bars;
mod labels;
pub(crate) mod page;
#[cfg(test)]
mod tests;
mod xy;

use crate::model::{Body, Chart};
use crate::plan::{BarPlan, XyPlan};
use page::Page;

/// Smallest and largest side of a drawing.
const SIDES: (u32, u32) = (240, 8192);

impl Chart {
    /// The chart as SVG text, 800 by 450 units. See [`Chart::to_svg_sized`].
    pub fn to_svg(&self) -> String {
        self.to_svg_sized(800, 450)
    }

    /// The chart as SVG text of the given size in CSS pixels (both held within 240 and 8192; a bar chart grows in
    /// height if its bars would not fit).
    ///
    /// The text is a complete document that also can be pasted into HTML. It follows the reader's light or dark
    /// preference; a page that has its own switch sets the `--conic-...` variables on `.conic-chart`.
    pub fn to_svg_sized(&self, width: u32, height: u32) -> String {
        let width = f64::from(width.clamp(SIDES.0, SIDES.1));
        let height = f64::from(height.clamp(SIDES.0, SIDES.1));
        let drawn = match &self.body {
            Body::Xy { x, y, series } => {
                XyPlan::new(self, x, y, series).map(|plan| xy::draw(self, &plan, width, height))
            }
            Body::Bars { value, bars } => {
                BarPlan::new(self, value, bars).map(|plan| bars::draw(self, &plan, width, height))
            }
        };
        drawn.unwrap_or_else(|| no_data(self, width, height))
    }
}

fn no_data(chart: &Chart, width: f64, height: f64) -> String {
    let mut page = Page::new(width);
    let top = page.header(chart, &[]);
    page.text(width / 2.0, (top + height) / 2.0, "axis", "middle", "no data");
    page.finish(chart, height, "The chart has no data.")
}
