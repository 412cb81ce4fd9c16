//! The client handle and its unary calls.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_core::{ClusterId, RegionId, Span, StoreId, Ts};
use tidegate_proto::keyspacepb::{self, keyspace_client::KeyspaceClient};
use tidegate_proto::pdpb;
use tokio::sync::{mpsc, oneshot};

use crate::members::{Members, stub};
use crate::{Keyspace, PdError, Region, Store, region, tso};

/// How to reach PD.
#[derive(Clone, Debug)]
pub struct PdOptions {
    /// Seed addresses, `host:port` or `http://host:port`; the members found there are added.
    pub endpoints: Vec<String>,
    /// The cluster that must answer; `None` accepts the first one.
    pub cluster_id: Option<ClusterId>,
    /// How long one attempt of a call may take. Three seconds are PD's own clients' default: an election is
    /// over by then.
    pub request_timeout: Duration,
    /// How long a call is repeated over leader changes and broken connections before it fails. Fifteen
    /// seconds outlast an election with its lease of five seconds several times.
    pub retry_for: Duration,
}

impl PdOptions {
    /// Options with the defaults for `endpoints`.
    pub fn new<S: Into<String>>(endpoints: impl IntoIterator<Item = S>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            cluster_id: None,
            request_timeout: Duration::from_secs(3),
            retry_for: Duration::from_secs(15),
        }
    }
}

/// A client of one PD cluster. Clones share everything.
///
/// Calls are cancel-safe, follow the leader, and are repeated for [`PdOptions::retry_for`] while repeating
/// can help. Errors that come out are final for this call.
#[derive(Clone, Debug)]
pub struct PdClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    members: Arc<Members>,
    tso: mpsc::Sender<tso::Waiter>,
    stores: Mutex<HashMap<StoreId, Store>>,
}

impl PdClient {
    /// Finds the cluster and its leader through the seed endpoints. Needs a tokio runtime, on which the
    /// timestamp stream is served until the last clone is dropped.
    pub async fn connect(options: PdOptions) -> Result<Self, PdError> {
        let members = Arc::new(Members::connect(options).await?);
        let (tso, waiters) = mpsc::channel(tso::QUEUE_MAX);
        tokio::spawn(tso::serve(Arc::clone(&members), waiters));
        Ok(Self { inner: Arc::new(Inner { members, tso, stores: Mutex::default() }) })
    }

    pub(crate) fn members(&self) -> &Members {
        &self.inner.members
    }

    /// The cluster this client is bound to.
    pub fn cluster_id(&self) -> ClusterId {
        self.inner.members.cluster_id()
    }

    /// A fresh timestamp: strictly greater than every one this client returned before the call began.
    pub async fn tso(&self) -> Result<Ts, PdError> {
        let (waiter, answer) = oneshot::channel();
        self.inner.tso.send(waiter).await.map_err(|_| PdError::Closed)?;
        answer.await.map_err(|_| PdError::Closed)?
    }

    /// Regions that overlap `span` (encoded keys), in key order, at most `limit` of them. The first region
    /// contains the start of the span and there is no hole between them: a hole cuts the list short, possibly
    /// to nothing, and the caller asks again from there after a pause (`reference/pd-protocol.md` §14).
    pub async fn scan_regions(&self, span: &Span, limit: usize) -> Result<Vec<Region>, PdError> {
        let request = pdpb::ScanRegionsRequest {
            header: self.members().header(),
            start_key: span.start.clone(),
            limit: i32::try_from(limit).unwrap_or(i32::MAX),
            end_key: span.end.clone(),
        };
        let call = |channel, request| async move { stub(channel).scan_regions(request).await };
        let response = self.members().call("ScanRegions", &request, call).await?;
        accept("ScanRegions", response.header.as_ref())?;
        Ok(region::contiguous(scanned(response), &span.start))
    }

    /// The region that contains the encoded `key`; `None` while PD does not know it.
    pub async fn region_of(&self, key: &[u8]) -> Result<Option<Region>, PdError> {
        let region_key = Bytes::copy_from_slice(key);
        let request =
            pdpb::GetRegionRequest { header: self.members().header(), region_key, need_buckets: false };
        let call = |channel, request| async move { stub(channel).get_region(request).await };
        found("GetRegion", self.members().call("GetRegion", &request, call).await?)
    }

    /// A region by its id; `None` while PD does not know it.
    pub async fn region_by_id(&self, id: RegionId) -> Result<Option<Region>, PdError> {
        let request = pdpb::GetRegionByIdRequest {
            header: self.members().header(),
            region_id: id.get(),
            need_buckets: false,
        };
        let call = |channel, request| async move { stub(channel).get_region_by_id(request).await };
        found("GetRegionByID", self.members().call("GetRegionByID", &request, call).await?)
    }

    /// A store, from a cache. [`PdClient::forget_store`] makes the next call ask PD again.
    pub async fn store(&self, id: StoreId) -> Result<Store, PdError> {
        if let Some(store) = self.inner.stores.lock().get(&id) {
            return Ok(store.clone());
        }
        let store = self.ask_store(id).await?;
        self.inner.stores.lock().insert(id, store.clone());
        Ok(store)
    }

