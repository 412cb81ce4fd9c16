//! The change feeds of the live tables, polled together.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidegate_codec::key::{record_range, table_span};
use tidegate_core::{CommitTs, KeyspaceId, Op, RawChange, RegionId, ResolvedTs, StartTs, TableId, Ts};
use tidegate_puller::kv::{KvPair, SnapshotReader};
use tidegate_puller::{PullerError, PullerHandle, SpanEvent, Subscribe, Subscription};
use tidegate_schema::TableReader;
use tokio_util::sync::CancellationToken;

use crate::upstream::Upstream;

/// Rows per page of a table's content. At a KiB per row a page is a megabyte, about as much as one message of
/// the change feed.
const PAGE: u32 = 1024;

/// How tables are read.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    puller: PullerHandle,
    snapshots: SnapshotReader,
    keyspace: Option<KeyspaceId>,
    filter_loop: bool,
}

impl Subscriber {
    pub(super) fn new(upstream: &Upstream, keyspace: Option<KeyspaceId>, filter_loop: bool) -> Self {
        let snapshots = SnapshotReader::new(upstream.pd.clone(), keyspace);
        Self { puller: upstream.puller.clone(), snapshots, keyspace, filter_loop }
    }

    /// Subscribes the record range of `table`. Returns at once; the feed is read when the table is live.
    pub(super) fn subscribe(&self, table: TableId, read_from: StartTs) -> Subscription {
        self.puller.subscribe(Subscribe {
            span: table_span(self.keyspace, table),
            start_ts: read_from,
            filter_loop: self.filter_loop,
            keyspace: self.keyspace,
        })
    }

    /// The rows that `table` has at `at`.
    pub(super) fn content(&self, table: TableId, at: Ts) -> Content {
        let (start, end) = record_range(self.keyspace, table);
        Content { snapshots: self.snapshots.clone(), next: Some(start.into()), end, at }
    }
}

/// The rows that a table has at a timestamp, read page by page.
#[derive(Debug)]
pub(super) struct Content {
    snapshots: SnapshotReader,
    next: Option<Bytes>,
    end: Vec<u8>,
    at: Ts,
}

impl Content {
    /// The next rows as inserts committed at the timestamp; `None` at the end.
    async fn page(&mut self) -> Result<Option<Vec<RawChange>>, PullerError> {
        while let Some(from) = &self.next {
            let (pairs, next) = self.snapshots.scan_page(from, &self.end, self.at, PAGE).await?;
            self.next = next;
            if !pairs.is_empty() {
                return Ok(Some(pairs.into_iter().map(|pair| self.insert(pair)).collect()));
            }
        }
        Ok(None)
    }

    fn insert(&self, pair: KvPair) -> RawChange {
        RawChange {
            op: Op::Put,
            key: pair.key,
            value: pair.value,
            old_value: Bytes::new(),
            start_ts: self.at.as_start(),
            commit_ts: self.at.as_commit(),
            region_id: RegionId::default(),
        }
    }
}

/// One live table's feed and what is needed to decode it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) table: TableId,
    /// What the table had before its changes, until it is read.
    content: Option<Content>,
    subscription: Subscription,
    /// Rows at or below it are not part of the feed.
    pub(super) after: Ts,
    /// No row is decoded with a definition from before it: where the table joined, its content and the rows
    /// that a partition took before the DDL event that made it have no older one.
    define_from: Ts,
    /// What the feed has promised last.
    pub(super) resolved: ResolvedTs,
    /// Cancelled when the table leaves.
    pub(super) gone: CancellationToken,
    /// Definitions of the table; keeps them from being collected while the table is live.
    pub(super) reader: TableReader,
}

impl Feed {
    /// The changes that `subscription` brings after `read_from`.
    pub(super) fn changes(
        reader: TableReader,
        subscription: Subscription,
        read_from: StartTs,
        joined: Ts,
    ) -> Self {
        Self {
            table: reader.id(),
            content: None,
            subscription,
            after: read_from.ts(),
            define_from: joined,
            resolved: ResolvedTs::ZERO,
            gone: CancellationToken::new(),
            reader,
        }
    }

    /// As [`Feed::changes`] after the content's timestamp, with `content` before them.
    pub(super) fn with_content(reader: TableReader, subscription: Subscription, content: Content) -> Self {
        let at = content.at;
        let changes = Self::changes(reader, subscription, at.as_start(), at);
        Self { content: Some(content), after: at.prev(), ..changes }
    }

    /// The timestamp whose definition reads a row of `commit_ts` (I6).
    pub(super) fn defined_at(&self, commit_ts: CommitTs) -> Ts {
        commit_ts.ts().prev().max(self.define_from)
    }

    async fn next(&mut self) -> Result<SpanEvent, PullerError> {
        if let Some(content) = &mut self.content {
            if let Some(rows) = content.page().await? {
                return Ok(SpanEvent::Changes(rows));
            }
            self.content = None;
        }
        self.subscription.next().await.unwrap_or(Err(PullerError::Stopped))
    }
}

/// What a feed yielded; `None` if the table has left meanwhile.
pub(super) struct Arrival {
    pub(super) feed: Feed,
    pub(super) event: Option<Result<SpanEvent, PullerError>>,
}

type Next = Pin<Box<dyn Future<Output = Arrival> + Send>>;

/// The feeds that wait for their next event. A feed is out of here while its event is dealt with, so a table
/// whose rows are refused simply stays out.
#[derive(Default)]
pub(super) struct Feeds {
    waiting: FuturesUnordered<Next>,
}

impl Feeds {
    pub(super) fn push(&mut self, mut feed: Feed) {
        self.waiting.push(Box::pin(async move {
            let gone = feed.gone.clone();
            let event = gone.run_until_cancelled(feed.next()).await;
            Arrival { feed, event }
        }));
    }

    /// The next event of any feed; pending while there are none.
    pub(super) async fn next(&mut self) -> Arrival {
        match self.waiting.next().await {
            Some(arrival) => arrival,
            None => std::future::pending().await,
        }
    }
}
