//! The one ordered loop: everything that reaches a callback goes through here, one event at a time.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hashbrown::HashMap;
use tidegate_codec::event::DdlEvent;
use tidegate_core::{Clock, CommitTs, MonoTime, RawChange, ResolvedTs, SystemClock, TableId, Ts};
use tidegate_decoder::{Checksums, Decoder};
use tidegate_invariants::check_invariant;
use tidegate_pd::GcBarrier;
use tidegate_puller::{SpanEvent, Subscription};
use tidegate_schema::{DdlBatch, SchemaError, SchemaStore};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::feeds::{Arrival, Feed, Feeds, Subscriber};
use super::schema_feed::Schema;
use super::{Control, Report, count, membership, panicked};
use crate::callback::{Admission, Callback, CallbackError, LiveTable};
use crate::config::{ChecksumPolicy, StartConfig, TableSet};
use crate::cursor::{DdlCursor, Finished};
use crate::error::MiniError;
use crate::fence::Fence;
use crate::upstream::Upstream;

/// How often a refused row is offered again when nothing else happens: often against back-pressure windows
/// of seconds, seldom against the cost of a call.
const REOFFER: Duration = Duration::from_millis(5);

impl Finished for Arc<DdlEvent> {
    fn finished_ts(&self) -> CommitTs {
        self.finished_ts
    }
}

/// A started runtime with all it holds.
pub(super) struct Started<C> {
    pub(super) session: Session<C>,
    pub(super) schema: Schema,
    pub(super) barrier: GcBarrier,
    pub(super) control: Control,
}

impl<C: Callback> Started<C> {
    /// Runs until something fails or a stop is asked for, then shuts down in the order of
    /// `spec/mini-cdc.md` §8.2.
    pub(super) async fn run(mut self) -> Report {
        let stop = self.control.stop.clone();
        // The state is not looked at after a panic, only dropped.
        let running = AssertUnwindSafe(self.session.run(&mut self.schema, &self.barrier)).catch_unwind();
        let error = match stop.run_until_cancelled(running).await {
            None => None,
            Some(Ok(error)) => Some(error),
            Some(Err(payload)) => Some(panicked(payload.as_ref())),
        };
        let Self { session, schema, barrier, control } = self;
        drop(session);
        schema.close().await;
        let mut attached = Vec::new();
        if let Err(late) = barrier.release().await {
            attached.push(late.into());
        }
        control.report(error, attached)
    }
}

/// The loop's state.
pub(super) struct Session<C> {
    pub(super) config: StartConfig,
    pub(super) store: SchemaStore,
    pub(super) callback: C,
    pub(super) control: Control,
    pub(super) subscriber: Subscriber,
    pub(super) fence: Fence,
    pub(super) feeds: Feeds,
    /// Cancelled to end the feed of a table that leaves.
    pub(super) gone: HashMap<TableId, CancellationToken>,
    /// Feeds of tables that a fetched DDL event will add, opened ahead so that they are not waited for.
    pub(super) ahead: HashMap<TableId, Subscription>,
    pub(super) cursor: DdlCursor<Arc<DdlEvent>>,
    decoder: Decoder,
    held: Vec<Held>,
    schema_resolved: watch::Receiver<ResolvedTs>,
    clock: SystemClock,
    /// Tables of the start, announced with the first turn of the loop.
    starting: Vec<LiveTable>,
    /// Since when no table that owes its first progress has shown any sign; `None` once all have reported.
    silence: Option<MonoTime>,
}

/// A batch that stopped at a row the callback has no room for.
struct Held {
    feed: Feed,
    batch: Vec<RawChange>,
    at: usize,
}

/// How far a batch was delivered.
enum Delivered {
    All,
    Upto(usize),
}

impl<C: Callback> Session<C> {
    pub(super) fn new(
        upstream: &Upstream,
        config: StartConfig,
        store: SchemaStore,
        callback: C,
        starting: Vec<LiveTable>,
        control: Control,
    ) -> Self {
        let clock = SystemClock::new();
        let start = config.start_ts.ts();
        let subscriber = Subscriber::new(upstream, config.keyspace, config.filter_loop);
        let checksums = match config.checksum {
            ChecksumPolicy::Ignore => Checksums::Ignore,
            ChecksumPolicy::Verify => Checksums::Verify,
        };
        Self {
            fence: Fence::new(start.as_resolved(), config.checkpoint_interval),
            cursor: DdlCursor::new(start),
            schema_resolved: store.subscribe_resolved(),
            decoder: Decoder::new(checksums),
            feeds: Feeds::default(),
            gone: HashMap::new(),
            ahead: HashMap::new(),
            held: Vec::new(),
            silence: Some(clock.mono()),
            config,
            store,
            callback,
            control,
            subscriber,
            clock,
            starting,
        }
    }

