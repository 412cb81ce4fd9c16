//! The Mini-CDC runtime: rows, DDL and checkpoints of a set of tables through three callbacks
//! (`spec/mini-cdc.md`).
//!
//! The only place that wires the source stages together, in the order of the data's path: change feeds of the
//! tables, the schema store fed from the DDL job table, the decoder, and one ordered loop that calls a
//! [`Callback`]. What decides about order and completeness are pure state machines: [`fence`] for the DDL
//! fence and checkpoints, [`cursor`] for the DDL history, [`bridge`] for canonical sequences.
//!
//! *Invariant:* a callback never sees a DDL event before a row at or below it (I7), nor a checkpoint before
//! anything at or below it (I1, I4); after the first terminal error it sees nothing more.

pub mod bridge;
mod callback;
mod checkpoint;
mod config;
pub mod cursor;
mod error;
pub mod fence;
mod filter;
mod runtime;
mod upstream;

pub use callback::{Admission, Callback, CallbackError, LiveTable};
pub use checkpoint::Checkpoint;
pub use config::{
    CHECKPOINT_INTERVAL, ChecksumPolicy, ConfigError, DDL_POLL_LIMIT_MAX, StartConfig, TableSet,
};
pub use error::MiniError;
pub use filter::TableFilter;
pub use runtime::{Control, Counts, Report, Runtime, RuntimeHandle};
pub use tidegate_puller::PullerError;
pub use tidegate_puller::kv::{KvPair, SnapshotReader};
pub use tidegate_schema::TableVersion;
pub use upstream::{Upstream, UpstreamOptions};
