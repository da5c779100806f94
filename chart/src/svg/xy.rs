//! Points and lines on two axes.

use super::labels::{Label, Rect, along, find_place};
use super::page::{Key, MARGIN, Page, RADIUS, TEXT_SIZE, TICK_SIZE, dashes};
use crate::model::{Chart, GuideKind, Mark};
use crate::plan::{Place, PlannedGuide, PlannedSeries, XyPlan, left_out_text, point_text};
use crate::scale::{Tick, Ticks};
use crate::text::ems;

/// Lines with more points than this get a mark only at some, so that the line stays visible.
const MARKS_ON_ALL: usize = 40;
/// Marks on such a line.
const MARKS_ON_LONG: usize = 12;
/// Series beyond this number are named in a legend.
const MOST_DIRECT: usize = 6;

/// Where the plot lies, and its ticks.
struct Layout {
    plot: Rect,
    x: Ticks,
    y: Ticks,
    heading_y: f64,
}

impl Layout {
    fn new(plan: &XyPlan, top: f64, width: f64, height: f64) -> Layout {
        let heading_y = top + 10.0 + TEXT_SIZE * 0.8;
        let note = if plan.left_out > 0 { 18.0 } else { 0.0 };
        let bottom = (height - MARGIN - 2.0 * TEXT_SIZE - 14.0 - note).max(heading_y + 60.0);
        let top = heading_y + 10.0;
        let most = ((bottom - top) / 34.0) as usize;
        let y = plan.y.fitting_ticks(most, |ticks| apart(ticks, bottom - top, TICK_SIZE * 1.6, |_| 0.0));
        let widest = y.major.iter().map(|t| tick_width(&t.label)).fold(0.0, f64::max);
        let left = MARGIN + widest + 8.0;
        // Half of the last label may reach beyond the plot.
        let right = width - MARGIN - 14.0;
        let x = plan.x.fitting_ticks(12, |ticks| apart(ticks, right - left, 14.0, |t| tick_width(&t.label)));
        let plot = Rect { left, top, right, bottom };
        Layout { plot, x, y, heading_y }
    }

    fn at(&self, place: Place) -> (f64, f64) {
        let p = &self.plot;
        (p.left + place.0 * p.width(), p.bottom - place.1 * p.height())
    }

    fn all(&self, places: &[Place]) -> Vec<(f64, f64)> {
        places.iter().map(|p| self.at(*p)).collect()
    }
}

pub(crate) fn tick_width(label: &str) -> f64 {
    ems(label) * TICK_SIZE
}

/// True if neighbouring labels of the given widths, centred on their ticks, keep `gap` between them.
pub(crate) fn apart(ticks: &[Tick], length: f64, gap: f64, width: impl Fn(&Tick) -> f64) -> bool {
    ticks.windows(2).all(|pair| (pair[1].at - pair[0].at) * length >= (width(&pair[0]) + width(&pair[1])) / 2.0 + gap)
}

pub(super) fn draw(chart: &Chart, plan: &XyPlan, width: f64, height: f64) -> String {
    // First try: no legend but for hollow points, names beside the lines.
    let mut keys = Vec::new();
    if plan.has_hollow() && !chart.hollow_means.is_empty() {
        keys.push((Key::Hollow, chart.hollow_means.clone()));
    }
    let mut page = Page::new(width);
    let top = page.header(chart, &keys);
    let mut layout = Layout::new(plan, top, width, height);
    let mut guides = guide_labels(plan, &layout);
    let names = direct_labels(plan, &layout, &guides);
    if names.is_none() {
        let of = |(i, s): (usize, &PlannedSeries)| (Key::Series(i, s.mark), legend_name(s));
        let mut all: Vec<_> = plan.series.iter().enumerate().map(of).collect();
        all.retain(|(_, name)| !name.is_empty());
        all.append(&mut keys);
        page = Page::new(width);
        let top = page.header(chart, &all);
        layout = Layout::new(plan, top, width, height);
        guides = guide_labels(plan, &layout);
    }
    let height = height.max(layout.plot.bottom + 60.0);
    axes(&mut page, plan, &layout);
    for guide in &plan.guides {
        page.path(&layout.all(&guide.places), "guide", "");
    }
    for (index, series) in plan.series.iter().enumerate() {
        draw_series(&mut page, chart, plan, &layout, index, series);
    }
    for (guide, label) in plan.guides.iter().zip(&guides) {
        if let Some(label) = label {
            page.text(label.x, label.y, "note halo", "start", &guide.guide.label);
        }
    }
    for (index, label) in names.iter().flatten().enumerate() {
        page.open_series(index);
        page.text(label.x, label.y, "name halo", "start", plan.series[index].name);
        page.close();
    }
    if let Some(text) = left_out_text(plan.left_out, "point") {
        page.text(MARGIN, height - MARGIN + 4.0, "note", "start", &text);
    }
    page.finish(chart, height, &describe(plan))
}

