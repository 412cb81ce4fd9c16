//! Waiting for schemas, and what a store says when it is used wrongly or fed badly.

use std::{num::NonZeroUsize, time::Duration};

use tidegate_codec::{key::to_region_key, meta_key};
use tidegate_core::{Diagnostic, ErrorClass, JobId, SchemaId, TableId, Ts};
use tidegate_schema::{SchemaError, SchemaOptions, SchemaStore};
use tokio_util::sync::CancellationToken;

use crate::replay::Recording;

/// Long enough that only a defect reaches it.
const NEVER: Duration = Duration::from_secs(3600);

fn fed_up_to_base(recording: &Recording) -> (SchemaStore, Ts) {
    let store = SchemaStore::open(SchemaOptions::default()).unwrap();
    recording.initialise(&store);
    (store, recording.history.header.base_ts)
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_timestamp_is_resolved() {
    let recording = Recording::load("partition");
    let (store, base) = fed_up_to_base(&recording);
    let cancel = CancellationToken::new();
    store.wait_resolved(base, NEVER, &cancel).await.expect("already there");
    let waiting = tokio::spawn({
        let (store, cancel, end) = (store.clone(), cancel.clone(), recording.end());
        async move { store.wait_resolved(end, NEVER, &cancel).await }
    });
    tokio::task::yield_now().await;
    recording.feed(&store, base, recording.end());
    waiting.await.unwrap().expect("resolved");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline_when_cancelled_and_when_the_store_stops() {
    let recording = Recording::load("partition");
    let (store, base) = fed_up_to_base(&recording);
    let (end, cancel) = (recording.end(), CancellationToken::new());
    let late = store.wait_resolved(end, Duration::from_millis(5), &cancel).await;
    assert!(
        matches!(late, Err(SchemaError::WaitTimedOut { ts, resolved }) if ts == end && resolved.ts() == base)
    );
    let waiting = tokio::spawn({
        let (store, cancel) = (store.clone(), cancel.clone());
        async move { store.wait_resolved(end, NEVER, &cancel).await }
    });
    tokio::task::yield_now().await;
    cancel.cancel();
    assert!(matches!(waiting.await.unwrap(), Err(SchemaError::WaitCancelled { .. })));
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_resolved(end, NEVER, &CancellationToken::new()).await }
    });
    tokio::task::yield_now().await;
    feed_without_its_first_job(&recording, &store).expect_err("a job about an unknown database");
    assert!(matches!(waiting.await.unwrap(), Err(SchemaError::Poisoned { .. })));
}

/// Without CREATE DATABASE the jobs of its tables fit nothing.
fn feed_without_its_first_job(recording: &Recording, store: &SchemaStore) -> Result<(), SchemaError> {
    let first = recording.jobs.iter().map(|change| change.key.clone()).next().unwrap();
    let rest: Vec<_> = recording.jobs.iter().filter(|change| change.key != first).cloned().collect();
    store.apply(&rest)?;
    store.advance(recording.end().as_resolved())?;
    Ok(())
}

#[test]
fn a_job_that_does_not_fit_stops_the_store_just_before_it() {
    let recording = Recording::load("partition");
    let (store, base) = fed_up_to_base(&recording);
    let error = feed_without_its_first_job(&recording, &store).expect_err("does not fit");
    assert_eq!((error.code(), error.class()), ("TG-SCHEMA-006", ErrorClass::Corrupt));
    let SchemaError::UnknownObject { at, .. } = error else { panic!("{error}") };
    assert_eq!(store.resolved().ts(), at.prev().ts(), "everything before it is known");
    assert!(store.physical_tables_at(at.prev().ts()).is_ok());
    let again = store.advance(Ts::MAX.as_resolved()).expect_err("stopped");
    assert!(again.to_string().ends_with("is about database 252, which is not known"), "{again}");
    assert!(matches!(store.apply(&recording.jobs), Err(SchemaError::Poisoned { .. })));
    assert_ne!(store.resolved().ts(), base);
}

