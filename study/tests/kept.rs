//! Kept answers come back bit for bit, or not at all.

use crate::common;
use crate::common::{Formulas, setting};
use conic_study::ask::Answers;
use conic_study::experiment::{EXPERIMENTS, Effort, questions};
use conic_study::kept::{decode, encode, hash, name};
use conic_study::workload::{Answer, LoopbackOutcome, Question};

fn all() -> Vec<Question> {
    questions(EXPERIMENTS, &setting(Effort::Full), &Answers::default())
}

#[test]
fn every_kind_of_answer_comes_back() {
    let mut kinds = std::collections::BTreeSet::new();
    for question in all() {
        let answer = question.ask(&Formulas).expect("the formulas answer everything");
        let text = encode("1", &question, &answer).expect("the answer is finite");
        assert_eq!(decode(&text, "1", &question), Some(answer.clone()));
        kinds.insert(format!("{answer:?}").split('(').next().map(str::to_owned));
    }
    assert_eq!(kinds.len(), 10);
}

#[test]
fn numbers_come_back_to_the_last_bit() {
    let question = all().remove(0);
    for number in [0.1 + 0.2, 1.0 / 3.0, 5e-324, f64::MAX, 5.0e-1 + f64::EPSILON, 123_456_789.123_456_79] {
        let answer = Answer::Loopback(LoopbackOutcome { median_nanoseconds: number, ..LoopbackOutcome::default() });
        let text = encode("1", &question, &answer).expect("the answer is finite");
        assert_eq!(decode(&text, "1", &question), Some(answer));
    }
}

#[test]
fn another_model_another_question_and_damage_are_no_answer() {
    let questions: Vec<Question> =
        all().into_iter().filter(|question| matches!(question, Question::Loopback(_))).take(2).collect();
    let (one, other) = (&questions[0], &questions[1]);
    let answer = one.ask(&Formulas).expect("the formulas answer everything");
    let text = encode("1", one, &answer).expect("the answer is finite");
    assert_eq!(decode(&text, "2", one), None);
    assert_eq!(decode(&text, "1", other), None);
    for end in (0..text.len()).filter(|&end| text.is_char_boundary(end)) {
        assert_eq!(decode(&text[..end], "1", one), None, "cut after {end} bytes");
    }
    for damaged in ["", "null", "[]", "{}", &text.replace("\"lost\":0", "\"lost\":-1"), &format!("{text}{text}")] {
        assert_eq!(decode(damaged, "1", one), None, "{damaged}");
    }
}

#[test]
fn an_answer_that_is_not_finite_is_refused() {
    let question = all().remove(0);
    for number in [f64::NAN, f64::INFINITY] {
        let answer = Answer::Loopback(LoopbackOutcome { p99_nanoseconds: number, ..LoopbackOutcome::default() });
        let error = encode("1", &question, &answer).expect_err("it cannot be kept").to_string();
        assert!(error.contains("p99_nanoseconds"), "{error}");
    }
}

#[test]
fn names_tell_questions_and_models_apart() {
    let questions = all();
    let mut names: Vec<String> = questions.iter().map(|question| name("1", question)).collect();
    assert!(names.iter().all(|name| name.len() == 16));
    assert_ne!(name("1", &questions[0]), name("2", &questions[0]));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), questions.len());
    // The published test values of FNV-1a.
    assert_eq!(hash(b"".iter().copied()), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash(b"foobar".iter().copied()), 0x8594_4171_f739_67e8);
}

#[test]
fn spoilt_packets_are_no_answer() {
    struct Spoiling;
    impl conic_study::workload::Machine for Spoiling {
        fn loopback(
            &self,
            question: &conic_study::workload::Loopback,
        ) -> Result<LoopbackOutcome, conic_study::workload::Failure> {
            Ok(LoopbackOutcome { lost: 1, ..Formulas.loopback(question)? })
        }
        common::as_formulas!();
    }
    let all = all();
    let question = all.iter().find(|question| matches!(question, Question::Loopback(_))).expect("there are loopbacks");
    let error = question.ask(&Spoiling).expect_err("a packet was spoilt").to_string();
    assert!(error.contains("lost or spoilt"), "{error}");
}
