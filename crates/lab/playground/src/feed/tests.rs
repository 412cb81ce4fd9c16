use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{ClusterId, CommitTs, Op, StartTs};
use tidegate_proto::cdcpb::event::Event as Kind;
use tidegate_proto::cdcpb::{ChangeDataRequest, Header};
use tidegate_proto::metapb;

use super::*;
use crate::engine::{Engine, RowKind};
use crate::topology::Topology;

const CLUSTER: ClusterId = ClusterId(7);
const STORE: StoreId = StoreId(1);

struct Fixture {
    feeds: Feeds,
    topology: Topology,
    region: RegionId,
    stream: StreamId,
}

/// One store with one region, and a stream of a current client.
fn fixture() -> Fixture {
    let topology = Topology::new(["a:1".to_owned()]);
    let region = topology.region_of(b"").expect("one region").id;
    let mut feeds = Feeds::default();
    let stream = feeds.open_stream(STORE, true);
    feeds.greet(stream, "8.5.4");
    Fixture { feeds, topology, region, stream }
}

impl Fixture {
    fn request(&self, request_id: u64) -> ChangeDataRequest {
        ChangeDataRequest {
            header: Some(Header { cluster_id: CLUSTER.get(), ticdc_version: "8.5.4".to_owned() }),
            region_id: self.region.get(),
            region_epoch: Some(metapb::RegionEpoch { conf_ver: 1, version: 1 }),
            request_id,
            ..Default::default()
        }
    }

    fn register(&mut self, request: &ChangeDataRequest) -> Option<(DownstreamId, Registration)> {
        self.feeds.register(self.stream, request, CLUSTER, &self.topology, 2).ok()
    }

    /// Registers and completes an empty scan.
    fn subscribe(&mut self, request: &ChangeDataRequest) -> DownstreamId {
        let (id, registration) = self.register(request).expect("nothing against it");
        let region = self.topology.region(self.region);
        let applied = Engine::default().applied();
        self.feeds.begin_scan(id, &registration, region, applied).expect("it leads");
        self.feeds.initialized(id, Vec::new());
        self.feeds.take_outbox();
        id
    }

    fn error(&mut self) -> cdcpb::Error {
        let outbox = self.feeds.take_outbox();
        let [Outgoing { item: Item::Event { event, .. }, .. }] = &outbox[..] else {
            panic!("one error, not {outbox:?}")
        };
        match &event.event {
            Some(Kind::Error(error)) => error.clone(),
            other => panic!("an error, not {other:?}"),
        }
    }

    fn resolved(&mut self, ts: u64, lock: Option<u64>) -> Vec<cdcpb::ResolvedTs> {
        self.feeds.resolve(Ts::new(ts), |_| lock.map(StartTs::new));
        let outbox = self.feeds.take_outbox().into_iter();
        outbox
            .map(|out| match out.item {
                Item::Resolved(resolved) => resolved,
                other => panic!("a resolved timestamp, not {other:?}"),
            })
            .collect()
    }
}

fn row(key: &'static str, commit_ts: u64, txn_source: u64) -> ChangeRow {
    ChangeRow {
        kind: RowKind::Commit,
        op: Some(Op::Put),
        encoded: to_region_key(key.as_bytes()).into(),
        key: Bytes::from(key),
        value: Bytes::new(),
        old_value: Bytes::new(),
        start_ts: StartTs::new(commit_ts - 1),
        commit_ts: CommitTs::new(commit_ts),
        txn_source,
    }
}

