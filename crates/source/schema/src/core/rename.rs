//! RENAME TABLE. The metadata, and so a snapshot, shows the new name before the job is done: where a table
//! came from is in the job's arguments (`reference/tidb-schema-and-ddl.md` §7.3).

use std::sync::Arc;

use tidegate_codec::{
    ddl::{JobArgs, RenameArgs},
    event::{Influenced, NamedTableInfo, SchemaMove, TableName},
    meta::TableInfo,
};
use tidegate_core::{SchemaId, TableId};

use super::{
    SchemaCore,
    apply::{Change, Outcome, table_name},
};
use crate::{SchemaError, catalog::row_ids, statement};

impl SchemaCore {
    pub(super) fn rename_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.table_info()?;
        let mut pair = self.pairs(change)?.into_iter().next().ok_or_else(|| change.incomplete("rename"))?;
        pair.table_id = info.id;
        if pair.old_table_name.is_empty() {
            let first = change.job.involving_schema_info.first();
            pair.old_table_name = first.map(|first| first.table.as_str().into()).unwrap_or_default();
        }
        let old = self.old_name(change, &pair)?;
        let new = self.move_table(change, &old, change.job.schema_id, info.clone())?;
        change.set_identity(&new);
        change.event.query = statement::rename_tables([(&old, &new)]);
        change.event.other = Some(old);
        change.event.table_info = Some(info);
        Ok(Outcome::Event)
    }

    /// One table may occur in several pairs, as in a swap of names; its infos all show the last name. Each
    /// table is moved once, from its first to its last name.
    pub(super) fn rename_tables(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let pairs = self.pairs(change)?;
        let mut statement: Vec<(TableName, TableName)> = Vec::new();
        let mut moved: Vec<TableId> = Vec::new();
        for pair in &pairs {
            let old = match statement.iter().rev().find(|(_, new)| new.table_id == pair.table_id) {
                Some((_, before)) => before.clone(),
                None => self.old_name(change, pair)?,
            };
            let target = self.schema_name(change, pair.new_schema_id)?;
            let new = TableName {
                schema_id: pair.new_schema_id,
                schema: target.to_string(),
                table_id: pair.table_id,
                table: pair.new_table_name.as_str().to_owned(),
            };
            statement.push((old.clone(), new));
            if moved.contains(&pair.table_id) {
                continue;
            }
            moved.push(pair.table_id);
            let last = pairs.iter().rev().find(|other| other.table_id == pair.table_id).unwrap_or(pair);
            let info = last_info(change, pair.table_id)?;
            let name = self.move_table(change, &old, last.new_schema_id, info.clone())?;
            change.event.multiple_table_infos.push(NamedTableInfo { name, info });
        }
        change.event.query = statement::rename_tables(statement.iter().map(|(old, new)| (old, new)));
        Ok(Outcome::Event)
    }

    /// The table goes on under another name, perhaps in another database.
    fn move_table(
        &mut self,
        change: &mut Change<'_>,
        old: &TableName,
        schema_id: SchemaId,
        info: Arc<TableInfo>,
    ) -> Result<TableName, SchemaError> {
        let schema = self.schema_name(change, schema_id)?;
        let new = table_name(schema_id, &schema, &info);
        let ids = row_ids(&info);
        self.install(change.at.ts(), change.at.ts(), schema_id, info);
        if old.schema_id != schema_id {
            let moves = ids.iter().map(|&id| SchemaMove { table_id: id, old: old.schema_id, new: schema_id });
            change.event.updated_schemas.extend(moves);
        }
        let blocked = change.event.blocked_tables.ids().iter().chain(&ids).copied();
        change.event.blocked_tables = Influenced::with_trigger(blocked);
        change.event.blocked_table_names.push(old.clone());
        change.event.table_name_change.dropped.push(old.clone());
        change.event.table_name_change.added.push(new.clone());
        change.touched.extend(ids);
        Ok(new)
    }

    fn pairs(&self, change: &Change<'_>) -> Result<Vec<RenameArgs>, SchemaError> {
        match change.args()? {
            JobArgs::Rename(pairs) => Ok(pairs),
            _ => Err(change.incomplete("arguments")),
        }
    }

    /// The table's name before: the catalog's spelling where the catalog has not moved on already, else what
    /// the arguments say.
    fn old_name(&self, change: &Change<'_>, pair: &RenameArgs) -> Result<TableName, SchemaError> {
        let known = self.table_name(change, pair.table_id)?;
        let schema_id = if pair.old_schema_id.get() == 0 { known.schema_id } else { pair.old_schema_id };
        let in_place = schema_id == known.schema_id
            && (pair.old_table_name.is_empty() || pair.old_table_name.is(&known.table));
        if in_place {
            return Ok(known);
        }
        let schema = self.catalog.schema(schema_id).map(|schema| schema.name.to_string());
        let schema = schema.unwrap_or_else(|| pair.old_schema_name.as_str().to_owned());
        let table = match pair.old_table_name.as_str() {
            "" => known.table,
            old => old.to_owned(),
        };
        Ok(TableName { schema_id, schema, table_id: pair.table_id, table })
    }
}

fn last_info(change: &Change<'_>, id: TableId) -> Result<Arc<TableInfo>, SchemaError> {
    let info = change.job.binlog.multiple_table_infos.iter().rev().find(|info| info.id == id);
    info.cloned().map(Arc::new).ok_or_else(|| change.incomplete("info of a renamed table"))
}
