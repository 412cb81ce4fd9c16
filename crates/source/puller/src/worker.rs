//! A subscription's task: drives its [`SpanCore`] with what arrives, and does what it says.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::{StoreId, Ts};
use tidegate_pd::{GcScope, PdError, Region};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::PullerError;
use crate::inbox::{Batch, Item, Route};
use crate::lane::{Lane, Outgoing};
use crate::puller::{Shared, SpanEvent, Subscribe};
use crate::span_core::{FIND_LIMIT, Find, Input, Output, Registration, SpanCore, SpanStatus};

/// Messages taken from the inbox at a time; their changes are handed over together.
const BATCHES_MAX: usize = 16;
/// How often PD's time is looked at, and locks of dead transactions with it.
const TICK: Duration = Duration::from_secs(1);
/// How often GC is looked at while regions have to be scanned: a scan below the safe point misses versions
/// silently, so a subscription that long stood still must not go on.
const GC_CHECK_PAUSE: Duration = Duration::from_secs(30);

/// An event on its way to the consumer, with the bytes it is charged for.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) event: Result<SpanEvent, PullerError>,
    pub(crate) charge: Option<OwnedSemaphorePermit>,
}

/// What others may look at.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) status: SpanStatus,
    pub(crate) own_streams: bool,
}

type GcCheck = Pin<Box<dyn Future<Output = Result<Ts, PdError>> + Send>>;

