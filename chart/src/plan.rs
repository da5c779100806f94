//! What is drawn where, as shares of the axes (0 to 1, upwards and rightwards). Both drawings start from this.

use crate::format::quantity;
use crate::model::{Axis, Bar, Chart, Guide, GuideKind, Mark, Point, Scale, Series};
use crate::scale::Domain;

/// A place in the plot, both shares from 0 to 1.
pub(crate) type Place = (f64, f64);

/// A chart of points, ready to be drawn.
pub(crate) struct XyPlan<'a> {
    pub x_axis: &'a Axis,
    pub y_axis: &'a Axis,
    pub x: Domain,
    pub y: Domain,
    pub series: Vec<PlannedSeries<'a>>,
    pub guides: Vec<PlannedGuide<'a>>,
    /// Points that have no place on the axes.
    pub left_out: usize,
}

/// One series, ready to be drawn.
pub(crate) struct PlannedSeries<'a> {
    pub name: &'a str,
    pub mark: Mark,
    pub points: Vec<Placed<'a>>,
    pub strokes: Vec<Stroke>,
}

/// One point that has a place.
pub(crate) struct Placed<'a> {
    pub at: Place,
    /// Whisker ends along the horizontal axis.
    pub x_spread: Option<Place>,
    /// Whisker ends along the vertical axis.
    pub y_spread: Option<Place>,
    pub point: &'a Point,
}

/// Joined places, at least two.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub places: Vec<Place>,
    /// One of the joined points is hollow.
    pub dashed: bool,
}

/// A reference line inside the plot.
pub(crate) struct PlannedGuide<'a> {
    pub guide: &'a Guide,
    pub places: Vec<Place>,
}

/// A bar chart, ready to be drawn.
pub(crate) struct BarPlan<'a> {
    pub axis: &'a Axis,
    pub domain: Domain,
    /// Where bars begin.
    pub zero: f64,
    /// Dots instead of bars, because the axis is not linear.
    pub dots: bool,
    pub bars: Vec<PlannedBar<'a>>,
    pub guides: Vec<PlannedGuide<'a>>,
    /// Bars whose value has no place on the axis; their labels are still shown.
    pub left_out: usize,
}

/// One bar; `at` is absent if its value has no place.
pub(crate) struct PlannedBar<'a> {
    pub bar: &'a Bar,
    pub at: Option<f64>,
    pub spread: Option<Place>,
}

impl<'a> XyPlan<'a> {
    /// `None` if no point has a place.
    pub fn new(chart: &'a Chart, x_axis: &'a Axis, y_axis: &'a Axis, series: &'a [Series]) -> Option<Self> {
        let usable = |p: &&Point| x_axis.scale.forward(p.x).is_some() && y_axis.scale.forward(p.y).is_some();
        let points = || series.iter().flat_map(|s| &s.points).filter(usable);
        points().next()?;
        let ends = |spread: Option<(f64, f64)>| spread.map_or([f64::NAN; 2], |(a, b)| [a, b]);
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        for p in points() {
            xs.push(p.x);
            xs.extend(ends(p.x_spread));
            ys.push(p.y);
            ys.extend(ends(p.y_spread));
        }
        for guide in &chart.guides {
            match guide.kind {
                GuideKind::X(value) => xs.push(value),
                GuideKind::Y(value) => ys.push(value),
                GuideKind::Ratio(_) => {}
            }
        }
        let x = Domain::over(x_axis, xs.into_iter(), false)?;
        let y = Domain::over(y_axis, ys.into_iter(), false)?;
        let given: usize = series.iter().map(|s| s.points.len()).sum();
        let series: Vec<_> = series.iter().map(|s| plan_series(s, &x, &y)).collect();
        let drawn: usize = series.iter().map(|s| s.points.len()).sum();
        Some(XyPlan { x_axis, y_axis, x, y, series, guides: plan_guides(chart, &x, Some(&y)), left_out: given - drawn })
    }

    /// True if a hollow point is drawn.
    pub fn has_hollow(&self) -> bool {
        let mut points = self.series.iter().flat_map(|s| &s.points);
        points.any(|p| p.point.hollow)
    }
}

