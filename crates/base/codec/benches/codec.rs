//! How fast keys and rows are read. `cargo bench -p tidegate-codec`; figures are in `docs/performance.md`.
//!
//! Each call works through a batch, so that the timer's own cost does not show; the counters give rates.

use std::hint::black_box;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tidegate_codec::decimal::Decimal;
use tidegate_codec::encode::encode_row;
use tidegate_codec::json::Json;
use tidegate_codec::key::{Handle, parse_record_key, record_key};
use tidegate_codec::meta::{ColumnInfo, FieldType, SchemaState, SqlType, TableInfo};
use tidegate_codec::row::{RowView, TableLayout};
use tidegate_codec::text::write_text;
use tidegate_codec::value::Value;
use tidegate_core::{ColumnId, TableId};

/// Rows, keys or numbers in one call.
const BATCH: usize = 1_000;

fn main() {
    divan::main();
}

/// A table of `count` columns whose types repeat.
fn layout(count: usize, types: &[SqlType]) -> TableLayout {
    let column = |(id, tp): (i64, &SqlType)| ColumnInfo {
        id: ColumnId(id),
        name: format!("c{id}").into(),
        field_type: FieldType {
            tp: *tp,
            flen: 20,
            decimal: 4,
            charset: "utf8mb4".into(),
            ..FieldType::default()
        },
        state: SchemaState::Public,
        ..ColumnInfo::default()
    };
    let columns = (1..).zip(types.iter().cycle().take(count)).map(column).collect();
    TableLayout::new(Arc::new(TableInfo {
        id: TableId(45),
        name: "t".into(),
        columns,
        ..TableInfo::default()
    }))
}

fn row(layout: &TableLayout, value: impl Fn(usize, SqlType) -> Value<'static>) -> Vec<u8> {
    let columns = layout.table().columns.iter().enumerate();
    let values: Vec<Value<'_>> = columns.map(|(at, column)| value(at, column.field_type.tp)).collect();
    encode_row(layout, &values, Some(1), false).expect("values of the columns' types").value
}

fn mixed(at: usize, tp: SqlType) -> Value<'static> {
    let number = i64::try_from(at).expect("small");
    match tp {
        SqlType::Decimal => Value::Decimal(Decimal::from(number * 1_234_567)),
        SqlType::VarChar => Value::Text("a text of some length".into()),
        SqlType::Double => Value::Double(1.5),
        _ => Value::Int(number * 1_000),
    }
}

/// Reads an integer column as a consumer does that knows its types.
fn take_int(row: &RowView<'_>, index: usize) {
    let int = match row.column(index) {
        Ok(Value::Int(int)) => Some(int),
        _ => None,
    };
    black_box(int.expect("an integer"));
}

const MIXED: [SqlType; 4] = [SqlType::BigInt, SqlType::VarChar, SqlType::Decimal, SqlType::Double];

#[divan::bench]
fn row_of_3_integers(bencher: Bencher<'_, '_>) {
    let layout = layout(3, &[SqlType::BigInt]);
    let value = row(&layout, mixed);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let row = layout.row(black_box(Handle::Int(1)), black_box(&value)).expect("a row");
            for index in 0..3 {
                take_int(&row, index);
            }
        }
    });
}

#[divan::bench]
fn row_of_60_columns_read_whole(bencher: Bencher<'_, '_>) {
    let layout = layout(60, &MIXED);
    let value = row(&layout, mixed);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let row = layout.row(black_box(Handle::Int(1)), black_box(&value)).expect("a row");
            for index in 0..60 {
                black_box(&row.column(index).expect("a value"));
            }
        }
    });
}

/// The other 59 are skipped: the difference from `row_of_1_integer`, over 59, is what a skipped one costs.
#[divan::bench]
fn row_of_60_columns_read_last(bencher: Bencher<'_, '_>) {
    let layout = layout(60, &[SqlType::BigInt]);
    let value = row(&layout, mixed);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let row = layout.row(black_box(Handle::Int(1)), black_box(&value)).expect("a row");
            take_int(&row, 59);
        }
    });
}

/// As above, but NULLs in front have moved the last cell away from where it is looked for first.
#[divan::bench]
fn row_of_60_columns_with_nulls_read_last(bencher: Bencher<'_, '_>) {
    let layout = layout(60, &[SqlType::BigInt]);
    let value = row(&layout, |at, tp| if at % 3 == 0 { Value::Null } else { mixed(at, tp) });
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let row = layout.row(black_box(Handle::Int(1)), black_box(&value)).expect("a row");
            take_int(&row, 59);
        }
    });
}

#[divan::bench]
fn row_of_1_integer(bencher: Bencher<'_, '_>) {
    let layout = layout(1, &[SqlType::BigInt]);
    let value = row(&layout, mixed);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let row = layout.row(black_box(Handle::Int(1)), black_box(&value)).expect("a row");
            take_int(&row, 0);
        }
    });
}

#[divan::bench]
fn record_key_parsed(bencher: Bencher<'_, '_>) {
    let key = record_key(None, TableId(45), &Handle::Int(131));
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            let _ = black_box(parse_record_key(black_box(&key)));
        }
    });
}

#[divan::bench]
fn json_to_text(bencher: Bencher<'_, '_>) {
    let members: Vec<String> = (0..40)
        .map(|at| {
            let text = "some text, as documents have it, long enough to matter ".repeat(3);
            format!(
                "\"key{at:02}\": {{\"id\": {at}, \"name\": \"{text}\", \"tags\": [\"a\", \"b\", null, true]}}"
            )
        })
        .collect();
    let json = Json::parse(&format!("{{{}}}", members.join(", "))).expect("JSON");
    let mut out = Vec::new();
    json.write_text(&mut out).expect("sound JSON");
    bencher.counter(BytesCount::new(out.len())).bench_local(|| {
        out.clear();
        black_box(&json).write_text(&mut out).expect("sound JSON");
        black_box(&out);
    });
}

/// The widest number that DECIMAL(65,30) holds.
const WIDEST: &str = "99999999999999999999999999999999999.999999999999999999999999999999";

#[divan::bench(args = ["12.50", "-1234567890.1234", WIDEST])]
fn decimal_to_text(bencher: Bencher<'_, '_>, text: &str) {
    let value = Value::Decimal(Decimal::parse(text).expect("a decimal"));
    let mut out = Vec::with_capacity(128);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        for _ in 0..BATCH {
            out.clear();
            let _ = write_text(black_box(&value), &mut out);
            black_box(&out);
        }
    });
}
