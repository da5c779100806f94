//! Points and lines on two axes.

use super::heading;
use super::screen::{Plot, Screen};
use crate::model::{Chart, GuideKind, Mark};
use crate::plan::{PlannedSeries, XyPlan, left_out_text};
use crate::scale::{Tick, Ticks};
use crate::text::{columns, cut, printable};

/// Filled and hollow glyphs of series.
const FILLED: [char; 10] = ['●', '■', '▲', '◆', '▼', '★', '◀', '▶', '♠', '♣'];
const HOLLOW: [char; 10] = ['○', '□', '△', '◇', '▽', '☆', '◁', '▷', '♤', '♧'];
/// Glyphs of published values.
const CROSSES: [char; 3] = ['×', '+', '✱'];
const ASCII_CROSSES: [char; 4] = ['x', '+', '*', '%'];
/// Lines with more points than this show a glyph only at some.
const GLYPHS_ON_ALL: usize = 24;
/// Glyphs on such a line.
const GLYPHS_ON_LONG: usize = 8;

pub(super) fn draw(screen: &mut Screen, chart: &Chart, plan: &XyPlan) {
    let top = heading(screen, chart);
    let top = legend(screen, chart, plan, top);
    let ascii = screen.style.ascii;
    let fits = |s: &str| columns(s) <= screen.width;
    let dots = if ascii { "..." } else { "…" };
    let y_heading = cut(&printable(&plan.y_axis.heading(), ascii), dots, fits);
    let mut x_heading = cut(&printable(&plan.x_axis.heading(), ascii), dots, fits);
    screen.text(0, top, &y_heading, None);
    let top = top + usize::from(!y_heading.is_empty());
    // Below the plot: axis, tick labels, heading.
    let height = screen.height.saturating_sub(top + 3).max(3);
    let y = plan.y.fitting_ticks((height / 3).max(2), |ticks| rows_apart(ticks, height));
    let left = y.major.iter().map(|t| columns(&printable(&t.label, ascii))).max().unwrap_or(0) + 2;
    let plot = Plot { left, top, width: screen.width - left, height };
    let x = plan.x.fitting_ticks(12, |ticks| spread_labels(ticks, &plot, screen.width, ascii).is_some());
    axes(screen, &plot, &x, &y);
    for guide in &plan.guides {
        for pair in guide.places.windows(2) {
            screen.line(&plot, pair[0], pair[1], None, (1, 3));
        }
    }
    for (index, series) in plan.series.iter().enumerate() {
        draw_lines(screen, &plot, index, series);
    }
    // Glyphs come last, so that no line hides a point.
    for (index, series) in plan.series.iter().enumerate() {
        draw_points(screen, &plot, index, glyph_number(plan, index), series);
    }
    guide_labels(screen, &plot, plan);
    if let Some(text) = left_out_text(plan.left_out, "point") {
        let joined = format!("{text}    {x_heading}");
        x_heading = if columns(&joined) <= screen.width { joined } else { text };
    }
    let under = top + height + 2;
    screen.text(screen.width - columns(&x_heading).min(screen.width), under, &x_heading, None);
}

fn rows_apart(ticks: &[Tick], height: usize) -> bool {
    let row = |t: &Tick| (t.at * (height - 1) as f64).round() as i64;
    ticks.windows(2).all(|pair| row(&pair[1]) - row(&pair[0]) >= 2)
}

/// The glyph of a point.
fn glyph(index: usize, mark: Mark, hollow: bool, ascii: bool) -> char {
    match (mark, ascii) {
        (Mark::Published, true) => ASCII_CROSSES[index % ASCII_CROSSES.len()],
        (Mark::Published, false) => CROSSES[index % CROSSES.len()],
        (_, true) => {
            let letter = b'A' + (index % 26) as u8;
            char::from(if hollow { letter.to_ascii_lowercase() } else { letter })
        }
        // A terminal has six colours: a glyph that comes again has another of them.
        (_, false) if hollow => HOLLOW[index % HOLLOW.len()],
        (_, false) => FILLED[index % FILLED.len()],
    }
}

/// Number of a series among those that draw from the same list of glyphs.
fn glyph_number(plan: &XyPlan, index: usize) -> usize {
    let published = |s: &&PlannedSeries| s.mark == Mark::Published;
    match plan.series[index].mark {
        Mark::Published => plan.series[..index].iter().filter(published).count(),
        Mark::Line | Mark::Scatter => index,
    }
}

/// Writes the legend, wrapped; returns the first free line.
fn legend(screen: &mut Screen, chart: &Chart, plan: &XyPlan, top: usize) -> usize {
    let ascii = screen.style.ascii;
    let mut entries: Vec<(String, String, Option<usize>)> = Vec::new();
    for (index, series) in plan.series.iter().enumerate() {
        let missing = if series.points.is_empty() { " (no data)" } else { "" };
        let sign = glyph(glyph_number(plan, index), series.mark, false, ascii).to_string();
        let name = format!("{}{missing}", printable(series.name, ascii));
        if !name.is_empty() {
            entries.push((sign, name, Some(index)));
        }
    }
    if plan.has_hollow() && !chart.hollow_means.is_empty() {
        let sign = if ascii { "a, b, ..." } else { "○" };
        entries.push((sign.to_string(), printable(&chart.hollow_means, ascii), None));
    }
    let (mut x, mut y) = (0, top);
    for (sign, name, colour) in &entries {
        let room = screen.width - columns(sign) - 1;
        let name = cut(name, if ascii { "..." } else { "…" }, |s| columns(s) <= room);
        let length = columns(sign) + 1 + columns(&name);
        if x > 0 && x + length > screen.width {
            (x, y) = (0, y + 1);
        }
        screen.text(x, y, sign, *colour);
        screen.text(x + columns(sign) + 1, y, &name, None);
        x += length + 3;
    }
    if entries.is_empty() { top } else { y + 1 }
}

