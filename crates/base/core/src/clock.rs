//! Time as an argument: pure cores receive a [`MonoTime`], rims ask a [`Clock`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point on a monotonic clock, counted from an arbitrary origin. Comparable only within one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoTime(Duration);

impl MonoTime {
    /// `ms` milliseconds after the origin.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Time since `earlier`; zero if that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This point moved by `by`.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// Where rims read the time.
pub trait Clock: Send + Sync {
    /// Monotonic time, for intervals and deadlines.
    fn mono(&self) -> MonoTime;
    /// Wall-clock time in Unix milliseconds, for lag against TSO physical parts and for people.
    fn wall_ms(&self) -> u64;
}

/// The machine's own clocks.
#[derive(Clone, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic origin is now.
    #[expect(clippy::disallowed_methods, reason = "this is the rim that pure code takes the time from")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn mono(&self) -> MonoTime {
        MonoTime(self.origin.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the rim that pure code takes the time from")]
    fn wall_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}
