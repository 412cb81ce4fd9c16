//! A committed change of one key, as the puller yields it.

use bytes::Bytes;

use crate::{CommitTs, RegionId, StartTs};

/// What a change did to its key. It is the record's own type that decides, never whether the value is
/// empty: a put of an empty value is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The key now holds `value`.
    Put,
    /// The key is gone.
    Delete,
}

/// One committed version of one key. Keys are raw (TiKV strips the memcomparable layer and the timestamp
/// from them); on an API V2 cluster they keep the 4-byte keyspace prefix.
///
/// Byte fields are reference-counted slices of the message they came in: cloning copies no bytes, but keeps
/// that message alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawChange {
    /// Put or delete.
    pub op: Op,
    /// The raw key.
    pub key: Bytes,
    /// The new value; empty for a delete.
    pub value: Bytes,
    /// The newest value below `commit_ts`; empty when there was none.
    pub old_value: Bytes,
    /// Start timestamp of the transaction.
    pub start_ts: StartTs,
    /// Commit timestamp of the transaction.
    pub commit_ts: CommitTs,
    /// The region that reported it; for diagnostics only.
    pub region_id: RegionId,
}

impl RawChange {
    /// Bytes of key and values together, the measure of all memory limits.
    pub fn size_bytes(&self) -> usize {
        self.key.len() + self.value.len() + self.old_value.len()
    }
}
