//! Epochs, sequence numbers, receipts, versions, watermarks.

use std::collections::BTreeMap;

use tidegate_proto::searchfabric::v1::*;

use crate::support::*;

fn refusal(result: Result<MutationSuccess, MutationFailure>) -> (SfErrorCode, MutationFailure) {
    let failure = result.expect_err("refused");
    (failure.error.as_ref().expect("a reason").code(), failure)
}

fn items(expected: &[(u64, &str)]) -> BTreeMap<u64, String> {
    expected.iter().map(|(id, title)| (*id, (*title).to_owned())).collect()
}

#[tokio::test]
async fn an_acknowledged_batch_is_durable_visible_and_counted() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let entries = vec![
        producer.upsert(1, 20, item(1, "red apple")),
        producer.upsert(2, 21, item(2, "green pear")),
        progress(30),
    ];
    let success = world.send_one(producer.batch(entries)).await.expect("applied");
    let cursor = StreamCursor {
        source_partition: "table:7".to_owned(),
        source_epoch: 1,
        source_seq: 3,
        commit_ts: 30,
    };
    assert_eq!(success.acked_cursor, Some(cursor));
    assert_eq!((success.rows_applied, success.rows_superseded, success.acked_resolved_ts), (2, 0, 30));
    let mark = ModalityWatermark { modality: Modality::FullText.into(), applied_ts: 30 };
    assert_eq!(success.applied_watermarks, [mark]);
    assert_eq!(world.items().await, items(&[(1, "red apple"), (2, "green pear")]));
    let freshness = world.freshness("shop.item").await;
    assert_eq!((freshness.safe_ts, freshness.completeness.map(|c| c.complete)), (30, Some(true)));
}

#[tokio::test]
async fn the_highest_version_wins_and_a_delete_stays() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let first =
        vec![producer.upsert(1, 25, item(1, "new")), delete(2, 25), producer.upsert(3, 25, item(3, "x"))];
    world.send_one(producer.batch(first)).await.expect("applied");
    let second = vec![
        producer.upsert(1, 24, item(1, "old")),
        producer.upsert(2, 24, item(2, "resurrected")),
        delete(3, 26),
    ];
    let success = world.send_one(producer.batch(second)).await.expect("applied");
    assert_eq!((success.rows_applied, success.rows_superseded), (1, 2));
    assert_eq!(world.items().await, items(&[(1, "new")]));
}

#[tokio::test]
async fn a_replay_below_the_watermark_does_not_resurrect_after_the_tombstone_is_forgotten() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let first = vec![producer.upsert(1, 20, item(1, "a")), delete(1, 21), progress(30)];
    world.send_one(producer.batch(first)).await.expect("applied");
    // The watermark has passed the delete; the next progress forgets its tombstone.
    world.send_one(producer.batch(vec![progress(31)])).await.expect("applied");
    let status = world.fabric.query().status();
    assert_eq!(status.collections[0].tombstones, 0);
    producer.epoch = 2;
    producer.next_seq = 1;
    let replay = vec![producer.upsert(1, 20, item(1, "a")), delete(1, 21)];
    let success = world.send_one(producer.batch(replay)).await.expect("acknowledged");
    assert_eq!((success.rows_applied, success.rows_superseded), (0, 2));
    assert_eq!(world.items().await, items(&[]));
}

#[tokio::test]
async fn a_stale_epoch_is_refused_and_told_the_current_one() {
    let mut world = World::new().await;
    let mut old = world.create("t7", small(&["table:7"])).await;
    let mut new = Producer { epoch: 2, ..old.clone() };
    let entries = vec![new.upsert(1, 20, item(1, "new writer"))];
    world.send_one(new.batch(entries)).await.expect("applied");
    let entries = vec![old.upsert(1, 22, item(1, "old writer"))];
    let (code, failure) = refusal(world.send_one(old.batch(entries)).await);
    assert_eq!((code, failure.current_source_epoch), (SfErrorCode::SfStaleEpoch, 2));
    assert_eq!(world.items().await, items(&[(1, "new writer")]));
}

#[tokio::test]
async fn a_gap_is_refused_with_the_cursor_to_restart_from_and_so_is_what_follows() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let entries = vec![producer.upsert(1, 20, item(1, "a")), producer.upsert(2, 20, item(2, "b"))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let lost = producer.clone();
    let entries = vec![producer.upsert(3, 21, item(3, "c"))];
    let _lost_on_the_way = producer.batch(entries);
    let entries = vec![producer.upsert(4, 22, item(4, "d"))];
    let fourth = producer.batch(entries);
    let entries = vec![producer.upsert(5, 23, item(5, "e"))];
    let fifth = producer.batch(entries);
    for ack in world.send(vec![fourth, fifth]).await {
        let (code, failure) = refusal(outcome(ack));
        assert_eq!(code, SfErrorCode::SfSequenceGap);
        assert_eq!(failure.restart_cursor.map(|cursor| cursor.source_seq), Some(lost.next_seq - 1));
    }
}

