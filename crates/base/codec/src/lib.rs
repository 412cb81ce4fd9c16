//! TiDB keys, rows, column types, metadata and DDL jobs as typed data.

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
