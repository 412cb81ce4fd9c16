//! Transactional calls to the stores: reading snapshots of raw keys for metadata, and resolving the locks of
//! dead transactions that hold a span's resolved timestamp.

mod client;
pub(crate) mod locks;
mod reader;
mod resolver;

pub use reader::{KvPair, SnapshotReader};
