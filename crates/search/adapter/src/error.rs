//! Everything that stops an adapter.

use std::borrow::Cow;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_codec::ddl::ActionType;
use tidegate_codec::row::DecodeError;
use tidegate_contract::{Breach, error as contract_error};
use tidegate_core::{CommitTs, Diagnostic, ErrorClass, ResolvedTs, TableId, Ts};
use tidegate_mini::bridge::BridgeError;
use tidegate_mini::{MiniError, PullerError};

use crate::options::OptionsError;
use crate::resolver::Inadmissible;
use crate::value::ValueError;

/// An error of the adapter. What is retried never becomes one; see [`ErrorClass`] for who must act.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdapterError {
    /// The options cannot work; nothing was opened.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The gateway could not be reached.
    #[error("cannot reach the search gateway at {address}")]
    Connect {
        /// Its address.
        address: String,
        /// Why.
        #[source]
        source: tonic::Status,
    },
    /// The gateway refused something for good.
    #[error("the search gateway refused {what}: {breach}")]
    Refused {
        /// What was refused.
        what: String,
        /// Its answer.
        breach: Breach,
    },
    /// The source failed.
    #[error(transparent)]
    Source(#[from] MiniError),
    /// The order of the source's rows cannot be trusted.
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    /// A row cannot be decoded.
    #[error(transparent)]
    Decode(DecodeError),
    /// The default of a new column has no exact form in the contract.
    #[error("the default of a new column of {table} {reason}")]
    Default {
        /// `db.table`.
        table: String,
        /// Why.
        reason: ValueError,
    },
    /// A value has no exact form in the contract.
    #[error("{table}.{column}, row of table {partition} committed at {commit_ts}: {reason}")]
    Value {
        /// `db.table`.
        table: String,
        /// The column.
        column: String,
        /// The physical table.
        partition: TableId,
        /// The row's commit timestamp.
        commit_ts: CommitTs,
        /// Why.
        reason: ValueError,
    },
    /// A row has no document id, although its table's schema promises one.
    #[error("{table}, row of table {partition} committed at {commit_ts}: no document id")]
    NoDocId {
        /// `db.table`.
        table: String,
        /// The physical table.
        partition: TableId,
        /// The row's commit timestamp.
        commit_ts: CommitTs,
    },
    /// A row's table version lacks a field of the generation in force.
    #[error(
        "{table}, row committed at {commit_ts}: schema version {schema_version} has `{field}`, the row not"
    )]
    SchemaMismatch {
        /// `db.table`.
        table: String,
        /// The field.
        field: String,
        /// The generation.
        schema_version: u32,
        /// The row's commit timestamp.
        commit_ts: CommitTs,
    },
    /// A table cannot be a collection, and the options say to stop then.
    #[error("{table} cannot be searched: {reason}")]
    Inadmissible {
        /// `db.table`.
        table: String,
        /// Why.
        reason: Inadmissible,
    },
    /// A DDL that cannot be followed.
    #[error("{action:?} at {finished_ts} cannot be followed")]
    Unsupported {
        /// What it did.
        action: ActionType,
        /// When.
        finished_ts: CommitTs,
    },
    /// The rows of a table cannot be read.
    #[error("cannot read the rows of table {partition} as of {at}")]
    Read {
        /// The physical table.
        partition: TableId,
        /// As of when.
        at: Ts,
        /// Why.
        #[source]
        source: PullerError,
    },
    /// The table behind a collection is not what the collection's schema says, without a DDL in between.
    #[error("{table} differs at {at} from schema version {schema_version} of its collection")]
    Drift {
        /// `db.table`.
        table: String,
        /// The generation.
        schema_version: u32,
        /// The timestamp of the start.
        at: ResolvedTs,
    },
    /// The gateway has less than it once acknowledged.
    #[error("the gateway holds {partition} up to {held}, but acknowledged {acknowledged} before")]
    GatewayLost {
        /// The source partition.
        partition: String,
        /// What it holds.
        held: ResolvedTs,
        /// What the checkpoint says.
        acknowledged: ResolvedTs,
    },
    /// The checkpoint store failed. It is not written again until it is reopened.
    #[error("the checkpoint store {path:?} failed: {detail}")]
    Store {
        /// Its file; `None` in memory.
        path: Option<PathBuf>,
        /// What failed.
        detail: String,
    },
    /// The source or a task of the adapter ended without a reason.
    #[error("the adapter's {0} ended unexpectedly")]
    Ended(&'static str),
}

impl Diagnostic for AdapterError {
    fn code(&self) -> &'static str {
        match self {
            Self::Options(_) => "TG-ADP-001",
            Self::Connect { .. } => "TG-ADP-002",
            Self::Refused { .. } => "TG-ADP-003",
            Self::Value { .. } | Self::NoDocId { .. } | Self::Default { .. } => "TG-ADP-004",
            Self::Inadmissible { .. } => "TG-ADP-005",
            Self::Unsupported { .. } => "TG-ADP-006",
            Self::Drift { .. } | Self::SchemaMismatch { .. } => "TG-ADP-007",
            Self::GatewayLost { .. } => "TG-ADP-008",
            Self::Store { .. } => "TG-ADP-009",
            Self::Bridge(_) => "TG-ADP-010",
            Self::Ended(_) => "TG-ADP-011",
            Self::Source(error) => error.code(),
            Self::Decode(error) => error.code(),
            Self::Read { source, .. } => source.code(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Connect { .. } => ErrorClass::Retry,
            Self::Refused { breach, .. } => contract_error::class(breach.code()),
            Self::Bridge(BridgeError::Overflow { .. }) => ErrorClass::Operator,
            Self::Bridge(_) | Self::Decode(_) => ErrorClass::Corrupt,
            Self::SchemaMismatch { .. } | Self::Ended(_) => ErrorClass::Bug,
            Self::Source(error) => error.class(),
            Self::Read { source, .. } => source.class(),
            _ => ErrorClass::Operator,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Connect { .. } => "check the gateway's address and that it is running",
            Self::Value { .. } | Self::NoDocId { .. } | Self::Default { .. } => {
                "correct the value in the source, or leave the table out with a table pattern"
            }
            Self::Inadmissible { .. } => {
                "name an unsigned, unique NOT NULL column in doc_ids, or skip such tables"
            }
            Self::Unsupported { .. } => {
                "drop the collections and start a new copy with another state directory"
            }
            Self::Drift { .. } => "start a new copy: drop the collection and remove the state directory",
            Self::GatewayLost { .. } => {
                "restore the gateway's data, or start a new copy with an empty state directory"
            }
            Self::Store { .. } => "check space and permissions of the state directory, then start again",
            Self::Bridge(BridgeError::Overflow { .. }) => {
                "look for a region without progress, or for huge transactions"
            }
            Self::Source(error) => return error.hint(),
            Self::Decode(error) => return error.hint(),
            Self::Read { source, .. } => return source.hint(),
            _ => return None,
        };
        Some(Cow::Borrowed(hint))
    }
}
