//! The rows of `mysql.tidb_ddl_job`, and the metadata snapshot that history starts from.

use bytes::Bytes;
use tidegate_codec::{
    ddl::Job,
    key::{DDL_JOB_TABLE, parse_record_key, strip_keyspace},
    meta::{DbInfo, PartitionInfo, SchemaState, TableInfo},
    meta_key::{MetaEntry, classify},
    row::TableLayout,
    value::Value,
};
use tidegate_core::{CommitTs, Op, RawChange, SchemaId, Ts};

use crate::{FinishedJob, SchemaError, is_system_schema};

/// The column that holds the job, located by name because its position is not fixed
/// (`reference/tidb-keys-and-rows.md` §3.4).
const JOB_COLUMN: &str = "job_meta";

/// Databases and tables of a metadata snapshot, and the layout of the job table.
#[derive(Debug, Default)]
pub(crate) struct MetaSnapshot {
    pub(crate) schemas: Vec<DbInfo>,
    pub(crate) tables: Vec<(SchemaId, TableInfo)>,
    pub(crate) job_table: Option<TableInfo>,
}

impl MetaSnapshot {
    /// Reads raw keys and values of the metadata range at `ts`; keys may have a keyspace prefix. Other keys
    /// than those of databases and tables are passed over.
    pub(crate) fn read(
        ts: Ts,
        entries: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<Self, SchemaError> {
        let unreadable = |source| SchemaError::Record { at: ts, source };
        let mut snapshot = Self::default();
        for (key, value) in entries {
            match classify(strip_keyspace(&key).1) {
                Ok(MetaEntry::Database(_)) => {
                    snapshot.schemas.push(DbInfo::parse(&value).map_err(unreadable)?);
                }
                Ok(MetaEntry::Table(schema, _)) => {
                    snapshot.tables.push((schema, TableInfo::parse(&value).map_err(unreadable)?));
                }
                _ => {}
            }
        }
        snapshot.leave_out_system();
        snapshot.tables.iter_mut().filter_map(|(_, table)| table.partition.as_mut()).for_each(undo_in_flight);
        Ok(snapshot)
    }

    fn leave_out_system(&mut self) {
        self.job_table =
            self.tables.iter().map(|(_, table)| table).find(|table| table.id == DDL_JOB_TABLE).cloned();
        self.schemas.retain(|schema| !is_system_schema(schema.name.as_str()));
        let schemas: hashbrown::HashSet<SchemaId> = self.schemas.iter().map(|schema| schema.id).collect();
        self.tables.retain(|(schema, table)| schemas.contains(schema) && table.state != SchemaState::None);
    }
}

/// A snapshot may show a partition DDL half done: the partitions that go are no longer, or those that come
/// already among the definitions. The job that finishes it will come; until then the table has the partitions
/// from before, as a reader of its changes knows them (`reference/tidb-schema-and-ddl.md` §1.10, §5.1).
fn undo_in_flight(partition: &mut PartitionInfo) {
    let going = std::mem::take(&mut partition.dropping_definitions);
    let coming = partition.adding_definitions.drain(..).map(|definition| definition.id);
    let coming: Vec<_> = coming.chain(partition.new_partition_ids.drain(..)).collect();
    let definitions = &mut partition.definitions;
    definitions.retain(|definition| !coming.contains(&definition.id));
    let missing: Vec<_> =
        going.into_iter().filter(|gone| definitions.iter().all(|known| known.id != gone.id)).collect();
    definitions.extend(missing);
}

/// The finished job in a change of the job table, with its JSON; none if the change is anything else.
pub(crate) fn finished_job(
    layout: &TableLayout,
    change: &RawChange,
) -> Result<Option<(FinishedJob, Bytes)>, SchemaError> {
    let at = change.commit_ts;
    let bad_row = |reason: String| SchemaError::JobRow { at, reason };
    if change.op != Op::Put {
        return Ok(None);
    }
    let key = parse_record_key(&change.key).map_err(|error| bad_row(error.to_string()))?;
    if key.table_id != DDL_JOB_TABLE {
        return Ok(None);
    }
    let row = layout.row(key.handle, &change.value).map_err(|error| bad_row(error.to_string()))?;
    let json = match row.by_name(JOB_COLUMN).map_err(|error| bad_row(error.to_string()))? {
        Some(Value::Bytes(json)) => Bytes::copy_from_slice(&json),
        Some(Value::Text(json)) => Bytes::copy_from_slice(json.as_bytes()),
        Some(_) => return Err(bad_row(format!("column {JOB_COLUMN} holds no text"))),
        None => return Err(bad_row(format!("there is no column {JOB_COLUMN}"))),
    };
    let job = Job::parse(&json).map_err(|source| SchemaError::Record { at: at.ts(), source })?;
    if !job.is_done() {
        return Ok(None);
    }
    Ok(Some((FinishedJob { job, start_ts: change.start_ts, commit_ts: at }, json)))
}

/// The order in which jobs are applied: by commit timestamp; of equal ones, by schema version.
pub(crate) fn order(finished: &FinishedJob) -> (CommitTs, i64, tidegate_core::JobId) {
    (finished.commit_ts, finished.job.binlog.schema_version, finished.job.id)
}
