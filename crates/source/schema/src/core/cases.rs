//! One kind of job at a time; expected sets are the rows of `reference/tidb-schema-and-ddl.md` §7.2 and §9.2.

use std::{num::NonZeroUsize, sync::Arc};

use serde_json::{Value, json};
use tidegate_codec::{
    ddl::ActionType as A,
    event::{DdlEvent, Influenced, TableName},
};
use tidegate_core::{ResolvedTs, SchemaId, TableId, Ts};

use super::SchemaCore;
use crate::{
    FinishedJob, SchemaError,
    testing::{empty_core, ids, job, table, table_job},
};

const RESOLVED: ResolvedTs = ResolvedTs::new(2000);

fn apply(core: &mut SchemaCore, job: &FinishedJob) -> Arc<DdlEvent> {
    core.apply(job).expect("a job that fits").expect("an event")
}

/// A state with table 10 `t` in `d1`, and the partitioned table 20 `p` with 21 and 22.
fn two_tables() -> SchemaCore {
    let mut core = empty_core();
    apply(&mut core, &table_job(A::CreateTable, 1001, 10, table(10, "t", &[])));
    apply(&mut core, &table_job(A::CreateTable, 1002, 20, table(20, "p", &[21, 22])));
    core
}

fn names(core: &SchemaCore, ts: u64) -> Vec<(i64, String)> {
    let tables = core.physical_tables_at(Ts::new(ts), RESOLVED).expect("in range");
    tables.into_iter().map(|table| (table.id.get(), format!("{}.{}", table.schema, table.table))).collect()
}

fn listed(tables: &[(i64, &str)]) -> Vec<(i64, String)> {
    tables.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
}

fn full_names(names: &[TableName]) -> Vec<String> {
    names.iter().map(TableName::to_string).collect()
}

fn added(event: &DdlEvent) -> Vec<TableId> {
    event.need_added_tables.iter().map(|table| table.table_id).collect()
}

#[test]
fn a_created_table_blocks_the_trigger_and_begins_its_streams() {
    let mut core = empty_core();
    let event = apply(&mut core, &table_job(A::CreateTable, 1001, 20, table(20, "P", &[21, 22])));
    assert_eq!(event.blocked_tables, Influenced::with_trigger([]));
    assert_eq!(added(&event), ids(&[21, 22]));
    assert_eq!(full_names(&event.table_name_change.added), ["d1.P"]);
    assert!(event.blocked_table_names.is_empty() && event.need_dropped_tables == Influenced::Nothing);
    assert_eq!((event.schema_name.as_str(), event.table_name.as_str()), ("d1", "P"));
    assert_eq!((event.start_ts.get(), event.finished_ts.get(), event.job_start_ts.get()), (1000, 1001, 901));
}

#[test]
fn create_table_like_blocks_its_source_and_a_foreign_key_does_not() {
    let involving = json!([{"database": "d1", "table": "new"}, {"database": "d1", "table": "p", "mode": 1}]);
    let create = |at: i64, query: &str| {
        let rest = json!({"query": query, "involving_schema_info": involving,
            "binlog": {"TableInfo": table(30 + at, "new", &[])}});
        job(A::CreateTable, at.unsigned_abs(), 30 + at, rest)
    };
    let mut core = two_tables();
    let event = apply(&mut core, &create(1010, "create table new like p"));
    assert_eq!(event.blocked_tables, Influenced::with_trigger(ids(&[21, 22])));
    assert_eq!(full_names(&event.blocked_table_names), ["d1.p"]);
    assert_eq!(event.other.as_ref().map(ToString::to_string).as_deref(), Some("d1.p"));
    let of_source = core.table_ddls(TableId(21), Ts::new(1002), Ts::new(1010), RESOLVED).expect("in range");
    assert_eq!(of_source.len(), 1, "the source's stream sees it, too");
    let event =
        apply(&mut core, &create(1011, "create table new (id int, foreign key (id) references p(id))"));
    assert_eq!((&event.blocked_tables, &event.other), (&Influenced::with_trigger([]), &None));
}

