//! Reading: search, lookups, counts and scans over published states.
//!
//! *Invariant:* an answer comes from one published state and says which, how fresh it is and what may be
//! missing.

mod handle;
pub(crate) mod literal;
mod page;
mod parse;
mod render;
pub mod request;
pub mod response;
mod search;
pub(crate) mod time;

pub use handle::QueryHandle;
pub(crate) use handle::{DEFAULT_NAMESPACE, Reading, blocking, limit};
pub use parse::FilterError;
pub(crate) use render::Loaded;
pub(crate) use search::{admitted, count, scan};
