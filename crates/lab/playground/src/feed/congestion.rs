//! The errors that end a registration (`reference/cdc-protocol.md` §2, §6).

use tidegate_core::{ClusterId, RegionId};
use tidegate_proto::cdcpb::{ClusterIdMismatch, Compatibility, Congested, DuplicateRequest, Error};
use tidegate_proto::{errorpb, metapb};

/// An error that a test wants every subscriber of a region to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedFault {
    /// Leadership was lost, and nobody knows to whom.
    NotLeader,
    /// The region changed; without a list of what it became.
    EpochNotMatch,
    /// The region is not on the store.
    RegionNotFound,
    /// The registration exists already.
    DuplicateRequest,
    /// The client is too old.
    Compatibility,
    /// The client means another cluster.
    ClusterIdMismatch,
    /// Too many scans wait.
    ServerIsBusy,
    /// Queues are full.
    Congested,
    /// An error with no field set, as a newer server might send.
    Unknown,
}

impl FeedFault {
    /// Every variant.
    pub const ALL: [Self; 9] = [
        Self::NotLeader,
        Self::EpochNotMatch,
        Self::RegionNotFound,
        Self::DuplicateRequest,
        Self::Compatibility,
        Self::ClusterIdMismatch,
        Self::ServerIsBusy,
        Self::Congested,
        Self::Unknown,
    ];

    pub(crate) fn error(self, region_id: RegionId, cluster_id: ClusterId) -> Error {
        match self {
            Self::NotLeader => not_leader(region_id, None),
            Self::EpochNotMatch => epoch_not_match(Vec::new()),
            Self::RegionNotFound => region_not_found(region_id),
            Self::DuplicateRequest => duplicate_request(region_id),
            Self::Compatibility => compatibility(),
            Self::ClusterIdMismatch => cluster_id_mismatch(cluster_id, 0),
            Self::ServerIsBusy => server_is_busy("injected"),
            Self::Congested => congested(region_id),
            Self::Unknown => Error::default(),
        }
    }
}

pub(crate) fn not_leader(region_id: RegionId, leader: Option<metapb::Peer>) -> Error {
    let not_leader = errorpb::NotLeader { region_id: region_id.get(), leader };
    Error { not_leader: Some(not_leader), ..Error::default() }
}

pub(crate) fn epoch_not_match(current_regions: Vec<metapb::Region>) -> Error {
    Error { epoch_not_match: Some(errorpb::EpochNotMatch { current_regions }), ..Error::default() }
}

pub(crate) fn region_not_found(region_id: RegionId) -> Error {
    let region_not_found = errorpb::RegionNotFound { region_id: region_id.get() };
    Error { region_not_found: Some(region_not_found), ..Error::default() }
}

pub(crate) fn duplicate_request(region_id: RegionId) -> Error {
    let duplicate_request = DuplicateRequest { region_id: region_id.get() };
    Error { duplicate_request: Some(duplicate_request), ..Error::default() }
}

pub(crate) fn compatibility() -> Error {
    // The version from which TiKV serves the other kinds of keys.
    let compatibility = Compatibility { required_version: "6.2.0".to_owned() };
    Error { compatibility: Some(compatibility), ..Error::default() }
}

pub(crate) fn cluster_id_mismatch(current: ClusterId, request: u64) -> Error {
    let mismatch = ClusterIdMismatch { current: current.get(), request };
    Error { cluster_id_mismatch: Some(mismatch), ..Error::default() }
}

pub(crate) fn server_is_busy(reason: &str) -> Error {
    let busy = errorpb::ServerIsBusy { reason: reason.to_owned(), ..Default::default() };
    Error { server_is_busy: Some(busy), ..Error::default() }
}

pub(crate) fn congested(region_id: RegionId) -> Error {
    Error { congested: Some(Congested { region_id: region_id.get() }), ..Error::default() }
}