#[test]
fn tables_created_together_have_one_event_with_all_infos() {
    let mut core = empty_core();
    let infos = json!([table(30, "a", &[]), table(31, "b", &[32, 33])]);
    let event =
        apply(&mut core, &job(A::CreateTables, 1001, 0, json!({"binlog": {"MultipleTableInfos": infos}})));
    assert_eq!(added(&event), ids(&[30, 32, 33]));
    assert_eq!(full_names(&event.table_name_change.added), ["d1.a", "d1.b"]);
    assert_eq!(event.multiple_table_infos.len(), 2);
    assert_eq!(event.table_info, None);
    assert_eq!(names(&core, 1001), listed(&[(30, "d1.a"), (32, "d1.b"), (33, "d1.b")]));
}

/// Both jobs of `drop table t, p` carry the whole statement.
#[test]
fn a_drop_of_several_tables_is_one_event_for_each_with_its_own_statement() {
    let mut core = two_tables();
    let drop = |at, id, info: Value| {
        job(A::DropTable, at, id, json!({"query": "drop table t, p", "binlog": {"TableInfo": info}}))
    };
    let first = apply(&mut core, &drop(1010, 10, table(10, "t", &[])));
    let second = apply(&mut core, &drop(1011, 20, table(20, "p", &[21, 22])));
    assert_eq!((first.query.as_str(), second.query.as_str()), ("DROP TABLE `d1`.`t`", "DROP TABLE `d1`.`p`"));
    assert_eq!(second.blocked_tables, Influenced::with_trigger(ids(&[21, 22])));
    assert_eq!(second.need_dropped_tables, Influenced::only(ids(&[21, 22])));
    assert_eq!(full_names(&second.table_name_change.dropped), ["d1.p"]);
    assert_eq!(names(&core, 1010), listed(&[(21, "d1.p"), (22, "d1.p")]));
    assert_eq!(names(&core, 1011), []);
    // Between a drop and a creation of the same name, the name means nothing.
    apply(&mut core, &table_job(A::CreateTable, 1012, 40, table(40, "t", &[])));
    let old = core.table_at(TableId(10), Ts::new(1012), RESOLVED);
    assert!(matches!(old, Err(SchemaError::Deleted { at, .. }) if at.get() == 1010));
    assert_eq!(names(&core, 1012), listed(&[(40, "d1.t")]));
}

fn rename(at: u64, schema: i64, args: Value, info: Value, involving: Value) -> FinishedJob {
    job(
        A::RenameTable,
        at,
        10,
        json!({"schema_id": schema, "raw_args": args, "involving_schema_info": involving,
            "binlog": {"TableInfo": info}}),
    )
}

#[test]
fn a_rename_into_another_database_moves_the_streams_there() {
    let mut core = two_tables();
    let args =
        json!({"old_schema_id": 114, "old_schema_name": "d1", "new_table_name": "T2", "new_schema_id": 116});
    let event = apply(&mut core, &rename(1010, 116, args, table(10, "T2", &[]), json!([])));
    assert_eq!(event.blocked_tables, Influenced::with_trigger(ids(&[10])));
    let moved: Vec<_> = event.updated_schemas.iter().map(|m| (m.table_id, m.old, m.new)).collect();
    assert_eq!(moved, [(TableId(10), SchemaId(114), SchemaId(116))]);
    assert_eq!(full_names(&event.table_name_change.dropped), ["d1.t"]);
    assert_eq!(full_names(&event.table_name_change.added), ["d2.T2"]);
    assert_eq!(event.query, "RENAME TABLE `d1`.`t` TO `d2`.`T2`");
    assert!(event.need_added_tables.is_empty() && event.need_dropped_tables == Influenced::Nothing);
    assert_eq!(names(&core, 1009).first(), Some(&(10, "d1.t".to_owned())));
    assert_eq!(names(&core, 1010).first(), Some(&(10, "d2.T2".to_owned())));
}