fn legend_name(series: &PlannedSeries) -> String {
    match series.points.is_empty() {
        true => format!("{} (no data)", series.name),
        false => series.name.to_string(),
    }
}

fn axes(page: &mut Page, plan: &XyPlan, layout: &Layout) {
    let Rect { left, top, right, bottom } = layout.plot;
    for tick in &layout.y.major {
        let y = bottom - tick.at * layout.plot.height();
        page.line((left, y), (right, y), "grid");
        page.text(left - 8.0, y + TICK_SIZE * 0.35, "tick", "end", &tick.label);
    }
    for at in &layout.y.minor {
        let y = bottom - at * layout.plot.height();
        page.line((left - 3.0, y), (left, y), "frame");
    }
    for tick in &layout.x.major {
        let x = left + tick.at * layout.plot.width();
        page.line((x, top), (x, bottom), "grid");
        page.line((x, bottom), (x, bottom + 5.0), "frame");
        page.text(x, bottom + 5.0 + TICK_SIZE * 1.1, "tick", "middle", &tick.label);
    }
    for at in &layout.x.minor {
        let x = left + at * layout.plot.width();
        page.line((x, bottom), (x, bottom + 3.0), "frame");
    }
    page.line((left, top), (left, bottom), "frame");
    page.line((left, bottom), (right, bottom), "frame");
    let room = |s: &str| ems(s) * TEXT_SIZE <= page.width - 2.0 * MARGIN;
    let y_heading = crate::text::cut(&plan.y_axis.heading(), "…", room);
    let x_heading = crate::text::cut(&plan.x_axis.heading(), "…", room);
    page.text(MARGIN, layout.heading_y, "axis", "start", &y_heading);
    let under = bottom + 5.0 + TICK_SIZE * 1.1 + TEXT_SIZE * 1.5;
    page.text(right, under, "axis", "end", &x_heading);
}

fn draw_series(page: &mut Page, chart: &Chart, plan: &XyPlan, layout: &Layout, index: usize, series: &PlannedSeries) {
    page.open_series(index);
    for stroke in &series.strokes {
        let dashes = if stroke.dashed { "4 5" } else { dashes(index) };
        page.path(&layout.all(&stroke.places), "line", dashes);
    }
    for placed in &series.points {
        let (x, y) = layout.at(placed.at);
        if let Some((low, high)) = placed.y_spread {
            let (low, high) = (layout.at((0.0, low)).1, layout.at((0.0, high)).1);
            page.line((x, low), (x, high), "spread");
            page.line((x - 3.0, low), (x + 3.0, low), "spread");
            page.line((x - 3.0, high), (x + 3.0, high), "spread");
        }
        if let Some((low, high)) = placed.x_spread {
            let (low, high) = (layout.at((low, 0.0)).0, layout.at((high, 0.0)).0);
            page.line((low, y), (high, y), "spread");
            page.line((low, y - 3.0), (low, y + 3.0), "spread");
            page.line((high, y - 3.0), (high, y + 3.0), "spread");
        }
    }
    let count = series.points.len();
    let marked = |i: usize| match series.mark {
        Mark::Line if count > MARKS_ON_ALL => i + 1 == count || i.is_multiple_of(count.div_ceil(MARKS_ON_LONG)),
        _ => true,
    };
    for (i, placed) in series.points.iter().enumerate() {
        let at = layout.at(placed.at);
        let hollow = &chart.hollow_means;
        page.open_titled(&point_text(series.name, placed.point, plan.x_axis, plan.y_axis, hollow));
        page.rectangle(at.0 - 8.0, at.1 - 8.0, 16.0, 16.0, "hit");
        if marked(i) {
            page.mark(index, series.mark, at, placed.point.hollow);
        }
        page.close();
    }
    page.close();
}

