//! What a runtime is started with, and what makes it refuse to start.

use std::path::PathBuf;
use std::time::Duration;

use hashbrown::HashSet;
use thiserror::Error;
use tidegate_core::{KeyspaceId, StartTs, TableId};

use crate::filter::TableFilter;

/// Most DDL events fetched at once: a fetch holds that many events with their table definitions (about
/// 10 KiB each) in memory.
pub const DDL_POLL_LIMIT_MAX: usize = 4096;
/// Shortest and longest pause between two checkpoint callbacks (`spec/mini-cdc.md` §5.4).
pub const CHECKPOINT_INTERVAL: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(100));
/// The barrier is refreshed three times per time to live, and PD counts whole seconds.
const GC_BARRIER_TTL_MIN: Duration = Duration::from_secs(3);
/// Keyspace ids have 24 bits (`reference/tidb-keys-and-rows.md` §2.6).
const KEYSPACE_ID_MAX: u32 = 0x00FF_FFFF;

/// The tables a runtime delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableSet {
    /// Exactly these physical tables (partition ids for partitioned tables), for the whole run: the
    /// specification's set. Only DDL events of the table trigger are delivered.
    Fixed(Vec<TableId>),
    /// Every table whose name matches, now and later: tables that DDL adds join, those that DDL drops leave.
    /// Every DDL event of a matching table is delivered (`docs/decisions/0003-follow-mode.md`).
    Follow(TableFilter),
}

/// What to do with the checksum that TiDB may store in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPolicy {
    /// Do not look at it.
    #[default]
    Ignore,
    /// A row whose checksum does not match its bytes stops the runtime. Rows without one pass.
    Verify,
}

/// Everything that a start of the runtime needs besides the upstream. Build with [`StartConfig::new`] and
/// change fields where the defaults do not fit.
#[derive(Clone, Debug)]
pub struct StartConfig {
    /// The keyspace on an API V2 cluster; `None` on a classic one.
    pub keyspace: Option<KeyspaceId>,
    /// Changes committed after it are delivered. For resuming, the position of the last durable checkpoint.
    pub start_ts: StartTs,
    /// The tables.
    pub tables: TableSet,
    /// Most DDL events fetched from the schema store at once; more than zero.
    pub ddl_poll_limit: usize,
    /// Shortest pause between two checkpoint callbacks, within [`CHECKPOINT_INTERVAL`].
    pub checkpoint_interval: Duration,
    /// How long the schema may take to reach the timestamp that a row or a table needs.
    pub schema_deadline: Duration,
    /// How long the tables of the start may take to report their first progress.
    pub progress_deadline: Duration,
    /// How long the upstream may take to answer each step of the start.
    pub start_deadline: Duration,
    /// Deliver the rows that the tables have at the start, as inserts committed at `start_ts`, before their
    /// changes. For a first start, not for resuming.
    pub read_existing: bool,
    /// Leave out changes written by another change-data-capture process (`txn_source`).
    pub filter_loop: bool,
    /// What to do with row checksums.
    pub checksum: ChecksumPolicy,
    /// Where the schema store keeps its files; `None` keeps it in memory and reads a snapshot at each start.
    pub schema_dir: Option<PathBuf>,
    /// Name of the GC barrier in PD. Two runtimes of one cluster need two names.
    pub gc_barrier: String,
    /// How long PD keeps the barrier without hearing from the runtime; at least three seconds. The default
    /// of half an hour outlasts an outage of PD of ten minutes several times, and a crashed runtime does not
    /// hold garbage for a day.
    pub gc_barrier_ttl: Duration,
}

impl StartConfig {
    /// The defaults around the two things that have none.
    pub fn new(start_ts: StartTs, tables: TableSet) -> Self {
        Self {
            keyspace: None,
            start_ts,
            tables,
            ddl_poll_limit: 64,
            checkpoint_interval: Duration::from_millis(50),
            schema_deadline: Duration::from_secs(30),
            progress_deadline: Duration::from_secs(60),
            start_deadline: Duration::from_secs(30),
            read_existing: false,
            filter_loop: false,
            checksum: ChecksumPolicy::default(),
            schema_dir: None,
            gc_barrier: "tidegate".to_owned(),
            gc_barrier_ttl: Duration::from_secs(1800),
        }
    }

