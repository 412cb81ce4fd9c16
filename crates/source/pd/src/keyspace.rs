//! Keyspaces (API V2).

use tidegate_core::KeyspaceId;

/// A keyspace: a tenant with its own key prefix (`reference/pd-protocol.md` §9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    /// Its id; 24 bits.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// Whether it is enabled; reading from a disabled one fails at the stores.
    pub enabled: bool,
    /// Its configuration, as (key, value) sorted by key.
    pub config: Vec<(String, String)>,
}

impl Keyspace {
    /// Whether garbage is collected in this keyspace on its own clock, so that barriers must be set in the
    /// keyspace and not in the unified state (`reference/pd-protocol.md` §8.2).
    pub fn has_own_gc(&self) -> bool {
        self.config.iter().any(|(key, value)| key == "gc_management_type" && value == "keyspace_level")
    }
}
