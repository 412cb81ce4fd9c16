//! The smallest of many timestamps that move up one by one.

use std::collections::BTreeMap;

use tidegate_core::ResolvedTs;

/// A multiset of resolved timestamps. Moving one costs a few steps in a tree whose size is the number of
/// *different* timestamps, which is small: a store resolves most of its regions to the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    counts: BTreeMap<ResolvedTs, usize>,
}

impl Frontier {
    /// Adds a timestamp.
    pub fn insert(&mut self, ts: ResolvedTs) {
        *self.counts.entry(ts).or_default() += 1;
    }

    /// Takes one occurrence of a timestamp out; nothing happens if there is none.
    pub fn remove(&mut self, ts: ResolvedTs) {
        if let Some(count) = self.counts.get_mut(&ts) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&ts);
            }
        }
    }

    /// Replaces one occurrence of `from` by `to`.
    pub fn advance(&mut self, from: ResolvedTs, to: ResolvedTs) {
        self.remove(from);
        self.insert(to);
    }

    /// The smallest timestamp; `None` when there is none.
    pub fn min(&self) -> Option<ResolvedTs> {
        self.counts.first_key_value().map(|(ts, _)| *ts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_minimum_is_that_of_the_list(moves in prop::collection::vec((0_usize..8, 0_u64..20), 1..200)) {
            let mut list = [ResolvedTs::new(5); 8];
            let mut frontier = Frontier::default();
            list.iter().for_each(|ts| frontier.insert(*ts));
            for (at, to) in moves {
                let to = ResolvedTs::new(to);
                frontier.advance(list[at], to);
                list[at] = to;
                prop_assert_eq!(frontier.min(), list.iter().min().copied());
            }
        }
    }

    #[test]
    fn an_empty_frontier_has_no_minimum() {
        let mut frontier = Frontier::default();
        frontier.insert(ResolvedTs::new(3));
        frontier.remove(ResolvedTs::new(3));
        frontier.remove(ResolvedTs::new(3));
        assert_eq!(frontier.min(), None);
    }
}
