//! What survives.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_proto::searchfabric::v1::*;

use crate::support::*;

/// Documents found by a word, which asks the text index and not the store.
async fn found(world: &World, word: &str) -> u64 {
    let text = tidegate_fabric::query::request::TextQuery::new(word);
    world.fabric.query().count("shop.item", Some(text), None, Default::default()).await.unwrap().count
}

async fn fill(world: &mut World) -> (Producer, MutationBatch, MutationSuccess) {
    let mut producer = world.create("t7", small(&["table:7"])).await;
    let entries = (1..=100).map(|id| producer.upsert(id, 20 + id, item(id, "apple"))).collect();
    world.send_one(producer.batch(entries)).await.expect("applied");
    let entries = vec![delete(7, 200), progress(210)];
    let batch = producer.batch(entries);
    let success = world.send_one(batch.clone()).await.expect("applied");
    (producer, batch, success)
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(Some(dir.path().to_owned())).await;
    let (mut producer, last, receipt) = fill(&mut world).await;
    let events = world.fabric.query().events(0, 1_000);
    world.close().await;

    let mut world = World::open(Some(dir.path().to_owned())).await;
    assert_eq!(found(&world, "apple").await, 99);
    assert_eq!(world.freshness("shop.item").await.safe_ts, 210);
    let again = world.send_one(last).await.expect("the receipt");
    assert_eq!(again, MutationSuccess { replayed: true, ..receipt });
    let entries = vec![producer.upsert(7, 150, item(7, "apple"))];
    let mut replay = Producer { epoch: 2, next_seq: 1, ..producer.clone() };
    let success = world.send_one(replay.batch(entries)).await.expect("acknowledged");
    assert_eq!(success.rows_superseded, 1, "the delete is remembered");
    producer.epoch = 2;
    let stale = Producer { epoch: 1, ..producer }.batch(vec![progress(220)]);
    let failure = world.send_one(stale).await.expect_err("the new epoch is remembered");
    assert_eq!(failure.error.unwrap().code(), SfErrorCode::SfStaleEpoch);
    let kept = world.fabric.query().events(0, 1_000);
    assert_eq!(kept.get(..events.len()), Some(events.as_slice()));
    world.close().await;
}

/// The folder of the only index.
fn index_dir(dir: &Path) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(dir.join("index")).unwrap();
    entries.next().unwrap().unwrap().path()
}

