//! Applies recorded rows and DDL events to plain maps and compares them with what TiDB answered.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::{DdlEvent, OwnedRow, RowKind};
use tidegate_codec::key::parse_record_key;
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::{TableLayout, rewrites_of};
use tidegate_codec::text::write_text;
use tidegate_codec::value::Value;
use tidegate_core::TableId;
use tidegate_mini::LiveTable;
use tidegate_testkit::{Expected, Snapshot};

use crate::recorder::{Log, What};

#[derive(Default)]
struct Model {
    /// By physical id.
    tables: BTreeMap<TableId, Table>,
}

struct Table {
    schema: String,
    info: Arc<TableInfo>,
    /// Reads rows that were written before a MODIFY COLUMN rewrote the table, too.
    layout: TableLayout,
    rows: BTreeMap<Vec<u8>, OwnedRow>,
}

/// Replays `log` and compares every snapshot at or above the start. Returns how many rows were compared.
pub(crate) fn check(log: &mut Log, expected: &Expected, name: &str) -> usize {
    // Stable: rows of one partition are in sealed order already.
    log.entries.sort_by_key(|(ts, what)| (*ts, what.class()));
    let mut model = Model::default();
    model.join(&log.start);
    let mut entries = log.entries.iter().peekable();
    let mut compared = 0;
    for snapshot in &expected.snapshots {
        while let Some((_, what)) = entries.next_if(|(ts, _)| *ts <= snapshot.ts) {
            model.apply(what);
        }
        compared += model.compare(snapshot, name);
    }
    compared
}

impl Model {
    fn join(&mut self, tables: &[LiveTable]) {
        for table in tables {
            let version = &table.version;
            let (schema, info) = (version.schema.to_string(), Arc::clone(version.layout.shared_table()));
            let (layout, rows) = (TableLayout::new(Arc::clone(&info)), BTreeMap::new());
            let before = self.tables.insert(table.id, Table { schema, info, layout, rows });
            assert!(before.is_none(), "table {} joins twice", table.id);
        }
    }

    fn apply(&mut self, what: &What) {
        match what {
            What::Row(row) | What::EarlyRow(row) => self.apply_row(row),
            What::Ddl { event, joined, left } => {
                for table in left {
                    self.tables.remove(table);
                }
                self.apply_ddl(event);
                self.join(joined);
            }
        }
    }

    fn apply_row(&mut self, row: &OwnedRow) {
        let table = self.tables.get_mut(&row.table_id).expect("rows come only for live tables");
        let before = match row.kind {
            RowKind::Delete => table.rows.remove(row.key()),
            _ => table.rows.insert(row.key().to_vec(), row.clone()),
        };
        // Old values are complete: an insert meets nothing, the others what they replace.
        let old = before.map(|before| before.raw.value);
        let told = (row.kind != RowKind::Insert).then(|| row.raw.old_value.clone());
        assert_eq!(old, told, "old value of a row of table {} at {}", row.table_id, row.commit_ts());
    }

    fn apply_ddl(&mut self, ddl: &DdlEvent) {
        if ddl.action == ActionType::ExchangePartition {
            return self.exchange(ddl);
        }
        if let Some(info) = &ddl.table_info {
            self.redefine(info, &ddl.schema_name, ddl);
        }
        for table in &ddl.multiple_table_infos {
            self.redefine(&table.info, &table.name.schema, ddl);
        }
    }

    fn redefine(&mut self, info: &Arc<TableInfo>, schema: &str, ddl: &DdlEvent) {
        for table in self.tables.values_mut().filter(|table| table.info.id == info.id) {
            table.evolve(info, schema, ddl);
        }
    }

    /// The normal table becomes a partition of the other, and the partition becomes the normal table.
    fn exchange(&mut self, ddl: &DdlEvent) {
        let [partitioned, normal] = ddl.multiple_table_infos.as_slice() else {
            panic!("an exchange has two tables")
        };
        let inside = partitioned.info.physical_ids();
        for (id, table) in &mut self.tables {
            if inside.contains(id) {
                table.evolve(&partitioned.info, &partitioned.name.schema, ddl);
            } else if table.info.id == partitioned.info.id {
                let info = TableInfo { id: *id, ..TableInfo::clone(&normal.info) };
                table.evolve(&Arc::new(info), &normal.name.schema, ddl);
            }
        }
    }

    fn compare(&self, snapshot: &Snapshot, name: &str) -> usize {
        let mut ours: BTreeMap<String, Vec<Vec<Option<Vec<u8>>>>> = BTreeMap::new();
        for table in self.tables.values() {
            let rows = ours.entry(format!("{}.{}", table.schema, table.info.name)).or_default();
            rows.extend(table.rows.values().map(|row| cells(row, &table.layout)));
        }
        let at = format!("{name} at {}", snapshot.ts);
        let mut compared = 0;
        for (table, expected) in &snapshot.tables {
            // Views and sequences have no rows of their own in the feed.
            let Some(mut rows) = ours.remove(table) else { continue };
            let mut expect: Vec<Vec<Option<Vec<u8>>>> = expected
                .rows
                .iter()
                .map(|row| row.iter().map(|cell| cell.as_bytes().map(<[u8]>::to_vec)).collect())
                .collect();
            rows.sort();
            expect.sort();
            compared += expect.len();
            let different = rows.iter().zip(&expect).find(|(a, b)| a != b);
            assert!(
                rows.len() == expect.len() && different.is_none(),
                "{at}: {table} has {} rows of {}; first difference (ours, TiDB's): {different:?}",
                rows.len(),
                expect.len(),
            );
        }
        let empty = ours.iter().all(|(_, rows)| rows.is_empty());
        assert!(empty, "{at}: tables that TiDB does not have: {:?}", ours.keys());
        compared
    }
}

impl Table {
    fn evolve(&mut self, info: &Arc<TableInfo>, schema: &str, ddl: &DdlEvent) {
        let rewrites = rewrites_of(ddl, &self.info, info);
        self.layout = TableLayout::evolve(&self.layout, Arc::clone(info), &rewrites, ddl.finished_ts.ts());
        (self.info, self.schema) = (Arc::clone(info), schema.to_owned());
    }
}

/// The row as `SELECT *` shows it, read with the definition of now.
fn cells(row: &OwnedRow, layout: &TableLayout) -> Vec<Option<Vec<u8>>> {
    let key = parse_record_key(row.key()).expect("it was decoded before");
    let view = layout.row(key.handle, &row.raw.value).expect("it was decoded before");
    let view = view.written_at(row.commit_ts().ts());
    let cell = |index| match view.selected(index).expect("TiDB could read it") {
        Value::Null => None,
        value => {
            let mut text = Vec::new();
            write_text(&value, &mut text).expect("a JSON value that can be written");
            Some(text)
        }
    };
    layout.table().public_columns().map(|(index, _)| cell(index)).collect()
}
