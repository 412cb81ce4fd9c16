//! Schema generations, renames, truncation, drops.

use std::collections::BTreeMap;

use tidegate_proto::searchfabric::v1::*;

use crate::support::*;

async fn fields_of(world: &World, name: &str, id: u64) -> Option<serde_json::Value> {
    let got = world.fabric.query().get(name, id, Default::default()).await.unwrap();
    got.document.map(|document| serde_json::Value::Object(document.fields))
}

async fn count(world: &World, filter: &str) -> u64 {
    let filter = tidegate_fabric::query::request::Filter::parse(filter).expect("a filter");
    world.fabric.query().count("shop.item", None, Some(filter), Default::default()).await.unwrap().count
}

/// `small` with a `colour` that older documents hold as `unknown`.
fn with_colour(name: &str) -> CollectionSchemaDefinition {
    let mut next = small(&["table:7"]);
    let colour = searchable(scalar(3, name, ScalarFieldType::String), true);
    next.fields.push(FieldSchema { fill_value: Some(text("unknown")), ..colour });
    next
}

#[tokio::test]
async fn a_new_column_shows_its_default_in_old_documents_and_a_renamed_one_keeps_its_values() {
    let mut world = World::new().await;
    let first = world.put(put("t7", 10, None, small(&["table:7"]))).await.unwrap();
    let mut producer = Producer::new("t7", "table:7", &first);
    let entries = vec![producer.upsert(1, 20, item(1, "old")), progress(29)];
    world.send_one(producer.batch(entries)).await.expect("applied");

    let second = world.put(put("t7", 30, Some(&first), with_colour("colour"))).await.unwrap();
    assert_eq!(second.update_policy(), SchemaUpdatePolicy::Additive);
    let new = Producer::new("t7", "table:7", &second);
    (producer.token, producer.schema_version) = (new.token, new.schema_version);
    let mut fields = item(2, "new");
    fields.insert("colour".to_owned(), text("red"));
    let entries = vec![producer.upsert(2, 40, fields)];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let old = serde_json::json!({"id": 1, "title": "old", "colour": "unknown"});
    assert_eq!(fields_of(&world, "shop.item", 1).await, Some(old));
    assert_eq!((count(&world, "colour = unknown").await, count(&world, "colour = red").await), (1, 1));

    let mut renamed = with_colour("tint");
    renamed.fields[2].fill_value = None;
    let third = world.put(put("t7", 50, Some(&second), renamed)).await.unwrap();
    assert_eq!((count(&world, "tint = unknown").await, count(&world, "tint = red").await), (1, 1));

    let fourth = world.put(put("t7", 60, Some(&third), small(&["table:7"]))).await.unwrap();
    assert_eq!(fourth.update_policy(), SchemaUpdatePolicy::RebuildFields);
    assert_eq!(fields_of(&world, "shop.item", 2).await, Some(serde_json::json!({"id": 2, "title": "new"})));
}

#[tokio::test]
async fn a_batch_under_an_ended_generation_is_good_up_to_the_ddl_and_refused_beyond() {
    let mut world = World::new().await;
    let first = world.put(put("t7", 10, None, small(&["table:7"]))).await.unwrap();
    let second = world.put(put("t7", 30, Some(&first), with_colour("colour"))).await.unwrap();
    let mut producer = Producer::new("t7", "table:7", &first);
    let entries = vec![producer.upsert(1, 30, item(1, "a"))];
    world.send_one(producer.batch(entries)).await.expect("at the DDL's own timestamp the old schema holds");
    let entries = vec![producer.upsert(2, 31, item(2, "b"))];
    let failure = world.send_one(producer.batch(entries)).await.expect_err("beyond");
    assert_eq!(failure.error.unwrap().code(), SfErrorCode::SfSchemaGenerationInvalidated);
    assert_eq!(failure.invalidated_at_commit_ts, Some(30));
    assert_eq!(failure.active_schema_generation_token, second.schema_generation_token);

    let again = Producer::new("t7", "table:7", &second);
    let mut new = Producer { epoch: 2, ..again };
    let entries = vec![new.upsert(3, 30, item(3, "read again at the DDL"))];
    world.send_one(new.batch(entries)).await.expect("the DDL's own timestamp belongs to both");
    let entries = vec![new.upsert(4, 29, item(4, "before the DDL"))];
    let failure = world.send_one(new.batch(entries)).await.expect_err("of the old generation");
    assert_eq!(failure.error.unwrap().code(), SfErrorCode::SfOrderViolation);
}

#[tokio::test]
async fn a_replayed_schema_change_is_the_same_and_one_from_another_state_is_refused() {
    let mut world = World::new().await;
    let request = put("t7", 10, None, small(&["table:7"]));
    let first = world.put(request.clone()).await.unwrap();
    let second = put("t7", 30, Some(&first), with_colour("colour"));
    world.put(second.clone()).await.unwrap();
    let again = world.catalog.put_collection_schema(request.clone()).await.unwrap().into_inner();
    assert_eq!((again.replayed, again.generation), (true, Some(first.clone())));

    let mut other = request;
    other.definition.as_mut().unwrap().name = "shop.other".to_owned();
    let status = world.put(other).await.expect_err("other content");
    assert_eq!(code(&status).0, SfErrorCode::SfIdempotencyConflict);

    let late = put("t7", 40, Some(&first), with_colour("colour"));
    let status = world.put(late).await.expect_err("the catalogue moved on");
    assert_eq!(code(&status).0, SfErrorCode::SfSchemaFenceMismatch);

    let mut wrong = put("t8", 10, None, small(&["table:8"]));
    wrong.update_policy = SchemaUpdatePolicy::Additive.into();
    let status = world.put(wrong).await.expect_err("the first generation is an initial creation");
    assert_eq!(code(&status).0, SfErrorCode::SfUpdatePolicyMismatch);
}