#[tokio::test]
async fn a_repeated_batch_gets_its_first_receipt_and_the_same_key_with_other_content_is_refused() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let entries = vec![producer.upsert(1, 20, item(1, "a")), progress(30)];
    let batch = producer.batch(entries);
    let first = world.send_one(batch.clone()).await.expect("applied");
    let later = vec![producer.upsert(1, 40, item(1, "b"))];
    world.send_one(producer.batch(later)).await.expect("applied");
    let again = world.send_one(batch.clone()).await.expect("the receipt");
    assert_eq!(again, MutationSuccess { replayed: true, ..first });
    let mut other = batch;
    other.entries.push(progress(31));
    let (code, _) = refusal(world.send_one(seal(other)).await);
    assert_eq!(code, SfErrorCode::SfIdempotencyConflict);
    assert_eq!(world.items().await, items(&[(1, "b")]));
}

#[tokio::test]
async fn one_version_with_two_contents_is_refused_as_a_whole_and_raises_an_alarm() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let entries = vec![producer.upsert(1, 20, item(1, "a"))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let entries = vec![producer.upsert(2, 21, item(2, "b")), producer.upsert(1, 20, item(1, "other"))];
    let (code, failure) = refusal(world.send_one(producer.batch(entries)).await);
    assert_eq!(code, SfErrorCode::SfVersionConflict);
    assert_eq!(failure.error.unwrap().field_path, "entries[1].row_mutation.commit_ts");
    assert_eq!(world.items().await, items(&[(1, "a")]));
    let completeness = world.freshness("shop.item").await.completeness.unwrap();
    assert_eq!((completeness.complete, completeness.version_conflicts), (false, 1));
    assert!(world.fabric.query().events(0, 100).iter().any(|event| event.kind == "conflict"));
}

#[tokio::test]
async fn a_row_that_moves_between_partitions_survives_whichever_half_comes_first() {
    for delete_first in [true, false] {
        let mut world = World::new().await;
        let mut left = world.create("t7", small(&["table:7", "table:8"])).await;
        let mut right = Producer { partition: "table:8".to_owned(), ..left.clone() };
        let entries = vec![left.upsert(1, 20, item(1, "here"))];
        world.send_one(left.batch(entries)).await.expect("applied");
        let removed = left.batch(vec![delete(1, 25)]);
        let entries = vec![right.upsert(1, 25, item(1, "there"))];
        let inserted = right.batch(entries);
        let halves = if delete_first { [removed, inserted] } else { [inserted, removed] };
        for half in halves {
            world.send_one(half).await.expect("applied");
        }
        assert_eq!(world.items().await, items(&[(1, "there")]), "delete first: {delete_first}");
    }
}

#[tokio::test]
async fn safe_ts_waits_for_the_slowest_partition() {
    let mut world = World::new().await;
    let mut left = world.create("t7", small(&["table:7", "table:8"])).await;
    let mut right = Producer { partition: "table:8".to_owned(), ..left.clone() };
    world.send_one(left.batch(vec![progress(50)])).await.expect("applied");
    // The silent partition counts as applied up to just below the DDL (10) that brought it in.
    let freshness = world.freshness("shop.item").await;
    assert_eq!((freshness.safe_ts, freshness.completeness.map(|c| c.complete)), (9, Some(false)));
    world.send_one(right.batch(vec![progress(40)])).await.expect("applied");
    assert_eq!(world.freshness("shop.item").await.safe_ts, 40);
}

#[tokio::test]
async fn promises_of_progress_are_held_to() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    world.send_one(producer.batch(vec![progress(50)])).await.expect("applied");
    let before = producer.clone();
    let (code, _) = refusal(world.send_one(producer.batch(vec![progress(49)])).await);
    assert_eq!(code, SfErrorCode::SfWatermarkRegression);
    producer = before.clone();
    let entries = vec![producer.upsert(1, 50, item(1, "late"))];
    let (code, _) = refusal(world.send_one(producer.batch(entries)).await);
    assert_eq!(code, SfErrorCode::SfOrderViolation);
    producer = before;
    let entries = vec![producer.upsert(1, 1, item(1, "before the stream began"))];
    let (code, _) = refusal(world.send_one(producer.batch(entries)).await);
    assert_eq!(code, SfErrorCode::SfOrderViolation);
}

