//! Looking regions up (`reference/pd-protocol.md` §6).

use std::collections::HashMap;

use bytes::Bytes;
use tidegate_core::{RegionId, Span};
use tidegate_proto::pdpb::{
    self, BatchScanRegionsRequest, ErrorType, GetRegionResponse, QueryRegionRequest, QueryRegionResponse,
    RegionResponse, ScanRegionsRequest, ScanRegionsResponse,
};

use super::PdError;
use crate::region_proto::{pd_region_proto, peer_proto, region_proto};
use crate::topology::{Region, Topology};
use crate::world::World;

pub(super) fn found(region: &Region) -> GetRegionResponse {
    GetRegionResponse {
        region: Some(region_proto(region)),
        leader: Some(peer_proto(region.leader)),
        ..Default::default()
    }
}

fn limit(limit: i32) -> usize {
    match usize::try_from(limit) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(limit) => limit,
    }
}

pub(super) fn scan(topology: &Topology, request: &ScanRegionsRequest) -> ScanRegionsResponse {
    let span = Span::new(request.start_key.clone(), request.end_key.clone());
    let mut answer = ScanRegionsResponse::default();
    for region in topology.regions_in(&span).take(limit(request.limit)) {
        // Old clients read the two parallel lists, new ones the third.
        answer.region_metas.push(region_proto(region));
        answer.leaders.push(peer_proto(region.leader));
        answer.regions.push(pd_region_proto(region));
    }
    answer
}

pub(super) fn batch_scan(
    topology: &Topology,
    request: &BatchScanRegionsRequest,
) -> Result<Vec<pdpb::Region>, PdError> {
    let spans: Vec<Span> = request
        .ranges
        .iter()
        .map(|range| Span::new(range.start_key.clone(), range.end_key.clone()))
        .collect();
    let disordered = spans
        .iter()
        .zip(spans.iter().skip(1))
        .any(|(before, after)| before.end.is_empty() || before.end > after.start);
    if disordered || spans.iter().any(Span::is_empty) {
        return Err(PdError::unknown("ranges must be sorted and must not overlap"));
    }
    let mut regions: Vec<&Region> = Vec::new();
    for region in spans.iter().flat_map(|span| topology.regions_in(span)) {
        // One region may span two ranges.
        if regions.last().map(|last| last.id) != Some(region.id) {
            regions.push(region);
        }
    }
    if request.contain_all_key_range && regions.is_empty() && !spans.is_empty() {
        let kind = ErrorType::RegionsNotContainAllKeyRange;
        return Err(PdError { kind, message: "the regions do not contain all key ranges".to_owned() });
    }
    Ok(regions.into_iter().take(limit(request.limit)).map(pd_region_proto).collect())
}

pub(super) fn query(topology: &Topology, request: &QueryRegionRequest) -> QueryRegionResponse {
    let mut regions_by_id = HashMap::new();
    let mut note = |region: Option<&Region>| {
        let Some(region) = region else { return 0 };
        let response = RegionResponse {
            region: Some(region_proto(region)),
            leader: Some(peer_proto(region.leader)),
            ..Default::default()
        };
        regions_by_id.insert(region.id.get(), response);
        region.id.get()
    };
    let key_id_map = request.keys.iter().map(|key| note(topology.region_of(key))).collect();
    let prev_key_id_map = request.prev_keys.iter().map(|key| note(topology.region_before(key))).collect();
    for id in &request.ids {
        note(topology.region(RegionId(*id)));
    }
    QueryRegionResponse { header: None, key_id_map, prev_key_id_map, regions_by_id }
}

/// Splits at encoded keys; returns the percentage that succeeded and the new regions.
pub(super) fn split(world: &mut World, keys: &[Bytes]) -> (u64, Vec<u64>) {
    let new: Vec<u64> =
        keys.iter().filter_map(|key| world.split(key.clone()).ok()).map(|(left, _)| left.get()).collect();
    let percentage = (new.len() * 100).checked_div(keys.len()).unwrap_or(100);
    (u64::try_from(percentage).unwrap_or(100), new)
}
