//! The worked example of `reference/tidb-schema-and-ddl.md` §8.5, with job n done at timestamp 1000 + n.

use std::num::NonZeroUsize;

use serde_json::json;
use tidegate_codec::{
    ddl::ActionType,
    event::{DdlEvent, Influenced},
};
use tidegate_core::{ResolvedTs, TableId, Ts};

use super::SchemaCore;
use crate::{
    SchemaError,
    testing::{empty_core, ids, job, table, table_job},
};

const RESOLVED: ResolvedTs = ResolvedTs::new(1100);

fn example() -> (SchemaCore, Vec<DdlEvent>) {
    use ActionType as A;
    let exchange = json!({
        "binlog": {"TableInfo": table(168, "p", &[175, 173])},
        "raw_args": {"partition_id": 169, "pt_schema_id": 114, "pt_table_id": 168, "partition_name": "p0",
            "with_validation": true},
    });
    let mut nt = table(175, "nt", &[]);
    nt["cols"] = json!([{"id": 1, "name": "only_nt", "type": {"Tp": 3, "Flag": 4099}, "state": 5}]);
    let jobs = [
        table_job(A::CreateTable, 1001, 158, table(158, "p", &[159, 160])),
        table_job(A::AddPartition, 1002, 158, table(158, "p", &[159, 160, 162, 163])),
        table_job(A::DropPartition, 1003, 158, table(158, "p", &[159, 160, 162])),
        table_job(A::TruncatePartition, 1004, 158, table(158, "p", &[166, 160, 162])),
        table_job(A::TruncateTable, 1005, 158, table(168, "p", &[169, 170, 171])),
        table_job(A::ReorganizePartition, 1006, 168, table(168, "p", &[169, 173])),
        table_job(A::CreateTable, 1007, 175, nt),
        job(A::ExchangePartition, 1008, 175, exchange),
        table_job(A::RemovePartitioning, 1009, 168, table(178, "p", &[])),
        table_job(A::AlterTablePartitioning, 1010, 178, table(183, "p", &[180, 181, 182])),
        table_job(A::AlterTablePartitioning, 1011, 183, table(187, "p", &[185, 186])),
        table_job(A::DropTable, 1012, 187, table(187, "p", &[185, 186])),
    ];
    let mut core = empty_core();
    let mut events = Vec::new();
    for job in &jobs {
        let event = core.apply(job).expect("a job that fits").expect("an event");
        events.push((*event).clone());
    }
    (core, events)
}

fn event(events: &[DdlEvent], number: u64) -> &DdlEvent {
    events.iter().find(|event| event.finished_ts.get() == 1000 + number).expect("a job of the example")
}

fn added(event: &DdlEvent) -> Vec<TableId> {
    event.need_added_tables.iter().map(|table| table.table_id).collect()
}

#[test]
fn every_job_is_in_the_trigger_history() {
    let (core, _) = example();
    let all = NonZeroUsize::new(100).expect("not zero");
    let batch = core.ddls_after(Ts::new(1000), all, RESOLVED, DdlEvent::is_trigger).expect("in range");
    let numbers: Vec<u64> = batch.events.iter().map(|event| event.finished_ts.get() - 1000).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
    assert_eq!(batch.next, RESOLVED.ts());
}

#[test]
fn each_physical_table_has_the_history_of_the_example() {
    let (core, _) = example();
    let histories: [(&[i64], &[u64]); 14] = [
        (&[159], &[1, 2, 3, 4]),
        (&[160], &[1, 2, 3, 4, 5]),
        (&[162], &[2, 3, 4, 5]),
        (&[163], &[2, 3]),
        (&[166], &[4, 5]),
        (&[169], &[5, 6, 8]),
        (&[170], &[5, 6]),
        (&[171], &[5, 6]),
        (&[173], &[6, 9]),
        (&[175], &[7, 8, 9]),
        (&[178], &[9, 10]),
        (&[180, 181, 182], &[10, 11]),
        (&[185, 186], &[11, 12]),
        (&[158, 168, 183, 187], &[]),
    ];
    for (tables, numbers) in histories {
        for id in tables {
            let events =
                core.table_ddls(TableId(*id), Ts::new(1000), Ts::new(1100), RESOLVED).expect("in range");
            let found: Vec<u64> = events.iter().map(|event| event.finished_ts.get() - 1000).collect();
            assert_eq!(found, numbers, "table {id}");
        }
    }
}

/// What `id` looks like after job `number`: the version's job, name, logical id and first column.
fn version(core: &SchemaCore, id: i64, number: u64) -> Result<(u64, String, i64, String), SchemaError> {
    let found = core.table_at(TableId(id), Ts::new(1000 + number), RESOLVED)?.version;
    let column = found.info().columns.first().map(|column| column.name.to_string()).unwrap_or_default();
    Ok((found.from.get() - 1000, found.table().to_owned(), found.info().id.get(), column))
}

