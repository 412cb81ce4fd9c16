//! A change-feed client of the tests' own: the plainest one that is right. It reads all keys from a start
//! timestamp, pairs prewrites with commits, survives errors by registering the range again from where it was
//! resolved, and checks the protocol's promises as it goes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{CommitTs, Op, Span, StartTs, Ts};
use tidegate_proto::cdcpb::change_data_client::ChangeDataClient;
use tidegate_proto::cdcpb::event::{Event as Kind, LogType, Row, row::OpType};
use tidegate_proto::cdcpb::{ChangeDataEvent, ChangeDataRequest, Event, Header};
use tidegate_proto::metapb;
use tidegate_proto::pdpb::pd_client::PdClient;
use tidegate_proto::pdpb::{GetMembersRequest, GetStoreRequest, RequestHeader, ScanRegionsRequest};
use tidegate_testkit::Version;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::Channel;

/// Far longer than any test waits for progress, and short enough to say what is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

type Incoming = (u64, u64, Option<ChangeDataEvent>);

/// One registration.
struct Region {
    id: u64,
    span: Span,
    stream: u64,
    initialized: bool,
    resolved: Ts,
    prewrites: HashMap<(u64, Bytes), Row>,
    early_commits: Vec<Row>,
}

struct Stream {
    number: u64,
    requests: mpsc::Sender<ChangeDataRequest>,
}

pub(crate) struct FeedClient {
    cluster_id: u64,
    pd: PdClient<Channel>,
    streams: HashMap<u64, Stream>,
    incoming: mpsc::Receiver<Incoming>,
    sender: mpsc::Sender<Incoming>,
    regions: HashMap<u64, Region>,
    /// Ranges to register, with what they are resolved to.
    todo: Vec<(Span, Ts)>,
    next_id: u64,
    start_ts: Ts,
    /// Every committed version seen, by key and commit timestamp.
    pub(crate) versions: BTreeMap<(Bytes, CommitTs), Version>,
    /// What each version replaced.
    pub(crate) old_values: BTreeMap<(Bytes, CommitTs), Bytes>,
    /// Errors and broken streams survived.
    pub(crate) failures: usize,
}

impl FeedClient {
    /// Prepares to read all keys above `start_ts`.
    pub(crate) async fn connect(pd_endpoint: &str, start_ts: Ts) -> Self {
        Self::connect_span(pd_endpoint, Span::all(), start_ts).await
    }

    /// Prepares to read an encoded span above `start_ts`.
    pub(crate) async fn connect_span(pd_endpoint: &str, span: Span, start_ts: Ts) -> Self {
        let mut pd = PdClient::connect(format!("http://{pd_endpoint}")).await.expect("PD listens");
        let members = pd.get_members(GetMembersRequest::default()).await.expect("members").into_inner();
        let (sender, incoming) = mpsc::channel(64);
        Self {
            cluster_id: members.header.expect("a header").cluster_id,
            pd,
            streams: HashMap::new(),
            incoming,
            sender,
            regions: HashMap::new(),
            todo: vec![(span, start_ts)],
            next_id: 0,
            start_ts,
            versions: BTreeMap::new(),
            old_values: BTreeMap::new(),
            failures: 0,
        }
    }

    /// Reads until everything is resolved up to `until`.
    pub(crate) async fn read_to(&mut self, until: Ts) {
        let reading = tokio::time::timeout(PATIENCE, self.read_all_to(until)).await;
        assert!(reading.is_ok(), "not resolved up to {until}: {}", self.laggard());
    }

    async fn read_all_to(&mut self, until: Ts) {
        while self.resolved() < until {
            self.register_all().await;
            let (store, stream, message) = self.incoming.recv().await.expect("own sender is open");
            match message {
                Some(message) => self.take(message),
                None => self.stream_broke(store, stream),
            }
        }
    }

