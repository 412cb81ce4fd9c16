//! The rim: options, handles, subscriptions, and what they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tidegate_core::{KeyspaceId, RawChange, ResolvedTs, Span, StartTs, StoreId, Ts};
use tidegate_pd::PdClient;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::PullerError;
use crate::admission::AdmissionLimits;
use crate::clock::PullerClock;
use crate::ids::SubscriptionId;
use crate::inbox::Route;
use crate::kv::locks::{self, LockCheck};
use crate::lane::{Lane, LaneContext};
use crate::metrics::{Counters, PullerMetrics, SubscriptionMetrics};
use crate::span_core::{SpanConfig, SpanCore};
use crate::stream;
use crate::worker::{Delivery, View, Worker};

/// Events between a subscription's task and its consumer. Few: their bytes are charged until consumed, and a
/// longer queue would only add delay.
const DELIVERIES_MAX: usize = 8;

/// Limits of a puller. The defaults keep one subscription under 256 MiB.
#[derive(Clone, Debug)]
pub struct PullerOptions {
    /// Bytes of rows of one subscription between the stores' streams and the end of the consumer's work on
    /// them. A store's message has up to 6 MiB of rows, so 64 MiB keep several stores busy while the consumer
    /// works. A single larger message still passes, alone.
    pub buffer_bytes_max: usize,
    /// Bytes of uncommitted rows of one subscription that wait for their commit. A region that would exceed
    /// it is let go and scanned again later, when its rows are committed.
    pub held_bytes_max: usize,
    /// Scans under way per store.
    pub scans: AdmissionLimits,
    /// How long a slow consumer may hold up the stream that its subscription shares with others; then the
    /// subscription moves to streams of its own and holds up nobody else. Long enough for a consumer's usual
    /// pauses (a flush, a slow batch), short enough that the others' delay stays in seconds.
    pub stall_max: Duration,
    /// The largest message accepted from a store. All rows of one raft command come in one event however
    /// large it is, so this must not be small (`reference/cdc-protocol.md` §3).
    pub message_bytes_max: usize,
}

impl Default for PullerOptions {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 64 << 20,
            held_bytes_max: 128 << 20,
            scans: AdmissionLimits::default(),
            stall_max: Duration::from_secs(5),
            message_bytes_max: 256 << 20,
        }
    }
}

/// What to subscribe to.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// Encoded keys; an empty end is plus infinity.
    pub span: Span,
    /// Changes with a commit timestamp above this one are delivered (exclusive).
    pub start_ts: StartTs,
    /// Leave out rows that a change feed's own writer marked as its own (BDR).
    pub filter_loop: bool,
    /// The keyspace the span lies in; `None` on a classic cluster.
    pub keyspace: Option<KeyspaceId>,
}

impl Subscribe {
    /// A subscription to `span` after `start_ts`, on a classic cluster and without loop filter.
    pub fn new(span: Span, start_ts: StartTs) -> Self {
        Self { span, start_ts, filter_loop: false, keyspace: None }
    }
}

/// What a subscription yields.
///
/// Between two resolved timestamps changes come in order of arrival: different keys in any order, versions of
/// one key possibly newest first (an initial scan reads them so), and the same version possibly more than
/// once (identical in key, start and commit timestamp). Every change has a commit timestamp above the last
/// resolved one (I3), so a consumer that collects a window, sorts it by (commit ts, start ts, key) and drops
/// equal versions has the exact history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanEvent {
    /// Committed changes; never empty.
    Changes(Vec<RawChange>),
    /// No change at or below this timestamp comes later. Strictly increasing; the first one may equal the
    /// start timestamp, and says that the initial scan is complete.
    Resolved(ResolvedTs),
}

/// Starts pullers.
#[derive(Debug)]
pub struct Puller;

impl Puller {
    /// Starts a puller on the current tokio runtime. It opens connections when the first subscription needs
    /// them, and shares them between all.
    pub fn start(pd: PdClient, options: PullerOptions) -> PullerHandle {
        let counters = Arc::new(Counters::default());
        let context = LaneContext {
            pd: pd.clone(),
            counters: Arc::clone(&counters),
            limits: options.scans,
            stall_max: options.stall_max,
            message_bytes_max: options.message_bytes_max,
        };
        let (lock_checks, checks) = mpsc::channel(locks::CHECKS_MAX);
        let shared = Arc::new(Shared {
            pd: pd.clone(),
            options,
            clock: PullerClock::new(),
            counters: Arc::clone(&counters),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            context: Arc::new(context),
            lock_checks,
            next_subscription: AtomicU64::new(1),
            lanes: Mutex::default(),
            subscriptions: Mutex::default(),
        });
        shared.spawn(locks::serve(pd.clone(), checks, counters));
        shared.spawn(shared.clock.clone().follow(pd));
        PullerHandle { shared }
    }
}

/// A running puller. Clones share it; it ends when the last clone and the last subscription are dropped, or
/// by [`PullerHandle::stop`].
#[derive(Clone, Debug)]
pub struct PullerHandle {
    shared: Arc<Shared>,
}

