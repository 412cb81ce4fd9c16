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
    /// A builder whose first entry has the number `next_seq` (1 in a new epoch), under `generation`.
    pub fn new(name: StreamName, next_seq: u64, limits: BatchLimits, generation: &Generation) -> Self {
        let token = generation.token.to_string();
        Self { name, limits, token, resume_token: String::new(), next_seq, open: Open::default() }
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

    /// Number of the next entry.
    pub const fn next_seq(&self) -> u64 {
        self.next_seq
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_contract::validate::check_batch;
    use tidegate_core::TableId;
    use tidegate_proto::searchfabric::v1::{DocumentId, RowMutationKind, document_id};

    use super::*;
    use crate::lineage::fixture::generation;

    fn builder(entries_max: usize, epoch: u64) -> BatchBuilder {
        let name = StreamName {
            client_id: "tidegate".to_owned(),
            collection: CollectionRef {
                namespace: "default".to_owned(),
                collection_id: "table-7".to_owned(),
            },
            partition: SourcePartition::of(None, TableId(7)),
            epoch: SourceEpoch::new(epoch),
        };
        BatchBuilder::new(name, 1, BatchLimits { entries_max, bytes_max: 1 << 20 }, &generation(2, 10))
    }

    fn row(doc: u64, commit_ts: u64) -> RowMutation {
        RowMutation {
            kind: RowMutationKind::Delete.into(),
            doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(doc)) }),
            commit_ts,
            ..RowMutation::default()
        }
    }

    #[test]
    fn entries_are_numbered_without_gaps_over_rows_progress_and_barriers() {
        let mut builder = builder(2, 1);
        assert_eq!(builder.row(row(1, 20)), None);
        assert_eq!(builder.row(row(2, 21)), None);
        let full = builder.row(row(3, 22)).expect("two entries are a batch");
        let marked = builder.progress(ResolvedTs::new(30)).expect("a row and a mark");
        let barrier = builder.barrier(Ts::new(31), "f").expect("a barrier");
        let numbers = [&full, &marked, &barrier].map(|b| (b.first_seq, b.next_seq, b.rows));
        assert_eq!(numbers, [(1, 3, 2), (3, 5, 1), (5, 6, 0)]);
        assert_eq!((marked.progress, barrier.barrier.as_deref()), (Some(ResolvedTs::new(30)), Some("f")));
        for batch in [full, marked, barrier] {
            check_batch(&batch.message).expect("a batch that the contract admits");
        }
    }

    #[test]
    fn bytes_close_a_batch_but_one_large_row_still_travels() {
        let mut builder = builder(100, 1);
        builder.limits.bytes_max = 10;
        assert_eq!(builder.row(row(1, 20)), None);
        assert!(builder.row(row(2, 21)).is_some());
        assert_eq!(builder.progress(ResolvedTs::new(30)).expect("the second row").rows, 1);
    }

    #[test]
    fn a_successor_keeps_what_names_the_content_and_changes_what_names_the_sending() {
        let batch = |epoch| {
            let mut builder = builder(10, epoch);
            assert_eq!(builder.row(row(1, 20)), None);
            builder.progress(ResolvedTs::new(30)).expect("a batch").message
        };
        let (first, second) = (batch(1), batch(2));
        assert_eq!(first, batch(1), "the same writer repeats itself exactly");
        assert_eq!(first.batch_id, second.batch_id);
        assert_eq!(first.batch_fingerprint, second.batch_fingerprint);
        let key = |b: &MutationBatch| b.meta.as_ref().map(|m| m.idempotency_key.clone());
        assert_ne!(key(&first), key(&second));
    }

    #[test]
    fn another_generation_has_another_token() {
        let mut builder = builder(10, 1);
        builder.barrier(Ts::new(40), "f");
        builder.switch(&generation(3, 40));
        let batch = builder.progress(ResolvedTs::new(50)).expect("a batch");
        assert_eq!(batch.message.schema_generation_token, "g3");
    }

    proptest! {
        #[test]
        fn every_row_is_in_exactly_one_batch_in_order(
            rows in proptest::collection::vec(1..100u64, 0..60),
            entries_max in 1..9usize,
        ) {
            let mut builder = builder(entries_max, 1);
            let mut batches: Vec<SealedBatch> =
                (1000..).zip(&rows).filter_map(|(ts, doc)| builder.row(row(*doc, ts))).collect();
            batches.extend(builder.progress(ResolvedTs::new(5000)));
            let mut expected_seq = 1;
            let mut docs = Vec::new();
            for batch in &batches {
                prop_assert!(batch.message.entries.len() <= entries_max + 1, "a mark may come on top");
                prop_assert_eq!(batch.first_seq, expected_seq);
                expected_seq = batch.next_seq;
                prop_assert!(check_batch(&batch.message).is_ok());
                docs.extend(batch.message.entries.iter().filter_map(|e| match e.entry.as_ref()? {
                    Entry::RowMutation(row) => match row.doc_id.as_ref()?.id_value.as_ref()? {
                        document_id::IdValue::U64(id) => Some(*id),
                    },
                    _ => None,
                }));
            }
            prop_assert_eq!(docs, rows);
        }
    }
}
