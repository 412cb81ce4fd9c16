//! A public client, unmodified, works against the playground.

use std::sync::Arc;

use tidegate_core::{Clock, Ts};
use tidegate_playground::{Playground, PlaygroundOptions};
use tikv_client::{CheckLevel, Transaction, TransactionClient, TransactionOptions};

use crate::feed_client::FeedClient;
use crate::moved_clock::MovedClock;
use crate::{recorded, start};

async fn connect(playground: &Playground) -> TransactionClient {
    TransactionClient::new(vec![playground.pd_endpoint()]).await.expect("PD answers")
}

/// Several regions on several stores.
async fn cluster() -> Playground {
    let playground = start(PlaygroundOptions::default()).await;
    for key in ["b", "d", "f", "h"] {
        playground.split(key.as_bytes()).expect("an inner key");
    }
    for (region, store) in playground.regions().iter().zip([1, 2, 3].into_iter().cycle()) {
        playground.move_leader(region.id, tidegate_core::StoreId(store)).expect("a replica everywhere");
    }
    playground
}

const KEYS: [&str; 5] = ["a", "c", "e", "g", "i"];

async fn put_all(txn: &mut Transaction, value: &str) {
    for key in KEYS {
        txn.put(key.to_owned(), value.to_owned()).await.expect("buffered or locked");
    }
}

async fn read_all(client: &TransactionClient) -> Vec<(String, String)> {
    let mut txn = client.begin_optimistic().await.expect("a timestamp");
    let pairs = txn.scan("a".to_owned().."z".to_owned(), 100).await.expect("a scan");
    let pairs = pairs
        .map(|pair| {
            let key: Vec<u8> = pair.0.into();
            (String::from_utf8(key).expect("text"), String::from_utf8(pair.1).expect("text"))
        })
        .collect();
    txn.rollback().await.expect("nothing to roll back");
    pairs
}

