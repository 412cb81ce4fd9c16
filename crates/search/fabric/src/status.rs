//! What the fabric says about itself: collections, generations, partitions, progress and events.

use serde::{Deserialize, Serialize};
use tidegate_core::{CommitTs, ResolvedTs};

use crate::catalog::Collection;
use crate::engine::{CollectionView, Shared, View};
use crate::query::response::Freshness;
use crate::text::layout::{Kind, Layout};
use crate::visibility::{lag_ms, modalities};

/// The whole fabric at one published state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The published state; it grows with every publication.
    pub view: u64,
    /// Whether a storage failure has stopped ingestion until the next start.
    pub poisoned: Option<String>,
    /// The collections, dropped ones included while their tombstone is kept.
    pub collections: Vec<CollectionStatus>,
    /// What happened since this process started.
    pub counters: Counters,
}

/// Counts since this process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Batches applied.
    pub batches: u64,
    /// Batches answered with the receipt of an earlier one.
    pub batches_replayed: u64,
    /// Batches refused.
    pub batches_refused: u64,
    /// Rows that changed a document.
    pub rows_applied: u64,
    /// Rows older than what their document already held.
    pub rows_stale: u64,
    /// Rows whose version is taken by other content: an alarm.
    pub rows_conflicting: u64,
    /// Rows at or below a watermark that had promised there were none left: an alarm.
    pub rows_late: u64,
    /// Groups of batches made durable together.
    pub commits: u64,
    /// States published to readers.
    pub publications: u64,
}

/// One collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectionStatus {
    /// Its name.
    pub name: String,
    /// Its id, which stays when it is renamed.
    pub id: String,
    /// When it was dropped, if it was.
    pub dropped_at: Option<CommitTs>,
    /// Documents that can be found now.
    pub documents: u64,
    /// Deletes that are remembered so that no replay can undo them.
    pub tombstones: u64,
    /// Freshness and completeness.
    pub freshness: Freshness,
    /// Schema generations, oldest first; the last one is in force.
    pub generations: Vec<GenerationStatus>,
    /// The partitions that feed it.
    pub partitions: Vec<PartitionStatus>,
    /// Fields that can be searched, filtered, sorted or counted.
    pub fields: Vec<FieldStatus>,
}

/// One schema generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its version, from 1.
    pub schema_version: u64,
    /// The token that batches encoded with it must carry.
    pub token: String,
    /// The commit timestamp of the DDL that brought it.
    pub ddl_commit_ts: CommitTs,
    /// From this commit timestamp on its successor is in force.
    pub invalidated_at: Option<CommitTs>,
    /// How it differs from its predecessor, such as `ADDITIVE`.
    pub update_policy: String,
}

/// One source partition of a collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its name, such as `table:112`.
    pub name: String,
    /// The writer generation in force (I5).
    pub epoch: u64,
    /// The last sequence number made durable.
    pub sequence: u64,
    /// Progress made durable: the source has sent everything at or below it.
    pub accepted_ts: ResolvedTs,
    /// Progress readers can see, per modality.
    pub applied_ts: Vec<ModalityProgress>,
    /// How far the slowest modality lies behind this machine's clock, in milliseconds.
    pub lag_ms: Option<u64>,
    /// Rows of it that changed a document.
    pub rows_applied: u64,
}

/// Progress of one modality.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModalityProgress {
    /// `text`, `vector`, …
    pub modality: String,
    /// Everything at or below it can be found.
    pub applied_ts: ResolvedTs,
}

/// What can be done with a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldStatus {
    /// Its name.
    pub name: String,
    /// Its type: `uint`, `int`, `float`, `decimal`, `bool`, `timestamp`, `text`, `bytes`, `json`,
    /// `vector(64)`.
    pub kind: String,
    /// Whether words can be looked for in it.
    pub searchable: bool,
    /// Whether it can be filtered by.
    pub filterable: bool,
    /// Whether it can be sorted by.
    pub sortable: bool,
    /// Whether its values can be counted.
    pub facetable: bool,
}

/// Something worth remembering: schema changes, drops, epochs, alarms, recoveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, growing without gaps.
    pub number: u64,
    /// When it was recorded, in Unix milliseconds of this machine's clock.
    pub at_ms: u64,
    /// A stable word: `collection_created`, `schema_changed`, `collection_dropped`, `partition_epoch`,
    /// `partition_retired`, `conflict`, `late_row`, `rejected`, `index_caught_up`, `index_rebuilt`.
    pub kind: String,
    /// The collection concerned.
    pub collection: Option<String>,
    /// The detail; positions and ids, never row values (I11).
    pub detail: String,
}

