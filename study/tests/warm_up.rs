//! What a run measures is what a longer warm-up would have it measure.

use conic_sim::platform::Platform;
use conic_study::ask::Answers;
use conic_study::experiment::{EXPERIMENTS, Effort, Setting, chosen, questions};
use conic_study::simulated::Simulator;
use conic_study::workload::{Answer, Loopback, LoopbackOutcome, Machine, Question};

use crate::common;

/// Threads of a run whose accesses are counted.
const FEW: usize = 4;

/// The study's setting; an experiment on all cores is one on few, so that it is quick.
fn setting() -> Setting {
    let mut setting = common::setting(Effort::Full);
    setting.platforms.spr =
        Platform::load("spr").expect("a platform that comes with the simulator").parameters().clone();
    setting.platforms.spr.core.cores = 2;
    setting
}

/// The closed loops of a figure with their outcomes, each round of questions after the answers of the one before. Open loops wait, in the
/// middle of their load, for bursts of their own making, which come otherwise each time.
fn loopbacks(figure: &str) -> Vec<(Loopback, LoopbackOutcome)> {
    let (setting, experiments) =
        (setting(), chosen(EXPERIMENTS, &[figure.to_owned()]).expect("there is such a figure"));
    let (mut answers, mut all) = (Answers::default(), Vec::new());
    loop {
        let open = questions(&experiments, &setting, &answers);
        if open.is_empty() {
            return all;
        }
        for question in open {
            let answer = question.ask(&Simulator);
            if let (Question::Loopback(loopback), Ok(Answer::Loopback(outcome))) = (&question, &answer) {
                all.extend(loopback.offered.is_none().then(|| (loopback.clone(), outcome.clone())));
            }
            answers.insert(&question, answer);
        }
    }
}

/// What is counted of a run, a packet; its rate; and its median latency, but where a closed loop has many in flight: by its window that
/// says no more than the rate, and the median of two kinds of rounds is one or the other.
fn counted(question: &Loopback, outcome: &LoopbackOutcome) -> Vec<f64> {
    let LoopbackOutcome { nic, host, packets_per_second, median_nanoseconds, .. } = outcome;
    let mut counted = vec![nic.reads, nic.rfos, host.reads, host.rfos, packets_per_second / 1e6];
    if question.window == 1 {
        counted.push(median_nanoseconds / 1e3);
    }
    counted
}

#[test]
fn a_longer_warm_up_moves_no_count_of_few_threads_by_two_per_cent() {
    for figure in ["15", "17", "18"] {
        let all = loopbacks(figure);
        assert!(!all.is_empty(), "Figure {figure} asks for loopbacks");
        for (question, outcome) in all {
            assert!(question.threads <= FEW, "Figure {figure} runs on few cores here");
            let longer = Loopback { packets: (2 * question.packets.0, question.packets.1), ..question.clone() };
            let longer = Simulator.loopback(&longer).unwrap_or_else(|failure| panic!("{failure}"));
            for (one, other) in counted(&question, &outcome).into_iter().zip(counted(&question, &longer)) {
                let moved = (other - one).abs() / one.max(0.05);
                let what = Question::from(question.clone()).summary();
                assert!(moved < 0.02, "Figure {figure}, {what}: {outcome:?}, and after twice the warm-up {longer:?}");
            }
        }
    }
}
