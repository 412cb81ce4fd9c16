//! How fast the adapter's core is: sealed rows in, batches to a gateway that acknowledges everything at once.
//! One core, no sockets. Target: over 80,000 rows of about 210 bytes a second on 2 cores.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tidegate_adapter::AdapterOptions;
use tidegate_adapter::collection::{CatalogCall, Shared};
use tidegate_adapter::pipeline::{CatalogAnswer, Pipeline};
use tidegate_adapter::resolver::SchemaResolver;
use tidegate_adapter::source::SourceEvent;
use tidegate_codec::event::{OwnedRow, RowKind};
use tidegate_codec::key::{Handle, record_key};
use tidegate_codec::meta::TableInfo;
use tidegate_codec::row::TableLayout;
use tidegate_core::{
    ClusterId, CommitTs, MonoTime, Op, RawChange, RegionId, ResolvedTs, SchemaId, StartTs, TableId, Ts,
};
use tidegate_mini::bridge::{SealedRow, SealedRun, SourceEpoch, SourcePartition, SourceSeq};
use tidegate_mini::{Checkpoint, LiveTable, TableVersion};
use tidegate_proto::searchfabric::v1::mutation_ack::Outcome;
use tidegate_proto::searchfabric::v1::{MutationAck, MutationBatch, MutationSuccess, SchemaGeneration};

const ROWS: u64 = 20_480;
const RUN_ROWS: u64 = 2_048;
const TABLE: TableId = TableId(7);

fn main() {
    divan::main();
}

/// `id bigint unsigned primary key`, three integers and two texts.
fn layout() -> Arc<TableLayout> {
    let column = |id: usize, name: &str, field_type: &str| {
        format!(r#"{{"id":{id},"name":"{name}","offset":{},"type":{field_type},"state":5}}"#, id - 1)
    };
    let int = r#"{"Tp":8,"Flag":0,"Flen":20,"Charset":"binary"}"#;
    let text = r#"{"Tp":15,"Flag":0,"Flen":200,"Charset":"utf8mb4"}"#;
    let columns = [
        column(1, "id", r#"{"Tp":8,"Flag":35,"Flen":20,"Charset":"binary"}"#),
        column(2, "a", int),
        column(3, "b", int),
        column(4, "c", int),
        column(5, "title", text),
        column(6, "body", text),
    ];
    let table = format!(r#"{{"id":7,"name":"t","pk_is_handle":true,"cols":[{}]}}"#, columns.join(","));
    Arc::new(TableLayout::new(Arc::new(TableInfo::parse(table.as_bytes()).expect("a table"))))
}

fn value() -> Bytes {
    let (title, body) = ("t".repeat(40), "b".repeat(140));
    let cells: [&[u8]; 5] = [&[1], &[2, 2], &[3, 3, 3, 3], title.as_bytes(), body.as_bytes()];
    let mut out = vec![128, 0, 5, 0, 0, 0, 2, 3, 4, 5, 6];
    let mut end = 0;
    for cell in cells {
        end += cell.len();
        out.extend(u16::try_from(end).expect("short").to_le_bytes());
    }
    out.extend(cells.concat());
    out.into()
}

fn pipeline(layout: &Arc<TableLayout>) -> Pipeline {
    let options = AdapterOptions::new(vec!["pd".to_owned()], "gateway");
    let shared = Shared {
        resolver: SchemaResolver::new(&options),
        options,
        cluster: ClusterId(1),
        epoch: SourceEpoch::FIRST,
        held: BTreeMap::new(),
    };
    let mut pipeline = Pipeline::new(shared, Vec::new(), ResolvedTs::new(10));
    let table = LiveTable {
        id: TABLE,
        joined: ResolvedTs::new(9),
        version: Arc::new(TableVersion {
            id: TABLE,
            table_id: TABLE,
            schema_id: SchemaId(1),
            schema: "bench".into(),
            from: Ts::new(9),
            rows_from: Ts::new(9),
            layout: Arc::clone(layout),
        }),
    };
    let now = MonoTime::default();
    pipeline.event(SourceEvent::Joined(vec![table]), now).expect("a start");
    for (index, call) in pipeline.poll_calls(now) {
        let CatalogCall::Put(request) = call else { continue };
        let generation = SchemaGeneration {
            schema_version: 1,
            schema_generation_token: "g1".to_owned(),
            ddl_commit_ts: 10,
            update_policy: request.update_policy,
            definition: request.definition,
        };
        pipeline.catalog_answer(index, CatalogAnswer::Applied(generation), now).expect("a generation");
    }
    pipeline
}

fn runs(layout: &Arc<TableLayout>) -> Vec<SealedRun<OwnedRow>> {
    let value = value();
    let row = |n: u64| {
        let raw = RawChange {
            op: Op::Put,
            key: record_key(None, TABLE, &Handle::Int(n.cast_signed())).into(),
            value: value.clone(),
            old_value: Bytes::new(),
            start_ts: StartTs::new(99 + n),
            commit_ts: CommitTs::new(100 + n),
            region_id: RegionId(1),
        };
        let row = OwnedRow { table_id: TABLE, kind: RowKind::Insert, raw, layout: Arc::clone(layout) };
        SealedRow { seq: SourceSeq::new(n + 1), commit_ts: CommitTs::new(100 + n), row }
    };
    let numbers: Vec<u64> = (0..ROWS).collect();
    let run = |chunk: &[u64]| SealedRun {
        table: TABLE,
        partition: SourcePartition::of(None, TABLE),
        epoch: SourceEpoch::FIRST,
        first_seq: SourceSeq::FIRST,
        rows: chunk.iter().copied().map(row).collect(),
    };
    numbers.chunks(usize::try_from(RUN_ROWS).expect("small")).map(run).collect()
}

fn acknowledge(batch: &MutationBatch) -> MutationAck {
    MutationAck {
        collection: batch.collection.clone(),
        stream_identity: batch.stream_identity.clone(),
        outcome: Some(Outcome::Success(MutationSuccess::default())),
        ..MutationAck::default()
    }
}

#[divan::bench]
fn rows_to_a_gateway_that_acknowledges_at_once(bencher: Bencher<'_, '_>) {
    let layout = layout();
    bencher
        .counter(ItemsCount::new(ROWS))
        .counter(BytesCount::new(ROWS * 210))
        .with_inputs(|| (pipeline(&layout), runs(&layout)))
        .bench_local_values(|(mut pipeline, runs)| {
            let now = MonoTime::default();
            let mut resolved = 100;
            for run in runs {
                resolved += RUN_ROWS;
                pipeline.event(SourceEvent::Rows(run), now).expect("rows");
                let mark = ResolvedTs::new(resolved);
                let progress = Checkpoint::new(mark, [(TABLE, mark)]);
                pipeline.event(SourceEvent::Progress(progress), now).expect("progress");
                while !pipeline.is_idle() {
                    for batch in pipeline.poll_batches(now) {
                        pipeline.answer(acknowledge(&batch), now).expect("an answer");
                    }
                }
            }
            assert_eq!(pipeline.resume_ts(), ResolvedTs::new(resolved));
            pipeline
        });
}
