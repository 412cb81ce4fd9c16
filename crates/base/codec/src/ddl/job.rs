//! The job record.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::{JobId, SchemaId, StartTs, TableId};

use super::{ActionType, JobArgs, args::decode_args};
use crate::meta::{DbInfo, MetaError, SchemaState, TableInfo, lenient, list, number_enum, parse};

number_enum! {
    /// How far a job is (`reference/tidb-schema-and-ddl.md` §2.1).
    pub enum JobState: u8 {
        /// Not started.
        None = 0,
        /// Running.
        Running = 1,
        /// Being undone.
        RollingBack = 2,
        /// Undone: must not be applied.
        RollbackDone = 3,
        /// Its last step is committed: the schema change takes effect at this row version's commit timestamp.
        Done = 4,
        /// Cancelled: must not be applied.
        Cancelled = 5,
        /// Done and known to all TiDB nodes; only in the job history.
        Synced = 6,
        /// Being cancelled.
        Cancelling = 7,
        /// Waiting.
        Queueing = 8,
        /// Paused.
        Paused = 9,
        /// Being paused.
        Pausing = 10,
    }
}

/// A DDL job (`reference/tidb-schema-and-ddl.md` §2.1).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Its id, from the sequence of database and table ids.
    pub id: JobId,
    /// What it does.
    #[serde(rename = "type")]
    pub action: ActionType,
    /// The database it is about; what that means depends on the action (`…` §4).
    pub schema_id: SchemaId,
    /// The table it is about; likewise.
    pub table_id: TableId,
    /// Database name when it was submitted; may be empty, or the name of a policy.
    #[serde(deserialize_with = "lenient")]
    pub schema_name: String,
    /// Table name when it was submitted.
    #[serde(deserialize_with = "lenient")]
    pub table_name: String,
    /// How far it is.
    pub state: JobState,
    /// Its arguments: an object, in version 1 an array. [`Job::args`] reads them.
    #[serde(deserialize_with = "raw")]
    pub raw_args: Option<Box<RawValue>>,
    /// State of the object that is changed.
    pub schema_state: SchemaState,
    /// When it was submitted. (The change feed's rows carry another start timestamp, of the transaction that
    /// wrote the row.)
    pub start_ts: StartTs,
    /// When it first ran; zero if it never did.
    pub real_start_ts: StartTs,
    /// The statement as typed, also when it makes several jobs.
    #[serde(deserialize_with = "lenient")]
    pub query: String,
    /// What the job made.
    #[serde(deserialize_with = "lenient")]
    pub binlog: HistoryInfo,
    /// Format of the arguments: 1 before TiDB 8.4, else 2.
    pub version: i64,
    /// The parts of a multi-schema change.
    pub multi_schema_info: Option<MultiSchemaInfo>,
    /// Character set to read `query` with.
    #[serde(deserialize_with = "lenient")]
    pub charset: String,
    /// Collation to read `query` with.
    #[serde(deserialize_with = "lenient")]
    pub collate: String,
    /// SQL mode to read `query` with, as a bit set.
    pub sql_mode: u64,
    /// Other objects it touches. Absent: only its own.
    #[serde(with = "list", skip_serializing_if = "Vec::is_empty")]
    pub involving_schema_info: Vec<InvolvedSchema>,
    /// Role of the cluster in bidirectional replication.
    #[serde(deserialize_with = "lenient")]
    pub bdr_role: String,
    /// Non-zero if a replicator wrote it.
    pub cdc_write_source: u64,
}

/// `null` would otherwise be kept as a raw value.
fn raw<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(from)?;
    Ok(raw.filter(|raw| raw.get() != "null"))
}

/// What a job made. Keys are capitalised; `FinishedTS` is left out on purpose: it is zero in job rows, and
/// later than the real boundary in the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct HistoryInfo {
    /// Global schema version of the last step; zero if the job changed nothing. Neither contiguous nor
    /// ordered like commit timestamps.
    pub schema_version: i64,
    /// The database after a job on a database.
    #[serde(rename = "DBInfo")]
    pub db_info: Option<DbInfo>,
    /// The table after the job; for drops as it was last.
    pub table_info: Option<TableInfo>,
    /// The tables of CREATE TABLES and RENAME TABLES.
    #[serde(with = "list")]
    pub multiple_table_infos: Vec<TableInfo>,
}

/// An object that a job touches besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InvolvedSchema {
    /// Database name in lower case; `*` = all.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub database: String,
    /// Table name in lower case; `*` = all.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub table: String,
    /// 0: changed; 1: only read, such as the source of CREATE TABLE LIKE.
    #[serde(skip_serializing_if = "is_exclusive")]
    pub mode: i64,
}

fn is_exclusive(mode: &i64) -> bool {
    *mode == 0
}

impl InvolvedSchema {
    /// Whether the job only reads the object.
    pub const fn is_shared(&self) -> bool {
        self.mode == 1
    }
}

/// The parts of a multi-schema change (`reference/tidb-schema-and-ddl.md` §2.3).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MultiSchemaInfo {
    /// In the order of the statement.
    #[serde(with = "list")]
    pub sub_jobs: Vec<SubJob>,
}

/// One part of a multi-schema change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubJob {
    /// What it does.
    #[serde(rename = "type")]
    pub action: ActionType,
    /// Its arguments in the format of the parent's version.
    #[serde(deserialize_with = "raw")]
    pub raw_args: Option<Box<RawValue>>,
    /// State of the object that is changed.
    pub schema_state: SchemaState,
    /// How far it is.
    pub state: JobState,
    /// Global schema version of its last step.
    pub schema_version: i64,
}

impl Job {
    /// Reads the JSON of a `job_meta` column.
    pub fn parse(json: &[u8]) -> Result<Self, MetaError> {
        parse("DDL job", json)
    }

    /// The job as JSON, for writing job rows.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a job has string keys and finite numbers only")
    }

    /// Whether the change has taken effect, at the commit timestamp of the row version that says so.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, JobState::Done)
    }

    /// Whether the job changed nothing upstream, such as DROP … IF EXISTS of something that does not.
    pub const fn is_empty(&self) -> bool {
        self.binlog.schema_version == 0
    }

    /// The arguments in one form for both versions. They may be the submitted or the finished ones,
    /// depending on the action.
    pub fn args(&self) -> Result<JobArgs, MetaError> {
        decode_args(self.action, self.version, self.raw_args.as_deref())
    }

    /// The arguments of one part of a multi-schema change.
    pub fn sub_args(&self, part: &SubJob) -> Result<JobArgs, MetaError> {
        decode_args(part.action, self.version, part.raw_args.as_deref())
    }

    /// From when on rows can be in objects that the job makes: when it first ran, or was submitted.
    pub fn earliest_start_ts(&self) -> StartTs {
        match (self.start_ts, self.real_start_ts) {
            (submitted, StartTs::ZERO) => submitted,
            (StartTs::ZERO, ran) => ran,
            (submitted, ran) => submitted.min(ran),
        }
    }
}
