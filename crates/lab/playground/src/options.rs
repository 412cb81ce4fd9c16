//! How an upstream is set up.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Clock, ClusterId, SystemClock, Ts};
use tidegate_testkit::History;

use crate::{FeedLimits, Keyspace, OracleStart, PlaygroundError};

/// More stores than a test ever needs; each has a listener and a thread's worth of work.
const STORES_MAX: usize = 64;
/// Beyond it, looking up regions would say more about the playground than about a client.
const REGIONS_MAX: usize = 100_000;
/// A cluster without a history has this id: any fixed number that is not zero.
pub(crate) const FRESH_CLUSTER_ID: ClusterId = ClusterId(7_046_029_254_386_353_131);

/// How to start a [`crate::Playground`].
#[derive(Clone)]
pub struct PlaygroundOptions {
    /// What the cluster holds at start; `None`: nothing.
    pub history: Option<History>,
    /// The part of the history after it happens live instead of being there at start. `None`: all is there.
    pub live_after: Option<Ts>,
    /// How fast the live part happens; 1.0 is as recorded. Greater than zero.
    pub speed: f64,
    /// Where the oracle's time starts. The oracle never hands out a timestamp at or below what is loaded.
    pub oracle: OracleStart,
    /// Number of stores, from 1.
    pub stores: usize,
    /// Least number of regions; each table begins one in any case, while the history has keys to cut at.
    pub regions: usize,
    /// Address that everything listens on and is advertised with.
    pub host: IpAddr,
    /// PD's port; 0: any free one.
    pub pd_port: u16,
    /// The stores' ports in order; missing ones and 0: any free one.
    pub store_ports: Vec<u16>,
    /// Pause between two rounds of resolved timestamps.
    pub resolved_interval: Duration,
    /// Limits of the change feed.
    pub feed: FeedLimits,
    /// Keyspaces beside `DEFAULT`.
    pub keyspaces: Vec<Keyspace>,
    /// The clock that the oracle follows.
    pub clock: Arc<dyn Clock>,
}

impl Default for PlaygroundOptions {
    fn default() -> Self {
        Self {
            history: None,
            live_after: None,
            speed: 1.0,
            oracle: OracleStart::default(),
            stores: 3,
            regions: 0,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            pd_port: 0,
            store_ports: Vec::new(),
            // A fifth of TiKV's default: tests and the demo wait for it, and regions are few.
            resolved_interval: Duration::from_millis(100),
            feed: FeedLimits::default(),
            keyspaces: Vec::new(),
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl PlaygroundOptions {
    pub(crate) fn validate(&self) -> Result<(), PlaygroundError> {
        let refuse = |name, problem: String| Err(PlaygroundError::Option { name, problem });
        if !(1..=STORES_MAX).contains(&self.stores) {
            return refuse("stores", format!("must be 1 to {STORES_MAX}, got {}", self.stores));
        }
        if self.regions > REGIONS_MAX {
            return refuse("regions", format!("must be at most {REGIONS_MAX}, got {}", self.regions));
        }
        if !(self.speed.is_finite() && self.speed > 0.0) {
            return refuse("speed", format!("must be greater than zero, got {}", self.speed));
        }
        if self.resolved_interval.is_zero() {
            return refuse("resolved_interval", "must be greater than zero".to_owned());
        }
        if let (Some(live_after), Some(history)) = (self.live_after, &self.history)
            && live_after < history.header.base_ts
        {
            let base_ts = history.header.base_ts;
            return refuse("live_after", format!("{live_after} lies before the history's begin {base_ts}"));
        }
        Ok(())
    }
}
