//! What the adapter shows of itself.

use serde::Serialize;
use tidegate_core::{Diagnostic, MonoTime, ResolvedTs};

use crate::collection::{CollectionWorker, Phase};
use crate::pipeline::{Pipeline, Skipped};
use crate::stream::Stream;

/// The adapter at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AdapterStatus {
    /// What it is doing.
    pub state: AdapterState,
    /// Epoch of this run; 0 before the first.
    pub epoch: u64,
    /// How often it started over after an error.
    pub restarts: u64,
    /// Everything at or below it is durable here and at the gateway.
    pub checkpoint_ts: u64,
    /// How far the source has come.
    pub source_ts: u64,
    /// How far the checkpoint is behind the wall clock.
    pub lag_ms: u64,
    /// Rows acknowledged since the start of the process.
    pub rows_acked: u64,
    /// Rows acknowledged in the last second or so.
    pub rows_per_s: f64,
    /// Bytes of rows on their way.
    pub buffered_bytes: usize,
    /// The last error; stays until the next success.
    pub last_error: Option<StatusError>,
    /// When a retry is due, in milliseconds from this status.
    pub next_retry_ms: Option<u64>,
    /// The collections.
    pub collections: Vec<CollectionStatus>,
    /// The tables that are left out.
    pub skipped: Vec<SkippedStatus>,
}

/// What an adapter is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdapterState {
    /// Opening.
    #[default]
    Starting,
    /// Rows flow.
    Running,
    /// Waiting to start over after an error.
    Retrying,
    /// Asked to stop; waiting for acknowledgements.
    Draining,
    /// Stopped; everything that came in was acknowledged.
    Drained,
    /// Stopped before everything was acknowledged. Nothing is lost: the next start repeats it.
    ForcedAbort,
    /// Stopped by an error.
    Failed,
}

/// An error as shown to a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusError {
    /// Its code, with a page in `docs/errors/`.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

impl StatusError {
    /// An error with the sources of its message.
    pub fn of(error: &dyn Diagnostic) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            let detail = inner.to_string();
            if !message.contains(&detail) {
                message = format!("{message}: {detail}");
            }
            source = inner.source();
        }
        Self { code: error.code().to_owned(), message, hint: error.hint().map(|hint| hint.into_owned()) }
    }
}

/// One collection.
#[derive(Clone, Debug, Serialize)]
pub struct CollectionStatus {
    /// Its id.
    pub collection_id: String,
    /// Its name, `db.table`; empty before its first generation.
    pub name: String,
    /// `running`, `fencing`, `applying`, `reading` or `detached`.
    pub phase: &'static str,
    /// Generation in force; 0 before the first.
    pub schema_version: u32,
    /// Its token.
    pub schema_generation_token: String,
    /// The fence that is open.
    pub fence: Option<FenceStatus>,
    /// Why the catalogue does not answer as hoped.
    pub last_error: Option<StatusError>,
    /// Its partitions.
    pub partitions: Vec<PartitionStatus>,
}

/// An open fence.
#[derive(Clone, Debug, Serialize)]
pub struct FenceStatus {
    /// Its name.
    pub fence_id: String,
    /// The DDL.
    pub ddl_ts: u64,
    /// Physical tables whose barrier is not acknowledged.
    pub awaited: Vec<i64>,
}

/// One source partition.
#[derive(Clone, Debug, Serialize)]
pub struct PartitionStatus {
    /// Its name.
    pub source_partition: String,
    /// Acknowledged progress.
    pub acked_ts: u64,
    /// How far that is behind the wall clock.
    pub lag_ms: u64,
    /// Number of the last acknowledged entry.
    pub source_seq: u64,
    /// Rows acknowledged.
    pub rows_acked: u64,
    /// Batches acknowledged.
    pub batches_acked: u64,
    /// Rows of a replay that the gateway held already.
    pub rows_replayed: u64,
    /// Progress older than what was acknowledged.
    pub progress_discarded: u64,
    /// Batches sealed and not acknowledged.
    pub queued_batches: usize,
    /// Of these: sent and not answered.
    pub in_flight_batches: usize,
    /// Bytes of rows not acknowledged.
    pub queued_bytes: usize,
    /// How often something was sent again.
    pub retries: u64,
    /// Why the last attempt failed.
    pub last_error: Option<StatusError>,
    /// When the next attempt is due, in milliseconds from this status.
    pub next_retry_ms: Option<u64>,
}

