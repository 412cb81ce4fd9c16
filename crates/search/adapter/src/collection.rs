//! CollectionWorker: everything about one collection, as a state machine.
//!
//! Work comes in the source's order and is done in that order. A search-affecting DDL stops the collection:
//! its partitions send their barriers, then the catalogue is asked for the next generation, then the
//! partitions go on under it. Work that comes meanwhile waits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidegate_codec::event::OwnedRow;
use tidegate_codec::row::TableLayout;
use tidegate_contract::Breach;
use tidegate_contract::schema::classify;
use tidegate_core::{ClusterId, MonoTime, ResolvedTs, TableId, Ts};
use tidegate_mini::bridge::{SealedRow, SealedRun, SourceEpoch, SourceSeq};
use tidegate_proto::searchfabric::v1::{
    ClientKind, CollectionRef, CollectionSchemaDefinition, DropCollectionRequest, MutationAck,
    PutCollectionSchemaRequest, RequestMeta, SchemaScope,
};

use crate::backoff::Backoff;
use crate::batch::{SealedBatch, StreamName};
use crate::error::AdapterError;
use crate::fence::Fence;
use crate::lineage::{Generation, Lineage, partition_ids};
use crate::options::AdapterOptions;
use crate::resolver::{Reread, Roster, SchemaResolver, SourceTable, is_rewritten, same_meaning};
use crate::stream::{Held, Stream};
use crate::transform::Transformer;

/// What every worker of an adapter shares.
#[derive(Debug)]
pub struct Shared {
    /// The options.
    pub options: AdapterOptions,
    /// Builds definitions.
    pub resolver: SchemaResolver,
    /// The source cluster.
    pub cluster: ClusterId,
    /// The epoch of this run.
    pub epoch: SourceEpoch,
    /// What the gateway held of each partition at the start, by collection and name.
    pub held: BTreeMap<(String, String), Held>,
}

/// One piece of work, in the source's order.
#[derive(Debug)]
pub enum Work {
    /// Sealed rows of one partition.
    Rows(SealedRun<OwnedRow>),
    /// Progress of one partition.
    Progress(TableId, ResolvedTs),
    /// A DDL: the table is now like this.
    Change(SourceTable, Roster),
    /// A DDL: the table is gone.
    Drop(Ts),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Rows(run) => run.rows.iter().map(|row| row.row.size_bytes()).sum(),
            _ => 0,
        }
    }

    fn ddl_ts(&self) -> Option<Ts> {
        match self {
            Self::Change(_, roster) => Some(roster.ts),
            Self::Drop(ts) => Some(*ts),
            _ => None,
        }
    }
}

/// A call to the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogCall {
    /// Begin a generation.
    Put(Box<PutCollectionSchemaRequest>),
    /// End the collection.
    Drop(Box<DropCollectionRequest>),
}

/// Where a collection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows flow.
    Running,
    /// Barriers are out.
    Fencing,
    /// The catalogue is asked.
    Applying,
    /// Rows that no event tells are read.
    Reading,
    /// Dropped; nothing more is sent.
    Detached,
}

#[derive(Debug)]
enum State {
    Running,
    Fencing(Fence, Step),
    Applying(Applying),
    Reading(Reading),
    Detached,
}

/// What a DDL asks for once every partition has stopped.
#[derive(Clone, Debug)]
struct Step {
    call: CatalogCall,
    read: Option<ReadRequest>,
}

/// Rows to read as of a timestamp.
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// As of when; the rows come with this commit timestamp.
    pub at: Ts,
    /// The physical tables.
    pub tables: Vec<TableId>,
    /// How to read their rows.
    pub layout: Arc<TableLayout>,
}

#[derive(Debug)]
struct Reading {
    at: Ts,
    /// Not yet taken by whoever reads.
    request: Option<ReadRequest>,
}

#[derive(Debug)]
struct Applying {
    ddl_ts: Ts,
    step: Step,
    /// When to ask (again); `None` while a call is out.
    due: Option<MonoTime>,
    error: Option<Breach>,
}

/// What of the table no event tells after the change.
fn read_request(
    table: &SourceTable,
    roster: &Roster,
    prev: Option<&CollectionSchemaDefinition>,
    next: &CollectionSchemaDefinition,
) -> Option<ReadRequest> {
    let rewritten = prev.is_some_and(|prev| next.fields.iter().any(|f| is_rewritten(prev, f, table, roster)));
    let known = |id: &TableId| {
        let lists = |d: &CollectionSchemaDefinition| partition_ids(d).any(|known| known == *id);
        prev.is_some_and(lists)
    };
    let mut tables = table.info.physical_ids();
    match roster.reread {
        _ if rewritten => {}
        Reread::Added => tables.retain(|id| !known(id)),
        Reread::Nothing | Reread::Replacing => return None,
    }
    let layout = Arc::new(TableLayout::new(Arc::clone(&table.info)));
    Some(ReadRequest { at: roster.ts, tables, layout })
}

