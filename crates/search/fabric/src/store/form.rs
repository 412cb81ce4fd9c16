//! Stored forms of collections, partitions and receipts: protobuf messages, so that fields can be added
//! without a new format.

use std::sync::Arc;

use prost::Message;
use tidegate_core::{CommitTs, ResolvedTs, StartTs};
use tidegate_proto::searchfabric::v1::{
    CollectionRef, ModalityWatermark, MutationSuccess, PartitionDisposition, SchemaGeneration,
};

use crate::catalog::{Collection, Dropped, Generation, Uid};
use crate::error::FabricError;
use crate::ingest::Partition;

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredCollection {
    #[prost(message, optional, tag = "1")]
    reference: Option<CollectionRef>,
    #[prost(message, repeated, tag = "2")]
    generations: Vec<StoredGeneration>,
    #[prost(message, optional, tag = "3")]
    dropped: Option<StoredDrop>,
    #[prost(uint64, tag = "4")]
    rows_rejected: u64,
    #[prost(uint64, tag = "5")]
    version_conflicts: u64,
    #[prost(uint64, tag = "6")]
    rows_late: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredGeneration {
    #[prost(message, optional, tag = "1")]
    generation: Option<SchemaGeneration>,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(string, tag = "3")]
    fingerprint: String,
}

#[derive(Clone, PartialEq, Message)]
struct StoredDrop {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(string, tag = "3")]
    fingerprint: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPartition {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    number: u32,
    #[prost(uint64, tag = "3")]
    start: u64,
    #[prost(uint64, tag = "4")]
    since: u64,
    #[prost(uint64, optional, tag = "5")]
    retired: Option<u64>,
    #[prost(enumeration = "PartitionDisposition", tag = "6")]
    disposition: i32,
    #[prost(uint64, tag = "7")]
    epoch: u64,
    #[prost(uint64, tag = "8")]
    seq: u64,
    #[prost(uint64, tag = "9")]
    largest: u64,
    #[prost(uint64, tag = "10")]
    promised: u64,
    #[prost(uint64, tag = "11")]
    resolved: u64,
    #[prost(message, repeated, tag = "12")]
    marks: Vec<ModalityWatermark>,
    #[prost(uint64, tag = "13")]
    rows_applied: u64,
}

/// The receipt of a batch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Receipt {
    /// The fingerprint of the content it is for.
    #[prost(string, tag = "1")]
    pub(crate) fingerprint: String,
    /// The answer that was given.
    #[prost(message, optional, tag = "2")]
    pub(crate) success: Option<MutationSuccess>,
}

impl StoredCollection {
    pub(super) fn of(collection: &Collection) -> Self {
        let generations = collection.generations.iter().map(|generation| StoredGeneration {
            generation: Some(generation.generation.clone()),
            key: generation.key.clone(),
            fingerprint: generation.fingerprint.clone(),
        });
        let dropped = collection.dropped.as_ref().map(|dropped| StoredDrop {
            at: dropped.at.get(),
            key: dropped.key.clone(),
            fingerprint: dropped.fingerprint.clone(),
        });
        Self {
            reference: Some(collection.reference.clone()),
            generations: generations.collect(),
            dropped,
            rows_rejected: collection.rows_rejected,
            version_conflicts: collection.version_conflicts,
            rows_late: collection.rows_late,
        }
    }

    pub(super) fn restore(
        self,
        uid: Uid,
        partitions: impl Iterator<Item = Partition>,
    ) -> Result<Collection, FabricError> {
        let mut collection = Collection::new(uid, self.reference.unwrap_or_default());
        for stored in self.generations {
            let generation = stored.generation.unwrap_or_default();
            let generation = Generation::new(generation, stored.key, stored.fingerprint)
                .map_err(|breach| FabricError::Damaged(format!("a stored schema is not valid: {breach}")))?;
            collection.generations.push(Arc::new(generation));
        }
        collection.dropped = self.dropped.map(|dropped| Dropped {
            at: CommitTs::new(dropped.at),
            key: dropped.key,
            fingerprint: dropped.fingerprint,
        });
        collection.partitions = partitions.map(|p| (p.name.clone(), Arc::new(p))).collect();
        collection.rows_rejected = self.rows_rejected;
        collection.version_conflicts = self.version_conflicts;
        collection.rows_late = self.rows_late;
        collection.refresh();
        Ok(collection)
    }
}

impl StoredPartition {
    pub(super) fn of(partition: &Partition) -> Self {
        let marks = partition.marks.iter();
        let marks =
            marks.map(|(modality, at)| ModalityWatermark { modality: *modality, applied_ts: at.get() });
        Self {
            name: partition.name.clone(),
            number: partition.number,
            start: partition.start.get(),
            since: partition.since.get(),
            retired: partition.retired.map(|(at, _)| at.get()),
            disposition: partition.retired.map_or(0, |(_, disposition)| disposition.into()),
            epoch: partition.epoch,
            seq: partition.seq,
            largest: partition.largest.get(),
            promised: partition.promised.get(),
            resolved: partition.resolved.get(),
            marks: marks.collect(),
            rows_applied: partition.rows_applied,
        }
    }

    pub(super) fn restore(self) -> Partition {
        let (start, since) = (StartTs::new(self.start), CommitTs::new(self.since));
        let disposition = self.disposition();
        Partition {
            retired: self.retired.map(|at| (CommitTs::new(at), disposition)),
            epoch: self.epoch,
            seq: self.seq,
            largest: CommitTs::new(self.largest),
            promised: ResolvedTs::new(self.promised),
            resolved: ResolvedTs::new(self.resolved),
            marks: self.marks.iter().map(|m| (m.modality, ResolvedTs::new(m.applied_ts))).collect(),
            rows_applied: self.rows_applied,
            ..Partition::new(self.name, self.number, start, since)
        }
    }
}
