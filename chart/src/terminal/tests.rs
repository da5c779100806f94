//! The drawings are read as lines of characters.

use crate::{Axis, Bar, Chart, GuideKind, Point, Series, TerminalStyle};

const HOSTILE: &str = "a\u{1b}[31m\u{7}\r\nb \u{202e}c \u{9b}2J µ — 漢字 é";
const FINE: TerminalStyle = TerminalStyle { colour: false, ascii: false };
const COLOURED: TerminalStyle = TerminalStyle { colour: true, ascii: false };
const PLAIN: TerminalStyle = TerminalStyle { colour: false, ascii: true };

fn curves() -> Chart {
    Chart::xy("A title of some length", Axis::linear("Rate", "Mpps"), Axis::log("Latency", "ns"))
        .note("How it was measured, in more words than a narrow terminal has room for in one line.")
        .hollow_means("saturated")
        .guide(GuideKind::Y(300.0), "limit")
        .series(Series::line("first", [(1.0, 400.0), (20.0, 500.0), (40.0, 4000.0)]))
        .series(Series::line("second", [Point::new(1.0, 900.0), Point::new(10.0, 9000.0).hollow(true)]))
        .series(Series::published("published", [(30.0, 800.0)]))
}

fn bars(axis: Axis) -> Chart {
    let bar = |(i, value): (usize, f64)| {
        Bar::new(format!("bar {i}"), value).annotation(format!("note {i}")).spread(value * 0.9, value * 1.1)
    };
    Chart::bars("Bars", axis, [10.0, 20.0, 40.0, 5.0].into_iter().enumerate().map(bar))
        .guide(GuideKind::X(15.0), "limit")
}

fn hostile() -> [Chart; 3] {
    [
        Chart::xy(HOSTILE, Axis::linear(HOSTILE, HOSTILE), Axis::log(HOSTILE, "µs"))
            .guide(GuideKind::X(1.5), HOSTILE)
            .series(Series::line(HOSTILE, [Point::new(1.0, 2.0).hollow(true), Point::new(2.0, 1e7)])),
        Chart::bars(HOSTILE, Axis::linear(HOSTILE, "µs"), [Bar::new(HOSTILE, 3e-7).annotation(HOSTILE).hollow(true)])
            .guide(GuideKind::X(1e-7), HOSTILE),
        Chart::xy(HOSTILE, Axis::linear("", ""), Axis::linear("", "")),
    ]
    .map(|chart| chart.note(HOSTILE).hollow_means(HOSTILE))
}

/// Without colour codes. Any other escape sequence stays and is found by the tests.
fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split("\u{1b}[");
    out.push_str(parts.next().unwrap_or(""));
    for part in parts {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match digits.strip_prefix('m') {
            Some(rest) => out.push_str(rest),
            None => {
                out.push('\u{1b}');
                out.push_str(part);
            }
        }
    }
    out
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Column of the first `glyph` in the line that contains `marker`.
fn column(text: &str, marker: &str, glyph: char) -> usize {
    let line = text.lines().find(|l| l.contains(marker)).unwrap_or_else(|| panic!("no {marker:?} in\n{text}"));
    line.chars().position(|c| c == glyph).unwrap_or_else(|| panic!("no {glyph:?} in {line:?}"))
}

#[test]
fn drawings_have_exactly_the_asked_width_and_at_most_the_asked_height() {
    for width in [40, 41, 57, 60, 80, 133, 200] {
        for height in [12, 13, 24, 100] {
            for style in [FINE, COLOURED, PLAIN] {
                for chart in [curves(), bars(Axis::linear("Rate", "Mpps")), bars(Axis::log("Time", "ns"))] {
                    let text = without_colours(&chart.draw_terminal(width, height, style));
                    assert_eq!(widest(&text), width, "{style:?}\n{text}");
                    assert!(text.lines().count() <= height, "{height} {style:?}\n{text}");
                    assert!(text.ends_with('\n'));
                }
                for chart in hostile() {
                    let text = without_colours(&chart.draw_terminal(width, height, style));
                    assert!(widest(&text) <= width && text.lines().count() <= height, "{text}");
                }
            }
        }
    }
    assert_eq!(widest(&curves().draw_terminal(0, 0, FINE)), 40);
    assert_eq!(widest(&curves().draw_terminal(usize::MAX, usize::MAX, FINE)), 200);
}

#[test]
fn ascii_drawings_are_ascii_and_no_text_steers_the_terminal() {
    for chart in hostile().into_iter().chain([curves(), bars(Axis::log("", ""))]) {
        for style in [FINE, COLOURED, PLAIN] {
            let text = chart.draw_terminal(80, 24, style);
            assert!(!style.ascii || text.is_ascii(), "{text}");
            let bare = without_colours(&text);
            assert!(bare.chars().all(|c| c == '\n' || !c.is_control()), "{bare:?}");
            assert!(style.colour || bare == text, "colours only if asked");
        }
    }
    assert!(curves().draw_terminal(80, 24, COLOURED).contains("\u{1b}[36m"));
}

