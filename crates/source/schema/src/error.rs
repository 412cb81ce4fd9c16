//! What can go wrong, and what it asks of whom.

use std::{borrow::Cow, path::PathBuf};

use tidegate_codec::{ddl::ActionType, meta::MetaError};
use tidegate_core::{CommitTs, Diagnostic, ErrorClass, JobId, ResolvedTs, TableId, Ts};

/// An answer that is no table, or a failure of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The table or partition was dropped. Its later changes, if any, are to be skipped.
    #[error("table {table_id} was dropped at {at}, before {ts}")]
    Deleted {
        /// Physical id.
        table_id: TableId,
        /// Finished timestamp of the DDL that dropped it.
        at: Ts,
        /// The timestamp asked for.
        ts: Ts,
    },
    /// No table or partition of that id existed then.
    #[error("no table {table_id} at {ts}")]
    NeverExisted {
        /// Physical id.
        table_id: TableId,
        /// The timestamp asked for.
        ts: Ts,
    },
    /// The timestamp is below what the store still knows.
    #[error("schemas at {ts} are gone: the store begins at {oldest}")]
    BeforeGc {
        /// The timestamp asked for.
        ts: Ts,
        /// The oldest timestamp that can be asked for.
        oldest: Ts,
    },
    /// The store has not followed the DDL history that far yet.
    #[error("schemas at {ts} are not known yet: resolved up to {resolved}")]
    NotYetResolved {
        /// The timestamp asked for.
        ts: Ts,
        /// How far the store has come.
        resolved: ResolvedTs,
    },
    /// The deadline passed while waiting for the resolved timestamp.
    #[error("schemas at {ts} did not become known in time: resolved up to {resolved}")]
    WaitTimedOut {
        /// The timestamp waited for.
        ts: Ts,
        /// How far the store has come.
        resolved: ResolvedTs,
    },
    /// The wait was cancelled.
    #[error("the wait for schemas at {ts} was cancelled")]
    WaitCancelled {
        /// The timestamp waited for.
        ts: Ts,
    },
    /// A DDL job is about a database or table that the store does not know: something changed the metadata
    /// without a job, and to go on would be to guess.
    #[error("DDL job {job} ({action:?}, finished at {at}) is about {what}, which is not known")]
    UnknownObject {
        /// The job.
        job: JobId,
        /// Its kind.
        action: ActionType,
        /// When it finished.
        at: CommitTs,
        /// The object, such as `table 12`.
        what: String,
    },
    /// A DDL job lacks what its kind must have.
    #[error("DDL job {job} ({action:?}, finished at {at}) has no {what}")]
    IncompleteJob {
        /// The job.
        job: JobId,
        /// Its kind.
        action: ActionType,
        /// When it finished.
        at: CommitTs,
        /// What is missing.
        what: &'static str,
    },
    /// A record of the metadata or a DDL job cannot be read.
    #[error("cannot read the metadata at {at}")]
    Record {
        /// Commit timestamp of the record, or the snapshot's timestamp.
        at: Ts,
        /// Why.
        #[source]
        source: MetaError,
    },
    /// A row of the DDL job table cannot be decoded.
    #[error("cannot decode the DDL job row committed at {at}: {reason}")]
    JobRow {
        /// Its commit timestamp.
        at: CommitTs,
        /// Why; no row values.
        reason: String,
    },
    /// The metadata snapshot does not contain the DDL job table.
    #[error("the metadata snapshot lacks the table mysql.tidb_ddl_job")]
    NoJobTable,
    /// A job came with a commit timestamp at or below the resolved one (I3).
    #[error("a DDL job committed at {at} came after {resolved} was resolved")]
    LateJob {
        /// Its commit timestamp.
        at: CommitTs,
        /// What had been promised.
        resolved: ResolvedTs,
    },
    /// More finished jobs wait for the resolved timestamp than the store will hold.
    #[error("more than {limit} finished DDL jobs wait for the resolved timestamp, stuck at {resolved}")]
    TooManyPending {
        /// How many it will hold.
        limit: usize,
        /// How far the store has come.
        resolved: ResolvedTs,
    },
    /// The store has no metadata snapshot yet.
    #[error("the schema store has no metadata snapshot yet")]
    NotInitialised,
    /// The store has a metadata snapshot already.
    #[error("the schema store already has a metadata snapshot, of {base}")]
    AlreadyInitialised {
        /// The snapshot's timestamp.
        base: Ts,
    },
    /// The file cannot be opened, read or written.
    #[error("cannot {doing} the schema store")]
    Storage {
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// The directory cannot be made, or no file in it.
    #[error("cannot make the schema store in {}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An earlier write failed; nothing after it is trusted until the store is opened again.
    #[error("the schema store stopped after a failure: {first}")]
    Poisoned {
        /// The message of the first failure.
        first: String,
    },
    /// The file has the form of another version of this program.
    #[error("the schema store has format {found}, this version reads {supported}")]
    Format {
        /// The file's format.
        found: String,
        /// Ours.
        supported: &'static str,
    },
    /// The file belongs to another upstream.
    #[error("the schema store belongs to {found}, not to {wanted}")]
    OtherUpstream {
        /// The upstream it was made for.
        found: String,
        /// The upstream that was given.
        wanted: String,
    },
    /// A value in the file is damaged.
    #[error("the schema store is damaged: {what}")]
    Damaged {
        /// Which value.
        what: &'static str,
    },
}

