//! The whole path over gRPC: an upstream with a recorded history, the adapter, and a Search Fabric. What the
//! index holds must be what TiDB answered when the history was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tidegate_adapter::{Adapter, AdapterError, AdapterHandle, AdapterOptions, AdapterState};
use tidegate_codec::value::Time;
use tidegate_contract::{SfErrorCode, json};
use tidegate_core::{Diagnostic, ErrorClass, StartTs, Ts};
use tidegate_fabric::{Fabric, FabricOptions};
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_proto::searchfabric::v1::catalog_control_service_client::CatalogControlServiceClient;
use tidegate_proto::searchfabric::v1::query_service_client::QueryServiceClient;
use tidegate_proto::searchfabric::v1::{
    AtomicValue, Collection, CollectionSelector, Document, FieldData, ListCollectionsRequest, ScanRequest,
    atomic_value, collection_selector, field_data, vector_value,
};
use tidegate_testkit::{Cell, Expected, History, TableSnapshot, data};

/// Nothing here should take a tenth of it; a test that hangs must end.
const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    upstream: Playground,
    fabric: Fabric,
    gateway: String,
    end: Ts,
    base: Ts,
}

async fn serve(fabric: &Fabric) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let served = fabric.clone();
    tokio::spawn(async move { served.serve(listener).await });
    address
}