#[test]
fn registrations_are_refused_in_the_order_of_the_reference() {
    let mut fixture = fixture();
    let mut wrong = fixture.request(1);
    wrong.header = Some(Header { cluster_id: 8, ticdc_version: String::new() });
    wrong.kv_api = 2;
    wrong.region_id = 99;
    assert!(fixture.register(&wrong).is_none());
    assert_eq!(fixture.error().cluster_id_mismatch.map(|e| (e.current, e.request)), Some((7, 8)));
    wrong.header = fixture.request(1).header;
    assert!(fixture.register(&wrong).is_none());
    assert_eq!(fixture.error().compatibility.map(|e| e.required_version), Some("6.2.0".to_owned()));
    wrong.kv_api = 0;
    assert!(fixture.register(&wrong).is_none());
    assert_eq!(fixture.error().region_not_found.map(|e| e.region_id), Some(99));

    let request = fixture.request(1);
    fixture.register(&request).expect("nothing against it");
    assert!(fixture.register(&request).is_none());
    assert!(fixture.error().duplicate_request.is_some());
    // Two scans wait: the limit of this fixture.
    let second = fixture.request(2);
    fixture.register(&second).expect("nothing against it");
    let third = fixture.request(3);
    assert!(fixture.register(&third).is_none());
    assert!(fixture.error().server_is_busy.is_some());
}

#[test]
fn a_stale_epoch_is_refused_at_once_if_the_region_is_observed_and_else_when_the_scan_begins() {
    let mut fixture = fixture();
    let mut stale = fixture.request(1);
    stale.region_epoch = Some(metapb::RegionEpoch { conf_ver: 1, version: 0 });
    let (id, registration) = fixture.register(&stale).expect("nobody observes it yet");
    let region = fixture.topology.region(fixture.region);
    let applied = Engine::default().applied();
    assert!(fixture.feeds.begin_scan(id, &registration, region, applied).is_none());
    assert_eq!(fixture.error().epoch_not_match.map(|e| e.current_regions.len()), Some(1));
    let sound = fixture.request(2);
    fixture.subscribe(&sound);
    assert!(fixture.register(&stale).is_none());
    assert!(fixture.error().epoch_not_match.is_some());
}

#[test]
fn rows_reach_only_who_asked_for_their_range_and_source() {
    let mut fixture = fixture();
    let mut request = fixture.request(1);
    request.end_key = to_region_key(b"m").into();
    request.filter_loop = true;
    fixture.subscribe(&request);
    let rows = [row("a", 10, 0), row("b", 10, 1), row("c", 10, 1 << 8), row("z", 10, 0)];
    fixture.feeds.observe(fixture.region, &rows.iter().collect::<Vec<_>>());
    let outbox = fixture.feeds.take_outbox();
    let [Outgoing { item: Item::Event { event, size }, .. }] = &outbox[..] else { panic!("one event") };
    assert_eq!((size.rows, event.request_id), (1, 1));

    // Without the filter, rows that a feed wrote are shown; those of a lossy DDL never.
    let mut all = fixture.request(2);
    all.start_key = to_region_key(b"b").into();
    fixture.subscribe(&all);
    fixture.feeds.observe(fixture.region, &rows.iter().collect::<Vec<_>>());
    let sizes: Vec<usize> = fixture
        .feeds
        .take_outbox()
        .iter()
        .map(|out| match &out.item {
            Item::Event { size, .. } => size.rows,
            other => panic!("an event, not {other:?}"),
        })
        .collect();
    assert_eq!(sizes, [1, 2]);
}

#[test]
fn resolved_timestamps_stop_at_the_oldest_lock_and_never_go_back() {
    let mut fixture = fixture();
    let request = fixture.request(1);
    fixture.subscribe(&request);
    assert_eq!(fixture.resolved(100, None)[0].ts, 100);
    assert_eq!(fixture.resolved(110, Some(105))[0].ts, 105);
    // An old transaction may lock late; it commits above what was promised.
    assert_eq!(fixture.resolved(120, Some(50))[0].ts, 105);
    assert_eq!(fixture.resolved(130, None)[0].ts, 130);
}

#[test]
fn what_is_not_initialised_is_not_resolved() {
    let mut fixture = fixture();
    let request = fixture.request(1);
    let (id, registration) = fixture.register(&request).expect("nothing against it");
    assert!(fixture.resolved(100, None).is_empty());
    let region = fixture.topology.region(fixture.region);
    fixture.feeds.begin_scan(id, &registration, region, Engine::default().applied()).expect("it leads");
    assert!(fixture.resolved(100, None).is_empty());
    fixture.feeds.initialized(id, Vec::new());
    fixture.feeds.take_outbox();
    assert_eq!(fixture.resolved(100, None).len(), 1);
}

