//! The drawings are parsed as XML and measured.

use roxmltree::{Document, Node};

use super::page::{RADIUS, TEXT_SIZE, TICK_SIZE, TITLE_SIZE};
use crate::text::ems;
use crate::{Axis, Bar, Chart, GuideKind, Point, Series};

const HOSTILE: &str = "</text><script>alert(1)</script> \"a\" & 'b' ]]> <!-- \u{0}\u{1b}[31m \u{fffe} \u{202e} 漢";

fn between(numbers: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    low + numbers.f64() * (high - low)
}

fn parse(svg: &str) -> Document<'_> {
    Document::parse(svg).unwrap_or_else(|e| panic!("{e}\n{svg}"))
}

fn has_class(node: &Node, class: &str) -> bool {
    node.attribute("class").is_some_and(|all| all.split(' ').any(|c| c == class))
}

fn classed<'a>(document: &'a Document, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(move |n| has_class(n, class))
}

fn number(node: &Node, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("no {name} in {node:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name}={text:?}"))
}

/// Left, right, top, bottom of all grid lines: the plot area.
fn plot(document: &Document) -> (f64, f64, f64, f64) {
    let mut area = (f64::MAX, f64::MIN, f64::MAX, f64::MIN);
    for line in classed(document, "grid") {
        for (x, y) in [("x1", "y1"), ("x2", "y2")] {
            let (x, y) = (number(&line, x), number(&line, y));
            area = (area.0.min(x), area.1.max(x), area.2.min(y), area.3.max(y));
        }
    }
    assert!(area.0 < area.1 && area.2 < area.3, "no grid");
    area
}

/// Centres of all points, in drawing order.
fn places(document: &Document) -> Vec<(f64, f64)> {
    classed(document, "hit").map(|r| (number(&r, "x") + 8.0, number(&r, "y") + 8.0)).collect()
}

fn pairs(points: &str) -> Vec<(f64, f64)> {
    let pair = |p: &str| {
        let (x, y) = p.split_once(',').expect("a pair");
        (x.parse().expect("a number"), y.parse().expect("a number"))
    };
    points.split(' ').map(pair).collect()
}

/// Left and right end of a text, estimated.
fn ends(text: &Node) -> (f64, f64) {
    let bold = ["title", "name", "strong"].iter().any(|c| has_class(text, c));
    let size = match text.attribute("class") {
        Some("title") => TITLE_SIZE,
        Some("tick") => TICK_SIZE,
        _ => TEXT_SIZE,
    };
    let width = ems(text.text().unwrap_or("")) * size * if bold { 1.06 } else { 1.0 };
    let x = number(text, "x");
    match text.attribute("text-anchor") {
        Some("end") => (x - width, x),
        Some("middle") => (x - width / 2.0, x + width / 2.0),
        _ => (x, x + width),
    }
}

fn check_ticks_apart(document: &Document, context: &str) {
    let ticks: Vec<Node> = classed(document, "tick").collect();
    for (i, a) in ticks.iter().enumerate() {
        for b in &ticks[i + 1..] {
            let ((left, right), (other_left, other_right)) = (ends(a), ends(b));
            let beside = right <= other_left || other_right <= left;
            let above = (number(a, "y") - number(b, "y")).abs() >= TICK_SIZE;
            assert!(beside || above, "{:?} and {:?} overlap: {context}", a.text(), b.text());
        }
    }
}

fn check_inside(document: &Document, context: &str) {
    let (left, right, top, bottom) = plot(document);
    let inside = |(x, y): (f64, f64), by: f64| {
        let fits = x >= left - by && x <= right + by && y >= top - by && y <= bottom + by;
        assert!(fits, "({x}, {y}) is outside {left} {right} {top} {bottom}: {context}");
    };
    for place in places(document) {
        inside(place, 0.02);
    }
    for node in document.descendants().filter(|n| n.is_element()) {
        // The samples in a legend belong to no series with points.
        if has_class(&node, "line") && node.parent().is_some_and(|g| g.descendants().any(|n| has_class(&n, "hit"))) {
            pairs(node.attribute("points").expect("points")).into_iter().for_each(|p| inside(p, 0.02));
        }
        let of_point = node.parent().is_some_and(|g| g.children().any(|c| has_class(&c, "hit")));
        if node.tag_name().name() == "polygon" && of_point {
            pairs(node.attribute("points").expect("points")).into_iter().for_each(|p| inside(p, RADIUS * 1.4));
        }
        if has_class(&node, "spread") {
            inside((number(&node, "x1"), number(&node, "y1")), RADIUS);
            inside((number(&node, "x2"), number(&node, "y2")), RADIUS);
        }
    }
}

