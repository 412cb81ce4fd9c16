//! Reading the state of raw keys at a timestamp, for metadata snapshots.

pub(crate) mod locks;

use bytes::Bytes;
use tidegate_core::{KeyspaceId, Ts};
use tidegate_pd::PdClient;

use crate::PullerError;

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPair {
    /// The raw key (with the keyspace prefix on an API V2 cluster).
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Reads consistent snapshots from the stores, following region changes and resolving locks left behind by
/// dead transactions.
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    _pd: PdClient,
}

impl SnapshotReader {
    /// A reader; `keyspace` is `None` on a classic cluster.
    pub fn new(pd: PdClient, keyspace: Option<KeyspaceId>) -> Self {
        let _ = keyspace;
        Self { _pd: pd }
    }

    /// All pairs with `start <= key < end` (raw keys; an empty end is plus infinity) as of `ts`, ascending.
    pub async fn scan(&self, start: &[u8], end: &[u8], ts: Ts) -> Result<Vec<KvPair>, PullerError> {
        let _ = (start, end, ts);
        Err(PullerError::Stopped)
    }

    /// One page of [`SnapshotReader::scan`]: at most `limit` pairs, and the raw key to go on from, `None` at
    /// the end of the range.
    pub async fn scan_page(
        &self,
        start: &[u8],
        end: &[u8],
        ts: Ts,
        limit: u32,
    ) -> Result<(Vec<KvPair>, Option<Bytes>), PullerError> {
        let _ = (start, end, ts, limit);
        Err(PullerError::Stopped)
    }

    /// The value of one raw key as of `ts`; `None` if there is none.
    pub async fn get(&self, key: &[u8], ts: Ts) -> Result<Option<Bytes>, PullerError> {
        let _ = (key, ts);
        Err(PullerError::Stopped)
    }
}
