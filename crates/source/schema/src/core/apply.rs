//! What each kind of job does (`reference/tidb-schema-and-ddl.md` §7.2 and §9.2).

use std::sync::Arc;

use hashbrown::HashSet;
use tidegate_codec::{
    ddl::{ActionType, Bookkeeping, Job, JobArgs},
    event::{AddedTable, DdlEvent, Influenced, NamedTableInfo, TableName},
    meta::{DbInfo, MetaError, TableInfo},
};
use tidegate_core::{CommitTs, IndexId, SchemaId, StartTs, TableId, Ts};

use super::{DroppedSchema, FinishedJob, SchemaCore};
use crate::{SchemaError, catalog::row_ids, statement};

/// A job being applied, with the event it becomes.
pub(super) struct Change<'j> {
    pub(super) job: &'j Job,
    pub(super) at: CommitTs,
    pub(super) event: DdlEvent,
    /// Physical tables in whose own list the event stands.
    pub(super) touched: Vec<TableId>,
    /// Whether it stands in every table's list.
    pub(super) touches_all: bool,
}

/// Whether a job becomes an event.
pub(super) enum Outcome {
    Event,
    Quiet,
}

impl SchemaCore {
    /// Applies a finished job, in commit order. Gives the event it becomes; none for jobs that were applied
    /// before, changed nothing, or concern nothing that has rows.
    ///
    /// # Errors
    /// [`SchemaError::UnknownObject`] and the like, if the job does not fit what is known. The state must not
    /// be used any further then.
    pub(crate) fn apply(&mut self, finished: &FinishedJob) -> Result<Option<Arc<DdlEvent>>, SchemaError> {
        let FinishedJob { job, commit_ts: at, .. } = finished;
        if self.knows(finished) {
            return Ok(None);
        }
        if let Some((last, _)) = self.applied.last().filter(|(last, _)| last > at) {
            return Err(SchemaError::LateJob { at: *at, resolved: last.ts().as_resolved() });
        }
        self.applied.insert((*at, job.id));
        if job.is_empty() || crate::is_system_schema(&job.schema_name) {
            return Ok(None);
        }
        let event = base_event(finished);
        let mut change = Change { job, at: *at, event, touched: Vec::new(), touches_all: false };
        match self.dispatch(&mut change)? {
            Outcome::Quiet => Ok(None),
            Outcome::Event => Ok(Some(self.record(change))),
        }
    }

    fn record(&mut self, change: Change<'_>) -> Arc<DdlEvent> {
        let event = Arc::new(change.event);
        for id in change.touched.into_iter().collect::<HashSet<_>>() {
            self.table_events.entry(id).or_default().push(event.clone());
        }
        if change.touches_all {
            self.common_events.push(event.clone());
        }
        self.events.push(event.clone());
        event
    }

    fn dispatch(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        use ActionType as A;
        match change.job.action {
            A::CreateSchema => self.create_schema(change),
            A::DropSchema => self.drop_schema(change),
            A::ModifySchemaCharset => self.alter_schema(change),
            A::RecoverSchema => self.recover_schema(change),
            A::CreateTable => self.create_table(change),
            A::RecoverTable => self.recover_table(change),
            A::CreateTables => self.create_tables(change),
            A::DropTable => self.drop_table(change),
            A::RenameTable => self.rename_table(change),
            A::RenameTables => self.rename_tables(change),
            A::ExchangePartition => self.exchange_partition(change),
            A::CreateView => self.create_view(change),
            A::DropView => self.drop_view(change),
            A::CreateSequence | A::AlterSequence => self.put_sequence(change),
            A::DropSequence => {
                self.catalog.remove_table(change.job.table_id);
                Ok(Outcome::Quiet)
            }
            action if action.bookkeeping() == Bookkeeping::TableSet => self.replace_table(change),
            _ => self.alter_table(change),
        }
    }

    fn create_schema(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.db_info()?;
        change.event.schema_name = info.name.as_str().to_owned();
        change.event.blocked_tables = Influenced::with_trigger([]);
        self.catalog.put_schema(info);
        Ok(Outcome::Event)
    }

    fn drop_schema(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let id = change.job.schema_id;
        let name = self.schema_name(change, id)?;
        let tables = self.catalog.remove_schema(id);
        for table in &tables {
            let ids = table.row_ids();
            self.delete_versions(&ids, change.at);
            change.touched.extend(ids);
        }
        let tables = tables.into_iter().map(|table| table.info).collect();
        self.dropped_schemas.insert(id, DroppedSchema { at: change.at, tables });
        change.event.table_name_change.dropped_schema = Some(name.to_string());
        change.event.schema_name = name.to_string();
        change.event.blocked_tables = Influenced::Schema(id);
        change.event.need_dropped_tables = Influenced::Schema(id);
        Ok(Outcome::Event)
    }

