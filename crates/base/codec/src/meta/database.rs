//! Databases.

use serde::{Deserialize, Serialize};
use tidegate_core::SchemaId;

use super::{CiName, MetaError, SchemaState, json::parse};

/// A database (`reference/tidb-schema-and-ddl.md` §1.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DbInfo {
    /// Its id.
    pub id: SchemaId,
    /// Its name.
    #[serde(rename = "db_name")]
    pub name: CiName,
    /// Default character set of new tables.
    #[serde(deserialize_with = "super::lenient")]
    pub charset: String,
    /// Default collation of new tables.
    #[serde(deserialize_with = "super::lenient")]
    pub collate: String,
    /// Public, or none inside a DROP SCHEMA job.
    pub state: SchemaState,
    /// Placement policy.
    pub policy_ref_info: Option<PolicyRef>,
}

impl DbInfo {
    /// Reads the JSON of a `DB:<id>` field or of a job's `DBInfo`.
    pub fn parse(json: &[u8]) -> Result<Self, MetaError> {
        parse("database info", json)
    }
}

/// A reference to a placement policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyRef {
    /// The policy's id.
    pub id: i64,
    /// The policy's name.
    pub name: CiName,
}
