//! The change feeds of the live tables, polled together.

use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidegate_codec::key::table_span;
use tidegate_core::{KeyspaceId, ResolvedTs, StartTs, TableId};
use tidegate_puller::{PullerError, PullerHandle, SpanEvent, Subscribe, Subscription};
use tidegate_schema::TableReader;
use tokio_util::sync::CancellationToken;

/// How tables are subscribed.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) puller: PullerHandle,
    pub(super) keyspace: Option<KeyspaceId>,
    pub(super) filter_loop: bool,
}

impl Subscriber {
    /// Subscribes the record range of `table`. Returns at once; the feed is read when the table is live.
    pub(super) fn subscribe(&self, table: TableId, read_from: StartTs) -> Subscription {
        self.puller.subscribe(Subscribe {
            span: table_span(self.keyspace, table),
            start_ts: read_from,
            filter_loop: self.filter_loop,
            keyspace: self.keyspace,
        })
    }
}

/// One live table's feed and what is needed to decode it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) table: TableId,
    pub(super) subscription: Subscription,
    /// Rows at or below it are not part of the feed.
    pub(super) read_from: StartTs,
    /// What the feed has promised last.
    pub(super) resolved: ResolvedTs,
    /// Cancelled when the table leaves.
    pub(super) gone: CancellationToken,
    /// Definitions of the table; keeps them from being collected while the table is live.
    pub(super) reader: TableReader,
}

impl Feed {
    pub(super) fn new(subscription: Subscription, reader: TableReader, read_from: StartTs) -> Self {
        Self {
            table: reader.id(),
            subscription,
            read_from,
            resolved: ResolvedTs::ZERO,
            gone: CancellationToken::new(),
            reader,
        }
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
            let next = gone.run_until_cancelled(feed.subscription.next()).await;
            let event = next.map(|event| event.unwrap_or(Err(PullerError::Stopped)));
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
