//! The rules of ingestion, free of I/O: which batch is admitted, and which row wins.
//!
//! *Invariant:* a stale epoch changes nothing (I5); the highest version of a document wins whatever the order
//! of arrival; a deleted document stays deleted (I14); a refused batch changes nothing at all.

pub(crate) mod apply;
pub(crate) mod batch;
pub(crate) mod judge;
#[cfg(test)]
mod model;
pub(crate) mod partition;
pub(crate) mod record;
pub(crate) mod version;

pub(crate) use apply::Documents;
pub(crate) use batch::{Batch, Entry, Progress, Row, RowKind};
pub(crate) use judge::{Judged, Unjudged, judge};
pub(crate) use partition::{Partition, Refusal};
pub(crate) use record::Record;
