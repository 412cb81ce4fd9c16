//! The normalisation bridge (`spec/mini-cdc.md` §5.5): from rows per table path, as callbacks bring them, to
//! canonical rows per source partition, numbered in commit order.
//!
//! A pure state machine, generic over what a consumer keeps of a row. Rows wait in a bounded reorder buffer
//! per partition until a checkpoint or a DDL event seals them; nothing else gives out sequence numbers. A
//! full buffer refuses rows for a bounded window and then fails for good.
//!
//! The runtime may deliver a row twice when a region reconnects, always above the table's last checkpoint;
//! the second copy is then still in the buffer together with the first, and is dropped when they are sealed.

mod buffer;
mod partition;
mod progress;

use std::time::Duration;

use hashbrown::HashMap;
use thiserror::Error;
use tidegate_codec::event::{OwnedRow, RowKind};
use tidegate_core::{CommitTs, KeyspaceId, MonoTime, ResolvedTs, TableId};

use crate::checkpoint::Checkpoint;
use buffer::{Buffer, MissingOldValue, Taken};
pub use partition::{SourceEpoch, SourcePartition, SourceSeq};
pub use progress::{Modality, Progress, ProgressError, safe_ts};

/// What the bridge must know of a row.
pub trait BridgeRow {
    /// The row's key: two rows of one partition with equal commit timestamp and key are the same change.
    fn key(&self) -> &[u8];
    /// Bytes that count against the limits.
    fn size_bytes(&self) -> usize;
    /// Whether the key was present before and after the change; `None` where that cannot be told, or where
    /// changes of the key were left out on purpose. An update that lost its old value looks like an insert;
    /// it is found out when an earlier change sealed with it left the key present (`spec/mini-cdc.md` §6).
    fn presence(&self) -> Option<Presence> {
        None
    }
}

/// Whether a key was present around a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Before it.
    pub before: bool,
    /// After it.
    pub after: bool,
}

impl BridgeRow for OwnedRow {
    fn key(&self) -> &[u8] {
        Self::key(self)
    }

    fn size_bytes(&self) -> usize {
        Self::size_bytes(self)
    }

    fn presence(&self) -> Option<Presence> {
        Some(Presence { before: self.kind != RowKind::Insert, after: self.kind != RowKind::Delete })
    }
}

/// Bounds of the reorder buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeLimits {
    /// Most unsealed rows of one partition.
    pub partition_rows_max: usize,
    /// Most unsealed bytes of one partition.
    pub partition_bytes_max: usize,
    /// Most unsealed bytes of all partitions together; memory stays inside it however many tables there are.
    pub total_bytes_max: usize,
    /// How long a full buffer may wait for a seal.
    pub window: Duration,
}

impl Default for BridgeLimits {
    /// A transaction of TiDB holds at most 1 GiB but usually less than 100 MiB, and all rows of one commit
    /// timestamp must fit; a first scan must fit as a whole, because a region reports no progress during it.
    fn default() -> Self {
        Self {
            partition_rows_max: 4_000_000,
            partition_bytes_max: 512 << 20,
            total_bytes_max: 1 << 30,
            window: Duration::from_secs(10),
        }
    }
}

/// What became of an offered row.
#[derive(Debug, PartialEq, Eq)]
pub enum Admitted<T> {
    /// It is in the buffer.
    Buffered,
    /// The buffer is full. Offer the row again after the next seal, and at `until` at the latest; if the
    /// buffer is then still full, that offer fails.
    Full {
        /// The row, given back.
        row: T,
        /// End of the back-pressure window.
        until: MonoTime,
    },
}

/// Rows of one partition that were sealed together, in canonical order: by commit timestamp, then in the
/// order of their callbacks. A run never mixes partitions and is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRun<T> {
    /// The physical table.
    pub table: TableId,
    /// Its canonical name.
    pub partition: SourcePartition,
    /// The epoch that the sequence numbers belong to.
    pub epoch: SourceEpoch,
    /// Sequence number of the first row; each following row has the next.
    pub first_seq: SourceSeq,
    /// The rows.
    pub rows: Vec<SealedRow<T>>,
}

/// One sealed row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRow<T> {
    /// Its number in the partition.
    pub seq: SourceSeq,
    /// Commit timestamp of its transaction.
    pub commit_ts: CommitTs,
    /// What the consumer kept of it.
    pub row: T,
}

/// Which table paths a DDL event seals.
#[derive(Clone, Copy, Debug)]
pub enum DdlScope<'a> {
    /// Every table path: a DDL of a whole database or cluster.
    All,
    /// These table paths.
    Tables(&'a [TableId]),
}

