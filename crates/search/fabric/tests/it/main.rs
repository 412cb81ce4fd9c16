//! The fabric through its gRPC services, as a producer and a reader see it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failed step ends a test")]

mod catalog;
mod ingest;
mod restart;
mod search;
mod support;
