//! TiDB's metadata records: databases, tables, columns, indexes, partitions and the rest, as the JSON of the
//! `m` keys and of DDL jobs holds them (`reference/tidb-schema-and-ddl.md` §1).
//!
//! Reading is lenient: unknown keys are ignored, missing keys mean zero, `null` lists are empty, a name may
//! be an object or a bare string. Writing gives the keys and spelling that TiDB writes.

mod column;
mod database;
mod index;
mod json;
mod name;
mod object;
mod partition;
mod sql_text;
mod table;

pub use column::{
    ChangeState, ColumnFlags, ColumnInfo, DefaultValue, FieldType, Nothing, SchemaState, SqlType,
    UNSPECIFIED_LENGTH,
};
pub use database::{DbInfo, PolicyRef};
pub use index::{FkAction, FkInfo, IndexColumn, IndexInfo, IndexType};
pub use json::MetaError;
pub(crate) use json::{base64_bytes, lenient, list, number_enum, parse};
pub use name::CiName;
pub use object::{
    ConstraintInfo, SequenceInfo, SoftdeleteInfo, TiFlashReplica, TtlInfo, ViewDefiner, ViewInfo,
};
pub use partition::{ExchangeInfo, PartitionDefinition, PartitionInfo, PartitionState, PartitionType};
pub use table::{HandleKind, TableInfo};
