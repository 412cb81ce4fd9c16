//! How long to wait before trying again.

use std::time::Duration;

/// The first pause; a leader election within a healthy cluster takes about as long.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause: a region that comes back is picked up within two seconds, and one that does not costs
/// half a request a second.
const LONGEST: Duration = Duration::from_secs(2);
/// A store may ask for a longer pause, up to this.
const ASKED_MAX: Duration = Duration::from_secs(600);

/// The pause before attempt number `attempt + 1` (the first failure has attempt 1): doubled with every
/// failure, and a random point in its upper half so that many regions do not come back at once
/// (`reference/cdc-protocol.md` §14).
pub fn pause(attempt: u32, rng: &mut fastrand::Rng) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let half = full / 2;
    half + Duration::from_micros(rng.u64(0..=micros(full - half)))
}

/// As [`pause`], but at least what a busy store asked for.
pub fn pause_asked(attempt: u32, asked: Duration, rng: &mut fastrand::Rng) -> Duration {
    pause(attempt, rng).max(asked.min(ASKED_MAX))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_two_seconds_and_stay_in_their_upper_half() {
        let mut rng = fastrand::Rng::with_seed(1);
        for (attempt, full_ms) in
            [(1, 50), (2, 100), (3, 200), (6, 1600), (7, 2000), (40, 2000), (u32::MAX, 2000)]
        {
            for _ in 0..100 {
                let pause = pause(attempt, &mut rng);
                let full = Duration::from_millis(full_ms);
                assert!(pause >= full / 2 && pause <= full, "attempt {attempt}: {pause:?}");
            }
        }
    }

    #[test]
    fn a_busy_store_may_ask_for_more_but_not_for_ever() {
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(pause_asked(1, Duration::from_secs(5), &mut rng), Duration::from_secs(5));
        assert_eq!(pause_asked(1, Duration::MAX, &mut rng), Duration::from_secs(600));
        assert!(pause_asked(9, Duration::ZERO, &mut rng) >= Duration::from_secs(1));
    }

    #[test]
    fn a_region_that_never_works_is_tried_less_than_a_hundred_times_in_a_minute() {
        // Sum of the shortest pauses: 25 + 50 + 100 + 200 + 400 + 800 ms, then 1 s each: 6 + 58 attempts.
        let mut rng = fastrand::Rng::with_seed(1);
        let mut waited = Duration::ZERO;
        let tries = (1..).take_while(|attempt| {
            waited += pause(*attempt, &mut rng);
            waited < Duration::from_secs(60)
        });
        assert!(tries.count() <= 65);
    }
}
