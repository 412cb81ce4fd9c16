//! The calls as the playground serves them.

use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{Span, StoreId, Ts};
use tidegate_pd::{GcBarrier, GcHold, GcScope, PdClient, PdError, PdOptions};
use tidegate_playground::{Playground, PlaygroundOptions};

async fn open() -> (Playground, PdClient) {
    let playground = Playground::start(PlaygroundOptions::default()).await.expect("free ports");
    for key in ["b", "d", "f"] {
        playground.split(key.as_bytes()).expect("a new boundary");
    }
    let pd = PdClient::connect(PdOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    (playground, pd)
}

fn key(raw: &str) -> Bytes {
    Bytes::from(to_region_key(raw.as_bytes()))
}

#[tokio::test]
async fn regions_are_found_by_span_by_key_and_by_id() {
    let (playground, pd) = open().await;
    assert_eq!(pd.cluster_id(), playground.cluster_id());
    let views = playground.regions();
    let all = pd.scan_regions(&Span::all(), 100).await.expect("served");
    let ids: Vec<_> =
        all.iter().map(|region| (region.id, region.span.clone(), region.epoch.version)).collect();
    let wanted: Vec<_> = views.iter().map(|view| (view.id, view.span.clone(), view.version)).collect();
    assert_eq!(ids, wanted);
    let leaders: Vec<_> = all.iter().filter_map(|region| Some(region.leader?.store_id)).collect();
    assert_eq!(leaders, views.iter().map(|view| view.leader).collect::<Vec<_>>());
    // A scan begins with the region that contains its start.
    let some = pd.scan_regions(&Span::new(key("c"), key("e")), 100).await.expect("served");
    assert_eq!(some.iter().map(|region| &region.span.start).collect::<Vec<_>>(), [&key("b"), &key("d")]);
    assert_eq!(pd.scan_regions(&Span::all(), 2).await.expect("served").len(), 2);
    let found = pd.region_of(&key("e")).await.expect("served").expect("known");
    assert_eq!(found.span, Span::new(key("d"), key("f")));
    assert_eq!(pd.region_by_id(found.id).await.expect("served"), Some(found));
    let nobody = pd.region_by_id(tidegate_core::RegionId(9_999)).await.expect("served");
    assert_eq!(nobody, None);
}

#[tokio::test]
async fn stores_keyspaces_and_timestamps_are_served() {
    let (playground, pd) = open().await;
    assert_eq!(pd.all_stores().await.expect("served").len(), 3);
    let store = pd.store(StoreId(1)).await.expect("served");
    assert!(store.address.starts_with("127.0.0.1:") && !store.is_tiflash());
    assert!(matches!(pd.store(StoreId(99)).await, Err(PdError::StoreGone { .. })));
    let keyspace = pd.keyspace("DEFAULT").await.expect("served");
    assert_eq!((keyspace.id.get(), keyspace.enabled), (0, true));
    let error = pd.keyspace("nobody").await.expect_err("no such keyspace");
    assert_eq!(error.to_string(), "keyspace \"nobody\" does not exist");
    let before = playground.now();
    let ts = pd.tso().await.expect("served");
    assert!(before < ts && ts < playground.now());
}

#[tokio::test]
async fn a_barrier_holds_gc_until_it_moves_or_is_released() {
    let (playground, pd) = open().await;
    let ts = pd.tso().await.expect("served");
    let later = pd.tso().await.expect("served");
    let hold =
        |ts| GcHold { scope: GcScope::Unified, id: "tidegate".into(), ts, ttl: Duration::from_secs(3) };
    let barrier = GcBarrier::hold(&pd, hold(ts)).await.expect("held");
    assert_eq!(playground.collect_garbage(later).expect("as far as allowed"), ts, "the barrier stands");
    assert_eq!(pd.safe_point(GcScope::Unified).await.expect("served"), ts);
    let error = GcBarrier::hold(&pd, hold(ts.prev())).await.expect_err("passed");
    let text = error.to_string();
    assert!(text.contains(&ts.prev().to_string()) && text.contains(&format!("already {ts}")), "{text}");
    barrier.release().await.expect("released");
    assert_eq!(playground.collect_garbage(later).expect("free"), later);
    assert!(matches!(GcBarrier::hold(&pd, hold(Ts::ZERO)).await, Err(PdError::BehindSafePoint { .. })));
}
