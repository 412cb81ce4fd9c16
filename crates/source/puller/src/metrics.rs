//! Numbers for people and monitoring.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{ResolvedTs, Span, StartTs};

use crate::failure::Failure;
use crate::ids::SubscriptionId;

/// Counters of one puller, raised by its streams and subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    events: AtomicU64,
    rows: AtomicU64,
    changes: AtomicU64,
    bytes: AtomicU64,
    registrations: AtomicU64,
    pauses: AtomicU64,
    lookups: AtomicU64,
    locks_resolved: AtomicU64,
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn event(&self) {
        add(&self.events, 1);
    }

    pub(crate) fn rows(&self, count: usize) {
        add(&self.rows, count);
    }

    pub(crate) fn emitted(&self, changes: usize, bytes: usize) {
        add(&self.changes, changes);
        add(&self.bytes, bytes);
    }

    pub(crate) fn registered(&self, count: usize) {
        add(&self.registrations, count);
    }

    pub(crate) fn pause(&self) {
        add(&self.pauses, 1);
    }

    pub(crate) fn lookup(&self) {
        add(&self.lookups, 1);
    }

    pub(crate) fn locks_resolved(&self, count: usize) {
        add(&self.locks_resolved, count);
    }

    pub(crate) fn snapshot(&self, subscriptions: Vec<SubscriptionMetrics>) -> PullerMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PullerMetrics {
            events: read(&self.events),
            rows: read(&self.rows),
            changes: read(&self.changes),
            change_bytes: read(&self.bytes),
            requests: read(&self.registrations),
            pauses: read(&self.pauses),
            region_lookups: read(&self.lookups),
            locks_resolved: read(&self.locks_resolved),
            subscriptions,
        }
    }
}

/// A puller's numbers since its start.
#[derive(Clone, Debug, Default)]
pub struct PullerMetrics {
    /// Events received from stores.
    pub events: u64,
    /// Rows in them, of every kind.
    pub rows: u64,
    /// Changes handed to consumers.
    pub changes: u64,
    /// Bytes of keys and values in them.
    pub change_bytes: u64,
    /// Requests sent to stores: registrations and withdrawals.
    pub requests: u64,
    /// How often a stream stood still for longer than the limit because a consumer was slow.
    pub pauses: u64,
    /// Region lookups at PD.
    pub region_lookups: u64,
    /// Locks of dead transactions that were resolved.
    pub locks_resolved: u64,
    /// The subscriptions that live now.
    pub subscriptions: Vec<SubscriptionMetrics>,
}

/// One subscription's numbers.
#[derive(Clone, Debug)]
pub struct SubscriptionMetrics {
    /// The subscription.
    pub id: SubscriptionId,
    /// Its span.
    pub span: Span,
    /// Where it started.
    pub start_ts: StartTs,
    /// Its resolved timestamp.
    pub resolved: ResolvedTs,
    /// How far that is behind PD's time, in milliseconds; `None` while PD's time is unknown.
    pub lag_ms: Option<u64>,
    /// Regions that stream live changes.
    pub regions_live: usize,
    /// Regions that are being scanned or wait for it.
    pub regions_scanning: usize,
    /// Parts of the span that no region is registered for.
    pub pieces_free: usize,
    /// Bytes of uncommitted rows that wait for their commit.
    pub held_bytes: usize,
    /// Bytes between the streams and the consumer.
    pub buffered_bytes: usize,
    /// Whether it has streams of its own, because its consumer was slow.
    pub own_streams: bool,
    /// Ended registrations by kind, in the order of [`Failure::KINDS`].
    pub failures: [u64; Failure::KINDS.len()],
}
