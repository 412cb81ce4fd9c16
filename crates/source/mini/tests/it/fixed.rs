//! The specification's fixed table set.

use std::sync::{Arc, Mutex};

use tidegate_core::{TableId, Ts};
use tidegate_mini::{MiniError, Runtime, StartConfig, TableSet};

use crate::follow::{playground, reach, recording};
use crate::recorder::{Log, Recorder, What};

/// Partitions of `demo.airport`, from the history's keys.
const AIRPORT: [TableId; 4] = [TableId(119), TableId(120), TableId(121), TableId(122)];
/// `demo.emoji`.
const EMOJI: TableId = TableId(116);

fn fixed(start: Ts, ids: &[TableId]) -> StartConfig {
    StartConfig::new(start.as_start(), TableSet::Fixed(ids.to_vec()))
}

/// The timestamp right after the statement that begins with `sql`.
fn after(expected: &tidegate_testkit::Expected, sql: &str) -> Ts {
    let found = expected.statements.iter().find(|statement| statement.sql.starts_with(sql));
    found.and_then(|statement| statement.after_ts).expect("the statement was recorded")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_set_of_physical_partitions_gets_their_rows_and_trigger_ddl_only() {
    let (history, expected) = recording("demo");
    let (start, end) = (after(&expected, "create table airport"), history.header.end_ts);
    let in_airport = |key: &[u8]| {
        let record = tidegate_codec::key::parse_record_key(key);
        record.is_ok_and(|record| AIRPORT.contains(&record.table_id))
    };
    let committed = history.log.iter().filter(|v| v.commit_ts.ts() > start && in_airport(&v.key)).count();
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, fixed(start, &AIRPORT), Recorder::new(&log, false)).await;
    let report = reach(handle.expect("it starts"), end).await;
    assert!(report.error.is_none(), "{report:?}");
    let log = std::mem::take(&mut *log.lock().expect("not poisoned"));
    let rows = log.entries.iter().filter(|(_, what)| matches!(what, What::Row(_))).count();
    assert_eq!(rows, committed, "each committed version of the four partitions, once");
    let ddls = log.entries.iter().filter_map(|(_, what)| match what {
        What::Ddl { event, .. } => Some(event),
        _ => None,
    });
    let queries: Vec<&str> =
        ddls.inspect(|ddl| assert!(ddl.is_trigger())).map(|ddl| ddl.query.as_str()).collect();
    // The three ALTER TABLE after the start concern single tables and are not among the trigger's.
    assert_eq!(queries.len(), 3, "create table note, truncate, rename: {queries:?}");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_without_a_definition_at_the_start_fails_the_probe() {
    let (history, expected) = recording("demo");
    let (base, later) = (history.header.base_ts, after(&expected, "create table airport"));
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let logical = TableId(118);
    for (start, table) in [(base, EMOJI), (later, TableId(1_000_000)), (later, logical)] {
        let refused = Runtime::start(&upstream, fixed(start, &[table]), Recorder::new(&log, false)).await;
        let Err(MiniError::Probe { table: refused, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(refused, table);
    }
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_below_the_gc_safe_point_is_refused() {
    let (history, _) = recording("demo");
    // The playground's safe point starts just below the history.
    let below = Ts::new(history.header.base_ts.get() - 1000);
    let (playground, upstream) = playground(history).await;
    let log = Arc::new(Mutex::new(Log::default()));
    let refused = Runtime::start(&upstream, fixed(below, &[EMOJI]), Recorder::new(&log, false)).await;
    assert!(matches!(refused, Err(MiniError::StartBelowGc { .. })), "{refused:?}");
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_runtimes_share_one_process_and_one_upstream() {
    let (history, expected) = recording("demo");
    let (start, end) = (after(&expected, "create table airport"), history.header.end_ts);
    let (playground, upstream) = playground(history).await;
    let sets: [&[TableId]; 2] = [&AIRPORT, &[EMOJI]];
    let runs = sets.iter().enumerate().map(|(i, ids)| {
        let (upstream, mut config) = (upstream.clone(), fixed(start, ids));
        config.gc_barrier = format!("runtime-{i}");
        let log = Arc::new(Mutex::new(Log::default()));
        async move {
            let handle = Runtime::start(&upstream, config, Recorder::new(&log, false)).await;
            let report = reach(handle.expect("it starts"), end).await;
            assert!(report.error.is_none(), "{report:?}");
            report.counts
        }
    });
    let counts = futures_util::future::join_all(runs).await;
    assert!(counts.iter().all(|counts| counts.rows > 0 && counts.ddls == 3), "{counts:?}");
    upstream.close().await;
    playground.stop().await;
}
