//! Partitions.

use serde::{Deserialize, Serialize};
use tidegate_core::TableId;

use super::{CiName, PolicyRef, SchemaState, lenient, list, number_enum};

number_enum! {
    /// How rows are spread over partitions.
    pub enum PartitionType: u8 {
        /// Not partitioned.
        None = 0,
        /// RANGE and RANGE COLUMNS.
        Range = 1,
        /// HASH.
        Hash = 2,
        /// LIST and LIST COLUMNS.
        List = 3,
        /// KEY.
        Key = 4,
        /// SYSTEM_TIME.
        SystemTime = 5,
    }
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionDefinition {
    /// Physical id: the table id in its rows' keys.
    pub id: TableId,
    /// Name.
    pub name: CiName,
    /// Upper bounds of RANGE, as SQL text; `MAXVALUE` is one.
    #[serde(with = "list")]
    pub less_than: Vec<String>,
    /// Value tuples of LIST, as SQL text; `NULL` and `DEFAULT` are possible.
    #[serde(with = "list")]
    pub in_values: Vec<Vec<String>>,
    /// Placement policy.
    pub policy_ref_info: Option<PolicyRef>,
    /// Comment.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// The state of one partition while a partition DDL is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionState {
    /// Physical id.
    pub id: TableId,
    /// State.
    pub state: SchemaState,
}

/// The partitioning of a table (`reference/tidb-schema-and-ddl.md` §1.10).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionInfo {
    /// Kind.
    #[serde(rename = "type")]
    pub kind: PartitionType,
    /// Expression text; empty for the COLUMNS and KEY forms.
    #[serde(deserialize_with = "lenient")]
    pub expr: String,
    /// Columns of the COLUMNS and KEY forms.
    #[serde(with = "list")]
    pub columns: Vec<CiName>,
    /// False: TiDB reads and writes the table as unpartitioned.
    pub enable: bool,
    /// `PARTITION BY KEY()`.
    pub is_empty_columns: bool,
    /// The partitions that rows are in.
    #[serde(with = "list")]
    pub definitions: Vec<PartitionDefinition>,
    /// On their way in, while a DDL is in flight.
    #[serde(with = "list")]
    pub adding_definitions: Vec<PartitionDefinition>,
    /// On their way out, while a DDL is in flight.
    #[serde(with = "list")]
    pub dropping_definitions: Vec<PartitionDefinition>,
    /// Ids given to partitions that replace others, while a DDL is in flight.
    #[serde(with = "list", skip_serializing_if = "Vec::is_empty")]
    pub new_partition_ids: Vec<TableId>,
    /// States, while a DDL is in flight.
    #[serde(with = "list")]
    pub states: Vec<PartitionState>,
    /// Number of partitions.
    pub num: u64,
    /// State of the DDL in flight.
    pub ddl_state: SchemaState,
    /// The logical id the table will have after PARTITION BY or REMOVE PARTITIONING.
    #[serde(skip_serializing_if = "is_zero")]
    pub new_table_id: TableId,
    /// Kind after the DDL in flight.
    #[serde(skip_serializing_if = "is_none")]
    pub ddl_type: PartitionType,
    /// Expression after the DDL in flight.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub ddl_expr: String,
    /// Columns after the DDL in flight.
    #[serde(with = "list", skip_serializing_if = "Vec::is_empty")]
    pub ddl_columns: Vec<CiName>,
}

fn is_zero(id: &TableId) -> bool {
    id.get() == 0
}

fn is_none(kind: &PartitionType) -> bool {
    *kind == PartitionType::None
}

/// Set on both tables while EXCHANGE PARTITION is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExchangeInfo {
    /// Id of the other table.
    #[serde(rename = "exchange_partition_id")]
    pub other_id: TableId,
    /// Id of the partition that is exchanged.
    #[serde(rename = "exchange_partition_def_id")]
    pub partition_id: TableId,
    /// Which side this is.
    #[serde(rename = "exchange_partition_flag")]
    pub flag: bool,
}
