//! The adapter's stages together: the pure core against the contract's rules under faults, and the whole path
//! over gRPC.

mod flow;
mod ledger;
mod script;
mod simulation;
