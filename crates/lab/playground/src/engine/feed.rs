//! What a change feed sees of the engine (`reference/cdc-protocol.md` §5, §6).

use std::ops::Bound;

use bytes::Bytes;
use tidegate_core::{CommitTs, Op, Span, StartTs, Ts};

use super::{Applied, Engine, KeyState, Lock, LockKind, SHORT_VALUE_BYTES_MAX, Version, VersionKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Prewrite,
    Commit,
    Rollback,
    Committed,
}

/// One row of a change feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRow {
    pub(crate) kind: RowKind,
    /// `None` for a rollback.
    pub(crate) op: Option<Op>,
    /// Decides which region and subscription the row belongs to.
    pub(crate) encoded: Bytes,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) old_value: Bytes,
    pub(crate) start_ts: StartTs,
    /// Zero for prewrite and rollback.
    pub(crate) commit_ts: CommitTs,
    pub(crate) txn_source: u64,
}

impl ChangeRow {
    /// Bytes that count towards all limits.
    pub(crate) fn size_bytes(&self) -> usize {
        self.key.len() + self.value.len() + self.old_value.len()
    }

    /// The row of a new lock, if the lock will change data.
    pub(super) fn prewrite(encoded: &Bytes, raw: &Bytes, lock: &Lock, old_value: Bytes) -> Option<Self> {
        let op = match lock.kind {
            LockKind::Put => Op::Put,
            LockKind::Delete => Op::Delete,
            LockKind::Lock | LockKind::Pessimistic => return None,
        };
        Some(Self {
            kind: RowKind::Prewrite,
            op: Some(op),
            encoded: encoded.clone(),
            key: raw.clone(),
            value: lock.value.clone(),
            old_value,
            start_ts: lock.start_ts,
            commit_ts: CommitTs::ZERO,
            txn_source: lock.txn_source,
        })
    }

    /// The row of a lock that became a version: only short values travel, and no old value.
    pub(super) fn commit(encoded: &Bytes, raw: &Bytes, version: &Version) -> Option<Self> {
        let short = version.value.len() <= SHORT_VALUE_BYTES_MAX;
        let value = if short { version.value.clone() } else { Bytes::new() };
        Self::of_version(RowKind::Commit, encoded, raw, version, value, Bytes::new())
    }

    /// The row of a version whose prewrite nobody saw.
    pub(super) fn committed(encoded: &Bytes, state: &KeyState, version: &Version) -> Option<Self> {
        let old_value = state.value_at(version.commit_ts.ts().prev());
        Self::of_version(RowKind::Committed, encoded, &state.raw, version, version.value.clone(), old_value)
    }

    fn of_version(
        kind: RowKind,
        encoded: &Bytes,
        raw: &Bytes,
        version: &Version,
        value: Bytes,
        old_value: Bytes,
    ) -> Option<Self> {
        let op = match version.kind {
            VersionKind::Put => Op::Put,
            VersionKind::Delete => Op::Delete,
            VersionKind::Lock | VersionKind::Rollback { .. } => return None,
        };
        Some(Self {
            kind,
            op: Some(op),
            encoded: encoded.clone(),
            key: raw.clone(),
            value,
            old_value,
            start_ts: version.start_ts,
            commit_ts: version.commit_ts,
            txn_source: version.txn_source,
        })
    }

    pub(super) fn rollback(encoded: &Bytes, raw: &Bytes, start_ts: StartTs) -> Self {
        Self {
            kind: RowKind::Rollback,
            op: None,
            encoded: encoded.clone(),
            key: raw.clone(),
            value: Bytes::new(),
            old_value: Bytes::new(),
            start_ts,
            commit_ts: CommitTs::ZERO,
            txn_source: 0,
        }
    }
}

/// A scan of one subscription's range as of a point in the sequence of applied commands. It may go on while
/// newer commands are applied: what they did is left out, because the live feed shows it.
#[derive(Clone, Debug)]
pub(crate) struct FeedScan {
    pub(crate) span: Span,
    /// Versions above it are shown.
    pub(crate) checkpoint: Ts,
    pub(crate) snapshot: Applied,
    /// The last key shown; empty before the first.
    after: Bytes,
}

impl FeedScan {
    pub(crate) fn new(span: Span, checkpoint: Ts, snapshot: Applied) -> Self {
        Self { span, checkpoint, snapshot, after: Bytes::new() }
    }
}

impl Engine {
    /// Shows the next keys of a scan, ascending, until about `rows_max` rows or `bytes_max` bytes are
    /// reached. A key's versions come newest first and are never divided between steps. Returns whether the
    /// scan is complete.
    pub(crate) fn feed_scan_step(
        &self,
        scan: &mut FeedScan,
        rows_max: usize,
        bytes_max: usize,
        rows: &mut Vec<ChangeRow>,
    ) -> bool {
        let from = if scan.after.is_empty() {
            Bound::Included(scan.span.start.as_ref())
        } else {
            Bound::Excluded(scan.after.as_ref())
        };
        let to = super::bounds(&scan.span).1;
        let mut bytes = 0;
        let mut last = None;
        for (encoded, state) in self.keys.range::<[u8], _>((from, to)) {
            let first = rows.len();
            state.feed_rows(encoded, scan, rows);
            bytes += rows.iter().skip(first).map(ChangeRow::size_bytes).sum::<usize>();
            if rows.len() >= rows_max || bytes >= bytes_max {
                last = Some(encoded.clone());
                break;
            }
        }
        match last {
            Some(last) => {
                scan.after = last;
                false
            }
            None => true,
        }
    }
}

impl KeyState {
    fn feed_rows(&self, encoded: &Bytes, scan: &FeedScan, rows: &mut Vec<ChangeRow>) {
        let locked = self.lock.as_deref().filter(|lock| lock.prewritten <= scan.snapshot);
        if let Some(lock) = locked {
            let old_value = self.value_at(lock.start_ts.ts().max(lock.for_update_ts));
            rows.extend(ChangeRow::prewrite(encoded, &self.raw, lock, old_value));
        }
        let shown = |v: &&Version| v.commit_ts.ts() > scan.checkpoint || v.applied > scan.snapshot;
        for version in self.versions.iter().rev().take_while(shown) {
            if version.applied <= scan.snapshot {
                rows.extend(ChangeRow::committed(encoded, self, version));
            } else if version.prewritten <= scan.snapshot {
                // It was a lock at the scan's snapshot; its commit comes by the live feed.
                rows.extend(ChangeRow::committed(encoded, self, version).map(ChangeRow::into_prewrite));
            }
        }
    }
}

impl ChangeRow {
    fn into_prewrite(self) -> Self {
        Self { kind: RowKind::Prewrite, commit_ts: CommitTs::ZERO, ..self }
    }
}
