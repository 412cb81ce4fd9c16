//! The store: one writer that feeds it, any number of readers.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tidegate_codec::{
    event::DdlEvent,
    key::{DDL_JOB_TABLE, table_span, with_keyspace},
    meta::TableInfo,
    row::TableLayout,
};
use tidegate_core::{ClusterId, CommitTs, JobId, KeyspaceId, RawChange, ResolvedTs, Span, TableId, Ts};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    DdlBatch, PhysicalTable, SchemaError, TableAt,
    core::SchemaCore,
    disk::{Disk, JobRecord, Storage, Stored},
    job_row::{self, MetaSnapshot},
};

/// Finished jobs that may wait for the resolved timestamp. TiDB finishes a few jobs per second at most, so
/// this is hours of a stuck resolved timestamp, and at a typical 4 KiB per job 64 MiB.
const PENDING_JOBS_MAX: usize = 16_384;

/// Where a store lives and what it follows.
#[derive(Clone, Debug, Default)]
pub struct SchemaOptions {
    /// Directory of the store's file; made if it does not exist. `None`: in memory, gone with the process.
    pub dir: Option<PathBuf>,
    /// The upstream's cluster; a file made for another one is refused.
    pub cluster_id: ClusterId,
    /// The keyspace, on an API V2 cluster.
    pub keyspace: Option<KeyspaceId>,
}

impl SchemaOptions {
    fn upstream(&self) -> String {
        match self.keyspace {
            Some(keyspace) => format!("cluster {} keyspace {keyspace}", self.cluster_id),
            None => format!("cluster {}", self.cluster_id),
        }
    }
}

/// A multi-version schema store; cheap to clone, all clones are the same store.
///
/// Feed it from one task: [`initialise`](Self::initialise) once with a metadata snapshot (unless
/// [`is_initialised`](Self::is_initialised)), then [`apply`](Self::apply) every change of the job table and
/// [`advance`](Self::advance) with its resolved timestamp. Read it from anywhere.
#[derive(Clone, Debug)]
pub struct SchemaStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    keyspace: Option<KeyspaceId>,
    /// `None` until there is a metadata snapshot. Holds what is not visible yet, too: readers bound their
    /// questions by `resolved`.
    core: RwLock<Option<SchemaCore>>,
    writer: Mutex<Writer>,
    resolved: watch::Sender<ResolvedTs>,
    /// Cancelled when the store stops after a failure, so that nobody waits for it.
    failed: CancellationToken,
    /// Positions of registered readers, which hold back garbage collection.
    readers: Mutex<HashMap<u64, Ts>>,
    next_reader: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    storage: Storage,
    job_layout: Option<TableLayout>,
    pending: BTreeMap<(CommitTs, i64, JobId), JobRecord>,
    /// The first failure; nothing is written after it.
    failure: Option<String>,
}

impl SchemaStore {
    /// Opens a store: an empty one, or what an earlier process wrote into the directory, with the same
    /// answers and without a new snapshot. Blocks for reading the file.
    ///
    /// # Errors
    /// [`SchemaError::Storage`] and the like if the file cannot be used; it is not changed then.
    pub fn open(options: SchemaOptions) -> Result<Self, SchemaError> {
        let storage = match &options.dir {
            None => Storage::Memory,
            Some(dir) => Storage::Disk(Arc::new(Disk::open(dir, &options.upstream())?)),
        };
        Self::with_storage(&options, storage)
    }