    fn alter_schema(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.db_info()?;
        let id = info.id;
        change.event.schema_name = self.schema_name(change, id)?.to_string();
        change.event.blocked_tables = Influenced::Schema(id);
        change.touched.extend(
            self.catalog
                .tables()
                .filter(|table| table.schema_id == id)
                .flat_map(crate::catalog::Table::row_ids),
        );
        self.catalog.put_schema(info);
        Ok(Outcome::Event)
    }

    fn create_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.table_info()?;
        self.half_made.remove(&info.id);
        if self.catalog.table(info.id).is_some() {
            // The snapshot showed it before the job was done; what it shows may have been half made.
            self.install(change.at.ts(), change.at.ts(), change.job.schema_id, info);
            return Ok(Outcome::Quiet);
        }
        self.block_like_source(change);
        self.add_table(change, change.job.schema_id, info.clone())?;
        change.event.table_info = Some(info);
        Ok(Outcome::Event)
    }

    fn recover_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.table_info()?;
        self.add_table(change, change.job.schema_id, info.clone())?;
        change.event.table_info = Some(info);
        Ok(Outcome::Event)
    }

    fn create_tables(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let schema_id = change.job.schema_id;
        for info in &change.job.binlog.multiple_table_infos {
            let info = Arc::new(info.clone());
            if self.catalog.table(info.id).is_some() {
                self.install(change.at.ts(), change.at.ts(), schema_id, info);
                continue;
            }
            let name = self.add_table(change, schema_id, info.clone())?;
            change.event.multiple_table_infos.push(NamedTableInfo { name, info });
        }
        change.event.table_name = String::new();
        let any = !change.event.multiple_table_infos.is_empty();
        Ok(if any { Outcome::Event } else { Outcome::Quiet })
    }

    /// A table that did not exist before the job.
    pub(super) fn add_table(
        &mut self,
        change: &mut Change<'_>,
        schema_id: SchemaId,
        info: Arc<TableInfo>,
    ) -> Result<TableName, SchemaError> {
        let schema = self.schema_name(change, schema_id)?;
        let name = table_name(schema_id, &schema, &info);
        self.install(change.at.ts(), change.at.ts(), schema_id, info.clone());
        change.add_streams(schema_id, &info, &row_ids(&info), None);
        change.event.schema_name = schema.to_string();
        change.event.table_id = info.id;
        change.event.table_name.clone_from(&name.table);
        if change.event.blocked_tables == Influenced::Nothing {
            change.event.blocked_tables = Influenced::with_trigger([]);
        }
        change.event.table_name_change.added.push(name.clone());
        Ok(name)
    }

    /// CREATE TABLE … LIKE reads its source, which must not change meanwhile.
    fn block_like_source(&self, change: &mut Change<'_>) {
        if !statement::is_create_like(&change.job.query) {
            return;
        }
        let source = change.job.involving_schema_info.iter().find(|involved| involved.is_shared());
        let Some(source) = source.and_then(|source| self.catalog.find(&source.database, &source.table))
        else {
            return;
        };
        let ids = source.row_ids();
        change.event.blocked_tables = Influenced::with_trigger(ids.iter().copied());
        change.touched.extend(ids);
        let name = self.catalog.name_of(source);
        change.event.blocked_table_names.push(name.clone());
        change.event.other = Some(name);
    }

    fn drop_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        if let Some(table) = self.half_made.remove(&change.job.table_id) {
            self.catalog.put_table(table.schema_id, table.info);
        }
        let name = self.table_name(change, change.job.table_id)?;
        let ids = self.catalog.remove_table(name.table_id).map(|table| table.row_ids()).unwrap_or_default();
        self.delete_versions(&ids, change.at);
        change.set_identity(&name);
        change.event.table_info = change.job.binlog.table_info.clone().map(Arc::new);
        change.event.query = statement::drop_table(&name);
        change.event.blocked_tables = Influenced::with_trigger(ids.iter().copied());
        change.event.need_dropped_tables = Influenced::only(ids.iter().copied());
        change.event.blocked_table_names.push(name.clone());
        change.event.table_name_change.dropped.push(name);
        change.touched.extend(ids);
        Ok(Outcome::Event)
    }

    /// TRUNCATE and all partition DDLs but EXCHANGE: the table goes on with other physical ids, perhaps
    /// another logical id.
    fn replace_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let old_name = self.table_name(change, change.job.table_id)?;
        let info = change.table_info()?;
        let old = self.catalog.remove_table(old_name.table_id);
        let (old_ids, new_ids) = (old.map(|table| table.row_ids()).unwrap_or_default(), row_ids(&info));
        let dropped = without(&old_ids, &new_ids);
        let created = without(&new_ids, &old_ids);
        // TRUNCATE PARTITION lets rows into the new partitions two steps before it is done (§5.2).
        let early = change.job.action == ActionType::TruncatePartition;
        let rows_from = early.then(|| change.job.earliest_start_ts());

        self.delete_versions(&dropped, change.at);
        self.install_from(change.at, rows_from, old_name.schema_id, info.clone(), &created);
        change.set_identity(&TableName { table_id: info.id, ..old_name.clone() });
        change.add_streams(old_name.schema_id, &info, &created, rows_from);
        change.event.blocked_tables = Influenced::with_trigger(old_ids.iter().copied());
        change.event.need_dropped_tables = Influenced::only(dropped);
        change.event.blocked_table_names.push(old_name.clone());
        change.event.other = (info.id != old_name.table_id).then_some(old_name);
        change.event.table_info = Some(info);
        change.touched.extend(old_ids.into_iter().chain(new_ids));
        Ok(Outcome::Event)
    }

    /// As `install`, where the physical ids `created` may have rows from `rows_from` on.
    fn install_from(
        &mut self,
        at: CommitTs,
        rows_from: Option<StartTs>,
        schema_id: SchemaId,
        info: Arc<TableInfo>,
        created: &[TableId],
    ) {
        let layout = Arc::new(tidegate_codec::row::TableLayout::new(info.clone()));
        for id in row_ids(&info) {
            let early = rows_from.filter(|_| created.contains(&id)).map(StartTs::ts);
            let rows_from = early.map_or(at.ts(), |early| early.min(at.ts()));
            self.push_version(id, at.ts(), rows_from, schema_id, &layout);
        }
        self.catalog.put_table(schema_id, info);
    }

    /// Everything that changes one table's metadata and nothing else.
    fn alter_table(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let Some(info) = change.job.binlog.table_info.clone().map(Arc::new) else {
            // Placement policies, resource groups, cluster-wide jobs: nothing that has rows.
            return Ok(Outcome::Quiet);
        };
        if self.catalog.table(info.id).is_none() && change.job.action.event_name().is_none() {
            return Ok(Outcome::Quiet);
        }
        let name = self.table_name(change, info.id)?;
        self.install(change.at.ts(), change.at.ts(), name.schema_id, info.clone());
        let ids = row_ids(&info);
        if ids.is_empty() {
            return Ok(Outcome::Quiet);
        }
        change.set_identity(&name);
        change.event.index_ids = made_indexes(change)?;
        change.event.tidb_only =
            matches!(change.job.action, ActionType::AlterTtlInfo | ActionType::AlterTtlRemove);
        change.event.blocked_tables = Influenced::only(ids.iter().copied());
        change.event.blocked_table_names.push(name);
        change.event.table_info = Some(info);
        change.touched.extend(ids);
        Ok(Outcome::Event)
    }

    fn create_view(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.table_info()?;
        let schema = self.schema_name(change, change.job.schema_id)?;
        if let Ok(JobArgs::CreateTable(args)) = change.job.args() {
            self.catalog.remove_table(args.old_view_tbl_id);
        }
        change.set_identity(&table_name(change.job.schema_id, &schema, &info));
        change.event.blocked_tables = Influenced::All;
        change.event.table_info = Some(info.clone());
        change.touches_all = true;
        self.catalog.put_table(change.job.schema_id, info);
        Ok(Outcome::Event)
    }

    fn drop_view(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let schema = self.schema_name(change, change.job.schema_id)?;
        let name = TableName {
            schema_id: change.job.schema_id,
            schema: schema.to_string(),
            table_id: change.job.table_id,
            table: change.job.table_name.clone(),
        };
        self.catalog.remove_table(name.table_id);
        change.set_identity(&name);
        change.event.table_info = change.job.binlog.table_info.clone().map(Arc::new);
        change.event.query = statement::drop_view(&name);
        change.event.blocked_tables = Influenced::with_trigger([]);
        Ok(Outcome::Event)
    }

    fn put_sequence(&mut self, change: &mut Change<'_>) -> Result<Outcome, SchemaError> {
        let info = change.table_info()?;
        self.schema_name(change, change.job.schema_id)?;
        self.catalog.put_table(change.job.schema_id, info);
        Ok(Outcome::Quiet)
    }

    pub(super) fn schema_name(&self, change: &Change<'_>, id: SchemaId) -> Result<Arc<str>, SchemaError> {
        let schema = self.catalog.schema(id).map(|schema| schema.name.clone());
        schema.ok_or_else(|| change.unknown(format!("database {id}")))
    }

    pub(super) fn table_name(&self, change: &Change<'_>, id: TableId) -> Result<TableName, SchemaError> {
        let table = self.catalog.table(id).map(|table| self.catalog.name_of(table));
        table.ok_or_else(|| change.unknown(format!("table {id}")))
    }
}

