//! What one DDL event does to the tables it is about.

use std::sync::Arc;

use hashbrown::HashMap;
use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::{DdlEvent, NamedTableInfo};
use tidegate_codec::meta::TableInfo;
use tidegate_core::{StartTs, TableId};
use tidegate_proto::searchfabric::v1::{PartitionDisposition, ReplayContext};

use super::{Reread, Roster, SourceTable};
use crate::error::AdapterError;

/// One table's part of a DDL event.
#[derive(Clone, Debug)]
pub enum TableChange {
    /// The table is now like this: it was created, altered, renamed, truncated or partitioned.
    Now {
        /// The table after the DDL.
        table: SourceTable,
        /// The logical id before, where the DDL gave the table another one.
        replaces: Option<TableId>,
        /// The DDL and what it does to partitions.
        roster: Roster,
    },
    /// The logical table is gone.
    Dropped(TableId),
    /// All tables of the database are gone.
    SchemaDropped(String),
}

/// The parts of `event`, one for each table it is about; none for objects without rows.
///
/// # Errors
/// [`AdapterError::Unsupported`] for DDL that turns back the whole cluster.
pub fn changes(event: &DdlEvent) -> Result<Vec<TableChange>, AdapterError> {
    use ActionType as A;
    match event.action {
        A::DropTable => Ok(vec![TableChange::Dropped(event.table_id)]),
        A::DropSchema => Ok(vec![TableChange::SchemaDropped(event.schema_name.clone())]),
        A::ExchangePartition => Ok(exchange(event)),
        A::FlashbackCluster => {
            Err(AdapterError::Unsupported { action: event.action, finished_ts: event.finished_ts })
        }
        _ => Ok(after(event).into_iter().map(|table| now(event, table, None)).collect()),
    }
}

/// A partition and a table swap their ids and with them their rows. The event has the partitioned table after
/// it and the normal table before it.
fn exchange(event: &DdlEvent) -> Vec<TableChange> {
    let mut changes = Vec::new();
    for mut table in after(event) {
        let normal = table.info.id == event.table_id;
        let partition = event.blocked_tables.ids().iter().find(|id| **id != event.table_id);
        if let Some(partition) = partition.filter(|_| normal) {
            let mut info = (*table.info).clone();
            let before = std::mem::replace(&mut info.id, *partition);
            table.info = Arc::new(info);
            changes.push(now(event, table, Some(before)));
        } else {
            changes.push(now(event, table, None));
        }
    }
    changes
}

/// The tables after the event.
fn after(event: &DdlEvent) -> Vec<SourceTable> {
    let single = event.table_info.iter().map(|info| (&event.schema_name, &event.table_name, info));
    let several = event
        .multiple_table_infos
        .iter()
        .map(|NamedTableInfo { name, info }| (&name.schema, &name.table, info));
    single.chain(several).filter(|(_, _, info)| has_rows(info)).map(source_table).collect()
}

fn has_rows(info: &TableInfo) -> bool {
    info.is_table() && info.temp_table_type == 0
}

fn source_table((schema, name, info): (&String, &String, &Arc<TableInfo>)) -> SourceTable {
    SourceTable { schema: schema.clone(), name: name.clone(), info: Arc::clone(info) }
}

fn now(event: &DdlEvent, table: SourceTable, renumbered: Option<TableId>) -> TableChange {
    use ActionType as A;
    let renumbers =
        matches!(event.action, A::TruncateTable | A::AlterTablePartitioning | A::RemovePartitioning);
    let other = event.other.as_ref().filter(|_| renumbers).map(|other| other.table_id);
    let disposition = match event.action {
        A::TruncateTable | A::DropPartition | A::TruncatePartition | A::ExchangePartition => {
            PartitionDisposition::DeleteDocuments
        }
        _ => PartitionDisposition::KeepDocuments,
    };
    let reread = match event.action {
        A::ExchangePartition => Reread::Added,
        A::ModifyColumn | A::MultiSchemaChange => Reread::Replacing,
        _ => Reread::Nothing,
    };
    let read_from: HashMap<TableId, StartTs> =
        event.need_added_tables.iter().map(|added| (added.table_id, added.read_from)).collect();
    let context = context(event, &table);
    let roster = Roster { ts: event.finished_ts.ts(), read_from, disposition, reread, context };
    TableChange::Now { table, replaces: renumbered.or(other), roster }
}

fn context(event: &DdlEvent, table: &SourceTable) -> ReplayContext {
    ReplayContext {
        ddl_query: event.query.clone(),
        ddl_job_id: event.job_id.get(),
        source_schema_version: event.schema_version,
        sql_mode: event.sql_mode.to_string(),
        charset: event.charset.clone(),
        collation: event.collate.clone(),
        ..table_context(table)
    }
}

/// The part of a replay context that follows from the table alone; for tables that are older than their
/// stream.
pub(crate) fn table_context(table: &SourceTable) -> ReplayContext {
    let collations = table
        .info
        .public_columns()
        .filter(|(_, column)| !column.field_type.is_binary())
        .map(|(_, column)| (column.name.original.clone(), column.field_type.collate.clone()));
    ReplayContext {
        source_table_id: table.info.id.get(),
        source_schema: table.schema.clone(),
        source_table: table.name.clone(),
        // Rows are decoded in UTC, whatever the session's zone was.
        time_zone: "UTC".to_owned(),
        field_collations: collations.collect(),
        ..ReplayContext::default()
    }
}
