//! The databases and tables as they are after the last applied job.

use std::{collections::BTreeSet, sync::Arc};

use hashbrown::HashMap;
use tidegate_codec::{
    event::TableName,
    meta::{DbInfo, TableInfo},
};
use tidegate_core::{SchemaId, TableId};

/// Databases whose changes are nobody's data (`reference/tidb-schema-and-ddl.md` §5.3).
const SYSTEM_SCHEMAS: [&str; 10] = [
    "mysql",
    "sys",
    "information_schema",
    "performance_schema",
    "metrics_schema",
    "inspection_schema",
    "dm_heartbeat",
    "workload_schema",
    "tidb_cdc",
    "lightning_task_info",
];

/// Whether `name`, in any case, is a database of the system's own.
pub fn is_system_schema(name: &str) -> bool {
    SYSTEM_SCHEMAS.iter().any(|system| system.eq_ignore_ascii_case(name))
}

#[derive(Clone, Debug)]
pub(crate) struct Schema {
    pub(crate) info: DbInfo,
    pub(crate) name: Arc<str>,
    /// Logical ids of its tables, views and sequences.
    pub(crate) tables: BTreeSet<TableId>,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) schema_id: SchemaId,
    pub(crate) info: Arc<TableInfo>,
}

impl Table {
    /// The ids that its rows are under; none for views and sequences.
    pub(crate) fn row_ids(&self) -> Vec<TableId> {
        row_ids(&self.info)
    }
}

/// The ids that rows of `info` are under; none for views and sequences.
pub(crate) fn row_ids(info: &TableInfo) -> Vec<TableId> {
    if info.is_table() { info.physical_ids() } else { Vec::new() }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    schemas: HashMap<SchemaId, Schema>,
    tables: HashMap<TableId, Table>,
}

impl Catalog {
    pub(crate) fn schema(&self, id: SchemaId) -> Option<&Schema> {
        self.schemas.get(&id)
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Table> {
        self.tables.get(&id)
    }

    pub(crate) fn schemas(&self) -> impl Iterator<Item = &Schema> {
        self.schemas.values()
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// Adds or replaces a database; its tables stay.
    pub(crate) fn put_schema(&mut self, info: DbInfo) {
        let name = Arc::from(info.name.as_str());
        let tables = self.schemas.remove(&info.id).map(|schema| schema.tables).unwrap_or_default();
        self.schemas.insert(info.id, Schema { info, name, tables });
    }

    /// Removes a database with its tables, and gives those.
    pub(crate) fn remove_schema(&mut self, id: SchemaId) -> Vec<Table> {
        let tables = self.schemas.remove(&id).map(|schema| schema.tables).unwrap_or_default();
        tables.iter().filter_map(|table| self.tables.remove(table)).collect()
    }

    /// Adds or replaces a table; it may move between databases.
    pub(crate) fn put_table(&mut self, schema_id: SchemaId, info: Arc<TableInfo>) {
        self.remove_table(info.id);
        if let Some(schema) = self.schemas.get_mut(&schema_id) {
            schema.tables.insert(info.id);
        }
        self.tables.insert(info.id, Table { schema_id, info });
    }

    pub(crate) fn remove_table(&mut self, id: TableId) -> Option<Table> {
        let table = self.tables.remove(&id)?;
        if let Some(schema) = self.schemas.get_mut(&table.schema_id) {
            schema.tables.remove(&id);
        }
        Some(table)
    }

    /// The table of that name, in any case.
    pub(crate) fn find(&self, schema: &str, table: &str) -> Option<&Table> {
        let schema = self.schemas.values().find(|known| known.info.name.is(schema))?;
        schema.tables.iter().filter_map(|id| self.tables.get(id)).find(|known| known.info.name.is(table))
    }

    /// The full name of a table.
    pub(crate) fn name_of(&self, table: &Table) -> TableName {
        TableName {
            schema_id: table.schema_id,
            schema: self.schema(table.schema_id).map(|schema| schema.name.to_string()).unwrap_or_default(),
            table_id: table.info.id,
            table: table.info.name.as_str().to_owned(),
        }
    }
}
