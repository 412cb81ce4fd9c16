//! Rows per second from the playground through gRPC, puller, schema store and decoder to the callback, in one
//! process: the playground shares the cores.
//!
//! `cargo bench -p tidegate-mini`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use divan::Bencher;
use divan::counter::ItemsCount;
use tidegate_codec::event::{DdlEvent, RowChanged};
use tidegate_codec::key::{Handle, parse_record_key, record_key};
use tidegate_core::{TableId, Ts};
use tidegate_mini::{
    Admission, Callback, CallbackError, Checkpoint, Runtime, StartConfig, TableSet, Upstream, UpstreamOptions,
};
use tidegate_playground::{Playground, PlaygroundOptions, Write};
use tidegate_testkit::data;
use tokio::sync::Notify;

/// Rows written besides the recorded ones.
const ROWS: i64 = 200_000;
/// Rows per transaction.
const TXN: usize = 500;

fn main() {
    divan::main();
}

static TOKIO: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Runtime::new().expect("a runtime"));

struct Count {
    rows: Arc<AtomicU64>,
    done: Arc<Notify>,
    decode: bool,
}

impl Callback for Count {
    fn on_row(&mut self, row: RowChanged<'_>) -> Result<Admission, CallbackError> {
        if self.decode {
            for (_, value) in row.current().into_iter().flat_map(|view| view.columns()) {
                divan::black_box(value?);
            }
        }
        if self.rows.fetch_add(1, Ordering::Relaxed) + 1 == ROWS.unsigned_abs() {
            self.done.notify_one();
        }
        Ok(Admission::Taken)
    }

    fn on_ddl(&mut self, _: &DdlEvent) -> Result<(), CallbackError> {
        Ok(())
    }

    fn on_checkpoint(&mut self, _: &Checkpoint) -> Result<(), CallbackError> {
        Ok(())
    }
}

/// A playground with [`ROWS`] copies of the first recorded row of `table`, and the timestamp before them.
async fn prepare(history: &str, table: TableId) -> (Playground, Upstream, Ts) {
    let history = data::history(history).expect("a recording");
    let of_table = |key: &[u8]| parse_record_key(key).is_ok_and(|key| key.table_id == table);
    let row = history.log.iter().find(|v| of_table(&v.key) && !v.value.is_empty()).expect("a row");
    let value = row.value.clone();
    let options = PlaygroundOptions { history: Some(history), ..PlaygroundOptions::default() };
    let playground = Playground::start(options).await.expect("it starts");
    let start = playground.now();
    let ids: Vec<i64> = (0..ROWS).collect();
    for ids in ids.chunks(TXN) {
        let put =
            |&id: &i64| Write::put(record_key(None, table, &Handle::Int(1_000_000_000 + id)), value.clone());
        playground.commit(ids.iter().map(put).collect()).expect("it commits");
    }
    let upstream = Upstream::connect(UpstreamOptions::new([playground.pd_endpoint()])).await;
    (playground, upstream.expect("PD answers"), start)
}

async fn stream(upstream: &Upstream, table: TableId, start: Ts, decode: bool) {
    let (rows, done) = (Arc::default(), Arc::new(Notify::new()));
    let callback = Count { rows, done: Arc::clone(&done), decode };
    let config = StartConfig::new(start.as_start(), TableSet::Fixed(vec![table]));
    let mut handle = Runtime::start(upstream, config, callback).await.expect("it starts");
    tokio::select! {
        () = done.notified() => handle.stop(),
        report = handle.wait() => unreachable!("{report:?}"),
    }
    handle.wait().await;
}

fn bench(bencher: Bencher<'_, '_>, history: &str, table: TableId, decode: bool) {
    let (playground, upstream, start) = TOKIO.block_on(prepare(history, table));
    bencher
        .counter(ItemsCount::new(ROWS.unsigned_abs()))
        .bench(|| TOKIO.block_on(stream(&upstream, table, start, decode)));
    TOKIO.block_on(playground.stop());
}

/// `bank.account`: three narrow columns.
#[divan::bench(sample_count = 5)]
fn narrow_to_callback(bencher: Bencher<'_, '_>) {
    bench(bencher, "bank", TableId(320), false);
}

/// The same with every column decoded.
#[divan::bench(sample_count = 5)]
fn narrow_decoded(bencher: Bencher<'_, '_>) {
    bench(bencher, "bank", TableId(320), true);
}

/// `demo.emoji`: JSON, names in four languages, tags.
#[divan::bench(sample_count = 3)]
fn wide_to_callback(bencher: Bencher<'_, '_>) {
    bench(bencher, "demo", TableId(116), false);
}
