//! What the threads and the readers share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidegate_core::Clock;
use tokio::sync::{Semaphore, watch};

use super::index::IndexView;
use crate::catalog::{Catalog, Collection, Uid};
use crate::options::FabricOptions;
use crate::query::response::Freshness;
use crate::status::{Counters, Event};
use crate::store::Snapshot;
use crate::visibility;

/// Events kept in memory for readers.
const EVENTS_MAX: usize = 10_000;
/// One permit of the in-flight limit stands for this many bytes, so that the count fits the semaphore.
const PERMIT_BYTES: usize = 1_024;

/// A published state. It never changes.
#[derive(Debug)]
pub(crate) struct View {
    /// The group it shows.
    pub(crate) group: u64,
    /// All collections.
    pub(crate) collections: BTreeMap<Uid, CollectionView>,
    /// The catalogue of that state.
    pub(crate) catalog: Catalog,
    /// The documents of that state.
    pub(crate) store: Snapshot,
}

/// A collection in a published state.
#[derive(Clone, Debug)]
pub(crate) struct CollectionView {
    /// Schema, partitions, counts.
    pub(crate) collection: Arc<Collection>,
    /// The indexes; `None` once it was dropped.
    pub(crate) index: Option<IndexView>,
}

/// Counters that the threads count up.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) batches: AtomicU64,
    pub(crate) batches_replayed: AtomicU64,
    pub(crate) batches_refused: AtomicU64,
    pub(crate) rows_applied: AtomicU64,
    pub(crate) rows_stale: AtomicU64,
    pub(crate) rows_conflicting: AtomicU64,
    pub(crate) rows_late: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) publications: AtomicU64,
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// What the threads and the readers share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counts: Counts,
    /// Bytes of batches under way.
    pub(crate) in_flight: Arc<Semaphore>,
    in_flight_permits: u32,
    /// The catalogue as it is durable; batches are validated against it.
    catalog: RwLock<Catalog>,
    view: RwLock<Option<Arc<View>>>,
    views: watch::Sender<u64>,
    poisoned: RwLock<Option<String>>,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    kept: VecDeque<Event>,
    unsaved: Vec<Event>,
}

impl Shared {
    pub(crate) fn new(options: &FabricOptions, events: Vec<Event>) -> Self {
        let permits = u32::try_from(options.in_flight_bytes_max / PERMIT_BYTES).unwrap_or(u32::MAX).max(1);
        Self {
            clock: options.clock.clone(),
            counts: Counts::default(),
            in_flight: Arc::new(Semaphore::new(usize::try_from(permits).unwrap_or(Semaphore::MAX_PERMITS))),
            in_flight_permits: permits,
            catalog: RwLock::default(),
            view: RwLock::default(),
            views: watch::Sender::new(0),
            poisoned: RwLock::default(),
            events: Mutex::new(Events { kept: events.into(), unsaved: Vec::new() }),
        }
    }

    /// How many permits a batch of this size needs; one larger than the limit takes all there are.
    pub(crate) fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / PERMIT_BYTES + 1).unwrap_or(u32::MAX).min(self.in_flight_permits)
    }

    /// The durable catalogue.
    pub(crate) fn catalog(&self) -> Catalog {
        self.catalog.read().clone()
    }

    pub(crate) fn set_catalog(&self, catalog: Catalog) {
        *self.catalog.write() = catalog;
    }

    /// The newest published state.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.view.read().clone()
    }

    /// Publishes a state.
    pub(crate) fn publish(&self, view: View) {
        let group = view.group;
        *self.view.write() = Some(Arc::new(view));
        count(&self.counts.publications, 1);
        self.views.send_replace(group);
    }

    /// Changes whenever a state is published.
    pub(crate) fn views(&self) -> watch::Receiver<u64> {
        self.views.subscribe()
    }

    /// Stops ingestion for good; the first reason is kept.
    pub(crate) fn poison(&self, reason: &dyn std::error::Error) {
        let mut text = reason.to_string();
        let mut cause = reason.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        tracing::error!(reason = %text, "storage failed; ingestion has stopped");
        self.poisoned.write().get_or_insert(text);
    }

    /// Why ingestion has stopped, if it has.
    pub(crate) fn poisoned(&self) -> Option<String> {
        self.poisoned.read().clone()
    }

    /// Remembers an event; the writer stores it with its next group.
    pub(crate) fn log(&self, kind: &str, collection: Option<&Collection>, detail: String) {
        let mut events = self.events.lock();
        let event = Event {
            number: events.kept.back().map_or(1, |last| last.number + 1),
            at_ms: self.clock.wall_ms(),
            kind: kind.to_owned(),
            collection: collection.map(|collection| collection.name().to_owned()),
            detail,
        };
        events.unsaved.push(event.clone());
        events.kept.push_back(event);
        if events.kept.len() > EVENTS_MAX {
            events.kept.pop_front();
        }
    }

    /// Events that no group has stored yet.
    pub(crate) fn unsaved_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unsaved)
    }

    /// Events above a number, oldest first.
    pub(crate) fn events(&self, after: u64, limit: usize) -> Vec<Event> {
        let events = self.events.lock();
        events.kept.iter().filter(|event| event.number > after).take(limit).cloned().collect()
    }

    /// How fresh a collection is in a view.
    pub(crate) fn freshness(&self, view: &View, collection: &Collection) -> Freshness {
        let poisoned = self.poisoned.read().is_some();
        visibility::freshness(collection, view.group, self.clock.wall_ms(), poisoned)
    }

    /// The counters now.
    pub(crate) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        Counters {
            batches: read(&counts.batches),
            batches_replayed: read(&counts.batches_replayed),
            batches_refused: read(&counts.batches_refused),
            rows_applied: read(&counts.rows_applied),
            rows_stale: read(&counts.rows_stale),
            rows_conflicting: read(&counts.rows_conflicting),
            rows_late: read(&counts.rows_late),
            commits: read(&counts.commits),
            publications: read(&counts.publications),
        }
    }
}
