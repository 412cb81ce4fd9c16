//! The tables of the database and what is done to them.

use prost::Message;
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, Table, TableDefinition, WriteTransaction};
use tidegate_core::ResolvedTs;

use super::FORMAT;
pub(crate) use super::form::Receipt;
use super::form::{StoredCollection, StoredPartition};
use crate::catalog::{Collection, Uid};
use crate::error::FabricError;
use crate::ingest::{Partition, Record};
use crate::status::Event;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const COLLECTIONS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("collections");
/// By collection and partition number.
const PARTITIONS: TableDefinition<'_, (u32, u32), &[u8]> = TableDefinition::new("partitions");
/// By collection and document id.
const DOCUMENTS: TableDefinition<'_, (u32, u64), &[u8]> = TableDefinition::new("documents");
/// By collection, version and document id: tombstones in the order in which they may be forgotten.
const TOMBSTONES: TableDefinition<'_, (u32, u64, u64), ()> = TableDefinition::new("tombstones");
/// By collection and idempotency key.
const RECEIPTS: TableDefinition<'_, (u32, &str), &[u8]> = TableDefinition::new("receipts");
/// Keys of receipts in the order they were given.
const RECEIPT_ORDER: TableDefinition<'_, u64, (u32, &str)> = TableDefinition::new("receipt_order");
/// By group: which documents it changed, for an index that has to catch up.
const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

/// Receipts kept. A producer retries what it has in flight, a few batches per partition; this is room for
/// thousands of partitions and a restart.
const RECEIPTS_MAX: u64 = 65_536;
/// Groups the journal keeps. An index is at most a few groups behind after a killed process; after a crash of
/// the machine it may have lost more and is made anew.
const JOURNAL_GROUPS_MAX: u64 = 4_096;
/// Events kept.
const EVENTS_MAX: u64 = 10_000;
/// Tombstones forgotten per group, so that no group takes long.
const FORGET_MAX: usize = 10_000;
/// Bytes of a journal entry: collection and document id.
const JOURNAL_ENTRY_BYTES: usize = 12;

/// All tables, open for one group.
pub(crate) struct Tables<'t> {
    meta: Table<'t, &'static str, u64>,
    collections: Table<'t, u32, &'static [u8]>,
    partitions: Table<'t, (u32, u32), &'static [u8]>,
    documents: Table<'t, (u32, u64), &'static [u8]>,
    tombstones: Table<'t, (u32, u64, u64), ()>,
    receipts: Table<'t, (u32, &'static str), &'static [u8]>,
    receipt_order: Table<'t, u64, (u32, &'static str)>,
    journal: Table<'t, u64, &'static [u8]>,
    events: Table<'t, u64, &'static [u8]>,
}

impl<'t> Tables<'t> {
    /// Opens the tables, creating them if need be.
    pub(crate) fn open(transaction: &'t WriteTransaction) -> Result<Self, FabricError> {
        Ok(Self {
            meta: transaction.open_table(META)?,
            collections: transaction.open_table(COLLECTIONS)?,
            partitions: transaction.open_table(PARTITIONS)?,
            documents: transaction.open_table(DOCUMENTS)?,
            tombstones: transaction.open_table(TOMBSTONES)?,
            receipts: transaction.open_table(RECEIPTS)?,
            receipt_order: transaction.open_table(RECEIPT_ORDER)?,
            journal: transaction.open_table(JOURNAL)?,
            events: transaction.open_table(EVENTS)?,
        })
    }

    /// Refuses a database of another format; marks a new one.
    pub(super) fn check_format(&mut self) -> Result<(), FabricError> {
        let found = self.meta.get("format")?.map(|value| value.value());
        match found {
            Some(FORMAT) => Ok(()),
            Some(found) => Err(FabricError::Format { found, known: FORMAT }),
            None => {
                self.meta.insert("format", FORMAT)?;
                Ok(())
            }
        }
    }

    /// The last group.
    pub(crate) fn group(&self) -> Result<u64, FabricError> {
        Ok(self.meta.get("group")?.map_or(0, |value| value.value()))
    }

    /// All collections with their partitions.
    pub(super) fn collections(&self) -> Result<Vec<Collection>, FabricError> {
        let mut collections = Vec::new();
        for entry in self.collections.iter()? {
            let (uid, bytes) = entry?;
            let stored = StoredCollection::decode(bytes.value()).map_err(damaged)?;
            let uid = Uid(uid.value());
            let mut partitions = Vec::new();
            for entry in self.partitions.range((uid.0, 0)..=(uid.0, u32::MAX))? {
                let (_, bytes) = entry?;
                partitions.push(StoredPartition::decode(bytes.value()).map_err(damaged)?.restore());
            }
            collections.push(stored.restore(uid, partitions.into_iter())?);
        }
        Ok(collections)
    }

