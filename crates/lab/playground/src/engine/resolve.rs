//! Finding and resolving locks that transactions left behind (`reference/tikv-kv-protocol.md` §7.7, §7.8).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Span, StartTs, Ts};

use super::{Commit, Engine, LockKind, LockView, Outcome, TxnError};

#[derive(Clone, Debug)]
pub(crate) struct LockScan {
    /// Inclusive.
    pub(crate) max_ts: Ts,
    /// Encoded.
    pub(crate) span: Span,
    pub(crate) limit: usize,
}

impl Engine {
    /// Locks of any kind with a start timestamp up to a bound, ascending by key.
    pub(crate) fn scan_locks(&mut self, scan: &LockScan) -> Vec<LockView> {
        self.raise_max_ts(scan.max_ts);
        self.locks_in(&scan.span)
            .filter(|(_, _, lock)| lock.start_ts.ts() <= scan.max_ts)
            .take(scan.limit)
            .map(|(_, state, lock)| LockView::new(&state.raw, lock))
            .collect()
    }

    /// Commits (`Some`) or rolls back (`None`) given raw keys of a transaction. Keys that it no longer locks
    /// are fine, except that a rolled-back one cannot be committed.
    pub(crate) fn resolve_keys(
        &mut self,
        keys: &[Bytes],
        start_ts: StartTs,
        commit_ts: Option<CommitTs>,
    ) -> Result<(), TxnError> {
        match commit_ts {
            Some(commit_ts) => self.commit(&Commit { keys: keys.to_vec(), start_ts, commit_ts }),
            None => {
                self.next_applied();
                for raw in keys {
                    let encoded = Bytes::from(to_region_key(raw));
                    self.resolve_by_rollback(&encoded, raw, start_ts);
                }
                Ok(())
            }
        }
    }

    fn resolve_by_rollback(&mut self, encoded: &Bytes, raw: &Bytes, start_ts: StartTs) {
        let primary = self.lock_of(encoded, start_ts).map(|lock| lock.primary == *raw);
        match primary {
            Some(protected) => self.roll_back(encoded, raw, start_ts, protected),
            None if self.outcome(encoded, start_ts) == Outcome::Unknown => {
                self.roll_back(encoded, raw, start_ts, false);
            }
            None => {}
        }
    }

    /// Resolves every lock in `span` whose transaction `verdict` knows: `Some(Some(ts))` commits it there,
    /// `Some(None)` rolls it back. Other transactions' locks stay.
    pub(crate) fn resolve_span(
        &mut self,
        span: &Span,
        verdict: impl Fn(StartTs) -> Option<Option<CommitTs>>,
    ) {
        let found: Vec<_> = self
            .locks_in(span)
            .filter_map(|(encoded, state, lock)| {
                let commit_ts = verdict(lock.start_ts)?;
                let is_primary = lock.primary == state.raw;
                Some((encoded.clone(), state.raw.clone(), lock.kind, lock.start_ts, commit_ts, is_primary))
            })
            .collect();
        self.next_applied();
        for (encoded, raw, kind, start_ts, commit_ts, is_primary) in found {
            match commit_ts {
                Some(_) if kind == LockKind::Pessimistic => drop(self.take_lock(&encoded)),
                Some(commit_ts) => self.commit_lock(&encoded, commit_ts),
                None => self.roll_back(&encoded, &raw, start_ts, is_primary),
            }
        }
    }
}
