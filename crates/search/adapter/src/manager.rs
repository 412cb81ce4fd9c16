//! AdapterManager: starts the adapter, starts it over after errors that pass, and stops it.

use std::sync::Arc;

use tidegate_core::{Clock, Diagnostic, SystemClock};
use tidegate_mini::{Upstream, UpstreamOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::checkpoint::CheckpointStore;
use crate::error::AdapterError;
use crate::options::AdapterOptions;
use crate::session::{Session, Surroundings, is_retryable, state_of};
use crate::status::{AdapterState, AdapterStatus, StatusError};

/// Starts adapters.
#[derive(Debug)]
pub struct Adapter;

impl Adapter {
    /// Checks the options, opens the checkpoint store, connects to source and gateway, and begins to deliver.
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// What made the start impossible. After a successful start, errors that may pass are retried by the
    /// adapter itself.
    pub async fn start(options: AdapterOptions) -> Result<AdapterHandle, AdapterError> {
        options.validate()?;
        let store = Arc::new(CheckpointStore::open(options.state_dir.as_deref())?);
        let upstream = Upstream::connect(UpstreamOptions::new(options.pd_endpoints.clone())).await?;
        let status = watch::Sender::new(Arc::new(AdapterStatus::default()));
        let shown = status.subscribe();
        let stop = CancellationToken::new();
        let around =
            Surroundings { options, upstream, store, status, stop: stop.clone(), clock: SystemClock::new() };
        let session = Session::open(&around).await?;
        let task = tokio::spawn(supervise(around, session));
        Ok(AdapterHandle { shown, stop, task })
    }
}

/// A running adapter. Dropping it asks the adapter to stop.
#[derive(Debug)]
pub struct AdapterHandle {
    shown: watch::Receiver<Arc<AdapterStatus>>,
    stop: CancellationToken,
    task: JoinHandle<Result<AdapterState, AdapterError>>,
}

impl AdapterHandle {
    /// The newest status; at most a fraction of a second old.
    pub fn status(&self) -> Arc<AdapterStatus> {
        Arc::clone(&self.shown.borrow())
    }

    /// Follows the status; works on after the handle is gone.
    pub fn watch_status(&self) -> watch::Receiver<Arc<AdapterStatus>> {
        self.shown.clone()
    }

    /// Asks the adapter to stop: it takes no new rows and waits for the acknowledgement of what it sent, up
    /// to [`crate::DispatchLimits::drain_deadline`].
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until the adapter has stopped. Cancel-safe.
    ///
    /// # Errors
    /// The error that stopped it.
    pub async fn wait(&mut self) -> Result<AdapterState, AdapterError> {
        (&mut self.task).await.unwrap_or(Err(AdapterError::Ended("supervisor")))
    }
}

impl Drop for AdapterHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn supervise(around: Surroundings, first: Session) -> Result<AdapterState, AdapterError> {
    let limits = &around.options.dispatch;
    let mut backoff = Backoff::new(limits.backoff_min, limits.backoff_max, 3);
    let mut session = Some(first);
    let result = loop {
        let outcome = match session.take() {
            Some(session) => session.run(&around).await,
            None => match Session::open(&around).await {
                Ok(session) => {
                    backoff.succeed();
                    session.run(&around).await
                }
                Err(error) => Err(error),
            },
        };
        match outcome {
            Ok(ended) => break Ok(state_of(ended)),
            Err(error) if is_retryable(&error) && !around.stop.is_cancelled() => {
                pause(&around, &error, &mut backoff).await;
            }
            Err(error) => break Err(error),
        }
        if around.stop.is_cancelled() {
            // Nothing of a session is left to drain; the next start repeats what was not acknowledged.
            break Ok(AdapterState::ForcedAbort);
        }
    };
    around.upstream.close().await;
    let (state, error) = match &result {
        Ok(state) => (*state, None),
        Err(error) => (AdapterState::Failed, Some(StatusError::of(error))),
    };
    change(&around, |status| {
        status.state = state;
        status.last_error = error.or_else(|| status.last_error.take());
        status.next_retry_ms = None;
    });
    result
}

/// Waits before starting over, or until a stop is asked for.
async fn pause(around: &Surroundings, error: &AdapterError, backoff: &mut Backoff) {
    let now = around.clock.mono();
    let pause = backoff.fail(now, std::time::Duration::ZERO).since(now);
    tracing::warn!(code = error.code(), %error, ?pause, "adapter starts over");
    change(around, |status| {
        status.state = AdapterState::Retrying;
        status.restarts += 1;
        status.last_error = Some(StatusError::of(error));
        status.next_retry_ms = u64::try_from(pause.as_millis()).ok();
    });
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = around.stop.cancelled() => {}
    }
}

fn change(around: &Surroundings, edit: impl FnOnce(&mut AdapterStatus)) {
    around.status.send_modify(|status| edit(Arc::make_mut(status)));
}
