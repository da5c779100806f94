//! Horizontal bars.

use super::labels::Rect;
use super::page::{Key, MARGIN, Page, TEXT_SIZE, TICK_SIZE};
use super::xy::{apart, tick_width};
use crate::format::{quantity, significant};
use crate::model::{Bar, Chart, Mark};
use crate::plan::{BarPlan, PlannedBar, left_out_text};
use crate::text::{cut, ems};

/// Smallest height of the row of one bar.
const LEAST_ROW: f64 = 20.0;
/// Largest height of the row of one bar.
const MOST_ROW: f64 = 52.0;

pub(super) fn draw(chart: &Chart, plan: &BarPlan, width: f64, height: f64) -> String {
    let mut keys = Vec::new();
    if plan.has_hollow() && !chart.hollow_means.is_empty() {
        let key = if plan.dots { Key::Hollow } else { Key::HollowBar };
        keys.push((key, chart.hollow_means.clone()));
    }
    let mut page = Page::new(width);
    let top = page.header(chart, &keys) + guide_room(plan);
    let under = TICK_SIZE + TEXT_SIZE * 1.5 + 22.0 + if plan.left_out > 0 { 18.0 } else { 0.0 };
    let count = plan.bars.len() as f64;
    let row = ((height - MARGIN - under - top) / count).clamp(LEAST_ROW, MOST_ROW);
    let label_room = 0.35 * width;
    let fits = |s: &str| ems(s) * TEXT_SIZE * 1.06 <= label_room;
    let labels: Vec<String> = plan.bars.iter().map(|b| cut(&b.bar.label, "…", fits)).collect();
    let widest =
        |texts: &mut dyn Iterator<Item = String>| texts.map(|t| ems(&t) * TEXT_SIZE * 1.06).fold(0.0, f64::max);
    let left = MARGIN + widest(&mut labels.iter().cloned()) + 10.0;
    let value_fits = |s: &str| ems(s) * TEXT_SIZE * 1.06 <= 0.25 * width;
    let values: Vec<String> = plan.bars.iter().map(|b| cut(&value_text(b.bar), "…", value_fits)).collect();
    let value_room = widest(&mut values.iter().cloned());
    let plot =
        Rect { left, top, right: (width - MARGIN - value_room - 8.0).max(left + 60.0), bottom: top + row * count };
    let height = plot.bottom + under + MARGIN;
    draw_axis(&mut page, plan, &plot);
    // Below the bars, so that the halo of a value keeps the line off its digits.
    draw_guides(&mut page, plan, &plot);
    for (i, (bar, texts)) in plan.bars.iter().zip(labels.iter().zip(&values)).enumerate() {
        let middle = plot.top + (i as f64 + 0.5) * row;
        draw_bar(&mut page, plan, &plot, bar, texts, middle, row);
    }
    if let Some(text) = left_out_text(plan.left_out, "bar") {
        page.text(MARGIN, height - MARGIN + 4.0, "note", "start", &text);
    }
    page.finish(chart, height, &describe(plan))
}

/// Room above the bars for the texts of the reference lines, one row each.
fn guide_room(plan: &BarPlan) -> f64 {
    let named = plan.guides.iter().filter(|g| !g.guide.label.is_empty());
    6.0 + named.count() as f64 * TEXT_SIZE * 1.4
}

/// "31.2  -23%".
fn value_text(bar: &Bar) -> String {
    let value = significant(bar.value, 3);
    match bar.annotation.is_empty() {
        true => value,
        false => format!("{value}  {}", bar.annotation),
    }
}

fn draw_axis(page: &mut Page, plan: &BarPlan, plot: &Rect) {
    let ticks = plan.domain.fitting_ticks(12, |ticks| apart(ticks, plot.width(), 14.0, |t| tick_width(&t.label)));
    for tick in &ticks.major {
        let x = plot.left + tick.at * plot.width();
        page.line((x, plot.top), (x, plot.bottom), "grid");
        page.line((x, plot.bottom), (x, plot.bottom + 5.0), "frame");
        page.text(x, plot.bottom + 5.0 + TICK_SIZE * 1.1, "tick", "middle", &tick.label);
    }
    for at in &ticks.minor {
        let x = plot.left + at * plot.width();
        page.line((x, plot.bottom), (x, plot.bottom + 3.0), "frame");
    }
    let zero = plot.left + plan.zero * plot.width();
    page.line((plot.left, plot.bottom), (plot.right, plot.bottom), "frame");
    page.line((zero, plot.top), (zero, plot.bottom), "frame");
    let under = plot.bottom + 5.0 + TICK_SIZE * 1.1 + TEXT_SIZE * 1.5;
    let room = |s: &str| ems(s) * TEXT_SIZE <= plot.right - MARGIN;
    let heading = cut(&plan.axis.heading(), "…", room);
    page.text(plot.right, under, "axis", "end", &heading);
}