#[test]
fn the_clients_version_and_features_decide_the_shape_of_resolved_timestamps() {
    // reference/cdc-protocol.md §1: the table of client versions.
    let shape = |version: &str, multiplexed: bool| {
        let mut fixture = fixture();
        fixture.stream = fixture.feeds.open_stream(STORE, multiplexed);
        fixture.feeds.greet(fixture.stream, version);
        let request = fixture.request(9);
        fixture.subscribe(&request);
        fixture.feeds.resolve(Ts::new(100), |_| None);
        match fixture.feeds.take_outbox().pop().map(|out| out.item) {
            Some(Item::Resolved(resolved)) => format!("batch {}", resolved.request_id),
            Some(Item::Event { event, .. }) => format!("event {}", event.request_id),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(shape("8.5.4", true), "batch 9");
    assert_eq!(shape("8.5.4", false), "batch 0");
    assert_eq!(shape("4.0.7", false), "event 9");
    assert_eq!(shape("4.0.7", true), "None");
}

#[test]
fn deregistering_a_request_id_confirms_each_of_its_regions() {
    let mut fixture = fixture();
    let request = fixture.request(1);
    fixture.subscribe(&request);
    let other = fixture.request(2);
    fixture.subscribe(&other);
    let deregister = ChangeDataRequest { region_id: 0, ..request };
    fixture.feeds.deregister(fixture.stream, &deregister);
    assert_eq!(fixture.error().region_not_found.map(|e| e.region_id), Some(fixture.region.get()));
    assert_eq!(fixture.resolved(100, None).len(), 1, "the other one stands");
}

#[tokio::test]
async fn a_full_store_refuses_rows_but_never_errors() {
    let limits = FeedLimits { queue_bytes_max: 1_000, ..FeedLimits::default() };
    let queue = FeedQueue::new(Quota::new(limits.queue_bytes_max), &limits);
    let item = |bytes| Item::Event { event: cdcpb::Event::default(), size: EventSize { rows: 1, bytes } };
    assert!(queue.push(item(700)).is_ok());
    assert!(queue.push(item(700)).is_err());
    queue.push_anyway(item(0));
    let message = queue.next_message().await.expect("open");
    assert_eq!(message.events.len(), 2);
    assert!(queue.push(item(700)).is_ok(), "what was sent is free again");
}

#[tokio::test]
async fn scan_events_of_an_ended_registration_are_thrown_away() {
    let limits = FeedLimits::default();
    let queue = FeedQueue::new(Quota::new(limits.queue_bytes_max), &limits);
    let liveness = Liveness::new();
    let scanned = Item::Scanned {
        event: cdcpb::Event::default(),
        size: EventSize::default(),
        liveness: liveness.clone(),
    };
    queue.push_scanned(vec![scanned.clone(), scanned], &liveness).await.expect("room");
    liveness.end();
    queue.push_anyway(Item::Event {
        event: event::error(RequestId(1), RegionId(2), cdcpb::Error::default()),
        size: EventSize::default(),
    });
    let message = queue.next_message().await.expect("open");
    assert_eq!(message.events.len(), 1);
    assert!(matches!(message.events[0].event, Some(Kind::Error(_))));
}

#[tokio::test]
async fn resolved_timestamps_travel_alone_and_after_the_rows_before_them() {
    let limits = FeedLimits::default();
    let queue = FeedQueue::new(Quota::new(limits.queue_bytes_max), &limits);
    let rows = Item::Event { event: cdcpb::Event::default(), size: EventSize::default() };
    queue.push_anyway(rows.clone());
    queue.push_anyway(Item::Resolved(cdcpb::ResolvedTs::default()));
    queue.push_anyway(rows);
    let shapes = [(1, false), (0, true), (1, false)];
    for shape in shapes {
        let message = queue.next_message().await.expect("open");
        assert_eq!((message.events.len(), message.resolved_ts.is_some()), shape);
    }
}