fn check_texts_on_sheet(document: &Document, context: &str) {
    let width = number(&document.root_element(), "width");
    for text in document.descendants().filter(|n| n.tag_name().name() == "text") {
        let (left, right) = ends(&text);
        assert!(left >= -0.1 && right <= width + 0.1, "{:?} leaves the sheet: {context}", text.text());
    }
}

#[test]
fn hostile_texts_stay_texts() {
    let bars = [Bar::new(HOSTILE, 3.0).annotation(HOSTILE).hollow(true), Bar::new(HOSTILE, f64::NAN)];
    let charts = [
        Chart::xy(HOSTILE, Axis::linear(HOSTILE, HOSTILE), Axis::log(HOSTILE, HOSTILE))
            .guide(GuideKind::Y(2.0), HOSTILE)
            .series(Series::line(HOSTILE, [Point::new(1.0, 2.0).note(HOSTILE).hollow(true), Point::new(2.0, 3.0)])),
        Chart::bars(HOSTILE, Axis::linear(HOSTILE, HOSTILE), bars).guide(GuideKind::X(1.0), HOSTILE),
        Chart::xy(HOSTILE, Axis::linear("", ""), Axis::linear("", "")),
    ];
    for chart in charts {
        let svg = chart.note(HOSTILE).hollow_means(HOSTILE).to_svg();
        let document = parse(&svg);
        let allowed = ["svg", "title", "desc", "style", "rect", "g", "text", "line", "polyline", "polygon", "circle"];
        for node in document.descendants().filter(|n| n.is_element()) {
            assert!(allowed.contains(&node.tag_name().name()), "{node:?}");
        }
        assert!(!document.descendants().any(|n| n.is_comment()));
        let title = document.root_element().first_element_child().expect("a title");
        assert_eq!(title.text().map(|t| t.starts_with("</text><script>alert(1)</script>")), Some(true));
    }
}

