//! Tables that join with content, the content of the start, and what the runtime holds in PD.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::Ts;
use tidegate_mini::{Report, Runtime, StartConfig, TableFilter, TableSet};
use tidegate_testkit::Expected;

use crate::follow::{follow_all, playground, reach, recording};
use crate::model;
use crate::recorder::{Log, Recorder};

/// Only the tables of `name` in the snapshots after `start`.
fn only(mut expected: Expected, name: Option<&str>, start: Ts) -> Expected {
    expected.snapshots.retain(|snapshot| snapshot.ts >= start);
    for snapshot in &mut expected.snapshots {
        snapshot.tables.retain(|table, _| name.is_none_or(|name| name == table));
    }
    expected
}

async fn deliver(
    history: &str,
    config: impl FnOnce(&Expected, Ts) -> StartConfig,
) -> (Log, Report, Expected) {
    let (history, expected) = recording(history);
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let config = config(&expected, base);
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, config, Recorder::new(&log, false)).await;
    let report = reach(handle.expect("it starts"), end).await;
    assert!(report.error.is_none(), "{report:?}");
    upstream.close().await;
    playground.stop().await;
    let log = std::mem::take(&mut *log.lock().expect("not poisoned"));
    (log, report, expected)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_renamed_into_the_filter_is_delivered_with_the_rows_it_had() {
    let (mut log, report, expected) = deliver("demo", |_, base| {
        let filter = TableFilter::parse(&["demo.remark"]).expect("a pattern");
        StartConfig::new(base.as_start(), TableSet::Follow(filter))
    })
    .await;
    // The one row that `demo.note` had when it became `demo.remark`, and its update afterwards; CREATE
    // DATABASE and RENAME TABLE.
    assert_eq!((report.counts.rows, report.counts.ddls), (2, 2));
    let remark = only(expected, Some("demo.remark"), Ts::ZERO);
    assert_eq!(model::check(&mut log, &remark, "demo"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_the_start_are_delivered_on_request_before_their_changes() {
    for name in ["demo", "bank", "random-11"] {
        let mut start = Ts::ZERO;
        let (mut log, _, expected) = deliver(name, |expected, _| {
            start = expected.snapshots[expected.snapshots.len() / 2].ts;
            let mut config = follow_all(start);
            config.read_existing = true;
            config
        })
        .await;
        let later = only(expected, None, start.next());
        assert!(model::check(&mut log, &later, name) > 0, "the snapshots have rows");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gc_barrier_stays_at_the_start_follows_acknowledgements_and_is_released() {
    let (history, expected) = recording("demo");
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let acknowledged = expected.snapshots[1].ts;
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let mut config = follow_all(base);
    // Refreshed with every third of its time to live.
    config.gc_barrier_ttl = Duration::from_secs(3);
    let handle = Runtime::start(&upstream, config, Recorder::new(&log, false)).await.expect("it starts");
    let control = handle.control();
    let mut position = control.watch_position();
    position.wait_for(|position| position.ts() >= end).await.expect("it lives");
    let collected = playground.collect_garbage(end).expect("forward");
    assert!(collected <= base, "{collected} is above the start {base}");

    control.acknowledge(acknowledged.as_checkpoint());
    let mut collected = collected;
    while collected < acknowledged.prev() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        collected = playground.collect_garbage(end).expect("forward");
        assert!(collected <= acknowledged, "{collected} is above the acknowledged {acknowledged}");
    }

    let report = reach(handle, end).await;
    assert!(report.error.is_none() && report.attached.is_empty(), "{report:?}");
    assert_eq!(playground.collect_garbage(end).expect("forward"), end, "nothing is held any more");
    upstream.close().await;
    playground.stop().await;
}
