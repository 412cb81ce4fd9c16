//! The storage engine: many versions of each key and percolator transactions over them, as TiKV has them
//! (`reference/tikv-kv-protocol.md` §6, §7). Pure: it knows neither regions nor the network, and time reaches
//! it as timestamps. Each call is one atomic command; what a change feed may see of it is collected in order
//! and taken with [`Engine::take_observed`].

mod commit;
mod feed;
mod gc;
mod key;
mod load;
mod pessimistic;
mod prewrite;
mod read;
mod resolve;
mod rollback;
mod status;
#[cfg(test)]
mod tests;
mod txn_error;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use tidegate_core::{CommitTs, Span, StartTs, Ts};

pub(crate) use commit::Commit;
pub(crate) use feed::{ChangeRow, FeedScan, RowKind};
pub(crate) use key::{Applied, KeyState, Lock, LockKind, Outcome, Version, VersionKind};
pub(crate) use pessimistic::{PessimisticLock, PessimisticLocked};
pub(crate) use prewrite::{Assertion, AssertionLevel, Mutation, MutationOp, PessimisticAction, Prewrite};
pub(crate) use read::{Found, Isolation, ReadView, ScanOptions};
pub(crate) use resolve::LockScan;
pub(crate) use status::{CheckStatus, SecondaryStatus, StatusAction, TxnStatus};
pub(crate) use txn_error::{ConflictReason, LockView, TxnError};

/// Values up to this many bytes travel inside lock and write records; a change feed's COMMIT row carries only
/// those (`reference/tikv-kv-protocol.md` §6).
pub(crate) const SHORT_VALUE_BYTES_MAX: usize = 255;

/// All keys of the cluster. Keys of the map are memcomparable-encoded, as region bounds are.
#[derive(Default)]
pub(crate) struct Engine {
    keys: BTreeMap<Bytes, KeyState>,
    /// Which keys hold a lock of any kind: resolved timestamps and lock scans must not walk all keys.
    locked: BTreeSet<Bytes>,
    /// The largest timestamp that any reader used; async commit and 1PC stay above it.
    max_ts: Ts,
    applied: Applied,
    observed: Vec<ChangeRow>,
}

impl Engine {
    /// The position of the last applied command: a scan that remembers it can later leave out what came
    /// after.
    pub(crate) fn applied(&self) -> Applied {
        self.applied
    }

    /// Promises that no transaction will commit at or below `ts` by a timestamp this engine chooses.
    pub(crate) fn raise_max_ts(&mut self, ts: Ts) {
        // Readers of "the newest" use the maximum, which must not push real timestamps out of range.
        if ts != Ts::MAX {
            self.max_ts = self.max_ts.max(ts);
        }
    }

    /// What change feeds may see of the commands since the last call, in apply order.
    pub(crate) fn take_observed(&mut self) -> Vec<ChangeRow> {
        std::mem::take(&mut self.observed)
    }

    /// Number of keys with any record.
    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// The smallest start timestamp of a lock in `span` that will change data: nothing at or above it is
    /// resolved (`reference/cdc-protocol.md` §7.1).
    pub(crate) fn oldest_lock(&self, span: &Span) -> Option<StartTs> {
        let locks = self.locked.range::<[u8], _>(bounds(span)).filter_map(|key| self.lock(key));
        locks.filter(|lock| lock.kind.changes_data()).map(|lock| lock.start_ts).min()
    }

    fn lock(&self, encoded: &[u8]) -> Option<&Lock> {
        self.keys.get(encoded).and_then(|state| state.lock.as_deref())
    }

    fn lock_of(&self, encoded: &[u8], start_ts: StartTs) -> Option<&Lock> {
        self.lock(encoded).filter(|lock| lock.start_ts == start_ts)
    }

    fn outcome(&self, encoded: &[u8], start_ts: StartTs) -> Outcome {
        self.keys.get(encoded).map_or(Outcome::Unknown, |state| state.outcome(start_ts))
    }

    fn next_applied(&mut self) -> Applied {
        self.applied = self.applied.next();
        self.applied
    }

    fn put_lock(&mut self, encoded: Bytes, raw: &Bytes, lock: Lock) {
        self.locked.insert(encoded.clone());
        self.keys.entry(encoded).or_insert_with(|| KeyState::new(raw.clone())).lock = Some(Box::new(lock));
    }

    fn take_lock(&mut self, encoded: &[u8]) -> Option<Lock> {
        self.locked.remove(encoded);
        self.keys.get_mut(encoded).and_then(|state| state.lock.take()).map(|lock| *lock)
    }

    /// The keys of `span` with their locks, ascending.
    fn locks_in<'a>(&'a self, span: &Span) -> impl Iterator<Item = (&'a Bytes, &'a KeyState, &'a Lock)> {
        self.locked.range::<[u8], _>(bounds(span)).filter_map(|encoded| {
            let state = self.keys.get(encoded)?;
            Some((encoded, state, state.lock.as_deref()?))
        })
    }
}

/// A span as bounds of an ordered map; an empty end is plus infinity. A span that holds nothing becomes an
/// empty range instead of one that a map would refuse.
fn bounds(span: &Span) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let start = span.start.as_ref();
    let end =
        if span.end.is_empty() { Bound::Unbounded } else { Bound::Excluded(span.end.as_ref().max(start)) };
    (Bound::Included(start), end)
}

/// A span that holds nothing. (Two empty bounds would hold everything.)
pub(crate) fn empty_span() -> Span {
    Span::new(&[0][..], &[0][..])
}

/// The first timestamp that is above all of these.
fn above(timestamps: &[Ts]) -> CommitTs {
    timestamps.iter().max().copied().unwrap_or(Ts::ZERO).next().as_commit()
}