fn draw_bar(
    page: &mut Page,
    plan: &BarPlan,
    plot: &Rect,
    bar: &PlannedBar,
    (label, value): (&String, &String),
    middle: f64,
    row: f64,
) {
    let strong = if bar.bar.highlight { "label strong" } else { "label" };
    let base = middle + TEXT_SIZE * 0.36;
    page.text(plot.left - 10.0, base, strong, "end", label);
    let Some(at) = bar.at else {
        page.text(plot.left + 8.0, base, "note halo", "start", "not drawn");
        return;
    };
    let place = |share: f64| plot.left + share * plot.width();
    let (zero, end) = (place(plan.zero), place(at));
    let half = (row * 0.31).min(13.0);
    page.open_series(usize::from(bar.bar.highlight));
    page.open_titled(&format!("{}: {}", bar.bar.label, describe_bar(bar.bar, &plan.axis.unit)));
    if plan.dots {
        page.line((place(0.0), middle), (end, middle), "spread");
    } else {
        let class = if bar.bar.hollow { "hollow" } else { "mark" };
        page.rectangle(zero.min(end), middle - half, (end - zero).abs(), 2.0 * half, class);
    }
    let mut beyond = end;
    if let Some((low, high)) = bar.spread {
        let (low, high) = (place(low), place(high));
        page.line((low, middle), (high, middle), "whisker");
        page.line((low, middle - 4.0), (low, middle + 4.0), "whisker");
        page.line((high, middle - 4.0), (high, middle + 4.0), "whisker");
        beyond = beyond.max(high);
    }
    if plan.dots {
        // Above the whisker, which is often no longer than the dot.
        page.mark(0, Mark::Scatter, (end, middle), bar.bar.hollow);
    }
    page.close();
    page.close();
    // A bar to the left has its value on the right of zero, where nothing else is.
    let x = beyond.max(zero) + 8.0;
    page.text(x, base, &format!("{strong} halo"), "start", value);
}

fn draw_guides(page: &mut Page, plan: &BarPlan, plot: &Rect) {
    let mut y = plot.top - 6.0;
    for guide in &plan.guides {
        let Some((share, _)) = guide.places.first() else {
            continue;
        };
        let x = plot.left + share * plot.width();
        let text = &guide.guide.label;
        page.path(&[(x, y), (x, plot.bottom)], "guide", "");
        if text.is_empty() {
            continue;
        }
        let fits = |s: &str| ems(s) * TEXT_SIZE <= page.width - 2.0 * MARGIN;
        let text = cut(text, "…", fits);
        let width = ems(&text) * TEXT_SIZE;
        let left = (x + 4.0).min(page.width - MARGIN - width);
        page.text(left, y, "note halo", "start", &text);
        y -= TEXT_SIZE * 1.4;
    }
}

fn describe_bar(bar: &Bar, unit: &str) -> String {
    let spread = match bar.spread {
        Some((low, high)) => format!(" [{}, {}]", significant(low, 3), significant(high, 3)),
        None => String::new(),
    };
    let value = quantity(bar.value, unit);
    match bar.annotation.is_empty() {
        true => format!("{value}{spread}"),
        false => format!("{value}{spread}, {}", bar.annotation),
    }
}

/// The chart in words, for those who do not see it.
fn describe(plan: &BarPlan) -> String {
    let bars: Vec<String> =
        plan.bars.iter().map(|b| format!("{}: {}", b.bar.label, describe_bar(b.bar, &plan.axis.unit))).collect();
    format!("Bars of {}. {}.", plan.axis.heading(), bars.join("; "))
}
