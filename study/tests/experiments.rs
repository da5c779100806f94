//! What the experiments make of answers that can be worked out on paper.

use crate::common;
use crate::common::{BUFFERS, Formulas, setting};
use conic_study::ask::Answers;
use conic_study::experiment::{EXPERIMENTS, Effort, Found, Setting, Value, chosen, findings, questions};
use conic_study::workload::{Failure, Question};

/// Asks until nothing is open.
fn answered(setting: &Setting) -> Answers {
    common::answered(|answers| questions(EXPERIMENTS, setting, answers))
}

fn study(effort: Effort) -> Vec<Found> {
    let setting = setting(effort);
    findings(EXPERIMENTS, &setting, &answered(&setting))
}

fn value(found: &[Found], id: &str) -> Value {
    let mut all = found.iter().flat_map(|found| &found.findings.predictions);
    let prediction = all.find(|prediction| prediction.id == id).unwrap_or_else(|| panic!("{id} is not predicted"));
    prediction.value.clone().unwrap_or_else(|| panic!("{id} has no value"))
}

fn near(found: &[Found], id: &str, expected: f64) {
    let Value::Number(number) = value(found, id) else { panic!("{id} is no number") };
    assert!((number - expected).abs() <= 1e-9 * expected.abs(), "{id}: {number} instead of {expected}");
}

fn holds(found: &[Found], id: &str, expected: bool) {
    assert_eq!(value(found, id), Value::Holds(expected), "{id}");
}

fn near_each(found: &[Found], id: &str, expected: &[f64]) {
    let Value::List(numbers) = value(found, id) else { panic!("{id} is no list") };
    let same = |(number, expected): (&f64, &f64)| (number - expected).abs() <= 1e-9 * expected.abs();
    assert!(numbers.len() == expected.len() && numbers.iter().zip(expected).all(same), "{id}: {numbers:?}");
}

#[test]
fn links_and_pcie() {
    let found = study(Effort::Full);
    near(&found, "ccnic.table1.icx.link", 25.0);
    near(&found, "ccnic.table1.spr.total", 100.0);
    near(&found, "ccnic.table1.pcie4", 31.5);
    near(&found, "ccnic.mmio.read_8", 808.0);
    near(&found, "ccnic.mmio.read_64", 864.0);
    // With 8192 bytes a barrier: 8192 / (819.2 + 400); 4096 bytes reach 75% of that, 8192 all of it.
    near(&found, "ccnic.fig2.near_maximum_bytes", 8192.0);
    near(&found, "ccnic.fig2.batched_over_write_back", 409.6 / 809.6);
    holds(&found, "ccnic.fig2.write_back_steady", true);
    holds(&found, "ccnic.fig2.write_combining_limited", true);
    near(&found, "ccnic.fig3.flat_until", f64::from(BUFFERS));
    near(&found, "ccnic.fig3.flat_latency", 10.0);
    near(&found, "ccnic.fig3.stall_ratio", 201.0 / 10.0);
}

#[test]
fn tcp_by_threads() {
    let found = study(Effort::Full);
    // 4 and 6 Mops a thread, 30 at most, and of 8 cores the application has one: 95% of 28 and of 30 are 6.65 and 4.75 threads.
    near(&found, "ccnic.table2.tcp_rpc.rate_cx6", 28.0);
    near(&found, "ccnic.table2.tcp_rpc.threads_cx6", 7.0);
    near(&found, "ccnic.table2.tcp_rpc.rate_ccnic", 30.0);
    near(&found, "ccnic.table2.tcp_rpc.threads_ccnic", 5.0);
}

#[test]
fn coherent_memory() {
    let found = study(Effort::Full);
    near(&found, "ccnic.fig7.icx.remote_l2", 100.0);
    near(&found, "ccnic.fig7.spr.remote_l2", 140.0);
    near(&found, "ccnic.fig7.spr.remote_memory", 180.0);
    near(&found, "ccnic.fig7.icx.remote_over_local_memory", 140.0 / 80.0);
    holds(&found, "ccnic.fig7.spr.reader_homed_slower", true);
    near(&found, "ccnic.read_only.icx", 400.0);
    near(&found, "ccnic.read_only.spr", 800.0);
    near(&found, "ccnic.fig8.separate_over_one_line_lowest", 1.75);
    near(&found, "ccnic.fig8.separate_over_one_line_highest", 2.5);
    holds(&found, "ccnic.fig8.writer_homed_lowest", true);
    near(&found, "ccnic.fig8.requests_separate", 4.0);
    near(&found, "ccnic.fig8.requests_one_line", 2.0);
    near(&found, "ccnic.fig9.icx.caching_over_nontemporal", 2.0);
    near(&found, "ccnic.fig9.share_of_read_only", 0.5);
}

