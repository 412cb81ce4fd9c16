//! A lane: one connection and one event feed stream to one store, shared by all subscriptions (or owned by
//! one whose consumer is slow).
//!
//! Registrations line up in front of the lane and are sent as scans get free. What the lane has sent is known
//! in its table before the store can answer. When the stream breaks, everything in the table and in the queue
//! fails, after all that had been received from it.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tidegate_core::{RegionId, StoreId};
use tidegate_pd::PdClient;
use tidegate_proto::cdcpb::{self, ChangeDataRequest, change_data_request};
use tidegate_proto::{kvrpcpb, metapb};
use tokio::sync::Notify;

use crate::admission::{Admission, AdmissionLimits};
use crate::failure::Failure;
use crate::ids::{RegistrationId, RequestId, SubscriptionId};
use crate::inbox::{Item, Route};
use crate::metrics::Counters;
use crate::span_core::{Priority, Registration};

/// The client version that requests carry. The store takes it from the first one of a stream: from 4.0.8 on
/// it batches resolved timestamps, from 5.3.0 on it checks the cluster id (`reference/cdc-protocol.md` §1).
const CLIENT_VERSION: &str = "9.0.0";

/// What all lanes of a puller share.
#[derive(Debug)]
pub(crate) struct LaneContext {
    pub(crate) pd: PdClient,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: AdmissionLimits,
    /// How long a stream waits for one subscription before that one gets lanes of its own.
    pub(crate) stall_max: Duration,
    pub(crate) message_bytes_max: usize,
}

/// A registration with everything needed to send it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) registration: Registration,
    pub(crate) filter_loop: bool,
    pub(crate) route: Arc<Route>,
}

type Key = (SubscriptionId, RegistrationId);

/// What the store holds for one request id.
#[derive(Debug)]
struct Tracked {
    route: Arc<Route>,
    regions: HashMap<RegionId, RegistrationId>,
}

#[derive(Debug)]
struct State {
    queue: Admission<Key, Outgoing>,
    table: HashMap<RequestId, Tracked>,
    /// Withdrawals to be sent; each undoes one earlier registration, so they are no more than those.
    withdrawals: Vec<ChangeDataRequest>,
    /// Whether a stream is open, so that there is somebody to send withdrawals to.
    connected: bool,
}

/// The shared half of a lane; its task is [`crate::stream::serve`].
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) context: Arc<LaneContext>,
    pub(crate) store_id: StoreId,
    state: Mutex<State>,
    /// Told whenever there may be something to send.
    pub(crate) wake: Notify,
}

impl Lane {
    pub(crate) fn new(context: Arc<LaneContext>, store_id: StoreId) -> Arc<Self> {
        let state = State {
            queue: Admission::new(context.limits),
            table: HashMap::new(),
            withdrawals: Vec::new(),
            connected: false,
        };
        Arc::new(Self { context, store_id, state: Mutex::new(state), wake: Notify::new() })
    }

    // For subscriptions.

    /// Lines a registration up.
    pub(crate) fn register(&self, outgoing: Outgoing) {
        let key = (outgoing.route.subscription, outgoing.registration.id);
        let priority = outgoing.registration.priority;
        self.state.lock().queue.push(key, priority, outgoing);
        self.wake.notify_one();
    }

    /// A scan is over; the next may begin.
    pub(crate) fn scanned(&self, subscription: SubscriptionId, registration: RegistrationId) {
        self.state.lock().queue.finish((subscription, registration));
        self.wake.notify_one();
    }

    /// Ends one registration at the store.
    pub(crate) fn withdraw(&self, subscription: SubscriptionId, registration: &Registration) {
        let mut state = self.state.lock();
        let key = (subscription, registration.id);
        state.queue.remove(|waiting| *waiting == key);
        state.forget(registration.request_id, registration.region_id);
        state.send_withdrawal(self.withdrawal(registration.request_id, Some(registration.region_id)));
        drop(state);
        self.wake.notify_one();
    }

    /// Ends everything of a subscription at the store. Returns the registrations that were known here.
    pub(crate) fn unsubscribe(&self, subscription: SubscriptionId) -> Vec<RegistrationId> {
        let mut state = self.state.lock();
        let waiting = state.queue.remove(|(owner, _)| *owner == subscription);
        let mut ids: Vec<RegistrationId> = waiting.iter().map(|outgoing| outgoing.registration.id).collect();
        let gone: Vec<(RequestId, Tracked)> =
            state.table.extract_if(|_, tracked| tracked.route.subscription == subscription).collect();
        for (request_id, tracked) in gone {
            ids.extend(tracked.regions.into_values());
            state.send_withdrawal(self.withdrawal(request_id, None));
        }
        drop(state);
        self.wake.notify_one();
        ids
    }

    // For the stream.

