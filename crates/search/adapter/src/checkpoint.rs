//! CheckpointStore: what survives a restart (`spec/cdc-adapter.md` §6.2).
//!
//! One redb file, or memory. A save is one transaction and returns after fsync; only then may the source's
//! checkpoint move. After a failed save the store refuses everything: what is on disk is unknown until it is
//! opened again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};
use tidegate_core::{ClusterId, ResolvedTs};
use tidegate_proto::searchfabric::v1::ModalityWatermark;

use crate::error::AdapterError;
use crate::stream::Stream;

/// Version of the format below; another one is refused.
const FORMAT: u32 = 1;
const FILE: &str = "checkpoint.redb";
const ADAPTER: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("adapter");
const PARTITIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("partitions");
const STATE: &str = "state";

/// The adapter's own state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterState {
    /// Format of the file.
    pub format: u32,
    /// The source cluster.
    pub cluster: ClusterId,
    /// Where the first start began.
    pub first_ts: ResolvedTs,
    /// A start from here loses nothing.
    pub resume_ts: ResolvedTs,
    /// The newest epoch ever used.
    pub epoch: u64,
}

impl AdapterState {
    /// A state in today's format.
    pub const fn new(cluster: ClusterId, first_ts: ResolvedTs, resume_ts: ResolvedTs, epoch: u64) -> Self {
        Self { format: FORMAT, cluster, first_ts, resume_ts, epoch }
    }
}

/// The durable record of one source partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    /// The collection it feeds.
    pub collection_id: String,
    /// Epoch of the acknowledged cursor.
    pub source_epoch: u64,
    /// Number of the last acknowledged entry.
    pub source_seq: u64,
    /// Largest timestamp in the acknowledged prefix.
    pub commit_ts: u64,
    /// The gateway's token for this position.
    pub resume_token: String,
    /// When the token ends, in Unix milliseconds.
    pub resume_token_expires_unix_ms: u64,
    /// Replay of progress below it is suppressed.
    pub last_acked_watermark: ResolvedTs,
    /// What the gateway said it has applied: modality number and timestamp.
    pub applied_watermarks: Vec<(i32, u64)>,
    /// Generation of the acknowledged prefix.
    pub schema_generation_token: String,
    /// Row-level version of that generation.
    pub schema_version: u32,
}

impl PartitionRecord {
    /// The record of a stream; `None` before its first acknowledgement.
    pub fn of(stream: &Stream, token: &str, schema_version: u32) -> Option<(String, Self)> {
        let (cursor, success) = stream.cursor().zip(stream.last_success())?;
        let watermark = |w: &ModalityWatermark| (w.modality, w.applied_ts);
        let record = Self {
            collection_id: stream.name().collection.collection_id.clone(),
            source_epoch: cursor.source_epoch,
            source_seq: cursor.source_seq,
            commit_ts: cursor.commit_ts,
            resume_token: success.resume_token.clone(),
            resume_token_expires_unix_ms: success.resume_token_expires_unix_ms,
            last_acked_watermark: stream.acked(),
            applied_watermarks: success.applied_watermarks.iter().map(watermark).collect(),
            schema_generation_token: token.to_owned(),
            schema_version,
        };
        let name = stream.name();
        Some((format!("{}/{}", name.collection.collection_id, name.partition), record))
    }
}

/// Everything in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// `None` before the first start.
    pub state: Option<AdapterState>,
    /// By collection and source partition, `collection/partition`.
    pub partitions: BTreeMap<String, PartitionRecord>,
}

/// The store.
#[derive(Debug)]
pub struct CheckpointStore {
    file: Option<(Database, PathBuf)>,
    poisoned: AtomicBool,
}

impl CheckpointStore {
    /// Opens or creates the store in `dir`; `None` keeps nothing.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, or is in use.
    pub fn open(dir: Option<&Path>) -> Result<Self, AdapterError> {
        let file = dir.map(open_file).transpose()?;
        Ok(Self { file, poisoned: AtomicBool::new(false) })
    }

    /// Reads everything.
    ///
    /// # Errors
    /// The file cannot be read or has another format.
    pub fn load(&self) -> Result<Checkpoint, AdapterError> {
        let Some((database, path)) = &self.file else { return Ok(Checkpoint::default()) };
        load(database).map_err(|detail| failed(path, detail))
    }

    /// Replaces everything, durably. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be written; from then on every save fails.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<(), AdapterError> {
        let Some((database, path)) = &self.file else { return Ok(()) };
        if self.poisoned.load(Ordering::Acquire) {
            return Err(failed(path, "an earlier write failed".to_owned()));
        }
        save(database, checkpoint).map_err(|detail| {
            self.poisoned.store(true, Ordering::Release);
            failed(path, detail)
        })
    }
}

