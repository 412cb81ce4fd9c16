//! The arguments of jobs, in one form for both formats (`reference/tidb-schema-and-ddl.md` §2.2).

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tidegate_core::{ColumnId, IndexId, JobId, SchemaId, TableId, Ts};

use super::{ActionType, args_v1};
use crate::meta::{
    CiName, ColumnInfo, DbInfo, FkInfo, MetaError, PartitionInfo, TableInfo, TtlInfo, lenient, list,
};

/// The arguments of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobArgs {
    /// The job has none.
    Absent,
    /// The action's arguments are of no use to a reader of changes, or (version 1) not described.
    Untyped,
    /// CREATE DATABASE.
    CreateSchema(CreateSchemaArgs),
    /// DROP DATABASE.
    DropSchema(DropSchemaArgs),
    /// Character set of a database.
    SchemaCharset(SchemaCharsetArgs),
    /// CREATE TABLE, VIEW and SEQUENCE.
    CreateTable(Box<CreateTableArgs>),
    /// CREATE TABLES.
    CreateTables(Vec<TableInfo>),
    /// DROP TABLE, VIEW and SEQUENCE.
    DropTable(DropTableArgs),
    /// TRUNCATE TABLE and TRUNCATE PARTITION.
    Truncate(TruncateArgs),
    /// ADD, DROP and REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING.
    Partition(Box<PartitionArgs>),
    /// EXCHANGE PARTITION.
    Exchange(ExchangeArgs),
    /// RENAME TABLE, one element per pair.
    Rename(Vec<RenameArgs>),
    /// ADD, DROP and SET DEFAULT of a column.
    Column(Box<ColumnArgs>),
    /// MODIFY and CHANGE COLUMN.
    ModifyColumn(Box<ModifyColumnArgs>),
    /// ADD INDEX and ADD PRIMARY KEY.
    AddIndex(Vec<AddIndexArg>),
    /// DROP INDEX and DROP PRIMARY KEY.
    DropIndex(Vec<DropIndexArg>),
    /// RENAME INDEX.
    RenameIndex {
        /// Old name.
        from: CiName,
        /// New name.
        to: CiName,
    },
    /// RECOVER TABLE, FLASHBACK TABLE and FLASHBACK DATABASE.
    Recover(Box<RecoverArgs>),
    /// ADD and DROP FOREIGN KEY.
    ForeignKey(Box<ForeignKeyArgs>),
    /// TTL.
    Ttl(TtlArgs),
}

/// CREATE DATABASE.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CreateSchemaArgs {
    /// The database.
    pub db_info: DbInfo,
}

/// DROP DATABASE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DropSchemaArgs {
    /// Ids of its tables and partitions, once the job is finished.
    #[serde(with = "list")]
    pub all_dropped_table_ids: Vec<TableId>,
}

/// Character set and collation of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchemaCharsetArgs {
    /// New character set.
    #[serde(deserialize_with = "lenient")]
    pub to_charset: String,
    /// New collation.
    #[serde(deserialize_with = "lenient")]
    pub to_collate: String,
}

/// CREATE TABLE, VIEW and SEQUENCE.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CreateTableArgs {
    /// The object as submitted.
    pub table_info: TableInfo,
    /// OR REPLACE of a view.
    pub on_exist_replace: bool,
    /// The view that is replaced, or zero.
    pub old_view_tbl_id: TableId,
}

/// DROP TABLE, VIEW and SEQUENCE, once finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DropTableArgs {
    /// Ids of its partitions.
    #[serde(with = "list")]
    pub old_partition_ids: Vec<TableId>,
}

/// TRUNCATE TABLE and TRUNCATE PARTITION.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TruncateArgs {
    /// New logical id; zero for partitions.
    pub new_table_id: TableId,
    /// Ids of the partitions that come; may be gone once the job is finished.
    #[serde(with = "list")]
    pub new_partition_ids: Vec<TableId>,
    /// Ids of the partitions that go.
    #[serde(with = "list")]
    pub old_partition_ids: Vec<TableId>,
}

