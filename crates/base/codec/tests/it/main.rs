//! Tests over recorded histories of a real cluster.

mod allocation;
mod fuzz;
mod metadata;
mod rows;
