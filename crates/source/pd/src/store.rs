//! Stores as PD describes them.

use tidegate_core::StoreId;
use tidegate_proto::metapb;

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

impl Store {
    /// A store from PD's description; `None` if it is gone or has no address to dial.
    pub(crate) fn from_proto(store: metapb::Store) -> Option<Self> {
        let state = state_of(&store);
        let address = store.address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        if state == StoreState::Tombstone || address.is_empty() {
            return None;
        }
        let labels = store.labels.into_iter().map(|label| (label.key, label.value)).collect();
        Some(Self { id: StoreId(store.id), address, version: store.version, state, labels })
    }
}

fn state_of(store: &metapb::Store) -> StoreState {
    let removed = store.node_state() == metapb::NodeState::Removed;
    match store.state() {
        metapb::StoreState::Tombstone => StoreState::Tombstone,
        _ if removed => StoreState::Tombstone,
        metapb::StoreState::Offline => StoreState::Offline,
        metapb::StoreState::Up => StoreState::Up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(state: metapb::StoreState, node_state: metapb::NodeState, address: &str) -> metapb::Store {
        metapb::Store {
            id: 4,
            address: address.into(),
            state: state.into(),
            node_state: node_state.into(),
            ..Default::default()
        }
    }

    #[test]
    fn removed_stores_and_stores_without_an_address_are_gone() {
        use metapb::{NodeState, StoreState as State};
        assert!(Store::from_proto(store(State::Up, NodeState::Serving, "h:1")).is_some());
        assert!(Store::from_proto(store(State::Offline, NodeState::Removing, "h:1")).is_some());
        assert!(Store::from_proto(store(State::Tombstone, NodeState::Serving, "h:1")).is_none());
        assert!(Store::from_proto(store(State::Up, NodeState::Removed, "h:1")).is_none());
        assert!(Store::from_proto(store(State::Up, NodeState::Serving, "")).is_none());
    }

    #[test]
    fn tiflash_is_known_by_its_engine_label() {
        let mut tiflash = store(metapb::StoreState::Up, metapb::NodeState::Serving, "h:1");
        tiflash.labels = vec![metapb::StoreLabel { key: "engine".into(), value: "tiflash_compute".into() }];
        assert!(Store::from_proto(tiflash).unwrap().is_tiflash());
    }
}
