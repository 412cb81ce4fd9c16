//! `cdcpb.ChangeData`: the streams around the world's feeds.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tidegate_core::StoreId;
use tidegate_proto::cdcpb::change_data_request::Request as Kind;
use tidegate_proto::cdcpb::change_data_server::ChangeData;
use tidegate_proto::cdcpb::{ChangeDataEvent, ChangeDataRequest};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::Upstream;
use crate::feed::{Closed, DownstreamId, FeedQueue, Registration, StreamId};
use crate::world::ScanProgress;

const FEATURES_KEY: &str = "features";
const MULTIPLEXING: &str = "stream-multiplexing";

/// One store's change feed.
#[derive(Clone)]
pub(crate) struct FeedService {
    upstream: Arc<Upstream>,
    store: StoreId,
}

type Events = Pin<Box<dyn Stream<Item = Result<ChangeDataEvent, Status>> + Send>>;

impl FeedService {
    pub(crate) fn new(upstream: Arc<Upstream>, store: StoreId) -> Self {
        Self { upstream, store }
    }

    fn open(&self, requests: Streaming<ChangeDataRequest>, multiplexed: bool) -> Events {
        let (id, queue) = self.upstream.step(|world, _| world.open_stream(self.store, multiplexed));
        let open = OpenStream { upstream: Arc::clone(&self.upstream), id, queue };
        let reader = Reader {
            upstream: Arc::clone(&self.upstream),
            store: self.store,
            id,
            queue: Arc::clone(&open.queue),
        };
        tokio::spawn(reader.run(requests));
        stream::unfold(Some(open), next_message).boxed()
    }
}

#[tonic::async_trait]
impl ChangeData for FeedService {
    type EventFeedStream = Events;
    type EventFeedV2Stream = Events;

    async fn event_feed(
        &self,
        request: Request<Streaming<ChangeDataRequest>>,
    ) -> Result<Response<Self::EventFeedStream>, Status> {
        Ok(Response::new(self.open(request.into_inner(), false)))
    }

    async fn event_feed_v2(
        &self,
        request: Request<Streaming<ChangeDataRequest>>,
    ) -> Result<Response<Self::EventFeedV2Stream>, Status> {
        let multiplexed = wants_multiplexing(request.metadata())?;
        Ok(Response::new(self.open(request.into_inner(), multiplexed)))
    }
}

/// Reads the list of features. Whatever is not known, an empty name too, is refused.
fn wants_multiplexing(metadata: &MetadataMap) -> Result<bool, Status> {
    let Some(features) = metadata.get(FEATURES_KEY) else { return Ok(false) };
    let features = features.to_str().unwrap_or_default();
    let unknown: Vec<&str> =
        features.split(',').map(str::trim).filter(|feature| *feature != MULTIPLEXING).collect();
    if unknown.is_empty() {
        Ok(true)
    } else {
        Err(Status::unimplemented(format!("unsupported features: {unknown:?}")))
    }
}

/// A stream that a client holds open; dropping it is how a client that goes away is noticed.
struct OpenStream {
    upstream: Arc<Upstream>,
    id: StreamId,
    queue: Arc<FeedQueue>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.upstream.step(|world, _| world.close_stream(self.id));
    }
}

async fn next_message(
    open: Option<OpenStream>,
) -> Option<(Result<ChangeDataEvent, Status>, Option<OpenStream>)> {
    let open = open?;
    match open.queue.next_message().await {
        Ok(message) => Some((Ok(message), Some(open))),
        Err(Closed::Finished) => None,
        Err(Closed::Broken(reason)) => Some((Err(Status::unavailable(reason)), None)),
    }
}

/// The receiving half of a stream.
struct Reader {
    upstream: Arc<Upstream>,
    store: StoreId,
    id: StreamId,
    queue: Arc<FeedQueue>,
}

impl Reader {
    async fn run(self, mut requests: Streaming<ChangeDataRequest>) {
        let mut greeted = false;
        while let Ok(Some(request)) = requests.message().await {
            if !greeted {
                let version = request.header.as_ref().map_or("", |header| header.ticdc_version.as_str());
                self.upstream.step(|world, _| world.greet_stream(self.id, version));
                greeted = true;
            }
            if matches!(request.request, Some(Kind::NotifyTxnStatus(_))) {
                self.queue.close(Closed::Broken("notify_txn_status is not supported".to_owned()));
                break;
            }
            if let Some((downstream, registration)) =
                self.upstream.step(|world, _| world.feed_request(self.id, &request))
            {
                // Bounded by the limit on pending registrations.
                tokio::spawn(scan(
                    Arc::clone(&self.upstream),
                    self.store,
                    Arc::clone(&self.queue),
                    downstream,
                    registration,
                ));
            }
        }
        self.upstream.step(|world, _| world.close_stream(self.id));
    }
}

/// One registration's incremental scan.
async fn scan(
    upstream: Arc<Upstream>,
    store: StoreId,
    queue: Arc<FeedQueue>,
    id: DownstreamId,
    registration: Registration,
) {
    let Some(slots) = upstream.scan_slots(store) else { return };
    let Ok(_slot) = slots.acquire().await else { return };
    let Some((mut scan, liveness)) = upstream.step(|world, _| world.begin_scan(id, &registration)) else {
        return;
    };
    while let ScanProgress::More(items) = upstream.step(|world, _| world.scan_step(id, &mut scan)) {
        if queue.push_scanned(items, &liveness).await.is_err() {
            upstream.step(|world, _| world.scan_congested(id, &registration));
            return;
        }
    }
}
