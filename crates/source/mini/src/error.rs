//! Everything that stops a runtime (`spec/mini-cdc.md` §9), each with an error of its own.

use std::borrow::Cow;
use std::time::Duration;

use thiserror::Error;
use tidegate_core::{CommitTs, Diagnostic, ErrorClass, ResolvedTs, StartTs, TableId, Ts};
use tidegate_decoder::DecodeError;
use tidegate_pd::PdError;
use tidegate_puller::PullerError;
use tidegate_schema::SchemaError;

use crate::callback::CallbackError;
use crate::config::ConfigError;
use crate::cursor::CursorError;
use crate::fence::FenceError;

/// A terminal error of the runtime.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MiniError {
    /// The configuration cannot work; nothing was opened.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// PD could not be used.
    #[error(transparent)]
    Pd(#[from] PdError),
    /// Garbage collection has passed the start.
    #[error("cannot start at {start_ts}: the history before {safe_point} is collected")]
    StartBelowGc {
        /// The start asked for.
        start_ts: StartTs,
        /// What is still there.
        safe_point: Ts,
    },
    /// A step of the start took too long.
    #[error("{step} took longer than {deadline:?}")]
    StartDeadline {
        /// The step.
        step: &'static str,
        /// The configured deadline.
        deadline: Duration,
    },
    /// A table of a fixed set has no definition at the start.
    #[error("table {table} cannot be read at {start_ts}")]
    Probe {
        /// The table.
        table: TableId,
        /// The start.
        start_ts: StartTs,
        /// What the schema store answered.
        #[source]
        source: SchemaError,
    },
    /// A table of the start did not report any progress.
    #[error("table {table} has reported nothing for {deadline:?}")]
    ProgressDeadline {
        /// The table.
        table: TableId,
        /// The configured deadline.
        deadline: Duration,
    },
    /// The schema store did not reach the timestamp that a row needs.
    #[error("the schema store is at {resolved} and did not reach {needed} within {deadline:?}")]
    SchemaDeadline {
        /// The row's commit timestamp − 1.
        needed: Ts,
        /// Where the store is.
        resolved: ResolvedTs,
        /// The configured deadline.
        deadline: Duration,
    },
    /// The feed of a table failed.
    #[error("the change feed of table {table} failed")]
    TableFeed {
        /// The table.
        table: TableId,
        /// What the puller says.
        #[source]
        source: PullerError,
    },
    /// The feed of the DDL jobs failed.
    #[error("the change feed of the ddl jobs failed")]
    SchemaFeed(#[source] PullerError),
    /// The schema store failed.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The schema store's DDL history contradicts itself.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// Progress went back.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// A row came at or below what its table had resolved.
    #[error(
        "a row of table {table} committed at {commit_ts} came after the table was resolved to {resolved}"
    )]
    LateRow {
        /// The table.
        table: TableId,
        /// The row's commit timestamp.
        commit_ts: CommitTs,
        /// What was promised.
        resolved: ResolvedTs,
    },
    /// A row cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A callback failed.
    #[error("the {callback} callback failed at {position}")]
    Callback {
        /// Which one.
        callback: &'static str,
        /// Commit timestamp of the row, finished timestamp of the DDL event, or position of the checkpoint.
        position: Ts,
        /// What it returned.
        #[source]
        source: CallbackError,
    },
    /// A callback panicked.
    #[error("a callback panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl MiniError {
    /// The inner error that knows its own code, if it has one.
    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Pd(error) => Some(error),
            Self::TableFeed { source, .. } | Self::SchemaFeed(source) => Some(source),
            Self::Schema(error) => Some(error),
            Self::Decode(error) => Some(error),
            _ => None,
        }
    }
}

impl Diagnostic for MiniError {
    fn code(&self) -> &'static str {
        match self {
            Self::Config(_) => "TG-MINI-001",
            Self::StartBelowGc { .. } => "TG-MINI-002",
            Self::StartDeadline { .. } => "TG-MINI-003",
            Self::Probe { .. } => "TG-MINI-004",
            Self::ProgressDeadline { .. } => "TG-MINI-005",
            Self::SchemaDeadline { .. } => "TG-MINI-006",
            Self::Cursor(_) | Self::Fence(_) | Self::LateRow { .. } => "TG-MINI-007",
            Self::Callback { .. } => "TG-MINI-008",
            Self::Panicked { .. } => "TG-MINI-009",
            Self::Pd(error) => error.code(),
            Self::TableFeed { source, .. } | Self::SchemaFeed(source) => source.code(),
            Self::Schema(error) => error.code(),
            Self::Decode(error) => error.code(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Config(_) | Self::StartBelowGc { .. } | Self::Probe { .. } | Self::Callback { .. } => {
                ErrorClass::Operator
            }
            Self::StartDeadline { .. } | Self::ProgressDeadline { .. } | Self::SchemaDeadline { .. } => {
                ErrorClass::Retry
            }
            Self::Cursor(_) | Self::Fence(_) | Self::LateRow { .. } => ErrorClass::Corrupt,
            Self::Panicked { .. } => ErrorClass::Bug,
            _ => self.inner().map_or(ErrorClass::Bug, Diagnostic::class),
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::StartBelowGc { .. } => "start from a newer timestamp, after a new copy of the data",
            Self::StartDeadline { .. } => "check that PD and the stores can be reached, then start again",
            Self::Probe { .. } => {
                "list the physical ids of tables that exist at the start, partitions one by one"
            }
            Self::ProgressDeadline { .. } => "look for long transactions and for regions without a leader",
            Self::SchemaDeadline { .. } => "look for regions without a leader in the metadata of the cluster",
            _ => return self.inner().and_then(Diagnostic::hint),
        };
        Some(Cow::Borrowed(hint))
    }
}
