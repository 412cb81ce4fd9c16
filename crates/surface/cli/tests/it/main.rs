//! The `tidegate` binary as a person runs it.

mod demo;
mod errors;
mod histories;
mod process;
