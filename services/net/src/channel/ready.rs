//! Which sockets of a client have something to do, each once, however often it was said.

use std::collections::VecDeque;

/// A queue of socket numbers without repetition: its length is bounded by their number, not by what a peer says.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    queue: VecDeque<u32>,
    /// A bit a number: whether it is in the queue.
    queued: Vec<u64>,
}

impl ReadyQueue {
    fn place(number: u32) -> (usize, u64) {
        ((number / 64) as usize, 1 << (number % 64))
    }

    /// Queues a number, unless it is there.
    pub fn push(&mut self, number: u32) {
        let (word, bit) = Self::place(number);
        if self.queued.len() <= word {
            self.queued.resize(word + 1, 0);
        }
        if self.queued[word] & bit == 0 {
            self.queued[word] |= bit;
            self.queue.push_back(number);
        }
    }

    /// The one that has waited longest.
    pub fn pop(&mut self) -> Option<u32> {
        let number = self.queue.pop_front()?;
        let (word, bit) = Self::place(number);
        self.queued[word] &= !bit;
        Some(number)
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_there_once_and_in_order() {
        let mut b = ReadyQueue::default();
        for n in [5, 28_671, 5, 0, 5, 28_671] {
            b.push(n);
        }
        assert_eq!((b.len(), b.pop()), (3, Some(5)));
        b.push(5);
        assert_eq!([b.pop(), b.pop(), b.pop(), b.pop()], [Some(28_671), Some(0), Some(5), None]);
        assert!(b.is_empty());
    }
}
