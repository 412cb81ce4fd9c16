//! The CDC adapter: rows become canonical mutations, delivered in order and acknowledged.
//!
//! The path of a change, stage by stage:
//!
//! 1. [`source`] `SubscriptionWorker`: the Mini-CDC runtime's callbacks; rows come out sealed and in commit
//!    order.
//! 2. [`pipeline`] the router: which collection a physical table feeds.
//! 3. [`resolver`] `SchemaResolver`: tables and DDL to collection definitions.
//! 4. [`transform`] `Transformer`: rows to mutations.
//! 5. [`batch`] `BatchBuilder`: mutations to numbered, fingerprinted batches.
//! 6. [`dispatch`] `DispatchScheduler`: what is sent when, and what an answer means.
//! 7. [`fence`] `CollectionFenceCoordinator`: the collection-wide stop at a DDL.
//! 8. [`checkpoint`] `CheckpointStore`: what survives a restart.
//!
//! Stages 2 to 7 are state machines without I/O.
//!
//! *Invariant:* the source's checkpoint moves only after the gateway's acknowledgement is durable here (I1,
//! I10). The adapter never computes `safe_ts`.

mod backoff;
pub mod batch;
pub mod checkpoint;
pub mod collection;
pub mod dispatch;
mod error;
pub mod fence;
mod gateway;
pub mod lineage;
mod manager;
mod options;
pub mod pipeline;
mod reader;
pub mod resolver;
mod session;
pub mod source;
pub mod status;
pub mod stream;
pub mod transform;
pub mod value;

pub use error::AdapterError;
pub use manager::{Adapter, AdapterHandle};
pub use options::{
    AdapterOptions, BatchLimits, DispatchLimits, DocIdColumn, OptionsError, TextHint, Unadmitted,
};
pub use status::{AdapterState, AdapterStatus};
