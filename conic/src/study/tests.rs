//! The command with a machine of simple formulas: points are kept, damage is repaired, and an interruption loses nothing.

#[path = "../../../study/tests/common/mod.rs"]
mod common;

use std::fs;
use std::sync::Mutex;

use conic_study::workload::{Failure, Loopback, LoopbackOutcome, Question};

use super::*;
use common::{Formulas, setting};

/// The formulas, with a list of the loopbacks that were asked, and things that go wrong.
#[derive(Default)]
struct Watched {
    asked: Mutex<Vec<String>>,
    /// Raised after the first loopback.
    stop: Option<Arc<Flag>>,
    /// Threads for which loopbacks panic.
    panics_at: Option<usize>,
}

impl Machine for Watched {
    fn loopback(&self, question: &Loopback) -> Result<LoopbackOutcome, Failure> {
        assert_ne!(Some(question.threads), self.panics_at, "a queue overflowed");
        self.asked.lock().expect("nobody panicked").push(Question::from(question.clone()).text());
        if let Some(stop) = &self.stop {
            stop.raise();
        }
        Formulas.loopback(question)
    }
    common::as_formulas!();
}

impl Watched {
    fn count(&self) -> usize {
        self.asked.lock().expect("nobody panicked").len()
    }
}

fn options(folder: &std::path::Path, figures: &[&str]) -> Options {
    Options {
        figures: figures.iter().map(|figure| (*figure).to_owned()).collect(),
        manner: Manner { quick: true, json: false, sensitivity: false },
        output: folder.join("report"),
        points: folder.join("points"),
        fresh: false,
        jobs: NonZeroUsize::new(2),
    }
}

fn ask(options: &Options, machine: &impl Machine, stop: &Flag) -> Shown {
    let study = Study {
        experiments: chosen(EXPERIMENTS, &options.figures).expect("the figures exist"),
        platforms: setting(Effort::Quick).platforms,
        guesses: Vec::new(),
        model: "1".to_owned(),
        options,
    };
    study.run(machine, stop).expect("the folder can be written")
}

#[test]
fn finished_points_are_not_simulated_again() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let options = options(folder.path(), &["18"]);
    let (first, second) = (Watched::default(), Watched::default());
    let one = ask(&options, &first, &Flag::new());
    let other = ask(&options, &second, &Flag::new());
    assert!(first.count() > 5);
    assert_eq!(second.count(), 0);
    assert_eq!(one.json, other.json);
    assert!(other.text.contains(&format!("0 points simulated, {} kept", first.count())), "{}", other.text);
    let third = Watched::default();
    ask(&Options { fresh: true, ..options }, &third, &Flag::new());
    assert_eq!(third.count(), first.count());
}

#[test]
fn damaged_points_are_simulated_again() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let options = options(folder.path(), &["18"]);
    let first = Watched::default();
    let one = ask(&options, &first, &Flag::new());
    let mut files: Vec<_> = fs::read_dir(&options.points)
        .expect("it was made")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    assert_eq!(files.len(), first.count());
    let text = fs::read_to_string(&files[1]).expect("it was written");
    fs::write(&files[0], "{").expect("it can be written");
    fs::write(&files[1], &text[..text.len() / 2]).expect("it can be written");
    fs::copy(&files[3], &files[2]).expect("it can be written");
    fs::remove_file(&files[4]).expect("it is there");
    fs::create_dir(&files[4]).expect("a folder in its place");
    let second = Watched::default();
    // A folder where a file belongs cannot be replaced: that is an error of the folder and said to be one.
    let study = Study {
        experiments: chosen(EXPERIMENTS, &options.figures).expect("the figures exist"),
        platforms: setting(Effort::Quick).platforms,
        guesses: Vec::new(),
        model: "1".to_owned(),
        options: &options,
    };
    let error = study.run(&second, &Flag::new()).expect_err("a point cannot be kept");
    assert!(error.contains(files[4].to_str().expect("the name is plain")), "{error}");
    fs::remove_dir(&files[4]).expect("it is empty");
    let third = Watched::default();
    let other = ask(&options, &third, &Flag::new());
    assert_eq!(one.json, other.json);
    let fourth = Watched::default();
    ask(&options, &fourth, &Flag::new());
    assert_eq!(fourth.count(), 0);
}