fn all(value: &str) -> Vec<(String, String)> {
    KEYS.iter().map(|key| ((*key).to_owned(), value.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_commits_and_reads_in_every_mode_over_many_regions() {
    let playground = cluster().await;
    let client = connect(&playground).await;
    let from = playground.now();
    let modes = [
        ("optimistic", TransactionOptions::new_optimistic()),
        ("optimistic async", TransactionOptions::new_optimistic().use_async_commit()),
        ("optimistic 1pc", TransactionOptions::new_optimistic().try_one_pc()),
        ("pessimistic", TransactionOptions::new_pessimistic()),
        ("pessimistic async", TransactionOptions::new_pessimistic().use_async_commit()),
    ];
    for (name, options) in modes.clone() {
        let mut txn = client.begin_with_options(options).await.expect("a timestamp");
        put_all(&mut txn, name).await;
        let committed = txn.commit().await.expect(name);
        assert!(committed.is_some(), "{name}");
        assert_eq!(read_all(&client).await, all(name));
    }
    // The change feed saw each version once, whatever the mode.
    let mut feed = FeedClient::connect(&playground.pd_endpoint(), from).await;
    feed.read_to(playground.now()).await;
    assert_eq!(feed.versions.len(), modes.len() * KEYS.len());
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_phase_transactions_in_one_region_are_seen_by_a_live_feed() {
    let playground = cluster().await;
    let client = connect(&playground).await;
    let mut feed = FeedClient::connect(&playground.pd_endpoint(), playground.now()).await;
    feed.read_to(playground.now()).await;
    for n in 0..5 {
        let options = TransactionOptions::new_optimistic().try_one_pc();
        let mut txn = client.begin_with_options(options).await.expect("a timestamp");
        txn.put("c1".to_owned(), format!("{n}")).await.expect("buffered");
        txn.put("c2".to_owned(), format!("{n}")).await.expect("buffered");
        txn.commit().await.expect("no conflict");
    }
    feed.read_to(playground.now()).await;
    assert_eq!(feed.versions.len(), 10);
    let newest = feed.committed(Ts::MAX).pop().expect("some");
    assert_eq!(&newest.value[..], b"4");
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_optimistic_transactions_do_not_both_commit() {
    let playground = cluster().await;
    let client = connect(&playground).await;
    let mut first = client.begin_optimistic().await.expect("a timestamp");
    let mut second = client.begin_optimistic().await.expect("a timestamp");
    first.put("a".to_owned(), "1".to_owned()).await.expect("buffered");
    second.put("a".to_owned(), "2".to_owned()).await.expect("buffered");
    first.commit().await.expect("the first wins");
    assert!(second.commit().await.is_err(), "a lost update");
    let now = playground.now();
    assert_eq!(playground.get(b"a", now).as_deref(), Some(&b"1"[..]));
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pessimistic_writers_of_one_key_wait_for_each_other() {
    let playground = cluster().await;
    let client = Arc::new(connect(&playground).await);
    let mut setup = client.begin_optimistic().await.expect("a timestamp");
    setup.put("e".to_owned(), "0".to_owned()).await.expect("buffered");
    setup.commit().await.expect("no conflict");
    let writers: Vec<_> = (0..4).map(|_| tokio::spawn(increment(Arc::clone(&client), 5))).collect();
    for writer in writers {
        writer.await.expect("no panic");
    }
    assert_eq!(playground.get(b"e", playground.now()).as_deref(), Some(&b"20"[..]));
    playground.stop().await;
}

async fn increment(client: Arc<TransactionClient>, times: usize) {
    let mut done = 0;
    while done < times {
        let options = TransactionOptions::new_pessimistic().drop_check(CheckLevel::Warn);
        let mut txn = client.begin_with_options(options).await.expect("a timestamp");
        let Ok(value) = txn.get_for_update("e".to_owned()).await else {
            txn.rollback().await.expect("rolled back");
            continue;
        };
        let value = String::from_utf8(value.expect("it exists")).expect("text");
        let next = value.parse::<u64>().expect("a number") + 1;
        txn.put("e".to_owned(), next.to_string()).await.expect("locked");
        txn.commit().await.expect("the lock is held");
        done += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_clients_locks_are_resolved_once_they_are_expired() {
    let clock = MovedClock::new(1);
    let options = PlaygroundOptions { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Default::default() };
    let playground = start(options).await;
    playground.split(b"d").expect("an inner key");
    let client = connect(&playground).await;
    // One key each: this client can stumble when it resolves two locks of one transaction at a time.
    for key in ["a", "g"] {
        let options = TransactionOptions::new_pessimistic().drop_check(CheckLevel::None);
        let mut dead = client.begin_with_options(options).await.expect("a timestamp");
        dead.put(key.to_owned(), "lost".to_owned()).await.expect("locked");
        drop(dead);
    }
    // The client gives its pessimistic locks 20 seconds to live.
    clock.move_ahead_ms(25_000);
    let mut next = client.begin_pessimistic().await.expect("a timestamp");
    next.lock_keys(["a".to_owned(), "g".to_owned()]).await.expect("resolved");
    next.put("a".to_owned(), "kept".to_owned()).await.expect("locked");
    next.commit().await.expect("the lock is held");
    assert_eq!(playground.get(b"a", playground.now()).as_deref(), Some(&b"kept"[..]));
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_reads_a_recorded_history_at_its_end() {
    let history = recorded("types");
    let playground =
        start(PlaygroundOptions { history: Some(history.clone()), regions: 12, ..Default::default() }).await;
    let client = connect(&playground).await;
    let mut expected = std::collections::BTreeMap::new();
    for version in history.base.iter().chain(&history.log) {
        match version.op {
            tidegate_core::Op::Put => expected.insert(version.key.clone(), version.value.clone()),
            tidegate_core::Op::Delete => expected.remove(&version.key),
        };
    }
    let mut txn = client.begin_optimistic().await.expect("a timestamp");
    let pairs = txn.scan(Vec::new().., 100_000).await.expect("a scan");
    let found: Vec<(Vec<u8>, Vec<u8>)> = pairs.map(|pair| (pair.0.into(), pair.1)).collect();
    let expected: Vec<(Vec<u8>, Vec<u8>)> =
        expected.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(found.len(), expected.len());
    assert_eq!(found, expected);
    txn.rollback().await.expect("nothing to roll back");
    playground.stop().await;
}
