//! One run from a checkpoint to the next error or stop: the source, the core, the gateway and the store, in
//! one loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{CheckpointTs, Clock, MonoTime, ResolvedTs, StartTs, SystemClock};
use tidegate_mini::bridge::{BridgeError, SourceEpoch};
use tidegate_mini::{
    Control, MiniError, Runtime, RuntimeHandle, StartConfig, TableFilter, TableSet, Upstream,
};
use tidegate_proto::searchfabric::v1::MutationBatch;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::checkpoint::{AdapterState as StoredState, Checkpoint, CheckpointStore, PartitionRecord};
use crate::collection::Shared;
use crate::error::AdapterError;
use crate::gateway::{Gateway, GatewayEvent};
use crate::options::{AdapterOptions, OptionsError};
use crate::pipeline::Pipeline;
use crate::reader::{ReadEvent, TableReader};
use crate::resolver::SchemaResolver;
use crate::source::{EventQueue, SourceEvent, SubscriptionWorker};
use crate::status::{AdapterState, AdapterStatus, StatusError, lag_ms, of_pipeline};

/// Answers that wait for the loop: more than can be unanswered at once with the default limits.
const GATEWAY_EVENTS_MAX: usize = 256;
/// A save is an fsync; more often than this costs the disk more than the shorter replay after a crash is
/// worth.
const SAVE_INTERVAL: Duration = Duration::from_millis(100);
/// How often the status is renewed: a person does not see more.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);

/// How a session ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Drained,
    ForcedAbort,
}

/// What outlives a session.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) options: AdapterOptions,
    pub(crate) upstream: Upstream,
    pub(crate) store: Arc<CheckpointStore>,
    pub(crate) status: watch::Sender<Arc<AdapterStatus>>,
    pub(crate) stop: CancellationToken,
    pub(crate) clock: SystemClock,
}

/// A running session.
pub(crate) struct Session {
    pipeline: Pipeline,
    queue: Arc<EventQueue>,
    runtime: RuntimeHandle,
    control: Control,
    gateway: Gateway,
    heard: mpsc::Receiver<GatewayEvent>,
    reader: TableReader,
    link: Link,
    saver: Saver,
    meter: Meter,
    /// Rows acknowledged by sessions before this one.
    rows_before: u64,
}

/// The mutation stream and its reconnection.
struct Link {
    number: u64,
    batches: Option<mpsc::Sender<MutationBatch>>,
    backoff: Backoff,
    reopen_at: Option<MonoTime>,
    /// Why the stream is not there, or why the session before ended; until an answer comes.
    error: Option<StatusError>,
}

/// The checkpoint's way to the disk: one save at a time, the newest state each time.
struct Saver {
    store: Arc<CheckpointStore>,
    state: StoredState,
    running: Option<(JoinHandle<Result<(), AdapterError>>, ResolvedTs)>,
    last: MonoTime,
    saved: ResolvedTs,
    moved: bool,
}

/// Rows a second, measured between two statuses.
struct Meter {
    at: MonoTime,
    rows: u64,
    rate: f64,
    status_at: MonoTime,
}

impl Session {
    /// Reads the checkpoint and the gateway's position, takes the next epoch durably, and starts source and
    /// stream.
    pub(crate) async fn open(around: &Surroundings) -> Result<Self, AdapterError> {
        let options = &around.options;
        let (events, heard) = mpsc::channel(GATEWAY_EVENTS_MAX);
        let gateway = Gateway::connect(&options.gateway, events).await?;
        let known = gateway.collections(&options.namespace).await?;
        let position = gateway.positions(&options.namespace, &options.client_id).await?;
        let stored = around.store.load()?;
        let start = start_ts(around, &stored).await?;
        let last_epoch = stored.state.as_ref().map_or(0, |state| state.epoch).max(position.epoch);
        let epoch = last_epoch.saturating_add(1);
        let first = stored.state.as_ref().map_or(start, |state| state.first_ts);
        let state = StoredState::new(around.upstream.cluster_id(), first, start, epoch);
        // Before anything is sent under the new epoch, it must be impossible to use it again.
        let taken = Checkpoint { state: Some(state.clone()), partitions: stored.partitions };
        let saver = Saver::new(Arc::clone(&around.store), state, start, around.clock.mono());
        blocking(Arc::clone(&around.store), taken).await?;

        let epoch = SourceEpoch::new(epoch);
        let shared = Shared {
            resolver: SchemaResolver::new(options),
            options: options.clone(),
            cluster: around.upstream.cluster_id(),
            epoch,
            held: position.held,
        };
        let queue = Arc::new(EventQueue::default());
        let worker =
            SubscriptionWorker::new(options.keyspace, epoch, Arc::clone(&queue), around.clock.clone());
        let runtime = Runtime::start(&around.upstream, source_config(options, start, first)?, worker).await?;
        let before = Arc::clone(&around.status.borrow());
        let link = Link::new(options, before.last_error.clone());
        Ok(Self {
            pipeline: Pipeline::new(shared, known, start),
            queue,
            control: runtime.control(),
            runtime,
            gateway,
            heard,
            reader: TableReader::new(around.upstream.snapshot(options.keyspace), options.keyspace),
            link,
            saver,
            rows_before: before.rows_acked,
            meter: Meter { at: around.clock.mono(), rows: 0, rate: 0.0, status_at: around.clock.mono() },
        })
    }

