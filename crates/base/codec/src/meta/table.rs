//! Tables.

use serde::{Deserialize, Serialize};
use tidegate_core::{ColumnId, SchemaId, TableId, Ts};

use super::{
    CiName, ColumnFlags, ColumnInfo, ConstraintInfo, ExchangeInfo, FkInfo, IndexInfo, MetaError,
    PartitionDefinition, PartitionInfo, PolicyRef, SchemaState, SequenceInfo, SoftdeleteInfo, TiFlashReplica,
    TtlInfo, ViewInfo, json::parse, lenient, list,
};

/// A table, view or sequence (`reference/tidb-schema-and-ddl.md` §1.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableInfo {
    /// Logical id. Rows of a partitioned table are under the ids of its partitions.
    pub id: TableId,
    /// Name.
    pub name: CiName,
    /// Default character set of its columns; columns carry their own.
    #[serde(deserialize_with = "lenient")]
    pub charset: String,
    /// Default collation of its columns.
    #[serde(deserialize_with = "lenient")]
    pub collate: String,
    /// Columns in declaration order; those in flight come last.
    #[serde(rename = "cols", with = "list")]
    pub columns: Vec<ColumnInfo>,
    /// Indexes, without the primary key of a `pk_is_handle` table.
    #[serde(rename = "index_info", with = "list")]
    pub indexes: Vec<IndexInfo>,
    /// CHECK constraints.
    #[serde(rename = "constraint_info", with = "list")]
    pub constraints: Vec<ConstraintInfo>,
    /// Foreign keys.
    #[serde(rename = "fk_info", with = "list")]
    pub foreign_keys: Vec<FkInfo>,
    /// State.
    pub state: SchemaState,
    /// The primary key is one integer column, and that is the row's handle.
    pub pk_is_handle: bool,
    /// The primary key is clustered and of any other form.
    pub is_common_handle: bool,
    /// 1 since TiDB 5.0.
    pub common_handle_version: u16,
    /// Comment.
    #[serde(deserialize_with = "lenient")]
    pub comment: String,
    /// Start of AUTO_INCREMENT.
    pub auto_inc_id: i64,
    /// How many ids a TiDB node caches.
    pub auto_id_cache: i64,
    /// Start of AUTO_RANDOM.
    pub auto_rand_id: i64,
    /// Last column id given.
    pub max_col_id: i64,
    /// Last index id given.
    pub max_idx_id: i64,
    /// Last foreign key id given.
    pub max_fk_id: i64,
    /// Last constraint id given.
    pub max_cst_id: i64,
    /// Start timestamp of the last change of this table's schema; truncate, rename and exchange leave it.
    pub update_timestamp: Ts,
    /// Database whose allocator keys the table uses after a rename into another one; not its old database.
    #[serde(skip_serializing_if = "is_zero")]
    pub old_schema_id: SchemaId,
    /// Shard bits of `_tidb_rowid`.
    #[serde(rename = "ShardRowIDBits")]
    pub shard_row_id_bits: u64,
    /// Largest such number ever set.
    pub max_shard_row_id_bits: u64,
    /// Random bits of AUTO_RANDOM.
    pub auto_random_bits: u64,
    /// Range bits of AUTO_RANDOM.
    pub auto_random_range_bits: u64,
    /// Regions split off at creation, as a power of two.
    pub pre_split_regions: u64,
    /// Partitioning.
    pub partition: Option<PartitionInfo>,
    /// Compression clause.
    #[serde(deserialize_with = "lenient")]
    pub compression: String,
    /// Set for views.
    pub view: Option<ViewInfo>,
    /// Set for sequences.
    pub sequence: Option<SequenceInfo>,
    /// Version of this record's form, 5 now. Below 3, charset and collation may be in upper case.
    pub version: u16,
    /// TiFlash replicas.
    pub tiflash_replica: Option<TiFlashReplica>,
    /// Lives in TiFlash only.
    pub is_columnar: bool,
    /// 0 none, 1 global temporary, 2 local temporary. A global one makes jobs but never rows.
    pub temp_table_type: u8,
    /// 0 off, 1 on, 2 switching.
    pub cache_table_status: i64,
    /// Placement policy.
    pub policy_ref_info: Option<PolicyRef>,
    /// Set while EXCHANGE PARTITION is in progress.
    pub exchange_partition_info: Option<ExchangeInfo>,
    /// Time to live of rows.
    pub ttl_info: Option<TtlInfo>,
    /// Active-active replication.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_active_active: bool,
    /// Soft deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub softdelete_info: Option<SoftdeleteInfo>,
    /// Counts changes of this table's schema.
    pub revision: u64,
    /// 0 normal, 1 import, 2 restore.
    #[serde(skip_serializing_if = "is_normal")]
    pub mode: u8,
}

