//! Regions and stores (`reference/pd-protocol.md` §3, §6). Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_core::{PeerId, RegionId, Span, StoreId};

/// Replicas of a region, if there are as many stores.
const REPLICAS_MAX: usize = 3;

/// A region's version: clients compare it to notice splits, merges and membership changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) conf_ver: u64,
    pub(crate) version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) store_id: StoreId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) id: RegionId,
    /// Encoded keys.
    pub(crate) span: Span,
    pub(crate) epoch: Epoch,
    pub(crate) peers: Vec<Peer>,
    pub(crate) leader: Peer,
    /// Grows with each change of leader.
    pub(crate) term: u64,
}

impl Region {
    pub(crate) fn peer_on(&self, store: StoreId) -> Option<Peer> {
        self.peers.iter().find(|peer| peer.store_id == store).copied()
    }
}

/// A store as PD knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) id: StoreId,
    /// `host:port`.
    pub(crate) address: String,
    pub(crate) running: bool,
}

/// Why a change of the topology is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No region of this id.
    #[error("there is no region {0}")]
    NoRegion(RegionId),
    /// No store of this id.
    #[error("there is no store {0}")]
    NoStore(StoreId),
    /// The store is stopped, so it cannot lead.
    #[error("store {0} is stopped")]
    StoreStopped(StoreId),
    /// The region has no replica on the store.
    #[error("region {region} has no replica on store {store}")]
    NoPeer {
        /// The region.
        region: RegionId,
        /// The store.
        store: StoreId,
    },
    /// Splitting there would leave an empty region.
    #[error("region {0} already begins at the split key")]
    SplitAtBound(RegionId),
    /// Only neighbours merge.
    #[error("regions {0} and {1} are not neighbours")]
    NotNeighbours(RegionId, RegionId),
}

/// All regions, which together cover all keys without gaps, and all stores.
pub(crate) struct Topology {
    /// By start key.
    regions: BTreeMap<Bytes, Region>,
    starts: HashMap<RegionId, Bytes>,
    stores: BTreeMap<StoreId, Store>,
    next_id: u64,
    /// Which store leads the next new region.
    next_leader: usize,
}