/// The metadata shows the new name one step before the job is done, so a snapshot may, too.
#[test]
fn the_old_name_of_a_rename_comes_from_the_job_if_the_snapshot_is_past_it() {
    let mut core = empty_core();
    apply(&mut core, &table_job(A::CreateTable, 1001, 10, table(10, "new", &[])));
    let args =
        json!({"old_schema_id": 116, "old_schema_name": "d2", "new_table_name": "new", "new_schema_id": 114});
    let involving = json!([{"database": "d2", "table": "old"}, {"database": "d1", "table": "new"}]);
    let event = apply(&mut core, &rename(1010, 114, args, table(10, "new", &[]), involving));
    assert_eq!(event.other.as_ref().map(ToString::to_string).as_deref(), Some("d2.old"));
    assert_eq!(event.query, "RENAME TABLE `d2`.`old` TO `d1`.`new`");
}

/// `RENAME TABLE a TO x, b TO a, x TO b`: `a` and `b` swap names; both infos of `a` show the last one.
#[test]
fn a_swap_of_names_moves_each_table_once() {
    let mut core = empty_core();
    apply(&mut core, &table_job(A::CreateTable, 1001, 1, table(1, "a", &[])));
    apply(&mut core, &table_job(A::CreateTable, 1002, 2, table(2, "b", &[])));
    let pair = |id: i64, old: &str, new: &str| {
        json!({"old_schema_id": 114, "old_schema_name": "d1", "old_table_name": old, "new_schema_id": 114,
            "new_table_name": new, "table_id": id})
    };
    let rest = json!({
        "raw_args": {"rename_table_infos": [pair(1, "a", "x"), pair(2, "b", "a"), pair(1, "x", "b")]},
        "binlog": {"MultipleTableInfos": [table(1, "b", &[]), table(2, "a", &[]), table(1, "b", &[])]},
    });
    let event = apply(&mut core, &job(A::RenameTables, 1010, 1, rest));
    assert_eq!(event.query, "RENAME TABLE `d1`.`a` TO `d1`.`x`, `d1`.`b` TO `d1`.`a`, `d1`.`x` TO `d1`.`b`");
    assert_eq!(event.blocked_tables, Influenced::with_trigger(ids(&[1, 2])));
    let infos: Vec<_> = event.multiple_table_infos.iter().map(|table| table.name.to_string()).collect();
    assert_eq!(infos, ["d1.b", "d1.a"]);
    assert_eq!(names(&core, 1009), listed(&[(1, "d1.a"), (2, "d1.b")]));
    assert_eq!(names(&core, 1010), listed(&[(1, "d1.b"), (2, "d1.a")]));
}

#[test]
fn a_single_tables_change_blocks_its_streams_and_is_not_for_the_trigger() {
    let mut core = two_tables();
    let event = apply(&mut core, &table_job(A::ModifyTableComment, 1010, 20, table(20, "p", &[21, 22])));
    assert_eq!(event.blocked_tables, Influenced::only(ids(&[21, 22])));
    assert!(!event.is_trigger());
    let all = NonZeroUsize::MAX;
    let after = Ts::new(1002);
    let trigger = core.ddls_after(after, all, RESOLVED, DdlEvent::is_trigger).expect("in range");
    assert!(trigger.events.is_empty() && trigger.next == RESOLVED.ts());
    let both = core.ddls_after(after, all, RESOLVED, |_| true).expect("in range");
    assert_eq!(both.events.len(), 1);
}

/// One part of a multi-schema change may make several indexes; their ids are given in statement order.
#[test]
fn made_indexes_are_listed_in_statement_order() {
    let mut core = two_tables();
    let parts = json!([
        {"type": 5, "raw_args": {"column_info": {"id": 2, "name": "c"}}},
        {"type": 7, "raw_args": {"index_args": [{"index_id": 4, "index_name": "u"}, {"index_id": 3}]}},
    ]);
    let rest =
        json!({"multi_schema_info": {"sub_jobs": parts}, "binlog": {"TableInfo": table(10, "t", &[])}});
    let event = apply(&mut core, &job(A::MultiSchemaChange, 1010, 10, rest));
    assert_eq!(event.index_ids.iter().map(|id| id.get()).collect::<Vec<_>>(), [4, 3]);
}