    async fn run(&mut self, schema: &mut Schema, barrier: &GcBarrier) -> MiniError {
        let mut acknowledged = self.control.acknowledged.subscribe();
        if let Err(error) = self.open_starting_tables() {
            return error;
        }
        loop {
            if let Err(error) = self.turn() {
                return error;
            }
            let wake = self.next_wake();
            let handled = tokio::select! {
                biased;
                failed = schema.failed() => Err(failed),
                lost = barrier.lost() => Err(lost.into()),
                Ok(()) = acknowledged.changed() => {
                    barrier.advance(acknowledged.borrow_and_update().ts());
                    Ok(())
                }
                Ok(()) = self.schema_resolved.changed() => Ok(()),
                arrival = self.feeds.next() => self.arrived(arrival).await,
                () = tokio::time::sleep(wake) => Ok(()),
            };
            if let Err(error) = handled {
                return error;
            }
        }
    }

    fn open_starting_tables(&mut self) -> Result<(), MiniError> {
        let tables = std::mem::take(&mut self.starting);
        let start = self.config.start_ts;
        self.callback.on_tables(&tables, &[]).map_err(failed("table", start.ts()))?;
        for table in &tables {
            let reader = self.store.register_table(table.id, start.ts())?;
            let subscription = self.subscriber.subscribe(table.id, start);
            let feed = if self.config.read_existing {
                Feed::with_content(reader, subscription, self.subscriber.content(table.id, start.ts()))
            } else {
                Feed::changes(reader, subscription, start, start.ts())
            };
            self.join(feed, table.joined);
        }
        Ok(())
    }

    /// Makes a table live.
    pub(super) fn join(&mut self, feed: Feed, joined: ResolvedTs) {
        self.fence.join(feed.table, joined);
        self.gone.insert(feed.table, feed.gone.clone());
        self.feeds.push(feed);
    }

    /// Takes a table out.
    pub(super) fn leave(&mut self, table: TableId) {
        self.fence.leave(table);
        if let Some(gone) = self.gone.remove(&table) {
            gone.cancel();
        }
        self.held.retain(|held| held.feed.table != table);
    }

    /// Everything that can be delivered without waiting: DDL events that the fence has reached, a checkpoint
    /// that is due, rows that were refused.
    fn turn(&mut self) -> Result<(), MiniError> {
        let resolved = *self.schema_resolved.borrow_and_update();
        self.fence.report_schema(resolved);
        self.check_silence()?;
        self.deliver_ddls(resolved)?;
        self.deliver_checkpoint()?;
        self.offer_held_again()
    }

    fn check_silence(&mut self) -> Result<(), MiniError> {
        let Some(since) = self.silence else { return Ok(()) };
        if self.fence.all_reported() {
            self.silence = None;
            return Ok(());
        }
        let deadline = self.config.progress_deadline;
        if self.clock.mono().since(since) < deadline {
            return Ok(());
        }
        let late = self.fence.silent();
        late.map_or(Ok(()), |table| Err(MiniError::ProgressDeadline { table, deadline }))
    }

