//! Random histories, delivered by producers that restart, repeat, lose answers and wake up late: whatever
//! happens, the documents end as the history says.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use prost::Message;
use tidegate_contract::error::SfErrorCode;
use tidegate_core::{CommitTs, ResolvedTs, StartTs};
use tidegate_proto::searchfabric::v1::{
    AtomicValue, CollectionRef, CollectionSchemaDefinition, CollectionTruthMode, DocIdMapping, FieldData,
    FieldSchema, ScalarFieldType, SchemaGeneration, SourcePartition, UndeclaredFieldPolicy, atomic_value,
    field_data, field_schema,
};

use super::apply::{Documents, forgettable};
use super::batch::{Batch, Entry, Progress, Row, RowKind};
use super::judge::{Judged, Unjudged, judge};
use super::partition::{Partition, Refusal};
use super::record::Record;
use crate::catalog::{Collection, Generation, Uid};
use crate::content::Content;
use crate::visibility;

const PARTITIONS: usize = 3;
const DOCUMENTS: u64 = 12;
const TRANSACTIONS: u64 = 40;

/// The target: what the store does, in maps.
struct Node {
    collection: Collection,
    documents: RefCell<BTreeMap<u64, Record>>,
    receipts: HashMap<String, (String, u64)>,
}

impl Documents for Node {
    type Error = Infallible;

    fn newest(&self, doc: u64) -> Result<Option<Record>, Infallible> {
        Ok(self.documents.borrow().get(&doc).cloned())
    }

    fn current(&self, record: &Record) -> Result<Content, Infallible> {
        Ok(Content::decode(record.content.clone().unwrap_or_default().as_slice()).expect("content"))
    }
}

impl Node {
    fn new() -> Self {
        let mut collection = Collection::new(Uid(1), CollectionRef::default());
        let field = FieldSchema {
            name: "id".to_owned(),
            field_id: 1,
            r#type: Some(field_schema::Type::Scalar(ScalarFieldType::Uint64.into())),
            ..FieldSchema::default()
        };
        let source = |number| SourcePartition { source_partition: name(number), start_ts: 1 };
        let definition = CollectionSchemaDefinition {
            name: "a.b".to_owned(),
            truth_mode: CollectionTruthMode::External.into(),
            doc_id_mapping: Some(DocIdMapping {
                source_field: "id".to_owned(),
                r#type: ScalarFieldType::Uint64.into(),
            }),
            fields: vec![field],
            undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
            source_partitions: (0..PARTITIONS).map(source).collect(),
            ..CollectionSchemaDefinition::default()
        };
        let generation = SchemaGeneration {
            schema_version: 1,
            schema_generation_token: "g".to_owned(),
            ddl_commit_ts: 1,
            definition: Some(definition),
            ..SchemaGeneration::default()
        };
        let generation = Generation::new(generation, String::new(), String::new()).expect("a valid schema");
        collection.generations.push(Arc::new(generation));
        for number in 0..PARTITIONS {
            let id = u32::try_from(number).expect("few");
            let partition = Partition::new(name(number), id, StartTs::new(1), CommitTs::new(1));
            collection.partitions.insert(name(number), Arc::new(partition));
        }
        collection.refresh();
        Self { collection, documents: RefCell::default(), receipts: HashMap::new() }
    }

    /// Judges and stores a batch. Gives the acknowledged number, or the refusal.
    fn take(&mut self, batch: &Batch) -> Result<u64, Refusal> {
        let receipt = self.receipts.get(&batch.key).cloned();
        let known = receipt.as_ref().map(|(fingerprint, _)| fingerprint.as_str());
        match judge(&self.collection, batch, known, self) {
            Ok(Judged::Repeated) => Ok(receipt.expect("it is repeated").1),
            Ok(Judged::Accepted { partition, applied }) => {
                for (doc, change) in applied.changes {
                    let before = self.documents.borrow_mut().insert(doc, change.after.clone());
                    assert_eq!(before, change.before);
                    assert!(before.is_none_or(|b| b.version <= change.after.version), "a version went back");
                }
                let acked = partition.seq;
                self.receipts.insert(batch.key.clone(), (batch.fingerprint.clone(), acked));
                self.collection.partitions.insert(partition.name.clone(), Arc::new(*partition));
                let floor = forgettable(self.collection.feeding());
                self.documents.borrow_mut().retain(|_, r| r.is_live() || r.version.ts() > floor.ts());
                Ok(acked)
            }
            Err(Unjudged::Refused(refusal)) => Err(*refusal),
            Err(Unjudged::Failed(never)) => match never {},
        }
    }
}

