//! Why a change cannot be decoded.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use thiserror::Error;
use tidegate_codec::key::KeyError;
use tidegate_codec::row::ChecksumError;
use tidegate_core::span::Hex;
use tidegate_core::{CommitTs, Diagnostic, ErrorClass, TableId};

/// A change that cannot be decoded; terminal, because skipping it would lose it. Names table, key and
/// commit timestamp, and for a damaged row the column and the offset, but no row value (I11).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot decode the change of table {table} (id {table_id}) at {commit_ts}, key {}", Hex(key))]
pub struct DecodeError {
    /// The table's name.
    pub table: String,
    /// Its logical id.
    pub table_id: TableId,
    /// The raw key.
    pub key: Bytes,
    /// Commit timestamp of the change.
    pub commit_ts: CommitTs,
    /// What is wrong.
    #[source]
    pub reason: Reason,
}

/// Which state of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Before the change.
    Old,
    /// After it.
    New,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }
}

/// What is wrong with a change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The key is not a record key.
    #[error("not a record key")]
    Key(#[source] KeyError),
    /// A row value is damaged.
    #[error("the {image} row is damaged")]
    Row {
        /// Which one.
        image: Image,
        /// Where and how.
        #[source]
        source: Box<tidegate_codec::row::DecodeError>,
    },
    /// A row is not what TiDB wrote.
    #[error("the {image} row fails its checksum")]
    Checksum {
        /// Which one.
        image: Image,
        /// The two sums.
        #[source]
        source: ChecksumError,
    },
}

impl Diagnostic for DecodeError {
    fn code(&self) -> &'static str {
        match self.reason {
            Reason::Key(_) => "TG-DEC-001",
            Reason::Row { .. } => "TG-DEC-002",
            Reason::Checksum { .. } => "TG-DEC-003",
        }
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Corrupt
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self.reason {
            Reason::Key(_) => "subscribe record ranges of tables only",
            Reason::Row { .. } => "compare the row with `select` at its commit timestamp, and report it",
            Reason::Checksum { .. } => "check the row with `admin check table` before trusting either side",
        };
        Some(Cow::Borrowed(hint))
    }
}
