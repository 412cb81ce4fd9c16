//! Every recorded DDL is followed, and at every recorded snapshot the store has TiDB's tables.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::{SchemaId, Ts};
use tidegate_schema::{SchemaOptions, SchemaStore};
use tidegate_testkit::data::RECORDINGS;

use crate::{
    replay::{Recording, all_events},
    show_create::{show_create, without_allocators},
};

/// `database.table` → SHOW CREATE TABLE and the number of physical tables.
fn tables_at(store: &SchemaStore, ts: Ts) -> BTreeMap<String, (String, usize)> {
    let mut tables: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for physical in store.physical_tables_at(ts).unwrap() {
        let found = store.table_at(physical.id, ts).unwrap();
        let name = format!("{}.{}", physical.schema, physical.table);
        assert_eq!(found.version.info().id, physical.table_id, "{name}");
        let entry = tables.entry(name).or_insert_with(|| (show_create(found.version.info()), 0));
        entry.1 += 1;
    }
    tables
}

fn partition_count(create: &str) -> usize {
    let listed = create.lines().filter(|line| line.trim_start_matches([' ', '(']).starts_with("PARTITION `"));
    let counted = create.lines().last().and_then(|line| line.rsplit_once(" PARTITIONS ")?.1.parse().ok());
    counted.unwrap_or_else(|| listed.count().max(1))
}

#[test]
fn at_every_recorded_snapshot_the_store_has_the_tables_that_tidb_shows() {
    for name in RECORDINGS {
        let recording = Recording::load(name);
        let store = SchemaStore::open(SchemaOptions::default()).unwrap();
        recording.initialise(&store);
        let mut at = recording.history.header.base_ts;
        let databases: BTreeSet<&str> = recording
            .expected
            .snapshots
            .iter()
            .flat_map(|snapshot| snapshot.tables.keys())
            .filter_map(|table| Some(table.split_once('.')?.0))
            .collect();
        for snapshot in &recording.expected.snapshots {
            recording.feed(&store, at, snapshot.ts);
            at = snapshot.ts;
            let found = tables_at(&store, at);
            let of_recording = |name: &&String| databases.contains(name.split_once('.').unwrap().0);
            let names: Vec<_> = found.keys().filter(of_recording).collect();
            assert_eq!(names, snapshot.tables.keys().collect::<Vec<_>>(), "{name} at {at}");
            for (table, expected) in &snapshot.tables {
                let (create, physical) = &found[table];
                let recorded = without_allocators(&expected.create);
                assert_eq!(*create, recorded, "{name}: {table} at {at}");
                assert_eq!(*physical, partition_count(&recorded), "{name}: {table} at {at}");
            }
        }
    }
}

/// `ADMIN SHOW DDL JOBS` of the recording, without the lines that break multi-schema changes down.
fn jobs_that_tidb_shows(recording: &Recording, state: &str) -> BTreeMap<i64, (String, SchemaId)> {
    let column = |row: &BTreeMap<String, Option<String>>, name: &str| row[name].clone().unwrap_or_default();
    let rows = recording.expected.ddl_jobs.iter();
    rows.filter(|row| column(row, "STATE") == state && !column(row, "JOB_TYPE").contains("subjob"))
        .map(|row| {
            let number = |name| column(row, name).parse::<i64>().unwrap();
            (number("JOB_ID"), (column(row, "JOB_TYPE"), SchemaId(number("SCHEMA_ID"))))
        })
        .collect()
}

#[test]
fn every_job_that_tidb_shows_as_finished_is_an_event_and_no_other() {
    let mut checked = 0;
    for name in RECORDINGS {
        let recording = Recording::load(name);
        let store = SchemaStore::open(SchemaOptions::default()).unwrap();
        recording.initialise(&store);
        recording.feed(&store, recording.history.header.base_ts, recording.end());
        let events = all_events(&store, recording.history.header.base_ts);
        let found: BTreeMap<i64, SchemaId> =
            events.iter().map(|event| (event.job_id.get(), event.schema_id)).collect();
        // The list may go back to before the recording.
        let first = events.iter().map(|event| event.job_id.get()).min().unwrap();
        for (id, (kind, schema)) in jobs_that_tidb_shows(&recording, "synced").split_off(&first) {
            if kind.contains("sequence") {
                assert_eq!(found.get(&id), None, "{name}: a sequence has no rows");
            } else {
                assert_eq!(found.get(&id), Some(&schema), "{name}: job {id}, {kind}");
                checked += 1;
            }
        }
        for id in jobs_that_tidb_shows(&recording, "rollback done").keys() {
            assert_eq!(found.get(id), None, "{name}: job {id} was rolled back");
        }
        let finished = events.iter().map(|event| event.finished_ts);
        assert!(finished.is_sorted(), "{name}: events are in commit order");
    }
    assert!(checked >= 180, "the recordings show about 200 jobs, not {checked}");
}

/// A snapshot may be taken while a DDL is half done: the job that finishes it comes after. Streams that are
/// dropped and added must be those of a reader that had the tables from before.
#[test]
fn a_snapshot_at_any_moment_leads_to_the_same_tables_and_streams() {
    for name in ["ddl", "partition"] {
        let recording = Recording::load(name).finished_jobs_only();
        let whole = SchemaStore::open(SchemaOptions::default()).unwrap();
        recording.initialise(&whole);
        recording.feed(&whole, recording.history.header.base_ts, recording.end());
        let at_end = whole.physical_tables_at(recording.end()).unwrap();
        for moment in recording.metadata_changes() {
            let store = SchemaStore::open(SchemaOptions::default()).unwrap();
            recording.initialise_at(&store, moment);
            // A table that is delete-only is about to go, or not there yet: no SQL sees it.
            let invisible = recording.delete_only_tables_at(moment);
            let streams = |store: &SchemaStore| {
                let tables = store.physical_tables_at(moment).unwrap().into_iter();
                tables.filter(|t| !invisible.contains(&t.table_id)).map(|t| t.id).collect::<BTreeSet<_>>()
            };
            assert_eq!(streams(&store), streams(&whole), "{name} at {moment}");
            recording.feed(&store, moment, recording.end());
            assert_eq!(store.physical_tables_at(recording.end()).unwrap(), at_end, "{name} from {moment}");
            for (found, expected) in all_events(&store, moment).iter().zip(all_events(&whole, moment)) {
                assert_eq!(found.finished_ts, expected.finished_ts, "{name} from {moment}");
                assert_eq!(found.need_dropped_tables, expected.need_dropped_tables, "{name} from {moment}");
                assert_eq!(found.need_added_tables, expected.need_added_tables, "{name} from {moment}");
                assert_eq!(found.blocked_tables, expected.blocked_tables, "{name} from {moment}");
                assert_eq!(found.query, expected.query, "{name} from {moment}");
            }
        }
    }
}
