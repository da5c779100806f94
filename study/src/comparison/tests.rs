//! What the comparison makes of predictions and of results files, faulty ones too.

use super::*;
use crate::report::summary_lines;

fn number(id: &'static str, value: f64) -> Prediction {
    Prediction { id, value: Some(Value::Number(value)), unit: "ns" }
}

fn entry(id: &str, rest: &str) -> String {
    format!("[[result]]\nid = \"{id}\"\nsource = \"s\"\nabout = \"a\"\n{rest}\n")
}

fn results(entries: &[(&str, &str)]) -> Vec<Published> {
    let text: String = entries.iter().map(|(id, rest)| entry(id, rest)).collect();
    parse(&text).expect("the results are well formed")
}

const NS: &str = "unit = \"ns\"\nrole = \"prediction\"";

#[test]
fn an_error_is_relative_to_what_was_published() {
    let published = results(&[("a", &format!("value = 200.0\n{NS}")), ("b", &format!("value = 50.0\n{NS}"))]);
    let rows = compare(&[number("a", 150.0), number("b", 60.0)], &published, false).expect("units agree");
    assert_eq!(rows[0].error, Some(0.25));
    assert_eq!(rows[1].error, Some(0.2));
}

#[test]
fn a_bound_is_off_by_what_it_is_missed_by() {
    let published = results(&[("low", &format!("at_least = 10.0\n{NS}")), ("high", &format!("at_most = 20.0\n{NS}"))]);
    let of = |low, high| {
        let rows = compare(&[number("low", low), number("high", high)], &published, false).expect("units agree");
        [(rows[0].error, rows[0].agrees()), (rows[1].error, rows[1].agrees())]
    };
    assert_eq!(of(10.0, 20.0), [(Some(0.0), Some(true)), (Some(0.0), Some(true))]);
    assert_eq!(of(5.0, 25.0), [(Some(0.5), Some(false)), (Some(0.25), Some(false))]);
}

#[test]
fn the_summary_counts_values_that_nothing_was_fitted_to() {
    let published = results(&[
        ("fitted", "value = 1.0\nunit = \"ns\"\nrole = \"calibration\""),
        ("a", &format!("value = 100.0\n{NS}")),
        ("b", &format!("value = 100.0\n{NS}")),
        ("c", &format!("value = 100.0\n{NS}")),
        ("later", &format!("value = 100.0\n{NS}")),
        ("bound", &format!("at_least = 10.0\n{NS}")),
        ("says", "holds = true\nunit = \"holds\"\nrole = \"prediction\""),
        ("blind", "unit = \"ns\"\nrole = \"withheld\""),
    ]);
    let predictions = [
        number("fitted", 9.0),
        number("a", 101.0),
        number("b", 130.0),
        number("c", 96.0),
        Prediction { id: "later", value: None, unit: "ns" },
        number("bound", 1.0),
        Prediction { id: "says", value: Some(Value::Holds(true)), unit: "holds" },
        number("blind", 3.0),
        number("ours.alone", 3.0),
    ];
    let rows = compare(&predictions, &published, true).expect("units agree");
    let summary = summary(&rows);
    assert_eq!((summary.counted, summary.unanswered, summary.withheld), (3, 1, 1));
    assert_eq!(summary.median, Some(0.04));
    assert_eq!(summary.worst, Some(("b".to_owned(), 0.3)));
    assert_eq!(summary.beyond_goal, ["b"]);
    assert_eq!((summary.agreeing, summary.disagreeing), ((1, 2), vec!["bound".to_owned()]));
    assert_eq!(rows.last().map(|row| (row.role, row.published)), Some((Role::Unpublished, None)));
}

