//! Each recorded history, replayed to each recorded timestamp, gives exactly the rows that TiDB answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_codec::encode::{EncodeError, encode_row};
use tidegate_codec::key::{Handle, parse_record_key, record_range};
use tidegate_codec::meta::{DbInfo, TableInfo};
use tidegate_codec::meta_key::{self, MetaEntry};
use tidegate_codec::partition::Partitioner;
use tidegate_codec::row::{RowView, TableLayout, rewrites_between};
use tidegate_codec::text::write_text;
use tidegate_codec::value::Value;
use tidegate_core::{Op, SchemaId, TableId, Ts};
use tidegate_testkit::{Cell, Expected, History, Snapshot, Version, data};

type Row = Vec<Option<Vec<u8>>>;

/// Differences shown for a failing history; the rest is only counted.
const SHOWN_MAX: usize = 20;

/// What compares unequal, one line each.
#[derive(Default)]
struct Report {
    rows_compared: usize,
    differences: Vec<String>,
}

impl Report {
    fn differ(&mut self, line: String) {
        self.differences.push(line);
    }

    fn finish(&self, name: &str, rows_min: usize) {
        let shown: Vec<&str> = self.differences.iter().take(SHOWN_MAX).map(String::as_str).collect();
        assert!(
            self.differences.is_empty(),
            "{name}: {} differences\n{}",
            self.differences.len(),
            shown.join("\n")
        );
        assert!(self.rows_compared >= rows_min, "{name}: only {} rows compared", self.rows_compared);
    }
}

/// What the recorded versions add up to at some timestamp.
#[derive(Default)]
struct World {
    /// The newest value of each key, and when it was committed.
    keys: BTreeMap<Bytes, (Bytes, Ts)>,
    layouts: BTreeMap<TableId, TableLayout>,
}

impl World {
    fn apply(&mut self, version: &Version) {
        let committed = version.commit_ts.ts();
        match version.op {
            Op::Put => self.keys.insert(version.key.clone(), (version.value.clone(), committed)),
            Op::Delete => self.keys.remove(&version.key),
        };
        if let (Op::Put, Ok(MetaEntry::Table(_, id))) = (version.op, meta_key::classify(&version.key)) {
            let table = Arc::new(TableInfo::parse(&version.value).expect("table info"));
            let layout = match self.layouts.get(&id) {
                Some(before) => {
                    let rewrites = rewrites_between(before.table(), &table);
                    TableLayout::evolve(before, table, &rewrites, committed)
                }
                None => TableLayout::new(table),
            };
            self.layouts.insert(id, layout);
        }
    }

    /// The tables that metadata holds, by `database.table`; views and sequences have no rows of their own.
    fn tables(&self) -> BTreeMap<String, &TableLayout> {
        let mut databases: BTreeMap<SchemaId, String> = BTreeMap::new();
        let mut tables = Vec::new();
        let (start, end) = meta_key::range();
        for (key, (value, _)) in self.keys.range(Bytes::from(start)..Bytes::from(end)) {
            match meta_key::classify(key).expect("a metadata key") {
                MetaEntry::Database(id) => {
                    databases.insert(id, DbInfo::parse(value).expect("database info").name.original);
                }
                MetaEntry::Table(database, id) => {
                    tables.push((database, self.layouts.get(&id).expect("its layout")))
                }
                _ => {}
            }
        }
        let named = tables.into_iter().filter(|(_, layout)| layout.table().is_table());
        let named = named.filter_map(|(id, layout)| {
            Some((format!("{}.{}", databases.get(&id)?, layout.table().name), layout))
        });
        named.collect()
    }
}

fn rows_of(layout: &TableLayout, world: &World, report: &mut Report) -> Vec<Row> {
    let mut rows = Vec::new();
    let partitioner = Partitioner::new(layout).expect("a known partitioning");
    for table_id in layout.table().physical_ids() {
        let (start, end) = record_range(None, table_id);
        for (key, (value, committed)) in world.keys.range(Bytes::from(start)..Bytes::from(end)) {
            let record = parse_record_key(key).expect("a record key");
            let row = layout.row(record.handle, value).expect("a row").written_at(*committed);
            if let Err(error) = row.verify_checksum(key) {
                report.differ(format!("{}: {error}", layout.table().name));
            }
            let located = partitioner.locate(&row).expect("a partitioning that can be computed");
            if located != Some(table_id) {
                report.differ(format!("{}: row of {table_id} belongs to {located:?}", layout.table().name));
            }
            rows.push(texts(&row, report));
        }
    }
    rows.sort();
    rows
}