/// The status of everything in a namespace at the newest published state.
pub(crate) fn report(shared: &Shared, namespace: &str) -> Status {
    let view = shared.view();
    let collections = view.as_ref().map_or_else(Vec::new, |view| {
        let here =
            view.collections.values().filter(|found| found.collection.reference.namespace == namespace);
        here.map(|found| collection_status(shared, view, found)).collect()
    });
    Status {
        view: view.map_or(0, |view| view.group),
        poisoned: shared.poisoned(),
        collections,
        counters: shared.counters(),
    }
}

fn collection_status(shared: &Shared, view: &View, found: &CollectionView) -> CollectionStatus {
    let collection = &found.collection;
    let documents = found.index.as_ref().map_or(0, |index| index.searcher.num_docs());
    CollectionStatus {
        name: collection.name().to_owned(),
        id: collection.reference.collection_id.clone(),
        dropped_at: collection.dropped.as_ref().map(|dropped| dropped.at),
        documents,
        // A count that cannot be read shows in the log of the store's other reads; status must not fail.
        tombstones: view.store.tombstones(collection.uid).unwrap_or_default(),
        freshness: shared.freshness(view, collection),
        generations: generations(collection),
        partitions: partitions(shared, collection),
        fields: found.index.as_ref().map_or_else(Vec::new, |index| fields(&index.layout)),
    }
}

fn generations(collection: &Collection) -> Vec<GenerationStatus> {
    let later = collection.generations.iter().skip(1).map(|next| Some(next.ddl_commit_ts())).chain([None]);
    let described = collection.generations.iter().zip(later).map(|(generation, invalidated_at)| {
        let policy = generation.generation.update_policy().as_str_name();
        GenerationStatus {
            schema_version: u64::from(generation.generation.schema_version),
            token: generation.token().to_owned(),
            ddl_commit_ts: generation.ddl_commit_ts(),
            invalidated_at,
            update_policy: policy.trim_start_matches("SCHEMA_UPDATE_POLICY_").to_owned(),
        }
    });
    described.collect()
}

fn partitions(shared: &Shared, collection: &Collection) -> Vec<PartitionStatus> {
    let now_ms = shared.clock.wall_ms();
    let modalities = modalities(collection);
    let described = collection.feeding().map(|partition| {
        let applied: Vec<ModalityProgress> = modalities
            .iter()
            .map(|modality| ModalityProgress {
                modality: modality.as_str_name().trim_start_matches("MODALITY_").to_ascii_lowercase(),
                applied_ts: partition.applied(*modality),
            })
            .collect();
        let slowest = applied.iter().map(|progress| progress.applied_ts).min().unwrap_or_default();
        PartitionStatus {
            name: partition.name.clone(),
            epoch: partition.epoch,
            sequence: partition.seq,
            accepted_ts: partition.resolved,
            applied_ts: applied,
            lag_ms: lag_ms(slowest, now_ms),
            rows_applied: partition.rows_applied,
        }
    });
    described.collect()
}

fn fields(layout: &Layout) -> Vec<FieldStatus> {
    let described = layout.fields.iter().map(|plan| {
        let comparable = plan.number.is_some() || plan.exact.is_some() || plan.kind == Kind::Json;
        FieldStatus {
            name: plan.name.clone(),
            kind: match plan.kind {
                Kind::Bool => "bool".to_owned(),
                Kind::Int => "int".to_owned(),
                Kind::UInt => "uint".to_owned(),
                Kind::Float => "float".to_owned(),
                Kind::Timestamp => "timestamp".to_owned(),
                Kind::Decimal => "decimal".to_owned(),
                Kind::Text => "text".to_owned(),
                Kind::Bytes => "bytes".to_owned(),
                Kind::Json => "json".to_owned(),
                Kind::Vector { dimensions, .. } => format!("vector({dimensions})"),
            },
            searchable: plan.analysis.is_some() || matches!(plan.kind, Kind::Vector { .. }),
            filterable: comparable,
            sortable: comparable,
            facetable: comparable,
        }
    });
    described.collect()
}
