//! The canonical mutation model of `proto/searchfabric/v1/search_fabric.proto`: limits, validation,
//! fingerprints and schema differences, as pure functions that adapter and fabric share. The rules in words:
//! `docs/search-contract.md`.
//!
//! *Invariant:* both sides of the wire decide with this code, so a batch that the adapter builds is never
//! refused for its form. Nothing here does I/O or keeps state.

pub mod error;
pub mod fingerprint;
pub mod float;
pub mod json;
pub mod limits;
pub mod schema;
pub mod validate;

pub use error::{Breach, SfErrorCode};
pub use schema::{INITIAL_GENERATION, Schema};
