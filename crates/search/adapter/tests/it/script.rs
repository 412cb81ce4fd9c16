//! A source as a script: rows and DDL of one partitioned and one plain table, from a seed; what the tables
//! hold at the end follows by applying them in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::{AddedTable, DdlEvent, OwnedRow, RowKind, TableName};
use tidegate_codec::key::{Handle, record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::TableLayout;
use tidegate_core::{CommitTs, JobId, Op, RawChange, RegionId, SchemaId, StartTs, TableId};
use tidegate_proto::searchfabric::v1::CollectionRef;

/// Where scripts begin.
pub(crate) const START: u64 = 1_000;

pub(crate) fn collection_ref(id: &str) -> CollectionRef {
    CollectionRef { namespace: "default".to_owned(), collection_id: id.to_owned() }
}

/// One thing that happens in the source.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Row(OwnedRow),
    Ddl(Arc<DdlEvent>),
}

/// One table: `id bigint unsigned primary key` and some `int unsigned` columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) logical: i64,
    /// Physical ids; the logical one if there is only one.
    pub(crate) physical: Vec<i64>,
    /// Column id and name, without `id`.
    pub(crate) columns: Vec<(i64, String)>,
    next_column: i64,
    rows: BTreeMap<u64, (usize, Vec<Option<u8>>)>,
}

impl Table {
    fn new(name: &str, logical: i64, partitions: i64) -> Self {
        let physical =
            if partitions == 0 { vec![logical] } else { (1..=partitions).map(|p| logical + p).collect() };
        let columns = vec![(2, "v".to_owned())];
        Self { name: name.to_owned(), logical, physical, columns, next_column: 3, rows: BTreeMap::new() }
    }

    /// The table's metadata as TiDB would write it.
    pub(crate) fn info(&self) -> Arc<TableInfo> {
        let column = |id: i64, offset: usize, name: &str, flag: u64| {
            format!(
                r#"{{"id":{id},"name":"{name}","offset":{offset},"origin_default":"0","state":5,
                    "type":{{"Tp":8,"Flag":{flag},"Flen":20,"Charset":"binary","Collate":"binary"}}}}"#
            )
        };
        // Flags: 1 not null, 2 primary key, 32 unsigned.
        let mut columns = vec![column(1, 0, "id", 35)];
        columns.extend(self.columns.iter().enumerate().map(|(i, (id, name))| column(*id, i + 1, name, 32)));
        let definitions: Vec<String> =
            self.physical.iter().map(|id| format!(r#"{{"id":{id},"name":"p{id}"}}"#)).collect();
        let partition = if self.physical == [self.logical] {
            "null".to_owned()
        } else {
            format!(
                r#"{{"type":2,"enable":true,"definitions":[{}],"num":{}}}"#,
                definitions.join(","),
                definitions.len()
            )
        };
        let json = format!(
            r#"{{"id":{},"name":"{}","pk_is_handle":true,"state":5,"cols":[{}],"partition":{partition}}}"#,
            self.logical,
            self.name,
            columns.join(","),
        );
        Arc::new(TableInfo::parse(json.as_bytes()).expect("a table"))
    }

    fn value(&self, values: &[Option<u8>]) -> Bytes {
        let mut ids: Vec<(u8, Option<u8>)> = Vec::new();
        for ((id, _), value) in self.columns.iter().zip(values) {
            ids.push((u8::try_from(*id).expect("few columns"), *value));
        }
        // The format wants ids ascending.
        ids.sort_unstable();
        let (set, null): (Vec<_>, Vec<_>) = ids.into_iter().partition(|(_, value)| value.is_some());
        let mut out = vec![128, 0];
        out.extend(u16::try_from(set.len()).expect("few").to_le_bytes());
        out.extend(u16::try_from(null.len()).expect("few").to_le_bytes());
        out.extend(set.iter().chain(&null).map(|(id, _)| *id));
        for end in 1..=set.len() {
            out.extend(u16::try_from(end).expect("few").to_le_bytes());
        }
        out.extend(set.iter().filter_map(|(_, value)| *value));
        out.into()
    }

    fn row(
        &self,
        id: u64,
        at: usize,
        old: Option<&[Option<u8>]>,
        new: Option<&[Option<u8>]>,
        ts: u64,
    ) -> Item {
        let table_id = TableId(self.physical[at]);
        let encode = |values: Option<&[Option<u8>]>| values.map_or_else(Bytes::new, |v| self.value(v));
        let kind = match (old, new) {
            (None, _) => RowKind::Insert,
            (_, None) => RowKind::Delete,
            _ => RowKind::Update,
        };
        let raw = RawChange {
            op: if new.is_some() { Op::Put } else { Op::Delete },
            key: record_key(None, table_id, &Handle::Int(id.cast_signed())).into(),
            value: encode(new),
            old_value: encode(old),
            start_ts: StartTs::new(ts - 1),
            commit_ts: CommitTs::new(ts),
            region_id: RegionId(1),
        };
        Item::Row(OwnedRow { table_id, kind, raw, layout: Arc::new(TableLayout::new(self.info())) })
    }
}

