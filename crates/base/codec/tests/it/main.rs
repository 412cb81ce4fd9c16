//! Tests over recorded histories of a real cluster.

mod metadata;
mod rows;
