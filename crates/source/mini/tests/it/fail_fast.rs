//! Every condition of `spec/mini-cdc.md` §9 stops the runtime with an error of its own, and nothing is
//! called after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_core::{Diagnostic, StoreId, TableId, Ts};
use tidegate_mini::{Admission, Callback, CallbackError, Checkpoint, LiveTable, MiniError, Report, Runtime};
use tidegate_playground::Playground;

use crate::follow::{follow_all, playground, reach, recording};

/// What a misbehaving callback does, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    FailOnRow(usize),
    FailOnDdl,
    FailOnCheckpoint,
    FailWhenReady,
    PanicOnRow,
    RefuseNowAndThen,
}

struct Faulty {
    fault: Fault,
    calls: Arc<AtomicUsize>,
    rows: usize,
    failed: bool,
    refused: bool,
}

impl Faulty {
    fn new(fault: Fault) -> (Self, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        (Self { fault, calls: Arc::clone(&calls), rows: 0, failed: false, refused: false }, calls)
    }

    fn call(&mut self, fails: bool) -> Result<(), CallbackError> {
        assert!(!self.failed, "called again after a failure");
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failed = fails;
        if fails { Err("as the test wants it".into()) } else { Ok(()) }
    }
}

impl Callback for Faulty {
    fn on_row(&mut self, _: RowChanged<'_>) -> Result<Admission, CallbackError> {
        assert!(self.fault != Fault::PanicOnRow, "as the test wants it");
        if self.fault == Fault::RefuseNowAndThen && self.rows.is_multiple_of(100) {
            self.refused = !self.refused;
            if self.refused {
                return Ok(Admission::Full);
            }
        }
        self.rows += 1;
        self.call(self.fault == Fault::FailOnRow(self.rows))?;
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, _: &DdlEvent) -> Result<(), CallbackError> {
        self.call(self.fault == Fault::FailOnDdl)
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        self.call(self.fault == Fault::FailOnCheckpoint)
    }

    async fn ready(&mut self) -> Result<(), CallbackError> {
        self.call(self.fault == Fault::FailWhenReady)
    }
}

async fn run(fault: Fault) -> (Report, Ts) {
    let (history, _) = recording("demo");
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let (callback, calls) = Faulty::new(fault);
    let mut handle = Runtime::start(&upstream, follow_all(base), callback).await.expect("it starts");
    let ended = tokio::time::timeout(Duration::from_secs(60), handle.wait()).await;
    let report = ended.expect("it ends by itself");
    let at_end = calls.load(Ordering::Relaxed);
    assert!(report.attached.is_empty(), "{report:?}");
    upstream.close().await;
    playground.stop().await;
    assert_eq!(calls.load(Ordering::Relaxed), at_end, "called after the end");
    (report, end)
}

fn failed_callback(report: &Report) -> (&'static str, Ts) {
    match &report.error {
        Some(error @ MiniError::Callback { callback, position, source }) => {
            assert_eq!((error.code(), source.to_string().as_str()), ("TG-MINI-008", "as the test wants it"));
            (callback, *position)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_fails_stops_the_runtime_with_its_own_error_and_position() {
    for (fault, name) in [
        (Fault::FailOnRow(100), "row"),
        (Fault::FailOnDdl, "ddl"),
        (Fault::FailOnCheckpoint, "checkpoint"),
        (Fault::FailWhenReady, "ready"),
    ] {
        let (report, end) = run(fault).await;
        let (callback, position) = failed_callback(&report);
        assert_eq!(callback, name);
        assert!(position <= end || name == "checkpoint" || name == "ready", "{fault:?} at {position}");
        assert!(report.position.ts() <= position, "the last checkpoint lies before the failure");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_panics_stops_only_its_own_runtime() {
    let (report, _) = run(Fault::PanicOnRow).await;
    let Some(MiniError::Panicked { message }) = &report.error else { panic!("{report:?}") };
    assert_eq!(message, "as the test wants it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_was_refused_is_offered_again_until_it_is_taken() {
    let (history, _) = recording("demo");
    let (base, end) = (history.header.base_ts, history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let count = |fault| {
        let upstream = upstream.clone();
        async move {
            let handle = Runtime::start(&upstream, follow_all(base), Faulty::new(fault).0).await;
            let report = reach(handle.expect("it starts"), end).await;
            assert!(report.error.is_none(), "{report:?}");
            report.counts.rows
        }
    };
    let never_failing = Fault::FailOnRow(usize::MAX);
    let (all, refused) = (count(never_failing).await, count(Fault::RefuseNowAndThen).await);
    assert_eq!(all, refused);
    upstream.close().await;
    playground.stop().await;
}

/// Stops every store between the start's last step and the first subscription of a table.
struct StopStores(Arc<Playground>);

impl Callback for StopStores {
    fn on_tables(&mut self, joined: &[LiveTable], _: &[TableId]) -> Result<(), CallbackError> {
        assert!(!joined.is_empty(), "there are tables to wait for");
        let stop =
            async { futures_util::future::join_all((1..=3).map(|id| self.0.stop_store(StoreId(id)))).await };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(stop));
        Ok(())
    }

    fn on_row(&mut self, _: RowChanged<'_>) -> Result<Admission, CallbackError> {
        Err("no store is there to send it".into())
    }

    fn on_ddl(&mut self, _: &DdlEvent) -> Result<(), CallbackError> {
        Err("no table has reported".into())
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_progress_violates_the_deadline() {
    let (history, _) = recording("demo");
    let end = history.header.end_ts;
    let (playground, upstream) = playground(history).await;
    let playground = Arc::new(playground);
    let mut config = follow_all(end);
    config.progress_deadline = Duration::from_millis(300);
    let callback = StopStores(Arc::clone(&playground));
    let mut handle = Runtime::start(&upstream, config, callback).await.expect("it starts");
    let report = handle.wait().await;
    let Some(MiniError::ProgressDeadline { .. }) = report.error else { panic!("{report:?}") };
    upstream.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_whose_definition_does_not_become_known_violate_the_schema_deadline() {
    let (history, expected) = recording("demo");
    let start = expected.snapshots.first().expect("it has snapshots").ts;
    let (playground, upstream) = playground(history).await;
    playground.hold_resolved(true);
    let mut config = follow_all(start);
    config.schema_deadline = Duration::from_millis(300);
    let (callback, _) = Faulty::new(Fault::FailOnDdl);
    let mut handle = Runtime::start(&upstream, config, callback).await.expect("it starts");
    let report = handle.wait().await;
    let Some(MiniError::SchemaDeadline { .. }) = report.error else { panic!("{report:?}") };
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_configuration_is_refused_before_anything_is_opened() {
    let (history, _) = recording("demo");
    let (playground, upstream) = playground(history).await;
    upstream.close().await;
    playground.stop().await;
    let refused = Runtime::start(&upstream, follow_all(Ts::ZERO), Faulty::new(Fault::FailOnDdl).0).await;
    assert!(matches!(refused, Err(MiniError::Config(_))), "{refused:?}");
}
