//! What was resolved survives a restart, whenever it comes.

use std::path::{Path, PathBuf};

use tidegate_core::{ClusterId, KeyspaceId, Ts};
use tidegate_schema::{SchemaError, SchemaOptions, SchemaStore};

use crate::replay::{Recording, answers};

fn options(dir: &Path) -> SchemaOptions {
    SchemaOptions { dir: Some(dir.to_owned()), cluster_id: ClusterId(7), keyspace: None }
}

fn commit_timestamps(recording: &Recording) -> Vec<Ts> {
    let mut timestamps: Vec<Ts> = recording.jobs.iter().map(|change| change.commit_ts.ts()).collect();
    timestamps.dedup();
    timestamps.push(recording.end());
    timestamps
}

#[test]
fn a_store_that_is_reopened_after_every_step_answers_like_one_that_never_was() {
    for name in ["ddl", "partition"] {
        let recording = Recording::load(name);
        let base = recording.history.header.base_ts;
        let dir = tempfile::tempdir().unwrap();
        let steady = SchemaStore::open(SchemaOptions::default()).unwrap();
        recording.initialise(&steady);
        let first = SchemaStore::open(options(dir.path())).unwrap();
        assert!(!first.is_initialised());
        recording.initialise(&first);
        drop(first);
        let mut at = base;
        for next in commit_timestamps(&recording) {
            let reopened = SchemaStore::open(options(dir.path())).unwrap();
            assert!(reopened.is_initialised() && reopened.resolved().ts() == at, "{name} at {at}");
            recording.feed(&reopened, at, next);
            recording.feed(&steady, at, next);
            at = next;
        }
        let reopened = SchemaStore::open(options(dir.path())).unwrap();
        let (found, expected) = (answers(&reopened, base), answers(&steady, base));
        assert!(found == expected, "{name}: {}", first_difference(&found, &expected));
    }
}

fn first_difference(found: &str, expected: &str) -> String {
    let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    differing.map_or_else(|| "one is longer".to_owned(), |(found, expected)| format!("{found} != {expected}"))
}

#[test]
fn what_is_pending_at_a_restart_comes_again_and_what_is_applied_is_not_applied_twice() {
    let recording = Recording::load("ddl");
    let base = recording.history.header.base_ts;
    let dir = tempfile::tempdir().unwrap();
    let middle = commit_timestamps(&recording)[60];
    let store = SchemaStore::open(options(dir.path())).unwrap();
    recording.initialise(&store);
    store.apply(&recording.jobs).unwrap();
    store.advance(middle.as_resolved()).unwrap();
    drop(store);
    let store = SchemaStore::open(options(dir.path())).unwrap();
    // The change feed starts again below what is resolved, and repeats itself.
    store.apply(&recording.jobs).unwrap();
    store.apply(&recording.jobs).unwrap();
    store.advance(recording.end().as_resolved()).unwrap();
    let steady = SchemaStore::open(SchemaOptions::default()).unwrap();
    recording.initialise(&steady);
    recording.feed(&steady, base, recording.end());
    assert!(answers(&store, base) == answers(&steady, base));
}

#[test]
fn a_collected_store_answers_from_its_oldest_timestamp_on_and_so_does_its_file() {
    let recording = Recording::load("partition");
    let base = recording.history.header.base_ts;
    let dir = tempfile::tempdir().unwrap();
    let store = SchemaStore::open(options(dir.path())).unwrap();
    recording.initialise(&store);
    recording.feed(&store, base, recording.end());
    let oldest = commit_timestamps(&recording)[50];
    let whole = answers(&store, oldest);
    assert_eq!(store.collect_garbage(oldest).unwrap(), oldest);
    assert!(answers(&store, oldest) == whole, "{}", first_difference(&answers(&store, oldest), &whole));
    assert!(matches!(store.physical_tables_at(oldest.prev()), Err(SchemaError::BeforeGc { .. })));
    assert!(matches!(store.ddls(base, std::num::NonZeroUsize::MAX), Err(SchemaError::BeforeGc { .. })));
    let tables = store.physical_tables_at(recording.end()).unwrap();
    drop(store);
    let reopened = SchemaStore::open(options(dir.path())).unwrap();
    assert_eq!(reopened.physical_tables_at(recording.end()).unwrap(), tables);
    let events = |store: &SchemaStore| crate::replay::all_events(store, oldest);
    assert!(!events(&reopened).is_empty());
    assert!(whole.starts_with(&format!("{:#?}", events(&reopened))), "the events are the same");
    assert!(matches!(reopened.physical_tables_at(oldest.prev()), Err(SchemaError::BeforeGc { .. })));
}

