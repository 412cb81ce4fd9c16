//! The durable multi-version schema store.
//!
//! It starts from a snapshot of TiDB's metadata, follows the DDL jobs of the change feed, and answers what a
//! table looked like at a timestamp. Jobs are durable before anything that follows from them is visible.
//!
//! *Invariant:* an answer for a timestamp at or below the resolved one never changes (I6, I7).

mod catalog;
mod core;
mod disk;
mod error;
mod history;
mod job_row;
mod reader;
mod statement;
mod store;
#[cfg(test)]
mod testing;

pub use catalog::is_system_schema;
pub use core::{DdlBatch, FinishedJob, PhysicalTable};
pub use error::SchemaError;
pub use history::{TableAt, TableVersion};
pub use reader::TableReader;
pub use store::{SchemaOptions, SchemaStore};