fn failed(path: &Path, detail: String) -> AdapterError {
    AdapterError::Store { path: Some(path.to_owned()), detail }
}

fn open_file(dir: &Path) -> Result<(Database, PathBuf), AdapterError> {
    let path = dir.join(FILE);
    std::fs::create_dir_all(dir).map_err(|e| failed(dir, e.to_string()))?;
    let database = Database::create(&path).map_err(|e| failed(&path, e.to_string()))?;
    create_tables(&database).map_err(|detail| failed(&path, detail))?;
    Ok((database, path))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn create_tables(database: &Database) -> Result<(), String> {
    let transaction = database.begin_write().map_err(text)?;
    transaction.open_table(ADAPTER).map_err(text)?;
    transaction.open_table(PARTITIONS).map_err(text)?;
    transaction.commit().map_err(text)
}

fn load(database: &Database) -> Result<Checkpoint, String> {
    let transaction = database.begin_read().map_err(text)?;
    let adapter = transaction.open_table(ADAPTER).map_err(text)?;
    let state: Option<AdapterState> = match adapter.get(STATE).map_err(text)? {
        Some(bytes) => Some(serde_json::from_slice(bytes.value()).map_err(text)?),
        None => None,
    };
    if let Some(state) = state.as_ref().filter(|state| state.format != FORMAT) {
        return Err(format!("has format {}, this program reads format {FORMAT}", state.format));
    }
    let mut partitions = BTreeMap::new();
    for entry in transaction.open_table(PARTITIONS).map_err(text)?.iter().map_err(text)? {
        let (name, record) = entry.map_err(text)?;
        partitions.insert(name.value().to_owned(), serde_json::from_slice(record.value()).map_err(text)?);
    }
    Ok(Checkpoint { state, partitions })
}

fn save(database: &Database, checkpoint: &Checkpoint) -> Result<(), String> {
    let transaction = database.begin_write().map_err(text)?;
    {
        let mut adapter = transaction.open_table(ADAPTER).map_err(text)?;
        if let Some(state) = &checkpoint.state {
            let bytes = serde_json::to_vec(state).map_err(text)?;
            adapter.insert(STATE, bytes.as_slice()).map_err(text)?;
        }
        let mut partitions = transaction.open_table(PARTITIONS).map_err(text)?;
        // A partition that is not listed any more was retired.
        partitions.retain(|name, _| checkpoint.partitions.contains_key(name)).map_err(text)?;
        for (name, record) in &checkpoint.partitions {
            let bytes = serde_json::to_vec(record).map_err(text)?;
            partitions.insert(name.as_str(), bytes.as_slice()).map_err(text)?;
        }
    }
    transaction.commit().map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        let record = PartitionRecord {
            collection_id: "table-7".to_owned(),
            source_epoch: 3,
            source_seq: 40,
            commit_ts: 900,
            resume_token: "t".to_owned(),
            resume_token_expires_unix_ms: 5,
            last_acked_watermark: ResolvedTs::new(880),
            applied_watermarks: vec![(1, 880), (2, 880)],
            schema_generation_token: "g2".to_owned(),
            schema_version: 2,
        };
        Checkpoint {
            state: Some(AdapterState::new(ClusterId(9), ResolvedTs::new(5), ResolvedTs::new(870), 3)),
            partitions: BTreeMap::from([("table:7".to_owned(), record)]),
        }
    }

    #[test]
    fn what_was_saved_is_there_after_reopening() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = CheckpointStore::open(Some(dir.path())).expect("a new store");
        assert_eq!(store.load().expect("empty"), Checkpoint::default());
        store.save(&checkpoint()).expect("saved");
        drop(store);
        let store = CheckpointStore::open(Some(dir.path())).expect("the same store");
        assert_eq!(store.load().expect("full"), checkpoint());
        let without = Checkpoint { partitions: BTreeMap::new(), ..checkpoint() };
        store.save(&without).expect("saved");
        assert_eq!(store.load().expect("the partition is retired"), without);
    }

    #[test]
    fn another_format_is_refused_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = CheckpointStore::open(Some(dir.path())).expect("a new store");
        let mut future = checkpoint();
        future.state.as_mut().expect("set").format = 99;
        store.save(&future).expect("saved");
        let error = store.load().expect_err("format 99").to_string();
        assert!(error.contains("format 99"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_store_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(FILE), b"not a database at all, but long enough to be looked at")
            .expect("written");
        let error = CheckpointStore::open(Some(dir.path())).expect_err("damaged").to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