fn is_zero(id: &SchemaId) -> bool {
    id.get() == 0
}

fn is_normal(mode: &u8) -> bool {
    *mode == 0
}

/// What the handle in a row's key is (`reference/tidb-keys-and-rows.md` §2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HandleKind<'a> {
    /// The integer column at this index in [`TableInfo::columns`].
    Column(usize),
    /// The columns of the clustered primary key, in this index's order.
    Common(&'a IndexInfo),
    /// The hidden `_tidb_rowid`.
    RowId,
}

impl TableInfo {
    /// Reads the JSON of a `Table:<id>` field or of a job's `TableInfo`.
    pub fn parse(json: &[u8]) -> Result<Self, MetaError> {
        parse("table info", json)
    }

    /// The columns that SQL can name, in declaration order, each with its index in [`TableInfo::columns`].
    /// Virtual generated columns are among them, hidden ones are not.
    pub fn public_columns(&self) -> impl Iterator<Item = (usize, &ColumnInfo)> {
        self.columns.iter().enumerate().filter(|(_, column)| column.is_public() && !column.hidden)
    }

    /// The column `name` in any case, and its index; also those in flight.
    pub fn column_by_name(&self, name: &str) -> Option<(usize, &ColumnInfo)> {
        self.columns.iter().enumerate().find(|(_, column)| column.name.is(name))
    }

    /// The column with this id, and its index.
    pub fn column_by_id(&self, id: ColumnId) -> Option<(usize, &ColumnInfo)> {
        self.columns.iter().enumerate().find(|(_, column)| column.id == id)
    }

    /// The column that an index column means.
    pub fn column_at(&self, offset: usize) -> Option<&ColumnInfo> {
        self.columns.get(offset)
    }