#[test]
fn whole_interfaces() {
    let found = study(Effort::Full);
    // One packet alone: 100 ns, crossings of 30 or 50 ns, and 6.4 or 150 ns for its bytes; the host's prefetchers raise rates
    // by a quarter.
    let (ours, plain, pcie) = (226.4, 406.4, 2006.4);
    near(&found, "ccnic.fig12.icx.min_latency", ours);
    near(&found, "ccnic.fig13.spr.min_latency", 306.4);
    near(&found, "ccnic.fig12.cx6.min_latency", pcie);
    near(&found, "ccnic.fig11.icx.min_latency_reduction_cx6", 1.0 - ours / pcie);
    near(&found, "ccnic.fig11.icx.unopt_min_latency_ratio", plain / ours);
    near(&found, "ccnic.introduction.unopt_min_latency_reduction", 1.0 - ours / plain);
    near(&found, "ccnic.fig12.icx.peak_rate", 8.0 * 25.0);
    near(&found, "ccnic.fig12.e810.peak_rate", 8.0 * 5.0);
    near(&found, "ccnic.fig11.icx.peak_rate_ratio_e810", 5.0);
    near(&found, "ccnic.fig11.icx.unopt_rate_reduction", 0.75);
    holds(&found, "ccnic.fig11.icx.unopt_below_e810", false);
    // At 80% of the peak a packet takes 1.8 times as long as alone.
    near(&found, "ccnic.introduction.latency_at_80", 1.8 * ours);
    near(&found, "ccnic.introduction.cx6.latency_at_80", 1.8 * pcie);
    near(&found, "ccnic.fig12.icx.latency_at_80_reduction_e810", 1.0 - ours / pcie);
    near(&found, "ccnic.fig12.icx.large_min_latency_reduction_e810", 1.0 - 370.0 / 2150.0);
    near(&found, "ccnic.fig12.icx.large_throughput", 400.0);
    // The PCIe ring's 40 Mpps would be 480 Gb/s of large packets: the link is full in both cases.
    near(&found, "ccnic.fig11.icx.large_throughput_ratio_cx6", 1.0);
    near(&found, "ccnic.fig13.spr.peak_rate", 600.0);
    near(&found, "ccnic.fig13.spr.interconnect_share", 600e6 * 80.0 * 8.0 / 800e9);
    near(&found, "ccnic.fig13.spr.large_interconnect_share", 1.0);
    near(&found, "ccnic.introduction.unopt_rate_ratio", 4.0);
}

#[test]
fn features() {
    let found = study(Effort::Full);
    near(&found, "ccnic.fig14a.min_latency_reduction", 1.0 - 306.4 / 506.4);
    near(&found, "ccnic.fig14a.peak_rate_ratio", 1.6);
    near(&found, "ccnic.fig14b.packed_rate_ratio", 2.0);
    near(&found, "ccnic.fig14b.grouped_rate_ratio", 2.0);
    holds(&found, "ccnic.fig14b.grouped_latency_matches", true);
    holds(&found, "ccnic.fig14b.packed_latency_higher", true);
    near(&found, "ccnic.fig15.no_recycle", 0.2);
    near(&found, "ccnic.fig15.no_small", 0.5);
    near(&found, "ccnic.fig15.no_shared_pool", 0.25);
    near(&found, "ccnic.fig15.no_shared_latency", 356.4 / 306.4);
    holds(&found, "ccnic.fig15.each_step_loses", true);
    holds(&found, "ccnic.fig15.no_shared_slower", true);
    near(&found, "ccnic.fig16.tx1_ccnic", 0.25);
    near(&found, "ccnic.fig16.rx_min_e810", 0.9);
    holds(&found, "ccnic.fig16.tx_peak_with_full_lines", true);
    // A tenth is lost by receiving one by one, three quarters by sending so.
    holds(&found, "ccnic.fig16.rx_less_sensitive_ccnic", true);
    holds(&found, "ccnic.fig16.rx_less_sensitive_e810", true);
    near(&found, "beyond.best.peak_rate", 1.5);
    near(&found, "beyond.phase.min_latency", 1.0);
}

