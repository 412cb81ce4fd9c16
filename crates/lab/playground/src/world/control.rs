//! Changes of the topology, with what change feeds see of them (`reference/cdc-protocol.md` §6).

use bytes::Bytes;
use tidegate_core::{RegionId, StoreId, Ts};

use super::{Now, World};
use crate::feed::{epoch_not_match, not_leader};
use crate::region_proto::{peer_proto, region_proto};
use crate::safepoint::{Advanced, GcError};
use crate::topology::TopologyError;

impl World {
    /// Splits at an encoded key; returns the left and the right region.
    pub(crate) fn split(&mut self, encoded: Bytes) -> Result<(RegionId, RegionId), TopologyError> {
        let (left, right) = self.topology.split(encoded)?;
        let regions = [left, right].into_iter().filter_map(|id| self.topology.region(id)).map(region_proto);
        let error = epoch_not_match(regions.collect());
        // The right part keeps the id that everybody observes.
        self.feeds.end_region(right, &error);
        self.flush();
        Ok((left, right))
    }

    /// Gives `source`'s range to its neighbour `target`.
    pub(crate) fn merge(&mut self, source: RegionId, target: RegionId) -> Result<(), TopologyError> {
        self.topology.merge(source, target)?;
        for region in [source, target] {
            self.feeds.end_region(region, &epoch_not_match(Vec::new()));
        }
        self.flush();
        Ok(())
    }

    /// Makes the replica on `store` lead.
    pub(crate) fn move_leader(&mut self, region: RegionId, store: StoreId) -> Result<(), TopologyError> {
        let before = self.topology.region(region).map(|region| region.leader);
        self.topology.move_leader(region, store)?;
        if self.topology.region(region).map(|region| region.leader) != before {
            self.tell_new_leader(region);
        }
        Ok(())
    }

    fn tell_new_leader(&mut self, region: RegionId) {
        let leader = self.topology.region(region).map(|region| peer_proto(region.leader));
        self.feeds.end_region(region, &not_leader(region, leader));
        self.flush();
    }

    /// Spreads the leaders evenly over the stores; for a cluster that nobody observes yet.
    pub(crate) fn balance_leaders(&mut self) {
        let stores: Vec<StoreId> = self.topology.stores().map(|store| store.id).collect();
        let regions: Vec<RegionId> = self.topology.regions().map(|region| region.id).collect();
        for (region, store) in regions.into_iter().zip(stores.iter().cycle()) {
            // A region without a replica there stays where it is.
            drop(self.topology.move_leader(region, *store));
        }
    }

    /// A store goes down: its streams break and its regions are led elsewhere.
    pub(crate) fn store_stopped(&mut self, store: StoreId) -> Result<(), TopologyError> {
        self.topology.set_running(store, false)?;
        self.drop_streams(store, "the store stops");
        Ok(())
    }

    /// A store is back. It leads what nobody else could.
    pub(crate) fn store_started(&mut self, store: StoreId) -> Result<(), TopologyError> {
        for region in self.topology.set_running(store, true)? {
            self.tell_new_leader(region);
        }
        Ok(())
    }

    /// Advances the safe points as far as barriers allow and drops what nobody may read any more.
    pub(crate) fn collect_garbage(&mut self, target: Ts, now: Now) -> Result<Advanced, GcError> {
        let advanced = self.gc.unified.advance_txn(target, &self.gc.global, now.mono)?;
        self.gc.unified.advance_gc(advanced.new)?;
        self.engine.collect_garbage(advanced.new);
        Ok(advanced)
    }
}