#[test]
fn a_chart_without_a_drawable_value_says_no_data() {
    let nothing: [(f64, f64); 0] = [];
    let xy = || Chart::xy("t", Axis::linear("", ""), Axis::log("", ""));
    let charts = [
        xy(),
        xy().series(Series::line("a", nothing)),
        xy().series(Series::line("a", [(f64::NAN, 1.0), (1.0, 0.0), (f64::INFINITY, 2.0), (3.0, -1.0)])),
        Chart::bars("t", Axis::linear("", ""), []),
        Chart::bars("t", Axis::log("", ""), [Bar::new("a", 0.0), Bar::new("b", f64::NAN)]),
    ];
    for chart in charts {
        let svg = chart.to_svg();
        assert!(parse(&svg).descendants().any(|n| n.text() == Some("no data")), "{chart:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let points = [(1.0, 5.0), (2.0, f64::NAN), (3.0, f64::NEG_INFINITY), (99.0, 5.0)];
    let chart = Chart::xy("t", Axis::linear("", "").range(0.0, 10.0), Axis::linear("", ""));
    let svg = chart.series(Series::line("a", points)).to_svg();
    let document = parse(&svg);
    assert!(document.descendants().any(|n| n.text().is_some_and(|t| t.starts_with("3 points not drawn"))));
    assert_eq!(places(&document).len(), 1);
}

#[test]
fn marks_stay_in_the_plot_and_tick_labels_apart_whatever_the_data() {
    let mut numbers = fastrand::Rng::with_seed(1);
    for case in 0..300 {
        let power = between(&mut numbers, -8.0, 11.0).round();
        let spread = between(&mut numbers, -3.0, 4.0);
        let axis = |kind: u64| match kind {
            0 => Axis::linear("axis", "ns"),
            1 => Axis::log("axis", "ns"),
            _ => Axis::tail("axis"),
        };
        let (x, y) = (axis(case % 3), axis(case / 3 % 2));
        let points: Vec<Point> = (0..=case % 50)
            .map(|_| {
                let value = |n: &mut fastrand::Rng| 10f64.powf(power) * (1.0 + n.f64() * 10f64.powf(spread));
                let place = if case % 3 == 2 { between(&mut numbers, 0.0, 99.99) } else { value(&mut numbers) };
                let height = value(&mut numbers);
                Point::new(place, height).y_spread(height * 0.5, height * 2.0).hollow(numbers.f64() < 0.2)
            })
            .collect();
        let series = (0..1 + case % 9).map(|i| Series::line(format!("series {i}"), points.clone()));
        let mut chart = Chart::xy("A title that is long enough to be broken on small sheets", x, y);
        if case % 4 == 0 {
            // Most points lie outside of this range.
            let (low, high) = (10f64.powf(power), 10f64.powf(power) * 1.5);
            chart.body = match chart.body {
                crate::Body::Xy { x, y, series } => crate::Body::Xy { x, y: y.range(low, high), series },
                bars => bars,
            };
        }
        let chart = series.fold(chart, Chart::series);
        let (width, height) = [(800, 450), (240, 240), (400, 900), (1600, 300)][(case % 4) as usize];
        let svg = chart.to_svg_sized(width, height);
        let context = format!("case {case}, {width} by {height}");
        let document = parse(&svg);
        if svg.contains("no data") {
            continue;
        }
        check_ticks_apart(&document, &context);
        check_texts_on_sheet(&document, &context);
        if classed(&document, "grid").count() >= 2 {
            check_inside(&document, &context);
        }
    }
}

#[test]
fn larger_values_lie_further_right_and_higher() {
    let values = [0.5, 1.0, 3.0, 10.0, 42.0, 90.0, 99.0];
    for axis in [Axis::linear("", ""), Axis::log("", ""), Axis::tail("")] {
        let chart = Chart::xy("t", axis.clone(), axis);
        let svg = chart.series(Series::scatter("a", values.map(|v| (v, v)))).to_svg();
        let places = places(&parse(&svg));
        assert_eq!(places.len(), values.len());
        for pair in places.windows(2) {
            assert!(pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1, "{pair:?}");
        }
    }
    let log = Chart::xy("t", Axis::log("", ""), Axis::log("", ""));
    let svg = log.series(Series::scatter("a", [(1.0, 1.0), (10.0, 1.0), (100.0, 1.0)])).to_svg();
    let at = places(&parse(&svg));
    assert!(((at[1].0 - at[0].0) - (at[2].0 - at[1].0)).abs() < 0.03, "equal ratios are equal steps: {at:?}");
}

#[test]
fn bars_are_as_long_as_their_values_and_keep_to_the_sheet() {
    let long = "a text that is far longer than a bar chart of any sensible width could ever hold beside its bars";
    let values = [10.0, 20.0, 40.0, 5.0];
    let bars = values.map(|v| Bar::new(long, v).annotation(long).spread(v * 0.9, v * 1.1));
    let chart = Chart::bars("t", Axis::linear("Rate", "Mpps"), bars).guide(GuideKind::X(15.0), long);
    for (width, height) in [(800, 450), (240, 240), (2000, 300)] {
        let svg = chart.to_svg_sized(width, height);
        let document = parse(&svg);
        let lengths: Vec<f64> = classed(&document, "mark").map(|r| number(&r, "width")).collect();
        for (value, length) in values.iter().zip(&lengths) {
            assert!((length / lengths[2] - value / 40.0).abs() < 0.01, "{lengths:?}");
        }
        let context = format!("{width} by {height}");
        check_texts_on_sheet(&document, &context);
        check_ticks_apart(&document, &context);
        let (left, right, ..) = plot(&document);
        for bar in classed(&document, "mark") {
            let x = number(&bar, "x");
            assert!(x >= left - 0.1 && x + number(&bar, "width") <= right + 0.1, "{context}");
        }
    }
}

#[test]
fn a_reference_line_runs_below_the_values_of_bars() {
    let bars = [Bar::new("a", 10.0), Bar::new("b", 8.0)];
    let svg = Chart::bars("t", Axis::linear("", ""), bars).guide(GuideKind::X(8.5), "limit").to_svg();
    let guide = svg.find("class=\"guide\"").expect("a guide");
    assert!(guide < svg.find(">8.00<").expect("a value"));
}

#[test]
fn the_legend_shows_hollow_values_as_they_are_drawn() {
    let chart = |axis| Chart::bars("t", axis, [Bar::new("a", 10.0).hollow(true)]).hollow_means("guessed");
    for (axis, shape) in [(Axis::linear("", ""), "rect"), (Axis::log("", ""), "circle")] {
        let svg = chart(axis).to_svg();
        let document = parse(&svg);
        let shapes: Vec<&str> = classed(&document, "hollow").map(|n| n.tag_name().name()).collect();
        assert_eq!(shapes, [shape, shape]);
    }
}
