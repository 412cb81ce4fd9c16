//! The schema store against recorded histories of a real TiDB.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

mod durable;
mod faults;
mod recorded;
mod replay;
mod show_create;
mod waiting;
