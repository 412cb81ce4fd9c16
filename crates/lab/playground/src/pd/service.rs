//! The service itself: each call in a few lines over the modules beside.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use tidegate_proto::metapb;
use tidegate_proto::pdpb::pd_server::Pd;
use tidegate_proto::pdpb::*;
use tonic::{Request, Response, Status, Streaming};

use super::{PdError, PdService, gc, regions, timestamp_proto};
use crate::region_proto::store_proto;
use tidegate_core::{StoreId, Ts};

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn ok<T>(answer: T) -> Answer<T> {
    Ok(Response::new(answer))
}

/// Answers each request of a stream in order, and ends with it.
fn answer_each<Q, A>(
    requests: Streaming<Q>,
    answer: impl Fn(Q) -> Result<A, Status> + Send + 'static,
) -> Response<Answers<A>>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    Response::new(requests.map(move |request| request.and_then(&answer)).boxed())
}

#[tonic::async_trait]
impl Pd for PdService {
    async fn get_members(&self, _: Request<GetMembersRequest>) -> Answer<GetMembersResponse> {
        ok(GetMembersResponse {
            header: self.header(),
            members: vec![self.member()],
            leader: Some(self.member()),
            etcd_leader: Some(self.member()),
            ..Default::default()
        })
    }

    async fn get_cluster_info(&self, _: Request<GetClusterInfoRequest>) -> Answer<GetClusterInfoResponse> {
        let service_modes = vec![ServiceMode::Pd.into()];
        ok(GetClusterInfoResponse { header: self.header(), service_modes, tso_urls: Vec::new() })
    }

    type TsoStream = Answers<TsoResponse>;

    async fn tso(&self, request: Request<Streaming<TsoRequest>>) -> Answer<Self::TsoStream> {
        let service = self.clone();
        Ok(answer_each(request.into_inner(), move |request| service.tso(&request)))
    }

    async fn get_min_ts(&self, request: Request<GetMinTsRequest>) -> Answer<GetMinTsResponse> {
        let header = request.get_ref().header.as_ref();
        let ts = self.step(header, |world, now| world.timestamp(now, 1))?;
        ok(GetMinTsResponse { header: self.header(), timestamp: Some(timestamp_proto(ts)) })
    }

    async fn is_bootstrapped(
        &self,
        request: Request<IsBootstrappedRequest>,
    ) -> Answer<IsBootstrappedResponse> {
        self.check(request.get_ref().header.as_ref())?;
        ok(IsBootstrappedResponse { header: self.header(), bootstrapped: true })
    }

    async fn alloc_id(&self, request: Request<AllocIdRequest>) -> Answer<AllocIdResponse> {
        /// Enough for any client; a larger number is a mistake that would burn through the ids.
        const COUNT_MAX: u32 = 10_000;
        let request = request.get_ref();
        let count = request.count.clamp(1, COUNT_MAX);
        let id = self.step(request.header.as_ref(), |world, _| {
            (0..count).fold(0, |_, _| world.topology.allocate_id())
        })?;
        ok(AllocIdResponse { header: self.header(), id, count })
    }

    async fn get_cluster_config(
        &self,
        request: Request<GetClusterConfigRequest>,
    ) -> Answer<GetClusterConfigResponse> {
        self.check(request.get_ref().header.as_ref())?;
        let cluster = metapb::Cluster { id: self.cluster_id.get(), max_peer_count: 3 };
        ok(GetClusterConfigResponse { header: self.header(), cluster: Some(cluster) })
    }

    async fn get_store(&self, request: Request<GetStoreRequest>) -> Answer<GetStoreResponse> {
        let request = request.get_ref();
        let id = StoreId(request.store_id);
        let found = self.step(request.header.as_ref(), |world, _| {
            world.topology.store(id).map(|store| store_proto(store, self.upstream.started_s))
        })?;
        // Clients match on this text to tell a store that is gone from one they may ask for again.
        let missing = || PdError::unknown(format!("invalid store ID {id}, not found"));
        let (header, store) = self.settle(found.ok_or_else(missing));
        ok(GetStoreResponse { header, store, stats: None })
    }

    async fn get_all_stores(&self, request: Request<GetAllStoresRequest>) -> Answer<GetAllStoresResponse> {
        let header = request.get_ref().header.as_ref();
        let stores = self.step(header, |world, _| {
            world.topology.stores().map(|store| store_proto(store, self.upstream.started_s)).collect()
        })?;
        ok(GetAllStoresResponse { header: self.header(), stores })
    }

