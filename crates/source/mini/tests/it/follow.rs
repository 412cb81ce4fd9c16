//! Follow mode: whole histories streamed and compared with TiDB's own answers.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::Ts;
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

async fn streams_as_tidb_answered(name: &'static str) {
    let (history, expected) = recording(name);
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, follow_all(base), Recorder::new(&log, false)).await;
    let report = reach(handle.expect("it starts"), end).await;
    assert!(report.error.is_none() && report.attached.is_empty(), "{report:?}");
    let compared = model::check(&mut log.lock().expect("not poisoned"), &expected, name);
    assert!(compared > 0, "the snapshots have rows");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_history_is_delivered_as_tidb_answered() {
    let each = data::RECORDINGS.map(|name| tokio::spawn(streams_as_tidb_answered(name)));
    for history in each {
        history.await.expect("equal");
    }
}

/// Where a run is stopped and resumed, per history: 54 points in all.
const STOPS: usize = 6;

/// Stops at random timestamps and resumes from each, with the schema store on disk or built anew every time.
async fn resumes_as_tidb_answered(name: &'static str, seed: u64, schema_dir: Option<&Path>) {
    let (history, expected) = recording(name);
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stops: Vec<Ts> =
        (0..STOPS).map(|_| Ts::new(random.u64(base.get() + 1..end.get()))).chain([end]).collect();
    stops.sort_unstable();
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let mut from = base;
    for (i, until) in stops.into_iter().enumerate() {
        let mut config = follow_all(from);
        config.schema_dir = schema_dir.map(Path::to_owned);
        let handle = Runtime::start(&upstream, config, Recorder::new(&log, i > 0)).await;
        let report = reach(handle.expect("it starts"), until).await;
        assert!(report.error.is_none(), "{name}, seed {seed}: {report:?}");
        // A consumer may have made less durable than the runtime has delivered.
        from = until;
        log.lock().expect("not poisoned").cut(from.as_resolved());
    }
    let what = format!("{name}, seed {seed}");
    let compared = model::check(&mut log.lock().expect("not poisoned"), &expected, &what);
    assert!(compared > 0, "the snapshots have rows");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_stopped_and_resumed_at_random_points_deliver_the_same() {
    let seed = fastrand::u64(..);
    let each = data::RECORDINGS.map(|name| tokio::spawn(resumes_as_tidb_answered(name, seed, None)));
    for history in each {
        history.await.expect("equal");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_resumed_with_the_schema_store_on_disk_deliver_the_same() {
    let seed = fastrand::u64(..);
    for name in ["demo", "ddl", "partition"] {
        let dir = tempfile::tempdir().expect("a directory");
        resumes_as_tidb_answered(name, seed, Some(dir.path())).await;
    }
}