#[tokio::test]
async fn a_renamed_collection_keeps_its_documents_under_the_new_name() {
    let mut world = World::new().await;
    let first = world.put(put("t7", 10, None, small(&["table:7"]))).await.unwrap();
    let mut producer = Producer::new("t7", "table:7", &first);
    let entries = vec![producer.upsert(1, 20, item(1, "a"))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let renamed = CollectionSchemaDefinition { name: "shop.article".to_owned(), ..small(&["table:7"]) };
    world.put(put("t7", 30, Some(&first), renamed)).await.unwrap();
    assert!(fields_of(&world, "shop.article", 1).await.is_some());
    let gone = world.fabric.query().get("shop.item", 1, Default::default()).await;
    assert!(matches!(gone, Err(tidegate_fabric::QueryError::CollectionNotFound(_))));
}

#[tokio::test]
async fn truncation_deletes_what_the_retired_partition_wrote_and_its_replay_changes_nothing() {
    let mut world = World::new().await;
    let first = world.put(put("t7", 10, None, small(&["table:7", "table:8"]))).await.unwrap();
    let mut gone = Producer::new("t7", "table:7", &first);
    let mut kept = Producer::new("t7", "table:8", &first);
    let entries = vec![gone.upsert(1, 20, item(1, "truncated")), gone.upsert(2, 20, item(2, "truncated"))];
    let truncated = gone.batch(entries);
    world.send_one(truncated.clone()).await.expect("applied");
    let entries = vec![kept.upsert(3, 20, item(3, "kept"))];
    world.send_one(kept.batch(entries)).await.expect("applied");

    let mut next = small(&["table:8", "table:9"]);
    next.retired_partitions = vec![RetiredPartition {
        source_partition: "table:7".to_owned(),
        disposition: PartitionDisposition::DeleteDocuments.into(),
    }];
    let second = world.put(put("t7", 30, Some(&first), next)).await.unwrap();
    assert_eq!(second.update_policy(), SchemaUpdatePolicy::RebuildDocuments);
    let expected = BTreeMap::from([(3, "kept".to_owned())]);
    assert_eq!(world.items().await, expected);

    let mut replay = Producer { epoch: 2, next_seq: 1, ..gone.clone() };
    let entries = vec![replay.upsert(1, 20, item(1, "truncated"))];
    let success = world.send_one(replay.batch(entries)).await.expect("acknowledged");
    assert_eq!((success.rows_applied, success.rows_superseded), (0, 1));
    let mut new = Producer::new("t7", "table:9", &second);
    let entries = vec![new.upsert(1, 40, item(1, "after"))];
    world.send_one(new.batch(entries)).await.expect("applied");
    assert_eq!(world.items().await.get(&1).map(String::as_str), Some("after"));
    let entries = vec![replay.upsert(2, 31, item(2, "too late"))];
    let beyond = Producer { token: second.schema_generation_token, schema_version: 2, ..replay.clone() };
    let batch = Producer { next_seq: 2, ..beyond }.batch(entries);
    let failure = world.send_one(batch).await.expect_err("retired");
    assert!(failure.error.is_some());
}

#[tokio::test]
async fn a_dropped_collection_is_gone_for_good_and_its_name_is_free() {
    let mut world = World::new().await;
    let first = world.put(put("t7", 10, None, small(&["table:7"]))).await.unwrap();
    let mut producer = Producer::new("t7", "table:7", &first);
    let entries = vec![producer.upsert(1, 20, item(1, "a"))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let request = DropCollectionRequest {
        meta: Some(meta(ClientKind::TidbDdlAdapter, "drop-t7")),
        scope: Some(SchemaScope { collection: Some(reference("t7")), ddl_commit_ts: 30 }),
        fence: Some(SchemaFence {
            expected_prev_schema_version: 1,
            schema_generation_token: first.schema_generation_token.clone(),
            enforce_monotonic_apply: true,
        }),
    };
    let dropped = world.catalog.drop_collection(request.clone()).await.unwrap().into_inner();
    assert_eq!((dropped.dropped_at_ts, dropped.replayed), (30, false));
    let again = world.catalog.drop_collection(request).await.unwrap().into_inner();
    assert_eq!((again.dropped_at_ts, again.replayed), (30, true));
    let entries = vec![producer.upsert(2, 21, item(2, "b"))];
    let failure = world.send_one(producer.batch(entries)).await.expect_err("dropped");
    assert_eq!(failure.error.unwrap().code(), SfErrorCode::SfCollectionDropped);
    let status = world.put(put("t7", 40, Some(&first), small(&["table:7"]))).await.expect_err("dropped");
    assert_eq!(code(&status).0, SfErrorCode::SfCollectionDropped);

    world.put(put("t8", 50, None, small(&["table:8"]))).await.unwrap();
    assert_eq!(world.items().await, BTreeMap::new());
    let list = ListCollectionsRequest { namespace: NAMESPACE.to_owned(), include_dropped: true };
    let list = world.catalog.list_collections(list).await.unwrap().into_inner().collections;
    let states: Vec<_> = list.iter().map(|c| (c.name.as_str(), c.state())).collect();
    let expected = [("shop.item", CollectionState::Dropped), ("shop.item", CollectionState::Active)];
    assert_eq!(states, expected);
}
