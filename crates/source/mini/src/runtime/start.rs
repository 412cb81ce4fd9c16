//! The start, step by step in the order of `spec/mini-cdc.md` §8.1.

use std::future::Future;

use tidegate_core::{TableId, Ts};
use tidegate_pd::{GcBarrier, GcHold, GcScope, PdError};
use tidegate_puller::PullerError;
use tidegate_schema::{SchemaError, SchemaOptions, SchemaStore};

use super::schema_feed::{self, Schema, on_store};
use super::session::{Session, Started};
use super::{Control, task_failed};
use crate::callback::{Callback, LiveTable};
use crate::config::{StartConfig, TableSet};
use crate::error::MiniError;
use crate::filter::TableFilter;
use crate::upstream::Upstream;

pub(super) async fn start<C: Callback>(
    upstream: &Upstream,
    config: StartConfig,
    callback: C,
    control: Control,
) -> Result<Started<C>, MiniError> {
    let barrier = within("holding the gc barrier", &config, hold_barrier(upstream, &config)).await?;
    match open(upstream, &config, &control).await {
        Ok((schema, tables)) => {
            let store = schema.store.clone();
            let session = Session::new(upstream, config, store, callback, tables, control.clone());
            Ok(Started { session, schema, barrier, control })
        }
        Err(error) => {
            // The first error is the one to tell; the barrier ends by itself if PD cannot be reached.
            if let Err(late) = barrier.release().await {
                tracing::warn!(error = %late, "the gc barrier of a failed start stays until it expires");
            }
            Err(error)
        }
    }
}

/// Runs one step with the configured deadline.
async fn within<T>(
    step: &'static str,
    config: &StartConfig,
    work: impl Future<Output = Result<T, MiniError>>,
) -> Result<T, MiniError> {
    let deadline = config.start_deadline;
    let late = |_| Err(MiniError::StartDeadline { step, deadline });
    tokio::time::timeout(deadline, work).await.unwrap_or_else(late)
}

async fn hold_barrier(upstream: &Upstream, config: &StartConfig) -> Result<GcBarrier, MiniError> {
    let scope = config.keyspace.map_or(GcScope::Unified, GcScope::Keyspace);
    let (id, ts, ttl) = (config.gc_barrier.clone(), config.start_ts.ts(), config.gc_barrier_ttl);
    let held = GcBarrier::hold(&upstream.pd, GcHold { scope, id, ts, ttl }).await;
    held.map_err(|error| match error {
        PdError::BehindSafePoint { safe_point, .. } => {
            MiniError::StartBelowGc { start_ts: config.start_ts, safe_point }
        }
        error => error.into(),
    })
}

/// Opens the schema as of the start and finds the tables of the start in it.
async fn open(
    upstream: &Upstream,
    config: &StartConfig,
    control: &Control,
) -> Result<(Schema, Vec<LiveTable>), MiniError> {
    let store = open_store(upstream, config).await?;
    let acknowledged = control.acknowledged.subscribe();
    let mut schema = Schema::follow(upstream, config.keyspace, store, acknowledged);
    match tables_of_start(&mut schema, config).await {
        Ok(tables) => Ok((schema, tables)),
        Err(error) => {
            schema.close().await;
            Err(error)
        }
    }
}

async fn tables_of_start(schema: &mut Schema, config: &StartConfig) -> Result<Vec<LiveTable>, MiniError> {
    reach_start(schema, config).await?;
    match &config.tables {
        TableSet::Fixed(ids) => probe(&schema.store, config, ids),
        TableSet::Follow(filter) => matching(&schema.store, config, filter),
    }
}

async fn open_store(upstream: &Upstream, config: &StartConfig) -> Result<SchemaStore, MiniError> {
    let options = SchemaOptions {
        dir: config.schema_dir.clone(),
        cluster_id: upstream.cluster_id(),
        keyspace: config.keyspace,
    };
    let opened = tokio::task::spawn_blocking(move || SchemaStore::open(options)).await;
    let store = opened.map_err(task_failed)??;
    if !store.is_initialised() {
        let ts = config.start_ts.ts();
        let read = schema_feed::snapshot(upstream, config.keyspace, ts);
        let pairs = within("reading the metadata snapshot", config, read).await?;
        on_store(&store, move |store| store.initialise(ts, pairs)).await?;
    }
    Ok(store)
}

/// Waits until a store that was found on disk has caught up with the start.
async fn reach_start(schema: &mut Schema, config: &StartConfig) -> Result<(), MiniError> {
    let start = config.start_ts.ts().as_resolved();
    let mut resolved = schema.store.subscribe_resolved();
    let reached = async {
        tokio::select! {
            reached = resolved.wait_for(|&resolved| resolved >= start) => match reached {
                Ok(_) => Ok(()),
                Err(_) => Err(MiniError::SchemaFeed(PullerError::Stopped)),
            },
            failed = schema.failed() => Err(failed),
        }
    };
    within("catching up with the ddl history", config, reached).await
}

/// Probes the tables of a fixed set: each must have a definition at the start.
fn probe(store: &SchemaStore, config: &StartConfig, ids: &[TableId]) -> Result<Vec<LiveTable>, MiniError> {
    let start_ts = config.start_ts;
    let probe = |&id: &TableId| {
        let probed = live_table(store, id, start_ts.ts());
        probed.map_err(|source| MiniError::Probe { table: id, start_ts, source })
    };
    ids.iter().map(probe).collect()
}

/// The tables under the filter at the start; there may be none yet.
fn matching(
    store: &SchemaStore,
    config: &StartConfig,
    filter: &TableFilter,
) -> Result<Vec<LiveTable>, MiniError> {
    let at = config.start_ts.ts();
    let tables = store.physical_tables_at(at)?;
    let followed = tables.iter().filter(|table| filter.matches(&table.schema, &table.table));
    followed.map(|table| Ok(live_table(store, table.id, at)?)).collect()
}

fn live_table(store: &SchemaStore, id: TableId, at: Ts) -> Result<LiveTable, SchemaError> {
    let version = store.table_at(id, at)?.version;
    Ok(LiveTable { id, joined: at.as_resolved(), version })
}
