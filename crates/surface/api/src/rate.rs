//! Rows per second, from a counter that only grows.

use std::collections::VecDeque;

use tidegate_core::MonoTime;

/// Samples kept: three seconds at two a second, long enough to be read and short enough to be true.
const SAMPLES: usize = 7;

/// The rate of a counter over the last few samples.
#[derive(Debug, Default)]
pub struct RateMeter {
    samples: VecDeque<(MonoTime, u64)>,
}

impl RateMeter {
    /// Takes the counter's value at `now` and gives its rate per second over the samples kept; zero for the
    /// first one.
    pub fn step(&mut self, count: u64, now: MonoTime) -> f64 {
        self.samples.push_back((now, count));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        let (since, from) = self.samples.front().copied().unwrap_or((now, count));
        let seconds = now.since(since).as_secs_f64();
        if seconds > 0.0 { count.saturating_sub(from) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_growth_over_the_time_between_the_oldest_sample_and_now() {
        let mut meter = RateMeter::default();
        let mut rate = |ms, count| meter.step(count, MonoTime::from_ms(ms));
        assert!(rate(0, 100).abs() < 1e-9);
        assert!((rate(500, 200) - 200.0).abs() < 1e-9, "100 rows in half a second");
        assert!((rate(1000, 200) - 100.0).abs() < 1e-9, "100 rows in one second");
    }

    #[test]
    fn old_samples_fall_out_so_that_an_idle_stream_shows_zero() {
        let mut meter = RateMeter::default();
        meter.step(0, MonoTime::from_ms(0));
        let rates: Vec<f64> = (1..=7).map(|i| meter.step(70, MonoTime::from_ms(i * 500))).collect();
        assert!(rates.first().is_some_and(|rate| *rate > 0.0));
        assert!(rates.last().is_some_and(|rate| rate.abs() < 1e-9), "{rates:?}");
    }
}
