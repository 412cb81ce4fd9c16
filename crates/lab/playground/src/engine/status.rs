//! What became of a transaction (`reference/tikv-kv-protocol.md` §7.5, §7.6, §7.9).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, StartTs, Ts};

use super::{Engine, Lock, LockKind, LockView, Outcome, TxnError};

#[derive(Clone, Debug)]
pub(crate) struct CheckStatus {
    /// Raw.
    pub(crate) primary: Bytes,
    pub(crate) start_ts: StartTs,
    /// Zero never pushes the lock's minimum commit timestamp.
    pub(crate) caller_start_ts: Ts,
    pub(crate) current_ts: Ts,
    pub(crate) rollback_if_not_exist: bool,
    pub(crate) force_sync_commit: bool,
    pub(crate) resolving_pessimistic_lock: bool,
    pub(crate) verify_is_primary: bool,
}

/// What a status check did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusAction {
    None,
    TtlExpireRollback,
    LockNotExistRollback,
    MinCommitTsPushed,
    TtlExpirePessimisticRollback,
    LockNotExistDoNothing,
}

#[derive(Clone, Debug)]
pub(crate) enum TxnStatus {
    Alive(Box<LockView>, StatusAction),
    Committed(CommitTs),
    RolledBack(StatusAction),
}

/// The state of an async-commit transaction's secondaries in one request.
#[derive(Clone, Debug)]
pub(crate) enum SecondaryStatus {
    /// Every key holds the transaction's lock.
    Locked(Vec<LockView>),
    Committed(CommitTs),
    RolledBack,
}

impl Lock {
    /// Whether the lock outlived its time to live, by the physical clock of `now`.
    pub(crate) fn is_expired(&self, now: Ts) -> bool {
        self.start_ts.physical_ms().saturating_add(self.ttl_ms) < now.physical_ms()
    }

    /// Makes sure that a reader at `caller` need not wait. Locks that never asked for a minimum stay.
    fn push_min_commit(&mut self, caller: Ts, now: Ts) -> bool {
        if caller == Ts::MAX || caller == Ts::ZERO {
            return caller == Ts::MAX;
        }
        if self.min_commit_ts > CommitTs::ZERO && caller >= self.min_commit_ts.ts() {
            self.min_commit_ts = caller.next().max(now).as_commit();
        }
        self.min_commit_ts.ts() > caller
    }
}

impl Engine {
    /// Looks at a transaction's primary, and ends the transaction if it is expired or gone.
    pub(crate) fn check_status(&mut self, request: &CheckStatus) -> Result<TxnStatus, TxnError> {
        self.raise_max_ts(request.start_ts.ts());
        self.raise_max_ts(request.caller_start_ts);
        self.raise_max_ts(request.current_ts);
        let encoded = Bytes::from(to_region_key(&request.primary));
        match self.lock_of(&encoded, request.start_ts) {
            Some(lock) if request.verify_is_primary && lock.primary != request.primary => {
                self.not_primary(&encoded, request)
            }
            Some(lock) if lock.async_commit && !request.force_sync_commit => {
                Ok(TxnStatus::Alive(Box::new(LockView::new(&request.primary, lock)), StatusAction::None))
            }
            Some(lock) if lock.is_expired(request.current_ts) => Ok(self.expire(&encoded, request)),
            Some(_) => self.keep_alive(&encoded, request),
            None => self.missing(&encoded, request),
        }
    }

    fn not_primary(&mut self, encoded: &Bytes, request: &CheckStatus) -> Result<TxnStatus, TxnError> {
        let Some(lock) = self.lock_of(encoded, request.start_ts) else {
            return self.missing(encoded, request);
        };
        if lock.kind == LockKind::Pessimistic && !request.resolving_pessimistic_lock {
            self.next_applied();
            self.take_lock(encoded);
            return self.missing(encoded, request);
        }
        Err(TxnError::PrimaryMismatch(Box::new(LockView::new(&request.primary, lock))))
    }

