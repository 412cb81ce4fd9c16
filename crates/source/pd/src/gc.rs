//! GC barriers: names that keep the history after a timestamp from being collected.

use std::time::Duration;

use tidegate_core::{KeyspaceId, Ts};

use crate::{PdClient, PdError};

/// Which garbage collection a barrier or a safe point belongs to (`reference/pd-protocol.md` §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GcScope {
    /// The one state of a classic cluster and of all keyspaces without their own GC.
    #[default]
    Unified,
    /// The state of one keyspace.
    Keyspace(KeyspaceId),
}

/// What to hold.
#[derive(Clone, Debug)]
pub struct GcHold {
    /// Whose GC.
    pub scope: GcScope,
    /// The barrier's name, unique per holder; must be neither empty nor `gc_worker`.
    pub id: String,
    /// Snapshots at or above this timestamp stay readable.
    pub ts: Ts,
    /// How long the barrier lives without a refresh; whole seconds, at least one.
    pub ttl: Duration,
}

/// A barrier that is being held: a background task refreshes it well before it expires.
///
/// Dropping it stops the refreshing, so that it ends by itself after its time to live; [`GcBarrier::release`]
/// ends it at once.
#[derive(Debug)]
pub struct GcBarrier {
    _pd: PdClient,
}

impl GcBarrier {
    /// Sets the barrier and keeps it alive. Fails with [`PdError::BehindSafePoint`] if GC has passed `hold.ts`.
    pub async fn hold(pd: &PdClient, hold: GcHold) -> Result<Self, PdError> {
        let _ = (pd, hold);
        Err(PdError::Closed)
    }

    /// Moves the barrier up to `ts`, with the next refresh. A smaller timestamp than before is ignored.
    pub fn advance(&self, ts: Ts) {
        let _ = ts;
    }

    /// Returns when the barrier could not be kept: it expired while PD was away, or GC passed it. Pending for
    /// as long as all is well; cancel-safe.
    pub async fn lost(&self) -> PdError {
        std::future::pending().await
    }

    /// Removes the barrier.
    pub async fn release(self) -> Result<(), PdError> {
        Ok(())
    }
}
