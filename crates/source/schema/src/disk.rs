//! The store's file: the metadata of the base snapshot, every job after it, and how far they are resolved.
//! What is in memory is rebuilt from that by applying the jobs again, so both can never differ.
//!
//! One transaction writes the jobs up to a resolved timestamp together with it, synced before it returns.

use std::{io, path::Path, sync::Arc};

use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use serde::{Serialize, de::DeserializeOwned};
use tidegate_codec::{
    ddl::Job,
    meta::{DbInfo, TableInfo},
};
use tidegate_core::{CommitTs, ResolvedTs, SchemaId, StartTs, Ts};

use crate::{FinishedJob, SchemaError, core::SchemaCore, job_row::MetaSnapshot};

/// Changes with every incompatible change of the tables below; each released one keeps a fixture.
pub(crate) const FORMAT: &str = "tidegate-schema-1";
/// Name of the file inside the store's directory.
const FILE: &str = "schema.redb";
/// The file is small and read once at the start; a large page cache would be wasted.
const CACHE_BYTES: usize = 8 << 20;

const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
const SCHEMAS: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("schemas");
const TABLES: TableDefinition<'_, (i64, i64), &[u8]> = TableDefinition::new("tables");
/// (commit ts, schema version, job id) → start ts in 8 bytes big-endian, then the job's JSON.
const JOBS: TableDefinition<'_, (u64, i64, i64), &[u8]> = TableDefinition::new("jobs");

const KEY_FORMAT: &str = "format";
const KEY_UPSTREAM: &str = "upstream";
const KEY_BASE: &str = "base_ts";
const KEY_RESOLVED: &str = "resolved_ts";
const KEY_JOB_TABLE: &str = "job_table";

/// A job and the JSON it was read from.
#[derive(Clone, Debug)]
pub(crate) struct JobRecord {
    pub(crate) finished: FinishedJob,
    pub(crate) json: bytes::Bytes,
}

/// What the file holds.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) base_ts: Ts,
    pub(crate) resolved: ResolvedTs,
    pub(crate) meta: MetaSnapshot,
    pub(crate) jobs: Vec<FinishedJob>,
}

#[derive(Debug)]
pub(crate) struct Disk {
    db: Database,
}

/// Turns any of redb's errors into ours.
fn failed<E: Into<redb::Error>>(doing: &'static str) -> impl Fn(E) -> SchemaError {
    move |error| SchemaError::Storage { doing, source: Box::new(error.into()) }
}

impl Disk {
    /// Opens or makes the store in `dir`, for the upstream named `upstream`.
    pub(crate) fn open(dir: &Path, upstream: &str) -> Result<Self, SchemaError> {
        let file = dir.join(FILE);
        make_file(dir, &file, upstream)
            .map_err(|source| SchemaError::Directory { dir: dir.to_owned(), source })??;
        let db = builder().open(file).map_err(failed("open"))?;
        Self { db }.checked(upstream)
    }

    /// The same over any storage; for tests that break it.
    pub(crate) fn open_on(backend: impl redb::StorageBackend, upstream: &str) -> Result<Self, SchemaError> {
        let db = builder().create_with_backend(backend).map_err(failed("open"))?;
        Self { db }.checked(upstream)
    }

    /// Marks a new file as ours, and refuses one that is not.
    fn checked(self, upstream: &str) -> Result<Self, SchemaError> {
        let txn = self.begin()?;
        {
            let mut state = txn.open_table(STATE).map_err(failed("open"))?;
            match read_text(&state, KEY_FORMAT)? {
                None => {
                    state.insert(KEY_FORMAT, FORMAT.as_bytes()).map_err(failed("write"))?;
                    state.insert(KEY_UPSTREAM, upstream.as_bytes()).map_err(failed("write"))?;
                }
                Some(found) if found != FORMAT => {
                    return Err(SchemaError::Format { found, supported: FORMAT });
                }
                Some(_) => {
                    let found = read_text(&state, KEY_UPSTREAM)?.unwrap_or_default();
                    if found != upstream {
                        return Err(SchemaError::OtherUpstream { found, wanted: upstream.to_owned() });
                    }
                }
            }
        }
        txn.commit().map_err(failed("write"))?;
        Ok(self)
    }

