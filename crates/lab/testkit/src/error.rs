//! What can be wrong with a recorded file.

use std::borrow::Cow;
use std::io;

use tidegate_core::{Diagnostic, ErrorClass};

/// Why a recorded file could not be read or written. `file` is its name without the folder.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file could not be opened, read or written.
    #[error("cannot access {file}")]
    Io {
        /// Which file.
        file: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file does not begin as a zstd file does.
    #[error("{file} is not a zstd file: it begins with {found} instead of 28b52ffd")]
    NotZstd {
        /// Which file.
        file: String,
        /// Its first bytes in hex.
        found: String,
    },
    /// The compressed data ends early or is damaged.
    #[error("{file} is truncated or damaged after {intact} decompressed bytes")]
    Compressed {
        /// Which file.
        file: String,
        /// How many bytes could be recovered.
        intact: usize,
        /// The decompressor's reason.
        source: io::Error,
    },
    /// The file would decompress to more than the limit.
    #[error("{file} decompresses to more than {limit} bytes")]
    TooLarge {
        /// Which file.
        file: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// One line is wrong.
    #[error("{file}, line {line}: {problem}")]
    Line {
        /// Which file.
        file: String,
        /// Counted from 1, in the decompressed text.
        line: usize,
        /// What is wrong.
        problem: LineProblem,
    },
}

/// What is wrong with a line of a recorded file.
#[derive(Debug, thiserror::Error)]
pub enum LineProblem {
    /// Not the JSON that belongs here.
    #[error("{0}")]
    Json(serde_json::Error),
    /// The header names another format.
    #[error("the format is {found:?}, expected {expected:?}")]
    Format {
        /// As the file says.
        found: String,
        /// As this program reads.
        expected: &'static str,
    },
    /// A field is not base64.
    #[error("field {field:?} is not base64: {source}")]
    Base64 {
        /// Which field.
        field: &'static str,
        /// Where in the field, and why.
        source: base64::DecodeError,
    },
    /// The file ends before the number of lines its header promises, or goes on after it.
    #[error("the header promises {promised} versions, the file holds {found}")]
    Count {
        /// Base and log together, as the header says.
        promised: usize,
        /// As counted.
        found: usize,
    },
    /// A version lies outside the part of the history that its line belongs to.
    #[error("commit ts {commit_ts} of the {part} lies outside ({above}, {to}]")]
    OutOfRange {
        /// `base` or `log`.
        part: &'static str,
        /// The version's commit timestamp.
        commit_ts: u64,
        /// Exclusive lower bound.
        above: u64,
        /// Inclusive upper bound.
        to: u64,
    },
    /// The log is not in commit order.
    #[error("commit ts {commit_ts} comes after {previous}")]
    Order {
        /// The version's commit timestamp.
        commit_ts: u64,
        /// The one on the line before.
        previous: u64,
    },
    /// A version was committed before its transaction began.
    #[error("commit ts {commit_ts} is not above its start ts {start_ts}")]
    StartAfterCommit {
        /// The version's commit timestamp.
        commit_ts: u64,
        /// Its start timestamp.
        start_ts: u64,
    },
    /// A frame has a direction this program does not know.
    #[error("unknown direction {0:?}")]
    Direction(String),
}

impl Diagnostic for DataError {
    fn code(&self) -> &'static str {
        match self {
            Self::Io { .. } => "TG-DATA-001",
            Self::NotZstd { .. } | Self::Compressed { .. } | Self::TooLarge { .. } => "TG-DATA-002",
            Self::Line { .. } => "TG-DATA-003",
        }
    }

    fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. } => ErrorClass::Operator,
            _ => ErrorClass::Corrupt,
        }
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Io { .. } => "check that the file exists and can be read",
            Self::NotZstd { .. } => "histories are zstd-compressed JSON lines, compress it with zstd",
            Self::Compressed { .. } => "copy the file again, its end is missing or was changed",
            Self::TooLarge { .. } => "split the history into smaller ones",
            Self::Line { .. } => "look at the line with: zstdcat FILE | sed -n LINEp",
        }))
    }
}
