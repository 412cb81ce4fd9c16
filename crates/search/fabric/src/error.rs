//! What can go wrong when the fabric opens, serves or answers.

use std::borrow::Cow;
use std::path::PathBuf;

use tidegate_core::{Diagnostic, ErrorClass, ResolvedTs, Ts};

/// The fabric cannot open, store or serve.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A folder cannot be made or used.
    #[error("cannot use the data directory {path}")]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The document store failed.
    #[error("the document store failed")]
    Store(#[source] Box<redb::Error>),
    /// The document store holds something that this program did not write.
    #[error("the document store is damaged: {0}")]
    Damaged(String),
    /// The data directory was written by another version of the format.
    #[error("the data directory has format {found}, this program knows {known}")]
    Format {
        /// What the directory says.
        found: u64,
        /// What this program writes.
        known: u64,
    },
    /// The text index failed.
    #[error("the text index failed")]
    Index(#[from] tantivy::TantivyError),
    /// A storage failure stopped ingestion; nothing was acknowledged after it.
    #[error("storage failed earlier and refuses all writes until it is reopened: {0}")]
    Poisoned(String),
    /// A thread of the fabric is gone.
    #[error("the fabric has stopped")]
    Stopped,
    /// The gRPC server failed.
    #[error("the gRPC server failed")]
    Serve(#[from] tonic::transport::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

macro_rules! store_errors {
    ($($error:ty),*) => {
        $(impl From<$error> for FabricError {
            fn from(error: $error) -> Self {
                Self::Store(Box::new(error.into()))
            }
        })*
    };
}
store_errors!(
    redb::DatabaseError,
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError
);

impl Diagnostic for FabricError {
    fn code(&self) -> &'static str {
        match self {
            Self::DataDir { .. } => "TG-FABRIC-001",
            Self::Store(_) => "TG-FABRIC-002",
            Self::Damaged(_) => "TG-FABRIC-003",
            Self::Format { .. } => "TG-FABRIC-004",
            Self::Index(_) => "TG-FABRIC-005",
            Self::Poisoned(_) => "TG-FABRIC-006",
            Self::Stopped => "TG-FABRIC-007",
            Self::Serve(_) => "TG-FABRIC-008",
            Self::Thread(_) => "TG-FABRIC-009",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::DataDir { .. } | Self::Store(_) | Self::Serve(_) | Self::Thread(_) => ErrorClass::Operator,
            Self::Damaged(_) | Self::Index(_) => ErrorClass::Corrupt,
            Self::Format { .. } | Self::Poisoned(_) => ErrorClass::Operator,
            Self::Stopped => ErrorClass::Wait,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::DataDir { .. } => "check that the folder exists, is writable and has space",
            Self::Store(_) => "check the disk, and that no other process has the data directory open",
            Self::Damaged(_) => "start with an empty data directory; the source will send everything again",
            Self::Format { .. } => "use the program version that wrote it, or an empty data directory",
            Self::Index(_) => "delete the folder `index`; it is rebuilt from the document store",
            Self::Poisoned(_) => "mend the disk, then restart: what was acknowledged is kept",
            Self::Serve(_) => "check the listening address",
            Self::Stopped | Self::Thread(_) => return None,
        };
        Some(Cow::Borrowed(hint))
    }
}

/// A read cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no such collection.
    #[error("there is no collection {0:?}")]
    CollectionNotFound(String),
    /// The collection was dropped.
    #[error("the collection {0:?} was dropped")]
    CollectionDropped(String),
    /// The request contradicts itself or the collection's schema.
    #[error("{detail}")]
    Invalid {
        /// The part of the request that is wrong, such as `filter.range.from`.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A number in the request is over its limit.
    #[error("{field} is {value}, the limit is {limit}")]
    Limit {
        /// The part of the request.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The limit.
        limit: usize,
    },
    /// `safe_ts` did not get there in time.
    #[error("safe_ts is {safe_ts}, and did not reach {wanted} within {waited_ms} ms")]
    FreshnessTimeout {
        /// What was asked for.
        wanted: Ts,
        /// Where it is.
        safe_ts: ResolvedTs,
        /// How long the read waited.
        waited_ms: u64,
    },
    /// `safe_ts` is too far behind the clock.
    #[error("safe_ts lies {lag_ms:?} ms behind, more than the {limit_ms} ms asked for")]
    StalenessExceeded {
        /// How far it lies behind; `None` if nothing is known yet.
        lag_ms: Option<u64>,
        /// What was asked for.
        limit_ms: u64,
    },
    /// The page token is foreign, expired or does not belong to this request.
    #[error("the page token {0}")]
    PageToken(&'static str),
    /// Reading failed.
    #[error("reading failed")]
    Read(#[from] FabricError),
}

impl QueryError {
    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), detail: detail.into() }
    }
}

impl From<tantivy::TantivyError> for QueryError {
    fn from(error: tantivy::TantivyError) -> Self {
        Self::Read(error.into())
    }
}

impl From<redb::StorageError> for QueryError {
    fn from(error: redb::StorageError) -> Self {
        Self::Read(error.into())
    }
}

impl Diagnostic for QueryError {
    fn code(&self) -> &'static str {
        match self {
            Self::CollectionNotFound(_) => "SF_COLLECTION_NOT_FOUND",
            Self::CollectionDropped(_) => "SF_COLLECTION_DROPPED",
            Self::Invalid { .. } => "SF_INVALID_ARGUMENT",
            Self::Limit { .. } => "SF_LIMIT_EXCEEDED",
            Self::FreshnessTimeout { .. } => "SF_FRESHNESS_TIMEOUT",
            Self::StalenessExceeded { .. } => "SF_STALENESS_EXCEEDED",
            Self::PageToken(_) => "SF_PAGE_TOKEN_INVALID",
            Self::Read(error) => error.code(),
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::FreshnessTimeout { .. } | Self::StalenessExceeded { .. } => ErrorClass::Wait,
            Self::Read(error) => error.class(),
            _ => ErrorClass::Operator,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::CollectionNotFound(_) => Some("names look like `database.table`".into()),
            Self::PageToken(_) => Some("ask again from the first page".into()),
            Self::FreshnessTimeout { .. } => Some("wait longer, or see why the partition lags".into()),
            Self::Read(error) => error.hint(),
            _ => None,
        }
    }
}