fn name(number: usize) -> String {
    format!("table:{number}")
}

/// What was committed, per partition in commit order.
struct History {
    streams: Vec<Vec<(u64, u64, RowKind)>>,
    /// By document, all its versions in order: commit timestamp and whether it exists after it.
    versions: BTreeMap<u64, Vec<(u64, bool)>>,
    end: u64,
}

impl History {
    /// Each transaction inserts, updates, deletes or moves a few documents. A document lives in one partition
    /// at a time; a move is a delete there and an upsert here, at one timestamp.
    fn random(rng: &mut fastrand::Rng) -> Self {
        let mut streams = vec![Vec::new(); PARTITIONS];
        let mut versions: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
        let mut home: BTreeMap<u64, usize> = BTreeMap::new();
        for transaction in 1..=TRANSACTIONS {
            let ts = 10 + transaction * 10;
            let mut docs: Vec<u64> = (1..=DOCUMENTS).collect();
            rng.shuffle(&mut docs);
            for doc in docs.into_iter().take(rng.usize(1..4)) {
                let target = rng.usize(0..PARTITIONS);
                let exists = match (home.get(&doc).copied(), rng.u8(0..10)) {
                    (Some(at), 0..=2) => {
                        streams[at].push((ts, doc, RowKind::Delete));
                        home.remove(&doc);
                        false
                    }
                    (Some(at), 3..=5) if at != target => {
                        streams[at].push((ts, doc, RowKind::Delete));
                        streams[target].push((ts, doc, RowKind::Upsert));
                        home.insert(doc, target);
                        true
                    }
                    (at, _) => {
                        let at = at.unwrap_or(target);
                        streams[at].push((ts, doc, RowKind::Upsert));
                        home.insert(doc, at);
                        true
                    }
                };
                versions.entry(doc).or_default().push((ts, exists));
            }
        }
        Self { streams, versions, end: 10 + TRANSACTIONS * 10 + 5 }
    }

    /// The newest version of a document at or below a timestamp.
    fn at(&self, doc: u64, ts: u64) -> Option<(u64, bool)> {
        self.versions.get(&doc)?.iter().rev().find(|(at, _)| *at <= ts).copied()
    }
}

/// The content of a document at a version: different for every pair, so that a mix-up shows.
fn content(doc: u64, ts: u64) -> Content {
    let value = atomic_value::Value::Uint64Value(doc * 1_000_000 + ts);
    let atomic = field_data::Value::AtomicValue(AtomicValue { value: Some(value) });
    Content::new(BTreeMap::from([(1, FieldData { value: Some(atomic) })]))
}

/// The writer of one partition's stream, in one epoch.
#[derive(Clone)]
struct Writer {
    partition: usize,
    epoch: u64,
    seq: u64,
    /// The next row of the stream.
    row: usize,
    promised: u64,
}

impl Writer {
    /// The next batch: some rows, and perhaps a promise about everything before the row that follows.
    fn next(&mut self, history: &History, rng: &mut fastrand::Rng) -> Batch {
        let stream = &history.streams[self.partition];
        let end = (self.row + rng.usize(0..5)).min(stream.len());
        let rows = stream[self.row..end].iter().map(|(ts, doc, kind)| {
            let content = if *kind == RowKind::Delete { Content::default() } else { content(*doc, *ts) };
            Entry::Row(Row { doc: *doc, version: CommitTs::new(*ts), kind: *kind, content })
        });
        let mut entries: Vec<Entry> = rows.collect();
        self.row = end;
        let limit = stream.get(end).map_or(history.end, |(ts, _, _)| ts - 1);
        if entries.is_empty() || rng.bool() {
            self.promised = rng.u64(self.promised..=limit.max(self.promised));
            if self.row == stream.len() {
                self.promised = history.end;
            }
            let resolved = ResolvedTs::new(self.promised);
            entries.push(Entry::Progress(Progress { resolved, marks: Vec::new() }));
        }
        let key = format!("{}-{}-{}", self.partition, self.epoch, self.seq);
        let batch = Batch {
            batch_id: key.clone(),
            fingerprint: key.clone(),
            key,
            partition: name(self.partition),
            epoch: self.epoch,
            seq: self.seq,
            schema_version: 1,
            continue_on_error: false,
            entries,
        };
        self.seq = batch.last_seq() + 1;
        batch
    }

