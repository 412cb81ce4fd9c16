//! The contract's rules as a value: what a correct gateway and catalogue answer, and which documents follow.
//! Used as the oracle of the simulation; it shares only the contract crate with the adapter.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_contract::fingerprint::{Fingerprint, row_digest};
use tidegate_contract::schema::{check_successor, classify};
use tidegate_contract::validate::{check_batch, check_drop, check_put_schema};
use tidegate_contract::{Breach, Schema, SfErrorCode};
use tidegate_proto::searchfabric::v1::mutation_ack::Outcome;
use tidegate_proto::searchfabric::v1::{
    Collection, CollectionState, DropCollectionRequest, FieldData, MutationAck, MutationBatch,
    MutationFailure, MutationSuccess, PartitionDisposition, PutCollectionSchemaRequest, RowMutation,
    RowMutationKind, SchemaGeneration, StreamCursor, document_id, mutation_entry::Entry,
};

/// A document, or its tombstone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doc {
    pub(crate) version: u64,
    pub(crate) fields: Option<BTreeMap<String, FieldData>>,
    pub(crate) owner: String,
    /// What was sent, before any later generation changed the stored form.
    pub(crate) sent: Fingerprint,
}

#[derive(Debug, Default)]
struct Stream {
    epoch: u64,
    next_seq: u64,
    resolved: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Coll {
    pub(crate) generations: Vec<SchemaGeneration>,
    pub(crate) dropped_at: Option<u64>,
    pub(crate) docs: BTreeMap<u64, Doc>,
}

/// What a gateway and a catalogue know.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) collections: BTreeMap<String, Coll>,
    /// By collection and source partition.
    streams: BTreeMap<(String, String), Stream>,
    receipts: BTreeMap<String, (String, MutationSuccess)>,
    puts: BTreeMap<String, SchemaGeneration>,
    barriers: BTreeMap<(String, u64), BTreeSet<String>>,
    pub(crate) replays: u64,
}

fn breach(code: SfErrorCode, detail: impl Into<String>) -> Breach {
    Breach::new(code, "", detail.into())
}

impl Ledger {
    /// Answers a batch.
    pub(crate) fn batch(&mut self, batch: &MutationBatch) -> MutationAck {
        let outcome = match self.apply(batch) {
            Ok(success) => Outcome::Success(success),
            Err(breach) => {
                let partition = batch.stream_identity.as_ref().map_or("", |s| s.source_partition.as_str());
                let collection = batch.collection.as_ref().map_or("", |c| c.collection_id.as_str());
                let stream = self.streams.get(&(collection.to_owned(), partition.to_owned()));
                Outcome::Failure(MutationFailure {
                    error: Some(breach.to_proto()),
                    restart_cursor: stream.map(|s| StreamCursor {
                        source_partition: partition.to_owned(),
                        source_epoch: s.epoch,
                        source_seq: s.next_seq - 1,
                        commit_ts: 0,
                    }),
                    ..MutationFailure::default()
                })
            }
        };
        MutationAck {
            collection: batch.collection.clone(),
            batch_id: batch.batch_id.clone(),
            stream_identity: batch.stream_identity.clone(),
            batch_fingerprint: batch.batch_fingerprint.clone(),
            outcome: Some(outcome),
            pacing: None,
        }
    }

    fn apply(&mut self, batch: &MutationBatch) -> Result<MutationSuccess, Breach> {
        let fingerprint = check_batch(batch)?.to_string();
        let key = &batch.meta.as_ref().expect("checked").idempotency_key;
        if let Some((first, receipt)) = self.receipts.get(key) {
            if *first != fingerprint {
                return Err(breach(SfErrorCode::SfIdempotencyConflict, key.clone()));
            }
            self.replays += 1;
            return Ok(MutationSuccess { replayed: true, ..receipt.clone() });
        }
        let identity = batch.stream_identity.as_ref().expect("checked");
        let partition = identity.source_partition.clone();
        let id = &batch.collection.as_ref().expect("checked").collection_id;
        let stream = self.streams.entry((id.clone(), partition.clone())).or_default();
        if identity.source_epoch < stream.epoch {
            return Err(breach(SfErrorCode::SfStaleEpoch, format!("{partition} is at {}", stream.epoch)));
        }
        if identity.source_epoch > stream.epoch {
            (stream.epoch, stream.next_seq) = (identity.source_epoch, 1);
        }
        if identity.source_seq != stream.next_seq {
            return Err(breach(
                SfErrorCode::SfSequenceGap,
                format!("{partition} expects {}", stream.next_seq),
            ));
        }
        let coll = self
            .collections
            .get_mut(id)
            .ok_or_else(|| breach(SfErrorCode::SfCollectionNotFound, id.clone()))?;
        if coll.dropped_at.is_some() {
            return Err(breach(SfErrorCode::SfCollectionDropped, id.clone()));
        }
        let window = coll.window(&batch.schema_generation_token)?;
        for entry in &batch.entries {
            match entry.entry.as_ref().expect("checked") {
                Entry::RowMutation(row) => coll.row(row, &partition, &window)?,
                Entry::ProgressMark(mark) => {
                    window.check_upper(mark.resolved_ts)?;
                    if mark.resolved_ts < stream.resolved {
                        return Err(breach(SfErrorCode::SfWatermarkRegression, partition));
                    }
                    stream.resolved = mark.resolved_ts;
                }
                Entry::BarrierMark(mark) => {
                    window.check_upper(mark.barrier_ts)?;
                    self.barriers.entry((id.clone(), mark.barrier_ts)).or_default().insert(partition.clone());
                }
            }
        }
        stream.next_seq += u64::try_from(batch.entries.len()).expect("few");
        let success = MutationSuccess {
            acked_cursor: Some(StreamCursor {
                source_partition: partition,
                source_epoch: stream.epoch,
                source_seq: stream.next_seq - 1,
                commit_ts: 0,
            }),
            acked_resolved_ts: stream.resolved,
            ..MutationSuccess::default()
        };
        self.receipts.insert(key.clone(), (fingerprint, success.clone()));
        Ok(success)
    }

