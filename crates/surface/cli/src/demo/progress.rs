//! The progress bar of the first catching up: rows, rows per second, lag.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_api::rate::RateMeter;
use tidegate_core::{Clock, ResolvedTs, SystemClock};

use super::examples::lag_ms;

/// Redrawn ten times a second: smooth, and nothing next to the work.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// The bar. Writes to stderr, and only if that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    rate: RateMeter,
    clock: SystemClock,
    started_ms: u64,
}

impl Progress {
    /// A bar over `rows` rows.
    pub(crate) fn new(rows: u64) -> Self {
        let bar = ProgressBar::new(rows);
        let style = ProgressStyle::with_template("{bar:32} {pos:>6} / {len} rows  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let clock = SystemClock::new();
        let started_ms = clock.wall_ms();
        Self { bar, rate: RateMeter::default(), clock, started_ms }
    }

    /// Shows `rows` applied in all, and how far `safe_ts` lies behind.
    pub(crate) fn show(&mut self, rows: u64, safe_ts: ResolvedTs) {
        let per_second = self.rate.step(rows, self.clock.mono());
        let lag = match safe_ts {
            ResolvedTs::ZERO => "–".to_owned(),
            known => format!("{:.1} s", Duration::from_millis(lag_ms(known)).as_secs_f64()),
        };
        self.bar.set_position(rows);
        self.bar.set_message(format!("{per_second:.0} rows/s  lag {lag}"));
    }

    /// Takes the bar away and says in one line what was done.
    pub(crate) fn finish(self, rows: u64) {
        self.bar.finish_and_clear();
        let took = Duration::from_millis(self.clock.wall_ms().saturating_sub(self.started_ms));
        println!("caught up: {rows} rows applied in {:.1} s", took.as_secs_f64());
    }
}
