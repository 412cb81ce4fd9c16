//! Live numbers as server-sent events: `status` twice a second, `happened` for each entry of the event log.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tidegate_core::{Clock, SystemClock};
use tidegate_fabric::status::{Event, Status};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::rate::RateMeter;
use crate::{ApiOptions, json};

/// Faster than this a person does not read; slower looks stuck.
const PERIOD: Duration = Duration::from_millis(500);
/// Log entries sent at once; a page shows the last forty.
const EVENTS_MAX: usize = 100;

#[derive(Serialize)]
struct Live {
    #[serde(flatten)]
    status: Status,
    rows_per_s: f64,
}

/// One open page.
struct Follower {
    api: ApiOptions,
    clock: SystemClock,
    ticks: Interval,
    meter: RateMeter,
    /// Number of the last log entry sent.
    seen: u64,
}

/// `GET /api/v1/stream`.
pub(crate) async fn follow(
    State(api): State<ApiOptions>,
) -> Sse<impl Stream<Item = Result<Message, Infallible>>> {
    let stop = api.stop.clone();
    let follower = Follower::new(api);
    let messages = stream::unfold(follower, |mut follower| async {
        let messages = follower.next().await;
        Some((messages, follower))
    });
    let messages = messages.take_until(stop.cancelled_owned()).flat_map(stream::iter).map(Ok);
    Sse::new(messages).keep_alive(KeepAlive::default())
}

impl Follower {
    fn new(api: ApiOptions) -> Self {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { api, clock: SystemClock::new(), ticks, meter: RateMeter::default(), seen: 0 }
    }

    async fn next(&mut self) -> Vec<Message> {
        self.ticks.tick().await;
        let status = self.api.query.status();
        let rows_per_s = self.meter.step(status.counters.rows_applied, self.clock.mono());
        let events = self.api.query.events(self.seen, EVENTS_MAX);
        self.seen = events.iter().map(|event| event.number).fold(self.seen, u64::max);
        let happened = events.iter().filter_map(|event: &Event| message("happened", event));
        happened.chain(message("status", &Live { status, rows_per_s })).collect()
    }
}

/// `None` if the body cannot be written as JSON, which plain data always can.
fn message<T: Serialize>(name: &str, body: &T) -> Option<Message> {
    Message::default().event(name).json_data(json::exact(body).ok()?).ok()
}
