//! FLASHBACK DATABASE: a dropped database comes back with its tables and their ids, without jobs for them.

use std::sync::Arc;

use tidegate_codec::{
    ddl::JobArgs,
    event::{Influenced, NamedTableInfo},
    meta::{SchemaState, TableInfo},
};

use super::{
    SchemaCore,
    apply::{Change, Outcome},
};
use crate::SchemaError;

impl SchemaCore {
    /// The tables are in the arguments, or (when TiDB read them from its own snapshot) those that the
    /// database had when it was dropped. The names in the job are empty.
    pub(super) fn recover_schema(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.db_info()?;
        let (id, name) = (info.id, info.name.as_str().to_owned());
        let tables = self.recovered_tables(change)?;
        self.dropped_schemas.remove(&id);
        self.catalog.put_schema(info);
        change.event.blocked_tables = Influenced::with_trigger([]);
        for table in tables {
            let name = self.add_table(change, id, table.clone())?;
            change.event.multiple_table_infos.push(NamedTableInfo { name, info: table });
        }
        change.event.schema_id = id;
        change.event.schema_name = name;
        change.event.table_id = tidegate_core::TableId(0);
        change.event.table_name = String::new();
        Ok(Outcome::Event)
    }

    fn recovered_tables(&self, change: &Change<'_>) -> Result<Vec<Arc<TableInfo>>, SchemaError> {
        if let JobArgs::Recover(args) = change.args()?
            && !args.recover_info.recover_table_infos.is_empty()
        {
            let tables = args.recover_info.recover_table_infos.into_iter();
            return Ok(tables.map(|table| public(table.table_info)).collect());
        }
        let id = change.job.schema_id;
        let dropped = self.dropped_schemas.get(&id).map(|dropped| dropped.tables.clone());
        dropped.ok_or_else(|| {
            change.unknown(format!("dropped database {id}, whose drop is older than the store"))
        })
    }
}

/// A table as it was before anybody began to drop it.
fn public(mut info: TableInfo) -> Arc<TableInfo> {
    info.state = SchemaState::Public;
    Arc::new(info)
}
