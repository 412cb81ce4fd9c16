use std::sync::Arc;

use tidegate_codec::ddl::ActionType;
use tidegate_codec::event::{AddedTable, DdlEvent, Influenced, NamedTableInfo, TableName};
use tidegate_contract::schema::{check_definition, check_successor, classify};
use tidegate_core::{CommitTs, SchemaId};
use tidegate_proto::searchfabric::v1::{
    AtomicValue, CollectionSchemaDefinition, SchemaUpdatePolicy, atomic_value, field_data,
};

use super::*;
use crate::error::AdapterError;

/// Columns as `id name Tp Flag Flen charset`; the first is the handle if it is an integer.
fn table(id: i64, name: &str, columns: &[&str], partitions: &[i64]) -> SourceTable {
    let column = |(offset, text): (usize, &&str)| {
        let parts: Vec<&str> = text.split(' ').collect();
        let [id, name, tp, flag, flen, charset] = parts.as_slice() else { panic!("column {text}") };
        format!(
            r#"{{"id":{id},"name":"{name}","offset":{offset},"origin_default":{},"state":5,"type":{{
                "Tp":{tp},"Flag":{flag},"Flen":{flen},"Charset":"{charset}","Collate":"{charset}_bin"}}}}"#,
            if *tp == "8" { "\"7\"" } else { "null" }
        )
    };
    let columns: Vec<String> = columns.iter().enumerate().map(column).collect();
    let partitions: Vec<String> =
        partitions.iter().map(|p| format!(r#"{{"id":{p},"name":"p{p}"}}"#)).collect();
    let partition = if partitions.is_empty() {
        "null".to_owned()
    } else {
        format!(r#"{{"type":2,"enable":true,"definitions":[{}]}}"#, partitions.join(","))
    };
    let json = format!(
        r#"{{"id":{id},"name":"{name}","pk_is_handle":true,"state":5,"cols":[{}],"partition":{partition}}}"#,
        columns.join(",")
    );
    let info = Arc::new(TableInfo::parse(json.as_bytes()).expect("a table"));
    SourceTable { schema: "demo".to_owned(), name: name.to_owned(), info }
}

const ID: &str = "1 id 8 35 20 binary";
const LABEL: &str = "2 label 15 0 128 utf8mb4";

fn resolver() -> SchemaResolver {
    let mut options = AdapterOptions::new(vec!["pd".to_owned()], "gateway");
    options.doc_ids = vec![
        DocIdColumn { table: "demo.configured".to_owned(), column: "uid".to_owned() },
        DocIdColumn { table: "demo.wrong".to_owned(), column: "label".to_owned() },
    ];
    options.text = vec![TextHint {
        column: "demo.hinted.label".to_owned(),
        language: "de".to_owned(),
        path_languages: vec![("ja".to_owned(), "ja".to_owned())],
        keyword: false,
    }];
    SchemaResolver::new(&options)
}

fn roster(ts: u64, disposition: PartitionDisposition) -> Roster {
    Roster {
        ts: Ts::new(ts),
        read_from: HashMap::new(),
        disposition,
        reread: Reread::Nothing,
        context: ReplayContext::default(),
    }
}

fn define(
    table: &SourceTable,
    prev: Option<&CollectionSchemaDefinition>,
    roster: &Roster,
) -> CollectionSchemaDefinition {
    let definition = resolver().define(table, prev, roster).expect("an admissible table");
    check_definition(&definition).expect("a definition that the contract admits");
    if let Some(prev) = prev {
        check_successor(prev, &definition).expect("a step that the contract admits");
    }
    definition
}

fn kept(ts: u64) -> Roster {
    roster(ts, PartitionDisposition::KeepDocuments)
}

fn partitions(definition: &CollectionSchemaDefinition) -> Vec<(&str, u64)> {
    definition.source_partitions.iter().map(|p| (p.source_partition.as_str(), p.start_ts)).collect()
}

#[test]
fn a_table_becomes_a_definition_with_its_partitions_as_streams() {
    let definition = define(&table(7, "emoji", &[ID, LABEL], &[]), None, &kept(100));
    assert_eq!(definition.name, "demo.emoji");
    assert_eq!(definition.doc_id_mapping.as_ref().map(|m| m.source_field.as_str()), Some("id"));
    assert_eq!(partitions(&definition), [("table:7", 99)]);
    let parts = define(&table(8, "airport", &[ID], &[9, 10]), None, &kept(100));
    assert_eq!(partitions(&parts), [("table:9", 99), ("table:10", 99)]);
}

#[test]
fn only_one_unsigned_integer_is_a_document_id() {
    let reason =
        |name: &str, columns: &[&str]| match resolver().define(&table(7, name, columns, &[]), None, &kept(1))
        {
            Err(AdapterError::Inadmissible { reason, .. }) => reason.to_string(),
            other => panic!("{other:?}"),
        };
    // Flags: 1 not null, 2 primary key, 32 unsigned.
    assert!(reason("signed", &["1 id 8 3 20 binary", LABEL]).contains("no document id"));
    assert!(reason("text", &["1 id 15 3 20 utf8mb4"]).contains("no document id"));
    assert!(reason("configured", &[ID, LABEL]).contains("does not exist"));
    assert!(reason("configured", &[ID, "3 uid 8 32 20 binary"]).contains("may be NULL"));
    assert!(reason("configured", &[ID, "3 uid 8 33 20 binary"]).contains("no unique index"));
    assert!(reason("wrong", &[ID, LABEL]).contains("not an unsigned integer"));
}

#[test]
fn a_new_column_says_what_older_documents_hold() {
    let before = define(&table(7, "emoji", &[ID], &[]), None, &kept(100));
    let uses = "3 uses 8 32 20 binary";
    let after = define(&table(7, "emoji", &[ID, LABEL, uses], &[]), Some(&before), &kept(200));
    let fill = |name: &str| {
        let field = after.fields.iter().find(|f| f.name == name).expect("declared");
        match field.fill_value.as_ref()?.value.as_ref()? {
            field_data::Value::AtomicValue(AtomicValue { value }) => value.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fill("id"), None, "it was there before");
    assert!(matches!(fill("label"), Some(atomic_value::Value::NullValue(_))));
    assert_eq!(fill("uses"), Some(atomic_value::Value::Uint64Value(7)), "the column's original default");
    assert_eq!(classify(Some(&before), &after), SchemaUpdatePolicy::Additive);
    // The fill value belongs to the definition from then on, so the next DDL finds no difference.
    let again = define(&table(7, "emoji", &[ID, LABEL, uses], &[]), Some(&after), &kept(300));
    assert!(same_meaning(&after, &again));
}

#[test]
fn a_longer_column_is_not_search_affecting_and_a_rename_is() {
    let before = define(&table(7, "emoji", &[ID, LABEL], &[]), None, &kept(100));
    let longer =
        define(&table(7, "emoji", &[ID, "2 label 15 0 200 utf8mb4"], &[]), Some(&before), &kept(200));
    assert!(same_meaning(&before, &longer));
    let renamed = define(&table(7, "remark", &[ID, LABEL], &[]), Some(&before), &kept(200));
    assert!(!same_meaning(&before, &renamed));
}

#[test]
fn a_truncated_table_retires_its_partitions_with_their_documents() {
    let before = define(&table(8, "airport", &[ID], &[9, 10]), None, &kept(100));
    let truncate = roster(200, PartitionDisposition::DeleteDocuments);
    let after = define(&table(20, "airport", &[ID], &[21, 22]), Some(&before), &truncate);
    assert_eq!(partitions(&after), [("table:21", 199), ("table:22", 199)]);
    let retired: Vec<&str> = after.retired_partitions.iter().map(|p| p.source_partition.as_str()).collect();
    assert_eq!(retired, ["table:10", "table:9"]);
    assert_eq!(classify(Some(&before), &after), SchemaUpdatePolicy::RebuildDocuments);
}

#[test]
fn a_partition_that_stays_keeps_its_start_and_a_new_one_begins_where_its_rows_do() {
    let before = define(&table(8, "airport", &[ID], &[9, 10]), None, &kept(100));
    let mut truncate = roster(200, PartitionDisposition::DeleteDocuments);
    truncate.read_from.insert(TableId(11), StartTs::new(190));
    let after = define(&table(8, "airport", &[ID], &[9, 11]), Some(&before), &truncate);
    assert_eq!(partitions(&after), [("table:9", 99), ("table:11", 190)]);
}

#[test]
fn a_rewritten_column_is_seen_by_its_name_or_by_the_one_it_replaces() {
    let before = define(&table(7, "emoji", &[ID, LABEL], &[]), None, &kept(100));
    let after = define(&table(7, "emoji", &[ID, "5 label 15 0 10 utf8mb4"], &[]), Some(&before), &kept(200));
    let label = after.fields.iter().find(|f| f.name == "label").expect("declared");
    assert_eq!(label.fill_value, None, "documents get it when their rows are read again");
    let seen = |columns: &[&str], reread: Reread| {
        let (table, roster) = (table(7, "emoji", columns, &[]), Roster { reread, ..kept(200) });
        let after = define(&table, Some(&before), &roster);
        let rewritten = after.fields.iter().filter(|f| is_rewritten(&before, f, &table, &roster));
        rewritten.map(|f| f.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(seen(&[ID, "5 label 15 0 10 utf8mb4"], Reread::Replacing), ["label"]);
    assert_eq!(seen(&[ID, "5 title 15 0 10 utf8mb4"], Reread::Replacing), ["title"]);
    assert_eq!(
        seen(&[ID, "5 title 15 0 10 utf8mb4"], Reread::Nothing),
        [""; 0],
        "dropped, and later another added"
    );
    assert_eq!(seen(&[ID, LABEL, "5 title 15 0 10 utf8mb4"], Reread::Replacing), [""; 0], "only added");
    assert_eq!(seen(&[ID, "2 title 15 0 10 utf8mb4"], Reread::Replacing), [""; 0], "only renamed");
}

#[test]
fn text_hints_reach_the_definition() {
    let definition = define(&table(7, "hinted", &[ID, LABEL], &[]), None, &kept(100));
    let text =
        definition.fields.iter().find(|f| f.name == "label").and_then(|f| f.text.clone()).expect("text");
    assert_eq!(
        (text.language.as_str(), text.path_languages.get("ja").map(String::as_str)),
        ("de", Some("ja"))
    );
}

fn event(action: ActionType, table: &SourceTable) -> DdlEvent {
    DdlEvent {
        action,
        schema_name: table.schema.clone(),
        table_id: table.info.id,
        table_name: table.name.clone(),
        finished_ts: CommitTs::new(500),
        table_info: Some(Arc::clone(&table.info)),
        query: "some ddl".to_owned(),
        ..DdlEvent::default()
    }
}

#[test]
fn ddl_says_what_becomes_of_tables_partitions_and_documents() {
    use PartitionDisposition::{DeleteDocuments, KeepDocuments};
    let emoji = table(7, "emoji", &[ID], &[]);
    let cases = [
        (ActionType::AddColumn, None, KeepDocuments),
        (ActionType::DropColumn, None, KeepDocuments),
        (ActionType::TruncateTable, Some(TableId(6)), DeleteDocuments),
        (ActionType::DropPartition, None, DeleteDocuments),
        (ActionType::TruncatePartition, None, DeleteDocuments),
        (ActionType::AddPartition, None, KeepDocuments),
        (ActionType::ReorganizePartition, None, KeepDocuments),
        (ActionType::RemovePartitioning, Some(TableId(6)), KeepDocuments),
        (ActionType::RenameTable, None, KeepDocuments),
        (ActionType::RecoverTable, None, KeepDocuments),
    ];
    for (action, replaced, disposition) in cases {
        let mut event = event(action, &emoji);
        event.other = Some(TableName { table_id: TableId(6), ..TableName::default() });
        event.need_added_tables = vec![AddedTable {
            schema_id: SchemaId(1),
            table_id: TableId(7),
            splittable: true,
            read_from: StartTs::new(450),
        }];
        let changes = changes(&event).expect("supported");
        let [TableChange::Now { replaces, roster, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        let expect = (replaced, disposition, Reread::Nothing);
        assert_eq!((*replaces, roster.disposition, roster.reread), expect, "{action:?}");
        assert_eq!(roster.read_from.get(&TableId(7)), Some(&StartTs::new(450)));
        assert_eq!((roster.ts, roster.context.ddl_query.as_str()), (Ts::new(500), "some ddl"));
    }
}

#[test]
fn drops_name_what_is_gone() {
    let emoji = table(7, "emoji", &[ID], &[]);
    let dropped = changes(&event(ActionType::DropTable, &emoji)).expect("supported");
    assert!(matches!(dropped.as_slice(), [TableChange::Dropped(TableId(7))]));
    let schema = changes(&event(ActionType::DropSchema, &emoji)).expect("supported");
    assert!(matches!(schema.as_slice(), [TableChange::SchemaDropped(name)] if name == "demo"));
}

#[test]
fn an_exchange_swaps_the_ids_of_a_partition_and_a_table() {
    let parts = table(8, "parts", &[ID], &[7, 10]);
    let normal = table(7, "normal", &[ID], &[]);
    let mut event = event(ActionType::ExchangePartition, &normal);
    event.table_info = None;
    let named = |t: &SourceTable| NamedTableInfo {
        name: TableName { schema: t.schema.clone(), table: t.name.clone(), ..TableName::default() },
        info: Arc::clone(&t.info),
    };
    // The partitioned table after the exchange, the normal one before it; partition 9 was exchanged.
    event.multiple_table_infos = vec![named(&parts), named(&normal)];
    event.blocked_tables = Influenced::with_trigger([TableId(7), TableId(9)]);
    let changes = changes(&event).expect("supported");
    let seen: Vec<_> = changes
        .iter()
        .map(|change| match change {
            TableChange::Now { table, replaces, roster } => {
                assert_eq!(
                    (roster.disposition, roster.reread),
                    (PartitionDisposition::DeleteDocuments, Reread::Added)
                );
                (table.name.as_str(), table.info.id, table.info.physical_ids(), *replaces)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let ids = |ids: &[i64]| ids.iter().copied().map(TableId).collect::<Vec<_>>();
    assert_eq!(
        seen,
        [("parts", TableId(8), ids(&[7, 10]), None), ("normal", TableId(9), ids(&[9]), Some(TableId(7))),]
    );
}

#[test]
fn a_cluster_that_turns_back_is_refused_and_objects_without_rows_are_nothing() {
    let emoji = table(7, "emoji", &[ID], &[]);
    let refused = changes(&event(ActionType::FlashbackCluster, &emoji));
    assert!(matches!(refused, Err(AdapterError::Unsupported { .. })));
    let mut view = emoji.clone();
    view.info = Arc::new(TableInfo::parse(br#"{"id":9,"name":"v","view":{}}"#).expect("a view"));
    assert!(changes(&event(ActionType::CreateView, &view)).expect("nothing to do").is_empty());
    let mut temporary = (*emoji.info).clone();
    temporary.temp_table_type = 1;
    let temporary = SourceTable { info: Arc::new(temporary), ..emoji };
    assert!(changes(&event(ActionType::CreateTable, &temporary)).expect("nothing to do").is_empty());
}
