//! What predicts cannot know what was published, and the results file names exactly what is predicted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{answered, setting};
use conic_study::comparison::{Figure, Role, compare, parse};
use conic_study::experiment::{EXPERIMENTS, Effort, Prediction, findings, questions};
use conic_study::report::json_value;

const RESULTS: &str = include_str!("../../results/ccnic.toml");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the study is a folder of the workspace").to_owned()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs" || end == "toml") {
            found.push(path);
        }
    }
}

/// What a source that predicts may not say: where results are, and the module and types that hold them.
const FORBIDDEN: [&str; 7] =
    ["results/", "comparison", "crate::report", "Published", "include_str!", "include_bytes!", "std::fs"];

/// The files that take part in predicting: everything but what compares and shows.
fn predicting() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["sim/src", "interface/src", "load/src", "fabric/src", "study/src"] {
        sources(&root().join(folder), &mut found);
    }
    let judges = ["study/src/comparison", "study/src/report", "study/src/sensitivity.rs", "study/src/lib.rs"];
    found.retain(|path| {
        let inside = path.strip_prefix(root()).expect("it is in the workspace");
        let inside = inside.to_str().expect("the names are plain");
        !judges.iter().any(|judge| inside.starts_with(judge))
    });
    found
}

#[test]
fn nothing_that_predicts_names_what_was_published() {
    let files = predicting();
    for part in ["study/src/experiment.rs", "study/src/experiment/curves.rs", "study/src/workload.rs", "sim/src/lib.rs"]
    {
        assert!(files.contains(&root().join(part)), "{part} is not looked at");
    }
    for path in files {
        let text = fs::read_to_string(&path).expect("a source is text");
        let loader = path.starts_with(root().join("sim/src/platform"));
        assert_eq!(forbidden(&text, loader), None, "{}", path.display());
    }
}

/// The first line of a source that says what it may not. Platforms are shipped inside the program; their loader also reads files
/// that the user names.
fn forbidden(text: &str, loader: bool) -> Option<&str> {
    let of_platforms = |line: &str| line.contains("include_str!") && line.contains("platforms/");
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//") && !of_platforms(line));
    code.find(|line| FORBIDDEN.iter().any(|word| line.contains(word) && !(loader && *word == "std::fs")))
}

#[test]
fn a_planted_violation_is_found() {
    let honest = "//! See results/.\nconst SPR: &str = include_str!(\"../../platforms/spr.toml\");\nfn f() {}\n";
    assert_eq!(forbidden(honest, false), None);
    for planted in [
        "use crate::comparison;",
        "use crate::{ask::Ask, comparison::parse};",
        "let text = include_str!(\"../../results/ccnic.toml\");",
        "let text = include_str!(\"../../secret/ccnic.toml\");",
        "let text = std::fs::read_to_string(path);",
        "fn f(known: &[Published]) {}",
    ] {
        assert_eq!(forbidden(&format!("{honest}    {planted}\n"), false).map(str::trim), Some(planted));
    }
    assert_eq!(forbidden("std::fs::File::open(path)", true), None);
}

fn predictions() -> Vec<Prediction> {
    let setting = setting(Effort::Quick);
    let answers = answered(|answers| questions(EXPERIMENTS, &setting, answers));
    let found = findings(EXPERIMENTS, &setting, &answers);
    found.into_iter().flat_map(|found| found.findings.predictions).collect()
}

#[test]
fn predictions_are_the_same_bytes_without_any_published_result() {
    let bytes = |published: &str| {
        let published = parse(published).expect("the file is well formed");
        let rows = compare(&predictions(), &published, false).expect("the units agree");
        let lines =
            rows.iter().map(|row| format!("{} {:?} {}\n", row.id, row.predicted.as_ref().map(json_value), row.unit));
        lines.collect::<String>()
    };
    let doubled = RESULTS.lines().map(|line| match line.strip_prefix("value = ") {
        Some(value) => format!("value = {}\n", 2.0 * value.parse::<f64>().expect("a value is a number")),
        None => format!("{line}\n"),
    });
    let full = bytes(RESULTS);
    assert_eq!(full, bytes(""));
    assert_eq!(full, bytes(&doubled.collect::<String>()));
    assert!(full.lines().count() > 80, "{}", full.lines().count());
}

