//! PD's promises, over gRPC and HTTP on one port.

use bytes::Bytes;
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_proto::health::HealthCheckRequest;
use tidegate_proto::health::health_client::HealthClient;
use tidegate_proto::keyspacepb::LoadKeyspaceRequest;
use tidegate_proto::keyspacepb::keyspace_client::KeyspaceClient;
use tidegate_proto::pdpb::pd_client::PdClient;
use tidegate_proto::pdpb::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Channel;

use crate::start;

async fn client(playground: &Playground) -> (PdClient<Channel>, Option<RequestHeader>) {
    let pd = PdClient::connect(format!("http://{}", playground.pd_endpoint())).await.expect("PD listens");
    let header = RequestHeader { cluster_id: playground.cluster_id().get(), ..Default::default() };
    (pd, Some(header))
}

#[tokio::test(flavor = "multi_thread")]
async fn timestamp_batches_are_answered_in_order_with_their_last_and_end_with_the_caller() {
    let playground = start(PlaygroundOptions::default()).await;
    let (mut pd, header) = client(&playground).await;
    let counts = [1, 1_000, 3];
    let requests =
        counts.map(|count| TsoRequest { header: header.clone(), count, dc_location: String::new() });
    let mut answers = pd.tso(tokio_stream::iter(requests)).await.expect("a stream").into_inner();
    let mut last = 0;
    for count in counts {
        let answer = answers.message().await.expect("an answer").expect("one for each request");
        assert_eq!(answer.count, count);
        let ts = answer.timestamp.expect("a timestamp");
        let tso = (ts.physical << 18) + ts.logical;
        // The whole batch lies above everything handed out before, within one millisecond.
        assert!(tso - i64::from(count) >= last && ts.logical >= i64::from(count));
        last = tso;
    }
    assert!(answers.message().await.expect("no error").is_none(), "the stream ends with its caller's half");
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_clusters_id_is_refused_except_at_first_contact() {
    let playground = start(PlaygroundOptions::default()).await;
    let (mut pd, _) = client(&playground).await;
    let header = Some(RequestHeader { cluster_id: 1, ..Default::default() });
    let refused = pd.get_region(GetRegionRequest { header, ..Default::default() }).await;
    let status = refused.expect_err("another cluster");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().starts_with("mismatch cluster id"), "{}", status.message());
    let members = pd.get_members(GetMembersRequest::default()).await.expect("no header needed").into_inner();
    let leader = members.leader.expect("a leader");
    assert_ne!(leader.member_id, 0);
    assert_eq!(leader.client_urls, [format!("http://{}", playground.pd_endpoint())]);
    assert!(members.header.is_some_and(|header| header.error.is_none()));
    let info = pd.get_cluster_info(GetClusterInfoRequest::default()).await.expect("no header needed");
    assert_eq!(info.get_ref().service_modes, [i32::from(ServiceMode::Pd)]);
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn regions_are_found_by_key_by_id_and_by_ranges() {
    let playground = start(PlaygroundOptions::default()).await;
    for key in [b"g", b"p"] {
        playground.split(key).expect("an inner key");
    }
    let [first, second, third] = &playground.regions()[..] else { panic!("three regions") };
    let (mut pd, header) = client(&playground).await;
    // The user key "" arrives encoded: reference/pd-protocol.md §6.1.
    let empty_encoded = Bytes::from_static(b"\0\0\0\0\0\0\0\0\xf7");
    let request = GetRegionRequest { header: header.clone(), region_key: empty_encoded, need_buckets: false };
    let found = pd.get_region(request).await.expect("an answer").into_inner();
    assert_eq!(found.region.map(|region| region.id), Some(first.id.get()));
    assert!(found.leader.is_some_and(|leader| leader.id != 0));

    let request = GetRegionRequest {
        header: header.clone(),
        region_key: second.span.start.clone(),
        need_buckets: false,
    };
    let before = pd.get_prev_region(request).await.expect("an answer").into_inner();
    assert_eq!(before.region.map(|region| region.id), Some(first.id.get()));

    let request = GetRegionByIdRequest { header: header.clone(), region_id: 999_999, need_buckets: false };
    let missing = pd.get_region_by_id(request).await.expect("an answer").into_inner();
    assert!(missing.region.is_none() && missing.header.is_some_and(|header| header.error.is_none()));

    let range = |start: &Bytes, end: &Bytes| KeyRange { start_key: start.clone(), end_key: end.clone() };
    let request = BatchScanRegionsRequest {
        header: header.clone(),
        ranges: vec![
            range(&Bytes::new(), &first.span.end),
            range(&second.span.start, &Bytes::from([&second.span.start[..], b"x"].concat())),
            range(&Bytes::from([&second.span.start[..], b"y"].concat()), &Bytes::new()),
        ],
        ..Default::default()
    };
    let scanned = pd.batch_scan_regions(request).await.expect("an answer").into_inner();
    let ids: Vec<_> = scanned.regions.iter().filter_map(|r| r.region.as_ref()).map(|r| r.id).collect();
    assert_eq!(ids, [first.id.get(), second.id.get(), third.id.get()], "no region twice");

    let request = QueryRegionRequest {
        header,
        keys: vec![third.span.start.clone(), Bytes::new()],
        prev_keys: vec![Bytes::new()],
        ids: vec![second.id.get(), 999_999],
        need_buckets: false,
    };
    let mut answers = pd.query_region(tokio_stream::iter([request])).await.expect("a stream").into_inner();
    let answer = answers.message().await.expect("an answer").expect("one");
    assert_eq!(answer.key_id_map, [third.id.get(), first.id.get()]);
    assert_eq!(answer.prev_key_id_map, [0]);
    assert_eq!(answer.regions_by_id.len(), 3);
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_generations_of_gc_calls_see_one_safe_point() {
    let playground = start(PlaygroundOptions::default()).await;
    let (mut pd, header) = client(&playground).await;
    let now = playground.now().get();
    let hold = UpdateServiceGcSafePointRequest {
        header: header.clone(),
        service_id: Bytes::from_static(b"ticdc-default-1"),
        ttl: 60,
        safe_point: now,
    };
    let held = pd.update_service_gc_safe_point(hold).await.expect("an answer").into_inner();
    assert!(held.min_safe_point <= now, "accepted: nothing above it is gone");
    let request = GetGcStateRequest { header: header.clone(), ..Default::default() };
    let state = pd.get_gc_state(request).await.expect("an answer").into_inner().gc_state.expect("a state");
    assert_eq!(state.gc_barriers.len(), 1);
    assert_eq!((state.gc_barriers[0].barrier_ts, state.gc_barriers[0].ttl_seconds), (now, 60));

    let advance =
        AdvanceTxnSafePointRequest { header: header.clone(), keyspace_scope: None, target: now + 100 };
    let advanced = pd.advance_txn_safe_point(advance).await.expect("an answer").into_inner();
    assert_eq!(advanced.new_txn_safe_point, now);
    assert!(advanced.blocker_description.contains("ticdc-default-1"));

    let behind = SetGcBarrierRequest {
        header: header.clone(),
        barrier_id: "late".to_owned(),
        barrier_ts: now - 1,
        ttl_seconds: 10,
        keyspace_scope: None,
    };
    let refused = pd.set_gc_barrier(behind).await.expect("a business error").into_inner();
    let error = refused.header.and_then(|header| header.error).expect("an error in the header");
    assert!(error.message.contains("PD:gc:ErrGCBarrierTSBehindTxnSafePoint"));

    let delete =
        DeleteGcBarrierRequest { header, barrier_id: "ticdc-default-1".to_owned(), keyspace_scope: None };
    let deleted = pd.delete_gc_barrier(delete).await.expect("an answer").into_inner();
    assert_eq!(deleted.deleted_barrier_info.map(|info| info.barrier_ts), Some(now));
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_keyspaces_and_unknown_methods_are_answered_at_once() {
    let playground = start(PlaygroundOptions::default()).await;
    let url = format!("http://{}", playground.pd_endpoint());
    let mut health = HealthClient::connect(url.clone()).await.expect("PD listens");
    let status = health.check(HealthCheckRequest::default()).await.expect("healthy").into_inner().status;
    assert_eq!(status, 1, "SERVING");
    let header = client(&playground).await.1;
    let mut keyspaces = KeyspaceClient::connect(url.clone()).await.expect("PD listens");
    for (name, known) in [("DEFAULT", true), ("other", false)] {
        let request = LoadKeyspaceRequest { header: header.clone(), name: name.to_owned(), namespace: None };
        let answer = keyspaces.load_keyspace(request).await.expect("an answer").into_inner();
        let error = answer.header.and_then(|header| header.error).map(|error| error.r#type());
        assert_eq!((answer.keyspace.is_some(), error), (known, (!known).then_some(ErrorType::EntryNotFound)));
    }
    // A service that is not here: fallbacks of clients key on the code.
    let mut absent = tidegate_proto::tikvpb::tikv_client::TikvClient::connect(url).await.expect("PD listens");
    let status = absent.kv_get(tidegate_proto::kvrpcpb::GetRequest::default()).await.expect_err("not on PD");
    assert_eq!(status.code(), Code::Unimplemented);
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_paths_answer_on_the_same_port() {
    let playground = start(PlaygroundOptions::default()).await;
    let version = http_get(&playground, "/pd/api/v1/version").await;
    assert!(version.starts_with("HTTP/1.1 200") && version.ends_with(r#"{"version":"v8.5.4"}"#), "{version}");
    let health = http_get(&playground, "/pd/api/v1/health").await;
    assert!(health.contains(r#""health":true"#), "{health}");
    let missing = http_get(&playground, "/pd/api/v1/store/77").await;
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    playground.stop().await;
}

async fn http_get(playground: &Playground, path: &str) -> String {
    let mut socket = TcpStream::connect(playground.pd_endpoint()).await.expect("PD listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: pd\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("text");
    answer
}
