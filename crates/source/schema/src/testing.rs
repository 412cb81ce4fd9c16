//! Jobs and tables for tests, written as the JSON that TiDB writes.

use serde_json::{Value, json};
use tidegate_codec::ddl::{ActionType, Job};
use tidegate_core::{CommitTs, StartTs, TableId, Ts};

use crate::{FinishedJob, core::SchemaCore};

/// A table with one integer key column and the given partitions.
pub(crate) fn table(id: i64, name: &str, parts: &[i64]) -> Value {
    let definitions: Vec<Value> =
        parts.iter().map(|id| json!({"id": id, "name": format!("p{id}")})).collect();
    let partition = if parts.is_empty() {
        Value::Null
    } else {
        json!({"type": 2, "enable": true, "definitions": definitions})
    };
    json!({
        "id": id, "name": {"O": name, "L": name.to_lowercase()}, "state": 5, "pk_is_handle": true,
        "cols": [{"id": 1, "name": "id", "type": {"Tp": 3, "Flag": 4099}, "state": 5}],
        "partition": partition,
    })
}

/// The job number `at`, done at that timestamp and started one hundred before it; `rest` is merged in.
pub(crate) fn job(action: ActionType, at: u64, table_id: i64, rest: Value) -> FinishedJob {
    let mut job = json!({
        "id": 1000 + at, "type": action.number(), "version": 2, "state": 4, "schema_id": 114,
        "table_id": table_id, "schema_name": "d1", "start_ts": at.saturating_sub(100), "query": "as typed",
        "binlog": {"SchemaVersion": at},
    });
    merge(&mut job, rest);
    let job = Job::parse(job.to_string().as_bytes()).expect("a job");
    FinishedJob { job, start_ts: StartTs::new(at - 1), commit_ts: CommitTs::new(at) }
}

/// A job about one table with that info after it.
pub(crate) fn table_job(action: ActionType, at: u64, table_id: i64, info: Value) -> FinishedJob {
    job(action, at, table_id, json!({"binlog": {"TableInfo": info}}))
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A store's state at timestamp 1000 with the databases 114 `d1` and 116 `d2` and nothing in them.
pub(crate) fn empty_core() -> SchemaCore {
    let schema = |id: i64, name: &str| {
        let info = json!({"id": id, "db_name": {"O": name, "L": name}, "state": 5});
        serde_json::from_value(info).expect("a database")
    };
    SchemaCore::new(Ts::new(1000), [schema(114, "d1"), schema(116, "d2")], [])
}

/// Numbers as ids.
pub(crate) fn ids(ids: &[i64]) -> Vec<TableId> {
    ids.iter().copied().map(TableId).collect()
}
