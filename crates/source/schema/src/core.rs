//! The state machine: databases, tables and their histories. No I/O, no clock.
//!
//! *Invariant:* nothing with a timestamp above the resolved one is shown to a reader, so jobs may be applied
//! here before they are durable.

mod apply;
#[cfg(test)]
mod cases;
mod exchange;
mod recover;
mod rename;
#[cfg(test)]
mod worked_example;

use std::{collections::BTreeSet, num::NonZeroUsize, sync::Arc};

use hashbrown::HashMap;
use tidegate_codec::{
    ddl::Job,
    event::DdlEvent,
    meta::{DbInfo, SchemaState, TableInfo},
    row::TableLayout,
};
use tidegate_core::{CommitTs, JobId, ResolvedTs, SchemaId, StartTs, TableId, Ts};

use crate::{
    SchemaError,
    catalog::{Catalog, Table, row_ids},
    history::{TableAt, TableVersion, VersionHistory},
};

/// A done job with the timestamps of the row that says so.
#[derive(Clone, Debug)]
pub struct FinishedJob {
    /// The job.
    pub job: Job,
    /// Start timestamp of the transaction that wrote the row.
    pub start_ts: StartTs,
    /// Commit timestamp of that transaction: the boundary between the schemas.
    pub commit_ts: CommitTs,
}

/// A physical table that exists at some timestamp.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhysicalTable {
    /// The physical id: of a partition, or of an unpartitioned table.
    pub id: TableId,
    /// The logical id.
    pub table_id: TableId,
    /// The database.
    pub schema_id: SchemaId,
    /// The database's name.
    pub schema: Arc<str>,
    /// The table's name.
    pub table: String,
    /// Whether a target may spread its changes over several writers.
    pub splittable: bool,
    /// Whether its rows can be told apart by a key.
    pub eligible: bool,
}

/// Some DDL events in order, and where to go on.
#[derive(Clone, Debug)]
pub struct DdlBatch {
    /// The events, by finished timestamp.
    pub events: Vec<Arc<DdlEvent>>,
    /// Ask from here (exclusive) for the next ones. Everything up to it is in `events` or was before.
    pub next: Ts,
}

/// The databases, tables and jobs that a store knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchemaCore {
    /// The oldest timestamp that can be asked for.
    base_ts: Ts,
    catalog: Catalog,
    versions: HashMap<TableId, VersionHistory>,
    /// All events, by finished timestamp.
    events: Vec<Arc<DdlEvent>>,
    /// The events that concern a physical table.
    table_events: HashMap<TableId, Vec<Arc<DdlEvent>>>,
    /// The events that concern every table.
    common_events: Vec<Arc<DdlEvent>>,
    /// Dropped databases with their tables, for FLASHBACK DATABASE.
    dropped_schemas: HashMap<SchemaId, DroppedSchema>,
    /// Tables that the base snapshot shows delete-only: on their way in or out, and nothing that SQL sees.
    half_made: HashMap<TableId, Table>,
    /// All jobs after the base, so that one that comes again is not taken for one that comes late.
    applied: BTreeSet<(CommitTs, JobId)>,
}

#[derive(Clone, Debug)]
struct DroppedSchema {
    at: CommitTs,
    tables: Vec<Arc<TableInfo>>,
}

impl SchemaCore {
    /// The state that a metadata snapshot at `base_ts` shows.
    pub(crate) fn new(
        base_ts: Ts,
        schemas: impl IntoIterator<Item = DbInfo>,
        tables: impl IntoIterator<Item = (SchemaId, TableInfo)>,
    ) -> Self {
        let mut core = Self { base_ts, ..Self::default() };
        schemas.into_iter().for_each(|schema| core.catalog.put_schema(schema));
        for (schema_id, info) in tables {
            let info = Arc::new(info);
            if info.state == SchemaState::DeleteOnly {
                core.half_made.insert(info.id, Table { schema_id, info });
            } else {
                core.install(base_ts, base_ts, schema_id, info);
            }
        }
        core
    }