/// Trap 21: kinds of jobs that downstream systems never hear of change the stored schema all the same.
#[test]
fn a_kind_of_job_from_a_later_version_makes_a_version_of_the_table() {
    let mut core = two_tables();
    let mut info = table(10, "t", &[]);
    info["comment"] = json!("later");
    let event = apply(&mut core, &table_job(A::Other(200), 1010, 10, info));
    assert_eq!(event.action.event_name(), None);
    let found = core.table_at(TableId(10), Ts::new(1010), RESOLVED).expect("a version").version;
    assert_eq!(found.info().comment, "later");
}

#[test]
fn dropping_a_database_ends_all_its_physical_tables_without_jobs_of_their_own() {
    let mut core = two_tables();
    let rest = json!({"binlog": {"DBInfo": {"id": 114, "db_name": "d1", "state": 0}}});
    let event = apply(&mut core, &job(A::DropSchema, 1010, 0, rest));
    assert_eq!(event.blocked_tables, Influenced::Schema(SchemaId(114)));
    assert_eq!(event.need_dropped_tables, Influenced::Schema(SchemaId(114)));
    assert_eq!(event.table_name_change.dropped_schema.as_deref(), Some("d1"));
    assert_eq!(names(&core, 1010), []);
    for id in ids(&[10, 21, 22]) {
        assert!(matches!(core.table_at(id, Ts::new(1010), RESOLVED), Err(SchemaError::Deleted { .. })));
        assert_eq!(core.last_table_ddl(id, RESOLVED).map(|ts| ts.get()), Some(1010));
    }
}

/// `reference/tidb-schema-and-ddl.md` §4: the names are empty, the tables keep their ids, no jobs for them.
#[test]
fn a_database_that_is_flashed_back_has_its_tables_again() {
    let dropped = || {
        let mut core = two_tables();
        apply(
            &mut core,
            &job(A::DropSchema, 1010, 0, json!({"binlog": {"DBInfo": {"id": 114, "db_name": "d1"}}})),
        );
        core
    };
    let flashback = |tables: Value| {
        job(
            A::RecoverSchema,
            1020,
            0,
            json!({"schema_name": "", "raw_args": {"recover_info": {"RecoverTableInfos": tables}},
                "binlog": {"DBInfo": {"id": 114, "db_name": {"O": "d1", "L": "d1"}, "state": 5}}}),
        )
    };
    let in_args = json!([{"SchemaID": 114, "TableInfo": table(10, "t", &[])},
        {"SchemaID": 114, "TableInfo": table(20, "p", &[21, 22])}]);
    for tables in [Value::Null, in_args] {
        let mut core = dropped();
        let event = apply(&mut core, &flashback(tables));
        let mut streams = added(&event);
        streams.sort_unstable();
        assert_eq!(streams, ids(&[10, 21, 22]));
        assert_eq!((event.schema_name.as_str(), event.blocked_tables.ids()), ("d1", [].as_slice()));
        assert_eq!(names(&core, 1019), []);
        assert_eq!(names(&core, 1020), listed(&[(10, "d1.t"), (21, "d1.p"), (22, "d1.p")]));
        apply(&mut core, &table_job(A::AddColumn, 1030, 10, table(10, "t", &[])));
    }
    let unknown = empty_core().apply(&flashback(Value::Null));
    assert!(matches!(unknown, Err(SchemaError::UnknownObject { .. })), "to guess would lose tables");
}

#[test]
fn recovering_a_table_lifts_its_delete_mark() {
    let mut core = two_tables();
    apply(&mut core, &table_job(A::DropTable, 1010, 20, table(20, "p", &[21, 22])));
    let event = apply(&mut core, &table_job(A::RecoverTable, 1020, 20, table(20, "p2", &[21, 22])));
    assert_eq!(added(&event), ids(&[21, 22]));
    let at = |ts| core.table_at(TableId(21), Ts::new(ts), RESOLVED);
    assert!(matches!(at(1019), Err(SchemaError::Deleted { .. })));
    assert_eq!(at(1020).expect("a version").version.table(), "p2");
    assert_eq!(at(1009).expect("a version").through, Ts::new(1009), "until just before the drop");
}