impl Diagnostic for SchemaError {
    fn code(&self) -> &'static str {
        match self {
            Self::Deleted { .. } => "TG-SCHEMA-001",
            Self::NeverExisted { .. } => "TG-SCHEMA-002",
            Self::BeforeGc { .. } => "TG-SCHEMA-003",
            Self::NotYetResolved { .. } | Self::WaitTimedOut { .. } => "TG-SCHEMA-004",
            Self::WaitCancelled { .. } => "TG-SCHEMA-005",
            Self::UnknownObject { .. } | Self::IncompleteJob { .. } => "TG-SCHEMA-006",
            Self::Record { .. } | Self::JobRow { .. } | Self::NoJobTable => "TG-SCHEMA-007",
            Self::LateJob { .. } => "TG-SCHEMA-008",
            Self::TooManyPending { .. } => "TG-SCHEMA-009",
            Self::NotInitialised | Self::AlreadyInitialised { .. } => "TG-SCHEMA-010",
            Self::Storage { .. } | Self::Directory { .. } | Self::Poisoned { .. } => "TG-SCHEMA-011",
            Self::Format { .. } | Self::OtherUpstream { .. } => "TG-SCHEMA-012",
            Self::Damaged { .. } => "TG-SCHEMA-013",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::NotYetResolved { .. } => ErrorClass::Wait,
            Self::WaitTimedOut { .. } | Self::WaitCancelled { .. } => ErrorClass::Retry,
            Self::UnknownObject { .. }
            | Self::IncompleteJob { .. }
            | Self::Record { .. }
            | Self::JobRow { .. }
            | Self::LateJob { .. }
            | Self::Damaged { .. } => ErrorClass::Corrupt,
            Self::NotInitialised | Self::AlreadyInitialised { .. } => ErrorClass::Bug,
            _ => ErrorClass::Operator,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Deleted { .. } => "skip changes of the table from then on",
            Self::NeverExisted { .. } => "use physical ids: for a partitioned table those of its partitions",
            Self::BeforeGc { .. } => "start later, or keep the upstream's history longer",
            Self::NotYetResolved { .. } | Self::WaitTimedOut { .. } | Self::TooManyPending { .. } => {
                "check that the change feed of the DDL job table makes progress"
            }
            Self::UnknownObject { .. } | Self::IncompleteJob { .. } | Self::Damaged { .. } => {
                "remove the schema store's directory: it is rebuilt from a metadata snapshot"
            }
            Self::Storage { .. } | Self::Directory { .. } | Self::Poisoned { .. } => {
                "check the disk, then start again: the store continues from what was written"
            }
            Self::Format { .. } | Self::OtherUpstream { .. } => "use another directory",
            _ => return None,
        };
        Some(hint.into())
    }
}