    /// The range that holds the others back.
    fn laggard(&self) -> String {
        let region = self.regions.iter().min_by_key(|(_, region)| region.resolved);
        let region = region.map(|(request, r)| {
            let Region { id, span, stream, initialized, resolved, prewrites, .. } = r;
            let (prewrites, keys) = (prewrites.len(), prewrites.keys().collect::<Vec<_>>());
            format!(
                "request {request}, region {id} {span:?}, stream {stream}, initialized {initialized}, \
                 resolved {resolved}, {prewrites} prewrites {keys:?}"
            )
        });
        format!("{region:?}, to do {:?}, streams {:?}", self.todo, self.streams.keys())
    }

    /// What all ranges are resolved to.
    pub(crate) fn resolved(&self) -> Ts {
        let regions = self.regions.values().map(|region| region.resolved);
        let todo = self.todo.iter().map(|(_, ts)| *ts);
        regions.chain(todo).min().unwrap_or(self.start_ts)
    }

    /// Everything read with a commit timestamp up to `until`, in commit order.
    pub(crate) fn committed(&self, until: Ts) -> Vec<Version> {
        let mut versions: Vec<Version> =
            self.versions.values().filter(|version| version.commit_ts.ts() <= until).cloned().collect();
        versions.sort_by(|a, b| (a.commit_ts, a.start_ts, &a.key).cmp(&(b.commit_ts, b.start_ts, &b.key)));
        versions
    }

    fn header(&self) -> Option<RequestHeader> {
        Some(RequestHeader { cluster_id: self.cluster_id, ..Default::default() })
    }

    async fn register_all(&mut self) {
        for (span, checkpoint) in std::mem::take(&mut self.todo) {
            let request = ScanRegionsRequest {
                header: self.header(),
                start_key: span.start.clone(),
                limit: 0,
                end_key: span.end.clone(),
            };
            let found = self.pd.scan_regions(request).await.expect("regions").into_inner();
            for (region, leader) in found.region_metas.into_iter().zip(found.leaders) {
                let whole = Span::new(region.start_key.clone(), region.end_key.clone());
                if let Some(part) = whole.intersect(&span) {
                    self.register(region, leader, part, checkpoint).await;
                }
            }
        }
    }

