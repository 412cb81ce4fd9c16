//! Changes that arrive live while regions split, leaders move and streams break.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_codec::key::{Handle, record_key};
use tidegate_core::{StoreId, TableId};
use tidegate_mini::{Runtime, Upstream, UpstreamOptions};
use tidegate_playground::{Playground, PlaygroundOptions};

use crate::follow::{follow_all, reach, recording};
use crate::model;
use crate::recorder::{Log, Recorder};

/// `bank.account`.
const ACCOUNT: TableId = TableId(320);

/// One disturbance; those that do not apply at the moment do nothing.
fn disturb(playground: &Playground, random: &mut fastrand::Rng) {
    let regions = playground.regions();
    let region = &regions[random.usize(..regions.len())];
    let store = StoreId(random.u64(1..=3));
    match random.u8(..4) {
        0 => drop(playground.move_leader(region.id, store)),
        1 => drop(playground.drop_streams(store)),
        2 => {
            let account = Handle::Int(random.i64(..200));
            drop(playground.split(&record_key(None, ACCOUNT, &account)));
        }
        _ => drop(random.choice(&regions).map(|other| playground.merge(region.id, other.id))),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_history_is_complete_while_streams_break_and_leaders_move() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (history, expected) = recording("bank");
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let recorded_ms = end.physical_ms() - base.physical_ms();
    let options = PlaygroundOptions {
        history: Some(history),
        live_after: Some(base),
        // The whole history within three seconds.
        speed: recorded_ms as f64 / 3000.0,
        ..PlaygroundOptions::default()
    };
    let playground = Playground::start(options).await.expect("it starts");
    let upstream =
        Upstream::connect(UpstreamOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, follow_all(base), Recorder::new(&log, false)).await;
    let handle = handle.expect("it starts");
    while playground.replay_pending() > 0 {
        disturb(&playground, &mut random);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let report = reach(handle, end).await;
    assert!(report.error.is_none(), "seed {seed}: {report:?}");
    let what = format!("bank, seed {seed}");
    assert!(model::check(&mut log.lock().expect("not poisoned"), &expected, &what) > 0);
    upstream.close().await;
    playground.stop().await;
}
