//! The CDC adapter: rows become canonical mutations, delivered in order and acknowledged.
