//! Whether a request may touch a region here, checked in TiKV's order (`reference/tikv-kv-protocol.md` §3).

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{RegionId, Span, StoreId};
use tidegate_proto::errorpb::Error;
use tidegate_proto::{errorpb, kvrpcpb};

use super::World;
use crate::region_proto::{peer_proto, region_proto};
use crate::topology::Region;

impl World {
    /// The region's span if the store may serve the request and all of its raw keys lie inside. Ranges are
    /// not checked but cut to the span.
    pub(crate) fn access<'a>(
        &self,
        context: Option<&kvrpcpb::Context>,
        store: StoreId,
        keys: impl IntoIterator<Item = &'a Bytes>,
    ) -> Result<Span, Box<Error>> {
        let missing = kvrpcpb::Context::default();
        let region = self.serving_region(context.unwrap_or(&missing), store)?;
        for key in keys {
            let encoded = to_region_key(key);
            if !region.span.contains(&encoded) {
                return Err(Box::new(key_not_in_region(region, encoded)));
            }
        }
        Ok(region.span.clone())
    }

    fn serving_region(&self, context: &kvrpcpb::Context, store: StoreId) -> Result<&Region, Box<Error>> {
        let region_id = RegionId(context.region_id);
        let peer = context.peer.unwrap_or_default();
        if peer.store_id != store.get() {
            return Err(Box::new(store_not_match(peer.store_id, store)));
        }
        let Some(region) = self.topology.region(region_id) else {
            return Err(Box::new(region_not_found(region_id)));
        };
        let Some(local) = region.peer_on(store) else { return Err(Box::new(region_not_found(region_id))) };
        if peer.id != local.id.get() {
            return Err(Box::new(mismatch_peer_id(peer.id, local.id.get())));
        }
        if region.leader != local {
            return Err(Box::new(not_leader(region)));
        }
        if context.term != 0 && region.term > context.term + 1 {
            return Err(Box::new(stale_command()));
        }
        let Some(epoch) = &context.region_epoch else {
            let message = "missing epoch".to_owned();
            return Err(Box::new(Error { message, ..Error::default() }));
        };
        // Only the version decides about reads and writes; the membership does not.
        if epoch.version != region.epoch.version {
            return Err(Box::new(self.epoch_not_match(region)));
        }
        Ok(region)
    }

    fn epoch_not_match(&self, region: &Region) -> Error {
        let message = format!("region {} is at version {}", region.id, region.epoch.version);
        let mut current_regions = vec![region_proto(region)];
        // After a split the left neighbour is the piece that the request's range may still mean.
        current_regions.extend(self.topology.region_before(&region.span.start).map(region_proto));
        Error {
            message,
            epoch_not_match: Some(errorpb::EpochNotMatch { current_regions }),
            ..Error::default()
        }
    }
}

fn store_not_match(request_store_id: u64, store: StoreId) -> Error {
    Error {
        message: format!("this is store {store}, not {request_store_id}"),
        store_not_match: Some(errorpb::StoreNotMatch { request_store_id, actual_store_id: store.get() }),
        ..Error::default()
    }
}

fn region_not_found(region_id: RegionId) -> Error {
    Error {
        message: format!("region {region_id} not found"),
        region_not_found: Some(errorpb::RegionNotFound { region_id: region_id.get() }),
        ..Error::default()
    }
}

fn mismatch_peer_id(request_peer_id: u64, store_peer_id: u64) -> Error {
    Error {
        message: format!("the peer here is {store_peer_id}, not {request_peer_id}"),
        mismatch_peer_id: Some(errorpb::MismatchPeerId { request_peer_id, store_peer_id }),
        ..Error::default()
    }
}

fn not_leader(region: &Region) -> Error {
    let leader = Some(peer_proto(region.leader));
    Error {
        message: format!("peer is not leader for region {}", region.id),
        not_leader: Some(errorpb::NotLeader { region_id: region.id.get(), leader }),
        ..Error::default()
    }
}

fn stale_command() -> Error {
    Error {
        message: "stale command".to_owned(),
        stale_command: Some(errorpb::StaleCommand {}),
        ..Error::default()
    }
}

fn key_not_in_region(region: &Region, key: Vec<u8>) -> Error {
    Error {
        message: format!("key is not in region {}", region.id),
        key_not_in_region: Some(errorpb::KeyNotInRegion {
            key: key.into(),
            region_id: region.id.get(),
            start_key: region.span.start.clone(),
            end_key: region.span.end.clone(),
        }),
        ..Error::default()
    }
}
