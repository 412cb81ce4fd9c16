//! Looking at, resolving and taking locks.

use tidegate_core::{CommitTs, StartTs, StoreId, Ts};
use tidegate_proto::kvrpcpb::{
    self, Action, CheckSecondaryLocksRequest, CheckSecondaryLocksResponse, CheckTxnStatusRequest,
    CheckTxnStatusResponse, KeyError, PessimisticLockKeyResult, PessimisticLockKeyResultType,
    PessimisticLockRequest, PessimisticLockResponse, PessimisticRollbackRequest, PessimisticRollbackResponse,
    ResolveLockRequest, ResolveLockResponse, ScanLockRequest, ScanLockResponse, TxnHeartBeatRequest,
    TxnHeartBeatResponse,
};

use super::convert::{key_error, lock_info, nonzero, within};
use crate::engine::{
    CheckStatus, LockScan, PessimisticLock, PessimisticLocked, SecondaryStatus, StatusAction, TxnStatus,
};
use crate::world::World;

pub(super) fn check_txn_status(
    world: &mut World,
    store: StoreId,
    request: &CheckTxnStatusRequest,
) -> CheckTxnStatusResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, [&request.primary_key]) {
        return CheckTxnStatusResponse { region_error: Some(*error), ..Default::default() };
    }
    let check = CheckStatus {
        primary: request.primary_key.clone(),
        start_ts: StartTs::new(request.lock_ts),
        caller_start_ts: Ts::new(request.caller_start_ts),
        current_ts: Ts::new(request.current_ts),
        rollback_if_not_exist: request.rollback_if_not_exist,
        force_sync_commit: request.force_sync_commit,
        resolving_pessimistic_lock: request.resolving_pessimistic_lock,
        verify_is_primary: request.verify_is_primary,
    };
    match world.engine.check_status(&check) {
        Ok(TxnStatus::Alive(lock, status)) => CheckTxnStatusResponse {
            lock_ttl: lock.ttl_ms,
            action: action(status).into(),
            lock_info: Some(lock_info(*lock)),
            ..Default::default()
        },
        Ok(TxnStatus::Committed(commit_ts)) => {
            CheckTxnStatusResponse { commit_version: commit_ts.get(), ..Default::default() }
        }
        Ok(TxnStatus::RolledBack(status)) => {
            CheckTxnStatusResponse { action: action(status).into(), ..Default::default() }
        }
        Err(error) => CheckTxnStatusResponse { error: Some(key_error(error)), ..Default::default() },
    }
}

fn action(action: StatusAction) -> Action {
    match action {
        StatusAction::None => Action::NoAction,
        StatusAction::TtlExpireRollback => Action::TtlExpireRollback,
        StatusAction::LockNotExistRollback => Action::LockNotExistRollback,
        StatusAction::MinCommitTsPushed => Action::MinCommitTsPushed,
        StatusAction::TtlExpirePessimisticRollback => Action::TtlExpirePessimisticRollback,
        StatusAction::LockNotExistDoNothing => Action::LockNotExistDoNothing,
    }
}

pub(super) fn check_secondary_locks(
    world: &mut World,
    store: StoreId,
    request: &CheckSecondaryLocksRequest,
) -> CheckSecondaryLocksResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, &request.keys) {
        return CheckSecondaryLocksResponse { region_error: Some(*error), ..Default::default() };
    }
    let start_ts = StartTs::new(request.start_version);
    match world.engine.check_secondaries(&request.keys, start_ts) {
        SecondaryStatus::Locked(locks) => CheckSecondaryLocksResponse {
            locks: locks.into_iter().map(lock_info).collect(),
            ..Default::default()
        },
        SecondaryStatus::Committed(commit_ts) => {
            CheckSecondaryLocksResponse { commit_ts: commit_ts.get(), ..Default::default() }
        }
        SecondaryStatus::RolledBack => CheckSecondaryLocksResponse::default(),
    }
}

pub(super) fn resolve_lock(
    world: &mut World,
    store: StoreId,
    request: &ResolveLockRequest,
) -> ResolveLockResponse {
    let region = match world.access(request.context.as_ref(), store, &request.keys) {
        Ok(region) => region,
        Err(error) => return ResolveLockResponse { region_error: Some(*error), ..Default::default() },
    };
    let start_ts = StartTs::new(request.start_version);
    if !request.keys.is_empty() {
        let commit_ts = nonzero(request.commit_version);
        let outcome = world.engine.resolve_keys(&request.keys, start_ts, commit_ts);
        return ResolveLockResponse { error: outcome.err().map(key_error), ..Default::default() };
    }
    if request.start_version != 0 {
        let commit_ts = nonzero(request.commit_version);
        world.engine.resolve_span(&region, |lock| (lock == start_ts).then_some(commit_ts));
    } else {
        let verdicts: hashbrown::HashMap<StartTs, Option<CommitTs>> =
            request.txn_infos.iter().map(|txn| (StartTs::new(txn.txn), nonzero(txn.status))).collect();
        world.engine.resolve_span(&region, |lock| verdicts.get(&lock).copied());
    }
    ResolveLockResponse::default()
}