    /// Answers a schema change.
    pub(crate) fn put(&mut self, request: &PutCollectionSchemaRequest) -> Result<SchemaGeneration, Breach> {
        check_put_schema(request)?;
        let key = &request.meta.as_ref().expect("checked").idempotency_key;
        if let Some(known) = self.puts.get(key) {
            let same =
                known.definition == request.definition && known.schema_version == request.schema_version;
            return if same {
                Ok(known.clone())
            } else {
                Err(breach(SfErrorCode::SfIdempotencyConflict, key.clone()))
            };
        }
        let scope = request.scope.as_ref().expect("checked");
        let id = scope.collection.as_ref().expect("checked").collection_id.clone();
        let ddl_ts = scope.ddl_commit_ts;
        let coll = self.collections.entry(id.clone()).or_default();
        let definition = request.definition.as_ref().expect("checked");
        let fence = request.fence.as_ref().expect("checked");
        let prev = coll.generations.last();
        let token = prev.map_or("__initial__", |g| g.schema_generation_token.as_str());
        if fence.schema_generation_token != token || prev.is_some_and(|g| g.ddl_commit_ts >= ddl_ts) {
            return Err(breach(SfErrorCode::SfSchemaFenceMismatch, format!("{id} is at {token}")));
        }
        let prev_definition = prev.and_then(|g| g.definition.as_ref());
        if request.update_policy() != classify(prev_definition, definition) {
            return Err(breach(SfErrorCode::SfUpdatePolicyMismatch, id));
        }
        if let Some(prev) = prev_definition {
            check_successor(prev, definition)?;
            // I7: every partition of the old generation has passed its barrier.
            let passed = self.barriers.get(&(id.clone(), ddl_ts)).cloned().unwrap_or_default();
            for partition in &prev.source_partitions {
                assert!(
                    passed.contains(&partition.source_partition),
                    "{id} changes before {partition:?} is through"
                );
            }
        }
        let generation = SchemaGeneration {
            schema_version: request.schema_version,
            schema_generation_token: format!("{id}#{}", request.schema_version),
            ddl_commit_ts: ddl_ts,
            update_policy: request.update_policy,
            definition: Some(definition.clone()),
        };
        coll.evolve(&generation);
        coll.generations.push(generation.clone());
        self.puts.insert(key.clone(), generation.clone());
        Ok(generation)
    }

    /// Answers a drop.
    pub(crate) fn drop_collection(&mut self, request: &DropCollectionRequest) -> Result<(), Breach> {
        check_drop(request)?;
        let scope = request.scope.as_ref().expect("checked");
        let id = &scope.collection.as_ref().expect("checked").collection_id;
        let coll = self
            .collections
            .get_mut(id)
            .ok_or_else(|| breach(SfErrorCode::SfCollectionNotFound, id.clone()))?;
        coll.dropped_at = Some(scope.ddl_commit_ts);
        coll.docs.clear();
        Ok(())
    }

    /// What a start reads: the collections, the progress held by partition, and the largest epoch.
    pub(crate) fn snapshot(&self) -> (Vec<Collection>, BTreeMap<(String, String), u64>, u64) {
        let collection = |(id, coll): (&String, &Coll)| Collection {
            collection: Some(crate::script::collection_ref(id)),
            name: String::new(),
            state: if coll.dropped_at.is_some() { CollectionState::Dropped } else { CollectionState::Active }
                .into(),
            generations: coll.generations.clone(),
            dropped_at_ts: coll.dropped_at.unwrap_or(0),
            documents: 0,
            freshness: None,
        };
        let held = self.streams.iter().map(|(name, s)| (name.clone(), s.resolved)).collect();
        let epoch = self.streams.values().map(|s| s.epoch).max().unwrap_or(0);
        (self.collections.iter().map(collection).collect(), held, epoch)
    }
}

