//! Stores as PD describes them.

use tidegate_core::StoreId;

/// Where a store is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreState {
    /// Serving, or getting ready to.
    Up,
    /// On its way out, still serving.
    Offline,
    /// Gone for good.
    Tombstone,
}

/// A TiKV (or TiFlash) store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The store's id.
    pub id: StoreId,
    /// `host:port` of its gRPC service; never empty.
    pub address: String,
    /// The version it runs, a semver text, possibly empty.
    pub version: String,
    /// Where it is in its life.
    pub state: StoreState,
    /// Labels, as (key, value).
    pub labels: Vec<(String, String)>,
}

impl Store {
    /// Whether this is a TiFlash store, which serves neither transactional reads nor change feeds
    /// (`reference/pd-protocol.md` §3).
    pub fn is_tiflash(&self) -> bool {
        self.labels.iter().any(|(key, value)| key == "engine" && value.starts_with("tiflash"))
    }
}
