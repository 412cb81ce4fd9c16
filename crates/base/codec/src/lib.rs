//! TiDB keys, rows, column types, metadata and DDL jobs as typed data.
//!
//! A key is taken apart by [`key`] (records) and [`meta_key`] (metadata). A row needs its table: build a
//! [`row::TableLayout`] from a [`meta::TableInfo`] once for each version of the schema, and read rows through
//! it; a [`row::RowView`] borrows from the stored bytes and decodes a column when it is asked for one.
//! [`text`] prints values as TiDB answers them, [`encode`] writes rows as TiDB would. [`ddl`] reads the jobs
//! that change schemas, [`event`] has what stages hand on.
//!
//! Two things are no decoding and still belong to reading right: columns that MODIFY COLUMN rewrote behind
//! the change feed's back ([`row::TableLayout::evolve`], [`convert`]), and virtual columns, which no row
//! holds ([`row::RowView::selected`], [`generated`]).
//!
//! *Invariant:* no I/O, no clock, and no bytes make it panic, loop, or allocate more than a small multiple of
//! their size.

pub mod convert;
pub mod datum;
pub mod ddl;
pub mod decimal;
pub mod encode;
pub mod event;
pub mod float_text;
pub mod generated;
pub mod json;
pub mod key;
pub mod memcomparable;
pub mod meta;
pub mod meta_key;
pub mod partition;
mod reader;
pub mod row;
#[cfg(test)]
mod testing;
pub mod text;
pub mod time;
pub mod value;
pub mod vector;