/// A whole source.
#[derive(Debug)]
pub(crate) struct Script {
    /// In order of timestamp.
    pub(crate) items: Vec<(u64, Item)>,
    /// The tables after each prefix: `versions[i]` is before `items[i]`.
    pub(crate) versions: Vec<Vec<Table>>,
    pub(crate) end: u64,
}

impl Script {
    /// A script of `steps` random steps.
    pub(crate) fn random(rng: &mut Rng, steps: usize) -> Self {
        let mut script = Self { items: Vec::new(), versions: Vec::new(), end: START };
        // One table is there at the start, perhaps with rows; the other is created on the way.
        let mut plain = Table::new("plain", 100, 0);
        plain.rows = (1..=rng.u64(0..8)).map(|id| (id, (0, vec![Some(rng.u8(0..100))]))).collect();
        let mut tables = vec![plain];
        let mut next_id = 200;
        for step in 0..steps {
            script.end += rng.u64(2..20);
            if step == 3 {
                let table = Table::new("parts", next_id, 3);
                script.ddl(&tables, ActionType::CreateTable, &table, None);
                tables.push(table);
                next_id += 10;
            } else if rng.u32(0..20) == 0 {
                script.random_ddl(rng, &mut tables, &mut next_id);
            } else {
                script.random_row(rng, &mut tables);
            }
        }
        script.versions.push(tables);
        script
    }

    /// What the tables hold at the end: values by field name, by document, by table.
    pub(crate) fn expected(&self) -> BTreeMap<String, BTreeMap<u64, BTreeMap<String, Option<u8>>>> {
        let row = |table: &Table, values: &[Option<u8>]| -> BTreeMap<String, Option<u8>> {
            table.columns.iter().map(|(_, name)| name.clone()).zip(values.iter().copied()).collect()
        };
        let tables = self.versions.last().expect("at least one version");
        let rows = |table: &Table| table.rows.iter().map(|(id, (_, v))| (*id, row(table, v))).collect();
        tables.iter().map(|table| (format!("test.{}", table.name), rows(table))).collect()
    }

    fn push(&mut self, tables: &[Table], item: Item) {
        self.versions.push(tables.to_vec());
        self.items.push((self.end, item));
    }

    fn random_row(&mut self, rng: &mut Rng, tables: &mut [Table]) {
        let before = tables.to_vec();
        let pick = rng.usize(0..tables.len());
        let table = &mut tables[pick];
        let id = rng.u64(1..12);
        let values: Vec<Option<u8>> =
            table.columns.iter().map(|_| (rng.u32(0..5) > 0).then(|| rng.u8(0..100))).collect();
        let at = rng.usize(0..table.physical.len());
        let old = table.rows.get(&id).cloned();
        let items = match old {
            None => vec![table.row(id, at, None, Some(&values), self.end)],
            Some((was_at, was)) if rng.u32(0..3) == 0 => {
                table.rows.remove(&id);
                self.push(&before, table.row(id, was_at, Some(&was), None, self.end));
                return;
            }
            // A row that moves between partitions is a delete and an insert in one transaction, in any order.
            Some((was_at, was)) if was_at != at => {
                let mut pair = vec![
                    table.row(id, was_at, Some(&was), None, self.end),
                    table.row(id, at, None, Some(&values), self.end),
                ];
                if rng.bool() {
                    pair.reverse();
                }
                pair
            }
            Some((_, was)) => vec![table.row(id, at, Some(&was), Some(&values), self.end)],
        };
        table.rows.insert(id, (at, values));
        items.into_iter().for_each(|item| self.push(&before, item));
    }

