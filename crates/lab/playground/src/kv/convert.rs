//! Between the wire's messages and the engine's words.

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Span, StartTs, Ts};
use tidegate_proto::kvrpcpb::{self, KeyError};

use crate::engine::{
    Assertion, ConflictReason, Isolation, LockKind, LockView, ReadView, TxnError, empty_span,
};

/// A raw range as an encoded span; empty bounds are open.
pub(crate) fn raw_span(start: &Bytes, end: &Bytes) -> Span {
    let bound = |key: &Bytes| if key.is_empty() { Bytes::new() } else { Bytes::from(to_region_key(key)) };
    Span::new(bound(start), bound(end))
}

/// The part of a raw range that lies in a region; an empty one if there is none.
pub(crate) fn within(region: &Span, start: &Bytes, end: &Bytes) -> Span {
    region.intersect(&raw_span(start, end)).unwrap_or_else(empty_span)
}

pub(crate) fn read_view(context: Option<&kvrpcpb::Context>, version: u64) -> ReadView {
    let mut view = ReadView::at(Ts::new(version));
    let Some(context) = context else { return view };
    view.isolation = match context.isolation_level() {
        kvrpcpb::IsolationLevel::Si => Isolation::Snapshot,
        kvrpcpb::IsolationLevel::Rc => Isolation::ReadCommitted,
        kvrpcpb::IsolationLevel::RcCheckTs => Isolation::ReadCommittedCheckTs,
    };
    view.resolved = context.resolved_locks.iter().copied().map(StartTs::new).collect();
    view.committed = context.committed_locks.iter().copied().map(StartTs::new).collect();
    view
}

pub(crate) fn lock_info(lock: LockView) -> kvrpcpb::LockInfo {
    let lock_type = match lock.kind {
        LockKind::Put => kvrpcpb::Op::Put,
        LockKind::Delete => kvrpcpb::Op::Del,
        LockKind::Lock => kvrpcpb::Op::Lock,
        LockKind::Pessimistic => kvrpcpb::Op::PessimisticLock,
    };
    kvrpcpb::LockInfo {
        primary_lock: lock.primary,
        lock_version: lock.start_ts.get(),
        key: lock.key,
        lock_ttl: lock.ttl_ms,
        txn_size: lock.txn_size,
        lock_type: lock_type.into(),
        lock_for_update_ts: lock.for_update_ts.get(),
        use_async_commit: lock.async_commit,
        min_commit_ts: lock.min_commit_ts.get(),
        secondaries: lock.secondaries,
        ..Default::default()
    }
}

/// A commit timestamp from the wire; zero is "none".
pub(crate) fn nonzero(ts: u64) -> Option<CommitTs> {
    (ts != 0).then(|| CommitTs::new(ts))
}

/// What a client sees of a refusal (`reference/tikv-kv-protocol.md` §4).
pub(crate) fn key_error(error: TxnError) -> KeyError {
    let text = error.to_string();
    let mut answer = KeyError::default();
    match error {
        TxnError::Locked(lock) => answer.locked = Some(lock_info(*lock)),
        TxnError::PrimaryMismatch(lock) => {
            let lock_info = Some(lock_info(*lock));
            answer.primary_mismatch = Some(kvrpcpb::PrimaryMismatch { lock_info });
        }
        TxnError::Conflict { start_ts, conflict_start_ts, conflict_commit_ts, key, primary, reason } => {
            answer.retryable = text;
            answer.conflict = Some(kvrpcpb::WriteConflict {
                start_ts: start_ts.get(),
                conflict_ts: conflict_start_ts.get(),
                key,
                primary,
                conflict_commit_ts: conflict_commit_ts.get(),
                reason: conflict_reason(reason).into(),
            });
        }
        TxnError::AlreadyExists(key) => answer.already_exist = Some(kvrpcpb::AlreadyExist { key }),
        TxnError::CommitTsExpired { start_ts, attempted, key, min_commit_ts } => {
            answer.commit_ts_expired = Some(kvrpcpb::CommitTsExpired {
                start_ts: start_ts.get(),
                attempted_commit_ts: attempted.get(),
                key,
                min_commit_ts: min_commit_ts.get(),
            });
        }
        TxnError::TxnNotFound { start_ts, primary } => {
            let (start_ts, primary_key) = (start_ts.get(), primary);
            answer.txn_not_found = Some(kvrpcpb::TxnNotFound { start_ts, primary_key });
        }
        TxnError::AssertionFailed { start_ts, key, assertion, existing_start_ts, existing_commit_ts } => {
            answer.assertion_failed = Some(kvrpcpb::AssertionFailed {
                start_ts: start_ts.get(),
                key,
                assertion: assertion_proto(assertion).into(),
                existing_start_ts: existing_start_ts.get(),
                existing_commit_ts: existing_commit_ts.get(),
            });
        }
        TxnError::TxnLockNotFound { key, .. } => {
            answer.retryable = text;
            answer.txn_lock_not_found = Some(kvrpcpb::TxnLockNotFound { key });
        }
        TxnError::PessimisticLockNotFound { .. }
        | TxnError::PessimisticLockRolledBack { .. }
        | TxnError::LockTypeMismatch { .. }
        | TxnError::Committed { .. }
        | TxnError::InvalidCommitTs { .. } => answer.abort = text,
    }
    answer
}

fn conflict_reason(reason: ConflictReason) -> kvrpcpb::write_conflict::Reason {
    use kvrpcpb::write_conflict::Reason;
    match reason {
        ConflictReason::Optimistic => Reason::Optimistic,
        ConflictReason::PessimisticRetry => Reason::PessimisticRetry,
        ConflictReason::SelfRolledBack => Reason::SelfRolledBack,
        ConflictReason::RcCheckTs => Reason::RcCheckTs,
        ConflictReason::LazyUniquenessCheck => Reason::LazyUniquenessCheck,
    }
}

fn assertion_proto(assertion: Assertion) -> kvrpcpb::Assertion {
    match assertion {
        Assertion::None => kvrpcpb::Assertion::None,
        Assertion::Exist => kvrpcpb::Assertion::Exist,
        Assertion::NotExist => kvrpcpb::Assertion::NotExist,
    }
}
