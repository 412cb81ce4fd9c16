//! The adapter's core: source events and answers in, batches and catalogue calls out. No I/O; time is an
//! argument.
//!
//! The router: every physical table belongs to one collection, or is left out and counted. DDL moves tables
//! between these; it is applied to the routes at once, because the events behind it are already about the new
//! tables, and to the collection in its turn.

use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_codec::event::{DdlEvent, OwnedRow};
use tidegate_contract::Breach;
use tidegate_core::{MonoTime, ResolvedTs, TableId, Ts};
use tidegate_mini::{Checkpoint, LiveTable};
use tidegate_proto::searchfabric::v1::{
    Collection, CollectionRef, CollectionState, MutationAck, MutationBatch, PartitionDisposition,
    SchemaGeneration,
};

use crate::collection::{CatalogCall, CollectionWorker, ReadRequest, Shared, Work};
use crate::error::AdapterError;
use crate::lineage::{Generation, Lineage};
use crate::options::Unadmitted;
use crate::resolver::{Reread, Roster, SourceTable, TableChange, changes, same_meaning, table_context};
use crate::source::SourceEvent;

/// A collection as the catalogue knew it at the start.
#[derive(Debug)]
pub struct Known {
    collection: CollectionRef,
    lineage: Lineage,
    dropped_at: Option<Ts>,
}

impl Known {
    /// Compiles what the catalogue sent.
    ///
    /// # Errors
    /// A definition that breaks the contract.
    pub fn new(sent: Collection) -> Result<Self, Breach> {
        let dropped = sent.state() == CollectionState::Dropped;
        Ok(Self {
            lineage: Lineage::new(&sent.generations)?,
            collection: sent.collection.unwrap_or_default(),
            dropped_at: dropped.then(|| Ts::new(sent.dropped_at_ts)),
        })
    }
}

/// Where a physical table's rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Collection(usize),
    /// Left out; the logical table.
    Skipped(TableId),
}

#[derive(Debug)]
struct Routed {
    index: usize,
    /// Database of the table, for DROP DATABASE.
    schema: String,
}

/// A table that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// `db.table`.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Changed rows that were left out.
    pub rows: u64,
}

/// The answer to a catalogue call.
#[derive(Debug)]
pub enum CatalogAnswer {
    /// The generation is in force.
    Applied(SchemaGeneration),
    /// The collection is dropped.
    Dropped,
    /// Not now.
    Later(Breach),
    /// No.
    Refused(Breach),
}

/// The core.
#[derive(Debug)]
pub struct Pipeline {
    shared: Shared,
    known: Vec<Known>,
    start: ResolvedTs,
    started: bool,
    seen: ResolvedTs,
    collections: Vec<CollectionWorker>,
    logical: HashMap<TableId, Routed>,
    routes: HashMap<TableId, Route>,
    partitions: HashMap<String, TableId>,
    by_id: HashMap<String, usize>,
    skipped: HashMap<TableId, Skipped>,
    /// Which collection may send first, so that none is always last.
    turn: usize,
}

impl Pipeline {
    /// A pipeline that starts (again) at `start` with what the catalogue knows.
    pub fn new(shared: Shared, known: Vec<Known>, start: ResolvedTs) -> Self {
        Self {
            shared,
            known,
            start,
            started: false,
            seen: start,
            collections: Vec::new(),
            logical: HashMap::new(),
            routes: HashMap::new(),
            partitions: HashMap::new(),
            by_id: HashMap::new(),
            skipped: HashMap::new(),
            turn: 0,
        }
    }

    /// Takes one event of the source.
    ///
    /// # Errors
    /// What cannot be carried on.
    pub fn event(&mut self, event: SourceEvent, now: MonoTime) -> Result<(), AdapterError> {
        let started = std::mem::replace(&mut self.started, true);
        match event {
            // Later joins follow a DDL, which has set the routes.
            SourceEvent::Joined(_) if started => Ok(()),
            SourceEvent::Joined(tables) => self.tables_of_start(&tables, now),
            SourceEvent::Rows(run) => match self.routes.get(&run.table) {
                Some(Route::Collection(index)) => self.work(*index, Work::Rows(run), now),
                Some(Route::Skipped(logical)) => {
                    if let Some(skipped) = self.skipped.get_mut(logical) {
                        skipped.rows += u64::try_from(run.rows.len()).unwrap_or(u64::MAX);
                    }
                    Ok(())
                }
                None => Err(AdapterError::Ended("route of a partition with rows")),
            },
            SourceEvent::Ddl(ddl) => self.ddl(&ddl, now),
            SourceEvent::Progress(checkpoint) => self.progress(&checkpoint, now),
        }
    }