    fn deliver_ddls(&mut self, schema: ResolvedTs) -> Result<(), MiniError> {
        // The specification enables DDL polling only when every table has reported (§5.3).
        if self.silence.is_some() && matches!(self.config.tables, TableSet::Fixed(_)) {
            return Ok(());
        }
        loop {
            if let Some(after) = self.cursor.fetch_from(schema) {
                self.fetch_ddls(after)?;
            }
            match self.cursor.pop(self.fence.fence()) {
                Some(ddl) => self.deliver_ddl(&ddl)?,
                None => {
                    self.cursor.settle(self.fence.fence());
                    if self.cursor.fetch_from(schema).is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn fetch_ddls(&mut self, after: Ts) -> Result<(), MiniError> {
        let limit = NonZeroUsize::new(self.config.ddl_poll_limit).unwrap_or(NonZeroUsize::MIN);
        let DdlBatch { mut events, next } = match self.config.tables {
            TableSet::Fixed(_) => self.store.trigger_ddls(after, limit)?,
            TableSet::Follow(_) => self.store.ddls(after, limit)?,
        };
        if let TableSet::Follow(filter) = &self.config.tables {
            events.retain(|ddl| membership::concerns(filter, ddl));
        }
        self.cursor.fetched(events, next)?;
        self.open_ahead();
        Ok(())
    }

    /// Subscribes what the waiting DDL events will add, so that a dense DDL history streams without a pause
    /// for each new table. At most the poll limit times the partitions of a table; nothing is read from them
    /// until they join, so each holds no more than the puller's own buffer.
    fn open_ahead(&mut self) {
        if matches!(self.config.tables, TableSet::Fixed(_)) {
            return;
        }
        for ddl in self.cursor.waiting() {
            for (table, read_from) in membership::feeds_ahead(ddl) {
                let open = || self.subscriber.subscribe(table, read_from);
                self.ahead.entry(table).or_insert_with(open);
            }
        }
    }

    fn deliver_ddl(&mut self, ddl: &Arc<DdlEvent>) -> Result<(), MiniError> {
        let finished = ddl.finished_ts;
        self.callback.on_ddl(ddl).map_err(failed("ddl", finished.ts()))?;
        count(&self.control.counters.ddls);
        self.fence.ddl_delivered();
        if matches!(self.config.tables, TableSet::Follow(_)) {
            self.change_tables(ddl)?;
        }
        Ok(())
    }

    fn deliver_checkpoint(&mut self) -> Result<(), MiniError> {
        let horizon = self.cursor.horizon();
        let Some(checkpoint) = self.fence.checkpoint(horizon, self.clock.mono())? else { return Ok(()) };
        let position = checkpoint.global();
        self.callback.on_checkpoint(&checkpoint).map_err(failed("checkpoint", position.ts()))?;
        count(&self.control.counters.checkpoints);
        self.control.position.send_replace(position);
        Ok(())
    }

    /// When the loop must turn although nothing arrives.
    fn next_wake(&self) -> Duration {
        let now = self.clock.mono();
        let checkpoint = self.fence.checkpoint_due().map(|due| due.since(now));
        let reoffer = (!self.held.is_empty()).then_some(REOFFER);
        let silence = self.silence.map(|since| since.after(self.config.progress_deadline).since(now));
        [checkpoint, reoffer, silence].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    async fn arrived(&mut self, arrival: Arrival) -> Result<(), MiniError> {
        let Arrival { mut feed, event } = arrival;
        if feed.gone.is_cancelled() {
            return Ok(());
        }
        if let Some(since) = &mut self.silence {
            *since = self.clock.mono();
        }
        match event {
            Some(Ok(SpanEvent::Changes(batch))) => {
                self.wait_for_schema(&batch).await?;
                self.deliver_rows(feed, batch, 0)?;
                self.callback.ready().await.map_err(failed("ready", self.control.position().ts()))
            }
            Some(Ok(SpanEvent::Resolved(resolved))) => {
                self.fence.report(feed.table, resolved)?;
                feed.resolved = resolved;
                feed.reader.advance(resolved.ts());
                self.feeds.push(feed);
                Ok(())
            }
            Some(Err(source)) => Err(MiniError::TableFeed { table: feed.table, source }),
            None => Ok(()),
        }
    }

    /// Waits until the schema store knows the definition that each row of the batch needs.
    async fn wait_for_schema(&mut self, batch: &[RawChange]) -> Result<(), MiniError> {
        let newest = batch.iter().map(|change| change.commit_ts).max().unwrap_or_default();
        let needed = newest.ts().prev();
        let reached = self.schema_resolved.wait_for(|resolved| resolved.ts() >= needed);
        let deadline = self.config.schema_deadline;
        match tokio::time::timeout(deadline, reached).await {
            // A closed channel means that the feed's task has ended, and its error comes next.
            Ok(_) => Ok(()),
            Err(_) => {
                let resolved = self.store.resolved();
                Err(MiniError::SchemaDeadline { needed, resolved, deadline })
            }
        }
    }

    fn offer_held_again(&mut self) -> Result<(), MiniError> {
        for Held { feed, batch, at } in std::mem::take(&mut self.held) {
            self.deliver_rows(feed, batch, at)?;
        }
        Ok(())
    }

    fn deliver_rows(&mut self, mut feed: Feed, batch: Vec<RawChange>, from: usize) -> Result<(), MiniError> {
        match self.deliver_batch(&mut feed, &batch, from)? {
            Delivered::All => self.feeds.push(feed),
            Delivered::Upto(at) => self.held.push(Held { feed, batch, at }),
        }
        Ok(())
    }

    fn deliver_batch(
        &mut self,
        feed: &mut Feed,
        batch: &[RawChange],
        from: usize,
    ) -> Result<Delivered, MiniError> {
        for (at, change) in batch.iter().enumerate().skip(from) {
            if self.deliver_row(feed, change)? == Admission::Full {
                return Ok(Delivered::Upto(at));
            }
        }
        Ok(Delivered::All)
    }

    fn deliver_row(&mut self, feed: &mut Feed, change: &RawChange) -> Result<Admission, MiniError> {
        let (table, commit_ts) = (feed.table, change.commit_ts);
        let counters = &self.control.counters;
        if commit_ts.ts() <= feed.after {
            count(&counters.before_start);
            return Ok(Admission::Taken);
        }
        let resolved = feed.resolved;
        if !check_invariant!(I3, commit_ts.ts() > resolved.ts(), "row of table {table} at {commit_ts}") {
            return Err(MiniError::LateRow { table, commit_ts, resolved });
        }
        let defined_at = feed.defined_at(commit_ts);
        let layout = match feed.reader.table_at(defined_at) {
            Ok(layout) => layout,
            Err(SchemaError::Deleted { .. }) => {
                count(&counters.after_drop);
                return Ok(Admission::Taken);
            }
            Err(error) => return Err(error.into()),
        };
        let Some(row) = self.decoder.decode(change, layout)? else {
            count(&counters.nothing);
            return Ok(Admission::Taken);
        };
        let admission = self.callback.on_row(row).map_err(failed("row", commit_ts.ts()))?;
        if admission == Admission::Taken {
            count(&counters.rows);
        }
        Ok(admission)
    }
}

pub(super) fn failed(callback: &'static str, position: Ts) -> impl FnOnce(CallbackError) -> MiniError {
    move |source| MiniError::Callback { callback, position, source }
}
