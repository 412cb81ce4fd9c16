//! The array format of arguments, from before TiDB 8.4. Elements are told apart by position; some actions
//! replace the submitted array by another when they finish.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tidegate_core::{IndexId, SchemaId, TableId};

use super::{
    ActionType, AddIndexArg, CreateSchemaArgs, CreateTableArgs, DropIndexArg, DropSchemaArgs, DropTableArgs,
    ExchangeArgs, ForeignKeyArgs, JobArgs, PartitionArgs, RenameArgs, SchemaCharsetArgs, TruncateArgs,
};
use crate::meta::{CiName, FkInfo, TableInfo};

/// An argument array.
struct Items(Vec<Box<RawValue>>);

type Decoded<T> = Result<T, serde_json::Error>;

impl Items {
    fn parse(json: &str) -> Decoded<Self> {
        Ok(Self(serde_json::from_str::<Option<_>>(json)?.unwrap_or_default()))
    }

    /// The element at `position`; missing and `null` mean zero.
    fn get<T: DeserializeOwned + Default>(&self, position: usize) -> Decoded<T> {
        match self.0.get(position) {
            Some(item) => Ok(serde_json::from_str::<Option<T>>(item.get())?.unwrap_or_default()),
            None => Ok(T::default()),
        }
    }

    /// The same, but zero if the element is something else: the array may be the submitted or the finished
    /// one.
    fn get_if<T: DeserializeOwned + Default>(&self, position: usize) -> T {
        self.get(position).unwrap_or_default()
    }
}

pub(super) fn decode(action: ActionType, json: &str) -> Decoded<JobArgs> {
    let items = Items::parse(json)?;
    use ActionType as A;
    Ok(match action {
        A::CreateSchema => JobArgs::CreateSchema(CreateSchemaArgs { db_info: items.get(0)? }),
        A::DropSchema => JobArgs::DropSchema(DropSchemaArgs { all_dropped_table_ids: items.get_if(0) }),
        A::ModifySchemaCharset => {
            JobArgs::SchemaCharset(SchemaCharsetArgs { to_charset: items.get(0)?, to_collate: items.get(1)? })
        }
        A::CreateTable | A::CreateView | A::CreateSequence => create_table(action, &items)?,
        A::CreateTables => JobArgs::CreateTables(items.get::<Vec<TableInfo>>(0)?),
        A::DropTable | A::DropView | A::DropSequence => {
            JobArgs::DropTable(DropTableArgs { old_partition_ids: items.get_if(1) })
        }
        A::TruncateTable => truncate_table(&items),
        A::TruncatePartition => JobArgs::Truncate(TruncateArgs {
            old_partition_ids: items.get(0)?,
            new_partition_ids: items.get(1)?,
            ..TruncateArgs::default()
        }),
        A::AddPartition
        | A::DropPartition
        | A::ReorganizePartition
        | A::AlterTablePartitioning
        | A::RemovePartitioning => partition(action, &items),
        A::ExchangePartition => exchange(&items)?,
        A::RenameTable => rename_table(&items)?,
        A::RenameTables => rename_tables(&items)?,
        A::AddIndex | A::AddPrimaryKey => add_index(&items),
        A::DropIndex | A::DropPrimaryKey => drop_index(&items)?,
        A::RenameIndex => JobArgs::RenameIndex { from: items.get(0)?, to: items.get(1)? },
        A::AddForeignKey => foreign_key(items.get::<Option<FkInfo>>(0)?, CiName::default()),
        A::DropForeignKey => foreign_key(None, items.get(0)?),
        _ => JobArgs::Untyped,
    })
}

fn create_table(action: ActionType, items: &Items) -> Decoded<JobArgs> {
    let mut args = CreateTableArgs { table_info: items.get(0)?, ..CreateTableArgs::default() };
    if action == ActionType::CreateView {
        args.on_exist_replace = items.get(1)?;
        args.old_view_tbl_id = items.get(2)?;
    }
    Ok(JobArgs::CreateTable(Box::new(args)))
}