impl Change<'_> {
    pub(super) fn unknown(&self, what: String) -> SchemaError {
        SchemaError::UnknownObject { job: self.job.id, action: self.job.action, at: self.at, what }
    }

    pub(super) fn incomplete(&self, what: &'static str) -> SchemaError {
        SchemaError::IncompleteJob { job: self.job.id, action: self.job.action, at: self.at, what }
    }

    pub(super) fn db_info(&self) -> Result<DbInfo, SchemaError> {
        self.job.binlog.db_info.clone().ok_or_else(|| self.incomplete("database info"))
    }

    pub(super) fn table_info(&self) -> Result<Arc<TableInfo>, SchemaError> {
        self.job.binlog.table_info.clone().map(Arc::new).ok_or_else(|| self.incomplete("table info"))
    }

    pub(super) fn args(&self) -> Result<JobArgs, SchemaError> {
        self.job.args().map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, source: MetaError) -> SchemaError {
        SchemaError::Record { at: self.at.ts(), source }
    }

    pub(super) fn set_identity(&mut self, name: &TableName) {
        self.event.schema_id = name.schema_id;
        self.event.schema_name.clone_from(&name.schema);
        self.event.table_id = name.table_id;
        self.event.table_name.clone_from(&name.table);
    }

    /// Streams that begin, with rows from `rows_from` on or else from the event on.
    pub(super) fn add_streams(
        &mut self,
        schema_id: SchemaId,
        info: &TableInfo,
        ids: &[TableId],
        rows_from: Option<StartTs>,
    ) {
        let read_from = rows_from.unwrap_or_else(|| Ts::as_start(self.at.ts()));
        let splittable = info.is_splittable();
        let added = ids.iter().map(|&table_id| AddedTable { schema_id, table_id, splittable, read_from });
        self.event.need_added_tables.extend(added);
        self.touched.extend(ids);
    }
}

