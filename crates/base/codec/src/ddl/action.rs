//! What kinds of schema change there are.

use crate::meta::number_enum;

number_enum! {
    /// The kind of a DDL job (`reference/tidb-schema-and-ddl.md` §3, the whole table).
    pub enum ActionType: u8 {
        /// Nothing.
        None = 0,
        /// CREATE DATABASE.
        CreateSchema = 1,
        /// DROP DATABASE; makes no jobs for its tables.
        DropSchema = 2,
        /// CREATE TABLE.
        CreateTable = 3,
        /// DROP TABLE; one job per table, each with the whole statement as query.
        DropTable = 4,
        /// ADD COLUMN.
        AddColumn = 5,
        /// DROP COLUMN.
        DropColumn = 6,
        /// ADD INDEX.
        AddIndex = 7,
        /// DROP INDEX.
        DropIndex = 8,
        /// ADD FOREIGN KEY.
        AddForeignKey = 9,
        /// DROP FOREIGN KEY.
        DropForeignKey = 10,
        /// TRUNCATE TABLE; changes the logical id.
        TruncateTable = 11,
        /// MODIFY or CHANGE COLUMN.
        ModifyColumn = 12,
        /// AUTO_INCREMENT = n.
        RebaseAutoId = 13,
        /// RENAME TABLE of one table.
        RenameTable = 14,
        /// ALTER COLUMN SET DEFAULT.
        SetDefaultValue = 15,
        /// SHARD_ROW_ID_BITS = n.
        ShardRowId = 16,
        /// COMMENT = '…'.
        ModifyTableComment = 17,
        /// RENAME INDEX.
        RenameIndex = 18,
        /// ADD PARTITION.
        AddPartition = 19,
        /// DROP PARTITION.
        DropPartition = 20,
        /// CREATE VIEW.
        CreateView = 21,
        /// CHARACTER SET and COLLATE of a table.
        ModifyTableCharset = 22,
        /// TRUNCATE PARTITION; rows can reach the new partitions before the job is done.
        TruncatePartition = 23,
        /// DROP VIEW.
        DropView = 24,
        /// RECOVER TABLE and FLASHBACK TABLE.
        RecoverTable = 25,
        /// CHARACTER SET and COLLATE of a database.
        ModifySchemaCharset = 26,
        /// LOCK TABLES.
        LockTable = 27,
        /// UNLOCK TABLES.
        UnlockTable = 28,
        /// ADMIN REPAIR TABLE.
        RepairTable = 29,
        /// SET TIFLASH REPLICA.
        SetTiFlashReplica = 30,
        /// Progress of TiFlash replicas.
        UpdateTiFlashReplicaStatus = 31,
        /// ADD PRIMARY KEY.
        AddPrimaryKey = 32,
        /// DROP PRIMARY KEY.
        DropPrimaryKey = 33,
        /// CREATE SEQUENCE.
        CreateSequence = 34,
        /// ALTER SEQUENCE.
        AlterSequence = 35,
        /// DROP SEQUENCE.
        DropSequence = 36,
        /// ADD COLUMN of several columns, before TiDB 6.2.
        AddColumns = 37,
        /// DROP COLUMN of several columns, before TiDB 6.2.
        DropColumns = 38,
        /// AUTO_ID_CACHE = n.
        ModifyAutoIdCache = 39,
        /// AUTO_RANDOM_BASE = n.
        RebaseAutoRandom = 40,
        /// ALTER INDEX VISIBLE or INVISIBLE.
        AlterIndexVisibility = 41,
        /// EXCHANGE PARTITION; the job's table is the normal one, its table info the partitioned one.
        ExchangePartition = 42,
        /// ADD CHECK.
        AddCheckConstraint = 43,
        /// DROP CHECK.
        DropCheckConstraint = 44,
        /// ALTER CHECK.
        AlterCheckConstraint = 45,
        /// ALTER PARTITION, removed from TiDB.
        AlterPartition = 46,
        /// RENAME TABLE of several tables.
        RenameTables = 47,
        /// DROP INDEX of several indexes, before TiDB 6.2.
        DropIndexes = 48,
        /// ATTRIBUTES of a table.
        AlterTableAttributes = 49,
        /// ATTRIBUTES of a partition.
        AlterPartitionAttributes = 50,
        /// CREATE PLACEMENT POLICY; schema id and name are the policy's.
        CreatePlacementPolicy = 51,
        /// ALTER PLACEMENT POLICY.
        AlterPlacementPolicy = 52,
        /// DROP PLACEMENT POLICY.
        DropPlacementPolicy = 53,
        /// Placement of a partition.
        AlterPartitionPlacement = 54,
        /// Default placement of a database.
        ModifySchemaPlacement = 55,
        /// Placement of a table.
        AlterTablePlacement = 56,
        /// CACHE.
        AlterCacheTable = 57,
        /// STATS_OPTIONS, unused.
        AlterTableStatsOptions = 58,
        /// NOCACHE.
        AlterNoCacheTable = 59,
        /// Creation of many tables at once by restore tools.
        CreateTables = 60,
        /// Several changes of one table in one statement.
        MultiSchemaChange = 61,
        /// FLASHBACK CLUSTER.
        FlashbackCluster = 62,
        /// FLASHBACK DATABASE; its tables come back without jobs of their own.
        RecoverSchema = 63,
        /// REORGANIZE PARTITION, and ADD and COALESCE PARTITION of hash and key partitions.
        ReorganizePartition = 64,
        /// TTL.
        AlterTtlInfo = 65,
        /// REMOVE TTL.
        AlterTtlRemove = 67,
        /// CREATE RESOURCE GROUP.
        CreateResourceGroup = 68,
        /// ALTER RESOURCE GROUP.
        AlterResourceGroup = 69,
        /// DROP RESOURCE GROUP.
        DropResourceGroup = 70,
        /// PARTITION BY; changes the logical id.
        AlterTablePartitioning = 71,
        /// REMOVE PARTITIONING; changes the logical id.
        RemovePartitioning = 72,
        /// ADD VECTOR, FULLTEXT or COLUMNAR INDEX.
        AddColumnarIndex = 73,
        /// ENGINE_ATTRIBUTE.
        ModifyEngineAttribute = 74,
        /// Import and restore modes of a table.
        AlterTableMode = 75,
        /// Reload of metadata by restore tools.
        RefreshMeta = 76,
        /// READ ONLY of a database.
        ModifySchemaReadOnly = 77,
        /// AFFINITY.
        AlterTableAffinity = 78,
        /// Soft deletion of a table.
        AlterTableSoftdelete = 79,
        /// Soft deletion and active-active of a database.
        ModifySchemaSoftdelete = 80,
    }
}

