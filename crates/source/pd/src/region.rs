//! Regions as PD describes them.

use tidegate_core::{PeerId, RegionId, Span, StoreId};

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
