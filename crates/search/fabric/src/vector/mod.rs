//! Nearest neighbours over vectors kept in memory.
//!
//! Vectors live in blocks of contiguous `f32`. A published snapshot shares the blocks with the writer; the
//! writer copies a block before changing it while a snapshot still holds it. So readers never wait, never
//! see half a batch, and a batch costs at most the copies of the blocks it touches.
//!
//! *Invariant:* a document has at most one vector per field, and a snapshot never changes.

mod blocks;
mod metric;

pub use blocks::{Neighbour, VectorIndex, VectorSnapshot};
pub use metric::Metric;
