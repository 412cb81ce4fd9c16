//! Generated protobuf types and gRPC stubs.
