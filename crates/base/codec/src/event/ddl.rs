//! A schema change with everything it influences.

use std::{fmt, sync::Arc};

use tidegate_core::{CommitTs, IndexId, JobId, SchemaId, StartTs, TableId};

use crate::{ddl::ActionType, meta::TableInfo};

/// A finished DDL job as downstream stages see it (`reference/tidb-schema-and-ddl.md` §9.1). Nothing of the
/// job that matters to a reader is flattened away. Events are shared and read-only.
///
/// Ids of streams are physical ids: of partitions, or of unpartitioned tables. The trigger stream, the one
/// that carries this event for the whole feed, is not listed in the sets but has a flag in [`Influenced`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DdlEvent {
    /// The job.
    pub job_id: JobId,
    /// What it did.
    pub action: ActionType,
    /// Database it is about; zero if there is none. After a rename: the new one.
    pub schema_id: SchemaId,
    /// Name of that database.
    pub schema_name: String,
    /// Logical id of the table it is about, after the change; zero if there is none. For EXCHANGE PARTITION
    /// the normal table's before the exchange.
    pub table_id: TableId,
    /// Name of that table; after a rename the new one.
    pub table_name: String,
    /// The other identity: where a renamed table came from, the partitioned table of EXCHANGE PARTITION, the
    /// source of CREATE TABLE LIKE, the table that TRUNCATE or PARTITION BY replaced.
    pub other: Option<TableName>,
    /// The statement: as typed, or rebuilt where the typed one is about more than this event.
    pub query: String,
    /// SQL mode to read `query` with, as a bit set.
    pub sql_mode: u64,
    /// Character set to read `query` with.
    pub charset: String,
    /// Collation to read `query` with.
    pub collate: String,
    /// Start timestamp of the transaction that finished the job.
    pub start_ts: StartTs,
    /// Commit timestamp of the transaction that finished the job: the boundary between the two versions of
    /// the schema. A row with this commit timestamp comes before the event and uses the older one.
    pub finished_ts: CommitTs,
    /// When the job itself started, hence the earliest commit timestamp of rows in tables it made.
    pub job_start_ts: StartTs,
    /// Global schema version; orders nothing.
    pub schema_version: i64,
    /// The table after the change; for drops as it was last. `None` for changes of databases and where
    /// [`DdlEvent::multiple_table_infos`] has several.
    pub table_info: Option<Arc<TableInfo>>,
    /// CREATE TABLES and RENAME TABLES: each table once, after the change, in statement order. EXCHANGE
    /// PARTITION: the partitioned table after it, then the normal table before it. FLASHBACK DATABASE: the
    /// tables that came back.
    pub multiple_table_infos: Vec<NamedTableInfo>,
    /// Streams that must reach `finished_ts` and stop before the change is made downstream.
    pub blocked_tables: Influenced,
    /// Names as they were before the change of the tables it blocks; empty for new objects and databases.
    pub blocked_table_names: Vec<TableName>,
    /// Streams that end with the change.
    pub need_dropped_tables: Influenced,
    /// Streams that begin with the change.
    pub need_added_tables: Vec<AddedTable>,
    /// Streams that go on in another database.
    pub updated_schemas: Vec<SchemaMove>,
    /// How the set of table names changes.
    pub table_name_change: TableNameChange,
    /// Indexes that the change made, in statement order.
    pub index_ids: Vec<IndexId>,
    /// Only of use if the target is TiDB.
    pub tidb_only: bool,
    /// Role of the cluster in bidirectional replication; mostly empty.
    pub bdr_role: String,
    /// Non-zero if a replicator wrote it.
    pub cdc_write_source: u64,
}

impl DdlEvent {
    /// Whether the event belongs to the trigger stream, the one that carries what concerns more than a single
    /// table's own metadata.
    pub const fn is_trigger(&self) -> bool {
        !matches!(self.action.bookkeeping(), crate::ddl::Bookkeeping::OneTable)
    }
}

/// A set of streams (`reference/tidb-schema-and-ddl.md` §9.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Influenced {
    /// None.
    #[default]
    Nothing,
    /// All streams.
    All,
    /// All streams of one database, and the trigger.
    Schema(SchemaId),
    /// These streams.
    Tables {
        /// Whether the trigger stream is among them.
        trigger: bool,
        /// Physical ids, ascending.
        ids: Vec<TableId>,
    },
}

impl Influenced {
    /// The trigger stream and `ids`.
    pub fn with_trigger(ids: impl IntoIterator<Item = TableId>) -> Self {
        Self::tables(true, ids)
    }

    /// The streams `ids` alone.
    pub fn only(ids: impl IntoIterator<Item = TableId>) -> Self {
        Self::tables(false, ids)
    }

    fn tables(trigger: bool, ids: impl IntoIterator<Item = TableId>) -> Self {
        let mut ids: Vec<TableId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() && !trigger { Self::Nothing } else { Self::Tables { trigger, ids } }
    }

    /// The physical ids, where they are listed one by one.
    pub fn ids(&self) -> &[TableId] {
        match self {
            Self::Tables { ids, .. } => ids,
            Self::Nothing | Self::All | Self::Schema(_) => &[],
        }
    }

    /// Whether the stream of physical table `id` in database `schema` is among them.
    pub fn contains(&self, schema: SchemaId, id: TableId) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Schema(influenced) => *influenced == schema,
            Self::Tables { ids, .. } => ids.binary_search(&id).is_ok(),
        }
    }
}

/// A stream that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedTable {
    /// Database.
    pub schema_id: SchemaId,
    /// Physical id.
    pub table_id: TableId,
    /// Whether its changes may be spread over several writers.
    pub splittable: bool,
    /// From when (exclusive) its changes are to be read. Mostly the event's `finished_ts`; earlier, the job's
    /// own start, for TRUNCATE PARTITION, whose new partitions take rows before the job is finished: such
    /// rows belong after the event although their commit timestamp is below it.
    pub read_from: StartTs,
}

/// A stream that goes on in another database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaMove {
    /// Physical id.
    pub table_id: TableId,
    /// Database before.
    pub old: SchemaId,
    /// Database after.
    pub new: SchemaId,
}

/// A table's full name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    /// Database id.
    pub schema_id: SchemaId,
    /// Database name.
    pub schema: String,
    /// Logical table id.
    pub table_id: TableId,
    /// Table name.
    pub table: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// How the set of table names changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableNameChange {
    /// Names that come.
    pub added: Vec<TableName>,
    /// Names that go.
    pub dropped: Vec<TableName>,
    /// A database that goes with all its names.
    pub dropped_schema: Option<String>,
}

/// A table with its names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTableInfo {
    /// Its name after the change.
    pub name: TableName,
    /// The table.
    pub info: Arc<TableInfo>,
}