    fn work(&mut self, index: usize, work: Work, now: MonoTime) -> Result<(), AdapterError> {
        match self.collections.get_mut(index) {
            Some(worker) => worker.work(work, now, &self.shared),
            None => Ok(()),
        }
    }

    fn progress(&mut self, checkpoint: &Checkpoint, now: MonoTime) -> Result<(), AdapterError> {
        for (table, resolved) in checkpoint.tables() {
            if let Some(Route::Collection(index)) = self.routes.get(&table) {
                self.work(*index, Work::Progress(table, resolved), now)?;
            }
        }
        self.seen = checkpoint.global();
        Ok(())
    }

    fn tables_of_start(&mut self, tables: &[LiveTable], now: MonoTime) -> Result<(), AdapterError> {
        let mut logical: Vec<&LiveTable> = tables.iter().collect();
        logical.sort_by_key(|table| (table.version.table_id, table.id));
        logical.dedup_by_key(|table| table.version.table_id);
        for table in logical {
            let version = &table.version;
            let table = SourceTable {
                schema: version.schema.to_string(),
                name: version.table().to_owned(),
                info: Arc::clone(version.layout.shared_table()),
            };
            let roster = Roster {
                ts: self.start.ts(),
                read_from: HashMap::new(),
                disposition: PartitionDisposition::KeepDocuments,
                reread: Reread::Nothing,
                context: table_context(&table),
            };
            if !self.resume(&table, &roster)? {
                self.create(table, roster, now)?;
            }
        }
        Ok(())
    }

    /// Goes on with the collection that followed `table` before; `false` if none did.
    fn resume(&mut self, table: &SourceTable, roster: &Roster) -> Result<bool, AdapterError> {
        let at = self.start.ts();
        let follows = |known: &&Known| {
            known.dropped_at.is_none_or(|dropped| dropped > at)
                && known.lineage.at(at).is_some_and(|g| g.source_table() == Some(table.info.id))
        };
        let Some(known) = self.known.iter().find(follows) else { return Ok(false) };
        let collection = known.collection.clone();
        let worker = match known.lineage.at(at).filter(|_| known.dropped_at.is_none()) {
            None => CollectionWorker::detached(collection, &self.shared),
            Some(generation) => {
                let generation = generation.clone();
                let now_is = self.shared.resolver.define(table, Some(&generation.definition), roster)?;
                if !same_meaning(&generation.definition, &now_is) {
                    let (table, schema_version) = (table.full_name(), generation.version);
                    return Err(AdapterError::Drift { table, schema_version, at: self.start });
                }
                self.check_held(&collection.collection_id, &generation, &known.lineage)?;
                let lineage = known.lineage.clone();
                CollectionWorker::resume(collection, lineage, generation, self.start, &self.shared)
            }
        };
        self.add(worker, table);
        Ok(true)
    }

    /// Checks that nothing lies between what the gateway holds and where this run starts.
    fn check_held(
        &self,
        collection_id: &str,
        generation: &Generation,
        lineage: &Lineage,
    ) -> Result<(), AdapterError> {
        for partition in &generation.definition.source_partitions {
            let name = &partition.source_partition;
            let key = (collection_id.to_owned(), name.clone());
            let resolved = self.shared.held.get(&key).map_or(Ts::ZERO, |held| held.resolved.ts());
            let held = resolved.max(lineage.proven(name));
            if held < self.start.ts() {
                let (partition, held) = (name.clone(), held.as_resolved());
                return Err(AdapterError::GatewayLost { partition, held, acknowledged: self.start });
            }
        }
        Ok(())
    }

    fn add(&mut self, worker: CollectionWorker, table: &SourceTable) {
        let index = self.collections.len();
        self.by_id.insert(worker.collection().collection_id.clone(), index);
        self.collections.push(worker);
        self.route(table, index);
    }

    fn route(&mut self, table: &SourceTable, index: usize) {
        self.logical.insert(table.info.id, Routed { index, schema: table.schema.clone() });
        for physical in table.info.physical_ids() {
            self.set_route(physical, Route::Collection(index));
        }
    }

    fn set_route(&mut self, physical: TableId, route: Route) {
        self.partitions.insert(self.shared.resolver.partition(physical).to_string(), physical);
        self.routes.insert(physical, route);
    }