fn base_event(finished: &FinishedJob) -> DdlEvent {
    let FinishedJob { job, start_ts, commit_ts } = finished;
    DdlEvent {
        job_id: job.id,
        action: job.action,
        schema_id: job.schema_id,
        schema_name: job.schema_name.clone(),
        query: job.query.clone(),
        sql_mode: job.sql_mode,
        charset: job.charset.clone(),
        collate: job.collate.clone(),
        start_ts: *start_ts,
        finished_ts: *commit_ts,
        job_start_ts: job.earliest_start_ts(),
        schema_version: job.binlog.schema_version,
        bdr_role: job.bdr_role.clone(),
        cdc_write_source: job.cdc_write_source,
        ..DdlEvent::default()
    }
}

/// Ids of the indexes that the job made, in statement order: one part of a multi-schema change may make
/// several. Arguments of other kinds are not read: they are of no use here, and need not be sound.
fn made_indexes(change: &Change<'_>) -> Result<Vec<IndexId>, SchemaError> {
    let makes = |action| matches!(action, ActionType::AddIndex | ActionType::AddPrimaryKey);
    let own = makes(change.job.action).then(|| change.job.args());
    let parts = change.job.multi_schema_info.iter().flat_map(|multi| &multi.sub_jobs);
    let parts = parts.filter(|part| makes(part.action)).map(|part| change.job.sub_args(part));
    let mut ids = Vec::new();
    for args in own.into_iter().chain(parts) {
        if let JobArgs::AddIndex(indexes) = args.map_err(|error| change.unreadable(error))? {
            ids.extend(indexes.iter().map(|index| index.index_id));
        }
    }
    Ok(ids)
}

pub(super) fn table_name(schema_id: SchemaId, schema: &str, info: &TableInfo) -> TableName {
    let table = info.name.as_str().to_owned();
    TableName { schema_id, schema: schema.to_owned(), table_id: info.id, table }
}

fn without(ids: &[TableId], others: &[TableId]) -> Vec<TableId> {
    ids.iter().filter(|id| !others.contains(id)).copied().collect()
}
