//! Random and mutated bytes into every decoder: nothing panics, loops or allocates much more than it was
//! given.
//!
//! Each target runs a fixed number of rounds from a fixed seed here. `cargo xtask fuzz` runs them for longer:
//! `TIDEGATE_FUZZ_SECONDS` sets how long each target runs and `TIDEGATE_FUZZ_SEED` where it begins.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, where a panic is a failure"
)]
#![allow(clippy::disallowed_methods, reason = "a fuzzing run is set and timed from outside")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_codec::datum;
use tidegate_codec::ddl::Job;
use tidegate_codec::decimal::Decimal;
use tidegate_codec::json::Json;
use tidegate_codec::key::{Handle, parse_index_key, parse_record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::meta_key::{self, MetaEntry};
use tidegate_codec::partition::Partitioner;
use tidegate_codec::row::TableLayout;
use tidegate_codec::text::write_text;
use tidegate_codec::value::Value;
use tidegate_core::Op;
use tidegate_testkit::{Version, data};

use crate::allocation::allocated_by;

/// Rounds of each target in an ordinary test run.
const ROUNDS: u32 = 2_000;
/// What a decoder may allocate: this many bytes for each byte of input, and this many besides. JSON has the
/// largest factor: an escaped control character prints as six bytes, and buffers double as they grow.
const PER_BYTE_MAX: usize = 64;
const BESIDES_MAX: usize = 64 << 10;

/// Runs `target` over mutations of `seeds` (at least one).
fn fuzz(name: &str, seeds: &[Vec<u8>], mut target: impl FnMut(&[u8])) {
    let setting = |key: &str| std::env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = setting("TIDEGATE_FUZZ_SEED").unwrap_or(20_260_218);
    let until = setting("TIDEGATE_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut random = Random(seed);
    let mut rounds = 0_u64;
    while until.map_or(rounds < u64::from(ROUNDS), |until| Instant::now() < until) {
        let input = random.mutated(seeds);
        let allocated = allocated_by(|| target(&input));
        let allowed = input.len() * PER_BYTE_MAX + BESIDES_MAX;
        assert!(allocated <= allowed, "{name}: {allocated} bytes allocated for {input:02x?}, seed {seed}");
        rounds += 1;
    }
    println!("{name}: {rounds} rounds from seed {seed}");
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        // Bytes at the edges find more than those in the middle.
        let edges = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
        if self.below(3) == 0 { edges[self.below(edges.len())] } else { self.next().to_le_bytes()[0] }
    }

    /// A seed with a few bytes changed, cut, repeated or joined with another; sometimes plain noise.
    fn mutated(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(input.len());
            match self.below(7) {
                0..=2 if !input.is_empty() => input[at] = self.byte(),
                3 => input.truncate(at),
                4 => input.insert(at, self.byte()),
                5 => {
                    let other = &seeds[self.below(seeds.len())];
                    let from = self.below(other.len());
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                6 => input = (0..self.below(64)).map(|_| self.byte()).collect(),
                _ => {}
            }
        }
        input
    }
}

/// What the recordings hold, as seeds.
#[derive(Default)]
struct Seeds {
    keys: Vec<Vec<u8>>,
    v1: Vec<Vec<u8>>,
    v2: Vec<Vec<u8>>,
    tables: Vec<Vec<u8>>,
    jobs: Vec<Vec<u8>>,
    json: Vec<Vec<u8>>,
    decimals: Vec<Vec<u8>>,
    layouts: Vec<TableLayout>,
}

fn seeds() -> Seeds {
    let mut seeds = Seeds::default();
    let history = data::history("types").expect("recorded data");
    for version in history.base.iter().chain(&history.log).filter(|version| version.op == Op::Put) {
        seeds.keys.push(version.key.to_vec());
        let value = version.value.to_vec();
        if let Ok(MetaEntry::Table(..)) = meta_key::classify(&version.key) {
            let table = TableInfo::parse(&value).expect("table info");
            if table.physical_ids().first().is_some_and(|id| id.get() > 100) {
                seeds.layouts.push(TableLayout::new(Arc::new(table)));
                seeds.tables.push(value);
            }
        } else if parse_record_key(&version.key).is_ok() {
            if value.first() == Some(&0x80) { seeds.v2.push(value) } else { seeds.v1.push(value) }
        }
    }
    for layout in &seeds.layouts {
        for row in &seeds.v2 {
            let Ok(row) = layout.row(Handle::Int(1), row) else { continue };
            for (_, value) in row.columns() {
                match value {
                    Ok(Value::Json(json)) => seeds.json.push(json.as_bytes().to_vec()),
                    Ok(Value::Decimal(decimal)) => {
                        let mut packed = Vec::new();
                        decimal.encode_natural(&mut packed);
                        seeds.decimals.push(packed);
                    }
                    _ => {}
                }
            }
        }
    }
    for row in &seeds.v1 {
        let braces = row.windows(2).position(|pair| pair == b"{\"");
        seeds.jobs.extend(braces.map(|at| row[at..].to_vec()));
    }
    assert!(!seeds.json.is_empty() && !seeds.decimals.is_empty() && !seeds.jobs.is_empty());
    seeds
}

/// Reads and prints every column; the handle is made of the same bytes.
fn read_all(layout: &TableLayout, bytes: &[u8]) {
    for handle in [Handle::Int(1), Handle::Common(bytes)] {
        let Ok(row) = layout.row(handle, bytes) else { return };
        for index in 0..layout.table().columns.len() {
            if let Ok(value) = row.selected(index) {
                let mut text = Vec::new();
                let _ = write_text(&value, &mut text);
            }
        }
        let _ = row.verify_checksum(&[]);
    }
}

#[test]
fn keys_survive_any_bytes() {
    fuzz("key", &seeds().keys, |bytes| {
        let _ = parse_index_key(bytes);
        let _ = meta_key::classify(bytes);
        if let Ok(key) = parse_record_key(bytes)
            && let Handle::Common(mut datums) = key.handle
        {
            while let Ok((_, rest)) = datum::decode(datums) {
                datums = rest;
            }
        }
    });
}

#[test]
fn rows_of_both_formats_survive_any_bytes() {
    let seeds = seeds();
    let mut layouts = seeds.layouts.iter().cycle();
    for (name, rows) in [("row v1", &seeds.v1), ("row v2", &seeds.v2)] {
        fuzz(name, rows, |bytes| read_all(layouts.next().expect("tables"), bytes));
    }
}

#[test]
fn datums_json_and_decimals_survive_any_bytes() {
    let seeds = seeds();
    fuzz("datum", &seeds.v1, |mut bytes| {
        while let Ok((_, rest)) = datum::decode(bytes) {
            bytes = rest;
        }
    });
    fuzz("json", &seeds.json, |bytes| {
        let mut text = Vec::new();
        let _ = Json::new(bytes).map(|json| json.write_text(&mut text));
    });
    fuzz("decimal", &seeds.decimals, |bytes| {
        if let Some((number, _)) = Decimal::decode(bytes) {
            let _ = number.to_string();
        }
    });
}

#[test]
fn metadata_and_jobs_survive_any_bytes() {
    let seeds = seeds();
    let row = &seeds.v2[0];
    fuzz("table info", &seeds.tables, |bytes| {
        let Ok(table) = TableInfo::parse(bytes) else { return };
        let layout = TableLayout::new(Arc::new(table));
        read_all(&layout, row);
        if let (Ok(row), Ok(partitioner)) = (layout.row(Handle::Int(1), row), Partitioner::new(&layout)) {
            let _ = partitioner.locate(&row);
        }
    });
    fuzz("ddl job", &seeds.jobs, |bytes| {
        if let Ok(job) = Job::parse(bytes) {
            let _ = job.args();
        }
    });
}

#[test]
fn reading_fixed_width_columns_allocates_nothing() {
    let history = data::history("types").expect("recorded data");
    let is_table = |version: &&Version| {
        version.op == Op::Put && matches!(meta_key::classify(&version.key), Ok(MetaEntry::Table(..)))
    };
    let tables = history.log.iter().filter(is_table);
    let mut tables = tables.map(|version| TableInfo::parse(&version.value).expect("table info"));
    let table = tables.find(|table| table.name.is("times")).expect("the table of times");
    let layout = TableLayout::new(Arc::new(table));
    let rows: Vec<_> = history
        .log
        .iter()
        .filter(|version| version.op == Op::Put)
        .filter_map(|version| Some((parse_record_key(&version.key).ok()?, &version.value)))
        .filter(|(key, _)| key.table_id == layout.table().id)
        .collect();
    assert!(!rows.is_empty());
    let allocated = allocated_by(|| {
        for (key, value) in &rows {
            let row = layout.row(key.handle, value).expect("a row");
            assert!(row.columns().all(|(_, value)| value.is_ok()));
        }
    });
    assert_eq!(allocated, 0);
}
