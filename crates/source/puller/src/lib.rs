//! The change feed client: finds the regions of a span, opens change feeds to their stores, pairs prewrites
//! with commits, and yields raw changes and resolved timestamps per span.
//!
//! *Invariant:* the pure modules decide, the rim ([`Puller`]) only carries bytes and time.

mod error;
pub mod kv;
mod puller;

pub use error::PullerError;
pub use puller::{Puller, PullerHandle, PullerOptions, SpanEvent, Subscribe, Subscription};