    /// The same over any storage instead of a file; for tests that break it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(options: SchemaOptions, backend: impl redb::StorageBackend) -> Result<Self, SchemaError> {
        let disk = Disk::open_on(backend, &options.upstream())?;
        Self::with_storage(&options, Storage::Disk(Arc::new(disk)))
    }

    fn with_storage(options: &SchemaOptions, storage: Storage) -> Result<Self, SchemaError> {
        let stored = match &storage {
            Storage::Memory => None,
            Storage::Disk(disk) => disk.load()?,
        };
        let resolved = stored.as_ref().map(|stored| stored.resolved).unwrap_or_default();
        let job_table = stored.as_ref().and_then(|stored| stored.meta.job_table.clone());
        let core = stored.map(|stored| replay(stored, resolved.ts())).transpose()?;
        let writer = Writer {
            storage,
            job_layout: job_table.map(job_layout),
            pending: BTreeMap::new(),
            failure: None,
        };
        let shared = Shared {
            keyspace: options.keyspace,
            core: RwLock::new(core),
            writer: Mutex::new(writer),
            resolved: watch::Sender::new(resolved),
            failed: CancellationToken::new(),
            readers: Mutex::default(),
            next_reader: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether the store has a metadata snapshot. If so, feed it changes from [`Self::resolved`] on.
    pub fn is_initialised(&self) -> bool {
        self.shared.core.read().is_some()
    }

    /// Raw range `[start, end)` of the keys that [`Self::initialise`] wants: the hashes `DBs` and `DB:<id>`,
    /// not the history of DDL jobs beside them, which grows without end
    /// (`reference/tidb-keys-and-rows.md` §3.2).
    pub fn snapshot_range(&self) -> (Vec<u8>, Vec<u8>) {
        (with_keyspace(self.shared.keyspace, b"mDB"), with_keyspace(self.shared.keyspace, b"mDC"))
    }

    /// The span whose changes [`Self::apply`] wants.
    pub fn job_span(&self) -> Span {
        table_span(self.shared.keyspace, DDL_JOB_TABLE)
    }

    /// Starts history at `ts` with the raw keys and values of the metadata range as of then. Other keys may
    /// be among them. Durable when it returns.
    ///
    /// # Errors
    /// [`SchemaError::AlreadyInitialised`]; [`SchemaError::NoJobTable`] or [`SchemaError::Record`] if the
    /// metadata cannot be used; [`SchemaError::Storage`].
    pub fn initialise(
        &self,
        ts: Ts,
        entries: impl IntoIterator<Item = (Bytes, Bytes)>,
    ) -> Result<(), SchemaError> {
        let mut writer = self.shared.writer.lock();
        writer.check()?;
        if let Some(core) = self.shared.core.read().as_ref() {
            return Err(SchemaError::AlreadyInitialised { base: core.base_ts() });
        }
        let meta = MetaSnapshot::read(ts, entries)?;
        writer.job_layout = Some(job_layout(meta.job_table.clone().ok_or(SchemaError::NoJobTable)?));
        if let Storage::Disk(disk) = &writer.storage {
            disk.initialise(ts, &meta).inspect_err(|error| self.shared.fail(&mut writer, error))?;
        }
        let core = SchemaCore::new(ts, meta.schemas, meta.tables);
        *self.shared.core.write() = Some(core);
        self.shared.resolved.send_replace(ts.as_resolved());
        Ok(())
    }

    /// Takes in changes of the job table. They may come in any order between two resolved timestamps, and
    /// more than once. What is no finished job is passed over.
    ///
    /// # Errors
    /// [`SchemaError::LateJob`] for an unknown job at or below the resolved timestamp;
    /// [`SchemaError::JobRow`] and [`SchemaError::Record`] if one cannot be read;
    /// [`SchemaError::TooManyPending`]; [`SchemaError::Poisoned`]. Changes before the bad one are taken in.
    pub fn apply(&self, changes: &[RawChange]) -> Result<(), SchemaError> {
        let mut writer = self.shared.writer.lock();
        writer.check()?;
        changes.iter().try_for_each(|change| self.take_in(&mut writer, change))
    }

    fn take_in(&self, writer: &mut Writer, change: &RawChange) -> Result<(), SchemaError> {
        let Some(layout) = &writer.job_layout else { return Err(SchemaError::NotInitialised) };
        let Some((finished, json)) = job_row::finished_job(layout, change)? else { return Ok(()) };
        let resolved = self.resolved();
        if finished.commit_ts.ts() <= resolved.ts() {
            let known = self.with_core(|core| Ok(core.knows(&finished)))?;
            let late = SchemaError::LateJob { at: finished.commit_ts, resolved };
            return if known { Ok(()) } else { Err(late) };
        }
        if writer.pending.len() >= PENDING_JOBS_MAX {
            return Err(SchemaError::TooManyPending { limit: PENDING_JOBS_MAX, resolved });
        }
        writer.pending.insert(job_row::order(&finished), JobRecord { finished, json });
        Ok(())
    }

    /// Everything up to `resolved` has been applied: makes it durable and then visible, and gives the events
    /// it brought. Timestamps at or below the current one do nothing. With a directory it blocks for one
    /// synced write.
    ///
    /// # Errors
    /// If a job cannot be applied, everything before it is made visible and the store stops with
    /// [`SchemaError::UnknownObject`] or the like; if the write fails, with [`SchemaError::Storage`], and
    /// nothing of this call is visible. Every later call gives [`SchemaError::Poisoned`].
    pub fn advance(&self, resolved: ResolvedTs) -> Result<Vec<Arc<DdlEvent>>, SchemaError> {
        let mut writer = self.shared.writer.lock();
        writer.check()?;
        if resolved <= self.resolved() {
            return Ok(Vec::new());
        }
        let jobs = writer.take_up_to(resolved);
        let Progress { events, jobs, resolved, error } = self.apply_all(jobs, resolved)?;
        if let Storage::Disk(disk) = &writer.storage {
            disk.append(&jobs, resolved).inspect_err(|error| self.shared.fail(&mut writer, error))?;
        }
        self.shared.resolved.send_replace(resolved);
        match error {
            None => Ok(events),
            Some(error) => {
                self.shared.fail(&mut writer, &error);
                Err(error)
            }
        }
    }

    /// Applies jobs in memory, where nothing above the old resolved timestamp is visible. Stops before the
    /// timestamp of the first job that does not fit.
    fn apply_all(&self, jobs: Vec<JobRecord>, resolved: ResolvedTs) -> Result<Progress, SchemaError> {
        let mut guard = self.shared.core.write();
        let core = guard.as_mut().ok_or(SchemaError::NotInitialised)?;
        let mut progress = Progress { events: Vec::new(), jobs, resolved, error: None };
        for record in &progress.jobs {
            match core.apply(&record.finished) {
                Ok(event) => progress.events.extend(event),
                Err(error) => {
                    progress.resolved = record.finished.commit_ts.prev().ts().as_resolved();
                    progress.error = Some(error);
                    break;
                }
            }
        }
        if progress.error.is_some() {
            let resolved = progress.resolved;
            progress.jobs.retain(|record| record.finished.commit_ts.ts() <= resolved.ts());
            // The failing job's own timestamp may be all that was new.
            progress.resolved = resolved.max(self.resolved());
        }
        Ok(progress)
    }

    /// How far the DDL history is followed; below it nothing changes any more.
    pub fn resolved(&self) -> ResolvedTs {
        *self.shared.resolved.borrow()
    }

    /// Sees every change of [`Self::resolved`].
    pub fn subscribe_resolved(&self) -> watch::Receiver<ResolvedTs> {
        self.shared.resolved.subscribe()
    }

    /// Waits until schemas at `ts` are known.
    ///
    /// # Errors
    /// [`SchemaError::WaitTimedOut`] after `timeout`, [`SchemaError::WaitCancelled`] when `cancel` is,
    /// [`SchemaError::Poisoned`] when the store stops.
    pub async fn wait_resolved(
        &self,
        ts: Ts,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<(), SchemaError> {
        let mut resolved = self.subscribe_resolved();
        let reached = tokio::time::timeout(timeout, resolved.wait_for(|resolved| resolved.ts() >= ts));
        tokio::select! {
            biased;
            reached = reached => match reached {
                Ok(_) => Ok(()),
                Err(_) => Err(SchemaError::WaitTimedOut { ts, resolved: self.resolved() }),
            },
            () = cancel.cancelled() => Err(SchemaError::WaitCancelled { ts }),
            () = self.shared.failed.cancelled() => self.shared.writer.lock().check(),
        }
    }

    /// The physical table `id` as rows committed at `ts` + 1 see it, and how long that answer holds: ask with
    /// a row's commit timestamp − 1 (I6).
    ///
    /// # Errors
    /// [`SchemaError::Deleted`], [`SchemaError::NeverExisted`], [`SchemaError::BeforeGc`],
    /// [`SchemaError::NotYetResolved`].
    pub fn table_at(&self, id: TableId, ts: Ts) -> Result<TableAt, SchemaError> {
        self.with_core(|core| core.table_at(id, ts, self.resolved()))
    }

    /// All physical tables at `ts`, by id; views and sequences are none.
    ///
    /// # Errors
    /// [`SchemaError::BeforeGc`], [`SchemaError::NotYetResolved`].
    pub fn physical_tables_at(&self, ts: Ts) -> Result<Vec<PhysicalTable>, SchemaError> {
        self.with_core(|core| core.physical_tables_at(ts, self.resolved()))
    }

    /// The DDL events of physical table `id` in `(start, end]`, the ones that made or dropped it among them.
    ///
    /// # Errors
    /// [`SchemaError::BeforeGc`], [`SchemaError::NotYetResolved`].
    pub fn table_ddls(&self, id: TableId, start: Ts, end: Ts) -> Result<Vec<Arc<DdlEvent>>, SchemaError> {
        self.with_core(|core| core.table_ddls(id, start, end, self.resolved()))
    }

    /// How far the DDL history is followed, and the newest event of physical table `id` up to there.
    ///
    /// # Errors
    /// [`SchemaError::NotInitialised`].
    pub fn table_ddl_state(&self, id: TableId) -> Result<(ResolvedTs, Option<CommitTs>), SchemaError> {
        let resolved = self.resolved();
        self.with_core(|core| Ok((resolved, core.last_table_ddl(id, resolved))))
    }

    /// Up to `limit` events of the trigger stream after `start`: those that concern more than one table's own
    /// metadata. The events of one timestamp stay together, so a batch can exceed the limit by those. A full
    /// batch goes on after its last event, a partial one at the resolved timestamp.
    ///
    /// # Errors
    /// [`SchemaError::BeforeGc`].
    pub fn trigger_ddls(&self, start: Ts, limit: NonZeroUsize) -> Result<DdlBatch, SchemaError> {
        self.with_core(|core| core.ddls_after(start, limit, self.resolved(), DdlEvent::is_trigger))
    }

    /// The same with all events, those of single tables too.
    ///
    /// # Errors
    /// [`SchemaError::BeforeGc`].
    pub fn ddls(&self, start: Ts, limit: NonZeroUsize) -> Result<DdlBatch, SchemaError> {
        self.with_core(|core| core.ddls_after(start, limit, self.resolved(), |_| true))
    }

    /// Registers a reader of physical table `id` that is at `start`, after probing that the table exists
    /// there. Until it is dropped, garbage collection keeps what it can ask for.
    ///
    /// # Errors
    /// As [`Self::table_at`].
    pub fn register_table(&self, id: TableId, start: Ts) -> Result<crate::TableReader, SchemaError> {
        // The position is held before the probe, so that collection cannot slip between them.
        let reader = crate::TableReader::new(self.clone(), id, start);
        self.table_at(id, start)?;
        Ok(reader)
    }

    /// Forgets what is below `oldest` and below every registered reader; gives the oldest timestamp that can
    /// be asked for now. With a directory it blocks for rewriting the base.
    ///
    /// # Errors
    /// [`SchemaError::Storage`]; the store stops then.
    pub fn collect_garbage(&self, oldest: Ts) -> Result<Ts, SchemaError> {
        let mut writer = self.shared.writer.lock();
        writer.check()?;
        let readers = self.shared.readers.lock();
        let oldest = readers.values().copied().fold(oldest.min(self.resolved().ts()), Ts::min);
        let base = self.with_core(|core| Ok(core.base_ts()))?;
        if oldest <= base {
            return Ok(base);
        }
        if let Storage::Disk(disk) = &writer.storage {
            rebase(disk, oldest).inspect_err(|error| self.shared.fail(&mut writer, error))?;
        }
        if let Some(core) = self.shared.core.write().as_mut() {
            core.forget_before(oldest);
        }
        Ok(oldest)
    }

    pub(crate) fn hold(&self, position: Ts) -> u64 {
        let slot = self.shared.next_reader.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.move_reader(slot, position);
        slot
    }

    pub(crate) fn move_reader(&self, slot: u64, position: Ts) {
        self.shared.readers.lock().insert(slot, position);
    }

    pub(crate) fn release(&self, slot: u64) {
        self.shared.readers.lock().remove(&slot);
    }

    fn with_core<T>(
        &self,
        ask: impl FnOnce(&SchemaCore) -> Result<T, SchemaError>,
    ) -> Result<T, SchemaError> {
        ask(self.shared.core.read().as_ref().ok_or(SchemaError::NotInitialised)?)
    }
}

/// What one call of [`SchemaStore::advance`] achieved.
struct Progress {
    events: Vec<Arc<DdlEvent>>,
    jobs: Vec<JobRecord>,
    resolved: ResolvedTs,
    error: Option<SchemaError>,
}

impl Shared {
    fn fail(&self, writer: &mut Writer, error: &SchemaError) {
        tracing::error!(error = error as &dyn std::error::Error, "schema store stopped");
        writer.failure.get_or_insert_with(|| error.to_string());
        self.failed.cancel();
    }
}

impl Writer {
    fn check(&self) -> Result<(), SchemaError> {
        match &self.failure {
            None => Ok(()),
            Some(first) => Err(SchemaError::Poisoned { first: first.clone() }),
        }
    }

    fn take_up_to(&mut self, resolved: ResolvedTs) -> Vec<JobRecord> {
        let after = (CommitTs::new(resolved.get().saturating_add(1)), i64::MIN, JobId(i64::MIN));
        let later = self.pending.split_off(&after);
        std::mem::replace(&mut self.pending, later).into_values().collect()
    }
}

fn job_layout(table: TableInfo) -> TableLayout {
    TableLayout::new(Arc::new(table))
}

/// The state after the jobs up to `end`.
fn replay(stored: Stored, end: Ts) -> Result<SchemaCore, SchemaError> {
    let mut core = SchemaCore::new(stored.base_ts, stored.meta.schemas, stored.meta.tables);
    for job in stored.jobs.iter().take_while(|job| job.commit_ts.ts() <= end) {
        core.apply(job)?;
    }
    Ok(core)
}

fn rebase(disk: &Disk, oldest: Ts) -> Result<(), SchemaError> {
    match disk.load()? {
        None => Ok(()),
        Some(stored) => disk.rebase(oldest, &replay(stored, oldest)?),
    }
}