/// The bridge. One per adapter instance.
#[derive(Debug)]
pub struct Bridge<T> {
    keyspace: Option<KeyspaceId>,
    limits: BridgeLimits,
    epoch: SourceEpoch,
    partitions: HashMap<TableId, Partition<T>>,
    total_bytes: usize,
    duplicates: u64,
    global: ResolvedTs,
}

#[derive(Debug)]
struct Partition<T> {
    name: SourcePartition,
    next_seq: SourceSeq,
    buffer: Buffer<T>,
    /// Rows at or below it have been given out; `None` while the table catches up after joining.
    sealed: Option<ResolvedTs>,
    /// End of the back-pressure window, while the buffer refuses rows.
    full_until: Option<MonoTime>,
}

impl<T: BridgeRow> Bridge<T> {
    /// A bridge without partitions, at `epoch`: the first on a first start, the stored one's successor after
    /// a restart.
    pub fn new(keyspace: Option<KeyspaceId>, limits: BridgeLimits, epoch: SourceEpoch) -> Self {
        Self {
            keyspace,
            limits,
            epoch,
            partitions: HashMap::new(),
            total_bytes: 0,
            duplicates: 0,
            global: ResolvedTs::ZERO,
        }
    }

    /// Adds the path of `table`; its sequence begins at 1. `false` if it exists already.
    pub fn open(&mut self, table: TableId) -> bool {
        if self.partitions.contains_key(&table) {
            return false;
        }
        let name = SourcePartition::of(self.keyspace, table);
        let partition = Partition {
            name,
            next_seq: SourceSeq::FIRST,
            buffer: Buffer::default(),
            sealed: None,
            full_until: None,
        };
        self.partitions.insert(table, partition);
        true
    }

    /// Removes the path of a table that a DDL event dropped, after that event sealed it. Returns how many
    /// unsealed rows went with it: those after the drop, which no longer have a place.
    pub fn close(&mut self, table: TableId) -> usize {
        let Some(partition) = self.partitions.remove(&table) else { return 0 };
        self.total_bytes -= partition.buffer.bytes();
        partition.buffer.len()
    }

    /// Begins the next epoch after a re-subscription: buffers are emptied and sequences begin at 1 again.
    /// DDL, progress and checkpoints never do this.
    pub fn restart(&mut self) {
        self.epoch = self.epoch.next();
        self.total_bytes = 0;
        for partition in self.partitions.values_mut() {
            partition.buffer = Buffer::default();
            partition.next_seq = SourceSeq::FIRST;
            (partition.sealed, partition.full_until) = (None, None);
        }
    }

    /// Offers one row as its callback brought it.
    ///
    /// # Errors
    /// [`BridgeError::Overflow`] once the window has passed without room; a row of an unknown path; a row at
    /// or below what was sealed.
    pub fn offer(
        &mut self,
        table: TableId,
        commit_ts: CommitTs,
        row: T,
        now: MonoTime,
    ) -> Result<Admitted<T>, BridgeError> {
        let Some(partition) = self.partitions.get_mut(&table) else {
            return Err(BridgeError::UnknownPartition { table });
        };
        if let Some(sealed) = partition.sealed.filter(|sealed| commit_ts.ts() <= sealed.ts()) {
            return Err(BridgeError::LateRow { table, commit_ts, sealed });
        }
        let bytes = row.size_bytes();
        if partition.buffer.fits(bytes, &self.limits)
            && self.total_bytes.saturating_add(bytes) <= self.limits.total_bytes_max
        {
            self.total_bytes += bytes;
            partition.full_until = None;
            partition.buffer.push(commit_ts, row);
            return Ok(Admitted::Buffered);
        }
        let until = *partition.full_until.get_or_insert(now.after(self.limits.window));
        if now < until {
            return Ok(Admitted::Full { row, until });
        }
        let (rows, bytes) = (partition.buffer.len(), partition.buffer.bytes());
        Err(BridgeError::Overflow { table, rows, bytes, total_bytes: self.total_bytes })
    }

    /// A checkpoint: seals each partition up to its own progress.
    ///
    /// # Errors
    /// A checkpoint that goes back, for one table or for all; [`BridgeError::MissingOldValue`].
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<Vec<SealedRun<T>>, BridgeError> {
        if checkpoint.global() < self.global {
            return Err(BridgeError::GlobalRegression { from: self.global, to: checkpoint.global() });
        }
        self.global = checkpoint.global();
        let mut runs = Vec::new();
        for (table, resolved) in checkpoint.tables() {
            let Some(partition) = self.partitions.get(&table) else { continue };
            match partition.sealed {
                Some(from) if resolved < from => {
                    return Err(BridgeError::Regression { table, from, to: resolved });
                }
                _ => runs.extend(self.seal(table, resolved)?),
            }
        }
        Ok(runs)
    }

