//! The client handle.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{ClusterId, RegionId, Span, StoreId, Ts};

use crate::{GcScope, Keyspace, PdError, Region, Store};

/// How to reach PD.
#[derive(Clone, Debug)]
pub struct PdOptions {
    /// Seed addresses, `host:port` or `http://host:port`; the members found there are added.
    pub endpoints: Vec<String>,
    /// The cluster that must answer; `None` accepts the first one.
    pub cluster_id: Option<ClusterId>,
    /// How long one attempt of a call may take.
    pub request_timeout: Duration,
    /// How long a call is repeated over leader changes and broken connections before it fails.
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
#[derive(Clone, Debug)]
pub struct PdClient {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cluster_id: ClusterId,
}

impl PdClient {
    /// Finds the cluster and its leader through the seed endpoints.
    pub async fn connect(options: PdOptions) -> Result<Self, PdError> {
        let _ = options;
        Err(PdError::Closed)
    }

    /// The cluster this client is bound to.
    pub fn cluster_id(&self) -> ClusterId {
        self.inner.cluster_id
    }

    /// A fresh timestamp: strictly greater than every one this client returned before the call began.
    pub async fn tso(&self) -> Result<Ts, PdError> {
        Err(PdError::Closed)
    }

    /// Regions that overlap `span` (encoded keys), in key order, at most `limit` of them. The first region
    /// contains the start of the span and there is no hole between them: a hole cuts the list short, possibly
    /// to nothing, and the caller asks again from there after a pause (`reference/pd-protocol.md` §14).
    pub async fn scan_regions(&self, span: &Span, limit: usize) -> Result<Vec<Region>, PdError> {
        let _ = (span, limit);
        Err(PdError::Closed)
    }

    /// The region that contains the encoded `key`; `None` while PD does not know it.
    pub async fn region_of(&self, key: &[u8]) -> Result<Option<Region>, PdError> {
        let _ = key;
        Err(PdError::Closed)
    }

    /// A region by its id; `None` while PD does not know it.
    pub async fn region_by_id(&self, id: RegionId) -> Result<Option<Region>, PdError> {
        let _ = id;
        Err(PdError::Closed)
    }

    /// A store, from a cache. [`PdClient::forget_store`] makes the next call ask PD again.
    pub async fn store(&self, id: StoreId) -> Result<Store, PdError> {
        let _ = id;
        Err(PdError::Closed)
    }

    /// Drops a store from the cache; to be called when its address does not answer.
    pub fn forget_store(&self, id: StoreId) {
        let _ = id;
    }

    /// All stores that are not tombstones, TiFlash ones included.
    pub async fn all_stores(&self) -> Result<Vec<Store>, PdError> {
        Err(PdError::Closed)
    }

    /// A keyspace by its name; [`PdError::KeyspaceNotFound`] if there is none.
    pub async fn keyspace(&self, name: &str) -> Result<Keyspace, PdError> {
        let _ = name;
        Err(PdError::Closed)
    }

    /// The transaction safe point of `scope`: snapshots below it must not be read.
    pub async fn safe_point(&self, scope: GcScope) -> Result<Ts, PdError> {
        let _ = scope;
        Err(PdError::Closed)
    }
}
