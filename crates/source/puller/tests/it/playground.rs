//! Catching up and following, over real gRPC.

use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::{keyspace_span, record_range, table_span, with_keyspace};
use tidegate_core::{Diagnostic, ErrorClass, KeyspaceId, Span, TableId, Ts};
use tidegate_pd::{PdClient, PdOptions};
use tidegate_playground::{FeedFault, Keyspace, Playground, PlaygroundOptions, Write};
use tidegate_puller::kv::SnapshotReader;
use tidegate_puller::{Puller, PullerError, PullerOptions, SpanEvent, Subscribe};
use tidegate_testkit::data;

use crate::support::{Collected, PATIENCE, TABLE, bank, connect, recorded, row};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_catches_up_with_a_recorded_history_over_many_regions() {
    let (playground, history) = bank(40, None, 1.0).await;
    let (_, puller) = connect(&playground).await;
    let start = history.header.base_ts;
    for table in [320, 322] {
        let span = table_span(None, TableId(table));
        let mut subscription = puller.subscribe(Subscribe::new(span, start.as_start()));
        let mut collected = Collected::default();
        collected.follow(&mut subscription, history.header.end_ts).await;
        let wanted = recorded(&history, table, start);
        assert!(wanted.len() > 100, "the recording is not empty");
        assert!(collected.versions == wanted, "table {table}");
    }
    puller.stop().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flink_cdc_1206_nothing_is_lost_where_the_scan_meets_the_live_stream() {
    let probe = data::history("bank").expect("recorded data");
    let middle = probe.log[probe.log.len() / 2].commit_ts.ts();
    let (playground, history) = bank(10, Some(middle), 10.0).await;
    let (_, puller) = connect(&playground).await;
    let span = table_span(None, TableId(320));
    let mut subscription = puller.subscribe(Subscribe::new(span, history.header.base_ts.as_start()));
    let mut collected = Collected::default();
    collected.follow(&mut subscription, history.header.end_ts).await;
    assert!(collected.versions == recorded(&history, 320, history.header.base_ts));
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_read_over_many_regions_page_by_page() {
    let (playground, history) = bank(40, None, 1.0).await;
    let pd = PdClient::connect(PdOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    let reader = SnapshotReader::new(pd, None);
    let (begin, end) = record_range(None, TableId(320));
    let middle = history.log[history.log.len() / 2].commit_ts.ts();
    for (ts, begin, end) in [
        (history.header.end_ts, begin.as_slice(), end.as_slice()),
        (middle, begin.as_slice(), end.as_slice()),
        (history.header.end_ts, b"m".as_slice(), b"n".as_slice()),
        (history.header.end_ts, b"".as_slice(), b"".as_slice()),
    ] {
        let wanted = playground.scan(begin, end, ts, usize::MAX);
        assert!(!wanted.is_empty());
        let read = reader.scan(begin, end, ts).await.expect("a readable snapshot");
        let read: Vec<(Bytes, Bytes)> = read.into_iter().map(|pair| (pair.key, pair.value)).collect();
        assert!(read == wanted, "{} of {} pairs", read.len(), wanted.len());
    }
    let (pairs, next) = reader.scan_page(&begin, &end, middle, 3).await.expect("a page");
    assert_eq!(pairs.len(), 3);
    assert!(next.is_some_and(|next| next > pairs[2].key));
    let first = &pairs[0];
    assert_eq!(reader.get(&first.key, middle).await.expect("readable"), Some(first.value.clone()));
    assert_eq!(reader.get(b"nobody", middle).await.expect("readable"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_below_the_safe_point_is_an_error_that_names_both_timestamps() {
    let (playground, history) = bank(0, None, 1.0).await;
    let (_, puller) = connect(&playground).await;
    let safe_point = playground.collect_garbage(history.header.end_ts).expect("the safe point moves");
    let start_ts = safe_point.prev().as_start();
    let mut subscription = puller.subscribe(Subscribe::new(table_span(None, TableId(320)), start_ts));
    let error = subscription.next().await.expect("an answer").expect_err("history may be missing");
    assert!(matches!(error, PullerError::StartBelowGc { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&start_ts.to_string()) && text.contains(&safe_point.to_string()), "{text}");
    assert_eq!((error.class(), error.code()), (ErrorClass::Operator, "TG-PULL-001"));
    assert!(subscription.next().await.is_none(), "an error is the last word");
    let mut subscription =
        puller.subscribe(Subscribe::new(table_span(None, TableId(320)), safe_point.as_start()));
    assert!(subscription.next().await.expect("an answer").is_ok(), "the safe point itself is readable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_puller_says_so_and_an_empty_span_is_refused() {
    let playground = Playground::start(PlaygroundOptions::default()).await.expect("free ports");
    let (_, puller) = connect(&playground).await;
    let now = playground.now().as_start();
    let mut empty = puller.subscribe(Subscribe::new(Span::new("b", "a"), now));
    assert!(matches!(empty.next().await, Some(Err(PullerError::EmptySpan))));
    let mut all = puller.subscribe(Subscribe::new(Span::all(), now));
    assert!(matches!(all.next().await, Some(Ok(SpanEvent::Resolved(_)))));
    assert_eq!(puller.metrics().subscriptions.len(), 1);
    puller.stop().await;
    let last = loop {
        match all.next().await {
            Some(Ok(_)) => {}
            last => break last,
        }
    };
    assert!(matches!(last, Some(Err(PullerError::Stopped))));
    assert!(all.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_subscription_leaves_nothing_behind_and_others_go_on() {
    let playground = Playground::start(PlaygroundOptions::default()).await.expect("free ports");
    let (_, puller) = connect(&playground).await;
    let now = playground.now().as_start();
    let mut stays = puller.subscribe(Subscribe::new(Span::all(), now));
    let mut leaves = puller.subscribe(Subscribe::new(Span::all(), now));
    assert!(leaves.next().await.expect("lives").is_ok());
    drop(leaves);
    let forgotten = async {
        while puller.metrics().subscriptions.len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, forgotten).await.expect("forgotten in time");
    let commit_ts = playground.commit(vec![Write::put("k", "v")]).expect("no conflict");
    let mut collected = Collected::default();
    collected.follow(&mut stays, commit_ts.ts()).await;
    assert_eq!(collected.versions.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_pullers_of_one_process_know_nothing_of_each_other() {
    let (playground, history) = bank(10, None, 1.0).await;
    let wanted = recorded(&history, 322, history.header.base_ts);
    for _ in 0..2 {
        let (_, puller) = connect(&playground).await;
        let subscribe = Subscribe::new(table_span(None, TableId(322)), history.header.base_ts.as_start());
        let mut first = puller.subscribe(subscribe.clone());
        let mut second = puller.subscribe(subscribe);
        let (mut one, mut two) = (Collected::default(), Collected::default());
        let end = history.header.end_ts;
        tokio::join!(one.follow(&mut first, end), two.follow(&mut second, end));
        assert!(one.versions == wanted && two.versions == wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_that_a_store_can_send_is_survived_or_named() {
    let playground = Playground::start(PlaygroundOptions::default()).await.expect("free ports");
    playground.split(&row(50)).expect("a new boundary");
    let (_, puller) = connect(&playground).await;
    let subscribe = Subscribe::new(table_span(None, TABLE), playground.now().as_start());
    for fault in FeedFault::ALL {
        let mut subscription = puller.subscribe(subscribe.clone());
        let mut collected = Collected::default();
        let before =
            playground.commit(vec![Write::put(row(1), "a"), Write::put(row(99), "b")]).expect("free");
        collected.follow(&mut subscription, before.ts()).await;
        for region in playground.regions() {
            playground.inject_feed_error(region.id, fault);
        }
        let after = playground.commit(vec![Write::put(row(1), "c"), Write::put(row(99), "d")]).expect("free");
        if matches!(fault, FeedFault::Compatibility | FeedFault::ClusterIdMismatch) {
            let error = loop {
                match subscription.next().await.expect("an end with an error") {
                    Ok(_) => {}
                    Err(error) => break error,
                }
            };
            let named =
                matches!(error, PullerError::IncompatibleStore { .. } | PullerError::ClusterMismatch { .. });
            assert!(named, "{fault:?}: {error}");
            continue;
        }
        collected.follow(&mut subscription, after.ts()).await;
        let found = collected.versions.keys().filter(|(_, _, commit_ts)| *commit_ts == after).count();
        assert_eq!(found, 2, "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_is_bounded_and_does_not_stop_the_others() {
    let (playground, history) = bank(10, None, 1.0).await;
    let pd = PdClient::connect(PdOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    let buffer_bytes_max = 64 << 10;
    let options =
        PullerOptions { buffer_bytes_max, stall_max: Duration::from_millis(100), ..PullerOptions::default() };
    let puller = Puller::start(pd, options);
    let (start, end): (Ts, Ts) = (history.header.base_ts, history.header.end_ts);
    let mut slow = puller.subscribe(Subscribe::new(table_span(None, TableId(320)), start.as_start()));
    let mut quick = puller.subscribe(Subscribe::new(table_span(None, TableId(322)), start.as_start()));
    let mut collected = Collected::default();
    collected.follow(&mut quick, end).await;
    assert!(collected.versions == recorded(&history, 322, start));
    let later = playground.now();
    collected.follow(&mut quick, later).await;
    let metrics = puller.metrics();
    assert!(metrics.subscriptions.iter().all(|each| each.buffered_bytes <= buffer_bytes_max));
    assert!(metrics.pauses > 0, "the slow one was noticed");
    // When it reads again, nothing is missing.
    let mut collected = Collected::default();
    collected.follow(&mut slow, end).await;
    assert!(collected.versions == recorded(&history, 320, start));
    let own = puller.metrics().subscriptions.iter().filter(|each| each.own_streams).count();
    assert_eq!(own, 1, "the slow one has left the shared streams, and nobody else");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyspace_is_followed_and_read_with_its_prefix_and_without_its_neighbours() {
    let (ours, other) = (KeyspaceId(5), KeyspaceId(6));
    let keyspaces = vec![Keyspace::new(ours, "ours"), Keyspace::new(other, "other")];
    let options = PlaygroundOptions { keyspaces, ..PlaygroundOptions::default() };
    let playground = Playground::start(options).await.expect("free ports");
    let (pd, puller) = connect(&playground).await;
    let found = pd.keyspace("ours").await.expect("it exists");
    assert_eq!(found.id, ours);
    let start = playground.now();
    let put = |keyspace, value: &'static str| Write::put(with_keyspace(Some(keyspace), b"mkey"), value);
    let commit_ts = playground.commit(vec![put(ours, "a"), put(other, "b")]).expect("free");
    let subscribe =
        Subscribe { keyspace: Some(ours), ..Subscribe::new(keyspace_span(ours), start.as_start()) };
    let mut subscription = puller.subscribe(subscribe);
    let mut collected = Collected::default();
    collected.follow(&mut subscription, commit_ts.ts()).await;
    let keys: Vec<&[u8]> = collected.versions.keys().map(|(key, _, _)| key.as_ref()).collect();
    assert_eq!(keys, [b"x\0\0\x05mkey"]);
    let reader = SnapshotReader::new(pd, Some(ours));
    let value = reader.get(b"x\0\0\x05mkey", commit_ts.ts()).await.expect("readable");
    assert_eq!(value.as_deref(), Some(&b"a"[..]));
}