    fn begin(&self) -> Result<WriteTransaction, SchemaError> {
        let mut txn = self.db.begin_write().map_err(failed("write"))?;
        txn.set_durability(Durability::Immediate).map_err(failed("write"))?;
        Ok(txn)
    }

    /// Everything in the file; `None` if it never got a metadata snapshot.
    pub(crate) fn load(&self) -> Result<Option<Stored>, SchemaError> {
        let txn = self.db.begin_read().map_err(failed("read"))?;
        let state = txn.open_table(STATE).map_err(failed("read"))?;
        let (Some(base), Some(resolved)) = (read_ts(&state, KEY_BASE)?, read_ts(&state, KEY_RESOLVED)?)
        else {
            return Ok(None);
        };
        let mut meta = MetaSnapshot::default();
        for entry in txn.open_table(SCHEMAS).map_err(failed("read"))?.iter().map_err(failed("read"))? {
            let (_, value) = entry.map_err(failed("read"))?;
            meta.schemas.push(from_json(value.value(), "database info")?);
        }
        for entry in txn.open_table(TABLES).map_err(failed("read"))?.iter().map_err(failed("read"))? {
            let (key, value) = entry.map_err(failed("read"))?;
            meta.tables.push((SchemaId(key.value().0), from_json(value.value(), "table info")?));
        }
        if let Some(json) = state.get(KEY_JOB_TABLE).map_err(failed("read"))? {
            meta.job_table = Some(from_json(json.value(), "job table info")?);
        }
        let jobs = load_jobs(&txn)?;
        Ok(Some(Stored { base_ts: base, resolved: resolved.as_resolved(), meta, jobs }))
    }

    /// Writes the base snapshot, of which `base_ts` is also resolved.
    pub(crate) fn initialise(&self, base_ts: Ts, meta: &MetaSnapshot) -> Result<(), SchemaError> {
        let txn = self.begin()?;
        write_base(&txn, base_ts, meta.schemas.iter(), meta.tables.iter().map(|(id, table)| (*id, table)))?;
        {
            let mut state = txn.open_table(STATE).map_err(failed("write"))?;
            put_ts(&mut state, KEY_RESOLVED, base_ts)?;
            if let Some(table) = &meta.job_table {
                state.insert(KEY_JOB_TABLE, to_json(table).as_slice()).map_err(failed("write"))?;
            }
        }
        // An iterator over jobs must find the table even if there never is one.
        txn.open_table(JOBS).map_err(failed("write"))?;
        txn.commit().map_err(failed("write"))
    }

    /// Writes `jobs` and the timestamp up to which there are no others.
    pub(crate) fn append(&self, jobs: &[JobRecord], resolved: ResolvedTs) -> Result<(), SchemaError> {
        let txn = self.begin()?;
        if !jobs.is_empty() {
            let mut table = txn.open_table(JOBS).map_err(failed("write"))?;
            for record in jobs {
                let (commit_ts, version, id) = crate::job_row::order(&record.finished);
                let value = [&record.finished.start_ts.get().to_be_bytes()[..], &record.json].concat();
                table
                    .insert((commit_ts.get(), version, id.get()), value.as_slice())
                    .map_err(failed("write"))?;
            }
        }
        put_ts(&mut txn.open_table(STATE).map_err(failed("write"))?, KEY_RESOLVED, resolved.ts())?;
        txn.commit().map_err(failed("write"))
    }

    /// Moves the base to `base_ts`: writes the tables as `core` has them, whose last job is at or before it,
    /// and removes the jobs up to it.
    pub(crate) fn rebase(&self, base_ts: Ts, core: &SchemaCore) -> Result<(), SchemaError> {
        let txn = self.begin()?;
        write_base(&txn, base_ts, core.schemas(), core.tables())?;
        let after = (base_ts.get().saturating_add(1), i64::MIN, i64::MIN);
        txn.open_table(JOBS)
            .map_err(failed("write"))?
            .retain_in(..after, |_, _| false)
            .map_err(failed("write"))?;
        txn.commit().map_err(failed("write"))
    }
}

