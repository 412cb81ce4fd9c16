//! A clock that tests hurry on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Clock, MonoTime, SystemClock};

/// The system's clocks, the one on the wall `speed` times as fast and moved ahead at will.
pub(crate) struct MovedClock {
    system: SystemClock,
    start_ms: u64,
    speed: u64,
    ahead_ms: AtomicU64,
}

impl MovedClock {
    pub(crate) fn new(speed: u64) -> Arc<Self> {
        let system = SystemClock::new();
        let start_ms = system.wall_ms();
        Arc::new(Self { system, start_ms, speed, ahead_ms: AtomicU64::new(0) })
    }

    pub(crate) fn move_ahead_ms(&self, by: u64) {
        self.ahead_ms.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for MovedClock {
    fn mono(&self) -> MonoTime {
        self.system.mono()
    }

    fn wall_ms(&self) -> u64 {
        let elapsed_ms = self.system.wall_ms().saturating_sub(self.start_ms);
        self.start_ms + elapsed_ms * self.speed + self.ahead_ms.load(Ordering::Relaxed)
    }
}
