//! Commit: the second phase (`reference/tikv-kv-protocol.md` §7.3).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, StartTs};

use super::{ChangeRow, Engine, Lock, LockKind, Outcome, TxnError, Version, VersionKind};

/// A transaction's verdict on one key that holds its lock, or the reason why there is nothing to do.
enum Step {
    Commit,
    /// Committed before, or a pessimistic lock that was never prewritten and only goes away.
    Done,
    Drop,
}

#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// Raw keys.
    pub(crate) keys: Vec<Bytes>,
    pub(crate) start_ts: StartTs,
    pub(crate) commit_ts: CommitTs,
}

impl Engine {
    /// Commits the keys of a transaction, all or none. Repeating it is harmless.
    pub(crate) fn commit(&mut self, request: &Commit) -> Result<(), TxnError> {
        let Commit { start_ts, commit_ts, .. } = *request;
        if commit_ts.ts() <= start_ts.ts() {
            return Err(TxnError::InvalidCommitTs { start_ts, commit_ts });
        }
        let mut steps = Vec::with_capacity(request.keys.len());
        for raw in &request.keys {
            let encoded = to_region_key(raw);
            steps.push((self.commit_step(raw, &encoded, request)?, encoded));
        }
        self.next_applied();
        for (step, encoded) in steps {
            match step {
                Step::Commit => self.commit_lock(&encoded, commit_ts),
                Step::Drop => drop(self.take_lock(&encoded)),
                Step::Done => {}
            }
        }
        Ok(())
    }

    fn commit_step(&self, raw: &Bytes, encoded: &[u8], request: &Commit) -> Result<Step, TxnError> {
        let Commit { start_ts, commit_ts, .. } = *request;
        let Some(lock) = self.lock_of(encoded, start_ts) else {
            return match self.outcome(encoded, start_ts) {
                Outcome::Committed(_) => Ok(Step::Done),
                _ => Err(TxnError::TxnLockNotFound { start_ts, key: raw.clone() }),
            };
        };
        if lock.kind == LockKind::Pessimistic {
            return Ok(Step::Drop);
        }
        if commit_ts < lock.min_commit_ts {
            let (key, min_commit_ts) = (raw.clone(), lock.min_commit_ts);
            return Err(TxnError::CommitTsExpired { start_ts, attempted: commit_ts, key, min_commit_ts });
        }
        Ok(Step::Commit)
    }

    /// Turns the lock on a key into a version. The caller has decided that this is right.
    pub(super) fn commit_lock(&mut self, encoded: &[u8], commit_ts: CommitTs) {
        let Some(lock) = self.take_lock(encoded) else { return };
        let Some((encoded, raw)) = self.keys.get_key_value(encoded).map(|(e, s)| (e.clone(), s.raw.clone()))
        else {
            return;
        };
        let version = committed_version(lock, commit_ts, self.applied);
        self.observed.extend(ChangeRow::commit(&encoded, &raw, &version));
        if let Some(state) = self.keys.get_mut(&encoded) {
            state.insert(version);
        }
    }
}

fn committed_version(lock: Lock, commit_ts: CommitTs, applied: super::Applied) -> Version {
    Version {
        kind: match lock.kind {
            LockKind::Put => VersionKind::Put,
            LockKind::Delete => VersionKind::Delete,
            LockKind::Lock | LockKind::Pessimistic => VersionKind::Lock,
        },
        start_ts: lock.start_ts,
        commit_ts,
        value: lock.value,
        txn_source: lock.txn_source,
        overlapped_rollback: lock.rolled_back.iter().any(|ts| ts.ts() == commit_ts.ts()),
        applied,
        prewritten: lock.prewritten,
    }
}