/// ADD, DROP and REORGANIZE PARTITION, PARTITION BY, REMOVE PARTITIONING.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PartitionArgs {
    /// Names of the partitions that go or are reorganised.
    #[serde(with = "list")]
    pub part_names: Vec<CiName>,
    /// The partitions that come.
    pub part_info: Option<PartitionInfo>,
    /// Physical ids that go, once the job is finished; the logical id is among them if it changes.
    #[serde(rename = "old_physical_tbl_ids", with = "list")]
    pub old_physical_ids: Vec<TableId>,
}

/// EXCHANGE PARTITION. The job's own table is the normal one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ExchangeArgs {
    /// The partition that becomes the normal table.
    pub partition_id: TableId,
    /// Database of the partitioned table.
    #[serde(rename = "pt_schema_id")]
    pub partitioned_schema_id: SchemaId,
    /// Logical id of the partitioned table.
    #[serde(rename = "pt_table_id")]
    pub partitioned_table_id: TableId,
    /// Name of the partition.
    #[serde(deserialize_with = "lenient")]
    pub partition_name: String,
    /// WITH VALIDATION.
    pub with_validation: bool,
}

/// One pair of a RENAME TABLE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RenameArgs {
    /// Database before.
    pub old_schema_id: SchemaId,
    /// Its name.
    pub old_schema_name: CiName,
    /// Table name before; empty in the single form and in early versions.
    pub old_table_name: CiName,
    /// Database after; zero in version 1 of the single form (it is the job's own).
    pub new_schema_id: SchemaId,
    /// Table name after.
    pub new_table_name: CiName,
    /// The table; zero in the single form (it is the job's own).
    pub table_id: TableId,
}

/// ADD, DROP and SET DEFAULT of a column.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ColumnArgs {
    /// The column; of a dropped one only the name.
    pub column_info: ColumnInfo,
    /// Indexes that go with it.
    #[serde(with = "list")]
    pub index_ids: Vec<IndexId>,
}

/// MODIFY and CHANGE COLUMN; everything empty if only metadata changed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModifyColumnArgs {
    /// The column as it shall be.
    pub column: Option<ColumnInfo>,
    /// Id before.
    pub old_column_id: ColumnId,
    /// Name before.
    pub old_column_name: CiName,
    /// 0 none, 1 no rewrite, 2 no rewrite after a check, 3 indexes rewritten, 4 rows too, 5 precheck.
    pub modify_column_type: u8,
    /// The column that rows were rewritten into; its id is new.
    pub changing_column: Option<ColumnInfo>,
}

/// One index of ADD INDEX or ADD PRIMARY KEY.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AddIndexArg {
    /// Its id, once given.
    pub index_id: IndexId,
    /// UNIQUE.
    pub unique: bool,
    /// Its name; empty if TiDB chooses one.
    pub index_name: CiName,
}

/// One index of DROP INDEX or DROP PRIMARY KEY.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct DropIndexArg {
    /// Its name.
    pub index_name: CiName,
    /// Its id, once the job is finished.
    pub index_id: IndexId,
    /// IF EXISTS.
    pub if_exist: bool,
}

/// RECOVER TABLE, FLASHBACK TABLE and FLASHBACK DATABASE.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RecoverArgs {
    /// What comes back.
    pub recover_info: RecoverInfo,
}

/// What a recovery brings back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RecoverInfo {
    /// The database of FLASHBACK DATABASE.
    #[serde(rename = "DBInfo")]
    pub db_info: Option<DbInfo>,
    /// The tables; empty if TiDB read them from the snapshot while the job ran.
    #[serde(with = "list")]
    pub recover_table_infos: Vec<RecoverTable>,
    /// The job that dropped them.
    #[serde(rename = "DropJobID")]
    pub drop_job_id: JobId,
    /// The snapshot they come from.
    #[serde(rename = "SnapshotTS")]
    pub snapshot_ts: Ts,
}

/// One recovered table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct RecoverTable {
    /// Its database.
    #[serde(rename = "SchemaID")]
    pub schema_id: SchemaId,
    /// The table as it was.
    pub table_info: TableInfo,
    /// Name of its database when it was dropped.
    #[serde(deserialize_with = "lenient")]
    pub old_schema_name: String,
    /// Its name when it was dropped.
    #[serde(deserialize_with = "lenient")]
    pub old_table_name: String,
}

