//! Work that is the same for many questions, on all cores.

use std::sync::Mutex;

/// Answers each question, on as many threads as this process has cores, and gives the answers in the questions' order. A thread
/// that panics ends the caller.
pub fn on_all_cores<Q: Sync, A: Send>(questions: &[Q], answer: impl Fn(&Q) -> A + Sync) -> Vec<A> {
    let next = Mutex::new(questions.iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(questions.len()));
    let work = || {
        loop {
            // A lock is poisoned only where another thread has panicked, which ends the caller below.
            let Some((index, question)) = next.lock().ok().and_then(|mut next| next.next()) else { return };
            let answer = answer(question);
            if let Ok(mut done) = done.lock() {
                done.push((index, answer));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..conic_native::cores().len().clamp(1, questions.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests {
    use super::on_all_cores;

    #[test]
    fn answers_come_in_the_order_of_their_questions() {
        let questions: Vec<u64> = (0..100).collect();
        let slow_at_first = |question: &u64| {
            std::thread::sleep(std::time::Duration::from_micros(100 - question));
            2 * question
        };
        assert_eq!(on_all_cores(&questions, slow_at_first), (0..100).map(|number| 2 * number).collect::<Vec<_>>());
        assert!(on_all_cores(&[] as &[u64], |_| 0).is_empty());
    }
}