/// One collection.
#[derive(Debug)]
pub struct CollectionWorker {
    collection: CollectionRef,
    lineage: Lineage,
    generation: Option<Generation>,
    streams: BTreeMap<TableId, Stream>,
    waiting: VecDeque<Work>,
    waiting_bytes: usize,
    state: State,
    backoff: Backoff,
    transformer: Transformer,
    /// Numbers at which streams of retired partitions stopped, in case they come back in this epoch.
    retired: BTreeMap<TableId, u64>,
}

impl CollectionWorker {
    /// A collection that does not exist yet; its first work is the change that creates it.
    pub fn new(collection: CollectionRef, shared: &Shared) -> Self {
        let limits = &shared.options.dispatch;
        Self {
            collection,
            lineage: Lineage::default(),
            generation: None,
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            state: State::Running,
            backoff: Backoff::new(limits.backoff_min, limits.backoff_max, 1),
            transformer: Transformer::default(),
            retired: BTreeMap::new(),
        }
    }

    /// A collection that the catalogue knows, resumed at `from` with the generation that was in force there.
    pub fn resume(
        collection: CollectionRef,
        lineage: Lineage,
        generation: Generation,
        from: ResolvedTs,
        shared: &Shared,
    ) -> Self {
        let mut worker = Self::new(collection, shared);
        worker.lineage = lineage;
        for table in generation.tables() {
            worker.open_stream(table, &generation, from, shared);
        }
        worker.generation = Some(generation);
        worker
    }

    /// A collection whose end is already known to the catalogue: everything about it is ignored.
    pub fn detached(collection: CollectionRef, shared: &Shared) -> Self {
        Self { state: State::Detached, ..Self::new(collection, shared) }
    }

    fn open_stream(&mut self, table: TableId, generation: &Generation, from: ResolvedTs, shared: &Shared) {
        let partition = shared.resolver.partition(table);
        let key = (self.collection.collection_id.clone(), partition.to_string());
        let held = shared.held.get(&key).copied().unwrap_or_default();
        let next_seq = self.retired.remove(&table).unwrap_or(1);
        let name = StreamName {
            client_id: shared.options.client_id.clone(),
            collection: self.collection.clone(),
            partition,
            epoch: shared.epoch,
        };
        let options = &shared.options;
        let stream = Stream::new(name, generation, from, held, next_seq, options.batch, &options.dispatch);
        self.streams.insert(table, stream);
    }

    /// Takes work.
    ///
    /// # Errors
    /// A row or a DDL that cannot be carried on.
    pub fn work(&mut self, work: Work, now: MonoTime, shared: &Shared) -> Result<(), AdapterError> {
        if matches!(self.state, State::Detached) {
            return Ok(());
        }
        self.waiting_bytes += work.bytes();
        self.waiting.push_back(work);
        self.drain(now, shared)
    }

    /// Does waiting work until it is done or a DDL stops it.
    fn drain(&mut self, now: MonoTime, shared: &Shared) -> Result<(), AdapterError> {
        while matches!(self.state, State::Running) {
            let Some(work) = self.waiting.pop_front() else { return Ok(()) };
            self.waiting_bytes -= work.bytes();
            match work {
                Work::Rows(run) => self.rows(run)?,
                Work::Progress(table, resolved) => {
                    if let Some(stream) = self.streams.get_mut(&table) {
                        stream.progress(resolved);
                    }
                }
                Work::Change(table, roster) => self.change(&table, &roster, now, shared)?,
                Work::Drop(ddl_ts) => self.drop_collection(ddl_ts, now, shared),
            }
        }
        Ok(())
    }

    fn rows(&mut self, run: SealedRun<OwnedRow>) -> Result<(), AdapterError> {
        self.carry(run.table, run.rows)
    }

    fn carry(&mut self, table: TableId, mut rows: Vec<SealedRow<OwnedRow>>) -> Result<(), AdapterError> {
        let (Some(stream), Some(generation)) = (self.streams.get_mut(&table), &self.generation) else {
            return Err(AdapterError::Ended("stream of a partition with rows"));
        };
        rows.retain(|row| !stream.holds(row.commit_ts));
        for mutation in self.transformer.transform(&rows, generation)? {
            stream.row(mutation);
        }
        Ok(())
    }