/// First columns of the tick labels, kept on the screen and apart from each other; `None` if they collide.
pub(super) fn spread_labels(ticks: &[Tick], plot: &Plot, width: usize, ascii: bool) -> Option<Vec<usize>> {
    let mut free = 0;
    let mut starts = Vec::new();
    for tick in ticks {
        let length = columns(&printable(&tick.label, ascii));
        let start = plot.column(tick.at).saturating_sub(length / 2).min(width - length);
        if start < free {
            return None;
        }
        free = start + length + 2;
        starts.push(start);
    }
    Some(starts)
}

fn axes(screen: &mut Screen, plot: &Plot, x: &Ticks, y: &Ticks) {
    let ascii = screen.style.ascii;
    let pick = |plain: char, fine: char| if ascii { plain } else { fine };
    let axis = plot.left - 1;
    for row in plot.top..plot.top + plot.height {
        screen.put(axis, row, pick('|', '│'), None);
    }
    for tick in &y.major {
        let label = printable(&tick.label, ascii);
        let row = plot.row(tick.at);
        screen.text(axis - columns(&label), row, &label, None);
        screen.put(axis, row, pick('+', '┤'), None);
    }
    horizontal_axis(screen, plot, x);
}

/// The line under the plot, its ticks and their labels.
pub(super) fn horizontal_axis(screen: &mut Screen, plot: &Plot, x: &Ticks) {
    let ascii = screen.style.ascii;
    let pick = |plain: char, fine: char| if ascii { plain } else { fine };
    let bottom = plot.top + plot.height;
    screen.put(plot.left - 1, bottom, pick('+', '└'), None);
    for column in plot.left..plot.left + plot.width {
        screen.put(column, bottom, pick('-', '─'), None);
    }
    for tick in &x.major {
        screen.put(plot.column(tick.at), bottom, pick('+', '┬'), None);
    }
    let starts = spread_labels(&x.major, plot, screen.width, ascii).unwrap_or_default();
    for (tick, start) in x.major.iter().zip(starts) {
        screen.text(start, bottom + 1, &printable(&tick.label, ascii), None);
    }
}

fn draw_lines(screen: &mut Screen, plot: &Plot, index: usize, series: &PlannedSeries) {
    for stroke in &series.strokes {
        let pattern = if stroke.dashed { (2, 3) } else { (1, 0) };
        for pair in stroke.places.windows(2) {
            screen.line(plot, pair[0], pair[1], Some(index), pattern);
        }
    }
    for placed in &series.points {
        let (x, y) = placed.at;
        if let Some((low, high)) = placed.y_spread {
            screen.line(plot, (x, low), (x, high), Some(index), (1, 0));
        }
        if let Some((low, high)) = placed.x_spread {
            screen.line(plot, (low, y), (high, y), Some(index), (1, 0));
        }
    }
}

fn draw_points(screen: &mut Screen, plot: &Plot, index: usize, number: usize, series: &PlannedSeries) {
    let count = series.points.len();
    let every = match series.mark {
        Mark::Line if count > GLYPHS_ON_ALL => count.div_ceil(GLYPHS_ON_LONG),
        _ => 1,
    };
    for (i, placed) in series.points.iter().enumerate() {
        if i.is_multiple_of(every) || i + 1 == count {
            let sign = glyph(number, series.mark, placed.point.hollow, screen.style.ascii);
            let (x, y) = placed.at;
            screen.put(plot.column(x), plot.row(y), sign, Some(index));
        }
    }
}

/// Texts of the reference lines, where squares are free beside them.
fn guide_labels(screen: &mut Screen, plot: &Plot, plan: &XyPlan) {
    for guide in &plan.guides {
        let text = printable(&guide.guide.label, screen.style.ascii);
        let length = columns(&text);
        let (Some(first), Some(last)) = (guide.places.first(), guide.places.last()) else {
            continue;
        };
        if length == 0 || length > plot.width {
            continue;
        }
        let ends = |share: f64| (plot.column(share) + 1).min(plot.left + plot.width - length);
        let mut tries: Vec<(usize, usize)> = match guide.guide.kind {
            GuideKind::X(_) => (plot.top..plot.top + plot.height).map(|row| (ends(first.0), row)).collect(),
            GuideKind::Y(_) => {
                let row = plot.row(first.1);
                let columns = (plot.left..=plot.left + plot.width - length).rev();
                columns.flat_map(|x| [(x, row.saturating_sub(1)), (x, row + 1)]).collect()
            }
            GuideKind::Ratio(_) => vec![(ends(last.0), plot.row(last.1)), (ends(first.0), plot.row(first.1))],
        };
        tries.retain(|(_, row)| (plot.top..plot.top + plot.height).contains(row));
        if let Some((x, y)) = tries.into_iter().find(|(x, y)| screen.is_free(*x, *y, length)) {
            screen.text(x, y, &text, None);
        }
    }
}
