//! How a fabric is opened.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_core::{Clock, SystemClock};

/// How a fabric is opened.
#[derive(Clone)]
pub struct FabricOptions {
    /// Where everything is kept; `None` keeps it in memory and loses it with the process.
    pub data_dir: Option<PathBuf>,
    /// Bytes of batches that may be under way between arrival and acknowledgement; beyond it, streams wait
    /// (I9).
    pub in_flight_bytes_max: usize,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

/// Room for eight of the largest batches.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

impl Default for FabricOptions {
    fn default() -> Self {
        Self { data_dir: None, in_flight_bytes_max: IN_FLIGHT_BYTES_MAX, clock: Arc::new(SystemClock::new()) }
    }
}

impl std::fmt::Debug for FabricOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { data_dir, in_flight_bytes_max, clock: _ } = self;
        f.debug_struct("FabricOptions")
            .field("data_dir", data_dir)
            .field("in_flight_bytes_max", in_flight_bytes_max)
            .finish_non_exhaustive()
    }
}
