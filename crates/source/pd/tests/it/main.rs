//! The PD client against the playground, and against a PD that misbehaves on command.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking, and their helpers too"
)]

mod fake;
mod misbehaving;
mod playground;