#[test]
fn switches_beyond_the_paper() {
    let found = study(Effort::Full);
    // Each polled queue pair costs 10 ns of a round trip, and 256 of them half of the rate.
    let polled = [1.0, 4.0, 16.0, 64.0, 256.0].map(|pairs| 306.4 + 10.0 * pairs);
    near_each(&found, "beyond.snoop.polling_latency", &polled);
    near_each(&found, "beyond.snoop.latency", &[306.4; 5]);
    near(&found, "beyond.snoop.latency_ratio", 306.4 / 2866.4);
    near(&found, "beyond.snoop.rate_ratio", 2.0);
    // All of a packet and 64 bytes each way, or 128 bytes.
    near_each(&found, "beyond.header.link_bytes_ratio", &[128.0 / 128.0, 128.0 / 1564.0, 128.0 / 4160.0]);
    near_each(&found, "beyond.header.rate_ratio", &[2.0; 3]);
    near_each(&found, "beyond.header.latency_ratio", &[0.5; 3]);
    near_each(&found, "beyond.header.pcie_link_bytes", &[256.0, 3128.0, 8320.0]);
    // Cores copy 25 million packets a second times 256 over their bytes, engines 4 million.
    for id in ["beyond.bulk.host_crossover", "beyond.bulk.nic_crossover", "beyond.bulk.both_crossover"] {
        near(&found, id, 25.0 * 256.0 / 4.0);
    }
    let sizes = [64.0, 256.0, 512.0, 1500.0, 4096.0, 9600.0];
    near_each(&found, "beyond.bulk.cores_rate", &sizes.map(|size: f64| 25.0 * 256.0 / size));
    near_each(&found, "beyond.bulk.both_rate", &[4.0; 6]);
    // The formulas know no distances.
    for spacing in ["pages", "odd"] {
        near(&found, &format!("beyond.spacing.{spacing}.no_small"), 0.5);
        near(&found, &format!("beyond.spacing.{spacing}.unopt_rate_reduction"), 0.75);
        near(&found, &format!("beyond.spacing.{spacing}.unopt_rate_ratio"), 4.0);
    }
    near_each(&found, "beyond.bulk.both_link_bytes", &sizes.map(|size: f64| 2.0 * (size + 64.0)));
}

#[test]
fn accesses_prefetching_and_slower_interconnects() {
    let found = study(Effort::Full);
    assert_eq!(value(&found, "ccnic.fig17.batched"), Value::List(vec![1.25, 0.5]));
    assert_eq!(value(&found, "ccnic.fig17.batched_unopt"), Value::List(vec![2.0, 2.0]));
    assert_eq!(value(&found, "ccnic.fig17.singular"), Value::List(vec![3.0, 0.5]));
    holds(&found, "ccnic.fig17.symmetric", true);
    holds(&found, "ccnic.fig17.singular_below_unopt", true);
    // Across: 306.4 ns; on one socket 200 less. Both rates are bound by the cores.
    near(&found, "ccnic.fig18.interconnect_share", 200.0 / 306.4);
    let Value::Number(faster) = value(&found, "ccnic.fig18.same_socket_rate") else { panic!("it is a number") };
    assert!(faster.abs() < 1e-9, "{faster}");
    near(&found, "ccnic.fig20.prefetch_host", 1.25);
    near(&found, "ccnic.fig20.prefetch_unopt", 0.5);
    holds(&found, "ccnic.fig20.host_only_best_ccnic", true);
    // Remote memory takes 80 ns and two crossings of 50; at 1.11 times that, 19.8 ns more for a slower uncore's parts of them, of which
    // a loopback has twice.
    near(&found, "ccnic.fig21.latency_ccnic", (306.4 + 2.0 * 19.8) / 306.4);
    near(&found, "ccnic.fig21.latency_unopt", (606.4 + 5.0 * 19.8) / 606.4);
    near(&found, "ccnic.fig21.bandwidth", 0.4);
}

#[test]
fn cores_are_counted_to_the_thread() {
    let found = study(Effort::Full);
    // 24 threads of 25 Mpps, 90% of which is 21.6 threads; 4 KB packets fill 800 Gb/s with 0.98 threads of 819 Gb/s.
    near(&found, "ccnic.cores.spr64", 22.0);
    near(&found, "ccnic.cores.icx64", 8.0);
    near(&found, "ccnic.cores.spr4k", 1.0);
}

