//! A PD member that does what a test says: follows or leads, is old, loses its leadership, answers nonsense.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_proto::pdpb::pd_server::{Pd, PdServer};
use tidegate_proto::{metapb, pdpb};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};

pub(crate) const CLUSTER: u64 = 77;

/// What a member is and does.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Who leads, as this member says; `None` during an election.
    pub(crate) leader_url: Option<String>,
    /// Whether this member serves calls.
    pub(crate) leads: bool,
    /// Whether the calls of newer servers are unknown.
    pub(crate) old: bool,
    /// Whether calls never end.
    pub(crate) hangs: bool,
    /// Added to the count of each timestamp reply.
    pub(crate) miscount: u32,
    /// Timestamp replies left before each stream breaks; zero: no limit.
    pub(crate) replies_per_stream: usize,
    pub(crate) cluster_id: u64,
    pub(crate) last_tso: i64,
    pub(crate) safe_point: u64,
    pub(crate) services: BTreeMap<Bytes, (u64, i64)>,
    /// Names of calls in order.
    pub(crate) calls: Vec<&'static str>,
}

#[derive(Clone)]
struct Member(Arc<Mutex<Behaviour>>);

/// A running member; it ends when dropped.
pub(crate) struct FakePd {
    pub(crate) behaviour: Arc<Mutex<Behaviour>>,
    pub(crate) address: SocketAddr,
    _stop: DropGuard,
}

impl FakePd {
    /// A leader of its own.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let behaviour = Behaviour {
            leader_url: Some(format!("http://{address}")),
            leads: true,
            cluster_id: CLUSTER,
            ..Behaviour::default()
        };
        let behaviour = Arc::new(Mutex::new(behaviour));
        let stop = CancellationToken::new();
        let service = PdServer::new(Member(Arc::clone(&behaviour)));
        let server = tonic::transport::Server::builder().add_service(service);
        let serving = server.serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Self { behaviour, address, _stop: stop.drop_guard() }
    }

    /// A member of the same cluster that follows another.
    pub(crate) async fn follower(leader: &Self) -> Self {
        let follower = Self::start().await;
        follower.set(|behaviour| {
            behaviour.leads = false;
            behaviour.leader_url = Some(leader.url());
        });
        follower
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock());
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.behaviour.lock().calls.iter().filter(|call| **call == name).count()
    }
}

impl Member {
    /// What every call but discovery begins with.
    async fn enter(&self, call: &'static str, header: Option<&pdpb::RequestHeader>) -> Result<(), Status> {
        let hangs = {
            let mut behaviour = self.0.lock();
            behaviour.calls.push(call);
            if !behaviour.leads {
                return Err(Status::unavailable("not leader"));
            }
            let got = header.map_or(0, |header| header.cluster_id);
            if got != behaviour.cluster_id {
                let need = behaviour.cluster_id;
                let text = format!("mismatch cluster id, need {need} but got {got}");
                return Err(Status::failed_precondition(text));
            }
            behaviour.hangs
        };
        if hangs { std::future::pending().await } else { Ok(()) }
    }

    fn header(&self) -> Option<pdpb::ResponseHeader> {
        Some(pdpb::ResponseHeader { cluster_id: self.0.lock().cluster_id, error: None })
    }

