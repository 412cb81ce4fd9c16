//! Registering and deregistering (`reference/cdc-protocol.md` §4).

use tidegate_core::{ClusterId, RegionId, ResolvedTs, Span, StoreId, Ts};
use tidegate_proto::cdcpb::change_data_request::{KvApi, Request};
use tidegate_proto::cdcpb::{ChangeDataRequest, Error};

use super::congestion::{
    cluster_id_mismatch, compatibility, duplicate_request, epoch_not_match, region_not_found, server_is_busy,
};
use super::{ClientVersion, Downstream, DownstreamId, Feeds, Liveness, Phase, RequestId, StreamId};
use crate::engine::{Applied, FeedScan, empty_span};
use crate::region_proto::region_proto;
use crate::topology::{Epoch, Region, Topology};

/// A registration that a stream may ask for.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) request_id: RequestId,
    pub(crate) region_id: RegionId,
    pub(crate) epoch: Option<Epoch>,
    /// Encoded; not necessarily within the region.
    pub(crate) span: Span,
    pub(crate) checkpoint: Ts,
    pub(crate) filter_loop: bool,
}

/// The request is answered with an error event; the stream lives on.
pub(crate) struct RegistrationRefused;

impl Registration {
    pub(crate) fn new(request: &ChangeDataRequest) -> Self {
        Self {
            request_id: RequestId(request.request_id),
            region_id: RegionId(request.region_id),
            epoch: request
                .region_epoch
                .as_ref()
                .map(|epoch| Epoch { conf_ver: epoch.conf_ver, version: epoch.version }),
            span: Span::new(request.start_key.clone(), request.end_key.clone()),
            checkpoint: Ts::new(request.checkpoint_ts),
            filter_loop: request.filter_loop,
        }
    }
}

