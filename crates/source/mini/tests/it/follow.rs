//! Follow mode: whole histories streamed and compared with TiDB's own answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::{ResolvedTs, Ts};
use tidegate_mini::{
    Report, Runtime, RuntimeHandle, StartConfig, TableFilter, TableSet, Upstream, UpstreamOptions,
};
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_testkit::{Expected, History, data};

use crate::model;
use crate::recorder::{Log, Recorder};

pub(crate) fn recording(name: &str) -> (History, Expected) {
    let history = data::history(name).expect(name);
    let expected = Expected::open(data::path(&format!("{name}.expected.json.zst"))).expect(name);
    (history, expected)
}

pub(crate) async fn playground(history: History) -> (Playground, Upstream) {
    let options = PlaygroundOptions { history: Some(history), ..PlaygroundOptions::default() };
    let playground = Playground::start(options).await.expect("the playground starts");
    let upstream = Upstream::connect(UpstreamOptions::new([playground.pd_endpoint()])).await;
    (playground, upstream.expect("PD answers"))
}

pub(crate) fn follow_all(start: Ts) -> StartConfig {
    StartConfig::new(start.as_start(), TableSet::Follow(TableFilter::all()))
}

/// Waits until the checkpoint has reached `until`, and stops.
pub(crate) async fn reach(mut handle: RuntimeHandle, until: Ts) -> Report {
    let mut position = handle.control().watch_position();
    let reached = position.wait_for(|position| position.ts() >= until);
    tokio::select! {
        reached = tokio::time::timeout(Duration::from_secs(60), reached) => {
            reached.expect("it gets there").expect("the runtime lives");
        }
        report = handle.wait() => panic!("it ended by itself: {report:?}"),
    }
    handle.stop();
    handle.wait().await
}

/// Runs from `start` until the checkpoint has reached `until`.
async fn run(upstream: &Upstream, log: &Arc<Mutex<Log>>, start: Ts, until: Ts, resumed: bool) -> Report {
    let recorder = Recorder::new(log, resumed);
    reach(Runtime::start(upstream, follow_all(start), recorder).await.expect("it starts"), until).await
}

async fn streams_as_tidb_answered(name: &str) {
    let (history, expected) = recording(name);
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let report = run(&upstream, &log, base, end, false).await;
    assert!(report.error.is_none() && report.attached.is_empty(), "{report:?}");
    let compared = model::check(&mut log.lock().expect("not poisoned"), &expected, name);
    assert!(compared > 0, "the snapshots have rows");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_stopped_and_resumed_at_its_checkpoints_delivers_the_same() {
    let (history, expected) = recording("demo");
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let stops: Vec<Ts> = expected.statements.iter().filter_map(|s| s.after_ts).collect();
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let mut from = base;
    for (i, until) in stops.into_iter().chain([end]).enumerate() {
        let report = run(&upstream, &log, from, until, i > 0).await;
        assert!(report.error.is_none(), "{report:?}");
        from = until.max(from);
        log.lock().expect("not poisoned").cut(ResolvedTs::new(from.get()));
    }
    let compared = model::check(&mut log.lock().expect("not poisoned"), &expected, "demo");
    assert!(compared > 0, "the snapshots have rows");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_history_is_delivered_as_tidb_answered() {
    for name in data::RECORDINGS {
        streams_as_tidb_answered(name).await;
    }
}
