//! Snapshot reads.

use bytes::Bytes;
use tidegate_core::StoreId;
use tidegate_proto::kvrpcpb::{
    BatchGetRequest, BatchGetResponse, GetRequest, GetResponse, KvPair, ScanRequest, ScanResponse,
};

use super::convert::{key_error, read_view, within};
use crate::engine::{Found, ScanOptions, TxnError};
use crate::world::World;

pub(super) fn get(world: &mut World, store: StoreId, request: &GetRequest) -> GetResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, [&request.key]) {
        return GetResponse { region_error: Some(*error), ..Default::default() };
    }
    let view = read_view(request.context.as_ref(), request.version);
    match world.engine.get(&request.key, &view) {
        Ok(Some(found)) => GetResponse {
            value: found.value,
            commit_ts: commit_ts(request.need_commit_ts, found.commit_ts.get()),
            ..Default::default()
        },
        Ok(None) => GetResponse { not_found: true, ..Default::default() },
        Err(error) => GetResponse { error: Some(key_error(error)), ..Default::default() },
    }
}

pub(super) fn batch_get(world: &mut World, store: StoreId, request: &BatchGetRequest) -> BatchGetResponse {
    if let Err(error) = world.access(request.context.as_ref(), store, &request.keys) {
        return BatchGetResponse { region_error: Some(*error), ..Default::default() };
    }
    let view = read_view(request.context.as_ref(), request.version);
    let mut pairs = Vec::with_capacity(request.keys.len());
    for key in &request.keys {
        if let Some(found) = world.engine.get(key, &view).transpose() {
            pairs.push(pair(key.clone(), found, request.need_commit_ts));
        }
    }
    BatchGetResponse { pairs, ..Default::default() }
}

pub(super) fn scan(world: &mut World, store: StoreId, request: &ScanRequest) -> ScanResponse {
    let region = match world.access(request.context.as_ref(), store, []) {
        Ok(region) => region,
        Err(error) => return ScanResponse { region_error: Some(*error), ..Default::default() },
    };
    let span = if request.reverse {
        within(&region, &request.end_key, &request.start_key)
    } else {
        within(&region, &request.start_key, &request.end_key)
    };
    let view = read_view(request.context.as_ref(), request.version);
    let options = ScanOptions {
        limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
        reverse: request.reverse,
        key_only: request.key_only,
    };
    let scanned = world.engine.scan(&span, &view, options);
    let pairs = scanned.into_iter().map(|(key, found)| pair(key, found, false)).collect();
    ScanResponse { pairs, ..Default::default() }
}

fn pair(key: Bytes, found: Result<Found, TxnError>, with_commit_ts: bool) -> KvPair {
    match found {
        Ok(found) => KvPair {
            error: None,
            key,
            value: found.value,
            commit_ts: commit_ts(with_commit_ts, found.commit_ts.get()),
        },
        // The error names the key.
        Err(error) => KvPair { error: Some(key_error(error)), ..Default::default() },
    }
}

fn commit_ts(wanted: bool, ts: u64) -> u64 {
    if wanted { ts } else { 0 }
}
