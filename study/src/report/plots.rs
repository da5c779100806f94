//! The experiments' plots with the published values drawn into them.

use conic_chart::{Chart, GuideKind};

use crate::comparison::{Figure, Row};
use crate::experiment::{Across, Found, Plot};

/// A plot to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The name of its file, without ending.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// The plots of an experiment, each with a line at every published value that belongs into it.
pub fn pictures(found: &Found, rows: &[Row]) -> Vec<Picture> {
    found.findings.plots.iter().map(|plot| Picture { name: plot.name.to_owned(), chart: drawn(plot, rows) }).collect()
}

fn drawn(plot: &Plot, rows: &[Row]) -> Chart {
    let mut chart = plot.chart.clone();
    for reference in &plot.references {
        let published = rows.iter().find(|row| row.id == reference.id).and_then(|row| row.published);
        if let Some(Figure::Exactly(value)) = published {
            let kind = match reference.across {
                Across::X => GuideKind::X(value),
                Across::Y => GuideKind::Y(value),
            };
            chart = chart.guide(kind, format!("published: {}", reference.label));
        }
    }
    chart
}