    async fn register(&mut self, region: metapb::Region, leader: metapb::Peer, span: Span, from: Ts) {
        let Some(stream) = self.stream(leader.store_id).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.todo.push((span, from));
            return;
        };
        self.next_id += 1;
        let request_id = self.next_id;
        let request = ChangeDataRequest {
            header: Some(Header { cluster_id: self.cluster_id, ticdc_version: "8.5.4".to_owned() }),
            region_id: region.id,
            region_epoch: region.region_epoch,
            checkpoint_ts: from.get(),
            start_key: span.start.clone(),
            end_key: span.end.clone(),
            request_id,
            ..Default::default()
        };
        let (number, requests) = stream;
        let state = Region {
            id: region.id,
            span,
            stream: number,
            initialized: false,
            resolved: from,
            prewrites: HashMap::new(),
            early_commits: Vec::new(),
        };
        self.regions.insert(request_id, state);
        // If the stream breaks just now, its end is reported as a message.
        drop(requests.send(request).await);
    }

    async fn stream(&mut self, store: u64) -> Option<(u64, mpsc::Sender<ChangeDataRequest>)> {
        if !self.streams.contains_key(&store) {
            let request = GetStoreRequest { header: self.header(), store_id: store };
            let address = self.pd.get_store(request).await.ok()?.into_inner().store?.address;
            self.next_id += 1;
            let number = self.next_id;
            let requests = open_stream(&address, store, number, self.sender.clone()).await?;
            self.streams.insert(store, Stream { number, requests });
        }
        self.streams.get(&store).map(|stream| (stream.number, stream.requests.clone()))
    }

    fn take(&mut self, message: ChangeDataEvent) {
        for event in message.events {
            self.take_event(event);
        }
        let Some(resolved) = message.resolved_ts else { return };
        if let Some(region) = self.regions.get_mut(&resolved.request_id) {
            assert!(region.initialized, "resolved before INITIALIZED");
            assert!(resolved.regions.contains(&region.id));
            region.resolved = region.resolved.max(Ts::new(resolved.ts));
        }
    }

    fn take_event(&mut self, event: Event) {
        match event.event.expect("an event holds something") {
            Kind::Entries(entries) => {
                for row in entries.entries {
                    self.take_row(event.request_id, row);
                }
            }
            Kind::Error(_) => {
                self.failures += 1;
                self.give_up(event.request_id);
            }
            other => panic!("a current server never sends {other:?}"),
        }
    }

    /// Registers a range again, from where it was resolved.
    fn give_up(&mut self, request_id: u64) {
        if let Some(region) = self.regions.remove(&request_id) {
            self.todo.push((region.span, region.resolved));
        }
    }

    fn stream_broke(&mut self, store: u64, number: u64) {
        self.failures += 1;
        self.streams.retain(|id, stream| *id != store || stream.number != number);
        let broken: Vec<u64> =
            self.regions.iter().filter(|(_, region)| region.stream == number).map(|(id, _)| *id).collect();
        for request_id in broken {
            self.give_up(request_id);
        }
    }

    fn take_row(&mut self, request_id: u64, row: Row) {
        let Some(region) = self.regions.get_mut(&request_id) else { return };
        let key = (row.start_ts, row.key.clone());
        match row.r#type() {
            LogType::Prewrite => drop(region.prewrites.insert(key, row)),
            LogType::Rollback => drop(region.prewrites.remove(&key)),
            LogType::Committed => {
                assert!(row.commit_ts > region.resolved.get(), "committed below what was resolved");
                self.emit(row);
            }
            LogType::Commit if region.initialized => {
                let prewrite =
                    region.prewrites.remove(&key).expect("a commit after INITIALIZED has its prewrite");
                assert!(row.commit_ts > region.resolved.get(), "committed below what was resolved");
                self.emit(joined(prewrite, &row));
            }
            LogType::Commit => region.early_commits.push(row),
            LogType::Initialized => {
                region.initialized = true;
                let early = std::mem::take(&mut region.early_commits);
                let matched: Vec<Row> = early
                    .iter()
                    .filter_map(|commit| {
                        let prewrite = region.prewrites.remove(&(commit.start_ts, commit.key.clone()))?;
                        Some(joined(prewrite, commit))
                    })
                    .collect();
                matched.into_iter().for_each(|row| self.emit(row));
            }
            LogType::Unknown => panic!("a row without a type"),
        }
    }

    fn emit(&mut self, row: Row) {
        if row.commit_ts <= self.start_ts.get() {
            return;
        }
        let op = match row.op_type() {
            OpType::Put => Op::Put,
            OpType::Delete => Op::Delete,
            OpType::Unknown => panic!("a committed row without an operation"),
        };
        let commit_ts = CommitTs::new(row.commit_ts);
        let version = Version {
            op,
            key: row.key.clone(),
            value: row.value,
            start_ts: StartTs::new(row.start_ts),
            commit_ts,
        };
        let before = self.versions.insert((row.key.clone(), commit_ts), version.clone());
        assert!(before.is_none_or(|before| before == version), "one version with two contents");
        self.old_values.insert((row.key, commit_ts), row.old_value);
    }
}

fn joined(prewrite: Row, commit: &Row) -> Row {
    assert_eq!(prewrite.op_type, commit.op_type);
    Row { commit_ts: commit.commit_ts, ..prewrite }
}

async fn open_stream(
    address: &str,
    store: u64,
    number: u64,
    sender: mpsc::Sender<Incoming>,
) -> Option<mpsc::Sender<ChangeDataRequest>> {
    let client = ChangeDataClient::connect(format!("http://{address}")).await.ok()?;
    let mut client = client.max_decoding_message_size(256 << 20);
    let (requests, receiver) = mpsc::channel(1_024);
    let mut request = Request::new(ReceiverStream::new(receiver));
    request.metadata_mut().insert("features", "stream-multiplexing".parse().expect("ASCII"));
    let mut events = client.event_feed_v2(request).await.ok()?.into_inner();
    tokio::spawn(async move {
        while let Some(Ok(message)) = events.next().await {
            if sender.send((store, number, Some(message))).await.is_err() {
                return;
            }
        }
        drop(sender.send((store, number, None)).await);
    });
    Some(requests)
}
