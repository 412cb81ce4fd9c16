//! The `tidegate` binary as a person runs it.

#![expect(clippy::indexing_slicing, clippy::panic, reason = "a test's helpers may fail the test")]

mod demo;
mod errors;
mod histories;
mod process;
mod services;
