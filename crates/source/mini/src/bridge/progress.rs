//! From checkpoints to collection progress (`spec/mini-cdc.md` §5.5 rule 6): a collection's `applied_ts` is
//! the minimum over the source partitions mapped to it; its `safe_ts` the minimum over its modalities.

use std::collections::BTreeMap;
use std::hash::Hash;

use hashbrown::HashMap;
use thiserror::Error;
use tidegate_core::{ResolvedTs, TableId};

use crate::checkpoint::Checkpoint;

/// Per-partition progress of every collection, fed by checkpoints alone. `C` names a collection.
#[derive(Debug)]
pub struct Progress<C> {
    collections: HashMap<C, Collection>,
}

#[derive(Debug, Default)]
struct Collection {
    tables: BTreeMap<TableId, Mapped>,
    applied: ResolvedTs,
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    resolved: ResolvedTs,
    /// Whether a checkpoint has listed it; from then on it must stay listed.
    listed: bool,
}

impl<C> Default for Progress<C> {
    fn default() -> Self {
        Self { collections: HashMap::new() }
    }
}

impl<C: Clone + Eq + Hash> Progress<C> {
    /// No collections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps the partition of `table` to `collection`. `from` counts as its progress until a checkpoint
    /// lists it: the start timestamp, or just below the DDL event that added the table.
    ///
    /// # Errors
    /// A `from` below what the collection has already applied.
    pub fn map(&mut self, collection: C, table: TableId, from: ResolvedTs) -> Result<(), ProgressError> {
        let entry = self.collections.entry(collection).or_default();
        if from < entry.applied {
            return Err(ProgressError::Regression { table, from: entry.applied, to: from });
        }
        entry.tables.entry(table).or_insert(Mapped { resolved: from, listed: false });
        Ok(())
    }

    /// Removes the partition of a table that a DDL event dropped.
    pub fn unmap(&mut self, collection: &C, table: TableId) {
        if let Some(entry) = self.collections.get_mut(collection) {
            entry.tables.remove(&table);
        }
    }

    /// Forgets a dropped collection.
    pub fn drop_collection(&mut self, collection: &C) {
        self.collections.remove(collection);
    }

    /// Takes a checkpoint and returns the collections whose `applied_ts` moved, with its new value.
    ///
    /// # Errors
    /// Progress of a partition that went back, or is no longer listed although it is still mapped.
    pub fn observe(&mut self, checkpoint: &Checkpoint) -> Result<Vec<(C, ResolvedTs)>, ProgressError> {
        let mut moved = Vec::new();
        for (name, collection) in &mut self.collections {
            for (&table, mapped) in &mut collection.tables {
                mapped.observe(table, checkpoint.table(table))?;
            }
            let applied = collection.tables.values().map(|mapped| mapped.resolved).min();
            if let Some(applied) = applied.filter(|&applied| applied > collection.applied) {
                collection.applied = applied;
                moved.push((name.clone(), applied));
            }
        }
        Ok(moved)
    }

    /// The collection's `applied_ts`; `None` before its first.
    pub fn applied_ts(&self, collection: &C) -> Option<ResolvedTs> {
        self.collections.get(collection).map(|entry| entry.applied).filter(|&ts| ts > ResolvedTs::ZERO)
    }
}

impl Mapped {
    fn observe(&mut self, table: TableId, resolved: Option<ResolvedTs>) -> Result<(), ProgressError> {
        match resolved {
            None if self.listed => Err(ProgressError::Lost { table, at: self.resolved }),
            None => Ok(()),
            Some(to) if self.listed && to < self.resolved => {
                Err(ProgressError::Regression { table, from: self.resolved, to })
            }
            Some(to) => {
                *self = Self { resolved: self.resolved.max(to), listed: true };
                Ok(())
            }
        }
    }
}

/// One way a collection can be searched, as far as its readiness counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modality {
    /// Whether the collection has it. An optional modality that is absent does not hold `safe_ts` back.
    pub enabled: bool,
    /// What it has applied; `None` for nothing yet.
    pub applied_ts: Option<ResolvedTs>,
}

