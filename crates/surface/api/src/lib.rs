//! The HTTP API and the pages: search, freshness and pipeline numbers.
