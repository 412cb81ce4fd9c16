//! The durable multi-version schema store.