    /// Checks every field; the runtime does so before it opens anything (`spec/mini-cdc.md` §8.1).
    ///
    /// # Errors
    /// The first field that cannot work, by name.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_keyspace()?;
        if self.start_ts == StartTs::ZERO || self.start_ts == StartTs::MAX {
            return Err(ConfigError::StartTs { start_ts: self.start_ts });
        }
        if let TableSet::Fixed(ids) = &self.tables {
            validate_table_ids(ids)?;
        }
        if self.ddl_poll_limit == 0 || self.ddl_poll_limit > DDL_POLL_LIMIT_MAX {
            return Err(ConfigError::DdlPollLimit { limit: self.ddl_poll_limit });
        }
        let (shortest, longest) = CHECKPOINT_INTERVAL;
        if self.checkpoint_interval < shortest || self.checkpoint_interval > longest {
            return Err(ConfigError::CheckpointInterval { interval: self.checkpoint_interval });
        }
        self.validate_deadlines()?;
        if self.gc_barrier.is_empty() {
            return Err(ConfigError::GcBarrier);
        }
        if self.gc_barrier_ttl < GC_BARRIER_TTL_MIN {
            return Err(ConfigError::GcBarrierTtl { ttl: self.gc_barrier_ttl });
        }
        Ok(())
    }

    fn validate_keyspace(&self) -> Result<(), ConfigError> {
        match self.keyspace {
            Some(id) if id.get() == 0 || id.get() > KEYSPACE_ID_MAX => Err(ConfigError::KeyspaceId { id }),
            _ => Ok(()),
        }
    }

    fn validate_deadlines(&self) -> Result<(), ConfigError> {
        let deadlines = [
            ("schema_deadline", self.schema_deadline),
            ("progress_deadline", self.progress_deadline),
            ("start_deadline", self.start_deadline),
        ];
        match deadlines.into_iter().find(|(_, deadline)| deadline.is_zero()) {
            Some((field, _)) => Err(ConfigError::Deadline { field }),
            None => Ok(()),
        }
    }
}

fn validate_table_ids(ids: &[TableId]) -> Result<(), ConfigError> {
    if ids.is_empty() {
        return Err(ConfigError::NoTables);
    }
    let mut seen = HashSet::with_capacity(ids.len());
    for &id in ids {
        if id.get() <= 0 {
            return Err(ConfigError::TableId { id });
        }
        if !seen.insert(id) {
            return Err(ConfigError::TableTwice { id });
        }
    }
    Ok(())
}

