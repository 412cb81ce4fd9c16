//! Row changes per second from raw bytes to an event, without and with reading every column.
//!
//! `cargo bench -p tidegate-decoder`

use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::ItemsCount;
use tidegate_codec::key::{Handle, record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::TableLayout;
use tidegate_core::{CommitTs, Op, RawChange, RegionId, StartTs, TableId};
use tidegate_decoder::{Checksums, Decoder};

/// `ck(id int primary key, a varchar(4), b int)` and its row (1, 'q', NULL) with a checksum
/// (`reference/tidb-keys-and-rows.md` §8.1).
const TABLE: &[u8] = br#"{"id":114,"name":{"O":"ck","L":"ck"},"state":5,"pk_is_handle":true,"cols":[
    {"id":1,"name":{"O":"id","L":"id"},"offset":0,"state":5,"type":{"Tp":3,"Flag":4099,"Flen":11}},
    {"id":2,"name":{"O":"a","L":"a"},"offset":1,"state":5,
     "type":{"Tp":15,"Flag":0,"Flen":4,"Charset":"utf8mb4","Collate":"utf8mb4_bin"}},
    {"id":3,"name":{"O":"b","L":"b"},"offset":2,"state":5,"type":{"Tp":3,"Flag":0,"Flen":11}}]}"#;
const ROW: &[u8] = &[0x80, 2, 1, 0, 0, 0, 2, 1, 0, 0x71, 2, 0xb7, 0x3b, 0xd3, 0x2a];
/// Changes per iteration.
const CHANGES: usize = 1000;

fn main() {
    divan::main();
}

fn bench(bencher: Bencher<'_, '_>, checksums: Checksums, columns: bool) {
    let table = TableInfo::parse(TABLE).expect("the table's JSON");
    let layout = Arc::new(TableLayout::new(Arc::new(table)));
    let change = RawChange {
        op: Op::Put,
        key: record_key(None, TableId(114), &Handle::Int(1)).into(),
        value: Bytes::from_static(ROW),
        old_value: Bytes::from_static(ROW),
        start_ts: StartTs::new(5),
        commit_ts: CommitTs::new(7),
        region_id: RegionId(1),
    };
    let decoder = Decoder::new(checksums);
    bencher.counter(ItemsCount::new(CHANGES)).bench(|| {
        for _ in 0..CHANGES {
            let row = decoder.decode(divan::black_box(&change), &layout).expect("sound").expect("an update");
            let view = row.current().filter(|_| columns);
            for (_, value) in view.into_iter().flat_map(|view| view.columns()) {
                let _ = divan::black_box(value.expect("sound"));
            }
        }
    });
}

#[divan::bench]
fn update(bencher: Bencher<'_, '_>) {
    bench(bencher, Checksums::Ignore, false);
}

#[divan::bench]
fn update_with_all_columns_read(bencher: Bencher<'_, '_>) {
    bench(bencher, Checksums::Ignore, true);
}

#[divan::bench]
fn update_with_checksums_verified(bencher: Bencher<'_, '_>) {
    bench(bencher, Checksums::Verify, false);
}
