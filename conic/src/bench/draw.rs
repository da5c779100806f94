//! Charts on the terminal and in files.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::path::Path;

use conic_chart::{Axis, Bar, Chart, TerminalStyle};

use super::compare::Comparison;
use super::failure::Failure;
use crate::value;

/// Columns that are drawn where the terminal does not say how many it has.
const COLUMNS: usize = 88;

/// Lines of a chart on the terminal.
const LINES: usize = 24;

/// Draws a chart on stdout.
pub fn on_terminal(chart: &Chart) {
    print!("{}", chart.draw_terminal(columns(), LINES, style()));
}

/// Writes charts below one another as one SVG file, and makes its folder.
///
/// # Errors
///
/// If the file cannot be written.
pub fn to_file(charts: &[Chart], path: &Path) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| Failure::failed(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    fs::write(path, stacked(charts)).map_err(cannot)
}

/// The size of each chart of a stack, in pixels.
const SIZE: (u32, u32) = (880, 460);

fn stacked(charts: &[Chart]) -> String {
    if let [chart] = charts {
        return chart.to_svg();
    }
    let (width, height) = SIZE;
    let whole = height * charts.len() as u32;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{whole}\" viewBox=\"0 0 {width} {whole}\">\n"
    );
    for (index, chart) in (0..).zip(charts) {
        // A chart is a whole picture, so that its identifiers and styles stay its own only where viewers nest pictures
        // as the standard says; its position is all that is added.
        let inner = chart.to_svg_sized(width, height);
        svg += &inner.replacen("<svg ", &format!("<svg y=\"{}\" ", index * height), 1);
    }
    svg + "</svg>\n"
}

/// The rates of a comparison as bars, the one that the others are compared with set apart.
pub fn bars(title: impl Into<String>, comparison: &Comparison, note: &str) -> Chart {
    let bars = comparison.rows.iter().enumerate().map(|(index, row)| {
        let bar = Bar::new(row.name.clone(), row.mpps.median).spread(row.mpps.min, row.mpps.max);
        match (index, row.rate_ratio) {
            (0, _) => bar.highlight(),
            (_, Some(ratio)) => bar.annotation(format!("{:+.0}%", 100.0 * (ratio.median - 1.0))),
            _ => bar,
        }
    });
    Chart::bars(title, Axis::linear("Rate", "Mpps"), bars).note(note)
}

fn columns() -> usize {
    value::columns().map_or(COLUMNS, |columns| columns.clamp(60, 120))
}

fn style() -> TerminalStyle {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let unicode = locale.is_none_or(|locale| locale.to_lowercase().replace('-', "").contains("utf8"));
    TerminalStyle { colour: stdout().is_terminal() && !is_set("NO_COLOR") && !dumb, ascii: dumb || !unicode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_are_stacked_in_one_picture() {
        let chart = |title: &str| Chart::bars(title, Axis::linear("Rate", "Mpps"), [Bar::new("a", 1.0)]);
        let svg = stacked(&[chart("first"), chart("second")]);
        assert!(svg.contains("first") && svg.contains("second"));
        assert!(svg.contains("<svg y=\"0\"") && svg.contains(&format!("<svg y=\"{}\"", SIZE.1)));
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
