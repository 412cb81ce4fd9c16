//! A batch after validation: typed, and with its content already in stored form.

use tidegate_contract::error::Breach;
use tidegate_core::{CommitTs, ResolvedTs};
use tidegate_proto::searchfabric::v1::Modality;

use crate::content::Content;

/// A validated batch of one source partition.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// The idempotency key.
    pub(crate) key: String,
    /// The batch's name.
    pub(crate) batch_id: String,
    /// The fingerprint of its content.
    pub(crate) fingerprint: String,
    /// The source partition.
    pub(crate) partition: String,
    /// The writer's epoch.
    pub(crate) epoch: u64,
    /// The number of the first entry.
    pub(crate) seq: u64,
    /// The version of the generation that its token names.
    pub(crate) schema_version: u32,
    /// Whether bad entries are skipped and reported instead of refusing the batch.
    pub(crate) continue_on_error: bool,
    /// The entries.
    pub(crate) entries: Vec<Entry>,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A change of a document.
    Row(Row),
    /// Progress.
    Progress(Progress),
    /// The last entry before a DDL; takes a number and nothing else.
    Barrier(CommitTs),
    /// An entry that broke a rule, in a batch that goes on after errors.
    Bad(Breach),
}

/// What a row does to its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Writes the whole document.
    Upsert,
    /// Writes some fields of it.
    Patch,
    /// Deletes it.
    Delete,
}

/// A change of a document.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The document.
    pub(crate) doc: u64,
    /// The version.
    pub(crate) version: CommitTs,
    /// What it does.
    pub(crate) kind: RowKind,
    /// The written fields; empty for a delete.
    pub(crate) content: Content,
}

/// A promise of the source: no row of the partition at or below `resolved` comes later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The promise.
    pub(crate) resolved: ResolvedTs,
    /// Lower marks of single modalities.
    pub(crate) marks: Vec<(Modality, ResolvedTs)>,
}

impl Batch {
    /// The number of the last entry.
    pub(crate) fn last_seq(&self) -> u64 {
        let after_first = u64::try_from(self.entries.len().saturating_sub(1)).unwrap_or(u64::MAX);
        self.seq.saturating_add(after_first)
    }

    /// The largest timestamp of the batch; zero when it has none.
    pub(crate) fn largest_ts(&self) -> CommitTs {
        self.entries.iter().map(Entry::ts).max().unwrap_or_default()
    }
}

impl Entry {
    /// Its timestamp in the role that batches are measured by.
    pub(crate) fn ts(&self) -> CommitTs {
        match self {
            Self::Row(row) => row.version,
            Self::Progress(progress) => progress.resolved.ts().as_commit(),
            Self::Barrier(ts) => *ts,
            Self::Bad(_) => CommitTs::ZERO,
        }
    }
}
