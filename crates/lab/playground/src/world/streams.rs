//! Change-feed streams of the whole upstream: requests in, messages out.

use std::sync::Arc;

use tidegate_core::StoreId;
use tidegate_proto::cdcpb::ChangeDataRequest;

use super::{Now, World};
use crate::engine::FeedScan;
use crate::feed::{
    Closed, DownstreamId, FeedFault, FeedQueue, Item, Liveness, Outgoing, Registration, StreamId, congested,
    is_deregister,
};
use crate::feed::{SCAN_STEP_BYTES, SCAN_STEP_ROWS};

/// What a scan does next.
pub(crate) enum ScanProgress {
    /// Queue these as the reader makes room, then go on.
    More(Vec<Item>),
    /// Everything is queued, or the registration ended.
    Finished,
}

impl World {
    /// Opens a stream on a store; its messages come from the queue.
    pub(crate) fn open_stream(&mut self, store: StoreId, multiplexed: bool) -> (StreamId, Arc<FeedQueue>) {
        let id = self.feeds.open_stream(store, multiplexed);
        let limits = &self.feed_limits;
        let quota =
            self.quotas.entry(store).or_insert_with(|| crate::feed::Quota::new(limits.queue_bytes_max));
        let queue = FeedQueue::new(Arc::clone(quota), limits);
        self.queues.insert(id, Arc::clone(&queue));
        (id, queue)
    }

    /// Forgets a stream whose client is gone.
    pub(crate) fn close_stream(&mut self, id: StreamId) {
        self.feeds.close_stream(id);
        if let Some(queue) = self.queues.remove(&id) {
            queue.close(Closed::Finished);
        }
    }

    /// Breaks the streams of a store; clients see the stream fail.
    pub(crate) fn drop_streams(&mut self, store: StoreId, reason: &str) -> usize {
        let streams = self.feeds.streams_of(store);
        for id in &streams {
            self.feeds.close_stream(*id);
            if let Some(queue) = self.queues.remove(id) {
                queue.close(Closed::Broken(reason.to_owned()));
            }
        }
        streams.len()
    }

    /// Takes the first request's client version.
    pub(crate) fn greet_stream(&mut self, id: StreamId, version: &str) {
        self.feeds.greet(id, version);
    }

    /// Takes a request. What it returns has to be scanned.
    pub(crate) fn feed_request(
        &mut self,
        stream: StreamId,
        request: &ChangeDataRequest,
    ) -> Option<(DownstreamId, Registration)> {
        let pending_max = self.feed_limits.pending_max;
        let registered = if is_deregister(request) {
            self.feeds.deregister(stream, request);
            None
        } else {
            self.feeds.register(stream, request, self.cluster_id, &self.topology, pending_max).ok()
        };
        self.flush();
        registered
    }

    /// Begins the scan of a registration, if it still stands.
    pub(crate) fn begin_scan(
        &mut self,
        id: DownstreamId,
        registration: &Registration,
    ) -> Option<(FeedScan, Liveness)> {
        let region = self.topology.region(registration.region_id);
        let scan = self.feeds.begin_scan(id, registration, region, self.engine.applied());
        self.flush();
        Some((scan?, self.feeds.liveness(id)?))
    }

    /// Scans on a little. The last rows and INITIALIZED are queued here, in one step with the change that
    /// lets resolved timestamps flow.
    pub(crate) fn scan_step(&mut self, id: DownstreamId, scan: &mut FeedScan) -> ScanProgress {
        let mut rows = Vec::new();
        let complete = self.engine.feed_scan_step(scan, SCAN_STEP_ROWS, SCAN_STEP_BYTES, &mut rows);
        let Some(items) = self.feeds.pack_scanned(id, rows) else { return ScanProgress::Finished };
        if !complete {
            return ScanProgress::More(items);
        }
        self.feeds.initialized(id, items);
        self.flush();
        ScanProgress::Finished
    }

    /// Ends a registration whose scan does not fit the store's memory.
    pub(crate) fn scan_congested(&mut self, id: DownstreamId, registration: &Registration) {
        self.feeds.end(id, congested(registration.region_id));
        self.flush();
    }

    /// One round of resolved timestamps.
    pub(crate) fn resolve(&mut self, now: Now) {
        let ts = self.timestamp(now, 1);
        if self.resolved_held || self.feeds.is_idle() {
            return;
        }
        // Whatever commits by a timestamp of the engine's own choice from now on is above this one.
        self.engine.raise_max_ts(ts);
        let engine = &self.engine;
        self.feeds.resolve(ts, |span| engine.oldest_lock(span));
        self.flush();
    }

    /// Stops or restarts the rounds of resolved timestamps.
    pub(crate) fn hold_resolved(&mut self, hold: bool) {
        self.resolved_held = hold;
    }

    /// Shows everybody who observes a region an error.
    pub(crate) fn inject_fault(&mut self, region: tidegate_core::RegionId, fault: FeedFault) {
        self.feeds.end_region(region, &fault.error(region, self.cluster_id));
        self.flush();
    }

    /// Moves what the feeds produced into the streams' queues. What does not fit congests its region.
    pub(super) fn flush(&mut self) {
        loop {
            let outbox = self.feeds.take_outbox();
            if outbox.is_empty() {
                return;
            }
            for Outgoing { stream, item, region_id } in outbox {
                let Some(queue) = self.queues.get(&stream) else { continue };
                match (region_id, item) {
                    // A dropped round of resolved timestamps is repaired by the next.
                    (None, item @ Item::Resolved(_)) => drop(queue.push(item)),
                    (None, item) => queue.push_anyway(item),
                    (Some(region), item) => {
                        if queue.push(item).is_err() {
                            self.feeds.end_region(region, &congested(region));
                        }
                    }
                }
            }
        }
    }
}