    fn done(&self, history: &History) -> bool {
        self.row == history.streams[self.partition].len() && self.promised == history.end
    }
}

/// One random world.
fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let history = History::random(&mut rng);
    let mut node = Node::new();
    let new = |partition| Writer { partition, epoch: 1, seq: 1, row: 0, promised: 1 };
    let mut writers: Vec<Writer> = (0..PARTITIONS).map(new).collect();
    let mut sent: Vec<(Batch, u64)> = Vec::new();
    let mut asleep: Vec<Batch> = Vec::new();
    while !writers.iter().all(|writer| writer.done(&history)) {
        let writer = &mut writers[rng.usize(0..PARTITIONS)];
        match rng.u8(0..12) {
            // A crash: the successor begins somewhere before; a batch of the old one is still under way.
            0 => {
                asleep.push(writer.clone().next(&history, &mut rng));
                let row = rng.usize(0..=writer.row);
                *writer =
                    Writer { partition: writer.partition, epoch: writer.epoch + 1, seq: 1, row, promised: 1 };
                let first = writer.next(&history, &mut rng);
                deliver(&mut node, first, &mut sent);
            }
            // An answer was lost: the same batch again.
            1..=2 if !sent.is_empty() => {
                let (batch, acked) = sent[rng.usize(0..sent.len())].clone();
                assert_eq!(node.take(&batch), Ok(acked), "a receipt changed");
                let other = Batch { fingerprint: "other".to_owned(), ..batch };
                let refusal = node.take(&other).expect_err("other content under a known key");
                assert_eq!(refusal.breach.code(), SfErrorCode::SfIdempotencyConflict);
            }
            // A sleeper wakes up.
            3 if !asleep.is_empty() => {
                let batch = asleep.swap_remove(rng.usize(0..asleep.len()));
                let before = node.documents.borrow().clone();
                let refusal = node.take(&batch).expect_err("a stale writer");
                assert_eq!(refusal.breach.code(), SfErrorCode::SfStaleEpoch);
                assert_eq!(*node.documents.borrow(), before, "a stale writer changed something");
            }
            _ => {
                let batch = writer.next(&history, &mut rng);
                deliver(&mut node, batch, &mut sent);
            }
        }
        check_visible(&node, &history, seed);
    }
    assert_eq!(visibility::safe_ts(&node.collection), ResolvedTs::new(history.end), "seed {seed}");
    for doc in 1..=DOCUMENTS {
        let live = node.documents.borrow().get(&doc).filter(|r| r.is_live()).map(|r| r.version.get());
        let expected = history.at(doc, u64::MAX).filter(|(_, exists)| *exists).map(|(ts, _)| ts);
        assert_eq!(live, expected, "seed {seed}, document {doc}");
        let stored = node.documents.borrow().get(&doc).and_then(|record| record.content.clone());
        let expected = expected.map(|ts| content(doc, ts).encode_to_vec());
        assert_eq!(stored, expected, "seed {seed}, document {doc}");
    }
}

fn deliver(node: &mut Node, batch: Batch, sent: &mut Vec<(Batch, u64)>) {
    let acked = node.take(&batch).unwrap_or_else(|refusal| panic!("{batch:?} is refused: {refusal:?}"));
    sent.push((batch, acked));
}

/// Everything committed at or below `safe_ts` is there (I12): each document is at that version or beyond.
/// Only a deleted one may be unknown.
fn check_visible(node: &Node, history: &History, seed: u64) {
    let safe_ts = visibility::safe_ts(&node.collection).get();
    for doc in 1..=DOCUMENTS {
        let Some((expected, _)) = history.at(doc, safe_ts) else { continue };
        let found = node.documents.borrow().get(&doc).map(|record| record.version.get());
        let forgotten =
            found.is_none() && history.versions[&doc].iter().any(|(ts, exists)| *ts >= expected && !exists);
        let there = found.is_some_and(|found| found >= expected);
        assert!(there || forgotten, "seed {seed}: document {doc} at {found:?}, safe_ts {safe_ts}");
    }
}

/// Worlds of one test run. Each has three partitions with several epochs: well over 10,000 streams together.
const WORLDS: u64 = 1_200;

#[test]
fn whatever_producers_do_the_documents_end_as_the_history_says() {
    (0..WORLDS).for_each(run);
}