/// Submitted: [new id, foreign key check, new partitions, …]; finished: [start key, old partitions].
fn truncate_table(items: &Items) -> JobArgs {
    let submitted = items.get::<TableId>(0).is_ok();
    let mut args = TruncateArgs::default();
    if submitted {
        args.new_table_id = items.get_if(0);
        args.new_partition_ids = items.get_if(2);
    } else {
        args.old_partition_ids = items.get_if(1);
    }
    JobArgs::Truncate(args)
}

/// Submitted: partition info, names, or both by action; finished: [physical ids, global indexes].
fn partition(action: ActionType, items: &Items) -> JobArgs {
    let mut args = PartitionArgs::default();
    if let Ok(ids) = items.get::<Vec<TableId>>(0) {
        args.old_physical_ids = ids;
    }
    if args.old_physical_ids.is_empty() {
        match action {
            ActionType::AddPartition => args.part_info = items.get_if(0),
            _ => {
                args.part_names = items.get_if(0);
                args.part_info = items.get_if(1);
            }
        }
    }
    JobArgs::Partition(Box::new(args))
}

fn exchange(items: &Items) -> Decoded<JobArgs> {
    Ok(JobArgs::Exchange(ExchangeArgs {
        partition_id: items.get(0)?,
        partitioned_schema_id: items.get(1)?,
        partitioned_table_id: items.get(2)?,
        partition_name: items.get(3)?,
        with_validation: items.get(4)?,
    }))
}

fn rename_table(items: &Items) -> Decoded<JobArgs> {
    Ok(JobArgs::Rename(vec![RenameArgs {
        old_schema_id: items.get(0)?,
        new_table_name: items.get(1)?,
        old_schema_name: items.get(2)?,
        ..RenameArgs::default()
    }]))
}

fn rename_tables(items: &Items) -> Decoded<JobArgs> {
    let old_schemas: Vec<SchemaId> = items.get(0)?;
    let new_schemas: Vec<SchemaId> = items.get(1)?;
    let new_names: Vec<CiName> = items.get(2)?;
    let tables: Vec<TableId> = items.get(3)?;
    let old_schema_names: Vec<CiName> = items.get(4)?;
    // Versions up to 8.1 may lack the old table names.
    let old_names: Vec<CiName> = items.get(5)?;
    let pair = |(nth, table_id): (usize, &TableId)| RenameArgs {
        old_schema_id: old_schemas.get(nth).copied().unwrap_or_default(),
        old_schema_name: old_schema_names.get(nth).cloned().unwrap_or_default(),
        old_table_name: old_names.get(nth).cloned().unwrap_or_default(),
        new_schema_id: new_schemas.get(nth).copied().unwrap_or_default(),
        new_table_name: new_names.get(nth).cloned().unwrap_or_default(),
        table_id: *table_id,
    };
    Ok(JobArgs::Rename(tables.iter().enumerate().map(pair).collect()))
}

/// Submitted: [unique, name, …] of one index, arrays of those of many; finished: [ids, if exists, …], where
/// one id may stand alone.
fn add_index(items: &Items) -> JobArgs {
    let ids: Vec<IndexId> =
        items.get(0).or_else(|_| items.get::<IndexId>(0).map(|id| vec![id])).unwrap_or_default();
    if !ids.is_empty() {
        let arg = |index_id| AddIndexArg { index_id, ..AddIndexArg::default() };
        return JobArgs::AddIndex(ids.into_iter().map(arg).collect());
    }
    let (unique, names) = match items.get::<bool>(0) {
        Ok(unique) => (vec![unique], vec![items.get_if::<CiName>(1)]),
        Err(_) => (items.get_if(0), items.get_if(1)),
    };
    let arg = |(unique, index_name)| AddIndexArg { unique, index_name, ..AddIndexArg::default() };
    JobArgs::AddIndex(unique.into_iter().zip(names).map(arg).collect())
}