    fn error(&self, kind: pdpb::ErrorType, message: &str) -> Option<pdpb::ResponseHeader> {
        let error = Some(pdpb::Error { r#type: kind.into(), message: message.into() });
        Some(pdpb::ResponseHeader { cluster_id: self.0.lock().cluster_id, error })
    }

    fn is_old(&self) -> Result<(), Status> {
        if self.0.lock().old { Err(Status::unimplemented("unknown method")) } else { Ok(()) }
    }
}

type TsoSender = mpsc::Sender<Result<pdpb::TsoResponse, Status>>;

/// Answers requests until the stream ends or the behaviour breaks it.
async fn serve_tso(member: Member, mut requests: Streaming<pdpb::TsoRequest>, replies: TsoSender) {
    let mut sent = 0;
    while let Ok(Some(request)) = requests.message().await {
        if let Err(status) = member.enter("Tso", request.header.as_ref()).await {
            let _ = replies.send(Err(status)).await;
            return;
        }
        let reply = {
            let mut behaviour = member.0.lock();
            behaviour.last_tso += i64::from(request.count);
            let timestamp = pdpb::Timestamp { physical: 1_000, logical: behaviour.last_tso, suffix_bits: 0 };
            let count = request.count + behaviour.miscount;
            pdpb::TsoResponse { header: None, count, timestamp: Some(timestamp) }
        };
        if replies.send(Ok(reply)).await.is_err() {
            return;
        }
        sent += 1;
        if sent == member.0.lock().replies_per_stream {
            let _ = replies.send(Err(Status::unavailable("broken on command"))).await;
            return;
        }
    }
}

macro_rules! fake_pd {
    ({ $($handled:tt)* } $($name:ident($request:ident) -> $response:ident,)*) => {
        #[tonic::async_trait]
        impl Pd for Member {
            type TsoStream = ReceiverStream<Result<pdpb::TsoResponse, Status>>;
            type QueryRegionStream = ReceiverStream<Result<pdpb::QueryRegionResponse, Status>>;

            $($handled)*

            $(async fn $name(
                &self,
                _: Request<pdpb::$request>,
            ) -> Result<Response<pdpb::$response>, Status> {
                Err(Status::unimplemented(stringify!($name)))
            })*
        }
    };
}

fake_pd! {
    {
        async fn get_members(
            &self,
            _: Request<pdpb::GetMembersRequest>,
        ) -> Result<Response<pdpb::GetMembersResponse>, Status> {
            let header = self.header();
            let mut behaviour = self.0.lock();
            behaviour.calls.push("GetMembers");
            let member = |url: &String| pdpb::Member {
                member_id: 1,
                client_urls: vec![url.clone()],
                ..Default::default()
            };
            let leader = behaviour.leader_url.as_ref().map(member);
            let members = leader.iter().cloned().collect();
            Ok(Response::new(pdpb::GetMembersResponse { header, members, leader, ..Default::default() }))
        }

        async fn tso(
            &self,
            requests: Request<Streaming<pdpb::TsoRequest>>,
        ) -> Result<Response<Self::TsoStream>, Status> {
            let (sender, replies) = mpsc::channel(4);
            tokio::spawn(serve_tso(self.clone(), requests.into_inner(), sender));
            Ok(Response::new(ReceiverStream::new(replies)))
        }

        async fn query_region(
            &self,
            _: Request<Streaming<pdpb::QueryRegionRequest>>,
        ) -> Result<Response<Self::QueryRegionStream>, Status> {
            Err(Status::unimplemented("query_region"))
        }

        async fn get_store(
            &self,
            request: Request<pdpb::GetStoreRequest>,
        ) -> Result<Response<pdpb::GetStoreResponse>, Status> {
            self.enter("GetStore", request.get_ref().header.as_ref()).await?;
            let id = request.get_ref().store_id;
            if id == 404 {
                let header = self.error(pdpb::ErrorType::Unknown, "invalid store ID 404, not found");
                return Ok(Response::new(pdpb::GetStoreResponse { header, ..Default::default() }));
            }
            let store = metapb::Store { id, address: "127.0.0.1:20160".into(), ..Default::default() };
            let header = self.header();
            Ok(Response::new(pdpb::GetStoreResponse { header, store: Some(store), stats: None }))
        }

        async fn get_all_stores(
            &self,
            request: Request<pdpb::GetAllStoresRequest>,
        ) -> Result<Response<pdpb::GetAllStoresResponse>, Status> {
            self.enter("GetAllStores", request.get_ref().header.as_ref()).await?;
            let header = self.error(pdpb::ErrorType::NotBootstrapped, "cluster is not bootstrapped");
            Ok(Response::new(pdpb::GetAllStoresResponse { header, stores: Vec::new() }))
        }

        async fn get_gc_state(
            &self,
            request: Request<pdpb::GetGcStateRequest>,
        ) -> Result<Response<pdpb::GetGcStateResponse>, Status> {
            self.enter("GetGCState", request.get_ref().header.as_ref()).await?;
            self.is_old()?;
            let txn_safe_point = self.0.lock().safe_point;
            let gc_state = Some(pdpb::GcState { txn_safe_point, ..Default::default() });
            let header = self.header();
            Ok(Response::new(pdpb::GetGcStateResponse { header, gc_state, ..Default::default() }))
        }

        async fn get_gc_safe_point(
            &self,
            request: Request<pdpb::GetGcSafePointRequest>,
        ) -> Result<Response<pdpb::GetGcSafePointResponse>, Status> {
            self.enter("GetGCSafePoint", request.get_ref().header.as_ref()).await?;
            let safe_point = self.0.lock().safe_point;
            Ok(Response::new(pdpb::GetGcSafePointResponse { header: self.header(), safe_point }))
        }

        async fn update_service_gc_safe_point(
            &self,
            request: Request<pdpb::UpdateServiceGcSafePointRequest>,
        ) -> Result<Response<pdpb::UpdateServiceGcSafePointResponse>, Status> {
            self.enter("UpdateServiceGCSafePoint", request.get_ref().header.as_ref()).await?;
            let request = request.into_inner();
            let mut behaviour = self.0.lock();
            if request.ttl <= 0 {
                behaviour.services.remove(&request.service_id);
            } else if request.safe_point >= behaviour.safe_point {
                behaviour.services.insert(request.service_id, (request.safe_point, request.ttl));
            }
            let min_safe_point = behaviour.safe_point;
            let service_id = Bytes::from_static(b"gc_worker");
            drop(behaviour);
            let header = self.header();
            let ttl = i64::MAX;
            let answer =
                pdpb::UpdateServiceGcSafePointResponse { header, service_id, ttl, min_safe_point };
            Ok(Response::new(answer))
        }
    }
    get_cluster_info(GetClusterInfoRequest) -> GetClusterInfoResponse,
    get_min_ts(GetMinTsRequest) -> GetMinTsResponse,
    is_bootstrapped(IsBootstrappedRequest) -> IsBootstrappedResponse,
    alloc_id(AllocIdRequest) -> AllocIdResponse,
    get_cluster_config(GetClusterConfigRequest) -> GetClusterConfigResponse,
    get_region(GetRegionRequest) -> GetRegionResponse,
    get_prev_region(GetRegionRequest) -> GetRegionResponse,
    get_region_by_id(GetRegionByIdRequest) -> GetRegionResponse,
    scan_regions(ScanRegionsRequest) -> ScanRegionsResponse,
    batch_scan_regions(BatchScanRegionsRequest) -> BatchScanRegionsResponse,
    split_regions(SplitRegionsRequest) -> SplitRegionsResponse,
    split_and_scatter_regions(SplitAndScatterRegionsRequest) -> SplitAndScatterRegionsResponse,
    scatter_region(ScatterRegionRequest) -> ScatterRegionResponse,
    get_operator(GetOperatorRequest) -> GetOperatorResponse,
    update_gc_safe_point(UpdateGcSafePointRequest) -> UpdateGcSafePointResponse,
    get_gc_safe_point_v2(GetGcSafePointV2Request) -> GetGcSafePointV2Response,
    update_gc_safe_point_v2(UpdateGcSafePointV2Request) -> UpdateGcSafePointV2Response,
    update_service_safe_point_v2(UpdateServiceSafePointV2Request) -> UpdateServiceSafePointV2Response,
    get_all_gc_safe_point_v2(GetAllGcSafePointV2Request) -> GetAllGcSafePointV2Response,
    advance_txn_safe_point(AdvanceTxnSafePointRequest) -> AdvanceTxnSafePointResponse,
    advance_gc_safe_point(AdvanceGcSafePointRequest) -> AdvanceGcSafePointResponse,
    set_gc_barrier(SetGcBarrierRequest) -> SetGcBarrierResponse,
    delete_gc_barrier(DeleteGcBarrierRequest) -> DeleteGcBarrierResponse,
    set_global_gc_barrier(SetGlobalGcBarrierRequest) -> SetGlobalGcBarrierResponse,
    delete_global_gc_barrier(DeleteGlobalGcBarrierRequest) -> DeleteGlobalGcBarrierResponse,
    get_all_keyspaces_gc_states(GetAllKeyspacesGcStatesRequest) -> GetAllKeyspacesGcStatesResponse,
    set_external_timestamp(SetExternalTimestampRequest) -> SetExternalTimestampResponse,
    get_external_timestamp(GetExternalTimestampRequest) -> GetExternalTimestampResponse,
}