    /// What the handle in this table's record keys is.
    pub fn handle_kind(&self) -> HandleKind<'_> {
        if let Some(column) = self.pk_handle_column() {
            return HandleKind::Column(column);
        }
        self.common_handle_index().map_or(HandleKind::RowId, HandleKind::Common)
    }

    /// Index of the integer column that is the row's handle.
    pub fn pk_handle_column(&self) -> Option<usize> {
        let is_key = |column: &ColumnInfo| column.field_type.flags.has(ColumnFlags::PRIMARY_KEY);
        self.pk_is_handle.then(|| self.columns.iter().position(is_key)).flatten()
    }

    /// The clustered primary key of a common-handle table.
    pub fn common_handle_index(&self) -> Option<&IndexInfo> {
        self.is_common_handle.then(|| self.primary_index()).flatten()
    }

    /// The primary key's index; a `pk_is_handle` table has none.
    pub fn primary_index(&self) -> Option<&IndexInfo> {
        self.indexes.iter().find(|index| index.is_primary)
    }

    /// The partitions that rows are in; empty if TiDB treats the table as unpartitioned.
    pub fn partitions(&self) -> &[PartitionDefinition] {
        match &self.partition {
            Some(partition) if partition.enable => &partition.definitions,
            _ => &[],
        }
    }

    /// Whether rows are spread over partitions.
    pub fn is_partitioned(&self) -> bool {
        self.partition.as_ref().is_some_and(|partition| partition.enable)
    }

    /// The ids in the keys of this table's rows: its partitions', or its own.
    pub fn physical_ids(&self) -> Vec<TableId> {
        if self.is_partitioned() {
            self.partitions().iter().map(|partition| partition.id).collect()
        } else {
            vec![self.id]
        }
    }

    /// Whether this is a view.
    pub const fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// Whether this is a sequence.
    pub const fn is_sequence(&self) -> bool {
        self.sequence.is_some()
    }

    /// Whether this is a table that can hold rows.
    pub const fn is_table(&self) -> bool {
        !self.is_view() && !self.is_sequence()
    }

    /// The columns that tell a row from all others of the table, as indexes into [`TableInfo::columns`]:
    /// integer handle, clustered key, primary key, else the unique index over NOT NULL columns with the
    /// fewest columns, then the smallest id (`reference/tidb-schema-and-ddl.md` §10). `None`: there is none.
    pub fn handle_key(&self) -> Option<Vec<usize>> {
        if let Some(column) = self.pk_handle_column() {
            return Some(vec![column]);
        }
        let unique = || self.indexes.iter().filter(|index| index.is_public() && self.identifies_rows(index));
        let index = self
            .primary_index()
            .filter(|index| index.is_public())
            .or_else(|| unique().min_by_key(|index| (index.columns.len(), index.id)))?;
        Some(index.columns.iter().map(|column| column.offset).collect())
    }

    /// Whether the unique `index` admits no NULL and no hidden column, so that it identifies rows.
    fn identifies_rows(&self, index: &IndexInfo) -> bool {
        let sound = |column: &ColumnInfo| column.field_type.not_null() && !column.hidden;
        index.is_unique
            && index.condition_expr_string.is_empty()
            && index.columns.iter().all(|part| self.column_at(part.offset).is_some_and(sound))
    }

    /// Whether changes of this table can be applied to a target that needs keys: views are, sequences never
    /// are, tables are if they have a primary key or a unique index over NOT NULL columns
    /// (`reference/tidb-schema-and-ddl.md` §10).
    pub fn is_eligible(&self) -> bool {
        !self.is_sequence() && (self.is_view() || self.handle_key().is_some())
    }

    /// Whether a target may spread this table's changes over several writers: it has a primary key and no
    /// other unique index (`reference/tidb-schema-and-ddl.md` §9.2).
    pub fn is_splittable(&self) -> bool {
        let in_primary = |column: &ColumnInfo| column.field_type.flags.has(ColumnFlags::PRIMARY_KEY);
        self.columns.iter().any(in_primary)
            && !self.indexes.iter().any(|index| index.is_unique && !index.is_primary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{DefaultValue, SqlType};

    /// `reference/tidb-schema-and-ddl.md` §1.12, the full form: a composite clustered key whose order differs
    /// from the columns'.
    const COMPOSITE: &str = r#"{"id":114,"name":{"O":"a1","L":"a1"},"charset":"utf8mb4",
        "collate":"utf8mb4_bin","cols":[
        {"id":1,"name":{"O":"a","L":"a"},"offset":0,"origin_default":null,"origin_default_bit":null,
         "default":null,"default_bit":null,"default_is_expr":false,"generated_expr_string":"",
         "generated_stored":false,"dependences":null,"type":{"Tp":3,"Flag":4099,"Flen":11,"Decimal":0,
         "Charset":"binary","Collate":"binary","Elems":null,"ElemsIsBinaryLit":null,"Array":false},
         "state":5,"comment":"","hidden":false,"change_state_info":null,"version":2},
        {"id":2,"name":"b","offset":1,"type":{"Tp":15,"Flag":4099,"Flen":10,"Charset":"utf8mb4",
         "Collate":"utf8mb4_bin"},"state":5,"version":2},
        {"id":3,"name":"c","offset":2,"type":{"Tp":246,"Flen":10,"Decimal":2},"state":5,"version":2}],
        "index_info":[{"id":1,"idx_name":{"O":"PRIMARY","L":"primary"},"tbl_name":{"O":"","L":""},
         "idx_cols":[{"name":{"O":"b","L":"b"},"offset":1,"length":-1},
                     {"name":{"O":"a","L":"a"},"offset":0,"length":-1}],
         "state":5,"backfill_state":0,"comment":"","index_type":1,"is_unique":true,"is_primary":true,
         "is_invisible":false,"is_global":false,"mv_index":false,"vector_index":null,"inverted_index":null,
         "full_text_index":null,"condition_expr_string":""}],
        "constraint_info":null,"fk_info":null,"state":5,"pk_is_handle":false,"is_common_handle":true,
        "common_handle_version":1,"comment":"","max_col_id":3,"max_idx_id":1,
        "update_timestamp":470828956532080640,"ShardRowIDBits":0,"partition":null,"view":null,"sequence":null,
        "Lock":null,"version":5,"tiflash_replica":null,"some_later_key":{"x":[1,2]}}"#;

    fn table(json: &str) -> TableInfo {
        TableInfo::parse(json.as_bytes()).expect("a table")
    }

    #[test]
    fn the_full_form_of_the_reference_is_read() {
        let table = table(COMPOSITE);
        assert_eq!(table.update_timestamp, Ts::new(470_828_956_532_080_640));
        let HandleKind::Common(primary) = table.handle_kind() else { unreachable!("a common handle") };
        assert!(primary.name.is("PRIMARY") && primary.columns.iter().all(|column| !column.is_prefix()));
        assert_eq!(table.handle_key(), Some(vec![1, 0]), "b first: the index's order, not the columns'");
        assert_eq!(
            table.public_columns().map(|(_, column)| column.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
        let tenth =
            table.column_by_name("C").map(|(_, column)| (column.field_type.tp, column.field_type.decimal));
        assert_eq!(tenth, Some((SqlType::Decimal, 2)));
        assert_eq!(table.physical_ids(), [TableId(114)]);
    }

    #[test]
    fn what_is_read_is_written_back_and_read_the_same() {
        let table = table(COMPOSITE);
        let json = serde_json::to_vec(&table).expect("a table is JSON");
        assert_eq!(TableInfo::parse(&json).expect("our own JSON"), table);
        let text = String::from_utf8(json).expect("JSON is text");
        assert!(text.contains(r#""dependences":null"#) && text.contains(r#""fk_info":null"#));
    }

    #[test]
    fn partitions_count_only_where_they_are_enabled() {
        let parts = |enable: bool| {
            table(&format!(
                r#"{{"id":118,"partition":{{"type":2,"expr":"`id`","enable":{enable},"num":2,
                "definitions":[{{"id":119,"name":"p0"}},{{"id":120,"name":"p1"}}]}}}}"#
            ))
        };
        assert_eq!(parts(true).physical_ids(), [TableId(119), TableId(120)]);
        assert_eq!(parts(false).physical_ids(), [TableId(118)]);
    }

    #[test]
    fn bit_defaults_come_from_their_base64_twin_and_old_numeric_defaults_are_read() {
        let table = table(
            r#"{"cols":[{"name":"b","default":"\u0005","default_bit":"BQ==",
                 "type":{"Tp":16,"Flag":32,"Flen":9}},
                {"name":"n","default":7,"origin_default":null}]}"#,
        );
        let (_, bit) = table.column_by_name("b").expect("b");
        assert_eq!(bit.default_bit.as_deref(), Some(&[5][..]));
        let (_, number) = table.column_by_name("n").expect("n");
        assert_eq!(number.default.as_ref().map(DefaultValue::as_text).as_deref(), Some("7"));
    }

    /// A table whose columns `a` and `c` are NOT NULL and `b` is not, with the given indexes and flags.
    fn keyed(rest: &str) -> Option<Vec<usize>> {
        let column = |nth: usize, name: &str, flag: u32| {
            format!(
                r#"{{"id":{},"name":"{name}","offset":{nth},"type":{{"Tp":3,"Flag":{flag}}},"state":5}}"#,
                nth + 1
            )
        };
        let columns = [column(0, "a", 3), column(1, "b", 0), column(2, "c", 1)].join(",");
        table(&format!(r#"{{"cols":[{columns}],{rest}}}"#)).handle_key()
    }

    fn index(id: i64, columns: &[usize], rest: &str) -> String {
        let parts = columns.iter().map(|offset| format!(r#"{{"offset":{offset},"length":-1}}"#));
        let parts = parts.collect::<Vec<_>>().join(",");
        format!(r#"{{"id":{id},"idx_cols":[{parts}],"state":5{rest}}}"#)
    }

    /// The order of `reference/tidb-schema-and-ddl.md` §10.
    #[test]
    fn the_handle_key_is_the_first_that_identifies_every_row() {
        let unique = r#","is_unique":true"#;
        let primary = r#","is_unique":true,"is_primary":true"#;
        let indexes = |list: &[String]| format!(r#""index_info":[{}]"#, list.join(","));
        assert_eq!(keyed(r#""pk_is_handle":true"#), Some(vec![0]));
        let secondary_primary = indexes(&[index(1, &[2], unique), index(2, &[2, 0], primary)]);
        assert_eq!(keyed(&secondary_primary), Some(vec![2, 0]), "a primary key beats shorter unique ones");
        let nullable = indexes(&[index(1, &[1], unique), index(2, &[2, 0], unique)]);
        assert_eq!(keyed(&nullable), Some(vec![2, 0]), "a unique index with a nullable column is none");
        let tie = indexes(&[index(4, &[2], unique), index(3, &[0], unique), index(2, &[0, 2], unique)]);
        assert_eq!(keyed(&tie), Some(vec![0]), "fewest columns, then the smallest id");
        let half_built = indexes(&[index(1, &[0], unique).replace(r#""state":5"#, r#""state":2"#)]);
        assert_eq!(keyed(&half_built), None, "an index in flight is not unique yet");
        assert_eq!(keyed(&indexes(&[index(1, &[0], "")])), None);
    }

    #[test]
    fn views_are_eligible_sequences_never_and_tables_by_their_keys() {
        assert!(table(r#"{"view":{"view_select":"select 1"}}"#).is_eligible());
        assert!(!table(r#"{"sequence":{"sequence_start":1}}"#).is_eligible());
        assert!(table(COMPOSITE).is_eligible());
        assert!(!table(r#"{"cols":[{"name":"a","state":5}]}"#).is_eligible());
    }
}
