//! The events that stages exchange: rows that changed and schema changes.

mod ddl;

pub use ddl::{AddedTable, DdlEvent, Influenced, NamedTableInfo, SchemaMove, TableName, TableNameChange};