/// `safe_ts`: the minimum applied timestamp of the enabled modalities (I12). `None` while one of them has
/// applied nothing, or none is enabled.
pub fn safe_ts(modalities: &[Modality]) -> Option<ResolvedTs> {
    let enabled = modalities.iter().filter(|modality| modality.enabled);
    enabled.map(|modality| modality.applied_ts).min().flatten()
}

/// Progress that cannot be believed. Terminal (`spec/mini-cdc.md` §5.5 rule 6).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// Progress went back.
    #[error("the progress of table {table} went back from {from} to {to}")]
    Regression {
        /// The table.
        table: TableId,
        /// Where it was.
        from: ResolvedTs,
        /// What came.
        to: ResolvedTs,
    },
    /// A mapped partition is missing from a checkpoint.
    #[error("table {table}, which had reached {at}, is missing from the checkpoint")]
    Lost {
        /// The table.
        table: TableId,
        /// Its last progress.
        at: ResolvedTs,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TableId = TableId(1);
    const B: TableId = TableId(2);

    fn ts(ts: u64) -> ResolvedTs {
        ResolvedTs::new(ts)
    }

    fn checkpoint(tables: &[(TableId, u64)]) -> Checkpoint {
        Checkpoint::new(ts(0), tables.iter().map(|&(table, resolved)| (table, ts(resolved))))
    }

    fn mapped() -> Progress<&'static str> {
        let mut progress = Progress::new();
        progress.map("c", A, ts(10)).expect("nothing applied yet");
        progress.map("c", B, ts(10)).expect("nothing applied yet");
        progress
    }

    #[test]
    fn a_collections_applied_ts_is_the_minimum_over_its_mapped_partitions() {
        let mut progress = mapped();
        assert_eq!(progress.observe(&checkpoint(&[(A, 30)])), Ok(vec![("c", ts(10))]));
        assert_eq!(progress.observe(&checkpoint(&[(A, 40), (B, 20)])), Ok(vec![("c", ts(20))]));
        assert_eq!(progress.observe(&checkpoint(&[(A, 50), (B, 20)])), Ok(vec![]));
        assert_eq!(progress.applied_ts(&"c"), Some(ts(20)));
        assert_eq!(progress.applied_ts(&"other"), None);
    }

    #[test]
    fn a_partition_that_joins_holds_applied_ts_until_it_is_listed() {
        let mut progress = mapped();
        progress.observe(&checkpoint(&[(A, 30), (B, 30)])).expect("forward");
        let joined = TableId(3);
        progress.map("c", joined, ts(34)).expect("above what was applied");
        progress.unmap(&"c", A);
        assert_eq!(progress.observe(&checkpoint(&[(B, 50)])), Ok(vec![("c", ts(34))]));
        assert_eq!(progress.observe(&checkpoint(&[(B, 50), (joined, 60)])), Ok(vec![("c", ts(50))]));
        let late = ProgressError::Regression { table: A, from: ts(50), to: ts(49) };
        assert_eq!(progress.map("c", A, ts(49)), Err(late));
    }

    #[test]
    fn progress_that_goes_back_or_disappears_is_an_error() {
        let mut progress = mapped();
        progress.observe(&checkpoint(&[(A, 30), (B, 30)])).expect("forward");
        let back = ProgressError::Regression { table: A, from: ts(30), to: ts(29) };
        assert_eq!(progress.observe(&checkpoint(&[(A, 29), (B, 30)])), Err(back));
        let lost = ProgressError::Lost { table: B, at: ts(30) };
        assert_eq!(progress.observe(&checkpoint(&[(A, 31)])), Err(lost));
    }

    #[test]
    fn safe_ts_is_the_minimum_over_the_enabled_modalities() {
        let at = |applied| Modality { enabled: true, applied_ts: Some(ts(applied)) };
        let metadata_aux = Modality { enabled: false, applied_ts: None };
        assert_eq!(safe_ts(&[at(30), at(20), metadata_aux]), Some(ts(20)));
        assert_eq!(safe_ts(&[at(30), Modality { enabled: true, applied_ts: None }]), None);
        assert_eq!(safe_ts(&[metadata_aux]), None);
    }
}