#[test]
fn every_published_result_is_predicted_in_its_unit_or_said_not_to_be() {
    let published = parse(RESULTS).expect("the file is well formed");
    let predictions = predictions();
    let rows = compare(&predictions, &published, true).expect("the units agree");
    for result in &published {
        let predicted = predictions.iter().any(|prediction| prediction.id == result.id);
        assert_eq!(predicted, result.role != Role::NotModelled, "{}", result.id);
        assert_eq!(rows.iter().filter(|row| row.id == result.id).count(), 1, "{}", result.id);
    }
    let unpublished: Vec<&str> =
        rows.iter().filter(|row| row.role == Role::Unpublished).map(|row| row.id.as_str()).collect();
    // What goes beyond the paper; and parts of a result that the paper gives as one, each beside it.
    let parts = [
        "ccnic.fig9.icx.share_of_read_only",
        "ccnic.fig9.spr.share_of_read_only",
        "ccnic.fig17.singular",
        "ccnic.fig17.singular_unopt",
        "ccnic.fig18.interconnect_share_unloaded",
        "ccnic.fig18.interconnect_share_loaded",
    ];
    let beside = |id: &&str| id.starts_with("beyond.") || parts.contains(id);
    assert!(unpublished.iter().all(beside), "{unpublished:?}");
}

#[test]
fn the_blind_tests_are_these_and_have_no_value() {
    let published = parse(RESULTS).expect("the file is well formed");
    let mut withheld: Vec<&str> = Vec::new();
    for result in published.iter().filter(|result| result.role == Role::Withheld) {
        assert_eq!(result.figure, None, "{}", result.id);
        withheld.push(result.id.strip_prefix("ccnic.").expect("ids begin with the paper"));
    }
    withheld.sort_unstable();
    let expected = [
        "cores.icx4k",
        "cores.icx64",
        "cores.spr4k",
        "cores.spr64",
        "fig15.no_recycle",
        "fig15.no_shared_latency",
        "fig15.no_shared_pool",
        "fig15.no_small",
        "fig16.rx_min_ccnic",
        "fig16.rx_min_e810",
        "fig16.tx1_ccnic",
        "fig16.tx1_e810",
        "fig17.batched",
        "fig17.batched_unopt",
        "fig18.interconnect_share",
        "fig18.same_socket_rate",
        "fig20.prefetch_host",
        "fig20.prefetch_unopt",
        "fig21.bandwidth",
        "fig21.latency_ccnic",
        "fig21.latency_unopt",
    ];
    assert_eq!(withheld, expected);
}

#[test]
fn calibration_is_what_the_platforms_may_be_fitted_to() {
    // Nothing but these groups may be an input: whole interfaces only as the one fit of core work, the PCIe NICs' own limits, and
    // ratios of such values.
    let allowed = [
        "ccnic.table1.",
        "ccnic.mmio.",
        "ccnic.fig3.flat_until",
        "ccnic.fig7.",
        "ccnic.read_only.",
        "ccnic.fig8.requests_",
        "ccnic.fig11.icx.peak_rate_ratio_",
        "ccnic.fig12.icx.peak_rate",
        "ccnic.fig12.cx6.",
        "ccnic.fig12.e810.",
    ];
    let published = parse(RESULTS).expect("the file is well formed");
    for result in published.iter().filter(|result| result.role == Role::Calibration) {
        assert!(allowed.iter().any(|group| result.id.starts_with(group)), "{}", result.id);
    }
    let counted = |result: &&conic_study::comparison::Published| {
        result.role == Role::Prediction && matches!(result.figure, Some(Figure::Exactly(_)))
    };
    let count = published.iter().filter(counted).count();
    assert!(count >= 30, "{count} results test the simulator");
}