/// e1.pt exchanges with e2.nt: both ids change their database.
#[test]
fn an_exchange_across_databases_moves_both_ids() {
    let mut core = two_tables();
    let create = job(
        A::CreateTable,
        1003,
        30,
        json!({"schema_id": 116, "schema_name": "d2", "binlog": {"TableInfo": table(30, "nt", &[])}}),
    );
    apply(&mut core, &create);
    let rest = json!({"schema_id": 116, "binlog": {"TableInfo": table(20, "p", &[30, 22])},
        "raw_args": {"partition_id": 21, "pt_schema_id": 114, "pt_table_id": 20, "partition_name": "p21"}});
    let event = apply(&mut core, &job(A::ExchangePartition, 1010, 30, rest));
    let moved: Vec<_> =
        event.updated_schemas.iter().map(|m| (m.table_id.get(), m.old.get(), m.new.get())).collect();
    assert_eq!(moved, [(21, 114, 116), (30, 116, 114)]);
    assert_eq!(
        event.query,
        "ALTER TABLE `d1`.`p` EXCHANGE PARTITION `p21` WITH TABLE `d2`.`nt` WITHOUT VALIDATION"
    );
    let expected = [(10, "d1.t"), (21, "d2.nt"), (22, "d1.p"), (30, "d1.p")];
    assert_eq!(names(&core, 1010), listed(&expected));
}

#[test]
fn views_are_in_every_tables_list_and_no_physical_tables() {
    let mut core = two_tables();
    let mut view = table(50, "v", &[]);
    view["view"] = json!({"view_select": "select 1"});
    let event = apply(&mut core, &table_job(A::CreateView, 1010, 50, view.clone()));
    assert_eq!(event.blocked_tables, Influenced::All);
    assert!(event.need_added_tables.is_empty());
    for id in ids(&[10, 21]) {
        assert_eq!(core.last_table_ddl(id, RESOLVED).map(|ts| ts.get()), Some(1010));
    }
    assert_eq!(names(&core, 1010).len(), 3);
    let rest = json!({"table_name": "v", "binlog": {"TableInfo": view}});
    let event = apply(&mut core, &job(A::DropView, 1011, 50, rest));
    assert_eq!(
        (event.blocked_tables.clone(), event.query.as_str()),
        (Influenced::with_trigger([]), "DROP VIEW `d1`.`v`")
    );
}

#[test]
fn what_has_no_rows_or_changed_nothing_is_no_event() {
    let mut core = two_tables();
    let mut sequence = table(60, "s", &[]);
    sequence["sequence"] = json!({"sequence_start": 1});
    let quiet = [
        table_job(A::CreateSequence, 1010, 60, sequence),
        job(A::CreatePlacementPolicy, 1011, 0, json!({"schema_id": 9, "schema_name": "pol"})),
        job(A::DropTable, 1012, 99, json!({"binlog": {"SchemaVersion": 0}})),
        job(
            A::CreateTable,
            1013,
            70,
            json!({"schema_name": "MySQL", "binlog": {"TableInfo": table(70, "x", &[])}}),
        ),
        job(A::FlashbackCluster, 1014, 0, json!({"schema_id": 0, "schema_name": ""})),
    ];
    for job in &quiet {
        assert_eq!(core.apply(job).expect("a job that fits"), None, "{:?}", job.job.action);
    }
    assert_eq!(names(&core, 1020).len(), 3);
}

#[test]
fn a_job_is_applied_once_and_never_out_of_order() {
    let mut core = two_tables();
    let comment = table_job(A::ModifyTableComment, 1010, 10, table(10, "t", &[]));
    assert!(core.apply(&comment).expect("a job that fits").is_some());
    assert!(core.apply(&comment).expect("known").is_none(), "the same row again");
    let before_base = table_job(A::CreateTable, 999, 80, table(80, "old", &[]));
    assert!(core.apply(&before_base).expect("in the snapshot").is_none());
    let late = table_job(A::ModifyTableComment, 1005, 10, table(10, "t", &[]));
    assert!(matches!(core.apply(&late), Err(SchemaError::LateJob { .. })));
}