#[test]
fn every_prediction_is_made_once_with_little_effort_too() {
    let quick = study(Effort::Quick);
    let full = study(Effort::Full);
    let ids = |found: &[Found]| -> Vec<&str> {
        found.iter().flat_map(|found| &found.findings.predictions).map(|prediction| prediction.id).collect()
    };
    assert_eq!(ids(&quick), ids(&full));
    let mut sorted = ids(&full);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), ids(&full).len());
    for found in quick.iter().chain(&full) {
        assert_eq!((found.questions.1, &found.failures[..]), (0, &[][..]));
        for prediction in &found.findings.predictions {
            assert!(prediction.value.is_some(), "{}", prediction.id);
        }
    }
    let cost = |effort| {
        let open = questions(EXPERIMENTS, &setting(effort), &Answers::default());
        open.iter().map(Question::weight).sum::<u64>()
    };
    assert!(cost(Effort::Quick) * 3 < cost(Effort::Full), "{} of {}", cost(Effort::Quick), cost(Effort::Full));
}

#[test]
fn a_question_is_asked_once_however_many_figures_want_it() {
    let setting = setting(Effort::Full);
    let open = questions(EXPERIMENTS, &setting, &Answers::default());
    let mut texts: Vec<String> = open.iter().map(Question::text).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), open.len());
    let of = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        questions(&chosen(EXPERIMENTS, &names).expect("the figures exist"), &setting, &Answers::default()).len()
    };
    // Figure 12 asks nothing that Figure 11 does not ask.
    assert_eq!(of(&["11", "12"]), of(&["11"]));
    assert!(of(&["11", "13"]) > of(&["11"]));
    let heaviest_first = open.windows(2).all(|pair| pair[0].weight() >= pair[1].weight());
    assert!(heaviest_first);
}

#[test]
fn a_study_that_was_cut_short_keeps_what_it_has() {
    let setting = setting(Effort::Quick);
    let complete = findings(EXPERIMENTS, &setting, &answered(&setting));
    let mut answers = Answers::default();
    let mut known = 0;
    let open = questions(EXPERIMENTS, &setting, &answers);
    for question in open.iter().rev().take(open.len() / 2) {
        answers.insert(question, question.ask(&Formulas));
        let part = findings(EXPERIMENTS, &setting, &answers);
        let values = part.iter().flat_map(|found| &found.findings.predictions);
        let all = complete.iter().flat_map(|found| &found.findings.predictions);
        known = 0;
        for (prediction, whole) in values.zip(all) {
            // What is predicted early is what is predicted in the end.
            if prediction.value.is_some() {
                assert_eq!(prediction, whole);
                known += 1;
            }
        }
    }
    assert!(known > 10, "half of the points gave {known} results");
}

#[test]
fn a_question_that_fails_is_told_once_and_not_asked_again() {
    let setting = setting(Effort::Quick);
    let experiments = chosen(EXPERIMENTS, &["mmio".to_owned()]).expect("there is such an experiment");
    let mut answers = Answers::default();
    let open = questions(&experiments, &setting, &answers);
    assert_eq!(open.len(), 2);
    for question in &open {
        answers.insert(question, Err(Failure("the link is down; use another".to_owned())));
    }
    assert!(questions(&experiments, &setting, &answers).is_empty());
    let found = findings(&experiments, &setting, &answers);
    assert_eq!(found[0].failures.len(), 2);
    assert!(found[0].findings.predictions.iter().all(|prediction| prediction.value.is_none()));
}

#[test]
fn figures_are_chosen_by_name() {
    let names = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
        chosen(EXPERIMENTS, &list).map(|found| found.iter().map(|experiment| experiment.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&[]).map(|all| all.len()), Ok(EXPERIMENTS.len()));
    assert_eq!(names(&["13", "fig2", "Figure-7", "13"]), Ok(vec!["2", "7", "13"]));
    assert_eq!(names(&["14", "mmio"]), Ok(vec!["mmio", "14a", "14b"]));
    for bad in ["22", "", "fig", "1"] {
        let error = names(&[bad]).expect_err("there is no such figure");
        assert!(error.contains(&format!("\"{bad}\"")) && error.contains("14a, 14b, 15"), "{error}");
    }
}
