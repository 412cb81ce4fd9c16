//! DDL jobs: what TiDB writes into `mysql.tidb_ddl_job` for every schema change
//! (`reference/tidb-schema-and-ddl.md` §2 to §4).

mod action;
mod args;
mod args_v1;
mod job;

pub use action::{ActionType, Bookkeeping};
pub use args::{
    AddIndexArg, ColumnArgs, CreateSchemaArgs, CreateTableArgs, DropIndexArg, DropSchemaArgs, DropTableArgs,
    ExchangeArgs, ForeignKeyArgs, JobArgs, ModifyColumnArgs, PartitionArgs, RecoverArgs, RecoverInfo,
    RecoverTable, RenameArgs, SchemaCharsetArgs, TruncateArgs, TtlArgs,
};
pub use job::{HistoryInfo, InvolvedSchema, Job, JobState, MultiSchemaInfo, SubJob};