/// Between which DDLs a token is good.
struct Window {
    schema: Schema,
    version: u32,
    below: u64,
    roster: BTreeMap<String, u64>,
    retired: BTreeSet<String>,
}

impl Window {
    fn check_upper(&self, ts: u64) -> Result<(), Breach> {
        if ts > self.below {
            return Err(breach(
                SfErrorCode::SfSchemaGenerationInvalidated,
                format!("ended at {}", self.below),
            ));
        }
        Ok(())
    }
}

impl Coll {
    fn window(&self, token: &str) -> Result<Window, Breach> {
        let at = self.generations.iter().position(|g| g.schema_generation_token == token);
        let at = at.ok_or_else(|| breach(SfErrorCode::SfSchemaGenerationUnknown, token))?;
        let generation = &self.generations[at];
        let definition = generation.definition.as_ref().expect("put with one");
        let newest = self.generations.last().and_then(|g| g.definition.as_ref()).expect("at least one");
        let live: BTreeSet<&str> =
            newest.source_partitions.iter().map(|p| p.source_partition.as_str()).collect();
        let roster = definition.source_partitions.iter();
        Ok(Window {
            schema: Schema::new(definition)?,
            version: generation.schema_version,
            below: self.generations.get(at + 1).map_or(u64::MAX, |g| g.ddl_commit_ts),
            retired: roster
                .clone()
                .filter(|p| !live.contains(p.source_partition.as_str()))
                .map(|p| p.source_partition.clone())
                .collect(),
            roster: roster.map(|p| (p.source_partition.clone(), p.start_ts)).collect(),
        })
    }

    fn row(&mut self, row: &RowMutation, partition: &str, window: &Window) -> Result<(), Breach> {
        let start = window.roster.get(partition).copied();
        let start = start.ok_or_else(|| breach(SfErrorCode::SfPartitionUnknown, partition))?;
        window.check_upper(row.commit_ts)?;
        if row.commit_ts <= start {
            return Err(breach(SfErrorCode::SfOrderViolation, format!("{partition} starts at {start}")));
        }
        window.schema.check_row(row, window.version)?;
        if window.retired.contains(partition) {
            return Ok(());
        }
        let Some(document_id::IdValue::U64(id)) = row.doc_id.as_ref().and_then(|d| d.id_value.as_ref())
        else {
            return Err(breach(SfErrorCode::SfDocIdInvalid, "missing"));
        };
        let fields =
            (row.kind() == RowMutationKind::Upsert).then(|| row.fields.clone().into_iter().collect());
        let owner = partition.to_owned();
        let next = Doc { version: row.commit_ts, fields, owner, sent: row_digest(row) };
        let Some(known) = self.docs.get(id) else {
            self.docs.insert(*id, next);
            return Ok(());
        };
        let moved = known.version == next.version && known.owner != next.owner;
        let wins = next.version > known.version || (moved && next.fields.is_some() && known.fields.is_none());
        if known.version == next.version && !moved && known.sent != next.sent {
            return Err(breach(
                SfErrorCode::SfVersionConflict,
                format!("document {id} at {}", row.commit_ts),
            ));
        }
        if wins {
            self.docs.insert(*id, next);
        }
        Ok(())
    }

    fn evolve(&mut self, next: &SchemaGeneration) {
        let definition = next.definition.as_ref().expect("put with one");
        let gone = definition.retired_partitions.iter();
        let deleted: BTreeSet<&str> = gone
            .filter(|p| p.disposition() == PartitionDisposition::DeleteDocuments)
            .map(|p| p.source_partition.as_str())
            .collect();
        let prev = self.generations.last().and_then(|g| g.definition.as_ref());
        for doc in self.docs.values_mut() {
            if deleted.contains(doc.owner.as_str()) {
                doc.fields = None;
            }
            let Some(fields) = &mut doc.fields else { continue };
            let old: BTreeMap<i64, FieldData> = prev.map_or_else(BTreeMap::new, |prev| {
                prev.fields.iter().filter_map(|f| Some((f.field_id, fields.get(&f.name)?.clone()))).collect()
            });
            let known = |id: i64| prev.is_some_and(|prev| prev.fields.iter().any(|f| f.field_id == id));
            let value = |f: &tidegate_proto::searchfabric::v1::FieldSchema| {
                if known(f.field_id) { old.get(&f.field_id).cloned() } else { f.fill_value.clone() }
            };
            *fields = definition.fields.iter().filter_map(|f| Some((f.name.clone(), value(f)?))).collect();
        }
    }
}
