//! The runtime over real gRPC against the playground with recorded histories.

mod lifetimes;