    /// Begins a collection for a table that has none, or leaves the table out.
    fn create(&mut self, table: SourceTable, roster: Roster, now: MonoTime) -> Result<(), AdapterError> {
        match self.shared.resolver.define(&table, None, &roster) {
            Ok(_) => {
                let worker = CollectionWorker::new(self.new_id(table.info.id, roster.ts), &self.shared);
                self.add(worker, &table);
                self.work(self.collections.len().saturating_sub(1), Work::Change(table, roster), now)
            }
            Err(AdapterError::Inadmissible { reason, .. })
                if self.shared.options.unadmitted == Unadmitted::Skip =>
            {
                self.skip(&table, reason.to_string());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn skip(&mut self, table: &SourceTable, reason: String) {
        tracing::warn!(table = table.full_name(), reason, "table is left out");
        let logical = table.info.id;
        self.skipped.insert(logical, Skipped { name: table.full_name(), reason, rows: 0 });
        for physical in table.info.physical_ids() {
            self.set_route(physical, Route::Skipped(logical));
        }
    }

    /// The id of a new collection: the table's own id, which is unique for ever in its cluster, unless that
    /// table was dropped and brought back. A replay gives the same.
    fn new_id(&self, logical: TableId, ddl_ts: Ts) -> CollectionRef {
        let plain = format!("table-{logical}");
        let used = |known: &Known| {
            known.collection.collection_id == plain
                && known.dropped_at.is_some_and(|dropped| dropped < ddl_ts)
        };
        let collection_id =
            if self.known.iter().any(used) { format!("table-{logical}-{ddl_ts}") } else { plain };
        CollectionRef { namespace: self.shared.options.namespace.clone(), collection_id }
    }

    fn ddl(&mut self, ddl: &DdlEvent, now: MonoTime) -> Result<(), AdapterError> {
        let ddl_ts = ddl.finished_ts.ts();
        for change in changes(ddl)? {
            match change {
                TableChange::Now { table, replaces, roster } => {
                    self.table_now(table, replaces, roster, now)?
                }
                TableChange::Dropped(logical) => self.table_dropped(logical, ddl_ts, now)?,
                TableChange::SchemaDropped(schema) => {
                    let inside = |routed: &Routed| routed.schema.eq_ignore_ascii_case(&schema);
                    let mut gone: Vec<TableId> =
                        self.logical.iter().filter(|(_, r)| inside(r)).map(|(id, _)| *id).collect();
                    gone.sort_unstable();
                    for logical in gone {
                        self.table_dropped(logical, ddl_ts, now)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn table_now(
        &mut self,
        table: SourceTable,
        replaces: Option<TableId>,
        roster: Roster,
        now: MonoTime,
    ) -> Result<(), AdapterError> {
        let before = replaces.unwrap_or(table.info.id);
        if let Some(routed) = self.logical.remove(&before) {
            self.route(&table, routed.index);
            return self.work(routed.index, Work::Change(table, roster), now);
        }
        match self.skipped.remove(&before) {
            // Its earlier rows are not in any collection, so it stays out even if it could be let in now.
            Some(skipped) => {
                let rows = skipped.rows;
                self.skip(&table, skipped.reason);
                if let Some(skipped) = self.skipped.get_mut(&table.info.id) {
                    skipped.rows = rows;
                }
                Ok(())
            }
            None => self.create(table, roster, now),
        }
    }

    fn table_dropped(&mut self, logical: TableId, ddl_ts: Ts, now: MonoTime) -> Result<(), AdapterError> {
        self.skipped.remove(&logical);
        match self.logical.remove(&logical) {
            Some(routed) => self.work(routed.index, Work::Drop(ddl_ts), now),
            None => Ok(()),
        }
    }

    /// The batches to send now: each collection in turn, up to the limit of what may be unanswered.
    pub fn poll_batches(&mut self, now: MonoTime) -> Vec<MutationBatch> {
        let lanes = self.collections.iter().flat_map(|c| c.streams().values());
        let in_flight: usize = lanes.map(|stream| stream.lane().in_flight()).sum();
        let mut room = self.shared.options.dispatch.in_flight_max.saturating_sub(in_flight);
        let mut batches = Vec::new();
        self.turn = (self.turn + 1) % self.collections.len().max(1);
        let turn = self.turn.min(self.collections.len());
        let (later, first) = self.collections.split_at_mut(turn);
        for worker in first.iter_mut().chain(later) {
            let tables: Vec<TableId> = worker.streams().keys().copied().collect();
            for table in tables {
                while room > 0
                    && let Some(batch) = worker.poll_batch(table, now)
                {
                    batches.push(batch.message.clone());
                    room -= 1;
                }
            }
        }
        batches
    }

    /// The catalogue calls to make now, each with the collection it is about.
    pub fn poll_calls(&mut self, now: MonoTime) -> Vec<(usize, CatalogCall)> {
        let workers = self.collections.iter_mut().enumerate();
        workers.filter_map(|(index, worker)| Some((index, worker.poll_call(now)?))).collect()
    }

    /// Takes an answer of the gateway; returns whether a checkpoint moved.
    ///
    /// # Errors
    /// The gateway refuses for good.
    pub fn answer(&mut self, ack: MutationAck, now: MonoTime) -> Result<bool, AdapterError> {
        let partition = ack.stream_identity.as_ref().map_or("", |stream| stream.source_partition.as_str());
        let Some(table) = self.partitions.get(partition).copied() else { return Ok(false) };
        // By the collection it was sent to: the partition may belong to another one by now.
        let collection = ack.collection.as_ref().map_or("", |c| c.collection_id.as_str());
        let worker = self.by_id.get(collection).and_then(|index| self.collections.get_mut(*index));
        worker.map_or(Ok(false), |worker| worker.answer(table, ack, now))
    }

    /// What is to be read now, each with the collection it is for.
    pub fn poll_reads(&mut self) -> Vec<(usize, ReadRequest)> {
        let workers = self.collections.iter_mut().enumerate();
        workers.filter_map(|(index, worker)| Some((index, worker.poll_read()?))).collect()
    }

    /// Takes rows that were read for the collection `index`; all of one physical table.
    ///
    /// # Errors
    /// A row that cannot be carried on.
    pub fn rows_read(&mut self, index: usize, rows: Vec<OwnedRow>) -> Result<(), AdapterError> {
        self.collections.get_mut(index).map_or(Ok(()), |worker| worker.rows_read(rows))
    }

    /// Everything that was to be read for the collection `index` has been taken.
    ///
    /// # Errors
    /// What waited for it cannot be carried on.
    pub fn read_done(&mut self, index: usize, now: MonoTime) -> Result<(), AdapterError> {
        self.collections.get_mut(index).map_or(Ok(()), |worker| worker.read_done(now, &self.shared))
    }

    /// Takes the catalogue's answer about the collection `index`.
    ///
    /// # Errors
    /// The catalogue refuses for good, or what waited for it cannot be carried on.
    pub fn catalog_answer(
        &mut self,
        index: usize,
        answer: CatalogAnswer,
        now: MonoTime,
    ) -> Result<(), AdapterError> {
        let Some(worker) = self.collections.get_mut(index) else { return Ok(()) };
        match answer {
            CatalogAnswer::Later(breach) => worker.call_failed(breach, now),
            CatalogAnswer::Dropped => worker.dropped(),
            CatalogAnswer::Applied(generation) => {
                let refused = |breach| AdapterError::Refused { what: "a schema".to_owned(), breach };
                worker.applied(Generation::new(&generation).map_err(refused)?, now, &self.shared)?;
            }
            CatalogAnswer::Refused(breach) => {
                let what = format!("a schema change of {}", worker.collection().collection_id);
                return Err(AdapterError::Refused { what, breach });
            }
        }
        Ok(())
    }

    /// The stream to the gateway broke: what is not acknowledged is sent again.
    pub fn stream_lost(&mut self) {
        self.collections.iter_mut().for_each(CollectionWorker::stream_lost);
    }

    /// Everything at or below it is durable at the gateway, in every collection: a start from it loses
    /// nothing.
    pub fn resume_ts(&self) -> ResolvedTs {
        let floors = self.collections.iter().filter_map(CollectionWorker::floor);
        let floor = floors.min().unwrap_or(self.seen).min(self.seen);
        floor.max(self.start)
    }

    /// How far the source has come.
    pub const fn seen(&self) -> ResolvedTs {
        self.seen
    }

    /// When something is due although nothing else happens.
    pub fn due(&self) -> Option<MonoTime> {
        self.collections.iter().filter_map(CollectionWorker::due).min()
    }

    /// Bytes of rows that are in the pipeline.
    pub fn bytes(&self) -> usize {
        self.collections.iter().map(CollectionWorker::bytes).sum()
    }

    /// Whether the pipeline has room for more rows.
    pub fn has_room(&self) -> bool {
        self.bytes() < self.shared.options.dispatch.buffered_bytes_max
    }

    /// Whether everything that came in is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.collections.iter().all(CollectionWorker::is_idle)
    }

    /// The collections, to look at.
    pub fn collections(&self) -> &[CollectionWorker] {
        &self.collections
    }

    /// The tables that are left out.
    pub fn skipped(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.values()
    }

    /// What all workers share.
    pub const fn shared(&self) -> &Shared {
        &self.shared
    }
}
