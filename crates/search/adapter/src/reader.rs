//! The rim that reads whole tables as of a timestamp: rows that no event of the change feed tells.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_codec::event::{OwnedRow, RowKind};
use tidegate_codec::key::record_range;
use tidegate_core::{KeyspaceId, Op, RawChange, RegionId, TableId, Ts};
use tidegate_mini::{KvPair, SnapshotReader};
use tokio::sync::{Semaphore, mpsc};

use crate::collection::ReadRequest;
use crate::error::AdapterError;

/// Rows a page: small enough that a few pages of the largest rows (6 MiB each) fit into memory, large enough
/// to hide the round trip with ordinary ones.
const PAGE_ROWS: u32 = 512;
/// Pages that wait for the pipeline.
const PAGES_MAX: usize = 4;
/// Collections that are read at once; the others wait, so that a first start of many tables does not flood
/// the stores.
const READS_MAX: usize = 4;

/// What was read.
#[derive(Debug)]
pub(crate) enum ReadEvent {
    /// Rows of one physical table, for the collection `.0`.
    Rows(usize, Vec<OwnedRow>),
    /// Everything for the collection `.0` was read.
    Done(usize),
    /// Reading failed.
    Failed(AdapterError),
}

/// Reads tables in the background.
pub(crate) struct TableReader {
    snapshot: SnapshotReader,
    keyspace: Option<KeyspaceId>,
    turns: Arc<Semaphore>,
    sender: mpsc::Sender<ReadEvent>,
    events: mpsc::Receiver<ReadEvent>,
}

impl TableReader {
    /// A reader of the tables of `keyspace` through `snapshot`.
    pub(crate) fn new(snapshot: SnapshotReader, keyspace: Option<KeyspaceId>) -> Self {
        let (sender, events) = mpsc::channel(PAGES_MAX);
        Self { snapshot, keyspace, turns: Arc::new(Semaphore::new(READS_MAX)), sender, events }
    }

    /// Begins to read for the collection `index`. Reading ends when this reader is dropped.
    pub(crate) fn start(&self, index: usize, request: ReadRequest) {
        let (snapshot, keyspace) = (self.snapshot.clone(), self.keyspace);
        let (sender, turns) = (self.sender.clone(), Arc::clone(&self.turns));
        tokio::spawn(async move {
            // The semaphore is never closed; without a turn there would be nothing to do anyway.
            let Ok(_turn) = turns.acquire().await else { return };
            let last = match read(&snapshot, keyspace, index, &request, &sender).await {
                Ok(()) => ReadEvent::Done(index),
                Err(error) => ReadEvent::Failed(error),
            };
            // A closed receiver means that nobody needs the rows any more.
            let _ = sender.send(last).await;
        });
    }

    /// What was read next. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<ReadEvent> {
        self.events.recv().await
    }
}

async fn read(
    snapshot: &SnapshotReader,
    keyspace: Option<KeyspaceId>,
    index: usize,
    request: &ReadRequest,
    sender: &mpsc::Sender<ReadEvent>,
) -> Result<(), AdapterError> {
    for table in &request.tables {
        let (start, end) = record_range(keyspace, *table);
        let mut next = Some(Bytes::from(start));
        while let Some(from) = next {
            let page = snapshot.scan_page(&from, &end, request.at, PAGE_ROWS).await;
            let failed = |source| AdapterError::Read { partition: *table, at: request.at, source };
            let (pairs, rest) = page.map_err(failed)?;
            let rows: Vec<OwnedRow> = pairs.into_iter().map(|pair| row(*table, request, pair)).collect();
            if sender.send(ReadEvent::Rows(index, rows)).await.is_err() {
                return Ok(());
            }
            next = rest;
        }
    }
    Ok(())
}

/// A pair as if it had been inserted by the DDL itself: the newest version at or below that timestamp.
fn row(table_id: TableId, request: &ReadRequest, pair: KvPair) -> OwnedRow {
    OwnedRow {
        table_id,
        kind: RowKind::Insert,
        raw: RawChange {
            op: Op::Put,
            key: pair.key,
            value: pair.value,
            old_value: Bytes::new(),
            start_ts: Ts::as_start(request.at.prev()),
            commit_ts: request.at.as_commit(),
            region_id: RegionId(0),
        },
        layout: Arc::clone(&request.layout),
    }
}
