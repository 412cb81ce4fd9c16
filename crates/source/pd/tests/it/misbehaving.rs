//! Leaders that move, members that lie, calls that hang.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{ClusterId, Diagnostic, ErrorClass, StoreId, Ts};
use tidegate_pd::{GcBarrier, GcHold, GcScope, PdClient, PdError, PdOptions};

use crate::fake::{CLUSTER, FakePd};

/// Options that give up soon, so that tests of failures are fast.
fn options(endpoints: &[&FakePd]) -> PdOptions {
    PdOptions {
        request_timeout: Duration::from_millis(500),
        retry_for: Duration::from_secs(2),
        ..PdOptions::new(endpoints.iter().map(|pd| pd.url()))
    }
}

/// An address where nobody listens.
fn dead_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("bound"))
}

async fn connect(endpoints: &[&FakePd]) -> PdClient {
    PdClient::connect(options(endpoints)).await.expect("a leader answers")
}

#[tokio::test]
async fn a_follower_leads_to_the_leader() {
    let leader = FakePd::start().await;
    let follower = FakePd::follower(&leader).await;
    let pd = connect(&[&follower]).await;
    assert_eq!(pd.cluster_id(), ClusterId(CLUSTER));
    pd.tso().await.expect("the leader serves");
    assert_eq!((leader.calls("Tso"), follower.calls("Tso")), (1, 0));
}

#[tokio::test]
async fn calls_and_timestamps_follow_the_leader_when_it_moves() {
    let first = FakePd::start().await;
    let second = FakePd::follower(&first).await;
    let pd = connect(&[&first, &second]).await;
    let before = pd.tso().await.expect("served");
    pd.store(StoreId(1)).await.expect("served");
    let last_tso = first.behaviour.lock().last_tso;
    first.set(|behaviour| {
        behaviour.leads = false;
        behaviour.leader_url = Some(second.url());
    });
    second.set(|behaviour| {
        behaviour.leads = true;
        behaviour.leader_url = Some(second.url());
        behaviour.last_tso = last_tso;
    });
    let after = pd.tso().await.expect("served by the new leader");
    assert!(after > before);
    pd.store(StoreId(2)).await.expect("served by the new leader");
    assert_eq!(second.calls("GetStore"), 1);
}

#[tokio::test]
async fn an_election_is_waited_for_and_a_lasting_one_is_named() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    only.set(|behaviour| {
        behaviour.leads = false;
        behaviour.leader_url = None;
    });
    assert!(matches!(pd.store(StoreId(1)).await, Err(PdError::NoLeader | PdError::Rpc { .. })));
    let waiting = pd.store(StoreId(1));
    let electing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        only.set(|behaviour| {
            behaviour.leads = true;
            behaviour.leader_url = Some(only.url());
        });
    };
    let (store, ()) = tokio::join!(waiting, electing);
    store.expect("served after the election");
}

#[tokio::test]
async fn a_timestamp_stream_that_breaks_is_opened_again_and_nobody_notices() {
    let only = FakePd::start().await;
    only.set(|behaviour| behaviour.replies_per_stream = 2);
    let pd = connect(&[&only]).await;
    let mut last = Ts::ZERO;
    for _ in 0..9 {
        let ts = pd.tso().await.expect("served");
        assert!(ts > last);
        last = ts;
    }
}

#[tokio::test]
async fn a_thousand_waiters_share_few_requests_and_get_different_timestamps() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    let asking = (0..1_000).map(|_| {
        let pd = pd.clone();
        tokio::spawn(async move { pd.tso().await.expect("served") })
    });
    let mut all = Vec::new();
    for answer in asking.collect::<Vec<_>>() {
        all.push(answer.await.expect("no panic"));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 1_000);
    assert!(only.calls("Tso") < 100, "{} requests", only.calls("Tso"));
}

#[tokio::test]
async fn timestamps_that_go_back_are_not_handed_out() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    only.set(|behaviour| behaviour.last_tso = 500);
    let before = pd.tso().await.expect("served");
    only.set(|behaviour| behaviour.last_tso = 100);
    let error = pd.tso().await.expect_err("a restarted oracle that lost its memory");
    assert!(error.to_string().contains(&format!("not above {before}")), "{error}");
    only.set(|behaviour| behaviour.last_tso = 900);
    assert!(pd.tso().await.expect("served again") > before);
}

#[tokio::test]
async fn a_reply_with_another_count_is_unusable() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    only.set(|behaviour| behaviour.miscount = 1);
    let error = pd.tso().await.expect_err("not what was asked for");
    assert!(matches!(error, PdError::Malformed { call: "Tso", .. }), "{error}");
    assert_eq!((error.code(), error.class()), ("TG-PD-008", ErrorClass::Corrupt));
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_its_name_and_time() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    only.set(|behaviour| behaviour.hangs = true);
    let error = pd.store(StoreId(1)).await.expect_err("nobody answers");
    assert_eq!(error.to_string(), "PD did not answer GetStore within 500 ms");
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_named_with_the_reason() {
    let gone = dead_address();
    let error = PdClient::connect(PdOptions::new([gone.clone()])).await.expect_err("nobody listens");
    assert!(matches!(error, PdError::Unreachable { .. }));
    let text = error.to_string();
    assert!(text.contains(&gone) && text.contains("refused"), "{text}");
    assert!(error.hint().is_some_and(|hint| hint.contains("PD runs")));
}