/// Serves at an address that was just given up; its sockets may linger for a moment.
async fn serve_at(fabric: &Fabric, address: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let listener = loop {
        match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let served = fabric.clone();
    tokio::spawn(async move { served.serve(listener).await });
}

/// Opens a fabric whose files another one may still be closing.
async fn reopen(options: FabricOptions) -> Fabric {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match Fabric::open(options.clone()) {
            Ok(fabric) => return fabric,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Place {
    async fn new(history: History) -> Self {
        let (base, end) = (history.header.base_ts, history.header.end_ts);
        let options = PlaygroundOptions { history: Some(history), ..PlaygroundOptions::default() };
        let upstream = Playground::start(options).await.expect("an upstream");
        let fabric = Fabric::open(FabricOptions::default()).expect("a fabric in memory");
        let gateway = serve(&fabric).await;
        Self { upstream, fabric, gateway, end, base }
    }

    fn options(&self, state_dir: Option<&Path>) -> AdapterOptions {
        let mut options = AdapterOptions::new(vec![self.upstream.pd_endpoint()], self.gateway.clone());
        options.start_ts = Some(StartTs::new(self.base.get()));
        options.state_dir = state_dir.map(Path::to_owned);
        options
    }

    async fn documents(&self, name: &str) -> BTreeMap<u64, Document> {
        let channel = format!("http://{}", self.gateway);
        let mut client = QueryServiceClient::connect(channel).await.expect("the query service");
        let collection = CollectionSelector {
            namespace: String::new(),
            collection: Some(collection_selector::Collection::Name(name.to_owned())),
        };
        let request = ScanRequest { collection: Some(collection), ..ScanRequest::default() };
        let mut stream = client.scan(request).await.expect("a scan").into_inner();
        let mut documents = BTreeMap::new();
        while let Some(part) = stream.message().await.expect("a part of the scan") {
            documents.extend(part.documents.into_iter().map(|d| (d.doc_id, d)));
        }
        documents
    }

    /// The collections that are there, by name, with the field that is their document id.
    async fn collections(&self) -> BTreeMap<String, String> {
        let channel = format!("http://{}", self.gateway);
        let mut client = CatalogControlServiceClient::connect(channel).await.expect("the catalogue");
        let request = ListCollectionsRequest { namespace: "default".to_owned(), include_dropped: false };
        let answer = client.list_collections(request).await.expect("a list").into_inner();
        let id_field = |c: &Collection| {
            let definition = c.generations.last().and_then(|g| g.definition.as_ref()).expect("a generation");
            definition.doc_id_mapping.as_ref().map_or_else(String::new, |m| m.source_field.clone())
        };
        answer.collections.iter().map(|c| (c.name.clone(), id_field(c))).collect()
    }

    /// Compares every collection with what TiDB gave for its table; returns their names.
    async fn compare_all(&self, tables: &BTreeMap<String, TableSnapshot>) -> Vec<String> {
        let collections = self.collections().await;
        for (name, id_field) in &collections {
            let table = tables.get(name).unwrap_or_else(|| panic!("{name} is no table"));
            self.compare(name, id_field, table).await;
        }
        collections.into_keys().collect()
    }

    /// Compares every document of `table` with the rows that TiDB gave.
    async fn compare(&self, name: &str, id_field: &str, table: &TableSnapshot) {
        let mut documents = self.documents(name).await;
        let id_column = table.columns.iter().position(|c| c == id_field).expect("an id");
        for row in &table.rows {
            let id = row.get(id_column).and_then(Cell::as_bytes).expect("an id");
            let id: u64 = std::str::from_utf8(id).expect("digits").parse().expect("a number");
            let document = documents.remove(&id).unwrap_or_else(|| panic!("{name} {id} is missing"));
            for (column, cell) in table.columns.iter().zip(row) {
                let field =
                    document.fields.get(column).unwrap_or_else(|| panic!("{name} {id} has no {column}"));
                assert_eq!(shown(field, cell), expected(cell, field), "{name} {id} {column}");
            }
        }
        assert!(documents.is_empty(), "{name} has documents that TiDB has not: {:?}", documents.keys());
    }
}

async fn until_checkpoint(adapter: &mut AdapterHandle, ts: Ts) {
    let mut status = adapter.watch_status();
    let reached = status.wait_for(|s| s.checkpoint_ts >= ts.get() || s.state == AdapterState::Failed);
    let waited = tokio::time::timeout(PATIENCE, reached).await.map(|r| r.map(|s| s.state));
    match waited {
        Ok(Ok(AdapterState::Running | AdapterState::Draining)) => {}
        Ok(_) => panic!("the adapter ended: {:?}", adapter.wait().await),
        Err(_) => panic!("not caught up: {:#?}", adapter.status()),
    }
}

fn is_null(data: &FieldData) -> bool {
    let null = |a: &AtomicValue| matches!(a.value, Some(atomic_value::Value::NullValue(_)));
    matches!(&data.value, Some(field_data::Value::AtomicValue(a)) if null(a))
}

/// The field in the words of MySQL's text protocol, as far as the cell does not decide how it is written.
fn shown(data: &FieldData, cell: &Cell) -> String {
    use atomic_value::Value as V;
    if is_null(data) {
        return "NULL".to_owned();
    }
    match data.value.as_ref().expect("a value") {
        field_data::Value::AtomicValue(atomic) => match atomic.value.as_ref().expect("a value") {
            V::Int64Value(micros) if looks_like_a_time(cell) => {
                format!("{:?}", Time::from_unix_micros(*micros, 6).expect("a time"))
            }
            V::Int64Value(n) => n.to_string(),
            V::Uint64Value(n) => n.to_string(),
            V::FloatValue(n) => f64::from(*n).to_string(),
            V::DoubleValue(n) => n.to_string(),
            V::StringValue(s) => s.clone(),
            V::BytesValue(b) => format!("{b:02x?}"),
            other => panic!("unexpected {other:?}"),
        },
        field_data::Value::VectorValue(v) => match v.value.as_ref().expect("a vector") {
            vector_value::Value::F32Vector(v) => format!("{:?}", v.values),
            other => panic!("unexpected {other:?}"),
        },
        other => panic!("unexpected {other:?}"),
    }
}

fn looks_like_a_time(cell: &Cell) -> bool {
    matches!(cell, Cell::Text(text) if Time::parse(text, 6).is_some())
}

/// The cell, in the same words.
fn expected(cell: &Cell, data: &FieldData) -> String {
    let Cell::Text(text) = cell else {
        return match cell {
            Cell::Bytes(bytes) => format!("{bytes:02x?}"),
            _ => "NULL".to_owned(),
        };
    };
    match &data.value {
        Some(field_data::Value::VectorValue(_)) => {
            let numbers = text.trim_matches(['[', ']']).split(',');
            format!("{:?}", numbers.map(|n| n.parse::<f32>().expect("a number")).collect::<Vec<_>>())
        }
        Some(field_data::Value::AtomicValue(AtomicValue {
            value: Some(atomic_value::Value::DoubleValue(_)),
        })) => text.parse::<f64>().expect("a number").to_string(),
        _ if looks_like_a_time(cell) => format!("{:?}", Time::parse(text, 6).expect("a time")),
        _ if text.starts_with(['{', '[']) => json::canonical(text).expect("JSON"),
        _ => text.clone(),
    }
}

fn snapshot(name: &str) -> BTreeMap<String, TableSnapshot> {
    let file = data::path(&format!("{name}.expected.json.zst"));
    let mut expected = Expected::open(file).expect("expectations");
    expected.snapshots.pop().expect("a snapshot").tables
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_history_becomes_the_documents_that_tidb_answered() {
    let place = Place::new(data::demo_history().expect("the demo")).await;
    let mut adapter = Adapter::start(place.options(None)).await.expect("a start");
    until_checkpoint(&mut adapter, place.end).await;
    let compared = place.compare_all(&snapshot("demo")).await;
    assert_eq!(compared, ["demo.airport", "demo.emoji", "demo.remark"]);
    adapter.stop();
    assert_eq!(adapter.wait().await.expect("a clean stop"), AdapterState::Drained);
    place.fabric.shutdown().await;
}

/// Runs until `rows` are acknowledged, then stops without waiting for what is on its way.
async fn cut_off(place: &Place, dir: &Path, rows: u64) {
    let mut options = place.options(Some(dir));
    options.dispatch.drain_deadline = Duration::ZERO;
    let mut adapter = Adapter::start(options).await.expect("a start");
    let mut status = adapter.watch_status();
    let some = status.wait_for(|s| s.rows_acked > rows || s.checkpoint_ts >= place.end.get());
    tokio::time::timeout(PATIENCE, some).await.expect("progress").expect("a status");
    adapter.stop();
    adapter.wait().await.expect("a stop");
}

fn copy(from: &Path, to: &Path) {
    let file = "checkpoint.redb";
    std::fs::create_dir_all(to).expect("a directory");
    std::fs::copy(from.join(file), to.join(file)).expect("a copy");
}

/// A crash between acknowledgement and checkpoint leaves a checkpoint that is older than what the gateway
/// holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_from_older_checkpoints_end_with_the_same_documents() {
    let place = Place::new(data::demo_history().expect("the demo")).await;
    let dir = tempfile::tempdir().expect("a directory");
    let (state, old) = (dir.path().join("state"), dir.path().join("old"));
    cut_off(&place, &state, 0).await;
    copy(&state, &old);
    for rows in [500, 2_000] {
        cut_off(&place, &state, rows).await;
        copy(&old, &state);
    }
    let mut adapter = Adapter::start(place.options(Some(&state))).await.expect("a start");
    until_checkpoint(&mut adapter, place.end).await;
    let status = adapter.status();
    assert!(status.epoch >= 4, "each start takes a new epoch, also one that the checkpoint has forgotten");
    let compared = place.compare_all(&snapshot("demo")).await;
    assert_eq!(compared, ["demo.airport", "demo.emoji", "demo.remark"]);
}

/// I5: of two writers of one collection, the one that started later wins, and the other stops at its next
/// batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_successor_has_started_is_refused_and_stops() {
    let place = Place::new(data::demo_history().expect("the demo")).await;
    let mut first = Adapter::start(place.options(None)).await.expect("a start");
    until_checkpoint(&mut first, place.end).await;
    let mut second = Adapter::start(place.options(None)).await.expect("a start");
    let refused = tokio::time::timeout(PATIENCE, first.wait()).await.expect("it stops");
    match refused {
        Err(AdapterError::Refused { breach, .. }) => assert_eq!(breach.code(), SfErrorCode::SfStaleEpoch),
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(first.status().state, AdapterState::Failed);
    until_checkpoint(&mut second, place.end).await;
    let compared = place.compare_all(&snapshot("demo")).await;
    assert_eq!(compared, ["demo.airport", "demo.emoji", "demo.remark"]);
}

#[tokio::test]
async fn what_cannot_be_reached_is_an_error_that_names_it() {
    let nobody = "127.0.0.1:1";
    let mut options = AdapterOptions::new(vec![nobody.to_owned()], nobody);
    options.start_ts = Some(StartTs::new(1));
    let error = Adapter::start(options).await.expect_err("no pd");
    assert!(matches!(error, AdapterError::Source(_)), "{error}");
    let upstream = Playground::start(PlaygroundOptions::default()).await.expect("an upstream");
    let options = AdapterOptions::new(vec![upstream.pd_endpoint()], nobody);
    let error = Adapter::start(options).await.expect_err("no gateway");
    assert!(error.to_string().contains(nobody), "{error}");
    assert_eq!((error.code(), error.class()), ("TG-ADP-002", ErrorClass::Retry));
}

/// The gateway goes away again and again while the adapter runs; what it acknowledged before is there when it
/// comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_restarts_loses_nothing_and_gets_everything() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = || FabricOptions { data_dir: Some(dir.path().to_owned()), ..FabricOptions::default() };
    let mut place = Place::new(data::demo_history().expect("the demo")).await;
    place.fabric = Fabric::open(options()).expect("a fabric on disk");
    place.gateway = serve(&place.fabric).await;
    let mut adapter = Adapter::start(place.options(None)).await.expect("a start");
    for rows in [1, 1_500, 4_000] {
        let mut status = adapter.watch_status();
        let some = status.wait_for(|s| s.rows_acked >= rows || s.checkpoint_ts >= place.end.get());
        tokio::time::timeout(PATIENCE, some).await.expect("progress").expect("a status");
        place.fabric.shutdown().await;
        // The last clone closes the files.
        place.fabric = Fabric::open(FabricOptions::default()).expect("nothing");
        place.fabric = reopen(options()).await;
        serve_at(&place.fabric, &place.gateway).await;
    }
    until_checkpoint(&mut adapter, place.end).await;
    let compared = place.compare_all(&snapshot("demo")).await;
    assert_eq!(compared, ["demo.airport", "demo.emoji", "demo.remark"]);
}

/// The other recordings: all tables with an unsigned integer key become collections, all others are left out
/// and named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recording_ends_with_the_documents_that_tidb_answered() {
    let recordings: [(&str, &[&str]); 8] = [
        ("types", &["types.uint_pk"]),
        ("ddl", &["shop.product", "shop.vec_t"]),
        ("partition", &["parts.h"]),
        ("bank", &["bank.account"]),
        ("bank-live", &["bank.account"]),
        ("random-11", &["fz11.t53"]),
        ("random-12", &[]),
        ("random-13", &[]),
    ];
    for (name, admissible) in recordings {
        let place = Place::new(data::history(name).expect(name)).await;
        let tables = snapshot(name);
        let mut options = place.options(None);
        // The recordings are of one cluster, so databases of earlier ones are there, without their rows.
        let databases: BTreeSet<&str> = tables.keys().filter_map(|t| t.split('.').next()).collect();
        options.tables = databases.iter().map(|database| format!("{database}.*")).collect();
        let mut adapter = Adapter::start(options).await.expect(name);
        until_checkpoint(&mut adapter, place.end).await;
        assert_eq!(place.compare_all(&tables).await, admissible, "{name}");
        let skipped: Vec<String> = adapter.status().skipped.iter().map(|s| s.name.clone()).collect();
        let left_out: Vec<&String> = tables.keys().filter(|t| !admissible.contains(&t.as_str())).collect();
        assert!(left_out.iter().all(|t| skipped.contains(t)), "{name}: {left_out:?} but {skipped:?}");
        adapter.stop();
        assert_eq!(adapter.wait().await.expect(name), AdapterState::Drained, "{name}");
    }
}
