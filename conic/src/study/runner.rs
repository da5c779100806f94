//! Asking a machine on several threads, and keeping what it answers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::thread;

use conic_native::Flag;
use conic_study::ask::Answers;
use conic_study::workload::{Answer, Failure, Machine, Question};

use super::kept::Kept;
use super::progress::Progress;

/// Asks until nothing is open.
pub struct Runner<'a, M> {
    /// Whom to ask.
    pub machine: &'a M,
    /// Questions at once.
    pub workers: usize,
    /// Where answers are kept.
    pub kept: Kept,
    /// Raised when no further question shall be begun.
    pub stop: &'a Flag,
    /// Where to show how far it is.
    pub progress: Progress,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Questions that were simulated.
    pub simulated: usize,
    /// Questions whose answers had been kept.
    pub kept: usize,
    /// Whether questions are open.
    pub interrupted: bool,
}

impl<M: Machine> Runner<'_, M> {
    /// Asks whatever `open` says is open with the answers so far, until that is nothing or it is told to stop.
    ///
    /// # Errors
    ///
    /// A message, if answers cannot be kept.
    pub fn run(&mut self, answers: &mut Answers, open: impl Fn(&Answers) -> Vec<Question>) -> Result<Ended, String> {
        let mut ended = Ended::default();
        loop {
            let questions = open(answers);
            if questions.is_empty() {
                return Ok(ended);
            }
            let mut unknown = Vec::new();
            for question in questions {
                match self.kept.get(&question) {
                    Some(answer) => {
                        answers.insert(&question, Ok(answer));
                        ended.kept += 1;
                    }
                    None => unknown.push(question),
                }
            }
            ended.simulated += self.ask(unknown, answers)?;
            if self.stop.is_up() {
                ended.interrupted = !open(answers).is_empty();
                return Ok(ended);
            }
        }
    }

    /// Asks these questions, in this order; returns how many were asked.
    fn ask(&mut self, questions: Vec<Question>, answers: &mut Answers) -> Result<usize, String> {
        let all = questions.len();
        let whole: u64 = questions.iter().map(Question::weight).sum();
        let (mut count, mut done) = (0, 0);
        self.progress.restart();
        let queue = Mutex::new(questions.into_iter());
        let (sender, receiver) = mpsc::channel();
        let (machine, stop) = (self.machine, self.stop);
        thread::scope(|scope| {
            for _ in 0..self.workers.min(all) {
                let (sender, queue) = (sender.clone(), &queue);
                scope.spawn(move || {
                    while let Some(question) = next(queue, stop) {
                        let answer = answer(machine, &question);
                        if sender.send((question, answer)).is_err() {
                            // Nobody takes answers any more: the folder for them is full.
                            return;
                        }
                    }
                });
            }
            drop(sender);
            self.progress.show((0, all), 0.0, "");
            for (question, answer) in receiver {
                let answer = match answer {
                    Ok(answer) => self.kept.put(&question, &answer)?.map(|()| answer),
                    Err(failure) => Err(failure),
                };
                let answer = answer.map_err(|failure| Failure(format!("{}: {failure}", question.summary())));
                answers.insert(&question, answer);
                count += 1;
                done += question.weight();
                let doing = if stop.is_up() { "; stopping when the running ones are done" } else { "" };
                self.progress.show((count, all), done as f64 / whole.max(1) as f64, doing);
            }
            Ok(count)
        })
    }
}

/// The next question, unless it is time to stop.
fn next(queue: &Mutex<std::vec::IntoIter<Question>>, stop: &Flag) -> Option<Question> {
    if stop.is_up() {
        return None;
    }
    // Whoever panicked here held nothing half done.
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next()
}

/// Asks; a machine that panics has failed at this question, and at no other.
fn answer(machine: &impl Machine, question: &Question) -> Result<Answer, Failure> {
    catch_unwind(AssertUnwindSafe(|| question.ask(machine))).unwrap_or_else(|panic| Err(Failure(message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the simulator has a defect: {}; please report it", text.unwrap_or("it panicked without a message"))
}