#[tokio::test]
async fn a_lost_or_damaged_index_is_made_anew_from_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(Some(dir.path().to_owned())).await;
    fill(&mut world).await;
    world.close().await;

    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    let world = World::open(Some(dir.path().to_owned())).await;
    assert_eq!(found(&world, "apple").await, 99);
    world.close().await;

    let index = index_dir(dir.path());
    let largest = std::fs::read_dir(&index)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().contains('.'))
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with("json"))
        .max_by_key(|entry| entry.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(largest.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(largest.path(), bytes).unwrap();
    let world = World::open(Some(dir.path().to_owned())).await;
    assert_eq!(found(&world, "apple").await, 99);
    assert!(world.fabric.query().events(0, 1_000).iter().any(|event| event.kind == "index_rebuilt"));
    world.close().await;
}

#[tokio::test]
async fn an_index_that_lags_takes_in_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::open(Some(dir.path().to_owned())).await;
    let (mut producer, _, _) = fill(&mut world).await;
    world.close().await;
    // Keep the index as it was, let the store go on, then put the old index back.
    let old = dir.path().join("old");
    copy_dir(&index_dir(dir.path()), &old);
    let mut world = World::open(Some(dir.path().to_owned())).await;
    let entries = vec![producer.upsert(500, 300, item(500, "apple")), delete(1, 300), progress(310)];
    world.send_one(producer.batch(entries)).await.expect("applied");
    world.close().await;
    let index = index_dir(dir.path());
    std::fs::remove_dir_all(&index).unwrap();
    copy_dir(&old, &index);

    let mut world = World::open(Some(dir.path().to_owned())).await;
    assert_eq!(found(&world, "apple").await, 99);
    let items = world.items().await;
    assert_eq!((items.contains_key(&500), items.contains_key(&1)), (true, false));
    assert!(world.fabric.query().events(0, 1_000).iter().any(|event| event.kind == "index_caught_up"));
    world.close().await;
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[tokio::test]
async fn a_directory_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    World::open(Some(dir.path().to_owned())).await.close().await;
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
    let database = redb::Database::open(dir.path().join("store.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert("format", 99).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let options =
        tidegate_fabric::FabricOptions { data_dir: Some(dir.path().to_owned()), ..Default::default() };
    let refused = tidegate_fabric::Fabric::open(options);
    assert!(
        matches!(refused, Err(tidegate_fabric::FabricError::Format { found: 99, known: 1 })),
        "{refused:?}"
    );
}

/// One process run of the kill test: sends batches for ever, and prints each acknowledged document after its
/// acknowledgement.
#[tokio::test]
#[ignore = "a child process of the kill test"]
async fn child_that_writes_until_it_is_killed() {
    let Ok(dir) = std::env::var("TIDEGATE_FABRIC_KILL_DIR") else { return };
    let epoch: u64 = std::env::var("TIDEGATE_FABRIC_KILL_EPOCH").unwrap().parse().unwrap();
    let mut world = World::open(Some(dir.into())).await;
    let mut producer = world.create("t7", small(&["table:7"])).await;
    producer.epoch = epoch;
    for n in 1.. {
        let at = epoch * 1_000_000 + n * 10;
        let doc = (n * 7) % 50 + 1;
        let title = format!("round {epoch} {n}");
        let mut entries = vec![producer.upsert(doc, at, item(doc, &title))];
        if n % 5 == 0 {
            entries.push(delete((n * 3) % 50 + 1, at + 1));
        }
        entries.push(progress(at + 2));
        let deleted = if n % 5 == 0 { (n * 3) % 50 + 1 } else { 0 };
        world.send_one(producer.batch(entries)).await.expect("applied");
        println!("acked {doc} {at} {deleted} {title}");
    }
}

/// What the acknowledged lines of a child say.
struct Acked {
    items: BTreeMap<u64, (u64, Option<String>)>,
    resolved: u64,
}

#[tokio::test]
async fn killed_at_random_points_it_loses_nothing_that_was_acknowledged() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let mut acked = Acked { items: BTreeMap::new(), resolved: 0 };
    for epoch in 1..=6_u64 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "restart::child_that_writes_until_it_is_killed"])
            .env("TIDEGATE_FABRIC_KILL_DIR", dir.path())
            .env("TIDEGATE_FABRIC_KILL_EPOCH", epoch.to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A different number of acknowledgements each time, so that the kill falls on different steps.
        let kill_after = 3 + epoch * 11 % 17;
        let mut seen = 0;
        while let Some(Ok(line)) = lines.next() {
            let Some(line) = line.strip_prefix("acked ").map(str::to_owned) else { continue };
            acked.take(&line);
            seen += 1;
            if seen == kill_after {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= kill_after, "the child ended by itself");
        verify(dir.path(), &acked).await;
    }
}

impl Acked {
    fn take(&mut self, line: &str) {
        let mut parts = line.splitn(4, ' ');
        let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
        let (doc, at, deleted) = (number(), number(), number());
        self.items.insert(doc, (at, Some(parts.next().unwrap().to_owned())));
        if deleted > 0 {
            self.items.insert(deleted, (at + 1, None));
        }
        self.resolved = at + 2;
    }
}

/// Everything acknowledged is there; at most the one batch that was under way may be there besides.
async fn verify(dir: &Path, acked: &Acked) {
    let mut world = World::open(Some(dir.to_owned())).await;
    let items = world.items().await;
    assert!(world.freshness("shop.item").await.safe_ts >= acked.resolved);
    for (doc, (at, title)) in &acked.items {
        let got = world.fabric.query().get("shop.item", *doc, Default::default()).await.unwrap();
        let newest = got.document.as_ref().map(|d| d.version.get()).or(got.deleted_at.map(|ts| ts.get()));
        // A tombstone that progress has passed may be forgotten.
        let forgotten = newest.is_none() && title.is_none();
        assert!(forgotten || newest.is_some_and(|newest| newest >= *at), "document {doc}: {newest:?} < {at}");
        if newest == Some(*at) {
            assert_eq!(items.get(doc), title.as_ref(), "document {doc}");
        }
    }
    assert_eq!(found(&world, "round").await, items.len() as u64, "index and store agree");
    world.close().await;
}
