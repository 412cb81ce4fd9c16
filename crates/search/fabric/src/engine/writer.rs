//! The thread that judges batches and makes them durable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use prost::Message;
use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::{CommitTs, ResolvedTs};
use tidegate_invariants::check_invariant;
use tidegate_proto::searchfabric::v1::{
    DropCollectionRequest, EntryError, ModalityWatermark, MutationSuccess, PutCollectionSchemaRequest,
    SchemaGeneration,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::index::content;
use super::shared::{Shared, count};
use super::{Command, poisoned};
use crate::catalog::{Catalog, Collection, Lineage, Uid};
use crate::content::Content;
use crate::error::FabricError;
use crate::ingest::apply::{Applied, forgettable};
use crate::ingest::{Batch, Documents, Entry, Judged, Partition, Record, Refusal, Unjudged, judge};
use crate::store::{Receipt, Snapshot, Store, Tables};
use crate::visibility::modalities;

/// Commands of one group. One fsync costs a few milliseconds; a group holds what arrives meanwhile, and is
/// small enough that the next one does not wait long.
const GROUP_COMMANDS_MAX: usize = 256;
/// Encoded content of one group, the memory it may need several times over.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// How long a resume token is good for. Nothing here expires by it; it tells producers how long to keep it.
const RESUME_TOKEN_MS: u64 = 7 * 24 * 3_600 * 1_000;

/// A durable group on its way to the indexer.
pub(crate) struct Group {
    pub(crate) number: u64,
    pub(crate) snapshot: Snapshot,
    pub(crate) catalog: Catalog,
    pub(crate) changes: Vec<Changed>,
    /// Collections whose schema changed.
    pub(crate) reshaped: BTreeSet<Uid>,
    pub(crate) pending: Vec<Pending>,
}

/// A document whose newest version changed.
pub(crate) struct Changed {
    pub(crate) uid: Uid,
    pub(crate) doc: u64,
    pub(crate) after: Record,
    pub(crate) was_live: bool,
}

/// An answer that waits for its group to be published.
pub(crate) enum Pending {
    Batch {
        result: Result<MutationSuccess, Refusal>,
        reply: oneshot::Sender<Result<MutationSuccess, Refusal>>,
        permit: OwnedSemaphorePermit,
    },
    Put {
        result: Result<(SchemaGeneration, bool), Breach>,
        reply: oneshot::Sender<Result<(SchemaGeneration, bool), Breach>>,
    },
    Drop {
        result: Result<(CommitTs, bool), Breach>,
        reply: oneshot::Sender<Result<(CommitTs, bool), Breach>>,
    },
}

impl Pending {
    /// Gives the answer; `published` says whether the group got through. A caller that is gone misses
    /// nothing: it asks again and gets the receipt.
    pub(crate) fn answer(self, published: bool) {
        match self {
            Self::Batch { result, reply, permit } => {
                let failed = || Err(Refusal::from(poisoned()));
                let _ = reply.send(if published { result } else { failed() });
                drop(permit);
            }
            Self::Put { result, reply } => {
                let _ = reply.send(if published { result } else { Err(poisoned()) });
            }
            Self::Drop { result, reply } => {
                let _ = reply.send(if published { result } else { Err(poisoned()) });
            }
        }
    }
}

/// The state of the thread.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    store: Store,
    catalog: Catalog,
    group: u64,
    groups: SyncSender<Group>,
}