/// Makes the file under another name first: if the process ends while it is made, half of it must not stand
/// in the way of the next one.
fn make_file(dir: &Path, file: &Path, upstream: &str) -> io::Result<Result<(), SchemaError>> {
    std::fs::create_dir_all(dir)?;
    if file.try_exists()? {
        return Ok(Ok(()));
    }
    let unfinished = file.with_extension("new");
    std::fs::File::create(&unfinished)?;
    let made = builder().create(&unfinished).map_err(failed("make"));
    if let Err(error) = made.and_then(|db| Disk { db }.checked(upstream)) {
        return Ok(Err(error));
    }
    std::fs::rename(&unfinished, file)?;
    std::fs::File::open(dir)?.sync_all()?;
    Ok(Ok(()))
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    // A damaged page is reported as an error instead of being trusted; the file is small.
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Replaces databases, tables and the base timestamp.
fn write_base<'a>(
    txn: &WriteTransaction,
    base_ts: Ts,
    schemas: impl Iterator<Item = &'a DbInfo>,
    tables: impl Iterator<Item = (SchemaId, &'a TableInfo)>,
) -> Result<(), SchemaError> {
    txn.delete_table(SCHEMAS).map_err(failed("write"))?;
    txn.delete_table(TABLES).map_err(failed("write"))?;
    let mut table = txn.open_table(SCHEMAS).map_err(failed("write"))?;
    for schema in schemas {
        table.insert(schema.id.get(), to_json(schema).as_slice()).map_err(failed("write"))?;
    }
    let mut table = txn.open_table(TABLES).map_err(failed("write"))?;
    for (schema, info) in tables {
        table.insert((schema.get(), info.id.get()), to_json(info).as_slice()).map_err(failed("write"))?;
    }
    put_ts(&mut txn.open_table(STATE).map_err(failed("write"))?, KEY_BASE, base_ts)
}

fn load_jobs(txn: &redb::ReadTransaction) -> Result<Vec<FinishedJob>, SchemaError> {
    let damaged = SchemaError::Damaged { what: "a DDL job" };
    let mut jobs = Vec::new();
    for entry in txn.open_table(JOBS).map_err(failed("read"))?.iter().map_err(failed("read"))? {
        let (key, value) = entry.map_err(failed("read"))?;
        let Some((start_ts, json)) = value.value().split_first_chunk() else { return Err(damaged) };
        let job = Job::parse(json).map_err(|_| SchemaError::Damaged { what: "a DDL job" })?;
        let start_ts = StartTs::new(u64::from_be_bytes(*start_ts));
        jobs.push(FinishedJob { job, start_ts, commit_ts: CommitTs::new(key.value().0) });
    }
    Ok(jobs)
}

fn put_ts(state: &mut redb::Table<'_, &str, &[u8]>, key: &str, ts: Ts) -> Result<(), SchemaError> {
    state.insert(key, ts.get().to_be_bytes().as_slice()).map_err(failed("write"))?;
    Ok(())
}

fn read_ts(
    state: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &'static str,
) -> Result<Option<Ts>, SchemaError> {
    let Some(value) = state.get(key).map_err(failed("read"))? else { return Ok(None) };
    let bytes = value.value().try_into().map_err(|_| SchemaError::Damaged { what: key })?;
    Ok(Some(Ts::new(u64::from_be_bytes(bytes))))
}

fn read_text(
    state: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<String>, SchemaError> {
    let value = state.get(key).map_err(failed("read"))?;
    Ok(value.map(|value| String::from_utf8_lossy(value.value()).into_owned()))
}

fn to_json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("metadata records have string keys and finite numbers only")
}

fn from_json<T: DeserializeOwned>(json: &[u8], what: &'static str) -> Result<T, SchemaError> {
    serde_json::from_slice(json).map_err(|_| SchemaError::Damaged { what })
}

/// The storage of a store: a file, or nothing.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Memory,
    Disk(Arc<Disk>),
}
