//! What a study shows: well-formed, complete, the same bytes each time, and nothing fetched from outside.

use crate::common::{Formulas, answered, parameters, setting};
use conic_chart::TerminalStyle;
use conic_study::ask::Answers;
use conic_study::comparison::{Row, Summary, compare, parse, summary};
use conic_study::experiment::{EXPERIMENTS, Effort, Found, Platforms, findings, questions};
use conic_study::report::{self, Report, json, page, pictures, results, summary_lines};
use conic_study::sensitivity::{self, Guess, Moves};
use conic_study::workload::Failure;

const RESULTS: &str = include_str!("../../results/ccnic.toml");

struct Study {
    found: Vec<Found>,
    rows: Vec<Row>,
    summary: Summary,
}

fn study_of(answers: &Answers) -> Study {
    let found = findings(EXPERIMENTS, &setting(Effort::Quick), answers);
    let predictions: Vec<_> = found.iter().flat_map(|found| found.findings.predictions.clone()).collect();
    let rows = compare(&predictions, &parse(RESULTS).expect("the file is well formed"), true).expect("the units agree");
    let summary = summary(&rows);
    Study { found, rows, summary }
}

fn whole() -> Study {
    let setting = setting(Effort::Quick);
    study_of(&answered(|answers| questions(EXPERIMENTS, &setting, answers)))
}

impl Study {
    fn report<'a>(&'a self, moves: Option<&'a Moves>) -> Report<'a> {
        Report {
            subject: conic_study::report::CC_NIC,
            effort: Effort::Quick,
            platforms: vec!["icx".to_owned(), "a <machine> & more".to_owned()],
            found: &self.found,
            rows: &self.rows,
            summary: &self.summary,
            moves,
        }
    }
}

/// The page as XML, which HTML of this form also is.
fn parsed(page: &str) -> roxmltree::Document<'_> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    roxmltree::Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_page_is_well_formed_and_holds_every_result_and_every_plot() {
    let study = whole();
    let page = page(&study.report(None));
    let document = parsed(&page);
    let text: String = document.descendants().filter_map(|node| node.text()).collect();
    for row in &study.rows {
        assert!(text.contains(&row.id), "{} is not on the page", row.id);
    }
    let plots: usize = study.found.iter().map(|found| found.findings.plots.len()).sum();
    let drawn = document.descendants().filter(|node| node.has_tag_name("figure")).count();
    assert_eq!((plots, drawn), (36, 36));
    for bad in ["NaN", "undefined", "Infinity", ">inf"] {
        assert!(!text.contains(bad), "{bad}");
    }
    assert!(text.contains("Quick"), "the page says that it is of little effort");
}

#[test]
fn the_page_asks_nobody_for_anything() {
    let study = whole();
    let page = page(&study.report(None));
    for reference in ["http://", "https://", "//cdn", "src=", "@import", "url(", "<script", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    let targets = parsed(&page);
    for link in targets.descendants().filter_map(|node| node.attribute("href")) {
        let id = link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads outside"));
        assert!(targets.descendants().any(|node| node.attribute("id") == Some(id)), "{link} leads nowhere");
    }
}

#[test]
fn every_plot_is_well_formed_and_has_data() {
    let study = whole();
    for found in &study.found {
        for picture in pictures(found, &study.rows) {
            let svg = picture.chart.to_svg();
            let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{}: {error}", picture.name));
            assert_eq!(document.root_element().tag_name().name(), "svg", "{}", picture.name);
            assert!(!svg.contains("no data") && !svg.contains("NaN"), "{}", picture.name);
        }
    }
}

#[test]
fn a_plot_shows_published_values_and_none_without_them() {
    let study = whole();
    let guides = |rows: &[Row]| {
        let all = study.found.iter().flat_map(|found| pictures(found, rows));
        all.map(|picture| picture.chart.guides.len()).sum::<usize>()
    };
    assert!(guides(&study.rows) >= 10, "{}", guides(&study.rows));
    assert_eq!(guides(&[]), 0);
}

#[test]
fn the_same_study_gives_the_same_bytes() {
    let (one, other) = (whole(), whole());
    assert_eq!(page(&one.report(None)), page(&other.report(None)));
    assert_eq!(json(&one.rows), json(&other.rows));
}

#[test]
fn json_has_exactly_these_keys() {
    let study = whole();
    let text = json(&study.rows);
    let rows: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(rows.len(), study.rows.len());
    for row in &rows {
        let keys: Vec<&str> = row.keys().map(String::as_str).collect();
        assert_eq!(keys, ["id", "predicted", "published", "role", "unit"]);
        let role = row["role"].as_str().expect("a role is a string");
        let hidden = matches!(role, "withheld" | "unpublished");
        assert_eq!(row["published"].is_null(), hidden, "{row:?}");
        assert_eq!(row["predicted"].is_null(), role == "not-modelled", "{row:?}");
        if role == "prediction" {
            assert!(row["predicted"].is_number() && row["published"].is_number(), "{row:?}");
        }
    }
    let of = |id: &str| rows.iter().find(|row| row["id"] == id).expect("it is there").clone();
    assert_eq!(of("ccnic.fig3.stall_ratio")["published"], serde_json::json!({ "at_least": 15.0 }));
    assert_eq!(of("ccnic.fig17.batched")["predicted"], serde_json::json!([1.25, 0.5]));
    assert_eq!(of("ccnic.fig8.writer_homed_lowest")["role"], "statement");
    assert_eq!(json(&[]), "[]\n");
}

#[test]
fn a_study_without_answers_says_so_everywhere() {
    let nothing = study_of(&Answers::default());
    let report = nothing.report(None);
    assert!(report.warnings().iter().any(|warning| warning.contains("Cut short")), "{:?}", report.warnings());
    let page = page(&report);
    parsed(&page);
    assert!(page.contains("Cut short"));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json(&nothing.rows)).expect("it is JSON");
    let known = |row: &&serde_json::Value| !row["predicted"].is_null();
    let ids: Vec<&str> = rows.iter().filter(known).filter_map(|row| row["id"].as_str()).collect();
    // The links' bandwidths need no run.
    assert!(ids.iter().all(|id| id.starts_with("ccnic.table1.")), "{ids:?}");
    let lines = summary_lines(&nothing.summary).join("\n");
    assert!(lines.contains("no prediction yet") && !lines.contains("median"), "{lines}");
}