/// What a group has gathered so far.
#[derive(Default)]
struct Gathered {
    changes: Vec<Changed>,
    reshaped: BTreeSet<Uid>,
    pending: Vec<Pending>,
    touched: BTreeSet<Uid>,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        store: Store,
        catalog: Catalog,
        group: u64,
        groups: SyncSender<Group>,
    ) -> Self {
        Self { shared, store, catalog, group, groups }
    }

    /// Works until it is told to stop or everybody who could ask is gone.
    pub(crate) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut stop = false;
        while !stop {
            let Some(first) = commands.blocking_recv() else { return };
            let mut taken = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(command) = next.take() {
                if matches!(command, Command::Stop) {
                    stop = true;
                    break;
                }
                bytes += size(&command);
                taken.push(command);
                if taken.len() < GROUP_COMMANDS_MAX && bytes < GROUP_BYTES_MAX {
                    next = commands.try_recv().ok();
                }
            }
            self.commit(taken);
        }
    }

    /// Makes a group durable and hands it on. Any failure of the store ends ingestion: after a failed fsync
    /// nobody can know what the disk holds.
    fn commit(&mut self, commands: Vec<Command>) {
        let mut gathered = Gathered::default();
        let result = if self.shared.poisoned().is_some() {
            refuse(commands, &mut gathered);
            Err(None)
        } else {
            self.transact(commands, &mut gathered).map_err(Some)
        };
        let error = match result {
            Ok(snapshot) => {
                self.hand_on(snapshot, gathered);
                return;
            }
            Err(error) => error,
        };
        if let Some(error) = error {
            self.shared.poison(&error);
        }
        gathered.pending.into_iter().for_each(|pending| pending.answer(false));
    }

    fn hand_on(&self, snapshot: Snapshot, gathered: Gathered) {
        count(&self.shared.counts.commits, 1);
        self.shared.set_catalog(self.catalog.clone());
        let group = Group {
            number: self.group,
            snapshot,
            catalog: self.catalog.clone(),
            changes: gathered.changes,
            reshaped: gathered.reshaped,
            pending: gathered.pending,
        };
        if let Err(std::sync::mpsc::SendError(group)) = self.groups.send(group) {
            self.shared.poison(&FabricError::Stopped);
            group.pending.into_iter().for_each(|pending| pending.answer(false));
        }
    }

    fn transact(&mut self, commands: Vec<Command>, gathered: &mut Gathered) -> Result<Snapshot, FabricError> {
        let transaction = match self.store.begin() {
            Ok(transaction) => transaction,
            Err(error) => {
                refuse(commands, gathered);
                return Err(error);
            }
        };
        self.group += 1;
        {
            let mut tables = Tables::open(&transaction)?;
            for command in commands {
                self.execute(command, &mut tables, gathered)?;
            }
            for uid in &gathered.touched {
                if let Some(collection) = self.catalog.get(*uid) {
                    tables.put_collection(collection)?;
                }
            }
            for event in self.shared.unsaved_events() {
                tables.put_event(&event)?;
            }
            let changed: Vec<_> = gathered.changes.iter().map(|change| (change.uid, change.doc)).collect();
            tables.put_group(self.group, &changed)?;
        }
        transaction.commit()?;
        self.store.snapshot()
    }

    fn execute(
        &mut self,
        command: Command,
        tables: &mut Tables<'_>,
        gathered: &mut Gathered,
    ) -> Result<(), FabricError> {
        match command {
            Command::Batch { uid, batch, reply, permit } => {
                let result = self.batch(uid, &batch, tables, gathered);
                let (result, failure) = split(result);
                gathered.pending.push(Pending::Batch { result, reply, permit });
                failure
            }
            Command::Put { request, reply } => {
                let result = self.put(&request, tables, gathered);
                let (result, failure) = split(result);
                gathered.pending.push(Pending::Put { result, reply });
                failure
            }
            Command::Drop { request, reply } => {
                let result = self.drop_collection(&request, tables, gathered);
                let (result, failure) = split(result);
                gathered.pending.push(Pending::Drop { result, reply });
                failure
            }
            Command::Stop => Ok(()),
        }
    }

    fn batch(
        &mut self,
        uid: Uid,
        batch: &Batch,
        tables: &mut Tables<'_>,
        gathered: &mut Gathered,
    ) -> Result<Result<MutationSuccess, Refusal>, FabricError> {
        let receipt = tables.receipt(uid, &batch.key)?;
        let Some(collection) = self.catalog.get(uid).cloned() else {
            let missing = Breach::new(SfErrorCode::SfCollectionNotFound, "collection", "does not exist");
            return Ok(Err(missing.into()));
        };
        let documents = Lookup { tables, uid, lineage: &collection.lineage };
        let known = receipt.as_ref().map(|receipt| receipt.fingerprint.as_str());
        match judge(&collection, batch, known, &documents) {
            Ok(Judged::Repeated) => {
                count(&self.shared.counts.batches_replayed, 1);
                let first = receipt.and_then(|receipt| receipt.success).unwrap_or_default();
                Ok(Ok(MutationSuccess { replayed: true, ..first }))
            }
            Ok(Judged::Accepted { partition, applied }) => {
                self.accept(&collection, *partition, batch, applied, tables, gathered).map(Ok)
            }
            Err(Unjudged::Refused(refusal)) => {
                self.note_refusal(uid, batch, &refusal, gathered);
                Ok(Err(*refusal))
            }
            Err(Unjudged::Failed(error)) => Err(error),
        }
    }

    /// Counts a refusal; a conflict is an alarm that stays visible.
    fn note_refusal(&mut self, uid: Uid, batch: &Batch, refusal: &Refusal, gathered: &mut Gathered) {
        count(&self.shared.counts.batches_refused, 1);
        if refusal.breach.code() != SfErrorCode::SfVersionConflict {
            return;
        }
        count(&self.shared.counts.rows_conflicting, 1);
        let Some(collection) = self.catalog.get_mut(uid) else { return };
        collection.version_conflicts += 1;
        gathered.touched.insert(uid);
        let detail = format!("{} batch {}: {}", batch.partition, batch.batch_id, refusal.breach);
        self.shared.log("conflict", Some(collection), detail);
    }

    /// Stores what an accepted batch does.
    fn accept(
        &mut self,
        collection: &Collection,
        partition: Partition,
        batch: &Batch,
        applied: Applied,
        tables: &mut Tables<'_>,
        gathered: &mut Gathered,
    ) -> Result<MutationSuccess, FabricError> {
        let uid = collection.uid;
        let before = collection.partitions.get(&partition.name);
        let (epoch_before, resolved_before) = before.map_or_else(Default::default, |p| (p.epoch, p.resolved));
        if batch.epoch > epoch_before {
            let detail = format!("{} epoch {} after {epoch_before}", partition.name, batch.epoch);
            self.shared.log("partition_epoch", Some(collection), detail);
        }
        tables.put_partition(uid, &partition)?;
        self.count_applied(&applied);
        let success = success(collection, &partition, &applied, self.shared.clock.wall_ms());
        let receipt = Receipt { fingerprint: batch.fingerprint.clone(), success: Some(success.clone()) };
        tables.put_receipt(uid, &batch.key, &receipt)?;
        self.note_alarms(uid, batch, &applied, gathered);
        for (doc, change) in applied.changes {
            let before = change.before.as_ref();
            let forward = before.is_none_or(|before| before.version <= change.after.version);
            if !check_invariant!(I14, forward, "document {doc} of collection {} went back", uid.0) {
                return Err(FabricError::Damaged(format!("document {doc} would have gone back")));
            }
            tables.put_document(uid, doc, before, &change.after)?;
            let was_live = change.before.is_some_and(|before| before.is_live());
            gathered.changes.push(Changed { uid, doc, after: change.after, was_live });
        }
        let progressed = partition.resolved > resolved_before;
        if let Some(collection) = self.catalog.get_mut(uid) {
            collection.partitions.insert(partition.name.clone(), Arc::new(partition));
            if progressed {
                forget(tables, collection)?;
            }
        }
        Ok(success)
    }

    fn count_applied(&self, applied: &Applied) {
        let counts = &self.shared.counts;
        count(&counts.batches, 1);
        count(&counts.rows_applied, applied.rows_applied);
        count(&counts.rows_stale, applied.rows_superseded);
        count(&counts.rows_late, applied.rows_late);
        count(&counts.rows_conflicting, applied.conflicts);
    }

    fn note_alarms(&mut self, uid: Uid, batch: &Batch, applied: &Applied, gathered: &mut Gathered) {
        let rejected = u64::try_from(applied.errors.len()).unwrap_or(u64::MAX);
        if rejected == 0 && applied.rows_late == 0 {
            return;
        }
        let Some(collection) = self.catalog.get_mut(uid) else { return };
        collection.rows_rejected += rejected;
        collection.rows_late += applied.rows_late;
        collection.version_conflicts += applied.conflicts;
        gathered.touched.insert(uid);
        let at = format!("{} batch {}", batch.partition, batch.batch_id);
        if applied.rows_late > 0 {
            let detail = format!("{at}: {} rows below an earlier promise", applied.rows_late);
            self.shared.log("late_row", Some(collection), detail);
        }
        if rejected > 0 {
            self.shared.log("rejected", Some(collection), format!("{at}: {rejected} entries"));
        }
    }

    fn put(
        &mut self,
        request: &PutCollectionSchemaRequest,
        tables: &mut Tables<'_>,
        gathered: &mut Gathered,
    ) -> Result<Result<(SchemaGeneration, bool), Breach>, FabricError> {
        let (uid, put) = match self.catalog.put(request) {
            Ok(done) => done,
            Err(breach) => return Ok(Err(breach)),
        };
        if !put.replayed {
            gathered.touched.insert(uid);
            gathered.reshaped.insert(uid);
            if let Some(collection) = self.catalog.get(uid).cloned() {
                purge(&collection, &put.purged, tables, gathered)?;
                self.log_schema(&collection, &put.generation);
            }
        }
        Ok(Ok((put.generation, put.replayed)))
    }

    fn log_schema(&self, collection: &Collection, generation: &SchemaGeneration) {
        let kind = if generation.schema_version == 1 { "collection_created" } else { "schema_changed" };
        let policy = generation.update_policy().as_str_name();
        let detail =
            format!("version {} at {}, {policy}", generation.schema_version, generation.ddl_commit_ts);
        self.shared.log(kind, Some(collection), detail);
        let ddl = CommitTs::new(generation.ddl_commit_ts);
        let retired = collection.partitions.values().filter(|p| p.retired.is_some_and(|(at, _)| at == ddl));
        for partition in retired {
            self.shared.log("partition_retired", Some(collection), format!("{} at {ddl}", partition.name));
        }
    }

    fn drop_collection(
        &mut self,
        request: &DropCollectionRequest,
        tables: &mut Tables<'_>,
        gathered: &mut Gathered,
    ) -> Result<Result<(CommitTs, bool), Breach>, FabricError> {
        let (uid, at, replayed) = match self.catalog.drop_collection(request) {
            Ok(done) => done,
            Err(breach) => return Ok(Err(breach)),
        };
        if !replayed {
            tables.clear(uid)?;
            gathered.changes.retain(|change| change.uid != uid);
            gathered.touched.insert(uid);
            gathered.reshaped.insert(uid);
            let collection = self.catalog.get(uid).map(Arc::as_ref);
            self.shared.log("collection_dropped", collection, format!("at {at}"));
        }
        Ok(Ok((at, replayed)))
    }
}

