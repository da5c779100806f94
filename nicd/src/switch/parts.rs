//! A port's queues on several threads of its network: each of these threads has a part of the port, which is the whole port there.
//!
//! What a thread sends to the port leaves by its own part. A thread without one sends it to one that has a part for it, and always to
//! the same, so that the frames of a flow stay in order.

/// How a port's queues are dealt to the threads of its network: queue `q` of port `p` is on thread `p + q` modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    port: usize,
    queues: usize,
    threads: usize,
}

impl Parts {
    /// Of the port of this number in its network, which has so many queues, over so many threads. A port without queues counts as one
    /// of one queue.
    pub fn new(port: usize, queues: usize, threads: usize) -> Parts {
        Parts { port, queues: queues.max(1), threads: threads.max(1) }
    }

    /// The port's number in the network.
    pub fn port(&self) -> usize {
        self.port
    }

    fn thread_of(&self, queue: usize) -> usize {
        (self.port + queue) % self.threads
    }

    /// The threads that have a part, that of the first queue first.
    pub fn threads(&self) -> impl Iterator<Item = usize> + use<> {
        let own = *self;
        (0..own.queues.min(own.threads)).map(move |queue| own.thread_of(queue))
    }

    /// The thread by whose part frames leave that a thread's clients and other ports send: the thread itself where it has a part.
    pub fn way_from(&self, thread: usize) -> usize {
        let behind = (thread + self.threads - self.port % self.threads) % self.threads;
        self.thread_of(behind % self.queues.min(self.threads))
    }

    /// Deals what belongs to the queues, in their order: what each thread gets that has a part.
    ///
    /// # Panics
    ///
    /// There are more than the port has queues.
    pub fn deal<T>(&self, queues: impl IntoIterator<Item = T>) -> Vec<(usize, Vec<T>)> {
        let mut dealt: Vec<(usize, Vec<T>)> = self.threads().map(|thread| (thread, Vec::new())).collect();
        queues.into_iter().enumerate().for_each(|(queue, one)| dealt[queue % self.threads].1.push(one));
        dealt
    }

    /// Puts together again what was dealt, in the queues' order; nothing if something is missing of a queue.
    pub fn gather<T>(&self, dealt: impl IntoIterator<Item = (usize, Vec<T>)>) -> Vec<T> {
        let mut of_threads: Vec<(usize, std::vec::IntoIter<T>)> =
            dealt.into_iter().map(|(thread, part)| (thread, part.into_iter())).collect();
        let next = |queue| {
            let (_, part) = of_threads.iter_mut().find(|(thread, _)| *thread == self.thread_of(queue))?;
            part.next()
        };
        (0..self.queues).map(next).collect::<Option<_>>().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dealt_is_put_together_again_and_each_thread_has_one_way_to_a_part() {
        for (port, queues, threads) in (0..5).flat_map(|p| (1..9).flat_map(move |q| (1..6).map(move |t| (p, q, t)))) {
            let parts = Parts::new(port, queues, threads);
            let dealt = parts.deal(0..queues);
            let with_part: Vec<usize> = dealt.iter().map(|(thread, _)| *thread).collect();
            assert_eq!((with_part.len(), with_part[0]), (queues.min(threads), port % threads));
            assert!(dealt.iter().all(|(_, part)| (queues / threads..=queues.div_ceil(threads)).contains(&part.len())));
            for thread in 0..threads {
                let way = parts.way_from(thread);
                assert!(with_part.contains(&way), "{parts:?} from {thread}");
                assert!(way == thread || !with_part.contains(&thread), "{parts:?} from {thread}");
            }
            let mut late = dealt.clone();
            late.reverse();
            assert_eq!(parts.gather(late), (0..queues).collect::<Vec<_>>(), "{parts:?}");
            let mut lacking = dealt;
            lacking[0].1.pop();
            assert!(parts.gather(lacking).is_empty(), "a queue is missing");
        }
    }
}
