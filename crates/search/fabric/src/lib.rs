//! The Search Fabric emulator: ingest gateway, catalogue, and full-text and vector search that knows how fresh it is.