#[test]
fn a_chart_without_a_drawable_value_says_no_data() {
    let xy = || Chart::xy("t", Axis::linear("", ""), Axis::log("", ""));
    let charts = [
        xy(),
        xy().series(Series::line("a", [(f64::NAN, 1.0), (1.0, -5.0)])),
        Chart::bars("t", Axis::linear("", ""), []),
        Chart::bars("t", Axis::linear("", ""), [Bar::new("a", f64::INFINITY)]),
    ];
    for chart in charts {
        assert!(chart.draw_terminal(80, 24, PLAIN).contains("no data"), "{chart:?}");
    }
    let some = xy().series(Series::line("a", [(1.0, 1.0), (f64::NAN, 1.0)]));
    assert!(some.draw_terminal(80, 24, PLAIN).contains("1 point not drawn"));
}

#[test]
fn bars_are_as_long_as_their_values() {
    let mut chart = bars(Axis::linear("", ""));
    chart.guides.clear();
    let text = chart.draw_terminal(160, 24, PLAIN);
    let length = |i: usize| {
        let line = text.lines().find(|l| l.contains(&format!("bar {i}"))).expect("a bar");
        line.matches('#').count() as f64
    };
    assert!(length(2) > 60.0, "{text}");
    for (i, value) in [10.0, 20.0, 40.0, 5.0].into_iter().enumerate() {
        assert!((length(i) - length(2) * value / 40.0).abs() <= 1.0, "{text}");
    }
    let labels = text.lines().last().expect("labels");
    let tick = labels.find(" 40 ").expect("a tick at 40") + 2;
    let longest = text.lines().find(|l| l.contains("bar 2")).expect("a bar");
    let end = longest.chars().take(longest.find('#').expect("a bar")).count() + length(2) as usize - 1;
    assert!(end.abs_diff(tick) <= 1, "the bar of 40 ends at the tick of 40\n{text}");
}

#[test]
fn equal_ratios_are_equal_steps_on_a_logarithmic_axis() {
    let values = [1.0, 10.0, 100.0, 1000.0];
    let chart = Chart::bars("t", Axis::log("", ""), values.map(|v| Bar::new(format!("of {v:.0}."), v)));
    let text = chart.draw_terminal(120, 24, PLAIN);
    let columns = values.map(|v| column(&text, &format!("of {v:.0}."), 'O') as i64);
    let steps: Vec<i64> = columns.windows(2).map(|c| c[1] - c[0]).collect();
    assert!(steps.iter().all(|s| *s > 20 && (s - steps[0]).abs() <= 1), "{steps:?}\n{text}");
}

#[test]
fn larger_values_lie_further_right_and_higher() {
    let points = [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0), (4.0, 4.0)];
    let text = Chart::xy("", Axis::linear("", ""), Axis::linear("", ""))
        .series(Series::scatter("", points))
        .draw_terminal(80, 24, PLAIN);
    let columns: Vec<usize> = text.lines().filter_map(|line| line.find('A')).collect();
    assert_eq!(columns.len(), 4, "{text}");
    assert!(columns.windows(2).all(|pair| pair[0] > pair[1]), "{text}");
}

#[test]
fn the_legend_shows_the_signs_that_are_drawn() {
    // Published values have glyphs of their own, counted without the other series.
    let text = curves().draw_terminal(80, 24, PLAIN);
    let legend = text.lines().find(|l| l.contains("published")).expect("a legend");
    assert!(legend.contains("x published"), "{text}");
    assert!(text.lines().filter(|l| l.contains('|')).any(|l| l.contains('x')), "{text}");
    for (axis, style, sign) in [
        (Axis::linear("", ""), PLAIN, '='),
        (Axis::linear("", ""), FINE, '░'),
        (Axis::log("", ""), PLAIN, 'o'),
        (Axis::log("", ""), FINE, '○'),
    ] {
        let chart = Chart::bars("t", axis, [Bar::new("A", 7.0).hollow(true)]).hollow_means("guess");
        let text = chart.draw_terminal(80, 24, style);
        assert!(text.contains(&format!("{sign} guess")), "{text}");
        column(&text, "A ", sign);
    }
}

#[test]
fn tick_labels_keep_two_columns_apart() {
    let widths = (40..200).step_by(7);
    for (i, width) in widths.enumerate() {
        let high = 10f64.powi(i as i32 - 6);
        let text = Chart::xy("", Axis::linear("", ""), Axis::linear("", ""))
            .series(Series::scatter("", [(high * 0.3, 1.0), (high, 2.0)]))
            .draw_terminal(width, 24, PLAIN);
        let labels = text.lines().last().expect("labels");
        let axis = text.lines().rev().nth(1).expect("an axis");
        let ticks = axis.matches('+').count();
        let corner = 1;
        assert_eq!(labels.split("  ").filter(|l| !l.trim().is_empty()).count(), ticks - corner, "{text}");
    }
}

#[test]
fn ten_series_have_ten_glyphs_without_a_colour() {
    let chart = (0..10).fold(Chart::xy("", Axis::linear("x", ""), Axis::linear("y", "")), |chart, number| {
        let at = f64::from(number);
        chart.series(Series::line(format!("series {number}"), [(at, at), (at + 1.0, at)]))
    });
    let text = chart.draw_terminal(100, 40, FINE);
    let mut glyphs: Vec<char> = (0..10)
        .map(|number| {
            let (before, _) = text.split_once(&format!(" series {number}")).expect("it is in the legend");
            before.chars().last().expect("a glyph")
        })
        .collect();
    glyphs.sort_unstable();
    glyphs.dedup();
    assert_eq!(glyphs.len(), 10, "{text}");
}