    /// Runs until the source fails, something cannot be carried on, or a stop is asked for.
    pub(crate) async fn run(mut self, around: &Surroundings) -> Result<Ended, AdapterError> {
        let result = self.serve(around).await;
        self.runtime.stop();
        let report = self.runtime.wait().await;
        let result = match (result, report.error) {
            // The source's own error explains why its queue closed.
            (Err(AdapterError::Ended(_)), Some(error)) => Err(source_error(error)),
            (result, _) => result,
        };
        self.publish(around, around.clock.mono());
        result
    }

    async fn serve(&mut self, around: &Surroundings) -> Result<Ended, AdapterError> {
        let mut deadline = None;
        loop {
            let now = around.clock.mono();
            self.act(now);
            self.publish_if_due(around, now);
            self.saver.start(&self.pipeline, now);
            if let Some(deadline) = deadline
                && let Some(ended) = self.ended(now, deadline)
            {
                self.saver.finish(&self.pipeline, &self.control).await?;
                return Ok(ended);
            }
            let wait = self.wait(now);
            tokio::select! {
                biased;
                () = around.stop.cancelled(), if deadline.is_none() => {
                    self.runtime.stop();
                    deadline = Some(around.clock.mono().after(around.options.dispatch.drain_deadline));
                }
                saved = self.saver.saved() => self.saver.done(saved, &self.control)?,
                Some(event) = self.heard.recv() => self.hear_all(event, around.clock.mono())?,
                Some(read) = self.reader.next(), if self.pipeline.has_room() => {
                    self.read(read, around.clock.mono())?;
                }
                event = self.queue.pop(), if self.pipeline.has_room() && !self.source_ended() => {
                    self.source_event(event, deadline.is_some(), around.clock.mono())?;
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn source_event(
        &mut self,
        event: Option<SourceEvent>,
        stopping: bool,
        now: MonoTime,
    ) -> Result<(), AdapterError> {
        match event {
            Some(event) => self.pipeline.event(event, now),
            None if stopping => Ok(()),
            None => Err(AdapterError::Ended("source")),
        }
    }

    fn read(&mut self, read: ReadEvent, now: MonoTime) -> Result<(), AdapterError> {
        match read {
            ReadEvent::Rows(index, rows) => self.pipeline.rows_read(index, rows),
            ReadEvent::Done(index) => self.pipeline.read_done(index, now),
            ReadEvent::Failed(error) => Err(error),
        }
    }

    /// Whether the source has said everything: only after a stop was asked for, since otherwise it is an
    /// error.
    fn source_ended(&self) -> bool {
        self.queue.is_done()
    }

    fn ended(&self, now: MonoTime, deadline: MonoTime) -> Option<Ended> {
        if self.source_ended() && self.pipeline.is_idle() {
            return Some(Ended::Drained);
        }
        (now >= deadline).then_some(Ended::ForcedAbort)
    }

    /// Sends what may be sent and asks what is to be asked.
    fn act(&mut self, now: MonoTime) {
        if self.link.reopen_at.is_some_and(|at| at <= now) {
            let in_flight_max = self.pipeline.shared().options.dispatch.in_flight_max;
            self.link.number += 1;
            self.link.batches = Some(self.gateway.open_stream(self.link.number, in_flight_max));
            self.link.reopen_at = None;
        }
        if let Some(batches) = self.link.batches.clone() {
            for batch in self.pipeline.poll_batches(now) {
                if batches.try_send(batch).is_err() {
                    // The stream has ended; its end is on the way here, and with it everything is sent again.
                    self.link.batches = None;
                    break;
                }
            }
        }
        for (index, call) in self.pipeline.poll_calls(now) {
            self.gateway.call(index, call);
        }
        for (index, request) in self.pipeline.poll_reads() {
            self.reader.start(index, request);
        }
    }

    /// Takes an answer and those that are there already, before anything is sent: one look at the lanes for
    /// many answers.
    fn hear_all(&mut self, first: GatewayEvent, now: MonoTime) -> Result<(), AdapterError> {
        self.hear(first, now)?;
        for _ in 0..GATEWAY_EVENTS_MAX {
            let Ok(event) = self.heard.try_recv() else { break };
            self.hear(event, now)?;
        }
        Ok(())
    }

    fn hear(&mut self, event: GatewayEvent, now: MonoTime) -> Result<(), AdapterError> {
        match event {
            GatewayEvent::Ack(number, ack) if number == self.link.number => {
                self.link.backoff.succeed();
                self.link.error = None;
                self.saver.moved |= self.pipeline.answer(*ack, now)?;
                Ok(())
            }
            GatewayEvent::Down(number, status) if number == self.link.number => {
                let source = self.gateway.error("the mutation stream", status);
                if matches!(source, AdapterError::Refused { .. }) {
                    return Err(source);
                }
                self.link.error = Some(StatusError::of(&source));
                tracing::warn!(error = %source, "mutation stream ended");
                self.link.batches = None;
                self.link.reopen_at = Some(self.link.backoff.fail(now, Duration::ZERO));
                self.pipeline.stream_lost();
                Ok(())
            }
            GatewayEvent::Ack(..) | GatewayEvent::Down(..) => Ok(()),
            GatewayEvent::Catalog(index, answer) => self.pipeline.catalog_answer(index, answer, now),
        }
    }

    /// How long the loop may sleep when nothing happens.
    fn wait(&self, now: MonoTime) -> Duration {
        let due = [self.pipeline.due(), self.link.reopen_at].into_iter().flatten().min();
        due.map_or(STATUS_INTERVAL, |due| due.since(now)).clamp(Duration::from_millis(1), STATUS_INTERVAL)
    }

    fn publish_if_due(&mut self, around: &Surroundings, now: MonoTime) {
        if now.since(self.meter.status_at) >= STATUS_INTERVAL {
            self.publish(around, now);
        }
    }

    fn publish(&mut self, around: &Surroundings, now: MonoTime) {
        let wall_ms = around.clock.wall_ms();
        let mut status = of_pipeline(&self.pipeline, now, wall_ms);
        let here: u64 = status.collections.iter().flat_map(|c| &c.partitions).map(|p| p.rows_acked).sum();
        let rows = self.rows_before + here;
        let before = around.status.borrow();
        status.state =
            if around.stop.is_cancelled() { AdapterState::Draining } else { AdapterState::Running };
        status.restarts = before.restarts;
        status.checkpoint_ts = self.saver.saved.get();
        status.lag_ms = lag_ms(self.saver.saved, wall_ms);
        status.rows_acked = rows;
        status.rows_per_s = self.meter.measure(rows, now);
        status.buffered_bytes += self.queue.bytes();
        status.last_error.clone_from(&self.link.error);
        let retry = self.link.reopen_at.map(|at| at.since(now).as_millis());
        status.next_retry_ms = retry.and_then(|ms| u64::try_from(ms).ok());
        drop(before);
        around.status.send_replace(Arc::new(status));
        self.meter.status_at = now;
    }
}

impl Link {
    /// Closed; opened at once.
    fn new(options: &AdapterOptions, error: Option<StatusError>) -> Self {
        let limits = &options.dispatch;
        Self {
            number: 0,
            batches: None,
            backoff: Backoff::new(limits.backoff_min, limits.backoff_max, 2),
            reopen_at: Some(MonoTime::default()),
            error,
        }
    }
}

impl Saver {
    fn new(store: Arc<CheckpointStore>, state: StoredState, saved: ResolvedTs, now: MonoTime) -> Self {
        Self { store, state, running: None, last: now, saved, moved: false }
    }

    /// Starts a save if something moved and none is running.
    fn start(&mut self, pipeline: &Pipeline, now: MonoTime) {
        if self.running.is_some() || now.since(self.last) < SAVE_INTERVAL {
            return;
        }
        let resume_ts = pipeline.resume_ts();
        if !self.moved && resume_ts <= self.saved {
            return;
        }
        self.last = now;
        self.moved = false;
        let checkpoint = self.checkpoint(pipeline, resume_ts);
        self.running = Some((tokio::spawn(blocking(Arc::clone(&self.store), checkpoint)), resume_ts));
    }

    fn checkpoint(&self, pipeline: &Pipeline, resume_ts: ResolvedTs) -> Checkpoint {
        let state = StoredState { resume_ts, ..self.state.clone() };
        let mut checkpoint = Checkpoint { state: Some(state), ..Checkpoint::default() };
        for worker in pipeline.collections() {
            let Some(generation) = worker.generation() else { continue };
            let record = |stream| PartitionRecord::of(stream, &generation.token, generation.version);
            checkpoint.partitions.extend(worker.streams().values().filter_map(record));
        }
        checkpoint
    }

    /// Waits for the running save; for ever if there is none. Cancel-safe.
    async fn saved(&mut self) -> Result<(), AdapterError> {
        match &mut self.running {
            Some((task, _)) => task.await.unwrap_or(Err(AdapterError::Ended("checkpoint writer"))),
            None => std::future::pending().await,
        }
    }

    /// A save ended. Only now may the source let go of what is below it.
    fn done(&mut self, saved: Result<(), AdapterError>, control: &Control) -> Result<(), AdapterError> {
        let running = self.running.take();
        saved?;
        if let Some((_, resume_ts)) = running {
            self.saved = self.saved.max(resume_ts);
            control.acknowledge(CheckpointTs::new(self.saved.get()));
        }
        Ok(())
    }

    /// Saves the final state.
    async fn finish(&mut self, pipeline: &Pipeline, control: &Control) -> Result<(), AdapterError> {
        if self.running.is_some() {
            let saved = self.saved().await;
            self.done(saved, control)?;
        }
        let resume_ts = pipeline.resume_ts();
        let checkpoint = self.checkpoint(pipeline, resume_ts);
        self.running = Some((tokio::spawn(blocking(Arc::clone(&self.store), checkpoint)), resume_ts));
        let saved = self.saved().await;
        self.done(saved, control)
    }
}

impl Meter {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people; 53 bits of rows are enough")]
    fn measure(&mut self, rows: u64, now: MonoTime) -> f64 {
        let passed = now.since(self.at);
        if passed >= Duration::from_secs(1) {
            self.rate = rows.saturating_sub(self.rows) as f64 / passed.as_secs_f64();
            (self.at, self.rows) = (now, rows);
        }
        self.rate
    }
}

/// Where to start: the checkpoint, or what the options say, or now.
async fn start_ts(around: &Surroundings, stored: &Checkpoint) -> Result<ResolvedTs, AdapterError> {
    if let Some(state) = &stored.state {
        let cluster = around.upstream.cluster_id();
        if state.cluster != cluster {
            let path = around.options.state_dir.clone();
            let detail = format!("it belongs to cluster {}, not to {cluster}", state.cluster);
            return Err(AdapterError::Store { path, detail });
        }
        return Ok(state.resume_ts);
    }
    match around.options.start_ts {
        Some(start) => Ok(start.ts().as_resolved()),
        None => {
            let now = around.upstream.pd().tso().await.map_err(MiniError::from)?;
            Ok(now.as_resolved())
        }
    }
}

fn source_config(
    options: &AdapterOptions,
    start: ResolvedTs,
    first: ResolvedTs,
) -> Result<StartConfig, AdapterError> {
    let filter = TableFilter::parse(&options.tables).map_err(OptionsError::Tables)?;
    let mut config = StartConfig::new(StartTs::new(start.get()), TableSet::Follow(filter));
    config.keyspace = options.keyspace;
    // Until the checkpoint has left the first start behind, the first load may not be complete.
    config.read_existing = options.initial_load && start == first;
    config.schema_dir = options.state_dir.as_ref().map(|dir: &PathBuf| dir.join("schema"));
    config.gc_barrier = format!("tidegate-{}", options.client_id);
    Ok(config)
}

async fn blocking(store: Arc<CheckpointStore>, checkpoint: Checkpoint) -> Result<(), AdapterError> {
    let saved = tokio::task::spawn_blocking(move || store.save(&checkpoint)).await;
    saved.unwrap_or(Err(AdapterError::Ended("checkpoint writer")))
}

/// What stopped the source. If it was our own callback, the bridge's error is the cause.
fn source_error(error: MiniError) -> AdapterError {
    match error {
        MiniError::Callback { callback, position, source } => match source.downcast::<BridgeError>() {
            Ok(bridge) => AdapterError::Bridge(*bridge),
            Err(source) => AdapterError::Source(MiniError::Callback { callback, position, source }),
        },
        error => AdapterError::Source(error),
    }
}

/// Whether starting over can help.
pub(crate) fn is_retryable(error: &AdapterError) -> bool {
    use tidegate_core::{Diagnostic, ErrorClass};
    matches!(error.class(), ErrorClass::Retry | ErrorClass::Wait)
}

/// What an answer without an error says.
pub(crate) fn state_of(ended: Ended) -> AdapterState {
    match ended {
        Ended::Drained => AdapterState::Drained,
        Ended::ForcedAbort => AdapterState::ForcedAbort,
    }
}
