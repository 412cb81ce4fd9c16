//! The adapter's stages together: the pure core against the contract's rules under faults, and the whole path
//! over gRPC.

#![allow(
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that panics or misses an index ends its test"
)]

mod flow;
mod ledger;
mod script;
mod simulation;
