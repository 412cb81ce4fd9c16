//! The runtime over real gRPC against the playground with recorded histories.

mod fail_fast;
mod fixed;
mod follow;
mod hot_path;
mod lifetimes;
mod model;
mod recorder;