fn texts(row: &RowView<'_>, report: &mut Report) -> Row {
    let mut texts = Vec::new();
    for (index, _) in row.table().public_columns() {
        match row.selected(index) {
            Ok(value) if value.is_null() => texts.push(None),
            Ok(value) => {
                let mut text = Vec::new();
                write_text(&value, &mut text).expect("sound JSON");
                texts.push(Some(text));
            }
            Err(error) => {
                report.differ(error.to_string());
                texts.push(None);
            }
        }
    }
    texts
}

fn compare(snapshot: &Snapshot, databases: &BTreeSet<String>, world: &World, report: &mut Report) {
    let tables = world.tables();
    for (name, expected) in &snapshot.tables {
        let Some(layout) = tables.get(name) else {
            report.differ(format!("{name}: not in the metadata at {}", snapshot.ts));
            continue;
        };
        let columns: Vec<&str> =
            layout.table().public_columns().map(|(_, column)| column.name.as_str()).collect();
        if columns != expected.columns {
            report.differ(format!("{name}: columns {columns:?}, TiDB has {:?}", expected.columns));
            continue;
        }
        let bytes = |cell: &Cell| cell.as_bytes().map(<[u8]>::to_vec);
        let mut theirs: Vec<Row> = expected.rows.iter().map(|row| row.iter().map(bytes).collect()).collect();
        theirs.sort();
        let ours = rows_of(layout, world, report);
        report.rows_compared += ours.len();
        compare_rows(name, snapshot.ts, &ours, &theirs, report);
    }
    let recorded = |name: &&String| databases.contains(database_of(name));
    for name in tables.keys().filter(recorded).filter(|name| !snapshot.tables.contains_key(*name)) {
        report.differ(format!("{name}: in the metadata at {}, TiDB does not show it", snapshot.ts));
    }
}

fn database_of(table: &str) -> &str {
    table.split_once('.').map_or(table, |(database, _)| database)
}

fn compare_rows(name: &str, ts: Ts, ours: &[Row], theirs: &[Row], report: &mut Report) {
    let shown = |row: &Row| -> Vec<String> {
        let text = |cell: &Option<Vec<u8>>| match cell {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "NULL".to_owned(),
        };
        row.iter().map(text).collect()
    };
    for row in ours.iter().filter(|row| !theirs.contains(row)) {
        report.differ(format!("{name} at {ts}: ours only   {:?}", shown(row)));
    }
    for row in theirs.iter().filter(|row| !ours.contains(row)) {
        report.differ(format!("{name} at {ts}: TiDB's only {:?}", shown(row)));
    }
    if ours.len() != theirs.len() {
        report.differ(format!("{name} at {ts}: {} rows, TiDB has {}", ours.len(), theirs.len()));
    }
}

/// Replays a history and compares it at every snapshot; `rows_min` guards against comparing nothing.
fn check(name: &str, rows_min: usize) {
    let history = History::open(data::path(&format!("{name}.history.jsonl.zst"))).expect("history");
    let expected = Expected::open(data::path(&format!("{name}.expected.json.zst"))).expect("expectations");
    // Recordings hold only the databases they were made for; others are there as metadata without rows.
    let names = expected.snapshots.iter().flat_map(|snapshot| snapshot.tables.keys());
    let databases: BTreeSet<String> = names.map(|name| database_of(name).to_owned()).collect();
    let mut world = World::default();
    history.base.iter().for_each(|version| world.apply(version));
    let mut log = history.log.iter().peekable();
    let mut report = Report::default();
    for snapshot in &expected.snapshots {
        while let Some(version) = log.next_if(|version| version.commit_ts.ts() <= snapshot.ts) {
            world.apply(version);
        }
        compare(snapshot, &databases, &world, &mut report);
    }
    report.finish(name, rows_min);
}

