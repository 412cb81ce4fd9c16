//! The Mini-CDC runtime: rows, DDL and checkpoints of a set of tables through three callbacks.

pub mod bridge;
pub mod checkpoint;
pub mod config;
pub mod cursor;
pub mod fence;
pub mod filter;
