//! What a faithful follower holds: tables as the DDL events describe them, rows as the row events leave them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::{DdlEvent, NamedTableInfo, RowChanged};
use tidegate_codec::key::{KeyError, parse_record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::{DecodeError, TableLayout, rewrites_of};
use tidegate_codec::text::write_text;
use tidegate_core::{CommitTs, TableId, Ts};

/// Database and table name.
pub(crate) type Name = (String, String);

/// Tables as the schema events describe them.
type Tables = BTreeMap<Name, Arc<TableLayout>>;

/// A row's newest version: what it holds and since when; `None` once it is deleted.
type Version = (CommitTs, Option<Bytes>);

/// Rows of one physical table by record key.
type Rows = BTreeMap<Bytes, Version>;

/// The model. Rows wait until something seals them, because they come in no promised order. Rows of dropped
/// tables stay: RECOVER TABLE brings them back under their old ids, which are never given twice.
#[derive(Default)]
pub(crate) struct Model {
    tables: Tables,
    rows: BTreeMap<TableId, Rows>,
    waiting: BTreeMap<(CommitTs, TableId, Bytes), Option<Bytes>>,
}

/// A table's content as text.
pub(crate) struct Content {
    pub(crate) columns: Vec<String>,
    /// Positions in `columns` that tell a row from all others, if any do.
    pub(crate) key: Option<Vec<usize>>,
    pub(crate) rows: Vec<Vec<Option<Vec<u8>>>>,
}

/// A row that was delivered cannot be read back with the table's definition.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("a delivered row has no record key")]
    Key(#[from] KeyError),
    #[error("a json value cannot be written as text")]
    Json(#[from] tidegate_codec::json::JsonError),
}

impl Model {
    /// A table is there from now on.
    pub(crate) fn table(&mut self, name: Name, layout: Arc<TableLayout>) {
        self.tables.insert(name, layout);
    }

    /// Takes a row event, which is applied once it is sealed.
    pub(crate) fn row(&mut self, row: &RowChanged<'_>) {
        let value = row.row.is_some().then(|| row.raw.value.clone());
        self.waiting.insert((row.commit_ts(), row.table_id, row.raw.key.clone()), value);
    }

    /// Applies every row at or below `ts`, in commit order.
    pub(crate) fn seal(&mut self, ts: Ts) {
        let above = (ts.next().as_commit(), TableId(i64::MIN), Bytes::new());
        let later = self.waiting.split_off(&above);
        for ((commit_ts, table, key), value) in std::mem::replace(&mut self.waiting, later) {
            let version = self.rows.entry(table).or_default().entry(key).or_default();
            // A row above the last checkpoint may be delivered twice; the newest version stays.
            if version.0 <= commit_ts {
                *version = (commit_ts, value);
            }
        }
    }

    /// Applies a schema change. Rows at or below it are sealed before.
    pub(crate) fn ddl(&mut self, event: &DdlEvent) {
        let before = self.tables.clone();
        for name in &event.table_name_change.dropped {
            self.tables.remove(&(name.schema.clone(), name.table.clone()));
        }
        if let Some(schema) = &event.table_name_change.dropped_schema {
            self.tables.retain(|(db, _), _| db != schema);
        }
        match event.action {
            ActionType::DropTable | ActionType::DropView | ActionType::DropSchema => {}
            ActionType::ExchangePartition => self.exchange(event, &before),
            _ if !event.multiple_table_infos.is_empty() => {
                for named in &event.multiple_table_infos {
                    let name = (named.name.schema.clone(), named.name.table.clone());
                    self.define(name, &named.info, event, &before);
                }
            }
            _ => {
                if let Some(info) = &event.table_info {
                    let name = (event.schema_name.clone(), event.table_name.clone());
                    self.define(name, info, event, &before);
                }
            }
        }
    }

    /// A table has this definition from `event` on. Its rows may be older: their columns are found through
    /// the definition it had `before`.
    fn define(&mut self, name: Name, info: &Arc<TableInfo>, event: &DdlEvent, before: &Tables) {
        if !info.is_table() {
            return;
        }
        let layout = match before.values().find(|layout| layout.table().id == info.id) {
            None => TableLayout::new(info.clone()),
            Some(old) => {
                let rewrites = rewrites_of(event, old.table(), info);
                TableLayout::evolve(old, info.clone(), &rewrites, event.finished_ts.ts())
            }
        };
        self.tables.insert(name, Arc::new(layout));
    }

    /// The event shows the partitioned table after the exchange and the normal one before it: the latter goes
    /// on under the id of the partition whose place it took.
    fn exchange(&mut self, event: &DdlEvent, before: &Tables) {
        let [partitioned, normal] = event.multiple_table_infos.as_slice() else { return };
        let name = |named: &NamedTableInfo| (named.name.schema.clone(), named.name.table.clone());
        let old = before.get(&name(partitioned)).map(|layout| layout.table().physical_ids());
        let new = partitioned.info.physical_ids();
        let given = old.unwrap_or_default().into_iter().find(|id| !new.contains(id));
        self.define(name(partitioned), &partitioned.info, event, before);
        if let Some(id) = given {
            let renumbered = TableInfo { id, ..TableInfo::clone(&normal.info) };
            self.define(name(normal), &Arc::new(renumbered), event, before);
        }
    }

    /// Names of all tables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.tables.keys()
    }

    /// The table's content as `SELECT *` would show it; `None` if there is no such table.
    pub(crate) fn content(&self, name: &Name) -> Option<Result<Content, ModelError>> {
        self.tables.get(name).map(|layout| self.render(layout))
    }

    fn render(&self, layout: &TableLayout) -> Result<Content, ModelError> {
        let shown: Vec<usize> = layout.table().public_columns().map(|(index, _)| index).collect();
        let position = |column: usize| shown.iter().position(|index| *index == column);
        let key = layout.table().handle_key().and_then(|key| key.into_iter().map(position).collect());
        let columns = layout.table().public_columns().map(|(_, info)| info.name.to_string()).collect();
        let physical = layout.table().physical_ids();
        let stored = physical.iter().filter_map(|id| self.rows.get(id)).flatten();
        let present = stored.filter_map(|(key, (at, value))| Some((key, at, value.as_ref()?)));
        let rows = present.map(|(key, at, value)| text_row(layout, &shown, key, *at, value));
        let rows = rows.collect::<Result<_, _>>()?;
        Ok(Content { columns, key, rows })
    }
}

fn text_row(
    layout: &TableLayout,
    columns: &[usize],
    key: &[u8],
    written: CommitTs,
    value: &[u8],
) -> Result<Vec<Option<Vec<u8>>>, ModelError> {
    let row = layout.row(parse_record_key(key)?.handle, value)?.written_at(written.ts());
    let cell = |column: &usize| -> Result<Option<Vec<u8>>, ModelError> {
        let value = row.selected(*column)?;
        if value.is_null() {
            return Ok(None);
        }
        let mut text = Vec::new();
        write_text(&value, &mut text)?;
        Ok(Some(text))
    };
    columns.iter().map(cell).collect()
}
