//! The limits of the change feed. Defaults are TiKV's (`reference/cdc-protocol.md` §4-§7).

/// How much a store's change feed may hold and do at once.
#[derive(Clone, Debug)]
pub struct FeedLimits {
    /// Bytes queued for all streams of a store; beyond it regions are congested.
    pub queue_bytes_max: usize,
    /// Scan events queued in one stream; a slow reader holds its scans back, not the writers.
    pub scan_events_queued_max: usize,
    /// Scans that run at once in a store.
    pub scans_max: usize,
    /// Registrations that wait for their scan in a store; beyond it the store is busy.
    pub pending_max: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        Self { queue_bytes_max: 512 << 20, scan_events_queued_max: 128, scans_max: 6, pending_max: 10_000 }
    }
}

/// Rows of one step of a scan.
pub(crate) const SCAN_STEP_ROWS: usize = 1_024;
/// Bytes of one step of a scan.
pub(crate) const SCAN_STEP_BYTES: usize = 1 << 20;
/// A scan's event ends before it reaches this many bytes; a larger row is alone in its event.
pub(crate) const EVENT_BYTES: usize = 32 << 10;
/// Events in one message.
pub(crate) const MESSAGE_EVENTS_MAX: usize = 64;
/// A message ends before it passes this many bytes; a larger event is alone in its message.
pub(crate) const MESSAGE_BYTES: usize = 6 << 20;
