//! The full-text and scalar index of one collection, on tantivy. It holds no documents: hits are document
//! ids, and the document store answers what they contain. Losing the index loses nothing.
//!
//! *Invariant:* every comparison of values goes through order-preserving keys ([`order`]), so that no
//! number is ever compared as a float it is not; text is analysed by one walk ([`analysis`]) for indexing,
//! querying and highlighting.

pub(crate) mod analysis;
pub(crate) mod build;
pub(crate) mod directory;
pub(crate) mod document;
pub(crate) mod facet;
pub(crate) mod highlight;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod order;
pub(crate) mod top;
pub(crate) mod words;