/// ADD and DROP FOREIGN KEY.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ForeignKeyArgs {
    /// The key that is added.
    pub fk_info: Option<FkInfo>,
    /// The name of the key that is dropped.
    pub fk_name: CiName,
}

/// TTL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TtlArgs {
    /// The new settings.
    pub ttl_info: Option<TtlInfo>,
    /// Switch alone.
    pub ttl_enable: Option<bool>,
    /// Interval alone.
    pub ttl_cron_job_schedule: Option<String>,
}

/// A list of index arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct IndexArgs<T> {
    #[serde(with = "list", bound(deserialize = "T: Deserialize<'de>"))]
    index_args: Vec<T>,
}

pub(super) fn decode_args(
    action: ActionType,
    version: i64,
    raw: Option<&RawValue>,
) -> Result<JobArgs, MetaError> {
    let Some(raw) = raw else { return Ok(JobArgs::Absent) };
    let decoded =
        if version >= 2 { decode_v2(action, raw.get()) } else { args_v1::decode(action, raw.get()) };
    decoded.map_err(|source| MetaError { what: "DDL job arguments", source })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CreateTablesV2 {
    #[serde(with = "list")]
    tables: Vec<CreateTableArgs>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RenameTablesV2 {
    #[serde(with = "list")]
    rename_table_infos: Vec<RenameArgs>,
}

fn decode_v2(action: ActionType, json: &str) -> Result<JobArgs, serde_json::Error> {
    fn read<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
        serde_json::from_str(json)
    }
    use ActionType as A;
    Ok(match action {
        A::CreateSchema => JobArgs::CreateSchema(read(json)?),
        A::DropSchema => JobArgs::DropSchema(read(json)?),
        A::ModifySchemaCharset => JobArgs::SchemaCharset(read(json)?),
        A::CreateTable | A::CreateView | A::CreateSequence => JobArgs::CreateTable(read(json)?),
        A::CreateTables => JobArgs::CreateTables(
            read::<CreateTablesV2>(json)?.tables.into_iter().map(|table| table.table_info).collect(),
        ),
        A::DropTable | A::DropView | A::DropSequence => JobArgs::DropTable(read(json)?),
        A::TruncateTable | A::TruncatePartition => JobArgs::Truncate(read(json)?),
        A::AddPartition
        | A::DropPartition
        | A::ReorganizePartition
        | A::AlterTablePartitioning
        | A::RemovePartitioning => JobArgs::Partition(read(json)?),
        A::ExchangePartition => JobArgs::Exchange(read(json)?),
        A::RenameTable => JobArgs::Rename(vec![read(json)?]),
        A::RenameTables => JobArgs::Rename(read::<RenameTablesV2>(json)?.rename_table_infos),
        A::AddColumn | A::DropColumn | A::SetDefaultValue => JobArgs::Column(read(json)?),
        A::ModifyColumn => JobArgs::ModifyColumn(read(json)?),
        A::AddIndex | A::AddPrimaryKey => JobArgs::AddIndex(read::<IndexArgs<_>>(json)?.index_args),
        A::DropIndex | A::DropPrimaryKey => JobArgs::DropIndex(read::<IndexArgs<_>>(json)?.index_args),
        A::RenameIndex => rename_index(read::<IndexArgs<AddIndexArg>>(json)?),
        A::RecoverTable | A::RecoverSchema => JobArgs::Recover(read(json)?),
        A::AddForeignKey | A::DropForeignKey => JobArgs::ForeignKey(read(json)?),
        A::AlterTtlInfo | A::AlterTtlRemove => JobArgs::Ttl(read(json)?),
        _ => JobArgs::Untyped,
    })
}

fn rename_index(args: IndexArgs<AddIndexArg>) -> JobArgs {
    let mut names = args.index_args.into_iter().map(|arg| arg.index_name);
    let (from, to) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    JobArgs::RenameIndex { from, to }
}