/// Deletes the documents of retired partitions, leaving tombstones at their own versions.
fn purge(
    collection: &Collection,
    partitions: &[u32],
    tables: &mut Tables<'_>,
    gathered: &mut Gathered,
) -> Result<(), FabricError> {
    if partitions.is_empty() {
        return Ok(());
    }
    for (doc, before) in tables.written_by(collection.uid, partitions)? {
        let after = Record { schema_version: 0, content: None, ..before.clone() };
        tables.put_document(collection.uid, doc, Some(&before), &after)?;
        gathered.changes.push(Changed { uid: collection.uid, doc, after, was_live: true });
    }
    Ok(())
}

/// Forgets tombstones that every partition's progress has passed.
fn forget(tables: &mut Tables<'_>, collection: &Collection) -> Result<(), FabricError> {
    let floor = forgettable(collection.feeding());
    if floor > ResolvedTs::ZERO {
        tables.forget(collection.uid, floor)?;
    }
    Ok(())
}

/// Documents as the open group sees them.
struct Lookup<'a, 't> {
    tables: &'a Tables<'t>,
    uid: Uid,
    lineage: &'a Lineage,
}

impl Documents for Lookup<'_, '_> {
    type Error = FabricError;

    fn newest(&self, doc: u64) -> Result<Option<Record>, FabricError> {
        self.tables.document(self.uid, doc)
    }

