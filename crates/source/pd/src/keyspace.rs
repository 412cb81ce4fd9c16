//! Keyspaces (API V2).

use tidegate_core::KeyspaceId;
use tidegate_proto::keyspacepb;

use crate::PdError;

/// The id fills three bytes of the key prefix.
const ID_MAX: u32 = 0x00FF_FFFF;

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

impl Keyspace {
    pub(crate) fn from_proto(meta: keyspacepb::KeyspaceMeta) -> Result<Self, PdError> {
        use keyspacepb::keyspace_meta::Identity;
        let id = match &meta.identity {
            Some(Identity::Id(id)) => *id,
            Some(Identity::KeyspaceIdentity(identity)) => identity.keyspace_id,
            // An id of zero (the keyspace DEFAULT) may be left out on the wire.
            None => 0,
        };
        if id > ID_MAX {
            let detail = format!("keyspace id {id} does not fit 24 bits");
            return Err(PdError::Malformed { call: "LoadKeyspace", detail });
        }
        let enabled = meta.state() == keyspacepb::KeyspaceState::Enabled;
        let mut config: Vec<_> = meta.config.into_iter().collect();
        config.sort();
        Ok(Self { id: KeyspaceId(id), name: meta.name, enabled, config })
    }
}