#[tokio::test]
async fn a_patch_changes_the_fields_it_names_and_a_null_clears() {
    let mut world = World::new().await;
    let mut fields = small(&["table:7"]).fields;
    fields.push(scalar(3, "price", ScalarFieldType::Uint64));
    let mut producer = world.create("t7", definition("shop.item", fields, &[("table:7", 1)])).await;
    let mut whole = item(1, "apple");
    whole.insert("price".to_owned(), unsigned(5));
    let price = |value| Fields::from([("price".to_owned(), value)]);
    let id_and = |mut fields: Fields| {
        fields.insert("id".to_owned(), unsigned(1));
        fields
    };
    let entries = vec![producer.upsert(1, 20, whole), producer.patch(1, 21, id_and(price(unsigned(6))))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let document = |world: &World| {
        let query = world.fabric.query();
        async move { query.get("shop.item", 1, Default::default()).await.unwrap().document.unwrap() }
    };
    let shown = document(&world).await;
    assert_eq!(
        serde_json::Value::Object(shown.fields),
        serde_json::json!({"id": 1, "title": "apple", "price": 6})
    );
    let entries = vec![producer.patch(1, 22, id_and(price(null())))];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let shown = document(&world).await;
    assert_eq!((shown.version.get(), shown.fields["price"].is_null()), (22, true));
}

#[tokio::test]
async fn bad_entries_of_a_batch_that_goes_on_are_reported_and_counted() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let undeclared = Fields::from([("id".to_owned(), unsigned(2)), ("colour".to_owned(), text("red"))]);
    let entries = vec![producer.upsert(1, 20, item(1, "a")), producer.upsert(2, 20, undeclared)];
    let strict = producer.clone().batch(entries.clone());
    let (code, failure) = refusal(world.send_one(strict).await);
    assert_eq!(code, SfErrorCode::SfFieldUndeclared);
    assert_eq!(failure.error.unwrap().field_path, "entries[1].row_mutation.fields[\"colour\"]");
    let lenient =
        MutationBatch { policy: Some(BatchPolicy { continue_on_error: true }), ..producer.batch(entries) };
    let success = world.send_one(lenient).await.expect("applied");
    assert_eq!(success.rows_applied, 1);
    assert_eq!(success.entry_errors.iter().map(|e| e.entry_index).collect::<Vec<_>>(), [1]);
    let completeness = world.freshness("shop.item").await.completeness.unwrap();
    assert_eq!((completeness.complete, completeness.rows_rejected), (false, 1));
}

#[tokio::test]
async fn what_nobody_knows_is_refused_by_name() {
    let mut world = World::new().await;
    let producer = world.create("t7", small(&["table:7"])).await;
    let send = async |world: &mut World, mut producer: Producer| {
        let entries = vec![producer.upsert(1, 20, item(1, "a"))];
        refusal(world.send_one(producer.batch(entries)).await).0
    };
    let unknown = Producer { id: "t9".to_owned(), ..producer.clone() };
    assert_eq!(send(&mut world, unknown).await, SfErrorCode::SfCollectionNotFound);
    let unknown = Producer { partition: "table:9".to_owned(), ..producer.clone() };
    assert_eq!(send(&mut world, unknown).await, SfErrorCode::SfPartitionUnknown);
    let unknown = Producer { token: "g9".to_owned(), ..producer.clone() };
    assert_eq!(send(&mut world, unknown).await, SfErrorCode::SfSchemaGenerationUnknown);
    let unknown = Producer { schema_version: 2, ..producer };
    assert_eq!(send(&mut world, unknown).await, SfErrorCode::SfSchemaVersionMismatch);
}

#[tokio::test]
async fn positions_tell_a_producer_where_it_is() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7", "table:8"])).await;
    let entries = vec![producer.upsert(1, 20, item(1, "a")), progress(30), barrier(35)];
    world.send_one(producer.batch(entries)).await.expect("applied");
    let request = GetStreamPositionsRequest {
        meta: None,
        collection: Some(CollectionRef { namespace: NAMESPACE.to_owned(), collection_id: String::new() }),
    };
    let positions = world.ingest.get_stream_positions(request).await.unwrap().into_inner().positions;
    let seen: Vec<_> = positions
        .into_iter()
        .map(|p| {
            let cursor = p.acked_cursor.unwrap();
            (
                cursor.source_partition,
                cursor.source_epoch,
                cursor.source_seq,
                cursor.commit_ts,
                p.acked_resolved_ts,
            )
        })
        .collect();
    assert_eq!(seen, [("table:7".to_owned(), 1, 3, 35, 30), ("table:8".to_owned(), 0, 0, 0, 0)]);
}

#[tokio::test]
async fn a_reader_can_wait_for_a_timestamp_and_is_told_when_it_does_not_come() {
    let mut world = World::new().await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let at_least = |ts, wait_ms_max| GetFreshnessRequest {
        collection: named("shop.item"),
        consistency: Some(ReadConsistency {
            bound: Some(read_consistency::Bound::ReadAtLeastTs(ts)),
            wait_ms_max,
        }),
    };
    let status = world.query.get_freshness(at_least(60, 10)).await.expect_err("not there yet");
    assert_eq!(code(&status).0, SfErrorCode::SfFreshnessTimeout);
    let mut query = world.query.clone();
    let waiting = tokio::spawn(async move { query.get_freshness(at_least(60, 60_000)).await });
    world.send_one(producer.batch(vec![progress(60)])).await.expect("applied");
    let freshness = waiting.await.unwrap().expect("it came").into_inner().freshness.unwrap();
    assert_eq!(freshness.safe_ts, 60);
    let stale = GetFreshnessRequest {
        collection: named("shop.item"),
        consistency: Some(ReadConsistency {
            bound: Some(read_consistency::Bound::StalenessMsMax(1_000)),
            wait_ms_max: 0,
        }),
    };
    let status = world.query.get_freshness(stale).await.expect_err("1970 is long ago");
    assert_eq!(code(&status).0, SfErrorCode::SfStalenessExceeded);
}
