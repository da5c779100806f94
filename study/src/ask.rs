//! Asking: an experiment says what it wants to know, and makes do with what is known so far.
//!
//! An experiment is one function of the answers. Run without answers, it tells its questions; run with them, it tells its
//! findings. A question that depends on an answer is asked once that answer is there. So the list of points and what is made of
//! them cannot differ, and a study that was cut short still shows what it has.

use std::collections::{BTreeMap, BTreeSet};

use crate::workload::{Answer, Asked, Failure, Question};

/// What has been answered so far, by the question's text.
#[derive(Clone, Debug, Default)]
pub struct Answers(BTreeMap<String, Result<Answer, Failure>>);

impl Answers {
    /// Takes an answer, or the reason why there is none.
    pub fn insert(&mut self, question: &Question, answer: Result<Answer, Failure>) {
        self.0.insert(question.text(), answer);
    }

    /// Whether the question was answered or refused.
    pub fn has(&self, question: &Question) -> bool {
        self.0.contains_key(&question.text())
    }

    /// Questions that were answered or refused.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was answered yet.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What an experiment asks through: it gives the answers that there are, and notes the others.
#[derive(Debug)]
pub struct Ask<'a> {
    answers: &'a Answers,
    wanted: Vec<Question>,
    seen: BTreeSet<String>,
    failures: Vec<Failure>,
}

impl<'a> Ask<'a> {
    /// Asks among these answers.
    pub fn new(answers: &'a Answers) -> Ask<'a> {
        Ask { answers, wanted: Vec::new(), seen: BTreeSet::new(), failures: Vec::new() }
    }

    /// The outcome, if it is known; otherwise the question is noted. An experiment asks everything that it can before it gives
    /// up on a missing outcome, or questions wait that could be worked on.
    pub fn of<Q: Asked>(&mut self, question: Q) -> Option<Q::Outcome> {
        let question: Question = question.into();
        let text = question.text();
        let answer = self.answers.0.get(&text);
        let first_time = self.seen.insert(text);
        match answer {
            Some(Ok(answer)) => Q::outcome(answer),
            Some(Err(failure)) => {
                if first_time {
                    self.failures.push(failure.clone());
                }
                None
            }
            None => {
                if first_time {
                    self.wanted.push(question);
                }
                None
            }
        }
    }

    /// What was asked and is not known, each once, in the order in which it was asked; and why others never will be.
    pub fn finish(self) -> (Vec<Question>, Vec<Failure>) {
        (self.wanted, self.failures)
    }

    /// How many different questions were asked, answered or not.
    pub fn asked(&self) -> usize {
        self.seen.len()
    }
}
