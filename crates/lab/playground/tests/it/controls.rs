//! Regions move and break while transactions run; nothing is lost.

use bytes::Bytes;
use tidegate_core::{StoreId, Ts};
use tidegate_playground::{FeedFault, Playground, PlaygroundError, PlaygroundOptions, Write};

use crate::feed_client::FeedClient;
use crate::start;

fn key(n: u32) -> Bytes {
    format!("k{n:04}").into()
}

/// Ten transactions of three keys each.
fn write_some(playground: &Playground, round: u32) -> usize {
    for n in 0..10 {
        let value = Bytes::from(format!("{round}-{n}"));
        let keys = [n * 7, n * 7 + 300, n * 7 + 600];
        let writes = keys.map(|k| Write::put(key((k + round) % 1_000), value.clone()));
        playground.commit(writes.to_vec()).expect("only one writer");
    }
    30
}

async fn expect_everything(playground: &Playground, client: &mut FeedClient, from: Ts, versions: usize) {
    let until = playground.now();
    client.read_to(until).await;
    assert_eq!(client.versions.len(), versions);
    let log = playground.export("now").log;
    let expected: Vec<_> = log.into_iter().filter(|version| version.commit_ts.ts() > from).collect();
    assert_eq!(client.committed(until), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_loses_nothing_while_regions_split_merge_and_move() {
    let playground = start(PlaygroundOptions::default()).await;
    let from = playground.now();
    let mut client = FeedClient::connect(&playground.pd_endpoint(), from).await;
    let mut written = 0;
    for round in 0..20 {
        written += write_some(&playground, round);
        match round % 4 {
            0 => drop(playground.split(&key(round * 40 + 5))),
            1 => move_all(&playground, round),
            2 => {
                let regions = playground.regions();
                playground.merge(regions[0].id, regions[1].id).expect("neighbours");
            }
            _ => drop(playground.drop_streams(StoreId(1 + u64::from(round) % 3))),
        }
        written += write_some(&playground, round + 100);
        if round % 5 == 0 {
            client.read_to(playground.now()).await;
        }
    }
    expect_everything(&playground, &mut client, from, written).await;
    assert!(client.failures > 5, "{} failures", client.failures);
    playground.stop().await;
}

fn move_all(playground: &Playground, round: u32) {
    for region in playground.regions() {
        let store = region.stores[round as usize % region.stores.len()];
        playground.move_leader(region.id, store).expect("a replica on a running store");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_survives_a_store_that_stops_and_comes_back() {
    let playground = start(PlaygroundOptions::default()).await;
    for n in 1..10 {
        playground.split(&key(n * 100)).expect("an inner key");
    }
    let from = playground.now();
    let mut client = FeedClient::connect(&playground.pd_endpoint(), from).await;
    let mut written = write_some(&playground, 0);
    client.read_to(playground.now()).await;
    let store = playground.regions()[0].leader;
    playground.stop_store(store).await.expect("it runs");
    assert!(playground.regions().iter().all(|region| region.leader != store));
    written += write_some(&playground, 1);
    expect_everything(&playground, &mut client, from, written).await;
    playground.restart_store(store).await.expect("its port is free");
    let region = playground.regions()[0].id;
    playground.move_leader(region, store).expect("it runs again");
    written += write_some(&playground, 2);
    expect_everything(&playground, &mut client, from, written).await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_variant_reaches_the_subscriber_and_ends_its_registration() {
    let playground = start(PlaygroundOptions::default()).await;
    let from = playground.now();
    let mut client = FeedClient::connect(&playground.pd_endpoint(), from).await;
    let mut written = 0;
    for (round, fault) in (0..).zip(FeedFault::ALL) {
        written += write_some(&playground, round);
        client.read_to(playground.now()).await;
        playground.inject_feed_error(playground.regions()[0].id, fault);
        written += write_some(&playground, round + 50);
        expect_everything(&playground, &mut client, from, written).await;
        assert_eq!(client.failures, usize::try_from(round).expect("small") + 1, "{fault:?}");
    }
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resolved_timestamps_stop_while_they_are_held() {
    let playground = start(PlaygroundOptions::default()).await;
    let from = playground.now();
    let mut client = FeedClient::connect(&playground.pd_endpoint(), from).await;
    client.read_to(playground.now()).await;
    playground.hold_resolved(true);
    let held = playground.now();
    let reading = tokio::time::timeout(std::time::Duration::from_millis(400), client.read_to(held));
    assert!(reading.await.is_err(), "resolved {} reached {held}", client.resolved());
    playground.hold_resolved(false);
    client.read_to(held).await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named_in_the_error() {
    let first = start(PlaygroundOptions::default()).await;
    let address: std::net::SocketAddr = first.pd_endpoint().parse().expect("an address");
    let options = PlaygroundOptions { pd_port: address.port(), ..Default::default() };
    let error = Playground::start(options).await.err().expect("the port is taken");
    assert_eq!(error.to_string(), format!("cannot listen on {address} for PD"));
    assert!(matches!(error, PlaygroundError::Listen { .. }));
    first.stop().await;
}
