//! Snapshot reads (`reference/tikv-kv-protocol.md` §7.1).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Span, StartTs, Ts};

use super::{ConflictReason, Engine, KeyState, Lock, LockKind, TxnError, Version, bounds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Isolation {
    #[default]
    Snapshot,
    /// Locks are ignored.
    ReadCommitted,
    /// Locks are ignored, and a version above the snapshot is a conflict.
    ReadCommittedCheckTs,
}

/// At which timestamp, and past which locks, a read looks.
#[derive(Clone, Debug)]
pub(crate) struct ReadView {
    pub(crate) version: Ts,
    pub(crate) isolation: Isolation,
    /// Transactions whose locks the reader knows not to matter.
    pub(crate) resolved: Vec<StartTs>,
    /// Transactions that the reader knows to be committed at or below `version`.
    pub(crate) committed: Vec<StartTs>,
}

impl ReadView {
    /// A plain snapshot.
    pub(crate) fn at(version: Ts) -> Self {
        Self { version, isolation: Isolation::Snapshot, resolved: Vec::new(), committed: Vec::new() }
    }
}

/// A value and when it was committed; zero when it was read from a lock known to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: Bytes,
    pub(crate) commit_ts: CommitTs,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanOptions {
    pub(crate) limit: usize,
    pub(crate) reverse: bool,
    pub(crate) key_only: bool,
}

/// A scanned key: its value, or the reason why it cannot be read.
pub(crate) type Scanned = (Bytes, Result<Found, TxnError>);

impl Engine {
    /// Reads one raw key.
    pub(crate) fn get(&mut self, raw: &[u8], view: &ReadView) -> Result<Option<Found>, TxnError> {
        self.raise_max_ts(view.version);
        match self.keys.get(to_region_key(raw).as_slice()) {
            Some(state) => state.read(view),
            None => Ok(None),
        }
    }

    /// Reads the keys of an encoded span. A locked key takes a place like any other, with its error.
    pub(crate) fn scan(&mut self, span: &Span, view: &ReadView, options: ScanOptions) -> Vec<Scanned> {
        self.raise_max_ts(view.version);
        let range = self.keys.range::<[u8], _>(bounds(span));
        if options.reverse { collect(range.rev(), view, options) } else { collect(range, view, options) }
    }
}

fn collect<'a>(
    keys: impl Iterator<Item = (&'a Bytes, &'a KeyState)>,
    view: &ReadView,
    options: ScanOptions,
) -> Vec<Scanned> {
    keys.filter_map(|(_, state)| {
        let found = state.read(view).transpose()?;
        let found = found.map(|found| if options.key_only { found.without_value() } else { found });
        Some((state.raw.clone(), found))
    })
    .take(options.limit)
    .collect()
}

impl Found {
    fn without_value(self) -> Self {
        Self { value: Bytes::new(), ..self }
    }
}

impl From<&Version> for Found {
    fn from(version: &Version) -> Self {
        Self { value: version.value.clone(), commit_ts: version.commit_ts }
    }
}

impl KeyState {
    fn read(&self, view: &ReadView) -> Result<Option<Found>, TxnError> {
        match view.isolation {
            Isolation::Snapshot => self.read_snapshot(view),
            Isolation::ReadCommitted => Ok(self.visible_at(view.version).map(Found::from)),
            Isolation::ReadCommittedCheckTs => {
                self.check_no_newer(view.version)?;
                Ok(self.visible_at(view.version).map(Found::from))
            }
        }
    }

    fn read_snapshot(&self, view: &ReadView) -> Result<Option<Found>, TxnError> {
        if let Some(lock) = self.lock.as_deref().filter(|lock| lock.hides_from(view.version)) {
            if view.committed.contains(&lock.start_ts) {
                let found = Found { value: lock.value.clone(), commit_ts: CommitTs::ZERO };
                return Ok((lock.kind == LockKind::Put).then_some(found));
            }
            let newest_of_primary = view.version == Ts::MAX && self.raw == lock.primary && !lock.async_commit;
            if !newest_of_primary && !view.resolved.contains(&lock.start_ts) {
                return Err(TxnError::locked(&self.raw, lock));
            }
        }
        Ok(self.visible_at(view.version).map(Found::from))
    }

    fn check_no_newer(&self, version: Ts) -> Result<(), TxnError> {
        match self.versions.iter().rev().find(|v| v.is_data()) {
            Some(newer) if newer.commit_ts.ts() > version => Err(TxnError::Conflict {
                start_ts: version.as_start(),
                conflict_start_ts: newer.start_ts,
                conflict_commit_ts: newer.commit_ts,
                key: self.raw.clone(),
                primary: Bytes::new(),
                reason: ConflictReason::RcCheckTs,
            }),
            _ => Ok(()),
        }
    }
}

impl Lock {
    /// Whether this lock may commit something that a snapshot at `version` would have to see.
    fn hides_from(&self, version: Ts) -> bool {
        self.kind.changes_data() && self.start_ts.ts() <= version && self.min_commit_ts.ts() <= version
    }
}