pub(crate) struct Worker {
    shared: Arc<Shared>,
    subscribe: Subscribe,
    core: SpanCore,
    route: Arc<Route>,
    inbox: mpsc::Receiver<Batch>,
    out: mpsc::Sender<Delivery>,
    view: Arc<Mutex<View>>,
    finds: JoinSet<(Find, Vec<Region>)>,
    /// Lanes that know something of this subscription.
    lanes: Vec<Arc<Lane>>,
    own_streams: bool,
    gc_check: Option<GcCheck>,
    gc_checked: Instant,
    charge: Option<OwnedSemaphorePermit>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        subscribe: Subscribe,
        core: SpanCore,
        (route, inbox): (Arc<Route>, mpsc::Receiver<Batch>),
        out: mpsc::Sender<Delivery>,
        view: Arc<Mutex<View>>,
    ) -> Self {
        Self {
            shared,
            subscribe,
            core,
            route,
            inbox,
            out,
            view,
            finds: JoinSet::new(),
            lanes: Vec::new(),
            own_streams: false,
            gc_check: None,
            gc_checked: Instant::now(),
            charge: None,
        }
    }

    /// Runs until the consumer leaves, the puller stops, or an error ends the subscription.
    pub(crate) async fn run(mut self) {
        let (stop, out) = (self.shared.stop.clone(), self.out.clone());
        let end = tokio::select! {
            () = out.closed() => None,
            () = stop.cancelled() => Some(PullerError::Stopped),
            error = self.follow() => error,
        };
        if let Some(error) = end {
            // The consumer may have gone, or not take anything any more while the puller stops.
            let last = Delivery { event: Err(error), charge: None };
            let _ = tokio::time::timeout(TICK, self.out.send(last)).await;
        }
        for lane in &self.lanes {
            lane.unsubscribe(self.route.subscription);
        }
        self.shared.forget(self.route.subscription);
    }

    /// Returns the error that ended the subscription; `None` if the consumer left.
    async fn follow(&mut self) -> Option<PullerError> {
        if let Err(error) = self.check_start().await {
            return Some(error);
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut batches = Vec::with_capacity(BATCHES_MAX);
        let mut outputs = Vec::new();
        loop {
            let wake = self.core.next_wake().map(|due| self.shared.clock.instant(due));
            tokio::select! {
                _ = self.inbox.recv_many(&mut batches, BATCHES_MAX) => self.take(&mut batches, &mut outputs),
                Some(found) = self.finds.join_next() => {
                    // A lookup cannot be cancelled and does not panic: it always answers.
                    if let Ok((find, regions)) = found {
                        self.step(Input::Found(find, regions), &mut outputs);
                    }
                }
                _ = ticks.tick() => self.tick(&mut outputs),
                safe_point = pending_or(&mut self.gc_check) => {
                    self.gc_check = None;
                    if let Some(error) = self.below_gc(safe_point) {
                        return Some(error);
                    }
                }
                () = pending_until(wake) => self.step(Input::Tick(None), &mut outputs),
            }
            self.core.flush(&mut outputs);
            for output in outputs.drain(..) {
                if let Some(end) = self.execute(output).await {
                    return end;
                }
            }
            self.charge = None;
            self.view.lock().status = self.core.status();
        }
    }

    /// Refuses to start where history may be missing already.
    async fn check_start(&mut self) -> Result<(), PullerError> {
        if self.subscribe.span.is_empty() {
            return Err(PullerError::EmptySpan);
        }
        let safe_point = self.shared.pd.safe_point(self.scope()).await?;
        let start_ts = self.subscribe.start_ts;
        if start_ts.ts() < safe_point {
            Err(PullerError::StartBelowGc { start_ts, safe_point })
        } else {
            Ok(())
        }
    }

    fn scope(&self) -> GcScope {
        self.subscribe.keyspace.map_or(GcScope::Unified, GcScope::Keyspace)
    }

    fn below_gc(&self, safe_point: Result<Ts, PdError>) -> Option<PullerError> {
        let status = self.core.status();
        let scans = status.regions_scanning + status.pieces_free > 0;
        // PD being away is no reason to stop: it cannot advance GC either.
        let safe_point = safe_point.ok().filter(|safe_point| scans && status.resolved.ts() < *safe_point)?;
        Some(PullerError::StartBelowGc { start_ts: status.resolved.ts().as_start(), safe_point })
    }

    fn step(&mut self, input: Input, outputs: &mut Vec<Output>) {
        self.core.step(input, self.shared.clock.now(), outputs);
    }

    fn take(&mut self, batches: &mut Vec<Batch>, outputs: &mut Vec<Output>) {
        for batch in batches.drain(..) {
            for item in batch.items {
                let input = match item {
                    Item::Rows(id, rows) => Input::Rows(id, rows),
                    Item::Resolved(ts, ids) => Input::Resolved(ts, ids),
                    Item::Failed(id, failure) => Input::Failed(id, failure),
                };
                self.step(input, outputs);
            }
            match (&mut self.charge, batch.charge) {
                (Some(charge), Some(more)) => charge.merge(more),
                (charge, more) => *charge = charge.take().or(more),
            }
        }
    }

    fn tick(&mut self, outputs: &mut Vec<Output>) {
        let pd_now = self.shared.clock.pd_now();
        self.step(Input::Tick(pd_now), outputs);
        let status = self.core.status();
        let due = self.gc_checked.elapsed() >= GC_CHECK_PAUSE;
        if due && self.gc_check.is_none() && status.regions_scanning + status.pieces_free > 0 {
            self.gc_checked = Instant::now();
            let (pd, scope) = (self.shared.pd.clone(), self.scope());
            self.gc_check = Some(Box::pin(async move { pd.safe_point(scope).await }));
        }
    }

    /// Does what the core says. Returns the end of the subscription, if this was it.
    async fn execute(&mut self, output: Output) -> Option<Option<PullerError>> {
        match output {
            Output::Find(find) => self.find(find),
            Output::Register(registration) => self.register(registration),
            Output::Scanned(id, store_id) => self.lane(store_id).scanned(self.route.subscription, id),
            Output::Withdraw(registration) => {
                self.lane(registration.store_id).withdraw(self.route.subscription, &registration);
            }
            Output::OwnStreams => {
                self.own_streams = true;
                self.view.lock().own_streams = true;
            }
            Output::ResolveLocks(span, ts) => self.shared.resolve_locks(span, ts, self.subscribe.keyspace),
            Output::Changes(changes) => {
                let bytes = changes.iter().map(tidegate_core::RawChange::size_bytes).sum();
                self.shared.counters.emitted(changes.len(), bytes);
                return self.emit(SpanEvent::Changes(changes)).await;
            }
            Output::Resolved(ts) => return self.emit(SpanEvent::Resolved(ts)).await,
            Output::Stop(error) => return Some(Some(error)),
        }
        None
    }

    async fn emit(&mut self, event: SpanEvent) -> Option<Option<PullerError>> {
        let delivery = Delivery { event: Ok(event), charge: self.charge.take() };
        self.out.send(delivery).await.is_err().then_some(None)
    }

    fn find(&mut self, find: Find) {
        self.shared.counters.lookup();
        let pd = self.shared.pd.clone();
        self.finds.spawn(async move {
            let regions = pd.scan_regions(&find.span, FIND_LIMIT).await.unwrap_or_else(|error| {
                tracing::warn!(%error, span = ?find.span, "cannot look regions up");
                Vec::new()
            });
            (find, regions)
        });
    }

    fn register(&mut self, registration: Registration) {
        let lane = self.lane(registration.store_id);
        let (filter_loop, route) = (self.subscribe.filter_loop, Arc::clone(&self.route));
        lane.register(Outgoing { registration, filter_loop, route });
    }

    fn lane(&mut self, store_id: StoreId) -> Arc<Lane> {
        let owner = self.own_streams.then_some(self.route.subscription);
        let lane = self.shared.lane(store_id, owner);
        if !self.lanes.iter().any(|known| Arc::ptr_eq(known, &lane)) {
            self.lanes.push(Arc::clone(&lane));
        }
        lane
    }
}

async fn pending_or(check: &mut Option<GcCheck>) -> Result<Ts, PdError> {
    match check {
        Some(check) => check.await,
        None => std::future::pending().await,
    }
}

async fn pending_until(wake: Option<Instant>) {
    match wake {
        Some(wake) => sleep_until(wake).await,
        None => std::future::pending().await,
    }
}
