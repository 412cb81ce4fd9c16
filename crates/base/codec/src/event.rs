//! The events that stages exchange: rows that changed and schema changes.

mod ddl;
mod row;

pub use ddl::{AddedTable, DdlEvent, Influenced, NamedTableInfo, SchemaMove, TableName, TableNameChange};
pub use row::{OwnedRow, RowChanged, RowKind};