#[test]
fn each_physical_table_has_the_versions_of_the_example() {
    let (core, _) = example();
    let of_p = |from: u64, logical: i64| (from, "p".to_owned(), logical, "id".to_owned());
    let deleted = |id: i64, number: u64| match version(&core, id, number) {
        Err(SchemaError::Deleted { at, .. }) => at.get() - 1000,
        other => unreachable!("table {id} is not deleted but {other:?}"),
    };
    let at = |id, number| version(&core, id, number).expect("a version");
    for number in 1..=3 {
        assert_eq!(at(159, number), of_p(number, 158));
    }
    assert_eq!((deleted(159, 4), deleted(160, 5), deleted(163, 3)), (4, 5, 3));
    assert_eq!((at(160, 4), at(163, 2)), (of_p(4, 158), of_p(2, 158)));
    assert_eq!((at(169, 5), at(169, 7)), (of_p(5, 168), of_p(6, 168)));
    let outside = (8, "nt".to_owned(), 169, "only_nt".to_owned());
    assert_eq!(at(169, 8), outside, "the partition's id has the normal table's columns now");
    assert_eq!(at(169, 12), outside);
    assert_eq!(at(175, 7), (7, "nt".to_owned(), 175, "only_nt".to_owned()));
    assert_eq!(at(175, 8), of_p(8, 168), "the normal table's id is a partition now");
    assert_eq!(at(173, 8), of_p(6, 168), "the exchange does not touch other partitions");
    assert_eq!((deleted(175, 9), deleted(173, 9), deleted(178, 10)), (9, 9, 10));
    assert_eq!(at(178, 9), of_p(9, 178));
}

#[test]
fn the_physical_tables_are_those_of_the_example() {
    let (core, _) = example();
    let tables = |number: u64| {
        let tables = core.physical_tables_at(Ts::new(1000 + number), RESOLVED).expect("in range");
        tables.into_iter().map(|table| (table.id.get(), table.table)).collect::<Vec<_>>()
    };
    let named = |tables: &[(i64, &str)]| {
        tables.iter().map(|(id, name)| (*id, (*name).to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(tables(0), []);
    assert_eq!(tables(7), named(&[(169, "p"), (173, "p"), (175, "nt")]));
    assert_eq!(tables(8), named(&[(169, "nt"), (173, "p"), (175, "p")]));
    assert_eq!(tables(9), named(&[(169, "nt"), (178, "p")]));
    assert_eq!(tables(12), named(&[(169, "nt")]));
}

#[test]
fn the_events_influence_the_tables_of_the_example() {
    let (_, events) = example();
    let exchange = event(&events, 8);
    assert_eq!(exchange.blocked_tables, Influenced::with_trigger(ids(&[175, 169])));
    assert_eq!(exchange.need_dropped_tables, Influenced::Nothing);
    assert!(exchange.need_added_tables.is_empty() && exchange.updated_schemas.is_empty());
    let names: Vec<_> = exchange.multiple_table_infos.iter().map(|table| table.name.table.as_str()).collect();
    assert_eq!(names, ["p", "nt"]);

    let reorganize = event(&events, 6);
    assert_eq!(reorganize.blocked_tables, Influenced::with_trigger(ids(&[169, 170, 171])));
    assert_eq!(reorganize.need_dropped_tables, Influenced::only(ids(&[170, 171])));
    assert_eq!(added(reorganize), ids(&[173]));

    let remove = event(&events, 9);
    assert_eq!(remove.blocked_tables, Influenced::with_trigger(ids(&[175, 173])));
    assert_eq!(remove.need_dropped_tables, Influenced::only(ids(&[175, 173])));
    assert_eq!(added(remove), ids(&[178]));

    let truncate = event(&events, 5);
    assert_eq!(truncate.blocked_tables, Influenced::with_trigger(ids(&[166, 160, 162])));
    assert_eq!(truncate.need_dropped_tables, Influenced::only(ids(&[166, 160, 162])));
    assert_eq!(added(truncate), ids(&[169, 170, 171]));
}

/// `reference/tidb-schema-and-ddl.md` §5.2: 29 of 64 rows came before the job was done.
#[test]
fn rows_of_a_truncated_partition_are_readable_from_the_jobs_own_start() {
    let (core, events) = example();
    let truncate = event(&events, 4);
    assert_eq!(added(truncate), ids(&[166]));
    let read_from = truncate.need_added_tables.first().expect("one").read_from;
    assert_eq!(read_from.get(), 904, "one hundred before it was done, as the job says");
    // The base is at 1000: the row may be older than all the store knows, but its table did exist.
    for ts in [904, 999, 1003] {
        let found = core.table_at(TableId(166), Ts::new(ts), RESOLVED).expect("a version").version;
        assert_eq!((found.from.get(), found.rows_from.get()), (1004, 904));
    }
    let too_early = core.table_at(TableId(166), Ts::new(903), RESOLVED);
    assert!(matches!(too_early, Err(SchemaError::BeforeGc { .. })));
    let listed = core.physical_tables_at(Ts::new(1003), RESOLVED).expect("in range");
    assert!(listed.iter().all(|table| table.id != TableId(166)), "it exists only once the job is done");
    // Of other partition DDLs the new ids begin with the job: what was written before is a copy.
    let reorganized = core.table_at(TableId(173), Ts::new(1005), RESOLVED);
    assert!(matches!(reorganized, Err(SchemaError::NeverExisted { .. })));
    assert_eq!(event(&events, 6).need_added_tables.first().expect("one").read_from.get(), 1006);
}
