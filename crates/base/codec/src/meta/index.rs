//! Indexes and foreign keys.

use serde::{Deserialize, Serialize};
use tidegate_core::IndexId;

use super::{CiName, SchemaState, lenient, list, number_enum};

number_enum! {
    /// The kind of an index.
    pub enum IndexType: u8 {
        /// Not set.
        Invalid = 0,
        /// B-tree: the ordinary index.
        Btree = 1,
        /// Written HASH, stored as B-tree.
        Hash = 2,
        /// R-tree.
        Rtree = 3,
        /// Exists for the optimiser only.
        Hypothetical = 4,
        /// Columnar vector index.
        Vector = 5,
        /// Columnar inverted index.
        Inverted = 6,
        /// HNSW, seen by the parser only.
        Hnsw = 7,
        /// Columnar full-text index.
        FullText = 8,
    }
}

/// A column of an index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexColumn {
    /// Column name.
    pub name: CiName,
    /// Position of the column in the same record's column list.
    pub offset: usize,
    /// Prefix length in characters (bytes for binary columns); −1 = whole column.
    pub length: i64,
}

impl IndexColumn {
    /// Whether only a prefix of the column is indexed.
    pub const fn is_prefix(&self) -> bool {
        self.length >= 0
    }
}

/// An index (`reference/tidb-schema-and-ddl.md` §1.9). A `pk_is_handle` primary key has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexInfo {
    /// Id, never reused within the table.
    pub id: IndexId,
    /// Name; `PRIMARY` for the primary key.
    #[serde(rename = "idx_name")]
    pub name: CiName,
    /// Columns in index order.
    #[serde(rename = "idx_cols", with = "list")]
    pub columns: Vec<IndexColumn>,
    /// State.
    pub state: SchemaState,
    /// Progress of ADD INDEX.
    pub backfill_state: SchemaState,
    /// Comment.
    #[serde(deserialize_with = "lenient")]
    pub comment: String,
    /// Kind.
    pub index_type: IndexType,
    /// UNIQUE.
    pub is_unique: bool,
    /// The primary key.
    pub is_primary: bool,
    /// Not used by the optimiser.
    pub is_invisible: bool,
    /// One index over all partitions.
    pub is_global: bool,
    /// Multi-valued index over a JSON array.
    pub mv_index: bool,
    /// Condition of a partial index, else empty.
    #[serde(deserialize_with = "lenient")]
    pub condition_expr_string: String,
}

impl IndexInfo {
    /// Whether the index is in full use.
    pub const fn is_public(&self) -> bool {
        matches!(self.state, SchemaState::Public)
    }
}

number_enum! {
    /// What a foreign key does when its parent goes.
    pub enum FkAction: u8 {
        /// Not written.
        None = 0,
        /// RESTRICT.
        Restrict = 1,
        /// CASCADE.
        Cascade = 2,
        /// SET NULL.
        SetNull = 3,
        /// NO ACTION.
        NoAction = 4,
        /// SET DEFAULT.
        SetDefault = 5,
    }
}

/// A foreign key (`reference/tidb-schema-and-ddl.md` §1.11).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FkInfo {
    /// Id.
    pub id: i64,
    /// Name.
    #[serde(rename = "fk_name")]
    pub name: CiName,
    /// Database of the parent table.
    pub ref_schema: CiName,
    /// Parent table.
    pub ref_table: CiName,
    /// Columns of the parent.
    #[serde(with = "list")]
    pub ref_cols: Vec<CiName>,
    /// Columns of this table.
    #[serde(rename = "cols", with = "list")]
    pub columns: Vec<CiName>,
    /// ON DELETE.
    pub on_delete: FkAction,
    /// ON UPDATE.
    pub on_update: FkAction,
    /// State.
    pub state: SchemaState,
    /// 0: not checked; 1: enforced.
    pub version: i64,
}
