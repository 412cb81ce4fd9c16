//! A lane's task: connects, sends what waits, and hands what arrives to the subscriptions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{RegionId, ResolvedTs, StoreId};
use tidegate_pd::PdError;
use tidegate_proto::cdcpb::change_data_client::ChangeDataClient;
use tidegate_proto::cdcpb::{ChangeDataEvent, ChangeDataRequest, Event, event};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::failure::Failure;
use crate::ids::{RegistrationId, RequestId, SubscriptionId};
use crate::inbox::{Item, Route};
use crate::lane::{Lane, failed};
use crate::row::Row;
use crate::store_version;

/// The one feature this client needs: several subscriptions on one stream. Unknown or empty items would end
/// the stream (`reference/cdc-protocol.md` §1).
const FEATURES: &str = "stream-multiplexing";
/// Requests under way to the connection; it takes them as fast as they are made.
const REQUESTS_MAX: usize = 64;
/// TiCDC's own numbers for the connection (`reference/cdc-protocol.md` §3).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes the store may have sent that this process has not read yet: the only buffer besides the
/// subscriptions' own. A message has up to 6 MiB; a quarter of it under way keeps a fast connection busy.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// Some more than the stream's, so that HTTP/2's own frames are never held up by it.
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Pause after a broken stream or failed connect, doubling up to three seconds: a lone break is healed at
/// once, and a store that breaks every stream is asked once in three seconds.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(3);
/// A stream that lived this long was a good one; the next break counts as the first.
const GOOD_STREAM: Duration = Duration::from_secs(10);
/// A lane that nobody wants anything from closes its connection after this long.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Serves a lane until its task is dropped.
pub(crate) async fn serve(lane: Arc<Lane>) {
    let mut pause = RECONNECT_PAUSE_MIN;
    loop {
        while !lane.has_waiting() {
            lane.wake.notified().await;
        }
        let begin = Instant::now();
        let failure = match attempt(&lane).await {
            Ok(()) => continue,
            Err(failure) => failure,
        };
        if begin.elapsed() >= GOOD_STREAM {
            pause = RECONNECT_PAUSE_MIN;
        }
        lane.context.pd.forget_store(lane.store_id);
        fail_all(&lane, &failure);
        sleep(pause).await;
        pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
    }
}

/// Connects and runs a stream to its end. `Ok` means that it was idle and closed from here.
async fn attempt(lane: &Arc<Lane>) -> Result<(), Failure> {
    let channel = connect(lane).await.inspect_err(|failure| {
        tracing::warn!(store = %lane.store_id, reason = failure.kind(), "cannot connect to a store");
    })?;
    run(lane, channel).await.map_err(|status| {
        let (code, reason) = (status.code(), status.message());
        tracing::warn!(store = %lane.store_id, %code, reason, "stream ended");
        Failure::StreamBroken
    })
}

/// Tells everybody that what they had here is gone. In tasks of their own: a full inbox must not hold up the
/// others. Nothing can overtake the failures, since the registrations are in no table any more.
fn fail_all(lane: &Lane, failure: &Failure) {
    for (route, ids) in lane.drain() {
        let items = failed(ids, failure);
        tokio::spawn(async move { route.send(items).await });
    }
}

async fn connect(lane: &Lane) -> Result<Channel, Failure> {
    let pd = &lane.context.pd;
    let stores = pd.all_stores().await.map_err(|_| Failure::StreamBroken)?;
    store_version::check(&stores)?;
    let store = pd.store(lane.store_id).await.map_err(|error| match error {
        PdError::StoreGone { .. } => Failure::StoreGone,
        _ => Failure::StreamBroken,
    })?;
    let endpoint = endpoint(&store.address).map_err(|_| Failure::StreamBroken)?;
    endpoint.connect().await.map_err(|error| {
        tracing::debug!(store = %lane.store_id, address = store.address, ?error, "connect failed");
        Failure::StreamBroken
    })
}

fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES))
}

/// Runs one stream to its end. `Ok` means that it was idle and closed from here.
async fn run(lane: &Arc<Lane>, channel: Channel) -> Result<(), Status> {
    lane.set_connected();
    let (sender, outbound) = mpsc::channel(REQUESTS_MAX);
    // Both halves run side by side: a store may answer the call only after the first request, and requests
    // must go on while a slow subscription holds up the receiving half.
    tokio::select! {
        idle = send(lane, sender) => idle,
        error = receive(lane, channel, outbound) => Err(error),
    }
}

async fn send(lane: &Lane, sender: mpsc::Sender<ChangeDataRequest>) -> Result<(), Status> {
    loop {
        for request in lane.take_requests() {
            if sender.send(request).await.is_err() {
                // The receiving half knows why, and ends by itself.
                return std::future::pending().await;
            }
        }
        let idle = timeout(IDLE_MAX, lane.wake.notified()).await.is_err();
        if idle && lane.is_idle() {
            return Ok(());
        }
    }
}