    /// Stores a collection with all its partitions.
    pub(crate) fn put_collection(&mut self, collection: &Collection) -> Result<(), FabricError> {
        let bytes = StoredCollection::of(collection).encode_to_vec();
        self.collections.insert(collection.uid.0, bytes.as_slice())?;
        collection.partitions.values().try_for_each(|partition| self.put_partition(collection.uid, partition))
    }

    /// Stores one partition.
    pub(crate) fn put_partition(&mut self, uid: Uid, partition: &Partition) -> Result<(), FabricError> {
        let bytes = StoredPartition::of(partition).encode_to_vec();
        self.partitions.insert((uid.0, partition.number), bytes.as_slice())?;
        Ok(())
    }

    /// The newest known version of a document.
    pub(crate) fn document(&self, uid: Uid, doc: u64) -> Result<Option<Record>, FabricError> {
        match self.documents.get((uid.0, doc))? {
            Some(bytes) => record(bytes.value()).map(Some),
            None => Ok(None),
        }
    }

    /// Stores a document's newest version, and keeps the order of tombstones in step.
    pub(crate) fn put_document(
        &mut self,
        uid: Uid,
        doc: u64,
        before: Option<&Record>,
        after: &Record,
    ) -> Result<(), FabricError> {
        if let Some(tombstone) = before.filter(|before| !before.is_live()) {
            self.tombstones.remove((uid.0, tombstone.version.get(), doc))?;
        }
        if !after.is_live() {
            self.tombstones.insert((uid.0, after.version.get(), doc), ())?;
        }
        self.documents.insert((uid.0, doc), after.encode().as_slice())?;
        Ok(())
    }

    /// Live documents whose newest version one of these partitions wrote.
    pub(crate) fn written_by(&self, uid: Uid, partitions: &[u32]) -> Result<Vec<(u64, Record)>, FabricError> {
        let mut found = Vec::new();
        for entry in self.documents.range((uid.0, 0)..=(uid.0, u64::MAX))? {
            let (key, bytes) = entry?;
            let record = record(bytes.value())?;
            if record.is_live() && partitions.contains(&record.partition) {
                found.push((key.value().1, record));
            }
        }
        Ok(found)
    }

    /// Removes everything about a collection but the fact that it existed.
    pub(crate) fn clear(&mut self, uid: Uid) -> Result<(), FabricError> {
        self.documents.retain_in((uid.0, 0)..=(uid.0, u64::MAX), |_, _| false)?;
        self.tombstones.retain_in((uid.0, 0, 0)..=(uid.0, u64::MAX, u64::MAX), |_, ()| false)?;
        Ok(())
    }

    /// Forgets tombstones at or below a timestamp that no source can go back behind. Gives how many.
    pub(crate) fn forget(&mut self, uid: Uid, floor: ResolvedTs) -> Result<u64, FabricError> {
        let range = (uid.0, 0, 0)..=(uid.0, floor.get(), u64::MAX);
        let mut doomed = Vec::new();
        for entry in self.tombstones.range(range)?.take(FORGET_MAX) {
            doomed.push(entry?.0.value());
        }
        for (uid, version, doc) in &doomed {
            self.tombstones.remove((*uid, *version, *doc))?;
            self.documents.remove((*uid, *doc))?;
        }
        Ok(u64::try_from(doomed.len()).unwrap_or(u64::MAX))
    }

    /// The receipt of an idempotency key.
    pub(crate) fn receipt(&self, uid: Uid, key: &str) -> Result<Option<Receipt>, FabricError> {
        let bytes = self.receipts.get((uid.0, key))?;
        bytes.map(|bytes| Receipt::decode(bytes.value()).map_err(damaged)).transpose()
    }

    /// Stores a receipt, and drops the oldest one beyond the limit.
    pub(crate) fn put_receipt(&mut self, uid: Uid, key: &str, receipt: &Receipt) -> Result<(), FabricError> {
        let number = self.receipt_order.last()?.map_or(0, |(number, _)| number.value()) + 1;
        self.receipts.insert((uid.0, key), receipt.encode_to_vec().as_slice())?;
        self.receipt_order.insert(number, (uid.0, key))?;
        while self.receipt_order.first()?.is_some_and(|(first, _)| number - first.value() >= RECEIPTS_MAX) {
            let Some((_, key)) = self.receipt_order.pop_first()? else { break };
            self.receipts.remove(key.value())?;
        }
        Ok(())
    }

    /// Ends a group: its number and which documents it changed.
    pub(crate) fn put_group(&mut self, group: u64, changed: &[(Uid, u64)]) -> Result<(), FabricError> {
        self.meta.insert("group", group)?;
        let mut packed = Vec::with_capacity(changed.len() * JOURNAL_ENTRY_BYTES);
        for (uid, doc) in changed {
            packed.extend_from_slice(&uid.0.to_be_bytes());
            packed.extend_from_slice(&doc.to_be_bytes());
        }
        self.journal.insert(group, packed.as_slice())?;
        let floor = group.saturating_sub(JOURNAL_GROUPS_MAX);
        while self.journal.first()?.is_some_and(|(first, _)| first.value() <= floor) {
            self.journal.pop_first()?;
        }
        Ok(())
    }

