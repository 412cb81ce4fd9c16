//! The puller against recorded traffic, against a model of a store, and against the playground.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking, and their helpers too"
)]

mod frames;
mod interleavings;
mod locks;
mod model;
mod playground;
mod storm;
mod support;
