//! Prewrite, commit, rollback, and changes of ranges.

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, RegionId, StartTs, StoreId, Ts};
use tidegate_proto::kvrpcpb::{
    self, BatchRollbackRequest, BatchRollbackResponse, CleanupRequest, CleanupResponse, CommitRequest,
    CommitResponse, PrewriteRequest, PrewriteResponse, SplitRegionRequest, SplitRegionResponse,
    UnsafeDestroyRangeRequest, UnsafeDestroyRangeResponse,
};
use tidegate_proto::{errorpb, metapb};

use super::convert::{key_error, raw_span};
use crate::engine::{Assertion, AssertionLevel, Commit, Mutation, MutationOp, PessimisticAction, Prewrite};
use crate::region_proto::region_proto;
use crate::world::World;

pub(super) fn prewrite(world: &mut World, store: StoreId, request: &PrewriteRequest) -> PrewriteResponse {
    let keys = request.mutations.iter().map(|mutation| &mutation.key);
    if let Err(error) = world.access(request.context.as_ref(), store, keys) {
        return PrewriteResponse { region_error: Some(*error), ..Default::default() };
    }
    let command = match command(request) {
        Ok(command) => command,
        Err(abort) => {
            let errors = vec![kvrpcpb::KeyError { abort, ..Default::default() }];
            return PrewriteResponse { errors, ..Default::default() };
        }
    };
    match world.engine.prewrite(&command) {
        Ok(done) => PrewriteResponse {
            min_commit_ts: done.min_commit_ts.get(),
            one_pc_commit_ts: done.one_phase_commit_ts.get(),
            ..Default::default()
        },
        Err(errors) => {
            PrewriteResponse { errors: errors.into_iter().map(key_error).collect(), ..Default::default() }
        }
    }
}

fn command(request: &PrewriteRequest) -> Result<Prewrite, String> {
    let mut mutations = Vec::with_capacity(request.mutations.len());
    for (index, proto) in request.mutations.iter().enumerate() {
        mutations.push(mutation(request, index, proto)?);
    }
    let context = request.context.as_ref();
    Ok(Prewrite {
        mutations,
        primary: request.primary_lock.clone(),
        start_ts: StartTs::new(request.start_version),
        ttl_ms: request.lock_ttl,
        skip_constraint_check: request.skip_constraint_check,
        for_update_ts: Ts::new(request.for_update_ts),
        txn_size: request.txn_size,
        min_commit_ts: CommitTs::new(request.min_commit_ts),
        max_commit_ts: CommitTs::new(request.max_commit_ts),
        async_commit: request.use_async_commit,
        secondaries: request.secondaries.clone(),
        one_phase: request.try_one_pc,
        assertion_level: match request.assertion_level() {
            kvrpcpb::AssertionLevel::Off => AssertionLevel::Off,
            kvrpcpb::AssertionLevel::Fast => AssertionLevel::Fast,
            kvrpcpb::AssertionLevel::Strict => AssertionLevel::Strict,
        },
        is_retry: context.is_some_and(|context| context.is_retry_request),
        txn_source: context.map_or(0, |context| context.txn_source),
    })
}

fn mutation(request: &PrewriteRequest, index: usize, proto: &kvrpcpb::Mutation) -> Result<Mutation, String> {
    let op = match proto.op() {
        kvrpcpb::Op::Put => MutationOp::Put,
        kvrpcpb::Op::Del => MutationOp::Delete,
        kvrpcpb::Op::Lock => MutationOp::Lock,
        kvrpcpb::Op::Insert => MutationOp::Insert,
        kvrpcpb::Op::CheckNotExists => MutationOp::CheckNotExists,
        other => return Err(format!("a prewrite cannot hold a mutation of type {other:?}")),
    };
    use kvrpcpb::prewrite_request::PessimisticAction as Action;
    let action = request.pessimistic_actions.get(index).copied().unwrap_or_default();
    let constraint = request.for_update_ts_constraints.iter().find(|c| usize::try_from(c.index) == Ok(index));
    Ok(Mutation {
        op,
        key: proto.key.clone(),
        value: proto.value.clone(),
        assertion: match proto.assertion() {
            kvrpcpb::Assertion::None => Assertion::None,
            kvrpcpb::Assertion::Exist => Assertion::Exist,
            kvrpcpb::Assertion::NotExist => Assertion::NotExist,
        },
        pessimistic: match Action::try_from(action) {
            Ok(Action::DoPessimisticCheck) => PessimisticAction::DoPessimisticCheck,
            Ok(Action::DoConstraintCheck) => PessimisticAction::DoConstraintCheck,
            _ => PessimisticAction::Skip,
        },
        expected_for_update_ts: constraint.map(|c| Ts::new(c.expected_for_update_ts)),
    })
}

