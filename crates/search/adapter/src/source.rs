//! SubscriptionWorker: the source's side. Rows go through the normalisation bridge and come out sealed, in
//! commit order per partition, between the DDL events and progress that order them.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_codec::event::{DdlEvent, OwnedRow, RowChanged};
use tidegate_core::{Clock, KeyspaceId, TableId};
use tidegate_mini::bridge::{Admitted, Bridge, BridgeLimits, DdlScope, SealedRow, SealedRun, SourceEpoch};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint, LiveTable};
use tokio::sync::Notify;

/// Bytes of sealed rows that wait between source and pipeline before the source is slowed. One checkpoint's
/// worth may come on top, because callbacks do not wait.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Events that wait before the source is slowed: progress without rows costs memory too.
const QUEUE_EVENTS_MAX: usize = 4_096;

/// Rows that are transformed at once: enough to fill several batches, few enough to stay small in memory.
const PART_ROWS: usize = 2_048;

/// What the source says, in order.
#[derive(Debug)]
pub enum SourceEvent {
    /// Tables join; the first event of all has the tables of the start.
    Joined(Vec<LiveTable>),
    /// Sealed rows of one partition.
    Rows(SealedRun<OwnedRow>),
    /// A DDL, after every row at or below it.
    Ddl(Arc<DdlEvent>),
    /// Progress, after every row and DDL at or below it.
    Progress(Checkpoint),
}

impl SourceEvent {
    fn bytes(&self) -> usize {
        match self {
            Self::Rows(run) => run.rows.iter().map(|row| row.row.size_bytes()).sum(),
            _ => 0,
        }
    }
}

/// The way from the source's callbacks to the pipeline.
#[derive(Debug, Default)]
pub struct EventQueue {
    state: Mutex<QueueState>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<SourceEvent>,
    bytes: usize,
    closed: bool,
}

impl QueueState {
    fn has_room(&self) -> bool {
        self.bytes < QUEUE_BYTES_MAX && self.events.len() < QUEUE_EVENTS_MAX
    }
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // Nothing panics while the lock is held; a poisoned lock still guards whole events.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, event: SourceEvent) {
        let mut state = self.lock();
        state.bytes += event.bytes();
        state.events.push_back(event);
        self.filled.notify_one();
    }

    /// No more events come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// The next event; `None` when the queue is closed and empty. Cancel-safe.
    pub async fn pop(&self) -> Option<SourceEvent> {
        loop {
            let filled = self.filled.notified();
            {
                let mut state = self.lock();
                if let Some(event) = state.events.pop_front() {
                    state.bytes -= event.bytes();
                    self.drained.notify_one();
                    return Some(event);
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            {
                let state = self.lock();
                if state.closed || state.has_room() {
                    return;
                }
            }
            drained.await;
        }
    }

    /// Whether no event is there and none will come.
    pub fn is_done(&self) -> bool {
        let state = self.lock();
        state.closed && state.events.is_empty()
    }

    /// Bytes of rows that wait.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }
}

/// The callback that the Mini-CDC runtime drives.
pub struct SubscriptionWorker<C> {
    bridge: Bridge<OwnedRow>,
    queue: Arc<EventQueue>,
    clock: C,
}

impl<C: Clock + 'static> SubscriptionWorker<C> {
    /// A worker without tables that fills `queue`.
    pub fn new(keyspace: Option<KeyspaceId>, epoch: SourceEpoch, queue: Arc<EventQueue>, clock: C) -> Self {
        Self { bridge: Bridge::new(keyspace, BridgeLimits::default(), epoch), queue, clock }
    }

    fn push_runs(&self, runs: Vec<SealedRun<OwnedRow>>) {
        for run in runs {
            split(run, |part| self.queue.push(SourceEvent::Rows(part)));
        }
    }
}

/// Hands out a run in parts of about [`PART_ROWS`], so that a first scan is not transformed in one piece. The
/// rows of one transaction stay together.
fn split(run: SealedRun<OwnedRow>, mut part: impl FnMut(SealedRun<OwnedRow>)) {
    let SealedRun { table, partition, epoch, mut first_seq, mut rows } = run;
    while !rows.is_empty() {
        let boundary = |pair: &[SealedRow<OwnedRow>]| matches!(pair, [a, b] if a.commit_ts != b.commit_ts);
        let whole = rows.windows(2).skip(PART_ROWS - 1).position(boundary);
        let rest = whole.map_or_else(Vec::new, |at| rows.split_off(PART_ROWS + at));
        let next_seq = rest.first().map(|row| row.seq);
        part(SealedRun { table, partition: partition.clone(), epoch, first_seq, rows });
        (rows, first_seq) = (rest, next_seq.unwrap_or(first_seq));
    }
}

impl<C> Drop for SubscriptionWorker<C> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl<C: Clock + 'static> Callback for SubscriptionWorker<C> {
    fn on_tables(&mut self, joined: &[LiveTable], left: &[TableId]) -> Result<(), CallbackError> {
        for table in joined {
            self.bridge.open(table.id);
        }
        for table in left {
            self.bridge.close(*table);
        }
        self.queue.push(SourceEvent::Joined(joined.to_vec()));
        Ok(())
    }

    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        let owned = row.to_owned();
        match self.bridge.offer(owned.table_id, owned.commit_ts(), owned, self.clock.mono())? {
            Admitted::Buffered => Ok(Admission::Taken),
            Admitted::Full { .. } => Ok(Admission::Full),
        }
    }

    fn on_ddl(&mut self, ddl: &DdlEvent) -> Result<(), CallbackError> {
        let runs = self.bridge.ddl(ddl.finished_ts, DdlScope::All)?;
        self.push_runs(runs);
        self.queue.push(SourceEvent::Ddl(Arc::new(ddl.clone())));
        Ok(())
    }

    fn on_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), CallbackError> {
        let runs = self.bridge.checkpoint(checkpoint)?;
        self.push_runs(runs);
        self.queue.push(SourceEvent::Progress(checkpoint.clone()));
        Ok(())
    }

    fn ready(&mut self) -> impl Future<Output = Result<(), CallbackError>> + Send {
        let queue = Arc::clone(&self.queue);
        async move {
            queue.room().await;
            Ok(())
        }
    }
}