impl Feeds {
    /// Remembers the client's version from the first request of a stream.
    pub(crate) fn greet(&mut self, stream: StreamId, version: &str) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.version = ClientVersion::parse(version);
        }
    }

    /// Takes a request that asks for a registration, or answers it with an error event. What it returns still
    /// has to be scanned.
    pub(crate) fn register(
        &mut self,
        stream: StreamId,
        request: &ChangeDataRequest,
        cluster_id: ClusterId,
        topology: &Topology,
        pending_max: usize,
    ) -> Result<(DownstreamId, Registration), RegistrationRefused> {
        let registration = Registration::new(request);
        match self.check(stream, request, &registration, cluster_id, topology, pending_max) {
            Ok(()) => Ok((self.add(stream, &registration), registration)),
            Err(error) => {
                self.send_error(stream, registration.request_id, registration.region_id, *error);
                Err(RegistrationRefused)
            }
        }
    }

    fn check(
        &self,
        stream: StreamId,
        request: &ChangeDataRequest,
        registration: &Registration,
        cluster_id: ClusterId,
        topology: &Topology,
        pending_max: usize,
    ) -> Result<(), Box<Error>> {
        let region_id = registration.region_id;
        let Some(stream) = self.streams.get(&stream) else {
            return Err(Box::new(region_not_found(region_id)));
        };
        let claimed = request.header.as_ref().map_or(0, |header| header.cluster_id);
        if stream.version.has_cluster_id_checked() && claimed != cluster_id.get() {
            return Err(Box::new(cluster_id_mismatch(cluster_id, claimed)));
        }
        if request.kv_api != i32::from(KvApi::Tidb) {
            return Err(Box::new(compatibility()));
        }
        if self.waiting(stream.store) >= pending_max {
            return Err(Box::new(server_is_busy("too many pending incremental scans")));
        }
        let region = topology.region(region_id).filter(|region| region.peer_on(stream.store).is_some());
        let Some(region) = region else { return Err(Box::new(region_not_found(region_id))) };
        if stream.downstreams.contains_key(&(registration.request_id, region_id)) {
            return Err(Box::new(duplicate_request(region_id)));
        }
        let version = registration.epoch.map(|epoch| epoch.version);
        if self.is_initialized(region_id) && version != Some(region.epoch.version) {
            return Err(Box::new(epoch_not_match(vec![region_proto(region)])));
        }
        Ok(())
    }

    fn waiting(&self, store: StoreId) -> usize {
        let on_store = |d: &&Downstream| self.streams.get(&d.stream).is_some_and(|s| s.store == store);
        self.downstreams.values().filter(|d| d.phase != Phase::Normal).filter(on_store).count()
    }

    fn is_initialized(&self, region_id: RegionId) -> bool {
        let ids = self.by_region.get(&region_id).map(Vec::as_slice).unwrap_or_default();
        ids.iter().filter_map(|id| self.downstreams.get(id)).any(|d| d.phase == Phase::Normal)
    }

    fn add(&mut self, stream_id: StreamId, registration: &Registration) -> DownstreamId {
        let id = DownstreamId(self.fresh_id());
        let downstream = Downstream {
            stream: stream_id,
            request_id: registration.request_id,
            region_id: registration.region_id,
            span: registration.span.clone(),
            filter_loop: registration.filter_loop,
            phase: Phase::Pending,
            resolved: ResolvedTs::ZERO,
            liveness: Liveness::new(),
        };
        self.downstreams.insert(id, downstream);
        self.by_region.entry(registration.region_id).or_default().push(id);
        if let Some(stream) = self.streams.get_mut(&stream_id) {
            stream.downstreams.insert((registration.request_id, registration.region_id), id);
        }
        id
    }

    /// Begins a registration's scan as of `snapshot`: from here on it sees live rows. `region` is the region
    /// as it is now; `None` when the registration ended meanwhile or the region no longer fits, which the
    /// client is told.
    pub(crate) fn begin_scan(
        &mut self,
        id: DownstreamId,
        registration: &Registration,
        region: Option<&Region>,
        snapshot: Applied,
    ) -> Option<FeedScan> {
        let store = self.stream_of(id).and_then(|stream| self.streams.get(&stream)).map(|s| s.store)?;
        let downstream = self.downstreams.get_mut(&id)?;
        match serves(region, registration, store) {
            Ok(region) => {
                downstream.phase = Phase::Scanning;
                let span = region.span.intersect(&registration.span).unwrap_or_else(empty_span);
                downstream.span = span.clone();
                Some(FeedScan::new(span, registration.checkpoint, snapshot))
            }
            Err(error) => {
                self.end(id, *error);
                None
            }
        }
    }

    /// Takes back one registration, or all of a request id. Each is confirmed as a region that is not found.
    pub(crate) fn deregister(&mut self, stream_id: StreamId, request: &ChangeDataRequest) {
        let Some(stream) = self.streams.get(&stream_id) else { return };
        let ids: Vec<(DownstreamId, RegionId)> = stream
            .downstreams
            .iter()
            .filter(|((request_id, region_id), _)| {
                *request_id == RequestId(request.request_id)
                    && (request.region_id == 0 || region_id.get() == request.region_id)
            })
            .map(|((_, region_id), id)| (*id, *region_id))
            .collect();
        for (id, region_id) in ids {
            self.end(id, region_not_found(region_id));
        }
    }
}

/// Whether a request takes registrations back instead of asking for one.
pub(crate) fn is_deregister(request: &ChangeDataRequest) -> bool {
    matches!(request.request, Some(Request::Deregister(_)))
}

/// Leadership and the full epoch are verified only when the scan begins, as a store does by its read index.
fn serves<'a>(
    region: Option<&'a Region>,
    registration: &Registration,
    store: StoreId,
) -> Result<&'a Region, Box<Error>> {
    let Some(region) = region else { return Err(Box::new(region_not_found(registration.region_id))) };
    if region.leader.store_id != store {
        let leader = crate::region_proto::peer_proto(region.leader);
        return Err(Box::new(super::congestion::not_leader(region.id, Some(leader))));
    }
    if registration.epoch != Some(region.epoch) {
        return Err(Box::new(epoch_not_match(vec![region_proto(region)])));
    }
    Ok(region)
}