impl Topology {
    /// `addresses` of the stores, whose ids count from 1, and one region over all keys.
    pub(crate) fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        let stores: BTreeMap<_, _> = addresses
            .into_iter()
            .zip(1..)
            .map(|(address, id)| (StoreId(id), Store { id: StoreId(id), address, running: true }))
            .collect();
        let next_id = stores.keys().next_back().map_or(1, |id| id.get() + 1);
        let mut topology =
            Self { regions: BTreeMap::new(), starts: HashMap::new(), stores, next_id, next_leader: 0 };
        let (id, epoch) = (RegionId(topology.allocate_id()), Epoch { conf_ver: 1, version: 1 });
        if let Some(region) = topology.new_region(id, Span::all(), epoch) {
            topology.insert(region);
        }
        topology
    }

    /// A fresh id; regions, peers and PD's clients share one sequence.
    pub(crate) fn allocate_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn new_region(&mut self, id: RegionId, span: Span, epoch: Epoch) -> Option<Region> {
        let ids: Vec<StoreId> = self.stores.keys().copied().collect();
        let first = self.next_leader;
        self.next_leader = self.next_leader.wrapping_add(1);
        let peers: Vec<Peer> = (0..ids.len().min(REPLICAS_MAX))
            .filter_map(|n| ids.get((first + n) % ids.len().max(1)).copied())
            .map(|store_id| Peer { id: PeerId(self.allocate_id()), store_id })
            .collect();
        let leader = peers.iter().find(|peer| self.is_running(peer.store_id)).or(peers.first()).copied()?;
        Some(Region { id, span, epoch, peers, leader, term: 6 })
    }

    fn insert(&mut self, region: Region) {
        self.starts.insert(region.id, region.span.start.clone());
        self.regions.insert(region.span.start.clone(), region);
    }

    pub(crate) fn region(&self, id: RegionId) -> Option<&Region> {
        self.starts.get(&id).and_then(|start| self.regions.get(start))
    }

    fn region_mut(&mut self, id: RegionId) -> Result<&mut Region, TopologyError> {
        let start = self.starts.get(&id).ok_or(TopologyError::NoRegion(id))?;
        self.regions.get_mut(start).ok_or(TopologyError::NoRegion(id))
    }

    /// The region that holds an encoded key.
    pub(crate) fn region_of(&self, encoded: &[u8]) -> Option<&Region> {
        let upto = (Bound::Unbounded, Bound::Included(encoded));
        self.regions.range::<[u8], _>(upto).next_back().map(|(_, region)| region)
    }

    /// The region left of the one that holds an encoded key.
    pub(crate) fn region_before(&self, encoded: &[u8]) -> Option<&Region> {
        let own = self.region_of(encoded)?;
        self.regions.range(..own.span.start.clone()).next_back().map(|(_, region)| region)
    }

    /// The regions that meet a span, ascending.
    pub(crate) fn regions_in<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a Region> {
        let first = self.region_of(&span.start).map_or_else(Bytes::new, |region| region.span.start.clone());
        self.regions
            .range(first..)
            .map(|(_, region)| region)
            .take_while(|region| span.end.is_empty() || region.span.start < span.end)
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub(crate) fn store(&self, id: StoreId) -> Option<&Store> {
        self.stores.get(&id)
    }

    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        self.stores.values()
    }

    fn is_running(&self, store: StoreId) -> bool {
        self.store(store).is_some_and(|store| store.running)
    }

    /// Divides the region that holds `key`. The right part keeps the id, the left one is new; both get the
    /// next version. Returns left and right.
    pub(crate) fn split(&mut self, key: Bytes) -> Result<(RegionId, RegionId), TopologyError> {
        let Some(old) = self.region_of(&key).cloned() else {
            return Err(TopologyError::NoRegion(RegionId(0)));
        };
        if old.span.start == key {
            return Err(TopologyError::SplitAtBound(old.id));
        }
        let epoch = Epoch { version: old.epoch.version + 1, ..old.epoch };
        let left_id = RegionId(self.allocate_id());
        let left_peers =
            old.peers.iter().map(|peer| Peer { id: PeerId(self.allocate_id()), store_id: peer.store_id });
        let left_peers: Vec<Peer> = left_peers.collect();
        let left_leader = left_peers.iter().find(|peer| peer.store_id == old.leader.store_id);
        let left = Region {
            id: left_id,
            span: Span::new(old.span.start.clone(), key.clone()),
            epoch,
            leader: left_leader.copied().unwrap_or(old.leader),
            peers: left_peers,
            term: old.term,
        };
        let right = Region { span: Span::new(key, old.span.end.clone()), epoch, ..old };
        let right_id = right.id;
        self.insert(left);
        self.insert(right);
        Ok((left_id, right_id))
    }

    /// Gives `source`'s range to its neighbour `target`, whose version rises above both.
    pub(crate) fn merge(&mut self, source: RegionId, target: RegionId) -> Result<(), TopologyError> {
        let from = self.region(source).cloned().ok_or(TopologyError::NoRegion(source))?;
        let mut into = self.region(target).cloned().ok_or(TopologyError::NoRegion(target))?;
        let span = if !from.span.end.is_empty() && from.span.end == into.span.start {
            Span::new(from.span.start.clone(), into.span.end.clone())
        } else if !into.span.end.is_empty() && into.span.end == from.span.start {
            Span::new(into.span.start.clone(), from.span.end.clone())
        } else {
            return Err(TopologyError::NotNeighbours(source, target));
        };
        self.regions.remove(&from.span.start);
        self.regions.remove(&into.span.start);
        self.starts.remove(&source);
        into.span = span;
        into.epoch.version = from.epoch.version.max(into.epoch.version) + 1;
        self.insert(into);
        Ok(())
    }

    /// Makes the replica on `store` the leader.
    pub(crate) fn move_leader(&mut self, id: RegionId, store: StoreId) -> Result<(), TopologyError> {
        let running = self.store(store).ok_or(TopologyError::NoStore(store))?.running;
        if !running {
            return Err(TopologyError::StoreStopped(store));
        }
        let region = self.region_mut(id)?;
        let peer = region.peer_on(store).ok_or(TopologyError::NoPeer { region: id, store })?;
        if peer != region.leader {
            region.leader = peer;
            region.term += 1;
        }
        Ok(())
    }

    /// Marks a store as running or stopped. The regions that a stopped store led move to another running
    /// replica; returns those that did.
    pub(crate) fn set_running(
        &mut self,
        store: StoreId,
        running: bool,
    ) -> Result<Vec<RegionId>, TopologyError> {
        self.stores.get_mut(&store).ok_or(TopologyError::NoStore(store))?.running = running;
        let mut moved = Vec::new();
        let up: Vec<StoreId> = self.stores.values().filter(|s| s.running).map(|s| s.id).collect();
        for region in self.regions.values_mut().filter(|region| !up.contains(&region.leader.store_id)) {
            if let Some(peer) = region.peers.iter().find(|peer| up.contains(&peer.store_id)).copied() {
                region.leader = peer;
                region.term += 1;
                moved.push(region.id);
            }
        }
        Ok(moved)
    }
}
