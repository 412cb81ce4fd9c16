//! Every recorded metadata record and DDL job is read, and written back as TiDB wrote it.

use std::sync::Arc;

use serde_json::Value as Json;
use tidegate_codec::{
    ddl::{Job, JobArgs},
    key::{DDL_JOB_TABLE, parse_record_key},
    meta::{DbInfo, TableInfo},
    meta_key::{MetaEntry, classify},
    row::TableLayout,
    value::Value,
};
use tidegate_core::Op;
use tidegate_testkit::{History, Version, data};

fn versions(history: &History) -> impl Iterator<Item = &Version> {
    history.base.iter().chain(&history.log).filter(|version| version.op == Op::Put)
}

/// What is in `written` but not so in `original`: TiDB would read another record than it wrote.
fn difference(path: &str, written: &Json, original: &Json) -> Option<String> {
    match (written, original) {
        (Json::Object(written), Json::Object(original)) => written.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match original.get(key) {
                Some(original) => difference(&path, value, original),
                None => Some(format!("{path} is not in the original")),
            }
        }),
        (Json::Array(written), Json::Array(original)) if written.len() == original.len() => {
            let pairs = written.iter().zip(original).enumerate();
            pairs.into_iter().find_map(|(nth, (w, o))| difference(&format!("{path}[{nth}]"), w, o))
        }
        // TiDB writes some empty lists as `[]`, which it reads like the `null` of the others.
        (Json::Null, Json::Array(original)) if original.is_empty() => None,
        _ if written == original => None,
        _ => Some(format!("{path}: {written} instead of {original}")),
    }
}

fn assert_written_back(what: &str, written: &Json, original: &[u8]) {
    let original: Json = serde_json::from_slice(original).expect("TiDB wrote JSON");
    assert_eq!(difference(what, written, &original), None);
}

#[test]
fn databases_and_tables_of_all_recordings_are_written_back_as_tidb_wrote_them() {
    for name in data::RECORDINGS {
        let history = data::history(name).expect(name);
        let mut tables = 0;
        for version in versions(&history) {
            match classify(&version.key) {
                Ok(MetaEntry::Database(id)) => {
                    let database = DbInfo::parse(&version.value).expect(name);
                    assert_eq!(database.id, id);
                    let written = serde_json::to_value(&database).expect("JSON");
                    assert_written_back("database", &written, &version.value);
                }
                Ok(MetaEntry::Table(_, id)) => {
                    tables += 1;
                    let table = TableInfo::parse(&version.value).expect(name);
                    assert_eq!(table.id, id);
                    let written = serde_json::to_value(&table).expect("JSON");
                    assert_written_back(&format!("{name} table {id}"), &written, &version.value);
                }
                _ => {}
            }
        }
        assert!(tables > 60, "{name} holds at least the system tables, not {tables}");
    }
}

/// The jobs in the rows of `mysql.tidb_ddl_job`, as JSON.
fn job_rows(history: &History) -> Vec<Vec<u8>> {
    let job_table = history.base.iter().find_map(|version| match classify(&version.key) {
        Ok(MetaEntry::Table(_, DDL_JOB_TABLE)) => TableInfo::parse(&version.value).ok(),
        _ => None,
    });
    let layout = TableLayout::new(Arc::new(job_table.expect("every cluster has the job table")));
    let mut jobs = Vec::new();
    for version in versions(history) {
        let Ok(key) = parse_record_key(&version.key) else { continue };
        if key.table_id != DDL_JOB_TABLE {
            continue;
        }
        let row = layout.row(key.handle, &version.value).expect("a job row");
        match row.by_name("job_meta").expect("a sound column") {
            Some(Value::Bytes(json)) => jobs.push(json.into_owned()),
            other => unreachable!("a job is bytes, not {other:?}"),
        }
    }
    jobs
}

#[test]
fn every_version_of_every_recorded_job_is_read_with_its_arguments() {
    let mut kinds = std::collections::BTreeSet::new();
    for name in data::RECORDINGS {
        for json in job_rows(&data::history(name).expect(name)) {
            let job = Job::parse(&json).expect(name);
            let args = job.args().unwrap_or_else(|error| panic!("{name}: job {}: {error:?}", job.id));
            for part in job.multi_schema_info.iter().flat_map(|multi| &multi.sub_jobs) {
                let args = job.sub_args(part).expect("arguments of a part");
                assert!(!matches!(args, JobArgs::Absent | JobArgs::Untyped), "{name}: job {}", job.id);
            }
            if job.is_done() {
                kinds.insert(job.action.number());
                let table_set = job.action.bookkeeping() == tidegate_codec::ddl::Bookkeeping::TableSet;
                assert!(
                    !table_set || !matches!(args, JobArgs::Absent | JobArgs::Untyped),
                    "{name}: {args:?}"
                );
                let made = &job.binlog;
                assert!(
                    made.table_info.is_some() || made.db_info.is_some(),
                    "{name}: job {} made nothing",
                    job.id
                );
                let written: Json = serde_json::from_slice(&job.to_json()).expect("JSON");
                assert_written_back("job", &written, &json);
            }
        }
    }
    let recorded = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 33, 34, 35,
        36, 41, 42, 47, 57, 59, 61, 64, 71, 72,
    ];
    assert_eq!(kinds, recorded.into_iter().collect(), "the kinds of DDL that the recordings hold");
}