    async fn get_region(&self, request: Request<GetRegionRequest>) -> Answer<GetRegionResponse> {
        let request = request.get_ref();
        let found = self.step(request.header.as_ref(), |world, _| {
            world.topology.region_of(&request.region_key).map(regions::found)
        })?;
        ok(GetRegionResponse { header: self.header(), ..found.unwrap_or_default() })
    }

    async fn get_prev_region(&self, request: Request<GetRegionRequest>) -> Answer<GetRegionResponse> {
        let request = request.get_ref();
        let found = self.step(request.header.as_ref(), |world, _| {
            world.topology.region_before(&request.region_key).map(regions::found)
        })?;
        ok(GetRegionResponse { header: self.header(), ..found.unwrap_or_default() })
    }

    async fn get_region_by_id(&self, request: Request<GetRegionByIdRequest>) -> Answer<GetRegionResponse> {
        let request = request.get_ref();
        let id = tidegate_core::RegionId(request.region_id);
        let found =
            self.step(request.header.as_ref(), |world, _| world.topology.region(id).map(regions::found))?;
        ok(GetRegionResponse { header: self.header(), ..found.unwrap_or_default() })
    }

    type QueryRegionStream = Answers<QueryRegionResponse>;

    async fn query_region(
        &self,
        request: Request<Streaming<QueryRegionRequest>>,
    ) -> Answer<Self::QueryRegionStream> {
        let service = self.clone();
        Ok(answer_each(request.into_inner(), move |request| {
            let answer = service
                .step(request.header.as_ref(), |world, _| regions::query(&world.topology, &request))?;
            Ok(QueryRegionResponse { header: service.header(), ..answer })
        }))
    }

    async fn scan_regions(&self, request: Request<ScanRegionsRequest>) -> Answer<ScanRegionsResponse> {
        let request = request.get_ref();
        let answer =
            self.step(request.header.as_ref(), |world, _| regions::scan(&world.topology, request))?;
        ok(ScanRegionsResponse { header: self.header(), ..answer })
    }

    async fn batch_scan_regions(
        &self,
        request: Request<BatchScanRegionsRequest>,
    ) -> Answer<BatchScanRegionsResponse> {
        let request = request.get_ref();
        let outcome =
            self.step(request.header.as_ref(), |world, _| regions::batch_scan(&world.topology, request))?;
        let (header, regions) = self.settle(outcome);
        ok(BatchScanRegionsResponse { header, regions: regions.unwrap_or_default() })
    }

    async fn split_regions(&self, request: Request<SplitRegionsRequest>) -> Answer<SplitRegionsResponse> {
        let request = request.get_ref();
        let (finished_percentage, regions_id) =
            self.step(request.header.as_ref(), |world, _| regions::split(world, &request.split_keys))?;
        ok(SplitRegionsResponse { header: self.header(), finished_percentage, regions_id })
    }

    async fn split_and_scatter_regions(
        &self,
        request: Request<SplitAndScatterRegionsRequest>,
    ) -> Answer<SplitAndScatterRegionsResponse> {
        let request = request.get_ref();
        let (split_finished_percentage, regions_id) =
            self.step(request.header.as_ref(), |world, _| regions::split(world, &request.split_keys))?;
        ok(SplitAndScatterRegionsResponse {
            header: self.header(),
            split_finished_percentage,
            scatter_finished_percentage: 100,
            regions_id,
        })
    }

    async fn scatter_region(&self, request: Request<ScatterRegionRequest>) -> Answer<ScatterRegionResponse> {
        self.check(request.get_ref().header.as_ref())?;
        // Regions lie where they were put.
        ok(ScatterRegionResponse { header: self.header(), finished_percentage: 100, ..Default::default() })
    }

    async fn get_operator(&self, request: Request<GetOperatorRequest>) -> Answer<GetOperatorResponse> {
        let request = request.get_ref();
        self.check(request.header.as_ref())?;
        ok(GetOperatorResponse {
            header: self.header(),
            region_id: request.region_id,
            status: OperatorStatus::Success.into(),
            ..Default::default()
        })
    }

    async fn get_gc_safe_point(
        &self,
        request: Request<GetGcSafePointRequest>,
    ) -> Answer<GetGcSafePointResponse> {
        let header = request.get_ref().header.as_ref();
        let safe_point = self.step(header, |world, _| world.gc.unified.gc_safe_point.get())?;
        ok(GetGcSafePointResponse { header: self.header(), safe_point })
    }

