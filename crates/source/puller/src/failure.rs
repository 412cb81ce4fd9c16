//! Why a registration ended, and who says so.

use std::time::Duration;

use tidegate_core::{ClusterId, PeerId, StoreId};
use tidegate_pd::{Peer, Region};
use tidegate_proto::{cdcpb, metapb};

/// Why a registration ended (`reference/cdc-protocol.md` §14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another store leads the region; `None` if the store does not know which.
    NotLeader(Option<Peer>),
    /// The region split or merged. The present regions as the store knows them, possibly none; each with the
    /// replica on that store as its likely leader.
    EpochNotMatch(Vec<Region>),
    /// The store does not have the region.
    RegionNotFound,
    /// The store has no room for the region's events.
    Congested,
    /// The store asks for a pause.
    Busy(Duration),
    /// The store believes that the region is registered already.
    Duplicate,
    /// The store refuses this client's version.
    Incompatible(String),
    /// The store belongs to another cluster.
    ClusterMismatch(ClusterId),
    /// An error without a reason this client knows.
    Unknown,
    /// The stream to the store broke, or could not be opened.
    StreamBroken,
    /// PD does not know the store any more.
    StoreGone,
    /// The store runs a version whose change feed is not understood.
    StoreVersion {
        /// What it runs.
        version: String,
        /// What is needed.
        required: String,
    },
    /// A row could not be understood.
    Malformed(String),
    /// A commit came without its prewrite; scanning the region again finds the version.
    Unmatched,
    /// Uncommitted data of this region would exceed the limit; scanned again later, it arrives as committed.
    TooMuchHeld,
    /// A newer region is in the way of this registration, and the store has not ended it for long.
    Superseded,
    /// The subscription was moved to a stream of its own, because its consumer is slow.
    Evicted,
}

impl Failure {
    /// All kinds, as metrics name them.
    pub const KINDS: [&'static str; 17] = [
        "not_leader",
        "epoch_not_match",
        "region_not_found",
        "congested",
        "busy",
        "duplicate",
        "incompatible",
        "cluster_mismatch",
        "unknown",
        "stream_broken",
        "store_gone",
        "store_version",
        "malformed",
        "unmatched",
        "too_much_held",
        "superseded",
        "evicted",
    ];

    /// The place of this failure's kind in [`Failure::KINDS`].
    pub fn kind_index(&self) -> usize {
        match self {
            Self::NotLeader(_) => 0,
            Self::EpochNotMatch(_) => 1,
            Self::RegionNotFound => 2,
            Self::Congested => 3,
            Self::Busy(_) => 4,
            Self::Duplicate => 5,
            Self::Incompatible(_) => 6,
            Self::ClusterMismatch(_) => 7,
            Self::Unknown => 8,
            Self::StreamBroken => 9,
            Self::StoreGone => 10,
            Self::StoreVersion { .. } => 11,
            Self::Malformed(_) => 12,
            Self::Unmatched => 13,
            Self::TooMuchHeld => 14,
            Self::Superseded => 15,
            Self::Evicted => 16,
        }
    }

    /// The kind's name.
    pub fn kind(&self) -> &'static str {
        Self::KINDS.get(self.kind_index()).copied().unwrap_or("unknown")
    }

    /// Whether the store still considers the region registered, so that it has to be told.
    pub fn leaves_registered(&self) -> bool {
        matches!(self, Self::Duplicate | Self::Unmatched | Self::TooMuchHeld | Self::Superseded)
    }

    /// The error that `store_id` sent. Its fields are optional one by one; the first one set counts.
    pub fn from_proto(error: cdcpb::Error, store_id: StoreId) -> Self {
        if let Some(not_leader) = error.not_leader {
            return Self::NotLeader(not_leader.leader.and_then(peer));
        }
        if let Some(mismatch) = error.epoch_not_match {
            let regions = mismatch.current_regions.into_iter();
            return Self::EpochNotMatch(regions.map(|region| guess_leader(region, store_id)).collect());
        }
        if let Some(incompatible) = error.compatibility {
            return Self::Incompatible(incompatible.required_version);
        }
        if let Some(mismatch) = error.cluster_id_mismatch {
            return Self::ClusterMismatch(ClusterId(mismatch.current));
        }
        if let Some(busy) = error.server_is_busy {
            let asked_ms = busy.backoff_ms.max(u64::from(busy.estimated_wait_ms));
            return Self::Busy(Duration::from_millis(asked_ms));
        }
        match () {
            () if error.region_not_found.is_some() => Self::RegionNotFound,
            () if error.congested.is_some() => Self::Congested,
            () if error.duplicate_request.is_some() => Self::Duplicate,
            () => Self::Unknown,
        }
    }
}

/// A hint with a zero id or store names nobody.
fn peer(message: metapb::Peer) -> Option<Peer> {
    let known = message.id != 0 && message.store_id != 0;
    known.then_some(Peer { id: PeerId(message.id), store_id: StoreId(message.store_id) })
}

/// After a split the same store usually leads all parts. A wrong guess costs one `not_leader`.
fn guess_leader(region: metapb::Region, store_id: StoreId) -> Region {
    let leader = region.peers.iter().find(|peer| peer.store_id == store_id.get()).copied();
    Region::from_proto(region, leader.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_proto::errorpb;

    #[test]
    fn a_leader_hint_with_zero_ids_is_no_hint() {
        for (id, store_id, known) in [(5, 2, true), (0, 2, false), (5, 0, false)] {
            let leader = Some(metapb::Peer { id, store_id, ..Default::default() });
            let not_leader = Some(errorpb::NotLeader { region_id: 1, leader });
            let failure = Failure::from_proto(cdcpb::Error { not_leader, ..Default::default() }, StoreId(1));
            let hint = known.then_some(Peer { id: PeerId(5), store_id: StoreId(2) });
            assert_eq!(failure, Failure::NotLeader(hint));
        }
    }

    #[test]
    fn an_error_without_any_field_is_unknown() {
        assert_eq!(Failure::from_proto(cdcpb::Error::default(), StoreId(1)), Failure::Unknown);
    }

    #[test]
    fn every_kind_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = Failure::KINDS.iter().collect();
        assert_eq!(names.len(), Failure::KINDS.len());
        assert_eq!(Failure::Evicted.kind(), "evicted");
        assert_eq!(Failure::NotLeader(None).kind(), "not_leader");
    }
}