#[test]
fn two_jobs_of_one_timestamp_are_both_applied_and_never_split_over_batches() {
    let mut core = two_tables();
    let first = table_job(A::ModifyTableComment, 1010, 10, table(10, "t", &[]));
    let mut second = table_job(A::ModifyTableComment, 1010, 20, table(20, "p", &[21, 22]));
    second.job.id = tidegate_core::JobId(7);
    apply(&mut core, &first);
    apply(&mut core, &second);
    let one = NonZeroUsize::MIN;
    let batch = core.ddls_after(Ts::new(1002), one, RESOLVED, |_| true).expect("in range");
    assert_eq!((batch.events.len(), batch.next), (2, Ts::new(1010)));
    let batch = core.ddls_after(Ts::new(1001), one, RESOLVED, |_| true).expect("in range");
    assert_eq!(
        (batch.events.len(), batch.next),
        (1, Ts::new(1002)),
        "a full batch goes on after its last event"
    );
    let batch = core.ddls_after(Ts::new(1010), one, RESOLVED, |_| true).expect("in range");
    assert_eq!(
        (batch.events.len(), batch.next),
        (0, RESOLVED.ts()),
        "a partial one at the resolved timestamp"
    );
}

#[test]
fn a_job_about_something_unknown_is_an_error_that_names_it() {
    let mut core = two_tables();
    let error = core.apply(&table_job(A::AddColumn, 1010, 99, table(99, "x", &[]))).expect_err("unknown");
    assert_eq!(
        error.to_string(),
        "DDL job 2010 (AddColumn, finished at 1010) is about table 99, which is not known"
    );
    let mut core = two_tables();
    let lacking = core.apply(&job(A::AddColumn, 1010, 10, json!({"binlog": {"TableInfo": null}})));
    assert!(matches!(lacking, Ok(None)), "no table info: nothing of a table changed");
    let lacking = core.apply(&job(A::TruncateTable, 1011, 10, json!({})));
    assert!(matches!(lacking, Err(SchemaError::IncompleteJob { what: "table info", .. })));
}

#[test]
fn questions_beyond_what_is_known_have_errors_of_their_own() {
    let core = two_tables();
    let resolved = ResolvedTs::new(1005);
    let at = |id, ts| core.table_at(TableId(id), Ts::new(ts), resolved);
    assert!(matches!(at(10, 999), Err(SchemaError::BeforeGc { .. })));
    assert!(matches!(at(10, 1000), Err(SchemaError::NeverExisted { .. })), "not yet created");
    assert!(matches!(at(20, 1005), Err(SchemaError::NeverExisted { .. })), "a logical id has no rows");
    assert!(matches!(at(10, 1006), Err(SchemaError::NotYetResolved { .. })));
    assert!(matches!(at(21, 1005), Ok(found) if found.through == Ts::new(1005)));
    let late = core.table_ddls(TableId(10), Ts::new(1000), Ts::new(1006), resolved);
    assert!(matches!(late, Err(SchemaError::NotYetResolved { .. })));
}

/// What is applied but not resolved is not there for anybody.
#[test]
fn nothing_above_the_resolved_timestamp_is_shown() {
    let mut core = two_tables();
    apply(&mut core, &table_job(A::DropTable, 1010, 10, table(10, "t", &[])));
    apply(&mut core, &table_job(A::TruncatePartition, 1011, 20, table(20, "p", &[23, 22])));
    let resolved = ResolvedTs::new(1009);
    let found = core.table_at(TableId(10), Ts::new(1009), resolved).expect("not dropped yet");
    assert_eq!(found.through, Ts::new(1009));
    let early = core.table_at(TableId(23), Ts::new(1009), resolved);
    assert!(matches!(early, Err(SchemaError::NeverExisted { .. })), "rows may come early, knowledge not");
    let batch = core.ddls_after(Ts::new(1002), NonZeroUsize::MAX, resolved, |_| true).expect("in range");
    assert!(batch.events.is_empty() && batch.next == Ts::new(1009));
    assert_eq!(core.last_table_ddl(TableId(10), resolved).map(|ts| ts.get()), Some(1001));
}