    fn current(&self, record: &Record) -> Result<Content, FabricError> {
        let content = content(record)?.unwrap_or_default();
        Ok(self.lineage.modern(&content, record.schema_version).into_owned())
    }
}

fn success(
    collection: &Collection,
    partition: &Partition,
    applied: &Applied,
    now_ms: u64,
) -> MutationSuccess {
    let watermarks = modalities(collection).into_iter().map(|modality| ModalityWatermark {
        modality: modality.into(),
        applied_ts: partition.applied(modality).get(),
    });
    let errors = applied.errors.iter().map(|(index, breach)| EntryError {
        entry_index: u32::try_from(*index).unwrap_or(u32::MAX),
        error: Some(breach.to_proto()),
    });
    MutationSuccess {
        acked_cursor: Some(partition.cursor()),
        applied_watermarks: watermarks.collect(),
        acked_resolved_ts: partition.resolved.get(),
        resume_token: format!("{}.{}.{}", partition.number, partition.epoch, partition.seq),
        resume_token_expires_unix_ms: now_ms.saturating_add(RESUME_TOKEN_MS),
        replayed: false,
        rows_applied: applied.rows_applied,
        rows_superseded: applied.rows_superseded,
        entry_errors: errors.collect(),
    }
}

/// Answers that cannot be worked out any more.
fn refuse(commands: Vec<Command>, gathered: &mut Gathered) {
    gathered.pending.extend(commands.into_iter().filter_map(|command| match command {
        Command::Batch { reply, permit, .. } => {
            Some(Pending::Batch { result: Err(poisoned().into()), reply, permit })
        }
        Command::Put { reply, .. } => Some(Pending::Put { result: Err(poisoned()), reply }),
        Command::Drop { reply, .. } => Some(Pending::Drop { result: Err(poisoned()), reply }),
        Command::Stop => None,
    }));
}

/// Separates an answer from a failure of the store, which is answered too, but ends the group.
fn split<T, E: From<Breach>>(
    result: Result<Result<T, E>, FabricError>,
) -> (Result<T, E>, Result<(), FabricError>) {
    match result {
        Ok(answer) => (answer, Ok(())),
        Err(error) => (Err(poisoned().into()), Err(error)),
    }
}

/// The memory a command stands for.
fn size(command: &Command) -> usize {
    let Command::Batch { batch, .. } = command else { return 0 };
    let rows = batch.entries.iter().map(|entry| match entry {
        Entry::Row(row) => row.content.encoded_len(),
        _ => 0,
    });
    rows.sum()
}
