//! Regions, peers and stores as the wire has them.

use tidegate_proto::{metapb, pdpb};

use crate::topology::{Epoch, Peer, Region, Store};

/// The version this upstream claims: clients refuse what they think too old (`reference/pd-protocol.md` §3).
pub(crate) const VERSION: &str = "8.5.4";

pub(crate) fn epoch_proto(epoch: Epoch) -> metapb::RegionEpoch {
    metapb::RegionEpoch { conf_ver: epoch.conf_ver, version: epoch.version }
}

pub(crate) fn peer_proto(peer: Peer) -> metapb::Peer {
    metapb::Peer { id: peer.id.get(), store_id: peer.store_id.get(), ..Default::default() }
}

pub(crate) fn region_proto(region: &Region) -> metapb::Region {
    metapb::Region {
        id: region.id.get(),
        start_key: region.span.start.clone(),
        end_key: region.span.end.clone(),
        region_epoch: Some(epoch_proto(region.epoch)),
        peers: region.peers.iter().copied().map(peer_proto).collect(),
        ..Default::default()
    }
}

pub(crate) fn pd_region_proto(region: &Region) -> pdpb::Region {
    pdpb::Region {
        region: Some(region_proto(region)),
        leader: Some(peer_proto(region.leader)),
        ..Default::default()
    }
}

/// PD goes on listing a stopped store as up until long after: clients must find out by themselves.
pub(crate) fn store_proto(store: &Store, start_seconds: i64) -> metapb::Store {
    metapb::Store {
        id: store.id.get(),
        address: store.address.clone(),
        peer_address: store.address.clone(),
        status_address: store.address.clone(),
        version: VERSION.to_owned(),
        state: metapb::StoreState::Up.into(),
        node_state: metapb::NodeState::Serving.into(),
        start_timestamp: start_seconds,
        ..Default::default()
    }
}
