//! An embedded upstream that speaks the real gRPC protocols of PD and TiKV.