    fn random_ddl(&mut self, rng: &mut Rng, tables: &mut [Table], next_id: &mut i64) {
        let before = tables.to_vec();
        let pick = rng.usize(0..tables.len());
        let table = &mut tables[pick];
        let (action, other) = match rng.u32(0..8) {
            0 => {
                let id = table.next_column;
                table.next_column += 1;
                table.columns.push((id, format!("c{id}")));
                table.rows.values_mut().for_each(|(_, values)| values.push(Some(0)));
                (ActionType::AddColumn, None)
            }
            1 if table.columns.len() > 1 => {
                table.columns.remove(0);
                for (_, values) in table.rows.values_mut() {
                    values.remove(0);
                }
                (ActionType::DropColumn, None)
            }
            2 => {
                let old = table.logical;
                let count = i64::try_from(table.physical.len()).expect("few");
                let fresh = Table::new(&table.name, *next_id, if count == 1 { 0 } else { count });
                (table.logical, table.physical) = (fresh.logical, fresh.physical);
                table.rows.clear();
                *next_id += 10;
                (ActionType::TruncateTable, Some(old))
            }
            3 => {
                table.name.push('x');
                (ActionType::RenameTable, None)
            }
            4 if table.physical.len() > 1 => {
                let gone = rng.usize(0..table.physical.len());
                table.physical.remove(gone);
                table.rows.retain(|_, (at, _)| *at != gone);
                table.rows.values_mut().for_each(|(at, _)| *at -= usize::from(*at > gone));
                (ActionType::DropPartition, None)
            }
            5 => {
                // Every value is rewritten, and no row event says so.
                let id = table.next_column;
                table.next_column += 1;
                table.columns[0].0 = id;
                table.rows.values_mut().for_each(|(_, values)| {
                    values[0] = values[0].map(|v| (v + 1) % 100);
                });
                (ActionType::ModifyColumn, None)
            }
            6 if table.physical.len() > 1 => {
                // The rows of one partition move to a new one, and no row event says so.
                let at = rng.usize(0..table.physical.len());
                table.physical[at] = *next_id;
                *next_id += 10;
                (ActionType::ReorganizePartition, None)
            }
            _ => (ActionType::AddIndex, None),
        };
        let table = table.clone();
        self.ddl(&before, action, &table, other);
    }

    fn ddl(&mut self, before: &[Table], action: ActionType, table: &Table, other: Option<i64>) {
        let known: Vec<i64> = before.iter().flat_map(|t| t.physical.clone()).collect();
        let added = table.physical.iter().filter(|id| !known.contains(id)).map(|id| AddedTable {
            schema_id: SchemaId(1),
            table_id: TableId(*id),
            splittable: true,
            read_from: StartTs::new(self.end),
        });
        let event = DdlEvent {
            job_id: JobId(self.end.cast_signed()),
            action,
            schema_id: SchemaId(1),
            schema_name: "test".to_owned(),
            table_id: TableId(table.logical),
            table_name: table.name.clone(),
            other: other.map(|id| TableName { table_id: TableId(id), ..TableName::default() }),
            finished_ts: CommitTs::new(self.end),
            table_info: Some(table.info()),
            need_added_tables: added.collect(),
            ..DdlEvent::default()
        };
        self.push(before, Item::Ddl(Arc::new(event)));
    }

    /// The rows of the physical table `id` as of `ts`, as a read gives them.
    pub(crate) fn rows_at(&self, id: TableId, ts: u64) -> Vec<OwnedRow> {
        let tables = self.tables_at(ts).iter();
        let Some((table, at)) = tables
            .clone()
            .find_map(|t| Some((t, t.physical.iter().position(|physical| *physical == id.get())?)))
        else {
            return Vec::new();
        };
        let rows = table.rows.iter().filter(|(_, (row_at, _))| *row_at == at);
        rows.filter_map(|(doc, (_, values))| match table.row(*doc, at, None, Some(values), ts) {
            Item::Row(row) => Some(row),
            Item::Ddl(_) => None,
        })
        .collect()
    }

    /// The tables as of `ts`: after everything at or below it.
    pub(crate) fn tables_at(&self, ts: u64) -> &[Table] {
        let at = self.items.partition_point(|(item_ts, _)| *item_ts <= ts);
        &self.versions[at]
    }
}
