//! The fabric through its gRPC services, as a producer and a reader see it.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::result_large_err,
    reason = "a failed step ends a test, and refusals are looked at whole"
)]

mod catalog;
mod ingest;
mod restart;
mod search;
mod support;