#[test]
fn the_summary_says_which_calibration_inputs_do_not_come_out() {
    let published = results(&[
        ("near", "value = 100.0\nunit = \"ns\"\nrole = \"calibration\""),
        ("off", "value = 100.0\nunit = \"ns\"\nrole = \"calibration\""),
        ("says", "holds = true\nunit = \"holds\"\nrole = \"calibration\""),
        ("not", "holds = true\nunit = \"holds\"\nrole = \"calibration\""),
        ("open", "value = 100.0\nunit = \"ns\"\nrole = \"calibration\""),
        ("no", &format!("value = 100.0\n{NS}")),
    ]);
    let says = |id, holds| Prediction { id, value: Some(Value::Holds(holds)), unit: "holds" };
    let predictions = [
        number("near", 100.9),
        number("off", 113.0),
        says("says", true),
        says("not", false),
        Prediction { id: "open", value: None, unit: "ns" },
        number("no", 300.0),
    ];
    let summary = summary(&compare(&predictions, &published, true).expect("units agree"));
    let expected = Calibration {
        inputs: 4,
        reproduced: 2,
        worst: Some(("off".to_owned(), 0.13)),
        disagreeing: vec!["not".to_owned()],
    };
    assert_eq!(summary.calibration, expected);
    let lines = summary_lines(&summary);
    let line = "4 calibration inputs: 2 within 1% or hold, largest error 13.0% of off; not not";
    assert!(lines.iter().any(|one| one == line), "{lines:?}");
}

#[test]
fn the_median_of_an_even_number_is_the_mean_of_the_middle_two() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[("a", 0.5)]), Some(0.5));
    assert_eq!(median(&[("a", 0.25), ("b", 0.75), ("c", 0.8), ("d", 9.0)]), Some(0.775));
}

#[test]
fn results_that_are_not_modelled_appear_where_everything_ran() {
    let published = results(&[("x", "value = 3\nunit = \"threads\"\nrole = \"not-modelled\"")]);
    assert_eq!(compare(&[], &published, false), Ok(vec![]));
    let rows = compare(&[], &published, true).expect("there is nothing to disagree about");
    assert_eq!((rows[0].predicted.clone(), rows[0].published), (None, Some(Figure::Exactly(3.0))));
}

#[test]
fn an_indicative_result_has_an_error_that_does_not_count() {
    let published = results(&[
        ("a", "value = 2\nunit = \"ns\"\nrole = \"indicative\""),
        ("b", "value = 2\nunit = \"ns\"\nrole = \"prediction\""),
    ]);
    let rows = compare(&[number("a", 4.0), number("b", 2.2)], &published, true).expect("units agree");
    assert_eq!(rows[0].error, Some(1.0));
    let summary = summary(&rows);
    assert_eq!((summary.counted, summary.beyond_goal.len()), (1, 0));
}

#[test]
fn another_unit_and_a_second_prediction_are_errors() {
    let published = results(&[("a", "value = 1.0\nunit = \"Mpps\"\nrole = \"prediction\"")]);
    let error = compare(&[number("a", 1.0)], &published, false).expect_err("the units differ");
    assert!(error.contains("\"ns\"") && error.contains("\"Mpps\""), "{error}");
    let error = compare(&[number("a", 1.0), number("a", 1.0)], &[], false).expect_err("it is there twice");
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn faults_of_a_results_file_are_told_with_their_place() {
    let cases = [
        (entry("a", "unit = \"ns\"\nrole = \"prediction\""), "a: it has no value"),
        (entry("a", "value = 1.0\nat_most = 2.0\nunit = \"ns\"\nrole = \"prediction\""), "a: it has several"),
        (entry("a", "value = 1.0\nunit = \"ns\"\nrole = \"withheld\""), "a: it is withheld"),
        (entry("a", "value = nan\nunit = \"ns\"\nrole = \"prediction\""), "a: its value"),
        (entry("a", "value = 0\nunit = \"ns\"\nrole = \"prediction\""), "a: its value"),
        (entry("a", "value = 1\nunit = \"ns\"\nrole = \"unpublished\""), "unpublished"),
        (entry("a", "holds = true\nunit = \"ns\"\nrole = \"prediction\""), "a: a statement"),
        (entry("a", "value = 1\nunit = \"ns\"\nrole = \"guess\""), "line 7"),
        (entry("a", "value = 1\nunit = \"ns\"\nrole = \"prediction\"\ncolour = 3"), "colour"),
        (entry("a", "unit = \"ns\"\nrole = \"withheld\"").repeat(2), "two results"),
        ("[[result]]\nid = 3".to_owned(), "line 2"),
        ("[[result".to_owned(), "line 1"),
    ];
    for (text, expected) in cases {
        let error = parse(&text).expect_err("the file is faulty");
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(parse(""), Ok(vec![]));
}
