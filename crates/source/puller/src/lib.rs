//! The change feed client: regions, prewrite/commit matching and resolved timestamps.
