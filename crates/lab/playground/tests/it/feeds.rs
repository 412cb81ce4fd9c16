//! The change feed returns exactly what was committed.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::{CommitTs, Ts};
use tidegate_playground::{PlaygroundOptions, Write};
use tidegate_testkit::{History, Version};

use crate::feed_client::FeedClient;
use crate::{recorded, start};

/// Within one commit timestamp the order of keys is free; histories are compared by key.
fn by_key(versions: &[Version]) -> Vec<Version> {
    let mut versions = versions.to_vec();
    versions.sort_by(|a, b| (a.commit_ts, a.start_ts, &a.key).cmp(&(b.commit_ts, b.start_ts, &b.key)));
    versions
}

fn above(history: &History, ts: Ts) -> Vec<Version> {
    let above = history.log.iter().filter(|version| version.commit_ts.ts() > ts);
    by_key(&above.cloned().collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread")]
async fn scanning_a_loaded_history_gives_back_every_version_above_the_start() {
    let history = recorded("bank");
    let (base_ts, end_ts) = (history.header.base_ts, history.header.end_ts);
    let options = PlaygroundOptions { history: Some(history.clone()), regions: 40, ..Default::default() };
    let playground = start(options).await;
    assert!(playground.regions().len() >= 40);

    let mut client = FeedClient::connect(&playground.pd_endpoint(), base_ts).await;
    client.read_to(end_ts).await;
    assert_eq!(client.committed(end_ts), above(&history, base_ts));
    check_old_values(&history, &client);

    // From the middle, only what came after.
    let middle = Ts::new(base_ts.get() + (end_ts.get() - base_ts.get()) / 2);
    let mut later = FeedClient::connect(&playground.pd_endpoint(), middle).await;
    later.read_to(end_ts).await;
    assert_eq!(later.committed(end_ts), above(&history, middle));
    playground.stop().await;
}

/// A row's old value is the value before it: of the base, or of the log.
fn check_old_values(history: &History, client: &FeedClient) {
    let mut values: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    for version in &history.base {
        values.insert(version.key.clone(), version.value.clone());
    }
    for version in &history.log {
        let before = values.insert(version.key.clone(), version.value.clone()).unwrap_or_default();
        let seen = client.old_values.get(&(version.key.clone(), version.commit_ts));
        assert_eq!(seen, Some(&before), "old value at {}", version.commit_ts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_replayed_live_arrives_as_recorded() {
    let history = recorded("bank");
    let (base_ts, end_ts) = (history.header.base_ts, history.header.end_ts);
    let third = Ts::new(base_ts.get() + (end_ts.get() - base_ts.get()) / 3);
    let playground = start(PlaygroundOptions {
        history: Some(history.clone()),
        live_after: Some(third),
        // The recording lasts about a minute.
        speed: 60.0,
        regions: 20,
        ..Default::default()
    })
    .await;
    assert!(playground.replay_pending() > 0);
    let mut client = FeedClient::connect(&playground.pd_endpoint(), base_ts).await;
    client.read_to(end_ts).await;
    assert_eq!(client.committed(end_ts), above(&history, base_ts));
    check_old_values(&history, &client);
    playground.replayed().await;
    assert!(playground.now() > end_ts);
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_history_comes_back_whole_from_export_and_feed() {
    for name in ["types", "ddl", "partition", "random-11"] {
        let history = recorded(name);
        let (base_ts, end_ts) = (history.header.base_ts, history.header.end_ts);
        let playground =
            start(PlaygroundOptions { history: Some(history.clone()), ..Default::default() }).await;
        let mut client = FeedClient::connect(&playground.pd_endpoint(), base_ts).await;
        client.read_to(end_ts).await;
        assert_eq!(client.committed(end_ts), above(&history, base_ts), "{name}");
        let exported = playground.export(name);
        let recorded_above = above(&history, base_ts);
        assert_eq!(by_key(&above(&exported, base_ts)), recorded_above, "{name}");
        playground.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn new_transactions_are_seen_with_their_old_values_and_resolved() {
    let playground = start(PlaygroundOptions::default()).await;
    playground.split(b"m").expect("an inner key");
    let mut client = FeedClient::connect(&playground.pd_endpoint(), playground.now()).await;
    let long = vec![b'x'; 300];
    let first =
        playground.commit(vec![Write::put("a", "1"), Write::put("z", long.clone())]).expect("no conflict");
    let second = playground.commit(vec![Write::put("a", "2"), Write::delete("z")]).expect("no conflict");
    client.read_to(second.ts()).await;
    let third = playground.commit(vec![Write::put("z", "")]).expect("no conflict");
    client.read_to(third.ts()).await;

    let seen = |key: &'static str, ts: CommitTs| {
        let at = (Bytes::from_static(key.as_bytes()), ts);
        (client.versions[&at].value.clone(), client.old_values[&at].clone())
    };
    assert_eq!(client.versions.len(), 5);
    assert_eq!(seen("a", first), (Bytes::from("1"), Bytes::new()));
    assert_eq!(seen("a", second), (Bytes::from("2"), Bytes::from("1")));
    assert_eq!(seen("z", first), (Bytes::from(long.clone()), Bytes::new()));
    assert_eq!(seen("z", second), (Bytes::new(), Bytes::from(long)));
    assert_eq!(seen("z", third), (Bytes::new(), Bytes::new()));
    playground.stop().await;
}
