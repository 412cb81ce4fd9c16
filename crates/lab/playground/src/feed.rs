//! The change feed's subscriptions (`reference/cdc-protocol.md` §4-§7): who observes which region, and what
//! each gets to see. Pure: messages leave through an outbox, which the caller empties into the streams'
//! queues.

mod congestion;
mod event;
mod limits;
mod queue;
mod register;
mod resolved;
#[cfg(test)]
mod tests;
mod version;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use tidegate_core::{CommitTs, RegionId, ResolvedTs, Span, StoreId, Ts};
use tidegate_invariants::check_invariant;
use tidegate_proto::cdcpb;

use crate::engine::ChangeRow;

pub use congestion::FeedFault;
pub(crate) use congestion::{congested, epoch_not_match, not_leader};
pub(crate) use event::{EventSize, pack};
pub use limits::FeedLimits;
pub(crate) use limits::{SCAN_STEP_BYTES, SCAN_STEP_ROWS};
pub(crate) use queue::{Closed, FeedQueue, Quota};
pub(crate) use register::{Registration, is_deregister};
pub(crate) use version::ClientVersion;

/// One `EventFeed` call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamId(u64);

/// One registration; never reused, unlike the pair of ids that the client knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DownstreamId(u64);

/// A subscription's id, chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RequestId(pub(crate) u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for its scan; sees nothing yet.
    Pending,
    /// Live rows flow, mixed with the scan's.
    Scanning,
    /// The scan is through: resolved timestamps flow as well.
    Normal,
}

/// Whether a registration still stands; what was queued for one that does not is thrown away.
#[derive(Clone, Debug)]
pub(crate) struct Liveness(Arc<AtomicBool>);

impl Liveness {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub(crate) fn is_live(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

struct Downstream {
    stream: StreamId,
    request_id: RequestId,
    region_id: RegionId,
    /// The region's range cut to what was asked for.
    span: Span,
    filter_loop: bool,
    phase: Phase,
    resolved: ResolvedTs,
    liveness: Liveness,
}

struct FeedStream {
    store: StoreId,
    version: ClientVersion,
    multiplexed: bool,
    downstreams: BTreeMap<(RequestId, RegionId), DownstreamId>,
}

/// What is on its way to a stream.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// Rows or an error of one region.
    Event {
        event: cdcpb::Event,
        size: EventSize,
    },
    /// Rows of a scan: thrown away if the registration ends first.
    Scanned {
        event: cdcpb::Event,
        size: EventSize,
        liveness: Liveness,
    },
    Resolved(cdcpb::ResolvedTs),
}

/// A message and how it may be refused.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) stream: StreamId,
    pub(crate) item: Item,
    /// Whose rows these are: if they do not fit, its region is congested. `None`: never refused.
    pub(crate) region_id: Option<RegionId>,
}

/// All streams and registrations of all stores.
#[derive(Default)]
pub(crate) struct Feeds {
    streams: HashMap<StreamId, FeedStream>,
    downstreams: HashMap<DownstreamId, Downstream>,
    by_region: HashMap<RegionId, Vec<DownstreamId>>,
    next_id: u64,
    outbox: Vec<Outgoing>,
}

impl Feeds {
    pub(crate) fn open_stream(&mut self, store: StoreId, multiplexed: bool) -> StreamId {
        let id = StreamId(self.fresh_id());
        let stream =
            FeedStream { store, version: ClientVersion::UNKNOWN, multiplexed, downstreams: BTreeMap::new() };
        self.streams.insert(id, stream);
        id
    }

    /// Forgets a stream with all its registrations; nobody is told.
    pub(crate) fn close_stream(&mut self, id: StreamId) {
        let Some(stream) = self.streams.remove(&id) else { return };
        for downstream in stream.downstreams.into_values() {
            self.forget(downstream);
        }
    }

    /// The streams of a store.
    pub(crate) fn streams_of(&self, store: StoreId) -> Vec<StreamId> {
        self.streams.iter().filter(|(_, stream)| stream.store == store).map(|(id, _)| *id).collect()
    }

    pub(crate) fn take_outbox(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outbox)
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Removes a registration from everything but its stream.
    fn forget(&mut self, id: DownstreamId) -> Option<Downstream> {
        let downstream = self.downstreams.remove(&id)?;
        downstream.liveness.end();
        if let Some(others) = self.by_region.get_mut(&downstream.region_id) {
            others.retain(|other| *other != id);
            if others.is_empty() {
                self.by_region.remove(&downstream.region_id);
            }
        }
        Some(downstream)
    }