    /// Whether nobody wants anything from this lane.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_empty() && state.table.is_empty() && state.withdrawals.is_empty()
    }

    /// Whether anybody waits to be registered.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.state.lock().queue.is_empty()
    }

    /// Whether another subscription than this one uses the lane.
    pub(crate) fn is_shared(&self, subscription: SubscriptionId) -> bool {
        self.state.lock().table.values().any(|tracked| tracked.route.subscription != subscription)
    }

    pub(crate) fn set_connected(&self) {
        let mut state = self.state.lock();
        state.withdrawals.clear();
        state.connected = true;
    }

    /// What may be sent now. Registrations enter the table before they leave.
    pub(crate) fn take_requests(&self) -> Vec<ChangeDataRequest> {
        let mut state = self.state.lock();
        let mut requests = std::mem::take(&mut state.withdrawals);
        while let Some(outgoing) = state.queue.admit() {
            if outgoing.route.is_closed() {
                state.queue.finish((outgoing.route.subscription, outgoing.registration.id));
                continue;
            }
            requests.push(self.request(&outgoing));
            state.track(outgoing);
        }
        self.context.counters.registered(requests.len());
        requests
    }

    /// Who waits for the events of a region under a request id.
    pub(crate) fn find(&self, request: RequestId, region: RegionId) -> Option<(RegistrationId, Arc<Route>)> {
        let state = self.state.lock();
        let tracked = state.table.get(&request)?;
        Some((*tracked.regions.get(&region)?, Arc::clone(&tracked.route)))
    }

    /// Who waits for resolved timestamps of these regions under a request id; unknown ones are left out.
    pub(crate) fn find_all(
        &self,
        request: RequestId,
        regions: &[u64],
    ) -> Option<(Vec<RegistrationId>, Arc<Route>)> {
        let state = self.state.lock();
        let tracked = state.table.get(&request)?;
        let known = regions.iter().filter_map(|region| tracked.regions.get(&RegionId(*region)).copied());
        Some((known.collect(), Arc::clone(&tracked.route)))
    }

    /// Takes a registration out that the store ended.
    pub(crate) fn ended(&self, request: RequestId, region: RegionId) -> Option<(RegistrationId, Arc<Route>)> {
        let mut state = self.state.lock();
        let route = Arc::clone(&state.table.get(&request)?.route);
        let registration = state.forget(request, region)?;
        state.queue.finish((route.subscription, registration));
        drop(state);
        self.wake.notify_one();
        Some((registration, route))
    }

    /// Takes everything out, as after a broken stream: per subscription its registrations.
    pub(crate) fn drain(&self) -> Vec<(Arc<Route>, Vec<RegistrationId>)> {
        let mut state = self.state.lock();
        state.connected = false;
        state.withdrawals.clear();
        let waiting = state.queue.remove(|_| true);
        let waiting = waiting.into_iter().map(|outgoing| (outgoing.route, outgoing.registration.id));
        let tracked = state.table.drain().flat_map(|(_, tracked)| {
            let route = tracked.route;
            tracked.regions.into_values().map(move |id| (Arc::clone(&route), id))
        });
        let mut by_subscription: HashMap<SubscriptionId, (Arc<Route>, Vec<RegistrationId>)> = HashMap::new();
        for (route, id) in tracked.collect::<Vec<_>>().into_iter().chain(waiting) {
            by_subscription.entry(route.subscription).or_insert_with(|| (route, Vec::new())).1.push(id);
        }
        by_subscription.into_values().collect()
    }

    fn header(&self) -> Option<cdcpb::Header> {
        let cluster_id = self.context.pd.cluster_id().get();
        Some(cdcpb::Header { cluster_id, ticdc_version: CLIENT_VERSION.into() })
    }

    /// A registration's request; the unset oneof means "register".
    fn request(&self, outgoing: &Outgoing) -> ChangeDataRequest {
        let Registration { request_id, region_id, epoch, span, checkpoint, priority, .. } =
            &outgoing.registration;
        ChangeDataRequest {
            header: self.header(),
            region_id: region_id.get(),
            region_epoch: Some(metapb::RegionEpoch { conf_ver: epoch.conf_ver, version: epoch.version }),
            checkpoint_ts: checkpoint.get(),
            start_key: span.start.clone(),
            end_key: span.end.clone(),
            request_id: request_id.0,
            extra_op: kvrpcpb::ExtraOp::ReadOldValue.into(),
            filter_loop: outgoing.filter_loop,
            scan_priority: scan_priority(*priority).into(),
            ..Default::default()
        }
    }

    /// Without a region all regions of the request id are meant.
    fn withdrawal(&self, request_id: RequestId, region_id: Option<RegionId>) -> ChangeDataRequest {
        let deregister = change_data_request::Deregister {};
        ChangeDataRequest {
            header: self.header(),
            region_id: region_id.map_or(0, RegionId::get),
            request_id: request_id.0,
            request: Some(change_data_request::Request::Deregister(deregister)),
            ..Default::default()
        }
    }
}

impl State {
    fn track(&mut self, outgoing: Outgoing) {
        let Outgoing { registration, route, .. } = outgoing;
        let tracked = self
            .table
            .entry(registration.request_id)
            .or_insert_with(|| Tracked { route, regions: HashMap::new() });
        tracked.regions.insert(registration.region_id, registration.id);
    }

    fn forget(&mut self, request: RequestId, region: RegionId) -> Option<RegistrationId> {
        let tracked = self.table.get_mut(&request)?;
        let registration = tracked.regions.remove(&region);
        if tracked.regions.is_empty() {
            self.table.remove(&request);
        }
        registration
    }

    /// Without a stream nothing is registered, so there is nobody to tell.
    fn send_withdrawal(&mut self, request: ChangeDataRequest) {
        if self.connected {
            self.withdrawals.push(request);
        }
    }
}

fn scan_priority(priority: Priority) -> change_data_request::ScanPriority {
    match priority {
        Priority::High => change_data_request::ScanPriority::High,
        Priority::Low => change_data_request::ScanPriority::Low,
    }
}

/// Failures of many registrations, as items.
pub(crate) fn failed(ids: Vec<RegistrationId>, failure: &Failure) -> Vec<Item> {
    ids.into_iter().map(|id| Item::Failed(id, failure.clone())).collect()
}