impl<'a> BarPlan<'a> {
    /// `None` if no bar has a place.
    pub fn new(chart: &'a Chart, axis: &'a Axis, bars: &'a [Bar]) -> Option<Self> {
        let usable = |v: f64| axis.scale.forward(v).is_some();
        let mut values = Vec::new();
        for bar in bars.iter().filter(|b| usable(b.value)) {
            values.push(bar.value);
            if let Some((low, high)) = bar.spread {
                values.extend([low, high]);
            }
        }
        if values.is_empty() {
            return None;
        }
        for guide in &chart.guides {
            if let GuideKind::X(value) = guide.kind {
                values.push(value);
            }
        }
        let domain = Domain::over(axis, values.into_iter(), axis.scale == Scale::Linear)?;
        let planned: Vec<_> = bars
            .iter()
            .map(|bar| {
                let at = domain.place(bar.value);
                let spread = at.and_then(|_| spread_places(bar.spread, &domain));
                PlannedBar { bar, at, spread }
            })
            .collect();
        Some(BarPlan {
            axis,
            zero: domain.unclipped(0.0).unwrap_or(0.0).clamp(0.0, 1.0),
            dots: axis.scale != Scale::Linear,
            left_out: planned.iter().filter(|b| b.at.is_none()).count(),
            guides: plan_guides(chart, &domain, None),
            bars: planned,
            domain,
        })
    }

    /// True if a hollow bar is drawn.
    pub fn has_hollow(&self) -> bool {
        self.bars.iter().any(|b| b.at.is_some() && b.bar.hollow)
    }
}

/// "1 point not drawn (...)", or nothing.
pub(crate) fn left_out_text(count: usize, what: &str) -> Option<String> {
    let plural = if count == 1 { "" } else { "s" };
    (count > 0).then(|| format!("{count} {what}{plural} not drawn (no place on the axes)"))
}

/// Text for the pointer: the point's values with their units, its spread and its note.
pub(crate) fn point_text(name: &str, point: &Point, x_axis: &Axis, y_axis: &Axis, hollow: &str) -> String {
    let value = |value: f64, spread: Option<(f64, f64)>, axis: &Axis| {
        let digits = if axis.scale == Scale::Tail { format!("{value}%") } else { quantity(value, &axis.unit) };
        match spread {
            Some((low, high)) => {
                format!("{digits} [{}, {}]", quantity(low, ""), quantity(high, ""))
            }
            None => digits,
        }
    };
    let mut text =
        format!("{name}: {}, {}", value(point.x, point.x_spread, x_axis), value(point.y, point.y_spread, y_axis));
    let hollow = if point.hollow { hollow } else { "" };
    for part in [hollow, point.note.as_str()] {
        if !part.is_empty() {
            text.push_str("; ");
            text.push_str(part);
        }
    }
    text
}

fn plan_series<'a>(series: &'a Series, x: &Domain, y: &Domain) -> PlannedSeries<'a> {
    let points = series
        .points
        .iter()
        .filter_map(|point| {
            Some(Placed {
                at: (x.place(point.x)?, y.place(point.y)?),
                x_spread: spread_places(point.x_spread, x),
                y_spread: spread_places(point.y_spread, y),
                point,
            })
        })
        .collect();
    let strokes = match series.mark {
        Mark::Line => strokes(&series.points, x, y),
        Mark::Scatter | Mark::Published => Vec::new(),
    };
    PlannedSeries { name: &series.name, mark: series.mark, points, strokes }
}

/// Both ends of a spread as shares, cut off at the axis' ends; `None` if an end has no place on the scale.
fn spread_places(spread: Option<(f64, f64)>, domain: &Domain) -> Option<Place> {
    let (a, b) = spread?;
    let (a, b) = (domain.unclipped(a)?, domain.unclipped(b)?);
    let (low, high) = (a.min(b).clamp(0.0, 1.0), a.max(b).clamp(0.0, 1.0));
    Some((low, high))
}

/// The line through `points`, clipped to the plot, split where it leaves the plot, where a point has no place on a
/// scale, and where solid changes to dashed.
fn strokes(points: &[Point], x: &Domain, y: &Domain) -> Vec<Stroke> {
    let place = |p: &Point| Some((x.unclipped(p.x)?, y.unclipped(p.y)?));
    let mut strokes: Vec<Stroke> = Vec::new();
    for pair in points.windows(2) {
        let (Some(from), Some(to)) = (place(&pair[0]), place(&pair[1])) else {
            continue;
        };
        let Some((from, to)) = clip(from, to) else {
            continue;
        };
        let dashed = pair[0].hollow || pair[1].hollow;
        match strokes.last_mut() {
            Some(last) if last.dashed == dashed && last.places.last() == Some(&from) => {
                last.places.push(to);
            }
            _ => strokes.push(Stroke { places: vec![from, to], dashed }),
        }
    }
    strokes
}

