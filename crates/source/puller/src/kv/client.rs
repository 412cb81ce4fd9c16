//! Calls to the leader of a key's region, repeated over region errors
//! (`reference/tikv-kv-protocol.md` §3).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tidegate_codec::key::{decode_bytes, to_region_key};
use tidegate_core::span::Hex;
use tidegate_core::{KeyspaceId, StartTs, StoreId};
use tidegate_pd::{PdClient, Peer, Region};
use tidegate_proto::tikvpb::tikv_client::TikvClient;
use tidegate_proto::{errorpb, kvrpcpb, metapb};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::PullerError;
use crate::backoff;

/// A call that does not succeed for this long over region changes fails. Longer than an election with a
/// restart of a store behind it.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// One attempt; a page of metadata takes milliseconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A page of a scan: a thousand values of a few hundred kilobytes, table metadata with statistics, fit.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// What requests of a cluster without keyspaces name (`reference/tikv-kv-protocol.md` §2).
const NO_KEYSPACE: u32 = 0xFFFF_FFFF;

/// A response that may say that the request went to the wrong place.
pub(super) trait Routed {
    fn region_error(&self) -> Option<&errorpb::Error>;
}

macro_rules! routed {
    ($($response:ident),*) => {
        $(impl Routed for kvrpcpb::$response {
            fn region_error(&self) -> Option<&errorpb::Error> {
                self.region_error.as_ref()
            }
        })*
    };
}
routed!(
    GetResponse,
    ScanResponse,
    ScanLockResponse,
    CheckTxnStatusResponse,
    CheckSecondaryLocksResponse,
    ResolveLockResponse
);

/// Connections to stores, and the rules for using them.
#[derive(Clone, Debug)]
pub(super) struct KvClient {
    pd: PdClient,
    keyspace: Option<KeyspaceId>,
    channels: Arc<Mutex<HashMap<StoreId, Channel>>>,
}

impl KvClient {
    pub(super) fn new(pd: PdClient, keyspace: Option<KeyspaceId>) -> Self {
        Self { pd, keyspace, channels: Arc::default() }
    }

    pub(super) fn pd(&self) -> &PdClient {
        &self.pd
    }

