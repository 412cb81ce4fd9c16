//! Pessimistic locks (`reference/tikv-kv-protocol.md` §7.9). Nobody waits inside the engine: a locked key is
//! answered at once, and the caller decides whether to try again.

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Span, StartTs, Ts};

use super::{ConflictReason, Engine, KeyState, Lock, LockKind, Outcome, TxnError};

#[derive(Clone, Debug)]
pub(crate) struct PessimisticLock {
    /// Raw keys, each with whether it must not exist.
    pub(crate) keys: Vec<(Bytes, bool)>,
    pub(crate) primary: Bytes,
    pub(crate) start_ts: StartTs,
    pub(crate) ttl_ms: u64,
    pub(crate) for_update_ts: Ts,
    pub(crate) min_commit_ts: CommitTs,
    pub(crate) lock_only_if_exists: bool,
    /// Lock even past a newer version, and report that.
    pub(crate) force: bool,
}

/// The answer for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PessimisticLocked {
    /// The value as of `for_update_ts`, or the newest if locked past a conflict; `None` if there is none.
    pub(crate) value: Option<Bytes>,
    /// The newer version that the lock was taken in spite of.
    pub(crate) conflict_ts: Option<CommitTs>,
}

impl Engine {
    /// Locks all keys or none.
    pub(crate) fn pessimistic_lock(
        &mut self,
        request: &PessimisticLock,
    ) -> Result<Vec<PessimisticLocked>, TxnError> {
        let mut answers = Vec::with_capacity(request.keys.len());
        for (raw, must_not_exist) in &request.keys {
            let encoded = Bytes::from(to_region_key(raw));
            let answer = match self.keys.get(&encoded) {
                Some(state) => state.check_pessimistic(request, *must_not_exist)?,
                None => PessimisticLocked { value: None, conflict_ts: None },
            };
            answers.push((encoded, raw, answer));
        }
        self.next_applied();
        for (encoded, raw, answer) in &answers {
            if answer.value.is_some() || !request.lock_only_if_exists {
                self.hold(encoded, raw, request, answer.conflict_ts);
            }
        }
        Ok(answers.into_iter().map(|(_, _, answer)| answer).collect())
    }

    fn hold(&mut self, encoded: &Bytes, raw: &Bytes, request: &PessimisticLock, conflict: Option<CommitTs>) {
        let for_update_ts = request.for_update_ts.max(conflict.map_or(Ts::ZERO, CommitTs::ts));
        let existing = self.take_lock(encoded);
        let (ttl_ms, held_for, min_commit_ts, rolled_back) = existing.map_or_else(
            || (0, Ts::ZERO, CommitTs::ZERO, Vec::new()),
            |lock| (lock.ttl_ms, lock.for_update_ts, lock.min_commit_ts, lock.rolled_back),
        );
        let lock = Lock {
            kind: LockKind::Pessimistic,
            primary: request.primary.clone(),
            start_ts: request.start_ts,
            ttl_ms: request.ttl_ms.max(ttl_ms),
            value: Bytes::new(),
            for_update_ts: for_update_ts.max(held_for),
            txn_size: 0,
            min_commit_ts: request.min_commit_ts.max(min_commit_ts),
            async_commit: false,
            secondaries: Vec::new(),
            rolled_back,
            txn_source: 0,
            prewritten: self.applied,
        };
        self.put_lock(encoded.clone(), raw, lock);
    }

    /// Gives up pessimistic locks taken up to `for_update_ts`; anything else is left as it is. Without keys
    /// the whole encoded span is searched.
    pub(crate) fn pessimistic_rollback(
        &mut self,
        keys: &[Bytes],
        span: &Span,
        start_ts: StartTs,
        for_update_ts: Ts,
    ) {
        let encoded: Vec<Bytes> = if keys.is_empty() {
            self.locks_in(span).map(|(encoded, _, _)| encoded.clone()).collect()
        } else {
            keys.iter().map(|raw| Bytes::from(to_region_key(raw))).collect()
        };
        self.next_applied();
        for encoded in encoded {
            let ours = self.lock_of(&encoded, start_ts).is_some_and(|lock| {
                lock.kind == LockKind::Pessimistic && lock.for_update_ts <= for_update_ts
            });
            if ours {
                self.take_lock(&encoded);
            }
        }
    }
}

impl KeyState {
    fn check_pessimistic(
        &self,
        request: &PessimisticLock,
        must_not_exist: bool,
    ) -> Result<PessimisticLocked, TxnError> {
        let (start_ts, key) = (request.start_ts, self.raw.clone());
        match self.lock.as_deref() {
            Some(lock) if lock.start_ts != start_ts => return Err(TxnError::locked(&self.raw, lock)),
            Some(lock) if lock.kind != LockKind::Pessimistic => {
                return Err(TxnError::LockTypeMismatch { start_ts, key });
            }
            _ => {}
        }
        if self.outcome(start_ts) == Outcome::RolledBack {
            return Err(TxnError::PessimisticLockRolledBack { start_ts, key });
        }
        let conflict_ts = self.newer_than(request)?;
        let value = self.visible_at(Ts::MAX).map(|version| version.value.clone());
        if must_not_exist && value.is_some() {
            return Err(TxnError::AlreadyExists(key));
        }
        Ok(PessimisticLocked { value, conflict_ts })
    }

    fn newer_than(&self, request: &PessimisticLock) -> Result<Option<CommitTs>, TxnError> {
        match self.newest() {
            Some(newest) if newest.commit_ts.ts() > request.for_update_ts => {
                if request.force {
                    return Ok(Some(newest.commit_ts));
                }
                Err(TxnError::Conflict {
                    start_ts: request.start_ts,
                    conflict_start_ts: newest.start_ts,
                    conflict_commit_ts: newest.commit_ts,
                    key: self.raw.clone(),
                    primary: request.primary.clone(),
                    reason: ConflictReason::PessimisticRetry,
                })
            }
            _ => Ok(None),
        }
    }
}
