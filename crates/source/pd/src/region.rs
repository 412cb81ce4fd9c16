//! Regions as PD describes them.

use bytes::Bytes;
use tidegate_core::{PeerId, RegionId, Span, StoreId};
use tidegate_proto::metapb;

/// One replica of a region (`reference/pd-protocol.md` §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The replica's own id, which requests must name.
    pub id: PeerId,
    /// The store it lives on.
    pub store_id: StoreId,
}

/// How often a region changed: `conf_ver` grows with membership changes, `version` with splits and merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RegionEpoch {
    /// Count of membership changes.
    pub conf_ver: u64,
    /// Count of changes of the range; only this one is compared by reads and change feeds.
    pub version: u64,
}

/// A region: a range of encoded keys and who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The region's id.
    pub id: RegionId,
    /// Its range of encoded keys; an empty end is plus infinity.
    pub span: Span,
    /// Its epoch as PD knew it; may be older or newer than what the stores have.
    pub epoch: RegionEpoch,
    /// The leader; regions without a known leader are reported with `None`.
    pub leader: Option<Peer>,
    /// All replicas.
    pub peers: Vec<Peer>,
}

impl Peer {
    /// `None` for an absent peer or one with id zero, which both mean "unknown".
    pub(crate) fn from_proto(peer: Option<&metapb::Peer>) -> Option<Self> {
        let peer = peer.filter(|peer| peer.id != 0)?;
        Some(Self { id: PeerId(peer.id), store_id: StoreId(peer.store_id) })
    }
}

impl Region {
    /// A region from PD's description, and the leader given beside it.
    pub fn from_proto(region: metapb::Region, leader: Option<&metapb::Peer>) -> Self {
        let epoch = region.region_epoch.unwrap_or_default();
        Self {
            id: RegionId(region.id),
            span: Span { start: region.start_key, end: region.end_key },
            epoch: RegionEpoch { conf_ver: epoch.conf_ver, version: epoch.version },
            leader: Peer::from_proto(leader),
            peers: region.peers.iter().filter_map(|peer| Peer::from_proto(Some(peer))).collect(),
        }
    }
}

/// The longest prefix that contains `start` and has no hole. Regions that end at or before `start` are left
/// out: PD's answer begins with the region that contains it, a lagging member's may not.
pub(crate) fn contiguous(regions: Vec<Region>, start: &Bytes) -> Vec<Region> {
    let mut next = Some(start.clone());
    let mut prefix = Vec::with_capacity(regions.len());
    for region in regions {
        let Some(wanted) = &next else { break };
        if !region.span.end.is_empty() && region.span.end <= *wanted {
            continue;
        }
        if region.span.start > *wanted {
            break;
        }
        next = (!region.span.end.is_empty()).then(|| region.span.end.clone());
        prefix.push(region);
    }
    prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(id: u64, start: &'static str, end: &'static str) -> Region {
        Region {
            id: RegionId(id),
            span: Span::new(start, end),
            epoch: RegionEpoch::default(),
            leader: None,
            peers: Vec::new(),
        }
    }

    fn ids(regions: Vec<Region>, start: &'static str) -> Vec<u64> {
        contiguous(regions, &Bytes::from_static(start.as_bytes()))
            .iter()
            .map(|region| region.id.get())
            .collect()
    }

    #[test]
    fn a_hole_cuts_the_answer_short() {
        let with_hole = vec![region(1, "", "b"), region(2, "b", "d"), region(3, "e", "")];
        assert_eq!(ids(with_hole.clone(), "a"), [1, 2]);
        assert_eq!(ids(with_hole.clone(), "e"), [3], "regions left of the start do not count");
        assert_eq!(ids(with_hole, "d"), [] as [u64; 0], "a hole at the start leaves nothing");
    }

    #[test]
    fn nothing_follows_a_region_without_an_end() {
        assert_eq!(ids(vec![region(1, "", ""), region(2, "b", "")], "a"), [1]);
    }

    #[test]
    fn a_peer_with_id_zero_is_no_leader() {
        let nobody = metapb::Peer { id: 0, store_id: 4, ..Default::default() };
        assert_eq!(Region::from_proto(metapb::Region::default(), Some(&nobody)).leader, None);
    }
}
