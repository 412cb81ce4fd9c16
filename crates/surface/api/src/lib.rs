//! The HTTP API and the page: search, freshness and live numbers.

pub mod json;
pub mod rate;