    /// Stores an event, and drops the oldest one beyond the limit.
    pub(crate) fn put_event(&mut self, event: &Event) -> Result<(), FabricError> {
        let bytes = serde_json::to_vec(event).map_err(|error| FabricError::Damaged(error.to_string()))?;
        self.events.insert(event.number, bytes.as_slice())?;
        while self.events.first()?.is_some_and(|(n, _)| n.value() + EVENTS_MAX <= event.number) {
            self.events.pop_first()?;
        }
        Ok(())
    }

    /// All kept events, oldest first.
    pub(super) fn events(&self) -> Result<Vec<Event>, FabricError> {
        let entries = self.events.iter()?.map(|entry| {
            let (_, bytes) = entry?;
            serde_json::from_slice(bytes.value()).map_err(damaged)
        });
        entries.collect()
    }
}

/// The store at one point: what was durable then.
pub(crate) struct Snapshot {
    documents: ReadOnlyTable<(u32, u64), &'static [u8]>,
    tombstones: ReadOnlyTable<(u32, u64, u64), ()>,
    journal: ReadOnlyTable<u64, &'static [u8]>,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Snapshot {
    pub(super) fn open(transaction: &ReadTransaction) -> Result<Self, FabricError> {
        Ok(Self {
            documents: transaction.open_table(DOCUMENTS)?,
            tombstones: transaction.open_table(TOMBSTONES)?,
            journal: transaction.open_table(JOURNAL)?,
        })
    }

    /// What is known of a document.
    pub(crate) fn document(&self, uid: Uid, doc: u64) -> Result<Option<Record>, FabricError> {
        match self.documents.get((uid.0, doc))? {
            Some(bytes) => record(bytes.value()).map(Some),
            None => Ok(None),
        }
    }

    /// Live documents above an id, ascending.
    pub(crate) fn scan(
        &self,
        uid: Uid,
        after: Option<u64>,
    ) -> Result<impl Iterator<Item = Result<(u64, Record), FabricError>>, FabricError> {
        let start = after.map_or(Some(0), |after| after.checked_add(1));
        // Nothing lies above the greatest id; an inverted range would be an error, so an empty one is made.
        let (start, end) =
            start.map_or(((uid.0, 1), (uid.0, 0)), |start| ((uid.0, start), (uid.0, u64::MAX)));
        let range = if start <= end { Some(self.documents.range(start..=end)?) } else { None };
        Ok(range.into_iter().flatten().filter_map(|entry| {
            let read = entry
                .map_err(FabricError::from)
                .and_then(|(key, bytes)| record(bytes.value()).map(|record| (key.value().1, record)));
            match read {
                Ok((_, record)) if !record.is_live() => None,
                other => Some(other),
            }
        }))
    }

    /// How many deletes of a collection are remembered.
    pub(crate) fn tombstones(&self, uid: Uid) -> Result<u64, FabricError> {
        let range = self.tombstones.range((uid.0, 0, 0)..=(uid.0, u64::MAX, u64::MAX))?;
        Ok(u64::try_from(range.count()).unwrap_or(u64::MAX))
    }

    /// The documents of a collection that changed after a group; `None` if the journal no longer goes back
    /// that far.
    pub(crate) fn changed_since(&self, uid: Uid, group: u64) -> Result<Option<Vec<u64>>, FabricError> {
        let reaches = self.journal.first()?.is_none_or(|(first, _)| first.value() <= group.saturating_add(1));
        if !reaches {
            return Ok(None);
        }
        let mut changed = Vec::new();
        for entry in self.journal.range(group.saturating_add(1)..)? {
            let (_, packed) = entry?;
            let (entries, _) = packed.value().as_chunks::<JOURNAL_ENTRY_BYTES>();
            changed.extend(entries.iter().filter_map(|entry| {
                let (owner, doc) = entry.split_first_chunk()?;
                let doc = doc.first_chunk()?;
                (u32::from_be_bytes(*owner) == uid.0).then(|| u64::from_be_bytes(*doc))
            }));
        }
        changed.sort_unstable();
        changed.dedup();
        Ok(Some(changed))
    }
}

fn record(bytes: &[u8]) -> Result<Record, FabricError> {
    Record::decode(bytes).ok_or_else(|| FabricError::Damaged("a stored document cannot be read".to_owned()))
}

fn damaged(error: impl std::fmt::Display) -> FabricError {
    FabricError::Damaged(error.to_string())
}
