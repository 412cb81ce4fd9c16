//! TiDB keys, rows, column types, metadata and DDL jobs as typed data.

pub mod ddl;
pub mod event;
pub mod meta;