/// A table that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedStatus {
    /// `db.table`.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Changed rows that were left out.
    pub rows: u64,
}

impl From<&Skipped> for SkippedStatus {
    fn from(skipped: &Skipped) -> Self {
        Self { name: skipped.name.clone(), reason: skipped.reason.clone(), rows: skipped.rows }
    }
}

/// How far a timestamp is behind the wall clock.
pub(crate) const fn lag_ms(ts: ResolvedTs, wall_ms: u64) -> u64 {
    wall_ms.saturating_sub(ts.physical_ms())
}

fn until(due: MonoTime, now: MonoTime) -> u64 {
    u64::try_from(due.since(now).as_millis()).unwrap_or(u64::MAX)
}

/// The parts of a status that the pipeline knows.
pub(crate) fn of_pipeline(pipeline: &Pipeline, now: MonoTime, wall_ms: u64) -> AdapterStatus {
    let collections: Vec<CollectionStatus> =
        pipeline.collections().iter().map(|worker| of_collection(worker, now, wall_ms)).collect();
    let mut skipped: Vec<SkippedStatus> = pipeline.skipped().map(SkippedStatus::from).collect();
    skipped.sort_by(|a, b| a.name.cmp(&b.name));
    AdapterStatus {
        epoch: pipeline.shared().epoch.get(),
        source_ts: pipeline.seen().get(),
        buffered_bytes: pipeline.bytes(),
        collections,
        skipped,
        ..AdapterStatus::default()
    }
}

fn of_collection(worker: &CollectionWorker, now: MonoTime, wall_ms: u64) -> CollectionStatus {
    let generation = worker.generation();
    CollectionStatus {
        collection_id: worker.collection().collection_id.clone(),
        name: generation.map_or_else(String::new, |g| g.definition.name.clone()),
        phase: match worker.phase() {
            Phase::Running => "running",
            Phase::Fencing => "fencing",
            Phase::Applying => "applying",
            Phase::Reading => "reading",
            Phase::Detached => "detached",
        },
        schema_version: generation.map_or(0, |g| g.version),
        schema_generation_token: generation.map_or_else(String::new, |g| g.token.to_string()),
        fence: worker.open_fence().map(|fence| FenceStatus {
            fence_id: fence.id().to_owned(),
            ddl_ts: fence.ddl_ts().get(),
            awaited: fence.awaited().map(|table| table.get()).collect(),
        }),
        last_error: worker.call_error().map(|breach| StatusError::of(breach)),
        partitions: worker.streams().values().map(|stream| of_stream(stream, now, wall_ms)).collect(),
    }
}

fn of_stream(stream: &Stream, now: MonoTime, wall_ms: u64) -> PartitionStatus {
    let (lane, counts) = (stream.lane(), stream.counts());
    PartitionStatus {
        source_partition: stream.name().partition.to_string(),
        acked_ts: stream.acked().get(),
        lag_ms: lag_ms(stream.acked(), wall_ms),
        source_seq: stream.cursor().map_or(0, |cursor| cursor.source_seq),
        rows_acked: counts.rows_acked,
        batches_acked: counts.batches_acked,
        rows_replayed: counts.rows_replayed,
        progress_discarded: counts.progress_discarded,
        queued_batches: lane.depth(),
        in_flight_batches: lane.in_flight(),
        queued_bytes: stream.bytes(),
        retries: lane.retries(),
        last_error: lane.last_error().map(|breach| StatusError::of(breach)),
        next_retry_ms: lane.due().map(|due| until(due, now)),
    }
}