/// Everything drawn that a text must not cover.
fn obstacles(plan: &XyPlan, layout: &Layout) -> Vec<Rect> {
    let mut found = Vec::new();
    for series in &plan.series {
        for stroke in &series.strokes {
            found.extend(along(&layout.all(&stroke.places)));
        }
        for placed in &series.points {
            let (x, y) = layout.at(placed.at);
            found.push(Rect::around((x, y), RADIUS + 1.5));
            if let Some((low, high)) = placed.y_spread {
                found.extend(along(&[(x, layout.at((0.0, low)).1), (x, layout.at((0.0, high)).1)]));
            }
            if let Some((low, high)) = placed.x_spread {
                found.extend(along(&[(layout.at((low, 0.0)).0, y), (layout.at((high, 0.0)).0, y)]));
            }
        }
    }
    found
}

/// Places for the texts of the reference lines, beside their ends; a text without a place is not drawn.
fn guide_labels(plan: &XyPlan, layout: &Layout) -> Vec<Option<Label>> {
    let mut taken = obstacles(plan, layout);
    let lines: Vec<Vec<(f64, f64)>> = plan.guides.iter().map(|g| layout.all(&g.places)).collect();
    taken.extend(lines.iter().flat_map(|l| along(l)));
    let mut labels = Vec::new();
    for (guide, line) in plan.guides.iter().zip(&lines) {
        let label = find_place(&guide.guide.label, &guide_anchors(guide, line), &layout.plot, &taken);
        let label = label.filter(|_| !guide.guide.label.is_empty());
        taken.extend(label.iter().map(|l| l.area));
        labels.push(label);
    }
    labels
}

/// Points along a reference line, in the order in which its text should try them.
fn guide_anchors(guide: &PlannedGuide, line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (line.first(), line.last()) else {
        return Vec::new();
    };
    let between = |t: f64| (first.0 + t * (last.0 - first.0), first.1 + t * (last.1 - first.1));
    match guide.guide.kind {
        GuideKind::Ratio(_) => line.iter().rev().copied().collect(),
        _ => (0..=24).map(|i| between(1.0 - i as f64 / 24.0)).collect(),
    }
}

/// Places for all names, or `None` if one of them has no room.
fn direct_labels(plan: &XyPlan, layout: &Layout, guides: &[Option<Label>]) -> Option<Vec<Label>> {
    if plan.series.len() > MOST_DIRECT {
        return None;
    }
    let mut taken = obstacles(plan, layout);
    taken.extend(plan.guides.iter().flat_map(|g| along(&layout.all(&g.places))));
    taken.extend(guides.iter().flatten().map(|l| l.area));
    let mut labels = Vec::new();
    for series in &plan.series {
        if series.points.is_empty() {
            return None;
        }
        let anchors: Vec<_> = series.points.iter().rev().map(|p| layout.at(p.at)).collect();
        let label = find_place(series.name, &anchors, &layout.plot, &taken)?;
        taken.push(label.area);
        labels.push(label);
    }
    Some(labels)
}

/// The chart in words, for those who do not see it.
fn describe(plan: &XyPlan) -> String {
    let mut text = format!("Horizontal axis: {}. Vertical axis: {}.", plan.x_axis.heading(), plan.y_axis.heading());
    for series in &plan.series {
        let count = series.points.len();
        let plural = if count == 1 { "" } else { "s" };
        text.push_str(&format!(" {}: {count} point{plural}", series.name));
        if let (Some(first), Some(last)) = (series.points.first(), series.points.last()) {
            let of = |p: &crate::plan::Placed| {
                point_text("", p.point, plan.x_axis, plan.y_axis, "").trim_start_matches(": ").to_string()
            };
            text.push_str(&format!(", from ({}) to ({})", of(first), of(last)));
        }
        text.push('.');
    }
    text
}
