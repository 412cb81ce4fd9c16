//! Why a transactional command was refused.

use bytes::Bytes;
use tidegate_core::span::Hex;
use tidegate_core::{CommitTs, StartTs, Ts};

use super::{Assertion, Lock, LockKind};

/// A lock as other transactions see it.
#[derive(Clone, Debug)]
pub(crate) struct LockView {
    pub(crate) key: Bytes,
    pub(crate) kind: LockKind,
    pub(crate) primary: Bytes,
    pub(crate) start_ts: StartTs,
    pub(crate) ttl_ms: u64,
    pub(crate) txn_size: u64,
    pub(crate) for_update_ts: Ts,
    pub(crate) async_commit: bool,
    pub(crate) min_commit_ts: CommitTs,
    pub(crate) secondaries: Vec<Bytes>,
}

impl LockView {
    pub(crate) fn new(key: &Bytes, lock: &Lock) -> Self {
        Self {
            key: key.clone(),
            kind: lock.kind,
            primary: lock.primary.clone(),
            start_ts: lock.start_ts,
            ttl_ms: lock.ttl_ms,
            txn_size: lock.txn_size,
            for_update_ts: lock.for_update_ts,
            async_commit: lock.async_commit,
            min_commit_ts: lock.min_commit_ts,
            secondaries: lock.secondaries.clone(),
        }
    }
}

/// Which rule a conflicting write broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConflictReason {
    Optimistic,
    PessimisticRetry,
    SelfRolledBack,
    RcCheckTs,
    LazyUniquenessCheck,
}

/// A refusal that the client sees as a key error (`reference/tikv-kv-protocol.md` §4).
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TxnError {
    #[error("key {} is locked by transaction {}", Hex(&.0.key), .0.start_ts)]
    Locked(Box<LockView>),
    #[error("write conflict on {}: {reason:?}, {start_ts} meets a commit at {conflict_commit_ts}", Hex(.key))]
    Conflict {
        start_ts: StartTs,
        conflict_start_ts: StartTs,
        conflict_commit_ts: CommitTs,
        key: Bytes,
        primary: Bytes,
        reason: ConflictReason,
    },
    #[error("key {} already exists", Hex(.0))]
    AlreadyExists(Bytes),
    #[error("commit ts {attempted} of key {} is below the lock's minimum {min_commit_ts}", Hex(.key))]
    CommitTsExpired { start_ts: StartTs, attempted: CommitTs, key: Bytes, min_commit_ts: CommitTs },
    #[error("transaction {start_ts} is not found on its primary {}", Hex(.primary))]
    TxnNotFound { start_ts: StartTs, primary: Bytes },
    #[error("assertion {assertion:?} failed on key {}", Hex(.key))]
    AssertionFailed {
        start_ts: StartTs,
        key: Bytes,
        assertion: Assertion,
        existing_start_ts: StartTs,
        existing_commit_ts: CommitTs,
    },
    #[error("the lock on {} belongs to another primary", Hex(&.0.key))]
    PrimaryMismatch(Box<LockView>),
    #[error("no lock of transaction {start_ts} on key {}", Hex(.key))]
    TxnLockNotFound { start_ts: StartTs, key: Bytes },
    #[error("pessimistic lock of transaction {start_ts} not found on key {}", Hex(.key))]
    PessimisticLockNotFound { start_ts: StartTs, key: Bytes },
    #[error("pessimistic lock of transaction {start_ts} on key {} was rolled back", Hex(.key))]
    PessimisticLockRolledBack { start_ts: StartTs, key: Bytes },
    #[error("lock type mismatch on key {} of transaction {start_ts}", Hex(.key))]
    LockTypeMismatch { start_ts: StartTs, key: Bytes },
    #[error("transaction {start_ts} is already committed on key {} at {commit_ts}", Hex(.key))]
    Committed { start_ts: StartTs, key: Bytes, commit_ts: CommitTs },
    #[error("invalid commit ts {commit_ts} of transaction {start_ts}")]
    InvalidCommitTs { start_ts: StartTs, commit_ts: CommitTs },
}

impl TxnError {
    pub(crate) fn locked(key: &Bytes, lock: &Lock) -> Self {
        Self::Locked(Box::new(LockView::new(key, lock)))
    }
}