#[test]
fn a_job_below_the_resolved_timestamp_is_refused_unless_it_is_known() {
    let recording = Recording::load("partition");
    let (store, _) = fed_up_to_base(&recording);
    store.advance(recording.end().as_resolved()).expect("nothing came");
    let late = store.apply(&recording.jobs).expect_err("all of them come late");
    assert!(matches!(late, SchemaError::LateJob { .. }), "{late}");
    assert_eq!(late.class(), ErrorClass::Corrupt);
}

#[test]
fn a_store_without_a_snapshot_says_so_and_takes_only_one() {
    let recording = Recording::load("partition");
    let store = SchemaStore::open(SchemaOptions::default()).unwrap();
    let (table, ts) = (TableId(1), Ts::new(1));
    assert!(matches!(store.table_at(table, ts), Err(SchemaError::NotInitialised)));
    assert!(matches!(store.ddls(ts, NonZeroUsize::MIN), Err(SchemaError::NotInitialised)));
    assert!(matches!(store.apply(&recording.jobs), Err(SchemaError::NotInitialised)));
    assert!(matches!(store.advance(ts.as_resolved()), Err(SchemaError::NotInitialised)));
    let empty = store.initialise(ts, []).expect_err("no job table in it");
    assert!(matches!(empty, SchemaError::NoJobTable));
    recording.initialise(&store);
    let again = store.initialise(ts, []).expect_err("a second snapshot");
    assert!(matches!(again, SchemaError::AlreadyInitialised { .. }));
}

#[test]
fn damaged_rows_of_the_job_table_are_errors_with_their_timestamp() {
    let recording = Recording::load("partition");
    let (store, _) = fed_up_to_base(&recording);
    let mut change = recording.jobs.first().unwrap().clone();
    change.value = change.value.slice(..change.value.len() / 2);
    let error = store.apply(std::slice::from_ref(&change)).expect_err("cut in half");
    assert_eq!(error.code(), "TG-SCHEMA-007");
    assert!(error.to_string().contains(&change.commit_ts.to_string()), "{error}");
    store.apply(&recording.jobs).expect("the store itself is not harmed");
}

#[test]
fn a_registered_reader_probes_its_table_and_then_reads_every_version() {
    let recording = Recording::load("partition");
    let (store, base) = fed_up_to_base(&recording);
    recording.feed(&store, base, recording.end());
    assert!(matches!(
        store.register_table(TableId(254), recording.end()),
        Err(SchemaError::NeverExisted { .. })
    ));
    for table in store.physical_tables_at(recording.end()).unwrap() {
        let events = store.table_ddls(table.id, base, recording.end()).unwrap();
        let Some(first) = events.iter().find(|e| store.table_at(table.id, e.finished_ts.ts()).is_ok()) else {
            continue;
        };
        let mut reader = store.register_table(table.id, first.finished_ts.ts()).unwrap();
        for ts in events.iter().flat_map(|e| [e.finished_ts.ts(), e.finished_ts.prev().ts()]) {
            let direct = store.table_at(table.id, ts).map(|at| at.version.layout.clone());
            match (reader.table_at(ts), direct) {
                (Ok(found), Ok(expected)) => assert!(std::sync::Arc::ptr_eq(found, &expected)),
                (found, expected) => assert_eq!(found.is_err(), expected.is_err(), "{} at {ts}", table.id),
            }
        }
    }
}

#[test]
fn the_ranges_to_read_and_follow_hold_what_the_store_wants_and_not_the_job_history() {
    let recording = Recording::load("partition");
    let (store, _) = fed_up_to_base(&recording);
    let (start, end) = store.snapshot_range();
    let inside = |key: &[u8]| start.as_slice() <= key && key < end.as_slice();
    assert!(
        inside(&meta_key::database(SchemaId(1))) && inside(&meta_key::table(SchemaId(i64::MAX), TableId(1)))
    );
    assert!(!inside(&meta_key::history_job(JobId(1))) && !inside(&meta_key::schema_diff(1)));
    let span = store.job_span();
    assert!(recording.jobs.iter().all(|change| span.contains(&to_region_key(&change.key))));
}