    /// Calls the leader of the region of the raw `key`. `make` builds the request for the region that is
    /// asked in the end, which is returned beside the response.
    pub(super) async fn at_key<Q, T, Fut>(
        &self,
        key: &[u8],
        ignored_locks: &[StartTs],
        make: impl Fn(kvrpcpb::Context) -> Q,
        call: impl Fn(TikvClient<Channel>, Q) -> Fut,
    ) -> Result<(T, Region), PullerError>
    where
        T: Routed,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + RETRY_FOR;
        let mut rng = fastrand::Rng::new();
        let mut hint = None;
        for attempt in 1.. {
            let region = self.locate(key, hint.take()).await?;
            let problem = match region.as_ref().and_then(|region| Some((region, region.leader?))) {
                None => Problem::Again("PD knows no leader for the key".into()),
                Some((region, leader)) => {
                    let request = make(self.context(region, leader, ignored_locks));
                    match self.attempt(leader, request, &call).await {
                        Ok(response) => return Ok((response, region.clone())),
                        Err(problem) => problem,
                    }
                }
            };
            let detail = match problem {
                Problem::Fatal(detail) => return Err(PullerError::Read { detail }),
                Problem::Again(detail) => detail,
                Problem::NotLeader(leader) => {
                    hint = region.map(|region| Region { leader: Some(leader), ..region });
                    "the store is not the leader".into()
                }
            };
            let pause = backoff::pause(attempt, &mut rng);
            if Instant::now() + pause >= deadline {
                let detail = format!("key {}: {detail}", Hex(key.get(..11).unwrap_or(key)));
                return Err(PullerError::Read { detail });
            }
            sleep(pause).await;
        }
        Err(PullerError::Stopped)
    }

    async fn locate(&self, key: &[u8], hint: Option<Region>) -> Result<Option<Region>, PullerError> {
        match hint {
            Some(region) => Ok(Some(region)),
            None => Ok(self.pd.region_of(&to_region_key(key)).await?),
        }
    }

    async fn attempt<Q, T, Fut>(
        &self,
        leader: Peer,
        request: Q,
        call: &impl Fn(TikvClient<Channel>, Q) -> Fut,
    ) -> Result<T, Problem>
    where
        T: Routed,
        Fut: Future<Output = Result<Response<T>, Status>>,
    {
        let channel = self.channel(leader.store_id).await?;
        let client = TikvClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let response = match timeout(CALL_TIMEOUT, call(client, request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(self.broken(leader.store_id, &status)),
            Err(_) => {
                self.forget(leader.store_id);
                return Err(Problem::Again(format!("store {} did not answer", leader.store_id)));
            }
        };
        match response.region_error() {
            None => Ok(response),
            Some(error) => Err(region_problem(error)),
        }
    }

    async fn channel(&self, store_id: StoreId) -> Result<Channel, Problem> {
        if let Some(channel) = self.channels.lock().get(&store_id) {
            return Ok(channel.clone());
        }
        let store = self.pd.store(store_id).await.map_err(|error| Problem::Again(error.to_string()))?;
        let again = |error: tonic::transport::Error| {
            self.forget(store_id);
            Problem::Again(format!("cannot connect to store {store_id} at {}: {error}", store.address))
        };
        let endpoint = Endpoint::from_shared(format!("http://{}", store.address)).map_err(again)?;
        let endpoint = endpoint.connect_timeout(Duration::from_secs(3)).tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(again)?;
        self.channels.lock().insert(store_id, channel.clone());
        Ok(channel)
    }

    fn broken(&self, store_id: StoreId, status: &Status) -> Problem {
        let detail = format!("store {store_id}: {}: {}", status.code(), status.message());
        if matches!(status.code(), Code::InvalidArgument | Code::Unimplemented | Code::Unauthenticated) {
            return Problem::Fatal(detail);
        }
        self.forget(store_id);
        Problem::Again(detail)
    }

    /// The address may have changed.
    fn forget(&self, store_id: StoreId) {
        self.channels.lock().remove(&store_id);
        self.pd.forget_store(store_id);
    }

    fn context(&self, region: &Region, leader: Peer, ignored_locks: &[StartTs]) -> kvrpcpb::Context {
        let api = if self.keyspace.is_some() { kvrpcpb::ApiVersion::V2 } else { kvrpcpb::ApiVersion::V1 };
        let keyspace_id = self.keyspace.map_or(NO_KEYSPACE, KeyspaceId::get);
        kvrpcpb::Context {
            region_id: region.id.get(),
            region_epoch: Some(metapb::RegionEpoch {
                conf_ver: region.epoch.conf_ver,
                version: region.epoch.version,
            }),
            peer: Some(metapb::Peer {
                id: leader.id.get(),
                store_id: leader.store_id.get(),
                ..Default::default()
            }),
            api_version: api.into(),
            keyspace: Some(kvrpcpb::context::Keyspace::KeyspaceId(keyspace_id)),
            cluster_id: self.pd.cluster_id().get(),
            resolved_locks: ignored_locks.iter().map(|ts| ts.get()).collect(),
            request_source: "tidegate".into(),
            ..Default::default()
        }
    }
}

/// Why an attempt failed.
enum Problem {
    NotLeader(Peer),
    Again(String),
    Fatal(String),
}

/// Every region error passes: the region is looked up again, or the named leader asked. What never passes
/// ends with the deadline.
fn region_problem(error: &errorpb::Error) -> Problem {
    let leader = error.not_leader.as_ref().and_then(|not_leader| not_leader.leader);
    match leader.filter(|leader| leader.id != 0 && leader.store_id != 0) {
        Some(leader) => {
            let (id, store_id) = (tidegate_core::PeerId(leader.id), StoreId(leader.store_id));
            Problem::NotLeader(Peer { id, store_id })
        }
        None => Problem::Again(format!("region error: {}", describe(error))),
    }
}

fn describe(error: &errorpb::Error) -> &str {
    if error.message.is_empty() { "without a reason" } else { &error.message }
}

/// The raw key behind an encoded region or span bound; an empty bound stays empty.
pub(super) fn raw_bound(bound: &Bytes) -> Result<Bytes, PullerError> {
    if bound.is_empty() {
        return Ok(Bytes::new());
    }
    match decode_bytes(bound) {
        Ok((key, _)) => Ok(Bytes::from(key)),
        Err(error) => {
            Err(PullerError::Read { detail: format!("region bound {} is no key: {error}", Hex(bound)) })
        }
    }
}

/// The nearer of two raw end bounds; empty is plus infinity.
pub(super) fn nearer_end(a: Bytes, b: &Bytes) -> Bytes {
    if tidegate_core::span::end_before(b, &a) { b.clone() } else { a }
}

/// The smallest key above `key`.
pub(super) fn key_after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    Bytes::from(next)
}