/// How far a kind of job reaches, which decides what a schema store does with it
/// (`reference/tidb-schema-and-ddl.md` §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bookkeeping {
    /// A whole database.
    Schema,
    /// The set of tables, their names, ids or partitions.
    TableSet,
    /// A view or a sequence: an object without rows.
    Rowless,
    /// One table's own metadata, if the job carries any.
    OneTable,
}

impl ActionType {
    /// How far this kind of job reaches. Kinds of later versions count as [`Bookkeeping::OneTable`]: what
    /// they change is in the job's table info, if anything.
    pub const fn bookkeeping(self) -> Bookkeeping {
        match self {
            Self::CreateSchema | Self::DropSchema | Self::ModifySchemaCharset | Self::RecoverSchema => {
                Bookkeeping::Schema
            }
            Self::CreateTable
            | Self::CreateTables
            | Self::DropTable
            | Self::TruncateTable
            | Self::RecoverTable
            | Self::RenameTable
            | Self::RenameTables
            | Self::AddPartition
            | Self::DropPartition
            | Self::TruncatePartition
            | Self::ReorganizePartition
            | Self::ExchangePartition
            | Self::AlterTablePartitioning
            | Self::RemovePartitioning => Bookkeeping::TableSet,
            Self::CreateView
            | Self::DropView
            | Self::CreateSequence
            | Self::AlterSequence
            | Self::DropSequence => Bookkeeping::Rowless,
            _ => Bookkeeping::OneTable,
        }
    }

    /// The name in event filters and messages, for the kinds that TiCDC hands to downstream systems; `None`
    /// for those it keeps to itself (`reference/tidb-schema-and-ddl.md` §3, column wl).
    pub const fn event_name(self) -> Option<&'static str> {
        Some(match self {
            Self::CreateSchema => "create database",
            Self::DropSchema => "drop database",
            Self::CreateTable | Self::CreateTables => "create table",
            Self::DropTable => "drop table",
            Self::AddColumn | Self::AddColumns => "add column",
            Self::DropColumn | Self::DropColumns => "drop column",
            Self::AddIndex => "create index",
            Self::DropIndex => "drop index",
            Self::AddForeignKey => "add foreign key",
            Self::DropForeignKey => "drop foreign key",
            Self::TruncateTable => "truncate table",
            Self::ModifyColumn => "modify column",
            Self::RebaseAutoId => "rebase auto id",
            Self::RenameTable | Self::RenameTables => "rename table",
            Self::SetDefaultValue => "set default value",
            Self::ModifyTableComment => "modify table comment",
            Self::RenameIndex => "rename index",
            Self::AddPartition => "add table partition",
            Self::DropPartition => "drop table partition",
            Self::CreateView => "create view",
            Self::ModifyTableCharset => "modify table charset and collate",
            Self::TruncatePartition => "truncate table partition",
            Self::DropView => "drop view",
            Self::RecoverTable => "recover table",
            Self::ModifySchemaCharset => "modify schema charset and collate",
            Self::AddPrimaryKey => "add primary key",
            Self::DropPrimaryKey => "drop primary key",
            Self::AlterIndexVisibility => "alter index visibility",
            Self::ExchangePartition => "exchange table partition",
            Self::MultiSchemaChange => "multi schema change",
            Self::ReorganizePartition => "reorganize table partition",
            Self::AlterTtlInfo => "alter ttl info",
            Self::AlterTtlRemove => "alter ttl remove",
            Self::AlterTablePartitioning => "alter table partitioning",
            Self::RemovePartitioning => "remove table partitioning",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_kinds_are_one_to_one_and_unknown_numbers_survive() {
        for number in 0..=u8::MAX {
            assert_eq!(ActionType::from_number(number).number(), number);
        }
        assert_eq!(ActionType::from_number(66), ActionType::Other(66), "66 was never used");
        assert_eq!(ActionType::from_number(80), ActionType::ModifySchemaSoftdelete);
        assert_eq!(ActionType::from_number(230), ActionType::Other(230), "a number TiDB never writes");
    }

    /// `reference/tidb-schema-and-ddl.md` §3: the rows with "y" in the last column, without TiCDC's own 230
    /// and 231.
    #[test]
    fn the_kinds_with_event_names_are_those_the_reference_lists() {
        let named = (0..=u8::MAX).filter(|&number| ActionType::from_number(number).event_name().is_some());
        let listed = (1..=15)
            .chain(17..=26)
            .chain([32, 33, 37, 38, 41, 42, 47, 60, 61, 64, 65, 67, 71, 72])
            .collect::<Vec<_>>();
        assert_eq!(named.collect::<Vec<_>>(), listed);
    }
}
