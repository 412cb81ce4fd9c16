//! The rim: handles, options and subscriptions.

use tidegate_core::{KeyspaceId, RawChange, ResolvedTs, Span, StartTs};
use tidegate_pd::PdClient;

use crate::PullerError;

/// Limits and defaults of a puller.
#[derive(Clone, Debug, Default)]
pub struct PullerOptions {}

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
/// one key possibly newest first (an initial scan reads them so), and the same version possibly more than once
/// (identical in key, start and commit timestamp). Every change has a commit timestamp above the last resolved
/// one (I3), so a consumer that collects a window, sorts it by (commit ts, start ts, key) and drops equal
/// versions has the exact history.
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
        let _ = options;
        PullerHandle { _pd: pd }
    }
}

/// A running puller. Clones share it; it ends when the last clone and the last subscription are dropped, or by
/// [`PullerHandle::stop`].
#[derive(Clone, Debug)]
pub struct PullerHandle {
    _pd: PdClient,
}

impl PullerHandle {
    /// Begins to follow a span. Returns at once; errors (also of the first checks) come from
    /// [`Subscription::next`].
    pub fn subscribe(&self, subscribe: Subscribe) -> Subscription {
        let _ = subscribe;
        Subscription {}
    }

    /// Ends all subscriptions with [`PullerError::Stopped`] and closes the connections; returns when all tasks
    /// have ended.
    pub async fn stop(&self) {}
}

/// One followed span. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription {}

impl Subscription {
    /// The next event. After an error, which is always terminal, `None`. Cancel-safe. A consumer that does not
    /// call this pauses the feed: nothing is buffered beyond the limits of [`PullerOptions`].
    pub async fn next(&mut self) -> Option<Result<SpanEvent, PullerError>> {
        None
    }
}
