//! Keeping the schema store in step with the cluster: a metadata snapshot first, then the DDL job table.

use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::with_keyspace;
use tidegate_core::{CheckpointTs, KeyspaceId, Ts};
use tidegate_puller::kv::SnapshotReader;
use tidegate_puller::{PullerError, SpanEvent, Subscribe, Subscription};
use tidegate_schema::{SchemaError, SchemaStore};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::task_failed;
use crate::error::MiniError;
use crate::upstream::Upstream;

/// The metadata of databases and tables: the hashes `DBs` and `DB:<id>`, and not the history of DDL jobs
/// beside them, which grows without end (`reference/tidb-keys-and-rows.md` §3.2).
const SCHEMA_RANGE: (&[u8], &[u8]) = (b"mDB", b"mDC");
/// How often versions that nobody can ask for any more are dropped. A cluster makes few per minute.
const COLLECT_INTERVAL: Duration = Duration::from_secs(300);
/// Pairs per page: a table's definition has some 10 KiB, so that a page stays around 10 MiB.
const PAGE: u32 = 1024;

/// Reads the metadata at `ts`.
pub(super) async fn snapshot(
    upstream: &Upstream,
    keyspace: Option<KeyspaceId>,
    ts: Ts,
) -> Result<Vec<(Bytes, Bytes)>, MiniError> {
    let reader = SnapshotReader::new(upstream.pd.clone(), keyspace);
    let end = with_keyspace(keyspace, SCHEMA_RANGE.1);
    let mut pairs = Vec::new();
    let mut from = Some(Bytes::from(with_keyspace(keyspace, SCHEMA_RANGE.0)));
    while let Some(start) = from {
        let (page, next) = reader.scan_page(&start, &end, ts, PAGE).await.map_err(MiniError::SchemaFeed)?;
        pairs.extend(page.into_iter().map(|pair| (pair.key, pair.value)));
        from = next;
    }
    Ok(pairs)
}

/// The schema store and the task that feeds it.
pub(super) struct Schema {
    pub(super) store: SchemaStore,
    follower: JoinHandle<Option<MiniError>>,
    stop: DropGuard,
}

impl Schema {
    /// Begins to follow the DDL job table from where `store` is.
    pub(super) fn follow(
        upstream: &Upstream,
        keyspace: Option<KeyspaceId>,
        store: SchemaStore,
        acknowledged: watch::Receiver<CheckpointTs>,
    ) -> Self {
        let jobs = upstream.puller.subscribe(Subscribe {
            span: store.job_span(),
            start_ts: store.resolved().ts().as_start(),
            // Whether a replicated DDL counts is decided from the event, not from the transaction's mark.
            filter_loop: false,
            keyspace,
        });
        let stop = CancellationToken::new();
        let follower = tokio::spawn(follow(jobs, store.clone(), acknowledged, stop.clone()));
        Self { store, follower, stop: stop.drop_guard() }
    }

    /// Returns when the task has failed. Cancel-safe; not to be called again after it has returned.
    pub(super) async fn failed(&mut self) -> MiniError {
        match (&mut self.follower).await {
            Ok(Some(error)) => error,
            // It ends without an error only when it is told to, and then nobody listens.
            Ok(None) => MiniError::SchemaFeed(PullerError::Stopped),
            Err(error) => task_failed(error),
        }
    }

    /// Ends the task after the write it may be at, and closes the store: its file is free when this returns.
    pub(super) async fn close(self) {
        let Self { store, follower, stop } = self;
        drop(stop);
        if !follower.is_finished() {
            let _ = follower.await;
        }
        drop(store);
    }
}

/// Feeds the store until it is told to stop or something fails, and lets it forget what lies below the
/// acknowledged checkpoint.
async fn follow(
    mut jobs: Subscription,
    store: SchemaStore,
    acknowledged: watch::Receiver<CheckpointTs>,
    stop: CancellationToken,
) -> Option<MiniError> {
    let mut collected = Instant::now();
    // Only the wait for an event is given up, never a write under way.
    while let Some(event) = stop.run_until_cancelled(jobs.next()).await {
        if let Err(error) = take(&store, event.unwrap_or(Err(PullerError::Stopped))).await {
            return Some(error);
        }
        if collected.elapsed() >= COLLECT_INTERVAL {
            collected = Instant::now();
            let oldest = acknowledged.borrow().ts();
            if let Err(error) = on_store(&store, move |store| store.collect_garbage(oldest)).await {
                return Some(error);
            }
        }
    }
    None
}

async fn take(store: &SchemaStore, event: Result<SpanEvent, PullerError>) -> Result<(), MiniError> {
    match event {
        Ok(SpanEvent::Changes(changes)) => Ok(store.apply(&changes)?),
        Ok(SpanEvent::Resolved(resolved)) => {
            on_store(store, move |store| store.advance(resolved).map(drop)).await
        }
        Err(error) => Err(MiniError::SchemaFeed(error)),
    }
}

/// Runs what writes and syncs files where it may block.
pub(super) async fn on_store<T: Send + 'static>(
    store: &SchemaStore,
    work: impl FnOnce(&SchemaStore) -> Result<T, SchemaError> + Send + 'static,
) -> Result<T, MiniError> {
    let store = store.clone();
    let done = tokio::task::spawn_blocking(move || work(&store)).await;
    Ok(done.map_err(task_failed)??)
}
