//! The runtime over real gRPC against the playground with recorded histories.

#![expect(clippy::panic, clippy::indexing_slicing, reason = "helpers of tests fail by panicking, too")]

mod fail_fast;
mod fixed;
mod follow;
mod hot_path;
mod joins;
mod lifetimes;
mod model;
mod order;
mod recorder;
mod storm;
