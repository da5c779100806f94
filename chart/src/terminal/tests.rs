//! What every drawing in a terminal must be: of the width that was asked for, and in the characters that were.

use crate::{Axis, Bar, Chart, Mark, Series, TerminalStyle};

const PLAIN: TerminalStyle = TerminalStyle { colour: false, ascii: false };

fn curve() -> Chart {
    let points = |factor: f64| (0..10).map(move |i| (2f64.powi(i), factor * f64::from(i + 1))).collect::<Vec<_>>();
    Chart::xy("rate against window", Axis::log("window", "packets"), Axis::linear("rate", "Mpps"))
        .series(Series::new("ccnic", Mark::Line, points(4.0)))
        .series(Series::new("ring", Mark::Line, points(1.5)))
}

fn bars() -> Chart {
    let bars = [Bar::new("all", 40.0), Bar::new("half", 20.0), Bar::new("\u{1b}[31mred", 10.0)];
    Chart::bars("ablations", Axis::linear("rate", "Mpps"), bars)
}

#[test]
fn no_line_is_wider_nor_the_drawing_higher_than_asked() {
    for chart in [curve(), bars()] {
        for (width, height) in [(40, 12), (80, 24), (133, 40), (200, 60)] {
            let drawn = chart.draw_terminal(width, height, PLAIN);
            assert!(drawn.lines().count() <= height, "{drawn}");
            assert!(drawn.lines().all(|line| line.chars().count() <= width), "{width}:\n{drawn}");
            assert!(!drawn.contains('\u{1b}'), "an escape sequence came through");
        }
    }
}

#[test]
fn ascii_means_ascii_and_series_still_differ() {
    let drawn = curve().draw_terminal(80, 24, TerminalStyle { colour: false, ascii: true });
    assert!(drawn.is_ascii(), "{drawn}");
    assert!(drawn.contains("ccnic") && drawn.contains("ring"), "{drawn}");
    assert!(bars().draw_terminal(80, 24, TerminalStyle { colour: false, ascii: true }).is_ascii());
}

#[test]
fn a_bar_of_half_the_value_has_half_the_blocks() {
    let drawn = bars().draw_terminal(100, 20, PLAIN);
    let blocks = |name: &str| {
        let line = drawn.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name} in\n{drawn}"));
        line.chars().filter(|c| ('\u{2588}'..='\u{258f}').contains(c)).count() as i64
    };
    assert!((blocks("all") - 2 * blocks("half")).abs() <= 2 && blocks("half") > 5, "{drawn}");
}

#[test]
fn nothing_to_draw_says_so() {
    let chart = Chart::xy("t", Axis::linear("x", ""), Axis::linear("y", ""));
    assert!(chart.draw_terminal(80, 24, PLAIN).contains("no data"));
}