    /// A DDL event finished at `finished`: seals the rows at or below it of the paths it touches. Call
    /// before applying the event.
    ///
    /// # Errors
    /// [`BridgeError::MissingOldValue`].
    pub fn ddl(&mut self, finished: CommitTs, scope: DdlScope<'_>) -> Result<Vec<SealedRun<T>>, BridgeError> {
        let upto = finished.ts().as_resolved();
        let mut tables: Vec<TableId> = match scope {
            DdlScope::Tables(tables) => tables.to_vec(),
            DdlScope::All => self.partitions.keys().copied().collect(),
        };
        tables.sort_unstable();
        tables.into_iter().filter_map(|table| self.seal(table, upto).transpose()).collect()
    }

    fn seal(&mut self, table: TableId, upto: ResolvedTs) -> Result<Option<SealedRun<T>>, BridgeError> {
        let Some(partition) = self.partitions.get_mut(&table) else { return Ok(None) };
        partition.sealed = partition.sealed.max(Some(upto));
        let before = partition.buffer.bytes();
        let taken = partition.buffer.take_upto(upto.ts().as_commit());
        self.total_bytes -= before - partition.buffer.bytes();
        let missing = |MissingOldValue(commit_ts)| BridgeError::MissingOldValue { table, commit_ts };
        let Taken { rows, duplicates } = taken.map_err(missing)?;
        self.duplicates += duplicates;
        let first_seq = partition.next_seq;
        let numbered = rows.into_iter().map(|(commit_ts, row)| {
            let seq = partition.next_seq;
            partition.next_seq = seq.next();
            SealedRow { seq, commit_ts, row }
        });
        let rows: Vec<_> = numbered.collect();
        let (partition, epoch) = (partition.name.clone(), self.epoch);
        let run = SealedRun { table, partition, epoch, first_seq, rows };
        Ok((!run.rows.is_empty()).then_some(run))
    }

    /// The current epoch.
    pub const fn epoch(&self) -> SourceEpoch {
        self.epoch
    }

    /// Unsealed bytes of all partitions.
    pub const fn buffered_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Unsealed rows of all partitions.
    pub fn buffered_rows(&self) -> usize {
        self.partitions.values().map(|partition| partition.buffer.len()).sum()
    }

    /// Second copies that were dropped, since the beginning.
    pub const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The open paths, in no order.
    pub fn tables(&self) -> impl Iterator<Item = TableId> + '_ {
        self.partitions.keys().copied()
    }
}

/// Why the bridge cannot go on. All are terminal: the subscription must stop (`spec/mini-cdc.md` §5.5, §9).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BridgeError {
    /// No seal came within the back-pressure window.
    #[error(
        "the reorder buffer of table {table} is full with {rows} rows and {bytes} bytes ({total_bytes} bytes \
         in all tables), and no checkpoint or ddl sealed any of them in time"
    )]
    Overflow {
        /// The table whose row has no room.
        table: TableId,
        /// Unsealed rows of the table.
        rows: usize,
        /// Unsealed bytes of the table.
        bytes: usize,
        /// Unsealed bytes of all tables.
        total_bytes: usize,
    },
    /// A row of a table that no path was opened for.
    #[error("a row of table {table} came, but the table has no source partition")]
    UnknownPartition {
        /// The table.
        table: TableId,
    },
    /// A row at or below a seal: its place in the sequence is gone (I3).
    #[error("a row of table {table} committed at {commit_ts} came after {sealed} was sealed")]
    LateRow {
        /// The table.
        table: TableId,
        /// The row's commit timestamp.
        commit_ts: CommitTs,
        /// What was sealed.
        sealed: ResolvedTs,
    },
    /// An insert of a key that an earlier change left present: an update that lost its old value, or a delete
    /// that was lost.
    #[error("a change of table {table} at {commit_ts} has no old value, although its row existed")]
    MissingOldValue {
        /// The table.
        table: TableId,
        /// The change's commit timestamp.
        commit_ts: CommitTs,
    },
    /// A table's progress went back.
    #[error("the checkpoint of table {table} went back from {from} to {to}")]
    Regression {
        /// The table.
        table: TableId,
        /// Where it was.
        from: ResolvedTs,
        /// What came.
        to: ResolvedTs,
    },
    /// The global progress went back.
    #[error("the checkpoint went back from {from} to {to}")]
    GlobalRegression {
        /// Where it was.
        from: ResolvedTs,
        /// What came.
        to: ResolvedTs,
    },
}

#[cfg(test)]
mod tests;
