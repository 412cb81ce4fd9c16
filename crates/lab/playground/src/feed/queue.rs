//! A stream's queue: what waits to be sent, within the store's memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidegate_proto::cdcpb::ChangeDataEvent;
use tokio::sync::Notify;

use super::limits::{MESSAGE_BYTES, MESSAGE_EVENTS_MAX};
use super::{EventSize, FeedLimits, Item, Liveness};

/// What a queued item costs beside its bytes: the event and its place in the queue.
const ITEM_OVERHEAD_BYTES: usize = 256;

/// The bytes that all streams of a store may hold together.
#[derive(Debug)]
pub(crate) struct Quota {
    used: AtomicUsize,
    limit: usize,
}

impl Quota {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.limit {
            return true;
        }
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    fn take_anyway(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Waiting {
    items: VecDeque<(Item, usize)>,
    scan_events: usize,
    closed: Option<Closed>,
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// The client asked for nothing more.
    Finished,
    /// This side broke it, for this reason.
    Broken(String),
}

/// One FIFO for rows, errors and resolved timestamps: their order is the protocol's promise.
pub(crate) struct FeedQueue {
    waiting: Mutex<Waiting>,
    quota: Arc<Quota>,
    scan_events_max: usize,
    readable: Notify,
    writable: Notify,
}

/// The queue did not take an item.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl FeedQueue {
    pub(crate) fn new(quota: Arc<Quota>, limits: &FeedLimits) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::new(Waiting::default()),
            quota,
            scan_events_max: limits.scan_events_queued_max,
            readable: Notify::new(),
            writable: Notify::new(),
        })
    }

    /// Queues an item if the store's memory allows it.
    pub(crate) fn push(&self, item: Item) -> Result<(), Full> {
        let cost = cost(&item);
        if !self.quota.take(cost) {
            return Err(Full);
        }
        self.enqueue(item, cost);
        Ok(())
    }

    /// Queues an item that must not be lost: errors, and the mark that ends a scan.
    pub(crate) fn push_anyway(&self, item: Item) {
        let cost = cost(&item);
        self.quota.take_anyway(cost);
        self.enqueue(item, cost);
    }

    /// Queues a scan's events one by one as the reader makes room. Ends early if the registration does, or if
    /// the store's memory is used up.
    pub(crate) async fn push_scanned(&self, items: Vec<Item>, liveness: &Liveness) -> Result<(), Full> {
        for item in items {
            self.wait_for_room(liveness).await;
            if !liveness.is_live() {
                return Ok(());
            }
            self.push(item)?;
        }
        Ok(())
    }

    async fn wait_for_room(&self, liveness: &Liveness) {
        loop {
            let writable = self.writable.notified();
            let waiting = {
                let waiting = self.waiting.lock();
                waiting.scan_events >= self.scan_events_max && waiting.closed.is_none()
            };
            if !waiting || !liveness.is_live() {
                return;
            }
            writable.await;
        }
    }

    fn enqueue(&self, item: Item, cost: usize) {
        let mut waiting = self.waiting.lock();
        if waiting.closed.is_some() {
            self.quota.give_back(cost);
            return;
        }
        waiting.scan_events += usize::from(is_scanned(&item));
        waiting.items.push_back((item, cost));
        drop(waiting);
        self.readable.notify_one();
    }

    /// Ends the stream; what waits is thrown away.
    pub(crate) fn close(&self, closed: Closed) {
        let mut waiting = self.waiting.lock();
        waiting.closed.get_or_insert(closed);
        waiting.scan_events = 0;
        let bytes = waiting.items.drain(..).map(|(_, cost)| cost).sum();
        drop(waiting);
        self.quota.give_back(bytes);
        self.readable.notify_one();
        self.writable.notify_waiters();
    }

    /// The next message, when there is one; how the stream ended once it is closed.
    pub(crate) async fn next_message(&self) -> Result<ChangeDataEvent, Closed> {
        loop {
            let readable = self.readable.notified();
            {
                let mut waiting = self.waiting.lock();
                if let Some(closed) = &waiting.closed {
                    return Err(closed.clone());
                }
                let (message, freed) = waiting.take_message();
                drop(waiting);
                self.quota.give_back(freed);
                if freed > 0 {
                    self.writable.notify_waiters();
                }
                if let Some(message) = message {
                    return Ok(message);
                }
            }
            readable.await;
        }
    }
}

impl Waiting {
    /// Packs what waits into one message, and counts the bytes that left the queue.
    fn take_message(&mut self) -> (Option<ChangeDataEvent>, usize) {
        let mut message = ChangeDataEvent::default();
        let (mut bytes, mut freed) = (0, 0);
        while let Some((item, _)) = self.items.front() {
            let size = size_of(item).bytes;
            let is_resolved = matches!(item, Item::Resolved(_));
            let full = message.events.len() >= MESSAGE_EVENTS_MAX || bytes + size > MESSAGE_BYTES;
            if !message.events.is_empty() && (full || is_resolved) {
                break;
            }
            let Some((item, cost)) = self.items.pop_front() else { break };
            freed += cost;
            bytes += size;
            self.scan_events -= usize::from(is_scanned(&item));
            match item {
                Item::Resolved(resolved) => {
                    message.resolved_ts = Some(resolved);
                    break;
                }
                Item::Scanned { liveness, .. } if !liveness.is_live() => {}
                Item::Scanned { event, .. } | Item::Event { event, .. } => message.events.push(event),
            }
        }
        let empty = message.events.is_empty() && message.resolved_ts.is_none();
        ((!empty).then_some(message), freed)
    }
}

impl Drop for FeedQueue {
    fn drop(&mut self) {
        self.close(Closed::Finished);
    }
}

fn is_scanned(item: &Item) -> bool {
    matches!(item, Item::Scanned { .. })
}

fn size_of(item: &Item) -> EventSize {
    match item {
        Item::Event { size, .. } | Item::Scanned { size, .. } => *size,
        Item::Resolved(_) => EventSize::default(),
    }
}

fn cost(item: &Item) -> usize {
    size_of(item).bytes + ITEM_OVERHEAD_BYTES
}