async fn receive(lane: &Arc<Lane>, channel: Channel, outbound: mpsc::Receiver<ChangeDataRequest>) -> Status {
    let mut client = ChangeDataClient::new(channel).max_decoding_message_size(lane.context.message_bytes_max);
    let mut request = Request::new(ReceiverStream::new(outbound));
    request.metadata_mut().insert("features", MetadataValue::from_static(FEATURES));
    let mut events = match client.event_feed_v2(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match events.message().await {
            Ok(Some(message)) => dispatch(lane, message).await,
            Ok(None) => return Status::unavailable("the store closed the stream"),
            Err(status) => return status,
        }
    }
}

/// Hands a message on, grouped by subscription, in its own order.
async fn dispatch(lane: &Arc<Lane>, message: ChangeDataEvent) {
    let mut groups = Groups::default();
    for event in message.events {
        lane.context.counters.event();
        if let Some((route, item)) = event_item(lane, event) {
            groups.push(route, item);
        }
    }
    if let Some(resolved) = message.resolved_ts.filter(|resolved| resolved.ts > 0) {
        let found = lane.find_all(RequestId(resolved.request_id), &resolved.regions);
        if let Some((ids, route)) = found.filter(|(ids, _)| !ids.is_empty()) {
            groups.push(route, Item::Resolved(ResolvedTs::new(resolved.ts), ids));
        }
    }
    for (route, items) in groups.0 {
        deliver(lane, route, items).await;
    }
}

#[derive(Default)]
struct Groups(Vec<(Arc<Route>, Vec<Item>)>);

impl Groups {
    fn push(&mut self, route: Arc<Route>, item: Item) {
        // A message holds events of a few subscriptions, mostly of one.
        match self.0.iter_mut().find(|(other, _)| other.subscription == route.subscription) {
            Some((_, items)) => items.push(item),
            None => self.0.push((route, vec![item])),
        }
    }
}

/// The item for an event; `None` if nobody waits for it, as after a subscription ended.
fn event_item(lane: &Lane, event: Event) -> Option<(Arc<Route>, Item)> {
    let (request, region) = (RequestId(event.request_id), RegionId(event.region_id));
    match event.event? {
        event::Event::Error(error) => {
            let (id, route) = lane.ended(request, region)?;
            Some((route, Item::Failed(id, Failure::from_proto(error, lane.store_id))))
        }
        event::Event::Entries(entries) => {
            let (id, route) = lane.find(request, region)?;
            lane.context.counters.rows(entries.entries.len());
            Some((route, rows_item(id, region, entries.entries, lane.store_id)))
        }
        event::Event::ResolvedTs(ts) if ts > 0 => {
            let (id, route) = lane.find(request, region)?;
            Some((route, Item::Resolved(ResolvedTs::new(ts), vec![id])))
        }
        event::Event::ResolvedTs(_) | event::Event::Admin(_) | event::Event::LongTxn(_) => None,
    }
}

fn rows_item(id: RegistrationId, region: RegionId, messages: Vec<event::Row>, store: StoreId) -> Item {
    let rows: Result<Vec<Row>, _> = messages.into_iter().map(|row| Row::from_proto(row, region)).collect();
    match rows {
        Ok(rows) => Item::Rows(id, rows),
        Err(error) => {
            Item::Failed(id, Failure::Malformed(format!("region {region} on store {store}: {error}")))
        }
    }
}

/// Waits for room in the subscription's inbox. If that takes too long while others share the lane, the
/// subscription leaves it, and registers again on lanes of its own.
async fn deliver(lane: &Arc<Lane>, route: Arc<Route>, items: Vec<Item>) {
    let subscription = route.subscription;
    let stalled = {
        let mut sending = std::pin::pin!(route.send(items));
        match timeout(lane.context.stall_max, &mut sending).await {
            Ok(sent) => return after_send(lane, subscription, sent),
            Err(_) if lane.is_shared(subscription) => true,
            Err(_) => {
                lane.context.counters.pause();
                let sent = sending.await;
                after_send(lane, subscription, sent);
                false
            }
        }
    };
    if stalled {
        evict(lane, route);
    }
}

fn after_send(lane: &Lane, subscription: SubscriptionId, sent: bool) {
    if !sent {
        lane.unsubscribe(subscription);
    }
}

/// The batch that found no room is dropped: it is above what its regions have recorded as resolved, so the
/// registrations that follow bring it again.
fn evict(lane: &Lane, route: Arc<Route>) {
    let subscription = route.subscription;
    tracing::warn!(store = %lane.store_id, %subscription, "a slow subscription moves to streams of its own");
    lane.context.counters.pause();
    let items = failed(lane.unsubscribe(subscription), &Failure::Evicted);
    tokio::spawn(async move { route.send(items).await });
}