    fn change(
        &mut self,
        table: &SourceTable,
        roster: &Roster,
        now: MonoTime,
        shared: &Shared,
    ) -> Result<(), AdapterError> {
        let prev = self.generation.as_ref().map(|generation| &*generation.definition);
        let definition = shared.resolver.define(table, prev, roster)?;
        if prev.is_some_and(|prev| same_meaning(prev, &definition)) {
            return Ok(());
        }
        let read = read_request(table, roster, prev, &definition);
        let (fence, schema_version) = self.lineage.fence(roster.ts);
        let request = PutCollectionSchemaRequest {
            meta: Some(self.ddl_meta(roster.ts, roster.context.ddl_job_id, shared)),
            scope: Some(self.scope(roster.ts)),
            schema_version,
            fence: Some(fence),
            update_policy: classify(prev, &definition).into(),
            definition: Some(definition),
        };
        self.fence(roster.ts, Step { call: CatalogCall::Put(Box::new(request)), read }, now);
        Ok(())
    }

    fn drop_collection(&mut self, ddl_ts: Ts, now: MonoTime, shared: &Shared) {
        let request = DropCollectionRequest {
            meta: Some(self.ddl_meta(ddl_ts, 0, shared)),
            scope: Some(self.scope(ddl_ts)),
            fence: Some(self.lineage.fence(ddl_ts).0),
        };
        self.fence(ddl_ts, Step { call: CatalogCall::Drop(Box::new(request)), read: None }, now);
    }

    /// The same for every replay of the DDL (`spec/mini-cdc.md` §5.5 rule 5).
    fn ddl_meta(&self, ddl_ts: Ts, job: i64, shared: &Shared) -> RequestMeta {
        let id = &self.collection.collection_id;
        RequestMeta {
            client_id: shared.options.client_id.clone(),
            client_kind: ClientKind::TidbDdlAdapter.into(),
            idempotency_key: format!("ddl/{}/{job}/{ddl_ts}/{id}", shared.cluster),
        }
    }

    fn scope(&self, ddl_ts: Ts) -> SchemaScope {
        SchemaScope { collection: Some(self.collection.clone()), ddl_commit_ts: ddl_ts.get() }
    }

    fn fence(&mut self, ddl_ts: Ts, step: Step, now: MonoTime) {
        let fence = Fence::open(&self.collection.collection_id, ddl_ts, self.streams.keys().copied());
        for stream in self.streams.values_mut() {
            stream.barrier(ddl_ts, fence.id());
        }
        self.state = State::Fencing(fence, step);
        self.apply_if_complete(now);
    }

    fn apply_if_complete(&mut self, now: MonoTime) {
        if let State::Fencing(fence, step) = &self.state
            && fence.is_complete()
        {
            let (ddl_ts, step) = (fence.ddl_ts(), step.clone());
            self.state = State::Applying(Applying { ddl_ts, step, due: Some(now), error: None });
        }
    }

    /// The call to make now, if one is due. It is made once until its answer comes.
    pub fn poll_call(&mut self, now: MonoTime) -> Option<CatalogCall> {
        let State::Applying(applying) = &mut self.state else { return None };
        applying.due.filter(|due| *due <= now)?;
        applying.due = None;
        Some(applying.step.call.clone())
    }

    /// The catalogue cannot be reached or says "not now": ask again later.
    pub fn call_failed(&mut self, breach: Breach, now: MonoTime) {
        if let State::Applying(applying) = &mut self.state {
            applying.due = Some(self.backoff.fail(now, std::time::Duration::ZERO));
            applying.error = Some(breach);
        }
    }

    /// The catalogue has begun the generation: the whole collection resumes under it, after reading the rows
    /// that no event tells.
    ///
    /// # Errors
    /// Waiting work that cannot be carried on.
    pub fn applied(&mut self, next: Generation, now: MonoTime, shared: &Shared) -> Result<(), AdapterError> {
        self.backoff.succeed();
        self.lineage.insert(next.clone());
        let live: Vec<TableId> = next.tables().collect();
        for (table, stream) in &self.streams {
            if !live.contains(table) {
                self.retired.insert(*table, stream.next_seq());
            }
        }
        self.streams.retain(|table, _| live.contains(table));
        for stream in self.streams.values_mut() {
            stream.switch(&next);
        }
        // A reader just below the DDL sees the table before it, so that is where new partitions begin.
        let from = next.ddl_ts.prev().as_resolved();
        for table in live {
            if !self.streams.contains_key(&table) {
                self.open_stream(table, &next, from, shared);
            }
        }
        self.generation = Some(next);
        let read = match std::mem::replace(&mut self.state, State::Running) {
            State::Applying(applying) => applying.step.read,
            _ => None,
        };
        self.read(read);
        self.drain(now, shared)
    }

    /// Begins to read, except what the gateway is known to hold.
    fn read(&mut self, request: Option<ReadRequest>) {
        let Some(mut request) = request else { return };
        request.tables.retain(|table| self.streams.get(table).is_some_and(|stream| !stream.held(request.at)));
        if !request.tables.is_empty() {
            self.state = State::Reading(Reading { at: request.at, request: Some(request) });
        }
    }