    async fn update_gc_safe_point(
        &self,
        request: Request<UpdateGcSafePointRequest>,
    ) -> Answer<UpdateGcSafePointResponse> {
        let request = request.get_ref();
        let outcome = self.step(request.header.as_ref(), |world, _| {
            gc::update_safe_point(world, None, Ts::new(request.safe_point))
        })?;
        let (header, new) = self.settle(outcome);
        ok(UpdateGcSafePointResponse { header, new_safe_point: new.map_or(0, Ts::get) })
    }

    async fn update_service_gc_safe_point(
        &self,
        request: Request<UpdateServiceGcSafePointRequest>,
    ) -> Answer<UpdateServiceGcSafePointResponse> {
        let request = request.get_ref();
        let (ttl, ts) = (request.ttl, Ts::new(request.safe_point));
        let answer = self.step(request.header.as_ref(), |world, now| {
            gc::legacy(world, None, &request.service_id, ttl, ts, now)
        })??;
        ok(UpdateServiceGcSafePointResponse {
            header: self.header(),
            service_id: answer.service.into_bytes().into(),
            ttl: answer.ttl_seconds,
            min_safe_point: answer.min_safe_point.get(),
        })
    }

    async fn get_gc_safe_point_v2(
        &self,
        request: Request<GetGcSafePointV2Request>,
    ) -> Answer<GetGcSafePointV2Response> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace.as_ref());
        let safe_point =
            self.step(request.header.as_ref(), |world, _| gc::state(world, scope).gc_safe_point.get())?;
        ok(GetGcSafePointV2Response { header: self.header(), safe_point })
    }

    async fn update_gc_safe_point_v2(
        &self,
        request: Request<UpdateGcSafePointV2Request>,
    ) -> Answer<UpdateGcSafePointV2Response> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace.as_ref());
        let outcome = self.step(request.header.as_ref(), |world, _| {
            gc::update_safe_point(world, scope.keyspace(), Ts::new(request.safe_point))
        })?;
        let (header, new) = self.settle(outcome);
        ok(UpdateGcSafePointV2Response { header, new_safe_point: new.map_or(0, Ts::get) })
    }

    async fn update_service_safe_point_v2(
        &self,
        request: Request<UpdateServiceSafePointV2Request>,
    ) -> Answer<UpdateServiceSafePointV2Response> {
        let request = request.get_ref();
        let (ttl, ts) = (request.ttl, Ts::new(request.safe_point));
        let scope = gc::Scope::from(request.keyspace.as_ref());
        let answer = self.step(request.header.as_ref(), |world, now| {
            gc::legacy(world, scope.keyspace(), &request.service_id, ttl, ts, now)
        })??;
        ok(UpdateServiceSafePointV2Response {
            header: self.header(),
            service_id: answer.service.into_bytes().into(),
            ttl: answer.ttl_seconds,
            min_safe_point: answer.min_safe_point.get(),
        })
    }

    async fn get_all_gc_safe_point_v2(
        &self,
        request: Request<GetAllGcSafePointV2Request>,
    ) -> Answer<GetAllGcSafePointV2Response> {
        let header = request.get_ref().header.as_ref();
        let gc_safe_points = self.step(header, |world, _| gc::all_safe_points(world))?;
        ok(GetAllGcSafePointV2Response { header: self.header(), gc_safe_points, revision: 1 })
    }

    async fn advance_txn_safe_point(
        &self,
        request: Request<AdvanceTxnSafePointRequest>,
    ) -> Answer<AdvanceTxnSafePointResponse> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace_scope.as_ref());
        let outcome = self.step(request.header.as_ref(), |world, now| {
            gc::advance_txn(world, scope, Ts::new(request.target), now)
        })?;
        let (header, answer) = self.settle(outcome);
        ok(AdvanceTxnSafePointResponse { header, ..answer.unwrap_or_default() })
    }

    async fn advance_gc_safe_point(
        &self,
        request: Request<AdvanceGcSafePointRequest>,
    ) -> Answer<AdvanceGcSafePointResponse> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace_scope.as_ref());
        let outcome = self.step(request.header.as_ref(), |world, _| {
            gc::advance_gc(world, scope.keyspace(), Ts::new(request.target))
        })?;
        let (header, old) = self.settle(outcome);
        let new_gc_safe_point = if old.is_some() { request.target } else { 0 };
        let old_gc_safe_point = old.map_or(0, Ts::get);
        ok(AdvanceGcSafePointResponse { header, old_gc_safe_point, new_gc_safe_point })
    }

    async fn set_gc_barrier(&self, request: Request<SetGcBarrierRequest>) -> Answer<SetGcBarrierResponse> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace_scope.as_ref());
        let outcome = self.step(request.header.as_ref(), |world, now| {
            let ts = Ts::new(request.barrier_ts);
            let state = gc::state_mut(world, scope);
            let barrier = state.set_barrier(&request.barrier_id, ts, request.ttl_seconds, now.mono);
            barrier.map(|b| gc::barrier_proto(&request.barrier_id, &b, now)).map_err(PdError::unknown)
        })?;
        let (header, new_barrier_info) = self.settle(outcome);
        ok(SetGcBarrierResponse { header, new_barrier_info })
    }

    async fn delete_gc_barrier(
        &self,
        request: Request<DeleteGcBarrierRequest>,
    ) -> Answer<DeleteGcBarrierResponse> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace_scope.as_ref());
        let deleted_barrier_info = self.step(request.header.as_ref(), |world, now| {
            let deleted = gc::state_mut(world, scope).delete_barrier(&request.barrier_id);
            deleted.map(|barrier| gc::barrier_proto(&request.barrier_id, &barrier, now))
        })?;
        ok(DeleteGcBarrierResponse { header: self.header(), deleted_barrier_info })
    }

    async fn set_global_gc_barrier(
        &self,
        request: Request<SetGlobalGcBarrierRequest>,
    ) -> Answer<SetGlobalGcBarrierResponse> {
        let request = request.get_ref();
        let outcome = self.step(request.header.as_ref(), |world, now| {
            gc::set_global(world, &request.barrier_id, Ts::new(request.barrier_ts), request.ttl_seconds, now)
        })?;
        let (header, new_barrier_info) = self.settle(outcome);
        ok(SetGlobalGcBarrierResponse { header, new_barrier_info })
    }

    async fn delete_global_gc_barrier(
        &self,
        request: Request<DeleteGlobalGcBarrierRequest>,
    ) -> Answer<DeleteGlobalGcBarrierResponse> {
        let request = request.get_ref();
        let deleted_barrier_info = self.step(request.header.as_ref(), |world, now| {
            let deleted = world.gc.global.delete_barrier(&request.barrier_id);
            deleted.map(|barrier| gc::global_proto(&request.barrier_id, &barrier, now))
        })?;
        ok(DeleteGlobalGcBarrierResponse { header: self.header(), deleted_barrier_info })
    }

    async fn get_gc_state(&self, request: Request<GetGcStateRequest>) -> Answer<GetGcStateResponse> {
        let request = request.get_ref();
        let scope = gc::Scope::from(request.keyspace_scope.as_ref());
        let (gc_state, barriers) = self.step(request.header.as_ref(), |world, now| {
            let barriers = request.include_global_gc_barriers.then(|| gc::global_barriers(world, now));
            (gc::state_proto(world, scope, !request.exclude_gc_barriers, now), barriers)
        })?;
        let global_gc_barriers = barriers.map(|barriers| GlobalGcBarriers { barriers });
        ok(GetGcStateResponse { header: self.header(), gc_state: Some(gc_state), global_gc_barriers })
    }

    async fn get_all_keyspaces_gc_states(
        &self,
        request: Request<GetAllKeyspacesGcStatesRequest>,
    ) -> Answer<GetAllKeyspacesGcStatesResponse> {
        let request = request.get_ref();
        let (gc_states, global_gc_barriers) = self.step(request.header.as_ref(), |world, now| {
            let states = gc::all_states(world, !request.exclude_gc_barriers, now);
            let wanted = !request.exclude_global_gc_barriers;
            (states, if wanted { gc::global_barriers(world, now) } else { Vec::new() })
        })?;
        ok(GetAllKeyspacesGcStatesResponse { header: self.header(), gc_states, global_gc_barriers })
    }

    async fn set_external_timestamp(
        &self,
        request: Request<SetExternalTimestampRequest>,
    ) -> Answer<SetExternalTimestampResponse> {
        let request = request.get_ref();
        let outcome = self.step(request.header.as_ref(), |world, now| {
            let (ts, newest) = (Ts::new(request.timestamp), world.timestamp(now, 1));
            if ts < world.external_ts || ts > newest {
                let current = world.external_ts;
                let text = format!("external timestamp {ts} must lie between {current} and {newest}");
                return Err(PdError::unknown(text));
            }
            world.external_ts = ts;
            Ok(())
        })?;
        ok(SetExternalTimestampResponse { header: self.settle(outcome).0 })
    }

    async fn get_external_timestamp(
        &self,
        request: Request<GetExternalTimestampRequest>,
    ) -> Answer<GetExternalTimestampResponse> {
        let header = request.get_ref().header.as_ref();
        let timestamp = self.step(header, |world, _| world.external_ts.get())?;
        ok(GetExternalTimestampResponse { header: self.header(), timestamp })
    }
}