    pub(crate) const fn base_ts(&self) -> Ts {
        self.base_ts
    }

    pub(crate) fn schemas(&self) -> impl Iterator<Item = &DbInfo> {
        self.catalog.schemas().map(|schema| &schema.info)
    }

    /// All tables, views and sequences, those half made too: with [`Self::schemas`] the base of a new state.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (SchemaId, &TableInfo)> {
        let tables = self.catalog.tables().chain(self.half_made.values());
        tables.map(|table| (table.schema_id, table.info.as_ref()))
    }

    /// Whether a job is part of this state: applied, or finished before the base.
    pub(crate) fn knows(&self, finished: &FinishedJob) -> bool {
        finished.commit_ts.ts() <= self.base_ts
            || self.applied.contains(&(finished.commit_ts, finished.job.id))
    }

    /// The version of physical table `id` that rows committed at `ts` + 1 were written with.
    pub(crate) fn table_at(&self, id: TableId, ts: Ts, resolved: ResolvedTs) -> Result<TableAt, SchemaError> {
        check_resolved(ts, resolved)?;
        let never = || SchemaError::NeverExisted { table_id: id, ts };
        let found =
            self.versions.get(&id).ok_or_else(never).and_then(|history| history.at(id, ts, resolved.ts()));
        match found {
            // Rows that came before their table was finished may also have come before the base.
            Ok(found) if ts >= self.base_ts || ts < found.version.from => Ok(found),
            Err(error) if ts >= self.base_ts => Err(error),
            _ => Err(SchemaError::BeforeGc { ts, oldest: self.base_ts }),
        }
    }

    /// All physical tables at `ts`, by id. Views and sequences are none.
    pub(crate) fn physical_tables_at(
        &self,
        ts: Ts,
        resolved: ResolvedTs,
    ) -> Result<Vec<PhysicalTable>, SchemaError> {
        self.check_range(ts, resolved)?;
        let mut tables: Vec<PhysicalTable> = self
            .versions
            .values()
            .filter_map(|history| history.in_force_at(ts))
            .map(physical_table)
            .collect();
        tables.sort_unstable_by_key(|table| table.id);
        Ok(tables)
    }

    /// The events of physical table `id` in `(start, end]`.
    pub(crate) fn table_ddls(
        &self,
        id: TableId,
        start: Ts,
        end: Ts,
        resolved: ResolvedTs,
    ) -> Result<Vec<Arc<DdlEvent>>, SchemaError> {
        self.check_range(start, resolved)?;
        check_resolved(end, resolved)?;
        let own = self.table_events.get(&id).map(|events| between(events, start, end)).unwrap_or_default();
        let mut events: Vec<_> =
            own.iter().chain(between(&self.common_events, start, end)).cloned().collect();
        events.sort_by_key(|event| event.finished_ts);
        Ok(events)
    }

    /// Finished timestamp of the newest event of physical table `id` up to `resolved`.
    pub(crate) fn last_table_ddl(&self, id: TableId, resolved: ResolvedTs) -> Option<CommitTs> {
        let newest = |events: &[Arc<DdlEvent>]| {
            between(events, Ts::ZERO, resolved.ts()).last().map(|event| event.finished_ts)
        };
        self.table_events.get(&id).and_then(|events| newest(events)).max(newest(&self.common_events))
    }

    /// Up to `limit` events after `start` that `wanted` selects. Events of one timestamp are never split over
    /// two batches, so a batch may exceed the limit by those of its last timestamp.
    pub(crate) fn ddls_after(
        &self,
        start: Ts,
        limit: NonZeroUsize,
        resolved: ResolvedTs,
        wanted: impl Fn(&DdlEvent) -> bool,
    ) -> Result<DdlBatch, SchemaError> {
        if resolved.ts() <= start {
            return Ok(DdlBatch { events: Vec::new(), next: start });
        }
        self.check_range(start, resolved)?;
        let mut events: Vec<Arc<DdlEvent>> = Vec::new();
        for event in between(&self.events, start, resolved.ts()).iter().filter(|event| wanted(event)) {
            let last = events.last().map(|last| last.finished_ts);
            if events.len() >= limit.get() && last != Some(event.finished_ts) {
                let next = last.unwrap_or_default().ts();
                return Ok(DdlBatch { events, next });
            }
            events.push(event.clone());
        }
        let next = if events.len() < limit.get() {
            resolved.ts()
        } else {
            events.last().map_or(resolved.ts(), |last| last.finished_ts.ts())
        };
        Ok(DdlBatch { events, next })
    }

    /// Forgets what no question at or above `oldest` can reach.
    pub(crate) fn forget_before(&mut self, oldest: Ts) {
        if oldest <= self.base_ts {
            return;
        }
        self.base_ts = oldest;
        let forget = |events: &mut Vec<Arc<DdlEvent>>| {
            let old = events.partition_point(|event| event.finished_ts.ts() <= oldest);
            events.drain(..old);
            events.is_empty()
        };
        forget(&mut self.events);
        forget(&mut self.common_events);
        self.table_events.retain(|_, events| !forget(events));
        self.versions.retain(|_, history| !history.forget_before(oldest));
        self.applied.retain(|(at, _)| at.ts() > oldest);
        self.dropped_schemas.retain(|_, dropped| dropped.at.ts() > oldest);
    }

    fn check_range(&self, ts: Ts, resolved: ResolvedTs) -> Result<(), SchemaError> {
        if ts < self.base_ts {
            return Err(SchemaError::BeforeGc { ts, oldest: self.base_ts });
        }
        check_resolved(ts, resolved)
    }

    /// Makes `info` the newest version of its table.
    fn install(&mut self, from: Ts, rows_from: Ts, schema_id: SchemaId, info: Arc<TableInfo>) {
        let layout = Arc::new(TableLayout::new(info.clone()));
        for id in row_ids(&info) {
            self.push_version(id, from, rows_from, schema_id, &layout);
        }
        self.catalog.put_table(schema_id, info);
    }

    fn push_version(
        &mut self,
        id: TableId,
        from: Ts,
        rows_from: Ts,
        schema_id: SchemaId,
        layout: &Arc<TableLayout>,
    ) {
        let schema =
            self.catalog.schema(schema_id).map_or_else(|| Arc::from(""), |schema| schema.name.clone());
        let table_id = layout.table().id;
        let layout = layout.clone();
        let version = TableVersion { id, table_id, schema_id, schema, from, rows_from, layout };
        self.versions.entry(id).or_default().push(Arc::new(version));
    }

    fn delete_versions(&mut self, ids: &[TableId], at: CommitTs) {
        for id in ids {
            self.versions.entry(*id).or_default().delete(at.ts());
        }
    }
}

fn check_resolved(ts: Ts, resolved: ResolvedTs) -> Result<(), SchemaError> {
    if ts > resolved.ts() { Err(SchemaError::NotYetResolved { ts, resolved }) } else { Ok(()) }
}

/// The part of `events` in `(start, end]`.
fn between(events: &[Arc<DdlEvent>], start: Ts, end: Ts) -> &[Arc<DdlEvent>] {
    let from = events.partition_point(|event| event.finished_ts.ts() <= start);
    let to = events.partition_point(|event| event.finished_ts.ts() <= end);
    events.get(from..to).unwrap_or_default()
}

fn physical_table(version: &Arc<TableVersion>) -> PhysicalTable {
    PhysicalTable {
        id: version.id,
        table_id: version.table_id,
        schema_id: version.schema_id,
        schema: version.schema.clone(),
        table: version.table().to_owned(),
        splittable: version.info().is_splittable(),
        eligible: version.info().is_eligible(),
    }
}
