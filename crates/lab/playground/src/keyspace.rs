//! Keyspaces of API V2 clusters (`reference/pd-protocol.md` §9).

use tidegate_core::KeyspaceId;

/// The keyspace that every API V2 cluster has.
pub(crate) const DEFAULT_NAME: &str = "DEFAULT";
/// Stands for "no keyspace" on the wire.
pub(crate) const NULL_ID: u32 = u32::MAX;
/// Ids fit 24 bits.
pub(crate) const ID_MAX: u32 = 0x00ff_ffff;

/// A keyspace that the cluster knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its id.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// Whether it has GC safe points of its own.
    pub own_gc: bool,
}

impl Keyspace {
    /// A keyspace that shares the cluster's GC safe points.
    pub fn new(id: KeyspaceId, name: impl Into<String>) -> Self {
        Self { id, name: name.into(), own_gc: false }
    }

    /// The one that every API V2 cluster has.
    pub(crate) fn default_one() -> Self {
        Self::new(KeyspaceId(0), DEFAULT_NAME)
    }
}
