//! What every SVG must be: well-formed, inside its frame, without a value that is none.

use crate::{Axis, Bar, Chart, Mark, Series};

/// A curve and published points, with every text hostile to XML.
fn hostile() -> Chart {
    let nasty = "<script>&\"'\u{7} ]]>";
    Chart::xy(nasty, Axis::log(nasty, "<ns>"), Axis::linear("rate", "&"))
        .note(nasty)
        .series(Series::new(nasty, Mark::Line, [(1.0, 2.0), (10.0, f64::NAN), (100.0, 5.0), (1000.0, f64::INFINITY)]))
        .series(Series::new("published", Mark::Published, [(5.0, 3.0), (0.0, 1.0)]))
}

/// Checks that tags nest and that text holds no bare markup; gives the elements' names.
fn elements(svg: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        assert!(!rest[..start].contains('>'), "bare > in {:?}", &rest[..start.min(80)]);
        let end = start + rest[start..].find('>').expect("a tag that is closed");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name: String = tag.chars().skip_while(|c| *c == '/').take_while(|c| c.is_alphanumeric()).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "tags nest");
        } else {
            all.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for entity in svg.split('&').skip(1) {
        let name = entity.split(';').next().unwrap_or_default();
        assert!(["lt", "gt", "amp", "quot", "apos"].contains(&name) || name.starts_with('#'), "bare & before {name:?}");
    }
    all
}

/// Every value of an attribute.
fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
    let key = format!(" {attribute}=\"");
    svg.split(&key).skip(1).filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
}

#[test]
fn hostile_text_and_values_give_well_formed_xml_without_them() {
    let svg = hostile().to_svg();
    let names = elements(&svg);
    assert!(!names.iter().any(|name| name == "script"), "{names:?}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(!svg.contains('\u{7}'), "a control character is not XML");
    for needed in ["title", "desc", "style"] {
        assert!(names.iter().any(|name| name == needed), "no <{needed}>");
    }
}

#[test]
fn nothing_to_draw_says_so() {
    let empty = Chart::xy("empty", Axis::log("x", ""), Axis::log("y", ""));
    let bad = empty.clone().series(Series::new("s", Mark::Line, [(f64::NAN, 1.0), (-1.0, 1.0)]));
    for chart in [empty, bad, Chart::bars("bars", Axis::linear("rate", ""), [])] {
        let svg = chart.to_svg();
        elements(&svg);
        assert!(svg.contains("no data"), "{svg}");
    }
}

#[test]
fn all_marks_lie_inside_the_frame_and_in_order() {
    let points: Vec<(f64, f64)> = (0..12).map(|i| (2f64.powi(i), f64::from(i * i) + 1.0)).collect();
    let svg = Chart::xy("t", Axis::log("window", ""), Axis::linear("rate", "Mpps"))
        .series(Series::new("s", Mark::Line, points))
        .to_svg();
    let (x, y) = (numbers(&svg, "cx"), numbers(&svg, "cy"));
    assert!(x.len() >= 12, "a mark for each point: {x:?}");
    assert!(x.iter().all(|x| (0.0..=800.0).contains(x)) && y.iter().all(|y| (0.0..=450.0).contains(y)));
    assert!(x[..12].windows(2).all(|pair| pair[0] < pair[1]), "larger is further right: {x:?}");
    assert!(y[..12].windows(2).all(|pair| pair[0] > pair[1]), "larger is higher: {y:?}");
}

#[test]
fn bars_are_as_long_as_their_values() {
    let bars = [Bar::new("half", 20.0), Bar::new("whole", 40.0)];
    let svg = Chart::bars("b", Axis::linear("rate", "Mpps"), bars).to_svg();
    elements(&svg);
    let widths: Vec<f64> = numbers(&svg, "width").into_iter().filter(|width| *width < 700.0 && *width > 20.0).collect();
    let found = widths.iter().any(|one| widths.iter().any(|other| (one / other - 2.0).abs() < 0.02));
    assert!(found, "no two bars of ratio two in {widths:?}");
}
