//! What a table record can be besides a table, and its smaller parts
//! (`reference/tidb-schema-and-ddl.md` §1.11).

use serde::{Deserialize, Serialize};
use tidegate_core::TableId;

use super::{CiName, SchemaState, lenient, list};

/// A view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ViewInfo {
    /// 0 undefined, 1 merge, 2 temptable.
    #[serde(rename = "view_algorithm")]
    pub algorithm: i64,
    /// Who defined it.
    #[serde(rename = "view_definer")]
    pub definer: Option<ViewDefiner>,
    /// 0 definer, 1 invoker.
    #[serde(rename = "view_security")]
    pub security: i64,
    /// The SELECT, with tables qualified by their database.
    #[serde(rename = "view_select", deserialize_with = "lenient")]
    pub select: String,
    /// 0 local, 1 cascaded.
    #[serde(rename = "view_checkoption")]
    pub check_option: i64,
    /// Column names.
    #[serde(rename = "view_cols", with = "list")]
    pub columns: Vec<CiName>,
}

/// The definer of a view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ViewDefiner {
    /// User name.
    #[serde(deserialize_with = "lenient")]
    pub username: String,
    /// Host name.
    #[serde(deserialize_with = "lenient")]
    pub hostname: String,
    /// Whether CURRENT_USER was written.
    pub current_user: bool,
}

/// A sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SequenceInfo {
    /// First value.
    #[serde(rename = "sequence_start")]
    pub start: i64,
    /// Whether values are cached.
    #[serde(rename = "sequence_cache")]
    pub cache: bool,
    /// Whether it starts again at the end.
    #[serde(rename = "sequence_cycle")]
    pub cycle: bool,
    /// Smallest value.
    #[serde(rename = "sequence_min_value")]
    pub min_value: i64,
    /// Largest value.
    #[serde(rename = "sequence_max_value")]
    pub max_value: i64,
    /// Step.
    #[serde(rename = "sequence_increment")]
    pub increment: i64,
    /// Values cached at once.
    #[serde(rename = "sequence_cache_value")]
    pub cache_value: i64,
    /// Comment.
    #[serde(rename = "sequence_comment", deserialize_with = "lenient")]
    pub comment: String,
}

/// Time to live of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TtlInfo {
    /// The column that holds a row's time.
    pub column: CiName,
    /// How long after it rows expire, as expression text.
    #[serde(rename = "interval_expr", deserialize_with = "lenient")]
    pub interval: String,
    /// 1 microsecond … 9 year.
    #[serde(rename = "interval_time_unit")]
    pub unit: i64,
    /// Whether the job runs.
    pub enable: bool,
    /// How often, such as `24h`.
    #[serde(deserialize_with = "lenient")]
    pub job_interval: String,
}

/// Soft deletion of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SoftdeleteInfo {
    /// How long deleted rows stay.
    #[serde(deserialize_with = "lenient")]
    pub retention: String,
    /// Whether the job runs.
    pub job_enable: bool,
    /// How often.
    #[serde(deserialize_with = "lenient")]
    pub job_interval: String,
}

/// A CHECK constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConstraintInfo {
    /// Id.
    pub id: i64,
    /// Name.
    #[serde(rename = "constraint_name")]
    pub name: CiName,
    /// Columns it reads.
    #[serde(rename = "constraint_cols", with = "list")]
    pub columns: Vec<CiName>,
    /// Whether it is enforced.
    pub enforced: bool,
    /// Whether it was written with a column.
    pub in_column: bool,
    /// The condition.
    #[serde(rename = "expr_string", deserialize_with = "lenient")]
    pub expr: String,
    /// State.
    pub state: SchemaState,
}

/// TiFlash replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct TiFlashReplica {
    /// How many.
    pub count: u64,
    /// Labels of the places they are spread over.
    #[serde(with = "list")]
    pub location_labels: Vec<String>,
    /// Whether they can be read.
    pub available: bool,
    /// Of a partitioned table: the partitions whose replicas can be read.
    #[serde(rename = "AvailablePartitionIDs", with = "list")]
    pub available_partition_ids: Vec<TableId>,
}
