//! Recorded histories of real clusters, what TiDB answered, and recorded change-feed traffic: loading and
//! writing them. Bytes in all formats are base64; every file is zstd.
//!
//! - [`History`] (`NAME.history.jsonl.zst`): committed versions, in commit order.
//! - [`Expected`] (`NAME.expected.json.zst`): tables as TiDB showed them at given timestamps.
//! - [`Frame`] (`NAME.frames.jsonl.zst`): messages of `cdcpb.ChangeData/EventFeedV2`.
//!
//! A damaged file gives a [`DataError`] that names the line and what is wrong with it.

pub mod data;
mod error;
mod expected;
mod file;
mod frames;
mod history;

pub use error::{DataError, LineProblem};
pub use expected::{Cell, Expected, Snapshot, Statement, TableSnapshot};
pub use frames::{Frame, FrameKind, load_frames};
pub use history::{FORMAT, Header, History, Version};