#[test]
fn an_interrupted_study_shows_what_it_has_and_goes_on_later() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let options = options(folder.path(), &["18", "table1"]);
    let stop = Arc::new(Flag::new());
    let interrupted = Watched { stop: Some(Arc::clone(&stop)), ..Watched::default() };
    let shown = ask(&options, &interrupted, &stop);
    assert!(shown.interrupted && shown.text.contains("interrupted"));
    assert!(shown.text.contains("ccnic.table1.icx.link") && shown.report.exists());
    // Each worker finishes what it began.
    assert!((1..=2).contains(&interrupted.count()), "{}", interrupted.count());
    let whole = tempfile::tempdir().expect("there is room for a folder");
    let alone = Watched::default();
    let expected = ask(&self::options(whole.path(), &["18", "table1"]), &alone, &Flag::new());
    let resumed = Watched::default();
    let shown = ask(&options, &resumed, &Flag::new());
    assert_eq!(shown.json, expected.json);
    assert_eq!(resumed.count() + interrupted.count(), alone.count());
    assert!(!shown.interrupted);
}

#[test]
fn a_point_that_panics_fails_alone() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let machine = Watched { panics_at: Some(1), ..Watched::default() };
    // Figure 13 has one thread in its minimum alone.
    let shown = ask(&options(folder.path(), &["13"]), &machine, &Flag::new());
    assert!(shown.failed && !shown.interrupted);
    // The minimum of two interfaces and sizes.
    let told = "Figure 13: 4 runs failed, the first of them: ";
    let line = shown.text.lines().find_map(|line| line.strip_prefix(told)).unwrap_or_else(|| panic!("{}", shown.text));
    assert!(line.contains(" on spr, ") && line.contains("1 threads, window 1"), "{line}");
    assert!(line.contains("the simulator has a defect: ") && line.contains("a queue overflowed"), "{line}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&shown.json).expect("it is JSON");
    let of = |id: &str| rows.iter().find(|row| row["id"] == id).expect("it is there")["predicted"].clone();
    assert!(of("ccnic.fig13.spr.min_latency").is_null() && of("ccnic.fig13.spr.peak_rate").is_number());
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let json = |jobs| {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let options = Options { jobs: NonZeroUsize::new(jobs), ..options(folder.path(), &["cores", "14"]) };
        ask(&options, &Formulas, &Flag::new()).json
    };
    assert_eq!(json(1), json(3));
}

#[test]
fn the_report_s_files_are_there() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let options = options(folder.path(), &["2", "11"]);
    let shown = ask(&options, &Formulas, &Flag::new());
    assert_eq!(shown.report, options.output.join("report.html"));
    let read =
        |name: &str| fs::read_to_string(options.output.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read("results.json"), shown.json);
    for name in ["fig2.svg", "fig11-64.svg", "fig11-1500.svg"] {
        assert!(read(name).starts_with("<svg "), "{name}");
    }
    // Figures that were not asked for are in neither table nor page.
    assert!(!shown.text.contains("ccnic.fig13") && !read("report.html").contains("fig13"));
}

#[test]
fn every_guess_of_the_platforms_can_go_to_the_ends_of_its_range() {
    let (platforms, guesses) = guesses::load(true).expect("the platforms are sound");
    assert!(guesses.len() > 10, "{}", guesses.len());
    for guess in &guesses {
        assert_ne!(guess.platforms[0], guess.platforms[1], "{}", guess.name);
        let is_the_e810s = guess.name.starts_with("icx ") || guess.name.starts_with("icx-e810 ");
        assert_eq!(
            guess.platforms.iter().any(|one| one.icx_e810 != platforms.icx_e810),
            is_the_e810s,
            "{}",
            guess.name
        );
    }
    assert_eq!(guesses::load(false).expect("the platforms are sound"), (platforms, Vec::new()));
}

#[test]
fn the_time_that_is_left_is_told_once_it_is_known() {
    assert_eq!(progress::remaining(0.01, 60.0), None);
    assert_eq!(progress::remaining(0.5, 0.5), None);
    assert_eq!(progress::remaining(0.25, 60.0), Some(180.0));
    assert_eq!(progress::line((3, 12), "points", Some(180.0), ""), "3 of 12 points, about 3 minutes left");
    assert_eq!(
        progress::line((3, 12), "points", Some(0.2), "; stopping"),
        "3 of 12 points, about 1 seconds left; stopping"
    );
    assert_eq!(progress::line((0, 12), "guesses", None, ""), "0 of 12 guesses");
}
