//! Time, for the rim: the machine's, and PD's.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::{MonoTime, Ts};
use tidegate_pd::PdClient;
use tokio::time::{Instant, sleep};

/// How often PD's time is asked. Between, it is extrapolated; it serves only lag, priorities and the search
/// for dead locks, which count in seconds.
const ASK_PAUSE: Duration = Duration::from_secs(2);

/// Both clocks. Tokio's, so that tests can move them.
#[derive(Clone, Debug)]
pub(crate) struct PullerClock {
    origin: Instant,
    pd: Arc<Mutex<Option<(Ts, Instant)>>>,
}

impl PullerClock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), pd: Arc::default() }
    }

    pub(crate) fn now(&self) -> MonoTime {
        MonoTime::default().after(self.origin.elapsed())
    }

    pub(crate) fn instant(&self, time: MonoTime) -> Instant {
        self.origin + time.since(MonoTime::default())
    }

    /// PD's present time, extrapolated; `None` until PD was asked once.
    pub(crate) fn pd_now(&self) -> Option<Ts> {
        let (ts, at) = (*self.pd.lock())?;
        let passed_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(Ts::from_parts(ts.physical_ms().saturating_add(passed_ms), ts.logical()))
    }

    /// Asks PD again and again.
    pub(crate) async fn follow(self, pd: PdClient) {
        loop {
            match pd.tso().await {
                Ok(ts) => *self.pd.lock() = Some((ts, Instant::now())),
                Err(error) => tracing::warn!(%error, "cannot ask PD for the time"),
            }
            sleep(ASK_PAUSE).await;
        }
    }
}