    async fn ask_store(&self, id: StoreId) -> Result<Store, PdError> {
        let request = pdpb::GetStoreRequest { header: self.members().header(), store_id: id.get() };
        let call = |channel, request| async move { stub(channel).get_store(request).await };
        let response = self.members().call("GetStore", &request, call).await?;
        let gone = PdError::StoreGone { store_id: id };
        match accept("GetStore", response.header.as_ref()) {
            // PD has no error type of its own for this; clients go by the words (`reference` §7).
            Err(PdError::Refused { message, .. })
                if message.contains("invalid store ID") || message.contains("not found") =>
            {
                return Err(gone);
            }
            accepted => accepted?,
        }
        response.store.and_then(Store::from_proto).ok_or(gone)
    }

    /// Drops a store from the cache; to be called when its address does not answer.
    pub fn forget_store(&self, id: StoreId) {
        self.inner.stores.lock().remove(&id);
    }

    /// All stores that are not tombstones, TiFlash ones included.
    pub async fn all_stores(&self) -> Result<Vec<Store>, PdError> {
        let request =
            pdpb::GetAllStoresRequest { header: self.members().header(), exclude_tombstone_stores: true };
        let call = |channel, request| async move { stub(channel).get_all_stores(request).await };
        let response = self.members().call("GetAllStores", &request, call).await?;
        accept("GetAllStores", response.header.as_ref())?;
        Ok(response.stores.into_iter().filter_map(Store::from_proto).collect())
    }

    /// A keyspace by its name; [`PdError::KeyspaceNotFound`] if there is none.
    pub async fn keyspace(&self, name: &str) -> Result<Keyspace, PdError> {
        let header = self.members().header();
        let request = keyspacepb::LoadKeyspaceRequest { header, name: name.to_owned(), namespace: None };
        let call =
            |channel, request| async move { KeyspaceClient::new(channel).load_keyspace(request).await };
        let response = self.members().call("LoadKeyspace", &request, call).await?;
        let not_found = || PdError::KeyspaceNotFound { name: name.to_owned() };
        match accept("LoadKeyspace", response.header.as_ref()) {
            Err(PdError::Refused { kind: "ENTRY_NOT_FOUND", .. }) => return Err(not_found()),
            accepted => accepted?,
        }
        Keyspace::from_proto(response.keyspace.ok_or_else(not_found)?)
    }
}

/// Fails if the header carries an error. Its mere presence means failure (`reference/pd-protocol.md` §2).
pub(crate) fn accept(call: &'static str, header: Option<&pdpb::ResponseHeader>) -> Result<(), PdError> {
    let Some(error) = header.and_then(|header| header.error.as_ref()) else { return Ok(()) };
    let message = error.message.clone();
    Err(match error.r#type() {
        pdpb::ErrorType::NotBootstrapped => PdError::NotBootstrapped { message },
        other => PdError::Refused { call, kind: kind_name(other), message },
    })
}

fn kind_name(kind: pdpb::ErrorType) -> &'static str {
    kind.as_str_name().trim_start_matches("ERROR_TYPE_")
}

fn found(call: &'static str, response: pdpb::GetRegionResponse) -> Result<Option<Region>, PdError> {
    match accept(call, response.header.as_ref()) {
        // A follower's way of saying what the leader says by leaving the region out.
        Err(PdError::Refused { kind: "REGION_NOT_FOUND", .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(response.region.map(|region| Region::from_proto(region, response.leader.as_ref()))),
    }
}

/// Newer servers fill `regions`, older ones only the two parallel lists.
fn scanned(response: pdpb::ScanRegionsResponse) -> Vec<Region> {
    if response.regions.is_empty() {
        let leaders: BTreeMap<usize, _> = response.leaders.into_iter().enumerate().collect();
        let metas = response.region_metas.into_iter().enumerate();
        return metas.map(|(at, meta)| Region::from_proto(meta, leaders.get(&at))).collect();
    }
    let described = response.regions.into_iter();
    described.filter_map(|each| Some(Region::from_proto(each.region?, each.leader.as_ref()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_proto::metapb;

    #[test]
    fn an_error_of_type_ok_is_still_an_error() {
        let error = Some(pdpb::Error { r#type: pdpb::ErrorType::Ok.into(), message: "odd".into() });
        let header = pdpb::ResponseHeader { cluster_id: 1, error };
        assert!(matches!(accept("GetStore", Some(&header)), Err(PdError::Refused { kind: "OK", .. })));
        assert!(accept("GetStore", None).is_ok());
    }

    #[test]
    fn the_old_parallel_lists_of_a_region_scan_are_understood() {
        let peer = metapb::Peer { id: 5, store_id: 1, ..Default::default() };
        let response = pdpb::ScanRegionsResponse {
            region_metas: vec![metapb::Region { id: 2, ..Default::default() }; 2],
            leaders: vec![peer],
            ..Default::default()
        };
        let leaders: Vec<bool> = scanned(response).iter().map(|region| region.leader.is_some()).collect();
        assert_eq!(leaders, [true, false]);
    }
}
