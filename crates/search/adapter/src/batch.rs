//! BatchBuilder: mutations of one source partition into numbered, fingerprinted batches.
//!
//! A batch closes when it is full, when a progress mark tells that everything before it is there, or when a
//! barrier ends the partition's part of a schema generation. Equal entries give an equal `batch_id` and
//! fingerprint in every epoch.

use prost::Message as _;
use tidegate_contract::fingerprint::batch_fingerprint;
use tidegate_core::{ResolvedTs, Ts};
use tidegate_mini::bridge::{SourceEpoch, SourcePartition};
use tidegate_proto::searchfabric::v1::{
    BarrierMark, BatchPolicy, ClientKind, CollectionRef, MutationBatch, MutationEntry, ProgressMark,
    RequestMeta, RowMutation, StreamIdentity, mutation_entry::Entry,
};

use crate::lineage::Generation;
use crate::options::BatchLimits;

/// Hexadecimal digits of the fingerprint that go into identities: 64 bits tell batches of one position apart.
const IDENTITY_DIGITS: usize = 16;

/// A batch that is complete and never changes again.
#[derive(Clone, Debug, PartialEq)]
pub struct SealedBatch {
    /// As it goes over the wire.
    pub message: MutationBatch,
    /// Number of its first entry.
    pub first_seq: u64,
    /// Number of the entry after its last.
    pub next_seq: u64,
    /// Row mutations in it.
    pub rows: u64,
    /// Encoded size.
    pub bytes: usize,
    /// What its progress mark promises.
    pub progress: Option<ResolvedTs>,
    /// The fence that its barrier belongs to.
    pub barrier: Option<String>,
}

/// Who sends, for whom: the same in all batches of a partition's stream.
#[derive(Clone, Debug)]
pub struct StreamName {
    /// The sender.
    pub client_id: String,
    /// The collection.
    pub collection: CollectionRef,
    /// The partition.
    pub partition: SourcePartition,
    /// The epoch.
    pub epoch: SourceEpoch,
}

/// Builds the batches of one partition.
#[derive(Debug)]
pub struct BatchBuilder {
    name: StreamName,
    limits: BatchLimits,
    token: String,
    resume_token: String,
    next_seq: u64,
    open: Open,
}

#[derive(Debug, Default)]
struct Open {
    entries: Vec<MutationEntry>,
    bytes: usize,
    rows: u64,
    first_ts: Ts,
    last_ts: Ts,
}

impl BatchBuilder {
    /// A builder whose first entry has the number 1, under `generation`.
    pub fn new(name: StreamName, limits: BatchLimits, generation: &Generation) -> Self {
        let token = generation.token.to_string();
        Self { name, limits, token, resume_token: String::new(), next_seq: 1, open: Open::default() }
    }

    /// Adds a row; returns the batch that had to be closed to make room for it.
    pub fn row(&mut self, row: RowMutation) -> Option<SealedBatch> {
        let bytes = row.encoded_len();
        let full = self.open.entries.len() >= self.limits.entries_max
            || self.open.bytes.saturating_add(bytes) > self.limits.bytes_max;
        let sealed = full.then(|| self.seal(None, None)).flatten();
        let ts = Ts::new(row.commit_ts);
        self.open.rows += 1;
        self.push(Entry::RowMutation(row), ts, bytes);
        sealed
    }

    /// Adds a progress mark and closes the batch.
    pub fn progress(&mut self, resolved: ResolvedTs) -> Option<SealedBatch> {
        let mark = ProgressMark { resolved_ts: resolved.get(), watermarks: Vec::new() };
        self.push(Entry::ProgressMark(mark), resolved.ts(), 0);
        self.seal(Some(resolved), None)
    }

    /// Adds the barrier of the fence `fence_id` at `ddl_ts` and closes the batch.
    pub fn barrier(&mut self, ddl_ts: Ts, fence_id: &str) -> Option<SealedBatch> {
        let mark = BarrierMark { barrier_ts: ddl_ts.get(), fence_id: fence_id.to_owned() };
        self.push(Entry::BarrierMark(mark), ddl_ts, 0);
        self.seal(None, Some(fence_id.to_owned()))
    }

    /// Goes on under another generation. Nothing may be open: a barrier comes before.
    pub fn switch(&mut self, generation: &Generation) {
        debug_assert!(self.open.entries.is_empty(), "a barrier closes the last batch of a generation");
        self.token = generation.token.to_string();
    }

    /// Takes note of the newest resume token.
    pub fn resume_token(&mut self, token: &str) {
        token.clone_into(&mut self.resume_token);
    }

    /// Bytes of the batch that is still open.
    pub const fn open_bytes(&self) -> usize {
        self.open.bytes
    }

    fn push(&mut self, entry: Entry, ts: Ts, bytes: usize) {
        if self.open.entries.is_empty() {
            self.open.first_ts = ts;
        }
        self.open.last_ts = self.open.last_ts.max(ts);
        self.open.bytes += bytes;
        self.open.entries.push(MutationEntry { entry: Some(entry) });
    }

    fn seal(&mut self, progress: Option<ResolvedTs>, barrier: Option<String>) -> Option<SealedBatch> {
        let open = std::mem::take(&mut self.open);
        let entries = u64::try_from(open.entries.len()).ok().filter(|n| *n > 0)?;
        let first_seq = self.next_seq;
        self.next_seq += entries;
        let mut message = MutationBatch {
            collection: Some(self.name.collection.clone()),
            stream_identity: Some(StreamIdentity {
                source_partition: self.name.partition.to_string(),
                source_epoch: self.name.epoch.get(),
                source_seq: first_seq,
            }),
            schema_generation_token: self.token.clone(),
            policy: Some(BatchPolicy { continue_on_error: false }),
            resume_token: self.resume_token.clone(),
            entries: open.entries,
            ..MutationBatch::default()
        };
        let fingerprint = batch_fingerprint(&message).to_string();
        let short = fingerprint.get(..IDENTITY_DIGITS).unwrap_or(&fingerprint);
        let partition = &self.name.partition;
        message.batch_id = format!("{partition}@{}-{}/{short}", open.first_ts, open.last_ts);
        message.meta = Some(RequestMeta {
            client_id: self.name.client_id.clone(),
            client_kind: ClientKind::TidbCdcAdapter.into(),
            idempotency_key: format!("{partition}/{}/{first_seq}/{short}", self.name.epoch),
        });
        message.batch_fingerprint = fingerprint;
        let bytes = message.encoded_len();
        Some(SealedBatch {
            message,
            first_seq,
            next_seq: self.next_seq,
            rows: open.rows,
            bytes,
            progress,
            barrier,
        })
    }
}