impl PullerHandle {
    /// Begins to follow a span. Returns at once; errors (also of the first checks) come from
    /// [`Subscription::next`].
    pub fn subscribe(&self, subscribe: Subscribe) -> Subscription {
        let shared = &self.shared;
        let id = SubscriptionId(shared.next_subscription.fetch_add(1, Ordering::Relaxed));
        let config = SpanConfig {
            id,
            span: subscribe.span.clone(),
            start_ts: subscribe.start_ts,
            held_bytes_max: shared.options.held_bytes_max,
            seed: id.0 ^ shared.pd.cluster_id().get(),
        };
        let core = SpanCore::new(config, shared.clock.now());
        let (route, inbox) = Route::new(id, shared.options.buffer_bytes_max);
        let (out, events) = mpsc::channel(DELIVERIES_MAX);
        let view = Arc::new(Mutex::new(View::default()));
        let known =
            Known { subscribe: subscribe.clone(), route: Arc::clone(&route), view: Arc::clone(&view) };
        shared.subscriptions.lock().insert(id, known);
        let worker = Worker::new(Arc::clone(shared), subscribe, core, (route, inbox), out, view);
        // The worker watches the stop token itself, so that it can say why it ended.
        shared.tasks.spawn(worker.run());
        Subscription { events, charge: None }
    }

    /// The numbers of now.
    pub fn metrics(&self) -> PullerMetrics {
        let pd_now = self.shared.clock.pd_now();
        let subscriptions = self.shared.subscriptions.lock();
        let metrics = subscriptions.iter().map(|(id, known)| known.metrics(*id, pd_now)).collect();
        self.shared.counters.snapshot(metrics)
    }

    /// Ends all subscriptions with [`PullerError::Stopped`] and closes the connections; returns when all
    /// tasks have ended.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

/// One followed span. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription {
    events: mpsc::Receiver<Delivery>,
    /// Of the last event; given back when the consumer asks for the next one.
    charge: Option<OwnedSemaphorePermit>,
}

impl Subscription {
    /// The next event. After an error, which is always terminal, `None`. Cancel-safe. A consumer that does
    /// not call this pauses the feed: nothing is buffered beyond the limits of [`PullerOptions`].
    pub async fn next(&mut self) -> Option<Result<SpanEvent, PullerError>> {
        self.charge = None;
        let delivery = self.events.recv().await?;
        self.charge = delivery.charge;
        Some(delivery.event)
    }
}

/// What is known of a living subscription.
#[derive(Debug)]
struct Known {
    subscribe: Subscribe,
    route: Arc<Route>,
    view: Arc<Mutex<View>>,
}

impl Known {
    fn metrics(&self, id: SubscriptionId, pd_now: Option<Ts>) -> SubscriptionMetrics {
        let view = self.view.lock();
        let resolved = view.status.resolved;
        SubscriptionMetrics {
            id,
            span: self.subscribe.span.clone(),
            start_ts: self.subscribe.start_ts,
            resolved,
            lag_ms: pd_now.map(|now| now.physical_ms().saturating_sub(resolved.physical_ms())),
            regions_live: view.status.regions_live,
            regions_scanning: view.status.regions_scanning,
            pieces_free: view.status.pieces_free,
            held_bytes: view.status.held_bytes,
            buffered_bytes: self.route.buffered_bytes(),
            own_streams: view.own_streams,
            failures: view.status.failures,
        }
    }
}

/// The lanes of a store: one for all, and one for each subscription that was too slow for it.
type LaneKey = (StoreId, Option<SubscriptionId>);

/// What the handles and tasks of one puller share. Lanes do not hold it, so that it ends with the last handle
/// and subscription.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pd: PdClient,
    pub(crate) clock: PullerClock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: CancellationToken,
    options: PullerOptions,
    tasks: TaskTracker,
    context: Arc<LaneContext>,
    lock_checks: mpsc::Sender<LockCheck>,
    next_subscription: AtomicU64,
    lanes: Mutex<HashMap<LaneKey, (Arc<Lane>, CancellationToken)>>,
    subscriptions: Mutex<HashMap<SubscriptionId, Known>>,
}

impl Shared {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(task));
    }

    /// The lane to a store, for everybody or for one owner.
    pub(crate) fn lane(&self, store_id: StoreId, owner: Option<SubscriptionId>) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        let (lane, _) = lanes.entry((store_id, owner)).or_insert_with(|| {
            let lane = Lane::new(Arc::clone(&self.context), store_id);
            let stop = self.stop.child_token();
            self.tasks.spawn(stop.clone().run_until_cancelled_owned(stream::serve(Arc::clone(&lane))));
            (lane, stop)
        });
        Arc::clone(lane)
    }

    /// Forgets a subscription that ended, and closes the lanes it had for itself.
    pub(crate) fn forget(&self, subscription: SubscriptionId) {
        self.subscriptions.lock().remove(&subscription);
        let own = |key: &LaneKey| key.1 == Some(subscription);
        self.lanes.lock().extract_if(|key, _| own(key)).for_each(|(_, (_, stop))| stop.cancel());
    }

    /// Queues a check for locks of dead transactions. If the queue is full it is left out: the core asks
    /// again.
    pub(crate) fn resolve_locks(&self, span: Span, ts: Ts, keyspace: Option<KeyspaceId>) {
        let _ = self.lock_checks.try_send(LockCheck { span, ts, keyspace });
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
