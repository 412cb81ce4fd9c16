//! The change feed client: finds the regions of a span, opens change feeds to their stores, pairs prewrites
//! with commits, and yields raw changes and resolved timestamps per span.
//!
//! *Invariant:* the pure modules decide, the rim ([`Puller`]) only carries bytes and time.

pub mod admission;
pub mod backoff;
pub mod bounds;
mod clock;
mod error;
pub mod failure;
pub mod frontier;
pub mod ids;
mod inbox;
pub mod kv;
mod lane;
pub mod matcher;
mod metrics;
mod puller;
pub mod range_lock;
pub mod row;
pub mod span_core;
mod store_version;
mod stream;
mod worker;

pub use error::PullerError;
pub use metrics::{PullerMetrics, SubscriptionMetrics};
pub use puller::{Puller, PullerHandle, PullerOptions, SpanEvent, Subscribe, Subscription};