    /// Ends a registration and tells the client why.
    pub(crate) fn end(&mut self, id: DownstreamId, error: cdcpb::Error) {
        let Some(downstream) = self.forget(id) else { return };
        if let Some(stream) = self.streams.get_mut(&downstream.stream) {
            stream.downstreams.remove(&(downstream.request_id, downstream.region_id));
        }
        self.send_error(downstream.stream, downstream.request_id, downstream.region_id, error);
    }

    /// Ends all registrations of a region for the same reason.
    pub(crate) fn end_region(&mut self, region_id: RegionId, error: &cdcpb::Error) {
        for id in self.by_region.get(&region_id).cloned().unwrap_or_default() {
            self.end(id, error.clone());
        }
    }

    fn send_error(&mut self, stream: StreamId, request: RequestId, region: RegionId, error: cdcpb::Error) {
        let event = event::error(request, region, error);
        let item = Item::Event { event, size: EventSize::default() };
        self.outbox.push(Outgoing { stream, item, region_id: None });
    }

    /// Shows the rows of one applied command of one region to everybody who observes them.
    pub(crate) fn observe(&mut self, region_id: RegionId, rows: &[&ChangeRow]) {
        for id in self.by_region.get(&region_id).map(Vec::as_slice).unwrap_or_default() {
            let Some(downstream) = self.downstreams.get(id) else { continue };
            if downstream.phase == Phase::Pending {
                continue;
            }
            let visible = rows.iter().filter(|row| downstream.shows(row));
            downstream.check_unresolved(visible.clone());
            let (event, size) = event::rows(
                downstream.request_id,
                region_id,
                visible.map(|row| event::row((*row).clone())).collect(),
            );
            if size.rows > 0 {
                let item = Item::Event { event, size };
                self.outbox.push(Outgoing { stream: downstream.stream, item, region_id: Some(region_id) });
            }
        }
    }

    /// Whether nobody observes anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.by_region.is_empty()
    }

    /// What a scan may show of `rows`, cut into events.
    pub(crate) fn pack_scanned(&self, id: DownstreamId, rows: Vec<ChangeRow>) -> Option<Vec<Item>> {
        let downstream = self.downstreams.get(&id)?;
        let visible = rows.into_iter().filter(|row| downstream.shows(row)).map(event::row);
        let events = pack(downstream.request_id, downstream.region_id, visible);
        let scanned = |(event, size)| Item::Scanned { event, size, liveness: downstream.liveness.clone() };
        Some(events.into_iter().map(scanned).collect())
    }

    /// Ends a registration's scan: INITIALIZED follows what the scan has queued.
    pub(crate) fn initialized(&mut self, id: DownstreamId, last: Vec<Item>) {
        let Some(downstream) = self.downstreams.get_mut(&id) else { return };
        downstream.phase = Phase::Normal;
        let stream = downstream.stream;
        let event = event::initialized(downstream.request_id, downstream.region_id);
        let liveness = downstream.liveness.clone();
        let initialized = Item::Scanned { event, size: EventSize::default(), liveness };
        let items = last.into_iter().chain([initialized]);
        self.outbox.extend(items.map(|item| Outgoing { stream, item, region_id: None }));
    }

    /// Whether a registration stands, for those who work for it.
    pub(crate) fn liveness(&self, id: DownstreamId) -> Option<Liveness> {
        self.downstreams.get(&id).map(|downstream| downstream.liveness.clone())
    }

    /// The stream that a registration belongs to.
    pub(crate) fn stream_of(&self, id: DownstreamId) -> Option<StreamId> {
        self.downstreams.get(&id).map(|downstream| downstream.stream)
    }
}

impl Downstream {
    /// Rows outside the range, and rows that a filter hides (`reference/cdc-protocol.md` §7.4), are not
    /// shown.
    fn shows(&self, row: &ChangeRow) -> bool {
        let written_by_feed = row.txn_source & 0xff != 0;
        let hidden = row.txn_source >> 8 != 0 || (self.filter_loop && written_by_feed);
        !hidden && self.span.contains(&row.encoded)
    }

    /// What is committed now must lie above what was promised to be complete.
    fn check_unresolved<'a>(&self, rows: impl Iterator<Item = &'a &'a ChangeRow>) {
        for row in rows.filter(|row| row.commit_ts > CommitTs::ZERO) {
            let unresolved = row.commit_ts.ts() > self.resolved.ts();
            check_invariant!(
                I3,
                unresolved,
                "region {} at {}: {}",
                self.region_id,
                self.resolved,
                row.commit_ts
            );
        }
    }
}

/// Timestamps above it may still be committed by transactions this cluster has not heard of.
pub(crate) type MinTs = Ts;
