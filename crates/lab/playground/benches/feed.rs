//! How fast the change feed serves an incremental scan: a million rows of about 210 bytes over three stores,
//! read by a client that only decodes messages and counts rows. Target: 500,000 rows a second on two cores.
#![expect(clippy::panic, reason = "a bench ends where its expectations do")]

use std::collections::BTreeMap;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tidegate_codec::key::{Handle, record_key};
use tidegate_core::{ClusterId, CommitTs, Op, StartTs, StoreId, TableId, Ts};
use tidegate_playground::{Playground, PlaygroundOptions, RegionView};
use tidegate_proto::cdcpb::change_data_client::ChangeDataClient;
use tidegate_proto::cdcpb::event::{Event as Kind, LogType};
use tidegate_proto::cdcpb::{ChangeDataRequest, Header};
use tidegate_proto::metapb;
use tidegate_proto::pdpb::pd_client::PdClient;
use tidegate_proto::pdpb::{GetStoreRequest, RequestHeader};
use tidegate_testkit::{History, Version};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tonic::Request;

const ROWS: i64 = 1_000_000;
const VALUE_BYTES: usize = 190;
const REGIONS: usize = 48;

fn main() {
    divan::main();
}

fn history() -> History {
    let base_ts = Ts::from_parts(1_000_000, 0);
    let version = |n: i64| Version {
        op: Op::Put,
        key: record_key(None, TableId(100), &Handle::Int(n)).into(),
        value: vec![b'v'; VALUE_BYTES].into(),
        start_ts: StartTs::new(base_ts.get() + 2 * n.unsigned_abs() + 1),
        commit_ts: CommitTs::new(base_ts.get() + 2 * n.unsigned_abs() + 2),
    };
    let log: Vec<Version> = (0..ROWS).map(version).collect();
    let end_ts = log.last().map_or(base_ts, |version| version.commit_ts.ts());
    let header = tidegate_testkit::Header { name: "bench".into(), cluster_id: ClusterId(9), base_ts, end_ts };
    History { header, base: Vec::new(), log }
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn serve_a_million_rows(bencher: Bencher<'_, '_>) {
    let runtime = Runtime::new().expect("threads");
    let options = PlaygroundOptions { history: Some(history()), regions: REGIONS, ..Default::default() };
    let playground = runtime.block_on(Playground::start(options)).expect("free ports");
    let rows = usize::try_from(ROWS).expect("positive");
    bencher.counter(ItemsCount::new(rows)).counter(BytesCount::new(rows * (VALUE_BYTES + 19))).bench_local(
        || {
            let read = runtime.block_on(read_all(&playground));
            assert_eq!(read, rows);
        },
    );
    runtime.block_on(playground.stop());
}

async fn read_all(playground: &Playground) -> usize {
    let mut by_store: BTreeMap<StoreId, Vec<RegionView>> = BTreeMap::new();
    for region in playground.regions() {
        by_store.entry(region.leader).or_default().push(region);
    }
    let endpoint = playground.pd_endpoint();
    let readers: Vec<_> = by_store
        .into_iter()
        .map(|(store, regions)| tokio::spawn(read_store(endpoint.clone(), store, regions)))
        .collect();
    let mut rows = 0;
    for reader in readers {
        rows += reader.await.expect("no panic");
    }
    rows
}

async fn read_store(pd: String, store: StoreId, regions: Vec<RegionView>) -> usize {
    let mut pd = PdClient::connect(format!("http://{pd}")).await.expect("PD listens");
    let header = Some(RequestHeader { cluster_id: 9, ..Default::default() });
    let request = GetStoreRequest { header, store_id: store.get() };
    let store = pd.get_store(request).await.expect("an answer").into_inner().store.expect("the store");
    let client = ChangeDataClient::connect(format!("http://{}", store.address)).await.expect("it listens");
    let requests: Vec<ChangeDataRequest> = regions.iter().map(registration).collect();
    let requests = tokio_stream::iter(requests).chain(tokio_stream::pending());
    let mut request = Request::new(requests);
    request.metadata_mut().insert("features", "stream-multiplexing".parse().expect("ASCII"));
    let mut client = client.max_decoding_message_size(256 << 20);
    let mut events = client.event_feed_v2(request).await.expect("a stream").into_inner();
    let (mut rows, mut open) = (0, regions.len());
    while open > 0 {
        let message = events.message().await.expect("no error").expect("an open stream");
        for event in message.events {
            let Some(Kind::Entries(entries)) = event.event else { panic!("rows") };
            let marks = entries.entries.iter().filter(|row| row.r#type() == LogType::Initialized).count();
            rows += entries.entries.len() - marks;
            open -= marks;
        }
    }
    rows
}

fn registration(region: &RegionView) -> ChangeDataRequest {
    ChangeDataRequest {
        header: Some(Header { cluster_id: 9, ticdc_version: "8.5.4".to_owned() }),
        region_id: region.id.get(),
        region_epoch: Some(metapb::RegionEpoch { conf_ver: 1, version: region.version }),
        start_key: region.span.start.clone(),
        end_key: region.span.end.clone(),
        request_id: region.id.get(),
        ..Default::default()
    }
}