    /// What is to be read now; given out once.
    pub fn poll_read(&mut self) -> Option<ReadRequest> {
        match &mut self.state {
            State::Reading(reading) => reading.request.take(),
            _ => None,
        }
    }

    /// Takes rows that were read.
    ///
    /// # Errors
    /// A row that cannot be carried on.
    pub fn rows_read(&mut self, rows: Vec<OwnedRow>) -> Result<(), AdapterError> {
        let Some(table) = rows.first().map(|row| row.table_id) else { return Ok(()) };
        let sealed = |row: OwnedRow| SealedRow { seq: SourceSeq::FIRST, commit_ts: row.commit_ts(), row };
        self.carry(table, rows.into_iter().map(sealed).collect())
    }

    /// Everything that was to be read has been taken.
    ///
    /// # Errors
    /// Waiting work that cannot be carried on.
    pub fn read_done(&mut self, now: MonoTime, shared: &Shared) -> Result<(), AdapterError> {
        if matches!(self.state, State::Reading(_)) {
            self.state = State::Running;
        }
        self.drain(now, shared)
    }

    /// The catalogue has dropped the collection.
    pub fn dropped(&mut self) {
        self.state = State::Detached;
        self.streams.clear();
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// The next batch of `table` to send.
    pub fn poll_batch(&mut self, table: TableId, now: MonoTime) -> Option<&SealedBatch> {
        self.streams.get_mut(&table)?.poll(now)
    }

    /// Takes an answer for `table`; returns whether a checkpoint moved.
    ///
    /// # Errors
    /// The gateway refuses for good.
    pub fn answer(&mut self, table: TableId, ack: MutationAck, now: MonoTime) -> Result<bool, AdapterError> {
        let Some(stream) = self.streams.get_mut(&table) else { return Ok(false) };
        let acked = stream.answer(ack, now).map_err(|breach| AdapterError::Refused {
            what: format!("a batch of {}", stream.name().partition),
            breach,
        })?;
        if let State::Fencing(fence, _) = &mut self.state {
            for barrier in &acked.barriers {
                fence.acknowledged(table, barrier);
            }
            self.apply_if_complete(now);
        }
        Ok(acked.moved)
    }

    /// The stream to the gateway broke.
    pub fn stream_lost(&mut self) {
        self.streams.values_mut().for_each(Stream::stream_lost);
    }

    /// Everything about this collection at or below it is durable; `None` when nothing is asked of it any
    /// more.
    pub fn floor(&self) -> Option<ResolvedTs> {
        if matches!(self.state, State::Detached) {
            return None;
        }
        let open_ddl = match &self.state {
            State::Fencing(fence, _) => Some(fence.ddl_ts()),
            State::Applying(applying) => Some(applying.ddl_ts),
            State::Reading(reading) => Some(reading.at),
            _ => self.waiting.iter().find_map(Work::ddl_ts),
        };
        let acked = self.streams.values().map(Stream::acked).min();
        acked.into_iter().chain(open_ddl.map(|ts| ts.prev().as_resolved())).min()
    }

    /// When something is due although nothing else happens.
    pub fn due(&self) -> Option<MonoTime> {
        let call = match &self.state {
            State::Applying(applying) => applying.due,
            _ => None,
        };
        self.streams.values().filter_map(|stream| stream.lane().due()).chain(call).min()
    }

    /// Bytes of rows that wait or are not acknowledged.
    pub fn bytes(&self) -> usize {
        self.waiting_bytes + self.streams.values().map(Stream::bytes).sum::<usize>()
    }

    /// Whether everything given to this collection is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && matches!(self.state, State::Running | State::Detached)
            && self.streams.values().all(|stream| stream.lane().is_idle())
    }

    /// Where it stands.
    pub const fn phase(&self) -> Phase {
        match &self.state {
            State::Running => Phase::Running,
            State::Fencing(..) => Phase::Fencing,
            State::Applying(_) => Phase::Applying,
            State::Reading(_) => Phase::Reading,
            State::Detached => Phase::Detached,
        }
    }

    /// The fence that is open, if one is.
    pub const fn open_fence(&self) -> Option<&Fence> {
        match &self.state {
            State::Fencing(fence, _) => Some(fence),
            _ => None,
        }
    }

    /// Why the catalogue did not do what was asked, while that lasts.
    pub const fn call_error(&self) -> Option<&Breach> {
        match &self.state {
            State::Applying(applying) => applying.error.as_ref(),
            _ => None,
        }
    }

    /// The collection.
    pub const fn collection(&self) -> &CollectionRef {
        &self.collection
    }

    /// The generation in force; `None` before the first.
    pub const fn generation(&self) -> Option<&Generation> {
        self.generation.as_ref()
    }

    /// The streams, by physical table.
    pub const fn streams(&self) -> &BTreeMap<TableId, Stream> {
        &self.streams
    }
}