fn drop_index(items: &Items) -> Decoded<JobArgs> {
    if let Ok(names) = items.get::<Vec<CiName>>(0) {
        let if_exist: Vec<bool> = items.get_if(1);
        let ids: Vec<IndexId> = items.get_if(2);
        let arg = |(nth, index_name)| DropIndexArg {
            index_name,
            index_id: ids.get(nth).copied().unwrap_or_default(),
            if_exist: if_exist.get(nth).copied().unwrap_or_default(),
        };
        return Ok(JobArgs::DropIndex(names.into_iter().enumerate().map(arg).collect()));
    }
    Ok(JobArgs::DropIndex(vec![DropIndexArg {
        index_name: items.get(0)?,
        if_exist: items.get(1)?,
        index_id: items.get_if(2),
    }]))
}

fn foreign_key(fk_info: Option<FkInfo>, fk_name: CiName) -> JobArgs {
    JobArgs::ForeignKey(Box::new(ForeignKeyArgs { fk_info, fk_name }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::Job;

    /// Expected shapes are those of `reference/tidb-schema-and-ddl.md` §2.2: "v1 array" and "v2 keys".
    fn args(action: u8, version: i64, raw: &str) -> JobArgs {
        let job = format!(r#"{{"id":9,"type":{action},"version":{version},"state":4,"raw_args":{raw}}}"#);
        Job::parse(job.as_bytes()).expect("a job").args().expect("its arguments")
    }

    /// Both formats say the same.
    fn same(action: u8, v1: &str, v2: &str) -> JobArgs {
        let (first, second) = (args(action, 1, v1), args(action, 2, v2));
        assert_eq!(first, second, "action {action}");
        assert!(!matches!(first, JobArgs::Untyped | JobArgs::Absent), "action {action}");
        first
    }

    #[test]
    fn arguments_of_databases_and_creations_are_the_same_in_both_formats() {
        let db = r#"{"id":3,"db_name":{"O":"D","L":"d"}}"#;
        same(1, &format!("[{db}]"), &format!(r#"{{"db_info":{db}}}"#));
        same(2, "[[5,6]]", r#"{"all_dropped_table_ids":[5,6]}"#);
        same(26, r#"["utf8mb4","utf8mb4_bin"]"#, r#"{"to_charset":"utf8mb4","to_collate":"utf8mb4_bin"}"#);
        let table = r#"{"id":7,"name":{"O":"t","L":"t"}}"#;
        same(3, &format!("[{table},true]"), &format!(r#"{{"table_info":{table},"fk_check":true}}"#));
        same(
            21,
            &format!("[{table},true,4]"),
            &format!(r#"{{"table_info":{table},"on_exist_replace":true,"old_view_tbl_id":4}}"#),
        );
        same(60, &format!("[[{table}],false]"), &format!(r#"{{"tables":[{{"table_info":{table}}}]}}"#));
    }

    #[test]
    fn submitted_arguments_of_a_drop_are_not_taken_for_finished_ones() {
        assert_eq!(args(2, 1, "[true]"), JobArgs::DropSchema(DropSchemaArgs::default()));
        same(4, r#"["dA==",[5,6],["rule"]]"#, r#"{"start_key":"dA==","old_partition_ids":[5,6]}"#);
        let submitted = args(4, 1, r#"[[{"Schema":{"O":"d"},"Name":{"O":"t"}}],true]"#);
        assert_eq!(submitted, JobArgs::DropTable(DropTableArgs::default()));
    }

    #[test]
    fn arguments_of_truncations_and_partitions_are_the_same_in_both_formats() {
        same(11, "[132,true,[169,170],2]", r#"{"new_table_id":132,"new_partition_ids":[169,170]}"#);
        same(11, r#"["dA==",[159,160]]"#, r#"{"old_partition_ids":[159,160]}"#);
        same(23, "[[159],[166]]", r#"{"old_partition_ids":[159],"new_partition_ids":[166]}"#);
        same(23, "[[159]]", r#"{"old_partition_ids":[159]}"#);
        let part = r#"{"type":1,"definitions":[{"id":8,"name":"p"}],"num":1}"#;
        same(19, &format!("[{part}]"), &format!(r#"{{"part_info":{part}}}"#));
        same(20, r#"[["p3"]]"#, r#"{"part_names":[{"O":"p3","L":"p3"}]}"#);
        same(
            64,
            &format!(r#"[["p1","p2"],{part}]"#),
            &format!(r#"{{"part_names":["p1","p2"],"part_info":{part}}}"#),
        );
        same(64, "[[170,171],[]]", r#"{"old_physical_tbl_ids":[170,171]}"#);
        same(
            42,
            r#"[169,114,168,"p0",true]"#,
            r#"{"partition_id":169,"pt_schema_id":114,"pt_table_id":168,"partition_name":"p0",
                "with_validation":true}"#,
        );
    }

    #[test]
    fn arguments_of_renames_are_the_same_in_both_formats() {
        same(
            14,
            r#"[114,{"O":"T2","L":"t2"},{"O":"d1","L":"d1"}]"#,
            r#"{"old_schema_id":114,"new_table_name":"T2","old_schema_name":"d1"}"#,
        );
        let pair = r#"{"old_schema_id":1,"old_schema_name":"d","old_table_name":"a","new_schema_id":2,
            "new_table_name":"b","table_id":9}"#;
        same(47, r#"[[1],[2],["b"],[9],["d"],["a"]]"#, &format!(r#"{{"rename_table_infos":[{pair}]}}"#));
        let JobArgs::Rename(pairs) = args(47, 1, r#"[[1],[2],["b"],[9],["d"]]"#) else { unreachable!() };
        assert_eq!(pairs.len(), 1, "versions up to 8.1 may lack the old table names");
        assert!(pairs.iter().all(|pair| pair.old_table_name.is_empty() && pair.table_id == TableId(9)));
    }

    #[test]
    fn arguments_of_indexes_and_foreign_keys_are_the_same_in_both_formats() {
        same(
            7,
            r#"[true,{"O":"uk","L":"uk"},[],null,[],false]"#,
            r#"{"index_args":[{"unique":true,"index_name":"uk"}]}"#,
        );
        same(
            7,
            r#"[[true,false],["uk","ix"],[]]"#,
            r#"{"index_args":[{"unique":true,"index_name":"uk"},{"index_name":"ix"}]}"#,
        );
        same(7, "[[3,4],[false,false],[],[]]", r#"{"index_args":[{"index_id":3},{"index_id":4}]}"#);
        same(7, "[3,false,[]]", r#"{"index_args":[{"index_id":3}]}"#);
        same(
            8,
            r#"["ix",true,3,[],false]"#,
            r#"{"index_args":[{"index_name":"ix","if_exist":true,"index_id":3}]}"#,
        );
        same(18, r#"["a","b"]"#, r#"{"index_args":[{"index_name":"a"},{"index_name":"b"}]}"#);
        same(9, r#"[{"id":1,"fk_name":"f"},true]"#, r#"{"fk_info":{"id":1,"fk_name":"f"},"fk_check":true}"#);
        same(10, r#"["f"]"#, r#"{"fk_name":"f"}"#);
    }

    #[test]
    fn null_arguments_are_absent_and_damaged_ones_are_errors() {
        assert_eq!(args(3, 1, "null"), JobArgs::Absent);
        assert_eq!(args(3, 2, "null"), JobArgs::Absent);
        let job = Job::parse(br#"{"type":14,"version":1,"raw_args":["x"]}"#).expect("a job");
        assert_eq!(job.args().expect_err("a name where an id belongs").what, "DDL job arguments");
    }
}