/// The part of a segment inside the unit square (Liang and Barsky).
fn clip(from: Place, to: Place) -> Option<(Place, Place)> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0f64, 1f64);
    for (slope, room) in [(-dx, from.0), (dx, 1.0 - from.0), (-dy, from.1), (dy, 1.0 - from.1)] {
        if slope == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if slope < 0.0 {
            enter = enter.max(room / slope);
        } else {
            leave = leave.min(room / slope);
        }
    }
    if enter > leave {
        return None;
    }
    // Unclipped ends stay exactly as they are, so that neighbours join.
    let inside = |p: Place| (p.0.clamp(0.0, 1.0), p.1.clamp(0.0, 1.0));
    let along = |t: f64| inside((from.0 + t * dx, from.1 + t * dy));
    let start = if enter == 0.0 { inside(from) } else { along(enter) };
    let end = if leave == 1.0 { inside(to) } else { along(leave) };
    Some((start, end))
}

fn plan_guides<'a>(chart: &'a Chart, x: &Domain, y: Option<&Domain>) -> Vec<PlannedGuide<'a>> {
    let plan = |guide: &'a Guide| {
        let places = match (guide.kind, y) {
            (GuideKind::X(value), _) => x.place(value).map(|at| vec![(at, 0.0), (at, 1.0)]),
            (GuideKind::Y(value), Some(y)) => y.place(value).map(|at| vec![(0.0, at), (1.0, at)]),
            (GuideKind::Ratio(ratio), Some(y)) => ratio_places(ratio, x, y),
            (_, None) => None,
        }?;
        Some(PlannedGuide { guide, places })
    };
    chart.guides.iter().filter_map(plan).collect()
}

/// `y = ratio * x` through the plot, sampled because it bends where the two scales differ.
fn ratio_places(ratio: f64, x: &Domain, y: &Domain) -> Option<Vec<Place>> {
    const SAMPLES: usize = 64;
    let at = |i: usize| {
        let share = i as f64 / SAMPLES as f64;
        Some((share, y.unclipped(ratio * x.value_at(share))?))
    };
    let mut places: Vec<Place> = Vec::new();
    for i in 0..SAMPLES {
        let (Some(from), Some(to)) = (at(i), at(i + 1)) else {
            continue;
        };
        if let Some((from, to)) = clip(from, to) {
            if places.is_empty() {
                places.push(from);
            }
            places.push(to);
        }
    }
    (places.len() >= 2).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strokes_break_at_bad_points_and_where_dashes_begin() {
        let axis = Axis::linear("", "").range(0.0, 10.0);
        let domain = Domain::over(&axis, [1.0].into_iter(), false).expect("a domain");
        let points = [
            Point::new(0.0, 0.0),
            Point::new(5.0, 5.0),
            Point::new(5.0, f64::NAN),
            Point::new(6.0, 5.0),
            Point::new(8.0, 5.0).hollow(true),
            Point::new(9.0, 15.0),
        ];
        let strokes = strokes(&points, &domain, &domain);
        let dashed: Vec<bool> = strokes.iter().map(|s| s.dashed).collect();
        assert_eq!(dashed, [false, true]);
        // The last segment is cut at the upper edge.
        let end = strokes[1].places.last().expect("two places");
        assert!((end.0 - 0.85).abs() < 1e-12 && end.1 == 1.0, "{end:?}");
    }

    #[test]
    fn left_out_points_are_counted() {
        let chart = Chart::xy("", Axis::linear("", ""), Axis::log("", ""))
            .series(Series::line("a", [(1.0, 1.0), (2.0, 0.0), (f64::NAN, 3.0), (4.0, 4.0)]));
        let crate::model::Body::Xy { x, y, series } = &chart.body else { panic!("points") };
        let plan = XyPlan::new(&chart, x, y, series).expect("two points");
        assert_eq!(plan.left_out, 2);
    }
}