/// A configuration that cannot work. Every message names its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Zero belongs to the null keyspace, and ids have 24 bits.
    #[error("keyspace must be between 1 and 16777215, not {id}")]
    KeyspaceId {
        /// The id given.
        id: KeyspaceId,
    },
    /// Nothing can be read from before the first timestamp.
    #[error("start_ts must be a timestamp of the cluster, not {start_ts}")]
    StartTs {
        /// The timestamp given.
        start_ts: StartTs,
    },
    /// A fixed set without tables would never make progress.
    #[error("tables must name at least one table id")]
    NoTables,
    /// Table ids are positive.
    #[error("tables contains {id}, but table ids are above zero")]
    TableId {
        /// The id given.
        id: TableId,
    },
    /// One path per table: a table cannot be delivered twice.
    #[error("tables contains {id} twice")]
    TableTwice {
        /// The repeated id.
        id: TableId,
    },
    /// An empty pattern list.
    #[error("tables must have at least one pattern")]
    NoPatterns,
    /// A pattern that is not `db.table`.
    #[error("tables contains the pattern `{pattern}`, which is not of the form db.table")]
    BadPattern {
        /// The pattern as given.
        pattern: String,
    },
    /// Zero would fetch nothing for ever; more than the maximum would take too much memory.
    #[error("ddl_poll_limit must be between 1 and {DDL_POLL_LIMIT_MAX}, not {limit}")]
    DdlPollLimit {
        /// The limit given.
        limit: usize,
    },
    /// Outside what the specification allows.
    #[error("checkpoint_interval must be between 25 ms and 100 ms, not {interval:?}")]
    CheckpointInterval {
        /// The interval given.
        interval: Duration,
    },
    /// A deadline of zero has always passed.
    #[error("{field} must be longer than zero")]
    Deadline {
        /// The field.
        field: &'static str,
    },
    /// PD needs a name to hold a barrier under.
    #[error("gc_barrier must not be empty")]
    GcBarrier,
    /// Shorter than PD can be asked to refresh it.
    #[error("gc_barrier_ttl must be at least 3 s, not {ttl:?}")]
    GcBarrierTtl {
        /// The time given.
        ttl: Duration,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> StartConfig {
        StartConfig::new(StartTs::new(1), TableSet::Fixed(vec![TableId(7), TableId(8)]))
    }

    fn check(change: impl FnOnce(&mut StartConfig), expect: ConfigError) {
        let mut config = valid();
        change(&mut config);
        assert_eq!(config.validate(), Err(expect));
    }

    #[test]
    fn the_defaults_with_a_start_and_tables_are_valid() {
        assert_eq!(valid().validate(), Ok(()));
        let follow = StartConfig::new(StartTs::new(1), TableSet::Follow(TableFilter::all()));
        assert_eq!(follow.validate(), Ok(()));
    }

    #[test]
    fn table_ids_are_not_empty_unique_and_positive() {
        check(|c| c.tables = TableSet::Fixed(vec![]), ConfigError::NoTables);
        let zero = TableId(0);
        check(|c| c.tables = TableSet::Fixed(vec![zero]), ConfigError::TableId { id: zero });
        let negative = TableId(-3);
        check(|c| c.tables = TableSet::Fixed(vec![negative]), ConfigError::TableId { id: negative });
        let twice = TableId(7);
        check(|c| c.tables = TableSet::Fixed(vec![twice, twice]), ConfigError::TableTwice { id: twice });
    }

    #[test]
    fn the_ddl_poll_limit_is_above_zero_and_bounded() {
        check(|c| c.ddl_poll_limit = 0, ConfigError::DdlPollLimit { limit: 0 });
        check(|c| c.ddl_poll_limit = 4097, ConfigError::DdlPollLimit { limit: 4097 });
    }

    #[test]
    fn a_keyspace_id_is_never_zero_and_fits_24_bits() {
        for id in [KeyspaceId(0), KeyspaceId(1 << 24)] {
            check(|c| c.keyspace = Some(id), ConfigError::KeyspaceId { id });
        }
        let mut config = valid();
        config.keyspace = Some(KeyspaceId(0x00FF_FFFF));
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn the_checkpoint_interval_is_between_25_and_100_ms() {
        for ms in [24, 101] {
            let interval = Duration::from_millis(ms);
            check(|c| c.checkpoint_interval = interval, ConfigError::CheckpointInterval { interval });
        }
    }

    #[test]
    fn every_other_field_is_refused_by_its_name() {
        let start_ts = StartTs::ZERO;
        check(|c| c.start_ts = start_ts, ConfigError::StartTs { start_ts });
        check(|c| c.gc_barrier.clear(), ConfigError::GcBarrier);
        let ttl = Duration::from_secs(2);
        check(|c| c.gc_barrier_ttl = ttl, ConfigError::GcBarrierTtl { ttl });
        check(|c| c.schema_deadline = Duration::ZERO, ConfigError::Deadline { field: "schema_deadline" });
        check(|c| c.progress_deadline = Duration::ZERO, ConfigError::Deadline { field: "progress_deadline" });
        check(|c| c.start_deadline = Duration::ZERO, ConfigError::Deadline { field: "start_deadline" });
    }
}