pub(super) fn scan_lock(world: &mut World, store: StoreId, request: &ScanLockRequest) -> ScanLockResponse {
    let region = match world.access(request.context.as_ref(), store, []) {
        Ok(region) => region,
        Err(error) => return ScanLockResponse { region_error: Some(*error), ..Default::default() },
    };
    let scan = LockScan {
        max_ts: Ts::new(request.max_version),
        span: within(&region, &request.start_key, &request.end_key),
        limit: match request.limit {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        },
    };
    let locks = world.engine.scan_locks(&scan).into_iter().map(lock_info).collect();
    ScanLockResponse { locks, ..Default::default() }
}

pub(super) fn pessimistic_lock(
    world: &mut World,
    store: StoreId,
    request: &PessimisticLockRequest,
) -> PessimisticLockResponse {
    let keys = request.mutations.iter().map(|mutation| &mutation.key);
    if let Err(error) = world.access(request.context.as_ref(), store, keys) {
        return PessimisticLockResponse { region_error: Some(*error), ..Default::default() };
    }
    if let Some(other) = request.mutations.iter().find(|m| m.op() != kvrpcpb::Op::PessimisticLock) {
        let abort = format!("a pessimistic lock request cannot hold a mutation of type {:?}", other.op());
        let errors = vec![KeyError { abort, ..Default::default() }];
        return PessimisticLockResponse { errors, ..Default::default() };
    }
    let must_not_exist = |m: &kvrpcpb::Mutation| m.assertion() == kvrpcpb::Assertion::NotExist;
    let force = request.wake_up_mode() == kvrpcpb::PessimisticLockWakeUpMode::ForceLock;
    let command = PessimisticLock {
        keys: request.mutations.iter().map(|m| (m.key.clone(), must_not_exist(m))).collect(),
        primary: request.primary_lock.clone(),
        start_ts: StartTs::new(request.start_version),
        ttl_ms: request.lock_ttl,
        for_update_ts: Ts::new(request.for_update_ts),
        min_commit_ts: CommitTs::new(request.min_commit_ts),
        lock_only_if_exists: request.lock_only_if_exists,
        force,
    };
    match world.engine.pessimistic_lock(&command) {
        Ok(locked) if force => {
            let results = locked.into_iter().map(key_result).collect();
            PessimisticLockResponse { results, ..Default::default() }
        }
        Ok(locked) => found(request, locked),
        Err(error) => PessimisticLockResponse { errors: vec![key_error(error)], ..Default::default() },
    }
}

fn found(request: &PessimisticLockRequest, locked: Vec<PessimisticLocked>) -> PessimisticLockResponse {
    let mut response = PessimisticLockResponse::default();
    if request.return_values || request.check_existence {
        response.not_founds = locked.iter().map(|key| key.value.is_none()).collect();
    }
    if request.return_values {
        response.values = locked.into_iter().map(|key| key.value.unwrap_or_default()).collect();
    }
    response
}

fn key_result(locked: PessimisticLocked) -> PessimisticLockKeyResult {
    let kind = match locked.conflict_ts {
        Some(_) => PessimisticLockKeyResultType::LockedWithConflict,
        None => PessimisticLockKeyResultType::Normal,
    };
    PessimisticLockKeyResult {
        r#type: kind.into(),
        existence: locked.value.is_some(),
        value: locked.value.unwrap_or_default(),
        locked_with_conflict_ts: locked.conflict_ts.map_or(0, CommitTs::get),
        skip_resolving_lock: false,
    }
}

pub(super) fn pessimistic_rollback(
    world: &mut World,
    store: StoreId,
    request: &PessimisticRollbackRequest,
) -> PessimisticRollbackResponse {
    match world.access(request.context.as_ref(), store, &request.keys) {
        Ok(region) => {
            let (start_ts, for_update_ts) =
                (StartTs::new(request.start_version), Ts::new(request.for_update_ts));
            world.engine.pessimistic_rollback(&request.keys, &region, start_ts, for_update_ts);
            PessimisticRollbackResponse::default()
        }
        Err(error) => PessimisticRollbackResponse { region_error: Some(*error), ..Default::default() },
    }
}

pub(super) fn heart_beat(
    world: &mut World,
    store: StoreId,
    request: &TxnHeartBeatRequest,
) -> TxnHeartBeatResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, [&request.primary_lock]) {
        return TxnHeartBeatResponse { region_error: Some(*error), ..Default::default() };
    }
    let outcome = world.engine.heart_beat(
        &request.primary_lock,
        StartTs::new(request.start_version),
        request.advise_lock_ttl,
        CommitTs::new(request.min_commit_ts),
    );
    match outcome {
        Ok(lock_ttl) => TxnHeartBeatResponse { lock_ttl, ..Default::default() },
        Err(error) => TxnHeartBeatResponse { error: Some(key_error(error)), ..Default::default() },
    }
}