#[test]
fn failures_are_told_with_their_figure_and_escaped() {
    let setting = setting(Effort::Quick);
    let mut answers = Answers::default();
    for question in questions(EXPERIMENTS, &setting, &answers) {
        let what = question.summary();
        answers.insert(&question, Err(Failure(format!("{what}: credits < 0 & \"stuck\"; report it"))));
    }
    let study = study_of(&answers);
    let page = page(&study.report(None));
    parsed(&page);
    let told = "Figure 7: 10 runs failed, the first of them: a load on icx, holder NeighbourCore, home Reader: \
                credits &lt; 0 &amp; &quot;stuck&quot;; report it";
    // Once, although Figure 21 asks too.
    assert_eq!(page.matches(told).count(), 1);
}

#[test]
fn the_table_has_a_line_for_each_row() {
    let study = whole();
    let text = results(&study.rows).draw(TerminalStyle { ascii: true, ..TerminalStyle::default() });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), study.rows.len() + 2);
    let of = |id: &str| *lines.iter().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id} is missing"));
    assert!(of("ccnic.fig18.interconnect_share").contains("withheld"));
    assert!(of("ccnic.fig12.icx.min_latency").contains("53.8%"), "{}", of("ccnic.fig12.icx.min_latency"));
    assert!(of("ccnic.fig8.writer_homed_lowest").contains("agrees"));
}

/// Two guesses on the formulas' machines: one that decides latency, and one that decides nothing.
fn guesses() -> Vec<Guess> {
    let plain = setting(Effort::Quick).platforms;
    let spr = |crossing| Platforms { spr: parameters("spr", 24, crossing, 4), ..plain.clone() };
    let other = |entries| {
        let mut platforms = plain.clone();
        platforms.icx.core.load_buffer = entries;
        platforms
    };
    let range = |low: &str, high: &str| [low.to_owned(), high.to_owned()];
    vec![
        Guess { name: "icx core.load_buffer".to_owned(), range: range("10", "99"), platforms: [other(10), other(99)] },
        Guess {
            name: "spr interconnect.crossing".to_owned(),
            range: range("40 ns", "75 ns"),
            platforms: [spr(40_000), spr(75_000)],
        },
    ]
}

#[test]
fn a_guess_is_shown_with_what_it_moves() {
    let setting = setting(Effort::Quick);
    let guesses = guesses();
    let answers = answered(|answers| sensitivity::questions(&setting, &guesses, answers));
    let moves = sensitivity::movements(&setting, &guesses, &answers);
    assert_eq!(moves.unknown, [""; 0]);
    let movements = &moves.movements;
    let headlines: Vec<&str> = movements.iter().map(|movement| movement.headline).collect();
    assert_eq!(headlines, ["ccnic.fig13.spr.min_latency", "ccnic.fig18.interconnect_share"]);
    let movement = &movements[0];
    for (found, expected) in [(movement.nominal, 306.4), (movement.ends[0], 266.4), (movement.ends[1], 406.4)] {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }
    assert!((movement.change() - 100.0 / 306.4).abs() < 1e-9);
    let study = whole();
    let page = page(&study.report(Some(&moves)));
    parsed(&page);
    assert!(page.contains("spr interconnect.crossing (40 ns to 75 ns)"));
}

#[test]
fn sensitivity_asks_nothing_twice_and_waits_for_both_ends() {
    let setting = setting(Effort::Quick);
    let guesses = guesses();
    let open = sensitivity::questions(&setting, &guesses, &Answers::default());
    let nominal = sensitivity::questions(&setting, &[], &Answers::default());
    // The crossing changes Sapphire Rapids alone, the entries Ice Lake alone: three and four headline results' runs.
    assert!(open.len() > nominal.len() && open.len() <= 3 * nominal.len(), "{} and {}", open.len(), nominal.len());
    let mut answers = Answers::default();
    for question in &nominal {
        answers.insert(question, question.ask(&Formulas));
    }
    let moves = sensitivity::movements(&setting, &guesses, &answers);
    assert_eq!(moves.movements, []);
    // What is missing at an end of a guess is said, and is a failure.
    assert!(moves.unknown.iter().any(|one| one.ends_with(" with spr interconnect.crossing at 75 ns")), "{moves:?}");
    let study = study_of(&Answers::default());
    let report = Report { found: &[], ..study.report(Some(&moves)) };
    let told = report.warnings();
    assert!(report.has_failed() && told.iter().any(|one| one.starts_with("Not known")), "{told:?}");
    let page = page(&report);
    assert!(
        page.contains("Not known") && !page.contains("ask 0 questions"),
        "the page says what is missing, and no more"
    );
    assert_eq!(report::json(&[]), "[]\n");
}