#[tokio::test]
async fn no_endpoint_and_a_wrong_one_are_refused_at_once() {
    let none: [&str; 0] = [];
    assert!(matches!(PdClient::connect(PdOptions::new(none)).await, Err(PdError::NoEndpoint)));
    let error = PdClient::connect(PdOptions::new(["pd.example"])).await.expect_err("no port");
    assert!(error.to_string().contains("\"pd.example\""), "{error}");
}

#[tokio::test]
async fn a_dead_seed_does_not_matter_while_another_answers() {
    let dead = dead_address();
    let only = FakePd::start().await;
    let pd = PdClient::connect(PdOptions::new([dead, only.url()])).await.expect("one answers");
    pd.tso().await.expect("served");
}

#[tokio::test]
async fn endpoints_of_two_clusters_are_told_apart() {
    let (ours, stranger) = (FakePd::start().await, FakePd::start().await);
    stranger.set(|behaviour| behaviour.cluster_id = 99);
    let error = PdClient::connect(options(&[&ours, &stranger])).await.expect_err("two clusters");
    assert!(matches!(error, PdError::ClusterMismatch { .. }), "{error}");
    let wanted = PdOptions { cluster_id: Some(ClusterId(1)), ..options(&[&ours]) };
    let error = PdClient::connect(wanted).await.expect_err("not the one that was configured");
    let text = error.to_string();
    assert!(text.contains("77") && text.contains("expected cluster 1"), "{text}");
}

#[tokio::test]
async fn a_cluster_that_was_set_up_anew_under_the_same_address_is_noticed() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    only.set(|behaviour| behaviour.cluster_id = 99);
    let error = pd.store(StoreId(1)).await.expect_err("another cluster");
    assert!(matches!(error, PdError::ClusterMismatch { actual: ClusterId(99), .. }), "{error}");
    assert!(matches!(pd.tso().await, Err(PdError::ClusterMismatch { .. })));
}

#[tokio::test]
async fn errors_in_the_header_keep_their_meaning() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    assert!(matches!(pd.store(StoreId(404)).await, Err(PdError::StoreGone { store_id: StoreId(404) })));
    let error = pd.all_stores().await.expect_err("no store yet");
    assert!(matches!(error, PdError::NotBootstrapped { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::Wait);
}

#[tokio::test]
async fn a_store_is_asked_for_once_until_it_is_forgotten() {
    let only = FakePd::start().await;
    let pd = connect(&[&only]).await;
    for _ in 0..3 {
        pd.store(StoreId(1)).await.expect("served");
    }
    assert_eq!(only.calls("GetStore"), 1);
    pd.forget_store(StoreId(1));
    pd.store(StoreId(1)).await.expect("served");
    assert_eq!(only.calls("GetStore"), 2);
}

fn hold(ts: u64) -> GcHold {
    GcHold {
        scope: GcScope::Unified,
        id: "tidegate-test".into(),
        ts: Ts::new(ts),
        ttl: Duration::from_secs(1),
    }
}

#[tokio::test]
async fn an_old_pd_gets_the_old_safe_point_calls() {
    let old = FakePd::start().await;
    old.set(|behaviour| {
        behaviour.old = true;
        behaviour.safe_point = 50;
    });
    let pd = connect(&[&old]).await;
    assert_eq!(pd.safe_point(GcScope::Unified).await.expect("served"), Ts::new(50));
    let error = GcBarrier::hold(&pd, hold(49)).await.expect_err("GC is further");
    assert!(matches!(error, PdError::BehindSafePoint { .. }), "{error}");
    let barrier = GcBarrier::hold(&pd, hold(60)).await.expect("held");
    let id = Bytes::from_static(b"tidegate-test");
    assert_eq!(old.behaviour.lock().services.get(&id), Some(&(60, 1)));
    barrier.advance(Ts::new(70));
    barrier.advance(Ts::new(65));
    // A third of the second that it lives passes until the next refresh.
    let refreshed = async {
        while old.behaviour.lock().services.get(&id) != Some(&(70, 1)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), refreshed).await.expect("refreshed with the larger one");
    barrier.release().await.expect("released");
    assert!(old.behaviour.lock().services.is_empty());
}

#[tokio::test]
async fn a_barrier_that_gc_has_passed_while_pd_was_away_is_reported_as_lost() {
    let old = FakePd::start().await;
    old.set(|behaviour| behaviour.old = true);
    let pd = connect(&[&old]).await;
    let barrier = GcBarrier::hold(&pd, hold(60)).await.expect("held");
    old.set(|behaviour| behaviour.safe_point = 80);
    let lost = tokio::time::timeout(Duration::from_secs(5), barrier.lost()).await.expect("noticed");
    assert!(matches!(lost, PdError::BehindSafePoint { .. }), "{lost}");
}
