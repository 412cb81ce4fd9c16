//! What the engine holds for one key: at most one lock, and versions.

use bytes::Bytes;
use smallvec::SmallVec;
use tidegate_core::{CommitTs, StartTs, Ts};

/// A position in the sequence of applied commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Applied(u64);

impl Applied {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a lock will do when its transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Put,
    Delete,
    /// Locks the key without changing it.
    Lock,
    /// Held by a pessimistic transaction that has not prewritten the key yet.
    Pessimistic,
}

impl LockKind {
    pub(crate) fn changes_data(self) -> bool {
        matches!(self, Self::Put | Self::Delete)
    }
}

/// A transaction's claim on a key.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) kind: LockKind,
    /// Raw key whose lock decides the transaction's fate.
    pub(crate) primary: Bytes,
    pub(crate) start_ts: StartTs,
    /// Milliseconds after the physical part of `start_ts`.
    pub(crate) ttl_ms: u64,
    pub(crate) value: Bytes,
    /// Zero for optimistic transactions.
    pub(crate) for_update_ts: Ts,
    pub(crate) txn_size: u64,
    /// Zero: the transaction's writer did not ask for one, and it is never pushed.
    pub(crate) min_commit_ts: CommitTs,
    pub(crate) async_commit: bool,
    /// Of an async-commit transaction, only in its primary's lock.
    pub(crate) secondaries: Vec<Bytes>,
    /// Transactions that were rolled back on this key while this lock held it. If this one commits at exactly
    /// such a timestamp, its record must also stand for that rollback.
    pub(crate) rolled_back: Vec<StartTs>,
    pub(crate) txn_source: u64,
    pub(crate) prewritten: Applied,
}

/// What a version did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Put,
    Delete,
    /// A committed lock: no data.
    Lock,
    /// The transaction was rolled back here; its position is its start timestamp.
    Rollback {
        /// Must never be dropped; others may be collapsed into the next one.
        protected: bool,
    },
}

/// One record of a key's past.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) kind: VersionKind,
    pub(crate) start_ts: StartTs,
    pub(crate) commit_ts: CommitTs,
    pub(crate) value: Bytes,
    pub(crate) txn_source: u64,
    /// Another transaction, whose start timestamp equals this commit timestamp, was rolled back here.
    pub(crate) overlapped_rollback: bool,
    pub(crate) applied: Applied,
    /// When its lock was written; equal to `applied` where there was none.
    pub(crate) prewritten: Applied,
}

impl Version {
    pub(crate) fn is_data(&self) -> bool {
        matches!(self.kind, VersionKind::Put | VersionKind::Delete)
    }

    fn is_rollback(&self) -> bool {
        matches!(self.kind, VersionKind::Rollback { .. })
    }
}

/// What became of a transaction on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed(CommitTs),
    RolledBack,
    Unknown,
}

/// One key's lock and versions, these ascending by commit timestamp.
pub(crate) struct KeyState {
    pub(crate) raw: Bytes,
    pub(crate) lock: Option<Box<Lock>>,
    /// Most keys of a loaded history have one version: it lies inside the map's node.
    pub(crate) versions: SmallVec<[Version; 1]>,
}

impl KeyState {
    pub(crate) fn new(raw: Bytes) -> Self {
        Self { raw, lock: None, versions: SmallVec::new() }
    }

    /// The newest record of any kind.
    pub(crate) fn newest(&self) -> Option<&Version> {
        self.versions.last()
    }

    /// The newest put or delete at or below `ts`.
    pub(crate) fn data_at(&self, ts: Ts) -> Option<&Version> {
        self.versions.iter().rev().filter(|v| v.commit_ts.ts() <= ts).find(|v| v.is_data())
    }

    /// What a snapshot at `ts` reads: `None` where there is nothing or a delete.
    pub(crate) fn visible_at(&self, ts: Ts) -> Option<&Version> {
        self.data_at(ts).filter(|version| version.kind == VersionKind::Put)
    }

    /// The value that a snapshot at `ts` reads, empty where there is none.
    pub(crate) fn value_at(&self, ts: Ts) -> Bytes {
        self.visible_at(ts).map_or_else(Bytes::new, |version| version.value.clone())
    }

    pub(crate) fn outcome(&self, start_ts: StartTs) -> Outcome {
        let mut rolled_back = false;
        for version in self.versions.iter().rev().take_while(|v| v.commit_ts.ts() >= start_ts.ts()) {
            if version.start_ts == start_ts {
                return if version.is_rollback() {
                    Outcome::RolledBack
                } else {
                    Outcome::Committed(version.commit_ts)
                };
            }
            rolled_back |= version.overlapped_rollback && version.commit_ts.ts() == start_ts.ts();
        }
        if rolled_back { Outcome::RolledBack } else { Outcome::Unknown }
    }

    /// Adds a record at its place. A rollback record at the very position of a commit gives way to it: the
    /// commit record then stands for both.
    pub(crate) fn insert(&mut self, mut version: Version) {
        let at = self.versions.partition_point(|v| v.commit_ts < version.commit_ts);
        match self.versions.get_mut(at) {
            Some(same) if same.commit_ts == version.commit_ts => {
                version.overlapped_rollback |= same.is_rollback() || same.overlapped_rollback;
                *same = version;
            }
            _ => self.versions.insert(at, version),
        }
    }

    /// Records that the transaction of `start_ts` was rolled back. Returns whether that left a trace that
    /// change feeds show.
    pub(crate) fn insert_rollback(&mut self, start_ts: StartTs, protected: bool, applied: Applied) -> bool {
        let position = start_ts.ts().as_commit();
        let at = self.versions.partition_point(|v| v.commit_ts < position);
        match self.versions.get_mut(at) {
            Some(same) if same.commit_ts == position => overlap(same, protected),
            _ => {
                let kind = VersionKind::Rollback { protected };
                self.versions.insert(at, rollback_record(kind, start_ts, applied));
                self.collapse_before(at);
                true
            }
        }
    }

    /// Drops the unprotected rollback record directly before `at`: a newer record of the key defeats a late
    /// prewrite of that transaction just as well.
    fn collapse_before(&mut self, at: usize) {
        let Some(before) = at.checked_sub(1) else { return };
        if self.versions.get(before).is_some_and(|v| v.kind == VersionKind::Rollback { protected: false }) {
            self.versions.remove(before);
        }
    }
}

/// A rollback falls on a record that already stands at its position.
fn overlap(record: &mut Version, protected: bool) -> bool {
    match &mut record.kind {
        VersionKind::Rollback { protected: was } => {
            *was |= protected;
            false
        }
        // An unprotected rollback may be forgotten; a protected one is noted on the commit record.
        _ if protected && !record.overlapped_rollback => {
            record.overlapped_rollback = true;
            true
        }
        _ => false,
    }
}

fn rollback_record(kind: VersionKind, start_ts: StartTs, applied: Applied) -> Version {
    Version {
        kind,
        start_ts,
        commit_ts: start_ts.ts().as_commit(),
        value: Bytes::new(),
        txn_source: 0,
        overlapped_rollback: false,
        applied,
        prewritten: applied,
    }
}