/// What became of rows that were read and written again.
#[derive(Default)]
struct Rewritten {
    equal: usize,
    /// Clustered keys whose collation has sort keys that the encoder does not make.
    unsupported: usize,
    differences: Vec<String>,
}

/// Reads a row as it is written and writes it again.
fn rewrite(world: &World, version: &Version, rewritten: &mut Rewritten) {
    let Ok(key) = parse_record_key(&version.key) else { return };
    let of_table = |layout: &&TableLayout| layout.table().physical_ids().contains(&key.table_id);
    let Some(layout) = world.layouts.values().find(of_table) else { return };
    // While a column is on its way in or out, TiDB writes it for reasons that no value shows.
    let settled = layout.table().columns.iter().all(|column| column.is_public());
    if version.op != Op::Put || !settled || version.value.first() != Some(&0x80) {
        return;
    }
    let row = layout.row(key.handle, &version.value).expect("a row").written_at(version.commit_ts.ts());
    let values: Vec<Value<'_>> =
        (0..layout.table().columns.len()).map(|index| row.column(index).expect("a value")).collect();
    let row_id = match key.handle {
        Handle::Int(id) => Some(id),
        Handle::Common(_) => None,
    };
    let checksum = row.checksum().expect("a sound checksum").is_some();
    match encode_row(layout, &values, row_id, checksum) {
        Ok(encoded) if encoded.key(None, key.table_id) == version.key && encoded.value == version.value => {
            rewritten.equal += 1;
        }
        Ok(encoded) => {
            let name = &layout.table().name;
            let ours = encoded.value;
            rewritten.differences.push(format!("{name}: {ours:02x?} instead of {:02x?}", &version.value[..]));
        }
        Err(EncodeError::Collation { .. }) => rewritten.unsupported += 1,
        Err(error) => rewritten.differences.push(error.to_string()),
    }
}

/// Every recorded row that was read is written back byte for byte: key, cells, omissions and checksum.
#[test]
fn rows_are_written_as_tidb_wrote_them() {
    for (name, equal_min) in
        [("demo", 8_700), ("types", 110), ("partition", 40), ("random-12", 1_200), ("random-13", 1_300)]
    {
        let history = data::history(name).expect(name);
        let mut world = World::default();
        history.base.iter().for_each(|version| world.apply(version));
        let mut rewritten = Rewritten::default();
        for version in &history.log {
            world.apply(version);
            rewrite(&world, version, &mut rewritten);
        }
        let Rewritten { equal, unsupported, differences } = rewritten;
        assert!(unsupported < equal / 10, "{name}: {unsupported} rows could not be written");
        let shown: Vec<&str> = differences.iter().take(SHOWN_MAX).map(String::as_str).collect();
        assert!(differences.is_empty(), "{name}: {} differences\n{}", differences.len(), shown.join("\n"));
        assert!(equal >= equal_min, "{name}: only {equal} rows compared");
    }
}

// The second numbers are the rows in all snapshots of the expectations, counted with another tool.

#[test]
fn demo_gives_the_rows_that_tidb_answered() {
    check("demo", 15_748);
}

#[test]
fn types_gives_the_rows_that_tidb_answered() {
    check("types", 374);
}

#[test]
fn ddl_gives_the_rows_that_tidb_answered() {
    check("ddl", 103);
}

#[test]
fn partition_gives_the_rows_that_tidb_answered() {
    check("partition", 62);
}

#[test]
fn bank_gives_the_rows_that_tidb_answered() {
    check("bank", 40_271);
}

#[test]
fn bank_live_gives_the_rows_that_tidb_answered() {
    check("bank-live", 42_545);
}

#[test]
fn random_schemas_give_the_rows_that_tidb_answered() {
    check("random-11", 1_761);
    check("random-12", 1_881);
}

#[test]
fn random_schemas_with_row_checksums_give_the_rows_that_tidb_answered() {
    check("random-13", 1_866);
}
