//! The running thing: start, one ordered loop, stop.

mod feeds;
mod membership;
mod schema_feed;
mod session;
mod start;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{CheckpointTs, ResolvedTs};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::callback::Callback;
use crate::config::StartConfig;
use crate::error::MiniError;
use crate::upstream::Upstream;

/// Starts runtimes.
#[derive(Debug)]
pub struct Runtime;

impl Runtime {
    /// Validates `config`, holds the GC barrier, opens the schema, probes and subscribes the tables, in this
    /// order (`spec/mini-cdc.md` §8.1), and begins to call `callback`. Needs a tokio runtime.
    ///
    /// Any number of runtimes may run in one process and on one [`Upstream`]; each has its own state.
    ///
    /// # Errors
    /// What made the start impossible; everything opened on the way is closed again.
    pub async fn start(
        upstream: &Upstream,
        config: StartConfig,
        callback: impl Callback,
    ) -> Result<RuntimeHandle, MiniError> {
        config.validate()?;
        let control = Control::new(config.start_ts.ts().as_resolved());
        let started = start::start(upstream, config, callback, control.clone()).await?;
        let task = tokio::spawn(started.run());
        Ok(RuntimeHandle { control, task })
    }
}

/// A running runtime. Dropping it stops the runtime in the background.
#[derive(Debug)]
pub struct RuntimeHandle {
    control: Control,
    task: JoinHandle<Report>,
}

impl RuntimeHandle {
    /// Asks the runtime to stop. Returns at once; no callback begins after the one that may be running.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// The shareable part: stopping, acknowledging and looking.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until the runtime has ended by itself or by [`RuntimeHandle::stop`], and everything it held is
    /// released. Cancel-safe; not to be called again once it has returned.
    pub async fn wait(&mut self) -> Report {
        match (&mut self.task).await {
            Ok(report) => report,
            Err(error) => self.control.report(Some(task_failed(error)), Vec::new()),
        }
    }
}

impl Drop for RuntimeHandle {
    fn drop(&mut self) {
        self.control.stop();
    }
}

/// The error of a task that did not end by itself.
fn task_failed(error: JoinError) -> MiniError {
    match error.try_into_panic() {
        Ok(payload) => panicked(payload.as_ref()),
        Err(cancelled) => MiniError::Panicked { message: cancelled.to_string() },
    }
}

fn panicked(payload: &(dyn Any + Send)) -> MiniError {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    MiniError::Panicked { message: text.unwrap_or_else(|| "no message".to_owned()) }
}

/// Stops, acknowledges and observes a runtime. Clones share it.
#[derive(Clone, Debug)]
pub struct Control {
    stop: CancellationToken,
    position: Arc<watch::Sender<ResolvedTs>>,
    acknowledged: Arc<watch::Sender<CheckpointTs>>,
    counters: Arc<Counters>,
}

impl Control {
    fn new(start: ResolvedTs) -> Self {
        Self {
            stop: CancellationToken::new(),
            position: Arc::new(watch::Sender::new(start)),
            acknowledged: Arc::new(watch::Sender::new(start.ts().as_checkpoint())),
            counters: Arc::default(),
        }
    }

    /// Asks the runtime to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells that everything at or below `checkpoint` is durable downstream and no start from before it will
    /// be needed. The GC barrier follows (I8); without acknowledgements it stays at the start.
    pub fn acknowledge(&self, checkpoint: CheckpointTs) {
        self.acknowledged.send_if_modified(|held| {
            let ahead = checkpoint > *held;
            *held = (*held).max(checkpoint);
            ahead
        });
    }

    /// Position of the last checkpoint, or the start.
    pub fn position(&self) -> ResolvedTs {
        *self.position.borrow()
    }

    /// Wakes on every checkpoint.
    pub fn watch_position(&self) -> watch::Receiver<ResolvedTs> {
        self.position.subscribe()
    }

    /// What has been delivered and left out until now.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    fn report(&self, error: Option<MiniError>, attached: Vec<MiniError>) -> Report {
        Report { position: self.position(), counts: self.counts(), error, attached }
    }
}

/// How a runtime ended.
#[derive(Debug)]
pub struct Report {
    /// Position of the last checkpoint that was delivered, or the start. A start from it loses nothing.
    pub position: ResolvedTs,
    /// What was delivered and left out.
    pub counts: Counts,
    /// The first terminal error, which stopped the runtime; `None` after a stop that was asked for.
    pub error: Option<MiniError>,
    /// Errors that came after it while shutting down.
    pub attached: Vec<MiniError>,
}

/// What was delivered, and what was left out and why: nothing is dropped silently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that the callback has taken.
    pub rows: u64,
    /// DDL events delivered.
    pub ddls: u64,
    /// Checkpoints delivered.
    pub checkpoints: u64,
    /// Rows at or below the start of their table's feed; the start is exclusive.
    pub before_start: u64,
    /// Rows committed into a table after it was dropped.
    pub after_drop: u64,
    /// Rows that one transaction inserted and deleted: there is nothing to tell.
    pub nothing: u64,
}

#[derive(Debug, Default)]
struct Counters {
    rows: AtomicU64,
    ddls: AtomicU64,
    checkpoints: AtomicU64,
    before_start: AtomicU64,
    after_drop: AtomicU64,
    nothing: AtomicU64,
}

impl Counters {
    fn snapshot(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            rows: read(&self.rows),
            ddls: read(&self.ddls),
            checkpoints: read(&self.checkpoints),
            before_start: read(&self.before_start),
            after_drop: read(&self.after_drop),
            nothing: read(&self.nothing),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
