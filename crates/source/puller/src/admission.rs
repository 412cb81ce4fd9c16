//! How many incremental scans a store runs for us at a time, and which regions come first.

use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;

use crate::span_core::Priority;

/// Limits of [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Scans under way up to which regions of low priority are admitted. A store runs six scans at a time
    /// (`reference/cdc-protocol.md` §5) and queues the rest; 32 keep it busy, and leave room for others.
    pub low: usize,
    /// The same for high priority: these have little to scan, and are waited for by people.
    pub high: usize,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self { low: 32, high: 128 }
    }
}

/// The queue in front of one store. Each waiting item is a region of a subscription, so the number of regions
/// bounds it.
#[derive(Debug)]
pub struct Admission<K, T> {
    limits: AdmissionLimits,
    high: VecDeque<(K, T)>,
    low: VecDeque<(K, T)>,
    running: HashMap<K, Priority>,
}

impl<K: Copy + Eq + Hash, T> Admission<K, T> {
    /// An empty queue.
    pub fn new(limits: AdmissionLimits) -> Self {
        Self { limits, high: VecDeque::new(), low: VecDeque::new(), running: HashMap::new() }
    }

    /// Lines `item` up under its key; first come, first served within a priority.
    pub fn push(&mut self, key: K, priority: Priority, item: T) {
        let queue = match priority {
            Priority::High => &mut self.high,
            Priority::Low => &mut self.low,
        };
        queue.push_back((key, item));
    }

    /// The next item that may begin its scan; it runs until [`Admission::finish`].
    pub fn admit(&mut self) -> Option<T> {
        if self.running.len() < self.limits.high
            && let Some((key, item)) = self.high.pop_front()
        {
            self.running.insert(key, Priority::High);
            return Some(item);
        }
        if self.running.len() < self.limits.low
            && let Some((key, item)) = self.low.pop_front()
        {
            self.running.insert(key, Priority::Low);
            return Some(item);
        }
        None
    }

    /// A scan is over, or its registration is: its place is free. Nothing happens if it does not run.
    pub fn finish(&mut self, key: K) {
        self.running.remove(&key);
    }

    /// Takes all items out that wait and whose key is `unwanted`, and frees the places of those that run.
    pub fn remove(&mut self, unwanted: impl Fn(&K) -> bool) -> Vec<T> {
        self.running.retain(|key, _| !unwanted(key));
        let mut removed = Vec::new();
        for queue in [&mut self.high, &mut self.low] {
            let (out, kept) = queue.drain(..).partition(|(key, _)| unwanted(key));
            let out: VecDeque<(K, T)> = out;
            removed.extend(out.into_iter().map(|(_, item)| item));
            *queue = kept;
        }
        removed
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.high.is_empty() && self.low.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(low: usize, high: usize) -> Admission<u64, u64> {
        Admission::new(AdmissionLimits { low, high })
    }

    fn admitted(queue: &mut Admission<u64, u64>) -> Vec<u64> {
        std::iter::from_fn(|| queue.admit()).collect()
    }

    #[test]
    fn high_priority_goes_first_and_may_use_more_places() {
        let mut queue = queue(2, 4);
        (0..4).for_each(|n| queue.push(n, Priority::Low, n));
        (10..13).for_each(|n| queue.push(n, Priority::High, n));
        assert_eq!(admitted(&mut queue), [10, 11, 12], "three run, more than low may use");
        queue.finish(10);
        queue.finish(11);
        assert_eq!(admitted(&mut queue), [0]);
        queue.push(13, Priority::High, 13);
        assert_eq!(admitted(&mut queue), [13]);
    }

    #[test]
    fn each_finished_scan_admits_one_more_in_order() {
        let mut queue = queue(1, 1);
        (0..3).for_each(|n| queue.push(n, Priority::Low, n));
        assert_eq!(admitted(&mut queue), [0]);
        queue.finish(7);
        assert_eq!(admitted(&mut queue), [0; 0], "somebody unknown frees no place");
        queue.finish(0);
        assert_eq!(admitted(&mut queue), [1]);
    }

    #[test]
    fn removing_frees_places_and_takes_waiting_items_out() {
        let mut queue = queue(2, 2);
        (0..6).for_each(|n| queue.push(n, Priority::Low, n));
        assert_eq!(admitted(&mut queue), [0, 1]);
        assert_eq!(queue.remove(|key| key % 2 == 0), [2, 4]);
        assert_eq!(admitted(&mut queue), [3]);
        queue.remove(|_| true);
        assert!(queue.is_empty());
    }
}
