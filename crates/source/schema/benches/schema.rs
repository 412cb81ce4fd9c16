//! Lookup, opening and writing: `cargo bench -p tidegate-schema`.

#![allow(clippy::expect_used, reason = "a bench ends with the first thing that fails")]

use std::path::Path;

use bytes::Bytes;
use divan::{Bencher, black_box};
use tidegate_codec::key::{DDL_JOB_TABLE, parse_record_key};
use tidegate_codec::meta_key::{self, MetaEntry, classify};
use tidegate_core::{RawChange, RegionId, SchemaId, TableId, Ts};
use tidegate_schema::{SchemaOptions, SchemaStore};
use tidegate_testkit::{History, Version, data};

const TABLES: i64 = 10_000;
const BASE: Ts = Ts::new(1_000);

fn main() {
    divan::main();
}

/// The newest JSON of a table in the demo's history.
fn newest(history: &History, table: TableId) -> String {
    let is_it =
        |version: &&Version| matches!(classify(&version.key), Ok(MetaEntry::Table(_, id)) if id == table);
    let versions = history.base.iter().chain(&history.log);
    let found = versions.rev().find(is_it).expect("the demo has it");
    String::from_utf8(found.value.to_vec()).expect("JSON is text")
}

/// Metadata with 10,000 copies of the demo's widest table.
fn metadata() -> Vec<(Bytes, Bytes)> {
    let history = data::demo_history().expect("the demo");
    let (job_table, emoji) = (newest(&history, DDL_JOB_TABLE), newest(&history, TableId(116)));
    let schema = |id: i64, name: &str| {
        let json = format!(r#"{{"id":{id},"db_name":{{"O":"{name}","L":"{name}"}},"state":5}}"#);
        (meta_key::database(SchemaId(id)).into(), json.into())
    };
    let table = |schema: i64, id: i64, json: String| {
        (meta_key::table(SchemaId(schema), TableId(id)).into(), Bytes::from(json))
    };
    let mut entries = vec![schema(1, "mysql"), schema(2, "d"), table(1, DDL_JOB_TABLE.get(), job_table)];
    let copies = (1_000..1_000 + TABLES)
        .map(|id| table(2, id, emoji.replacen("\"id\":116", &format!("\"id\":{id}"), 1)));
    entries.extend(copies);
    entries
}

fn store(dir: Option<&Path>) -> SchemaStore {
    let options = SchemaOptions { dir: dir.map(Path::to_owned), ..SchemaOptions::default() };
    SchemaStore::open(options).expect("a store")
}

#[divan::bench(name = "lookup: registered reader, same version")]
fn reader_hit(bencher: Bencher<'_, '_>) {
    let store = store(None);
    store.initialise(BASE, metadata()).expect("metadata");
    store.advance(Ts::new(1_000_000).as_resolved()).expect("in memory");
    let mut reader = store.register_table(TableId(5_000), BASE).expect("a table");
    let mut ts = BASE;
    bencher.bench_local(move || {
        ts = if ts.get() < 999_999 { ts.next() } else { BASE };
        black_box(reader.table_at(black_box(ts)).is_ok())
    });
}

#[divan::bench(name = "lookup: store")]
fn store_hit(bencher: Bencher<'_, '_>) {
    let store = store(None);
    store.initialise(BASE, metadata()).expect("metadata");
    bencher.bench(|| black_box(store.table_at(black_box(TableId(5_000)), BASE)).is_ok());
}

#[divan::bench(name = "physical tables of 10,000", sample_count = 20)]
fn physical_tables(bencher: Bencher<'_, '_>) {
    let store = store(None);
    store.initialise(BASE, metadata()).expect("metadata");
    bencher.bench(|| store.physical_tables_at(BASE).expect("in range").len());
}

#[divan::bench(name = "initialise 10,000 tables, to disk", sample_count = 5)]
fn initialise(bencher: Bencher<'_, '_>) {
    let metadata = metadata();
    bencher.with_inputs(|| (tempfile::tempdir().expect("a directory"), metadata.clone())).bench_values(
        |(dir, metadata)| {
            store(Some(dir.path())).initialise(BASE, metadata).expect("metadata");
            dir
        },
    );
}

#[divan::bench(name = "open 10,000 tables, from disk", sample_count = 10)]
fn open(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a directory");
    store(Some(dir.path())).initialise(BASE, metadata()).expect("metadata");
    bencher.bench(|| assert!(store(Some(dir.path())).is_initialised()));
}

#[divan::bench(name = "advance the resolved timestamp, synced", sample_count = 50)]
fn advance(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = store(Some(dir.path()));
    store.initialise(BASE, metadata()).expect("metadata");
    let mut ts = BASE;
    bencher.bench_local(|| {
        ts = ts.next();
        store.advance(ts.as_resolved()).expect("written")
    });
}

/// A store that has followed the 57 jobs of the recording `ddl`.
fn followed(dir: &Path) -> SchemaStore {
    let history = data::history("ddl").expect("recorded");
    let is_job =
        |version: &&Version| parse_record_key(&version.key).is_ok_and(|key| key.table_id == DDL_JOB_TABLE);
    let change = |version: &Version| RawChange {
        op: version.op,
        key: version.key.clone(),
        value: version.value.clone(),
        old_value: Bytes::new(),
        start_ts: version.start_ts,
        commit_ts: version.commit_ts,
        region_id: RegionId(1),
    };
    let store = store(Some(dir));
    let base = history.base.iter().map(|version| (version.key.clone(), version.value.clone()));
    store.initialise(history.header.base_ts, base).expect("metadata");
    store.apply(&history.log.iter().filter(is_job).map(change).collect::<Vec<_>>()).expect("jobs");
    store
}

#[divan::bench(name = "open without jobs, from disk", sample_count = 30)]
fn open_without_jobs(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a directory");
    drop(followed(dir.path()));
    bencher.bench(|| assert!(store(Some(dir.path())).is_initialised()));
}

#[divan::bench(name = "open with 57 jobs, from disk", sample_count = 30)]
fn open_with_jobs(bencher: Bencher<'_, '_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let jobs = followed(dir.path());
    assert!(jobs.advance(Ts::MAX.as_resolved()).expect("jobs that fit").len() > 50);
    drop(jobs);
    bencher.bench(|| assert!(store(Some(dir.path())).is_initialised()));
}