#[test]
fn a_registered_reader_holds_back_collection_until_it_moves_on_or_goes() {
    let recording = Recording::load("partition");
    let base = recording.history.header.base_ts;
    let store = SchemaStore::open(SchemaOptions::default()).unwrap();
    recording.initialise(&store);
    recording.feed(&store, base, recording.end());
    let timestamps = commit_timestamps(&recording);
    let (early, late, end) = (timestamps[20], timestamps[40], recording.end());
    let table = store.physical_tables_at(early).unwrap().first().unwrap().id;
    let reader = store.register_table(table, early).unwrap();
    assert_eq!(store.collect_garbage(end).unwrap(), early);
    reader.advance(late);
    assert_eq!(store.collect_garbage(end).unwrap(), late);
    drop(reader);
    assert_eq!(store.collect_garbage(end).unwrap(), end);
    assert!(matches!(store.register_table(table, early), Err(SchemaError::BeforeGc { .. })));
}

#[test]
fn a_file_of_another_cluster_or_keyspace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(SchemaStore::open(options(dir.path())).unwrap());
    let other = SchemaOptions { cluster_id: ClusterId(8), ..options(dir.path()) };
    assert!(matches!(SchemaStore::open(other), Err(SchemaError::OtherUpstream { .. })));
    let other = SchemaOptions { keyspace: Some(KeyspaceId(1)), ..options(dir.path()) };
    assert!(matches!(SchemaStore::open(other), Err(SchemaError::OtherUpstream { .. })));
}

/// One file for each format ever released, fed with the recording `partition`.
const FORMATS: [&str; 1] = ["tidegate-schema-1"];

fn fixture(format: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", &format!("{format}.redb.zst")].iter().collect()
}

#[test]
fn files_of_every_format_open_and_answer() {
    let recording = Recording::load("partition");
    let steady = SchemaStore::open(SchemaOptions::default()).unwrap();
    recording.initialise(&steady);
    recording.feed(&steady, recording.history.header.base_ts, recording.end());
    for format in FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::open(fixture(format)).unwrap();
        std::fs::write(dir.path().join("schema.redb"), zstd::decode_all(file).unwrap()).unwrap();
        let store = SchemaStore::open(options(dir.path())).unwrap();
        let base = recording.history.header.base_ts;
        let (found, expected) = (answers(&store, base), answers(&steady, base));
        assert!(found == expected, "{format}: {}", first_difference(&found, &expected));
    }
}

/// Run by hand when a format is new; never over an old one.
#[test]
#[ignore = "writes the fixture of a new format"]
fn write_the_fixture_of_the_newest_format() {
    let recording = Recording::load("partition").finished_jobs_only();
    let dir = tempfile::tempdir().unwrap();
    let store = SchemaStore::open(options(dir.path())).unwrap();
    recording.initialise(&store);
    recording.feed(&store, recording.history.header.base_ts, recording.end());
    drop(store);
    let content = std::fs::read(dir.path().join("schema.redb")).unwrap();
    let path = fixture(FORMATS.last().unwrap());
    assert!(!path.exists(), "a released format's fixture stays as it is");
    std::fs::write(path, zstd::encode_all(content.as_slice(), 19).unwrap()).unwrap();
}
