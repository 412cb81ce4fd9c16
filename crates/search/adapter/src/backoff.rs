//! Pauses between attempts.

use std::time::Duration;

use tidegate_core::MonoTime;

/// Doubling pauses between a least and a longest one. Attempts of different things are spread by a seed, so
/// that they do not all come back at one moment; the same seed gives the same pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    seed: u64,
    failures: u32,
}

impl Backoff {
    /// No failure yet.
    pub(crate) const fn new(min: Duration, max: Duration, seed: u64) -> Self {
        Self { min, max, seed, failures: 0 }
    }

    /// Counts a failure at `now`; returns when to try again: after the doubled pause less up to a quarter,
    /// and not before
    /// `at_least` has passed.
    pub(crate) fn fail(&mut self, now: MonoTime, at_least: Duration) -> MonoTime {
        let pause = self.min.saturating_mul(1u32 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let mixed = (self.seed ^ u64::from(self.failures)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        // 0..=255 of 1024 parts: at most a quarter.
        let less = u32::try_from(mixed).map_or(Duration::ZERO, |parts| pause / 1024 * parts);
        now.after(pause.saturating_sub(less).max(at_least))
    }

    /// The attempt succeeded.
    pub(crate) const fn succeed(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_lose_at_most_a_quarter() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), 7);
        let now = MonoTime::from_ms(0);
        for full_ms in [100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.fail(now, Duration::ZERO).since(now);
            assert!(pause <= Duration::from_millis(full_ms), "{pause:?} of {full_ms} ms");
            assert!(pause >= Duration::from_millis(full_ms * 3 / 4), "{pause:?} of {full_ms} ms");
        }
        assert_eq!(backoff.fail(now, Duration::from_secs(9)).since(now), Duration::from_secs(9));
        backoff.succeed();
        assert!(backoff.fail(now, Duration::ZERO).since(now) <= Duration::from_millis(100));
    }
}
