//! Order at the same timestamp, and the exclusive start.

use std::sync::{Arc, Mutex};

use tidegate_codec::key::{DDL_JOB_TABLE, Handle, parse_record_key, record_key};
use tidegate_core::{Op, TableId, Ts};
use tidegate_mini::{Runtime, StartConfig, TableSet};
use tidegate_playground::Write;
use tidegate_testkit::{Expected, History};

use crate::follow::{follow_all, playground, reach, recording};
use crate::recorder::{Log, Recorder, What};

const EMOJI: TableId = TableId(116);

/// Commit timestamp of the done row of the statement that begins with `sql`: the last change of a job row
/// before the statement returned; after it TiDB deletes the row.
fn finished(history: &History, expected: &Expected, sql: &str) -> Ts {
    let statement = expected.statements.iter().find(|statement| statement.sql.starts_with(sql));
    let returned = statement.and_then(|statement| statement.after_ts).expect("it was recorded");
    let of_job = |key: &[u8]| parse_record_key(key).is_ok_and(|key| key.table_id == DDL_JOB_TABLE);
    let steps = history.log.iter().filter(|v| v.op == Op::Put && of_job(&v.key));
    steps.map(|v| v.commit_ts.ts()).filter(|&ts| ts <= returned).max().expect("it has steps")
}

/// TiDB never commits rows and a job in one transaction, but two transactions may share a timestamp. Here a
/// row and the step that finishes a job are committed together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_at_the_timestamp_of_a_ddl_comes_before_it_and_has_the_older_definition() {
    let (mut history, expected) = recording("demo");
    let done = finished(&history, &expected, "alter table emoji modify column label");
    let base = history.header.base_ts;
    let (before, after): (Vec<_>, Vec<_>) = history.log.drain(..).partition(|v| v.commit_ts.ts() < done);
    let row = before
        .iter()
        .rev()
        .find(|v| v.op == Op::Put && parse_record_key(&v.key).is_ok_and(|key| key.table_id == EMOJI));
    let value = row.expect("there are rows").value.clone();
    (history.log, history.header.end_ts) = (before, done.prev());
    let step = after.into_iter().filter(|v| v.commit_ts.ts() == done);
    let mut writes: Vec<Write> = step
        .map(|v| match v.op {
            Op::Put => Write::put(v.key, v.value),
            Op::Delete => Write::delete(v.key),
        })
        .collect();
    let key = record_key(None, EMOJI, &Handle::Int(9_000_000));
    writes.push(Write::put(key.clone(), value));

    let (playground, upstream) = playground(history).await;
    let at = playground.commit(writes).expect("it commits").ts();
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, follow_all(base), Recorder::new(&log, false)).await;
    let report = reach(handle.expect("it starts"), at).await;
    assert!(report.error.is_none(), "{report:?}");
    let log = std::mem::take(&mut *log.lock().expect("not poisoned"));
    let here: Vec<&What> = log.entries.iter().filter(|(ts, _)| *ts == at).map(|(_, what)| what).collect();
    let [What::Row(row), What::Ddl { event, .. }] = here.as_slice() else { panic!("{here:?}") };
    assert_eq!((row.key(), event.finished_ts.ts()), (key.as_slice(), at));
    let label = |table: &tidegate_codec::meta::TableInfo| {
        table.column_by_name("label").map(|(_, column)| column.field_type.flen)
    };
    let table = event.table_info.as_deref().expect("it is about a table");
    assert_eq!((label(row.layout.table()), label(table)), (Some(128), Some(200)));
    upstream.close().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_start_is_exclusive() {
    let (history, _) = recording("demo");
    let end = history.header.end_ts;
    let commits =
        history.log.iter().filter(|v| parse_record_key(&v.key).is_ok_and(|key| key.table_id == EMOJI));
    let commits: Vec<Ts> = commits.map(|v| v.commit_ts.ts()).collect();
    let start = commits[commits.len() / 2];
    let later = commits.iter().filter(|&&ts| ts > start).count();
    let (playground, upstream) = playground(history).await;
    let config = StartConfig::new(start.as_start(), TableSet::Fixed(vec![EMOJI]));
    let log = Arc::new(Mutex::new(Log::default()));
    let handle = Runtime::start(&upstream, config, Recorder::new(&log, false)).await;
    let report = reach(handle.expect("it starts"), end).await;
    assert!(report.error.is_none(), "{report:?}");
    let rows = log.lock().expect("not poisoned").entries.iter().filter(|(_, w)| w.class() == 0).count();
    assert_eq!(rows, later, "rows committed at the start itself are not part of the feed");
    upstream.close().await;
    playground.stop().await;
}
