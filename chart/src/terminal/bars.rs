//! Horizontal bars.

use super::heading;
use super::screen::{Plot, Screen};
use super::xy::{horizontal_axis, spread_labels};
use crate::format::significant;
use crate::model::{Bar, Chart};
use crate::plan::{BarPlan, PlannedBar, left_out_text};
use crate::text::{columns, cut, printable};

/// Left parts of a square, from one eighth to all of it.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Screens narrower than this do not show the spread as text.
const SPREAD_WIDTH: usize = 60;

/// The texts beside the bars, one entry a bar, each column padded to one width.
struct Columns {
    labels: Vec<String>,
    values: Vec<String>,
}

pub(super) fn draw(screen: &mut Screen, chart: &Chart, plan: &BarPlan) {
    let top = heading(screen, chart);
    let ascii = screen.style.ascii;
    let mut top = top;
    for guide in plan.guides.iter().filter(|g| !g.guide.label.is_empty()) {
        let sign = if ascii { ':' } else { '┊' };
        let label = printable(&guide.guide.label, ascii);
        screen.text(0, top, &format!("{sign} {label}"), None);
        top += 1;
    }
    if plan.has_hollow() && !chart.hollow_means.is_empty() {
        let sign = match (plan.dots, ascii) {
            (true, true) => 'o',
            (true, false) => '○',
            (false, true) => '=',
            (false, false) => '░',
        };
        let meaning = printable(&chart.hollow_means, ascii);
        screen.text(0, top, &format!("{sign} {meaning}"), None);
        top += 1;
    }
    let shown = plan.bars.len().min(screen.height.saturating_sub(top + 4).max(1));
    let texts = columns_of(&plan.bars, screen.width, ascii);
    let left = texts.labels.iter().map(|l| columns(l)).max().unwrap_or(0) + 2;
    let right = texts.values.iter().map(|v| columns(v)).max().unwrap_or(0) + 1;
    let plot = Plot { left, top, width: screen.width.saturating_sub(left + right).max(8), height: shown };
    let ticks = plan.domain.fitting_ticks(10, |ticks| spread_labels(ticks, &plot, screen.width, ascii).is_some());
    horizontal_axis(screen, &plot, &ticks);
    for row in 0..shown {
        draw_bar(screen, plan, &plot, row, &texts);
    }
    let hidden = plan.bars.len() - shown;
    let mut parts = Vec::new();
    if hidden > 0 {
        parts.push(format!("{hidden} more not shown (too low a screen)"));
    }
    parts.extend(left_out_text(plan.left_out, "bar"));
    parts.push(printable(&plan.axis.heading(), ascii));
    let end = plot.left + plot.width;
    let under = parts.join("   ");
    screen.text(end.saturating_sub(columns(&under)), top + shown + 2, &under, None);
}

/// Labels and values, cut so that a bar keeps at least a third of the screen.
fn columns_of(bars: &[PlannedBar], width: usize, ascii: bool) -> Columns {
    let dots = if ascii { "..." } else { "…" };
    let text = |value: &dyn Fn(&Bar) -> String| -> Vec<String> {
        let texts: Vec<String> = bars.iter().map(|b| printable(&value(b.bar), ascii)).collect();
        let widest = texts.iter().map(|t| columns(t)).max().unwrap_or(0);
        texts.into_iter().map(|t| format!("{}{t}", " ".repeat(widest - columns(&t)))).collect()
    };
    let numbers = text(&|b| significant(b.value, 3));
    let spreads = text(&|b| match b.spread {
        Some((low, high)) => format!("[{}, {}]", significant(low, 3), significant(high, 3)),
        None => String::new(),
    });
    let notes = text(&|b| b.annotation.clone());
    let values: Vec<String> = (0..bars.len())
        .map(|i| {
            let spread = if width < SPREAD_WIDTH { "" } else { spreads[i].as_str() };
            let parts = [numbers[i].as_str(), spread, notes[i].as_str()];
            let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            cut(&parts.join(" "), dots, |s| columns(s) <= width / 3)
        })
        .collect();
    let used = values.iter().map(|v| columns(v)).max().unwrap_or(0);
    let room = width - used - width / 3 - 3;
    let labels = bars.iter().map(|b| cut(&printable(&b.bar.label, ascii), dots, |s| columns(s) <= room)).collect();
    Columns { labels, values }
}

fn draw_bar(screen: &mut Screen, plan: &BarPlan, plot: &Plot, row: usize, texts: &Columns) {
    let ascii = screen.style.ascii;
    let y = plot.top + row;
    let bar = &plan.bars[row];
    let axis = plot.left - 1;
    screen.put(axis, y, if ascii { '|' } else { '│' }, None);
    let label = &texts.labels[row];
    screen.text(axis - 1 - columns(label), y, label, None);
    screen.text(plot.left + plot.width + 1, y, &texts.values[row], None);
    for guide in &plan.guides {
        if let Some((share, _)) = guide.places.first() {
            screen.put(plot.column(*share), y, if ascii { ':' } else { '┊' }, None);
        }
    }
    let Some(at) = bar.at else {
        screen.text(plot.left + 1, y, "not drawn", None);
        return;
    };
    let colour = Some(usize::from(bar.bar.highlight));
    if plan.dots {
        for x in plot.left..plot.column(at) {
            screen.put(x, y, if ascii { '-' } else { '─' }, colour);
        }
        let filled = if ascii { 'O' } else { '●' };
        let hollow = if ascii { 'o' } else { '○' };
        screen.put(plot.column(at), y, if bar.bar.hollow { hollow } else { filled }, colour);
        return;
    }
    fill(screen, plot, y, plan.zero.min(at), plan.zero.max(at), bar.bar.hollow, colour);
}

/// Fills a line of the plot from one share to another, to an eighth of a square at the right end.
fn fill(screen: &mut Screen, plot: &Plot, y: usize, from: f64, to: f64, hollow: bool, colour: Option<usize>) {
    // The centre of a square is where `Plot::column` puts a tick.
    let eighths = |share: f64| ((share * (plot.width - 1) as f64) * 8.0).round() as usize;
    let (start, end) = (eighths(from), eighths(to));
    let first = (start + 4) / 8;
    for square in first..=end / 8 {
        let part = (end - square * 8).min(8);
        let sign = match (screen.style.ascii, hollow) {
            (true, _) if part < 4 => continue,
            (true, true) => '=',
            (true, false) => '#',
            (false, _) if part == 0 => continue,
            (false, true) => '░',
            (false, false) => EIGHTHS[part - 1],
        };
        screen.put(plot.left + square, y, sign, colour);
    }
}
