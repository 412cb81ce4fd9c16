//! The words every stage of Tidegate shares: ids, timestamps, spans, raw changes, error classes and the
//! clock. No I/O and no async runtime; everything here is plain data.
//!
//! *Invariant:* nothing in this crate depends on how a change travels or where it ends up.

pub mod change;
pub mod clock;
pub mod error;
pub mod id;
pub mod span;
pub mod ts;

pub use change::{Op, RawChange};
pub use clock::{Clock, MonoTime, SystemClock};
pub use error::{Diagnostic, ErrorClass};
pub use id::{ClusterId, ColumnId, IndexId, JobId, KeyspaceId, PeerId, RegionId, SchemaId, StoreId, TableId};
pub use span::Span;
pub use ts::{CheckpointTs, CommitTs, ResolvedTs, StartTs, Ts};