pub(super) fn commit(world: &mut World, store: StoreId, request: &CommitRequest) -> CommitResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, &request.keys) {
        return CommitResponse { region_error: Some(*error), ..Default::default() };
    }
    let command = Commit {
        keys: request.keys.clone(),
        start_ts: StartTs::new(request.start_version),
        commit_ts: CommitTs::new(request.commit_version),
    };
    match world.engine.commit(&command) {
        Ok(()) => CommitResponse { commit_version: request.commit_version, ..Default::default() },
        Err(error) => CommitResponse { error: Some(key_error(error)), ..Default::default() },
    }
}

pub(super) fn batch_rollback(
    world: &mut World,
    store: StoreId,
    request: &BatchRollbackRequest,
) -> BatchRollbackResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, &request.keys) {
        return BatchRollbackResponse { region_error: Some(*error), ..Default::default() };
    }
    let outcome = world.engine.batch_rollback(&request.keys, StartTs::new(request.start_version));
    BatchRollbackResponse { error: outcome.err().map(key_error), ..Default::default() }
}

pub(super) fn cleanup(world: &mut World, store: StoreId, request: &CleanupRequest) -> CleanupResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, [&request.key]) {
        return CleanupResponse { region_error: Some(*error), ..Default::default() };
    }
    let start_ts = StartTs::new(request.start_version);
    match world.engine.cleanup(&request.key, start_ts, Ts::new(request.current_ts)) {
        Ok(committed) => {
            CleanupResponse { commit_version: committed.map_or(0, CommitTs::get), ..Default::default() }
        }
        Err(error) => CleanupResponse { error: Some(key_error(error)), ..Default::default() },
    }
}

/// Destroys the range in the whole store, whatever regions it meets.
pub(super) fn unsafe_destroy_range(
    world: &mut World,
    _: StoreId,
    request: &UnsafeDestroyRangeRequest,
) -> UnsafeDestroyRangeResponse {
    world.engine.destroy(&raw_span(&request.start_key, &request.end_key));
    UnsafeDestroyRangeResponse::default()
}

pub(super) fn split_region(
    world: &mut World,
    store: StoreId,
    request: &SplitRegionRequest,
) -> SplitRegionResponse {
    match split(world, store, request) {
        Ok(regions) => {
            let pair = match regions.as_slice() {
                [left, right] => Some((left.clone(), right.clone())),
                _ => None,
            };
            let (left, right) = pair.unzip();
            SplitRegionResponse { region_error: None, left, right, regions }
        }
        Err(error) => SplitRegionResponse { region_error: Some(*error), ..Default::default() },
    }
}

fn split(
    world: &mut World,
    store: StoreId,
    request: &SplitRegionRequest,
) -> Result<Vec<metapb::Region>, Box<errorpb::Error>> {
    let mut raw: Vec<&Bytes> = request.split_keys.iter().collect();
    if raw.is_empty() {
        raw.push(&request.split_key);
    }
    world.access(request.context.as_ref(), store, raw.iter().copied())?;
    let region = RegionId(request.context.as_ref().map_or(0, |context| context.region_id));
    let known = world.topology.region(region).map(|region| region.epoch.conf_ver);
    let claimed = request.context.as_ref().and_then(|c| c.region_epoch.as_ref()).map(|epoch| epoch.conf_ver);
    if known != claimed {
        let message = "the region's membership changed".to_owned();
        let epoch_not_match = Some(errorpb::EpochNotMatch::default());
        return Err(Box::new(errorpb::Error { message, epoch_not_match, ..Default::default() }));
    }
    let mut encoded: Vec<Bytes> = raw.into_iter().map(|key| Bytes::from(to_region_key(key))).collect();
    encoded.sort_unstable();
    encoded.dedup();
    let mut ids = Vec::with_capacity(encoded.len() + 1);
    for key in encoded {
        let text =
            |error: crate::TopologyError| errorpb::Error { message: error.to_string(), ..Default::default() };
        ids.push(world.split(key).map_err(|error| Box::new(text(error)))?.0);
    }
    ids.push(region);
    Ok(ids.into_iter().filter_map(|id| world.topology.region(id)).map(region_proto).collect())
}
