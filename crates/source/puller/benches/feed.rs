//! From the bytes of a change feed message to changes: decoding, typing, matching. Run with `cargo bench -p
//! tidegate-puller`. A message is what a store sends during a scan: 64 events of up to 32 KiB.

use bytes::Bytes;
use divan::counter::{BytesCount, ItemsCount};
use prost::Message;
use tidegate_core::{MonoTime, RegionId, ResolvedTs, Span, StartTs};
use tidegate_pd::{Peer, Region, RegionEpoch};
use tidegate_proto::cdcpb::{ChangeDataEvent, Event, event};
use tidegate_puller::ids::{RegistrationId, SubscriptionId};
use tidegate_puller::matcher::Matcher;
use tidegate_puller::row::Row;
use tidegate_puller::span_core::{Input, Output, SpanConfig, SpanCore};

/// Rows of a key of 19 bytes and a value of 191: the 210 bytes of the recorded comparison.
const VALUE_BYTES: usize = 191;
const EVENTS: usize = 64;
const ROWS_PER_EVENT: usize = 150;
const ROWS: usize = EVENTS * ROWS_PER_EVENT;
const REGION: RegionId = RegionId(2);

fn main() {
    divan::main();
}

fn row(n: usize, log_type: event::LogType, with_value: bool) -> event::Row {
    let mut key = b"t\x80\0\0\0\0\0\0\x64_r\x80\0\0".to_vec();
    key.extend_from_slice(&(n as u64).to_be_bytes()[3..]);
    let value = if with_value { Bytes::from(vec![b'v'; VALUE_BYTES]) } else { Bytes::new() };
    event::Row {
        start_ts: 100 + 2 * n as u64,
        commit_ts: if log_type == event::LogType::Prewrite { 0 } else { 101 + 2 * n as u64 },
        r#type: log_type.into(),
        op_type: event::row::OpType::Put.into(),
        key: Bytes::from(key),
        value,
        ..Default::default()
    }
}

fn message(rows: impl Fn(usize) -> Vec<event::Row>) -> Bytes {
    let events = (0..EVENTS).map(|at| {
        let rows = (at * ROWS_PER_EVENT..(at + 1) * ROWS_PER_EVENT).flat_map(&rows).collect();
        let event = Some(event::Event::Entries(event::Entries { entries: rows }));
        Event { region_id: REGION.get(), request_id: 1, event, ..Default::default() }
    });
    ChangeDataEvent { events: events.collect(), resolved_ts: None }.encode_to_vec().into()
}

fn scan_message() -> Bytes {
    message(|n| vec![row(n, event::LogType::Committed, true)])
}

fn live_message() -> Bytes {
    message(|n| vec![row(n, event::LogType::Prewrite, true), row(n, event::LogType::Commit, false)])
}

fn rows_of(message: &Bytes) -> impl Iterator<Item = Row> + use<> {
    let events = ChangeDataEvent::decode(message.clone()).expect("own encoding").events;
    events
        .into_iter()
        .flat_map(|event| match event.event {
            Some(event::Event::Entries(entries)) => entries.entries,
            other => unreachable!("{other:?}"),
        })
        .map(|row| Row::from_proto(row, REGION).expect("own rows"))
}

/// Only protobuf: what the stream's task does at least.
#[divan::bench]
fn decode(bencher: divan::Bencher<'_, '_>) {
    let message = scan_message();
    bencher
        .counter(BytesCount::new(message.len()))
        .counter(ItemsCount::new(ROWS))
        .bench(|| ChangeDataEvent::decode(message.clone()).expect("own encoding"));
}

/// Message to changes during a scan.
#[divan::bench]
fn scan(bencher: divan::Bencher<'_, '_>) {
    let message = scan_message();
    bencher.counter(BytesCount::new(message.len())).counter(ItemsCount::new(ROWS)).bench(|| {
        let mut matcher = Matcher::new(REGION, StartTs::new(10));
        let mut out = Vec::with_capacity(ROWS);
        for row in rows_of(&message) {
            matcher.step(row, ResolvedTs::new(10), &mut out).expect("legal rows");
        }
        assert_eq!(out.len(), ROWS);
        out
    });
}

/// Message to changes of live writes: each a prewrite and a commit.
#[divan::bench]
fn live(bencher: divan::Bencher<'_, '_>) {
    let message = live_message();
    bencher.counter(BytesCount::new(message.len())).counter(ItemsCount::new(ROWS)).bench(|| {
        let mut matcher = Matcher::new(REGION, StartTs::new(10));
        let mut out = Vec::with_capacity(ROWS);
        for row in std::iter::once(Row::Initialized).chain(rows_of(&message)) {
            matcher.step(row, ResolvedTs::new(10), &mut out).expect("legal rows");
        }
        assert_eq!(out.len(), ROWS);
        out
    });
}

/// A whole subscription's core: typed rows in, batches of changes out.
#[divan::bench]
fn span_core(bencher: divan::Bencher<'_, '_>) {
    let message = scan_message();
    let now = MonoTime::from_ms(1);
    let begin = || {
        let config = SpanConfig {
            id: SubscriptionId(1),
            span: Span::all(),
            start_ts: StartTs::new(10),
            held_bytes_max: 1 << 30,
            seed: 1,
        };
        let mut core = SpanCore::new(config, now);
        let mut outputs = Vec::new();
        core.step(Input::Tick(None), now, &mut outputs);
        let Some(Output::Find(find)) = outputs.pop() else { unreachable!("it looks for regions first") };
        let leader = Peer { id: tidegate_core::PeerId(3), store_id: tidegate_core::StoreId(1) };
        let region = Region {
            id: REGION,
            span: Span::all(),
            epoch: RegionEpoch { conf_ver: 1, version: 1 },
            leader: Some(leader),
            peers: vec![leader],
        };
        core.step(Input::Found(find, vec![region]), now, &mut outputs);
        let events: Vec<Vec<Row>> = {
            let rows: Vec<Row> = rows_of(&message).collect();
            rows.chunks(ROWS_PER_EVENT).map(<[Row]>::to_vec).collect()
        };
        (core, events)
    };
    bencher.with_inputs(begin).input_counter(|_| ItemsCount::new(ROWS)).bench_values(|(mut core, events)| {
        let mut outputs = Vec::new();
        for rows in events {
            core.step(Input::Rows(RegistrationId(1), rows), now, &mut outputs);
        }
        core.flush(&mut outputs);
        outputs
    });
}