    fn expire(&mut self, encoded: &Bytes, request: &CheckStatus) -> TxnStatus {
        let pessimistic =
            self.lock_of(encoded, request.start_ts).is_some_and(|lock| lock.kind == LockKind::Pessimistic);
        self.next_applied();
        if pessimistic && request.resolving_pessimistic_lock {
            self.take_lock(encoded);
            return TxnStatus::RolledBack(StatusAction::TtlExpirePessimisticRollback);
        }
        self.roll_back(encoded, &request.primary, request.start_ts, true);
        TxnStatus::RolledBack(StatusAction::TtlExpireRollback)
    }

    fn keep_alive(&mut self, encoded: &Bytes, request: &CheckStatus) -> Result<TxnStatus, TxnError> {
        let lock = self.keys.get_mut(encoded).and_then(|state| state.lock.as_deref_mut());
        let Some(lock) = lock else { return self.missing(encoded, request) };
        let pushed = lock.push_min_commit(request.caller_start_ts, request.current_ts);
        let action = if pushed { StatusAction::MinCommitTsPushed } else { StatusAction::None };
        Ok(TxnStatus::Alive(Box::new(LockView::new(&request.primary, lock)), action))
    }

    fn missing(&mut self, encoded: &Bytes, request: &CheckStatus) -> Result<TxnStatus, TxnError> {
        match self.outcome(encoded, request.start_ts) {
            Outcome::Committed(commit_ts) => Ok(TxnStatus::Committed(commit_ts)),
            Outcome::RolledBack => Ok(TxnStatus::RolledBack(StatusAction::None)),
            Outcome::Unknown if !request.rollback_if_not_exist => {
                Err(TxnError::TxnNotFound { start_ts: request.start_ts, primary: request.primary.clone() })
            }
            Outcome::Unknown if request.resolving_pessimistic_lock => {
                Ok(TxnStatus::RolledBack(StatusAction::LockNotExistDoNothing))
            }
            Outcome::Unknown => {
                self.next_applied();
                self.roll_back(encoded, &request.primary, request.start_ts, true);
                Ok(TxnStatus::RolledBack(StatusAction::LockNotExistRollback))
            }
        }
    }

    /// Looks at secondaries of an async-commit transaction. A key without lock and record is rolled back, so
    /// that the answer stays true.
    pub(crate) fn check_secondaries(&mut self, keys: &[Bytes], start_ts: StartTs) -> SecondaryStatus {
        self.raise_max_ts(start_ts.ts());
        let mut locks = Vec::with_capacity(keys.len());
        for raw in keys {
            let encoded = Bytes::from(to_region_key(raw));
            match self.lock_of(&encoded, start_ts) {
                Some(lock) if lock.kind != LockKind::Pessimistic => locks.push(LockView::new(raw, lock)),
                Some(_) => {
                    self.next_applied();
                    self.roll_back(&encoded, raw, start_ts, true);
                    return SecondaryStatus::RolledBack;
                }
                None => return self.missing_secondary(&encoded, raw, start_ts),
            }
        }
        SecondaryStatus::Locked(locks)
    }

    fn missing_secondary(&mut self, encoded: &Bytes, raw: &Bytes, start_ts: StartTs) -> SecondaryStatus {
        match self.outcome(encoded, start_ts) {
            Outcome::Committed(commit_ts) => SecondaryStatus::Committed(commit_ts),
            Outcome::RolledBack => SecondaryStatus::RolledBack,
            Outcome::Unknown => {
                self.next_applied();
                self.roll_back(encoded, raw, start_ts, true);
                SecondaryStatus::RolledBack
            }
        }
    }

    /// Prolongs a transaction's primary lock; returns the resulting time to live in milliseconds.
    pub(crate) fn heart_beat(
        &mut self,
        primary: &Bytes,
        start_ts: StartTs,
        advise_ttl_ms: u64,
        min_commit_ts: CommitTs,
    ) -> Result<u64, TxnError> {
        let encoded = to_region_key(primary);
        let state = self.keys.get_mut(encoded.as_slice());
        match state.and_then(|state| state.lock.as_deref_mut()).filter(|lock| lock.start_ts == start_ts) {
            Some(lock) => {
                lock.ttl_ms = lock.ttl_ms.max(advise_ttl_ms);
                lock.min_commit_ts = lock.min_commit_ts.max(min_commit_ts);
                Ok(lock.ttl_ms)
            }
            None => Err(TxnError::TxnNotFound { start_ts, primary: primary.clone() }),
        }
    }
}
