//! The pure core against the contract's rules under faults: answers that are late, lost or "not now", streams
//! that break, a catalogue that is away, and crashes at any point between batch, answer and checkpoint.
//! Whatever happens, the documents are those that the source's tables hold at the end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use tidegate_adapter::AdapterOptions;
use tidegate_adapter::collection::{CatalogCall, Shared};
use tidegate_adapter::pipeline::{CatalogAnswer, Known, Pipeline};
use tidegate_adapter::resolver::SchemaResolver;
use tidegate_adapter::source::SourceEvent;
use tidegate_adapter::stream::Held;
use tidegate_codec::event::OwnedRow;
use tidegate_codec::row::TableLayout;
use tidegate_contract::{Breach, SfErrorCode};
use tidegate_core::{ClusterId, MonoTime, ResolvedTs, SchemaId, TableId, Ts};
use tidegate_mini::bridge::{SealedRow, SealedRun, SourceEpoch, SourcePartition, SourceSeq};
use tidegate_mini::{Checkpoint, LiveTable, TableVersion};
use tidegate_proto::searchfabric::v1::mutation_ack::Outcome;
use tidegate_proto::searchfabric::v1::{
    FieldData, MutationAck, MutationBatch, MutationFailure, atomic_value, field_data,
};

use crate::ledger::Ledger;
use crate::script::{Item, START, Script, Table};

/// Runs that a CI test makes; each has its own script and faults. `TIDEGATE_SEEDS` makes more.
const SEEDS: u64 = 100;
const STEPS: usize = 120;

struct World {
    rng: Rng,
    script: Script,
    ledger: Ledger,
    pipeline: Pipeline,
    now_ms: u64,
    epoch: u64,
    /// What a crash leaves: the last saved resume timestamp.
    saved: ResolvedTs,
    /// Index of the next item that the source will tell.
    next: usize,
    /// Batches on their way to the gateway, and answers on their way back.
    wire: VecDeque<MutationBatch>,
    answers: VecDeque<MutationAck>,
    calls: Vec<(usize, CatalogCall)>,
    /// Pages of rows on their way, each with its collection; an empty page ends a read.
    reads: VecDeque<(usize, Vec<OwnedRow>)>,
    faults: bool,
}

fn options() -> AdapterOptions {
    let mut options = AdapterOptions::new(vec!["pd".to_owned()], "gateway");
    options.batch.entries_max = 3;
    options.dispatch.partition_in_flight_max = 2;
    options.dispatch.in_flight_max = 4;
    options
}

fn live(table: &Table, from: u64) -> Vec<LiveTable> {
    let layout = Arc::new(TableLayout::new(table.info()));
    let one = |id: &i64| LiveTable {
        id: TableId(*id),
        joined: ResolvedTs::new(from),
        version: Arc::new(TableVersion {
            id: TableId(*id),
            table_id: TableId(table.logical),
            schema_id: SchemaId(1),
            schema: "test".into(),
            from: Ts::new(from),
            rows_from: Ts::new(from),
            layout: Arc::clone(&layout),
        }),
    };
    table.physical.iter().map(one).collect()
}

fn run_of(row: &OwnedRow) -> SealedRun<OwnedRow> {
    SealedRun {
        table: row.table_id,
        partition: SourcePartition::of(None, row.table_id),
        epoch: SourceEpoch::FIRST,
        first_seq: SourceSeq::FIRST,
        rows: vec![SealedRow { seq: SourceSeq::FIRST, commit_ts: row.commit_ts(), row: row.clone() }],
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let script = Script::random(&mut rng, STEPS);
        let ledger = Ledger::default();
        let pipeline = start(&ledger, 1, ResolvedTs::new(START));
        let mut world = Self {
            rng,
            script,
            ledger,
            pipeline,
            now_ms: 0,
            epoch: 1,
            saved: ResolvedTs::new(START),
            next: 0,
            wire: VecDeque::new(),
            answers: VecDeque::new(),
            calls: Vec::new(),
            reads: VecDeque::new(),
            faults: true,
        };
        world.join();
        world
    }

    fn now(&self) -> MonoTime {
        MonoTime::from_ms(self.now_ms)
    }

    /// The source begins at the saved timestamp.
    fn join(&mut self) {
        let at = self.saved.get();
        let tables = self.script.tables_at(at).iter().flat_map(|t| live(t, at)).collect();
        self.next = self.script.items.partition_point(|(ts, _)| *ts <= at);
        let now = self.now();
        self.pipeline.event(SourceEvent::Joined(tables), now).expect("a start");
        if at == START {
            let ids = self.script.tables_at(at).iter().flat_map(|t| t.physical.clone()).collect();
            self.content(ids, at);
        }
    }

    /// The source tells what tables hold when they join.
    fn content(&mut self, joined: Vec<i64>, ts: u64) {
        let now = self.now();
        for id in joined {
            for row in self.script.rows_at(TableId(id), ts) {
                self.pipeline.event(SourceEvent::Rows(run_of(&row)), now).expect("content");
            }
        }
    }

    fn crash(&mut self) {
        self.epoch += 1;
        self.wire.clear();
        self.answers.clear();
        self.calls.clear();
        self.reads.clear();
        self.pipeline = start(&self.ledger, self.epoch, self.saved);
        self.join();
    }

    /// One step of the source: a transaction with all its rows, a DDL, or progress.
    fn source(&mut self) {
        let now = self.now();
        let Some((ts, item)) = self.script.items.get(self.next).cloned() else {
            return self.progress(self.script.end + 1);
        };
        if self.rng.u32(0..3) == 0 {
            return self.progress(ts - 1);
        }
        self.next += 1;
        match item {
            Item::Row(row) => self.pipeline.event(SourceEvent::Rows(run_of(&row)), now).expect("a row"),
            Item::Ddl(ddl) => {
                self.pipeline.event(SourceEvent::Ddl(Arc::clone(&ddl)), now).expect("a ddl");
                let joined = ddl.need_added_tables.iter().map(|added| added.table_id.get()).collect();
                self.content(joined, ts);
            }
        }
    }

    fn progress(&mut self, ts: u64) {
        // Rows of one transaction come one by one here; progress must not fall between them.
        let last = self.next.checked_sub(1).and_then(|i| self.script.items.get(i)).map_or(0, |(ts, _)| *ts);
        if ts < last || ts < self.saved.get() {
            return;
        }
        let now = self.now();
        let tables = self.script.versions[self.next].iter().flat_map(|t| t.physical.clone());
        let resolved = ResolvedTs::new(ts);
        let checkpoint = Checkpoint::new(resolved, tables.map(|id| (TableId(id), resolved)));
        self.pipeline.event(SourceEvent::Progress(checkpoint), now).expect("progress");
    }

    fn send(&mut self) {
        let now = self.now();
        self.wire.extend(self.pipeline.poll_batches(now));
        self.calls.extend(self.pipeline.poll_calls(now));
        for (index, request) in self.pipeline.poll_reads() {
            for table in request.tables {
                let rows = self.script.rows_at(table, request.at.get());
                self.reads.extend(rows.chunks(2).map(|page| (index, page.to_vec())));
            }
            self.reads.push_back((index, Vec::new()));
        }
    }

    fn read(&mut self) {
        let now = self.now();
        match self.reads.pop_front() {
            Some((index, page)) if page.is_empty() => self.pipeline.read_done(index, now).expect("read"),
            Some((index, page)) => self.pipeline.rows_read(index, page).expect("rows"),
            None => {}
        }
    }

    fn gateway(&mut self) {
        let Some(batch) = self.wire.pop_front() else { return };
        let busy = self.faults && self.rng.u32(0..8) == 0;
        let answer = if busy { not_now(&batch) } else { self.ledger.batch(&batch) };
        if let Some(Outcome::Failure(failure)) = &answer.outcome {
            let code = failure.error.as_ref().map(|e| e.code());
            let expected = [Some(SfErrorCode::SfRateLimited), Some(SfErrorCode::SfSequenceGap)];
            assert!(expected.contains(&code), "refused: {failure:?}\n{batch:?}");
        }
        self.answers.push_back(answer);
    }

    fn answer(&mut self) {
        let now = self.now();
        if let Some(answer) = self.answers.pop_front() {
            self.pipeline.answer(answer, now).expect("nothing is refused for good");
        }
    }

    fn catalog(&mut self) {
        let now = self.now();
        let Some((index, call)) = self.calls.pop() else { return };
        let away = || CatalogAnswer::Later(Breach::new(SfErrorCode::SfUnavailable, "", "away"));
        // Away before doing it, or after: then the answer is lost and the repetition is a replay.
        let fault = if self.faults { self.rng.u32(0..6) } else { 9 };
        if fault == 0 {
            return self.pipeline.catalog_answer(index, away(), now).expect("later");
        }
        let answer = match &call {
            CatalogCall::Put(request) => match self.ledger.put(request) {
                Ok(generation) => CatalogAnswer::Applied(generation),
                Err(breach) => panic!("refused: {breach}\n{request:?}"),
            },
            CatalogCall::Drop(request) => {
                self.ledger.drop_collection(request).expect("a drop");
                CatalogAnswer::Dropped
            }
        };
        let answer = if fault == 1 { away() } else { answer };
        self.pipeline.catalog_answer(index, answer, now).expect("applied");
    }

    fn save(&mut self) {
        let resume = self.pipeline.resume_ts();
        assert!(resume >= self.saved, "I4: the checkpoint went back from {} to {resume}", self.saved);
        self.saved = resume;
    }

    fn step(&mut self) {
        self.now_ms += self.rng.u64(0..30);
        match self.rng.u32(0..if self.faults { 100 } else { 90 }) {
            0..25 => self.source(),
            25..45 => self.send(),
            45..60 => self.gateway(),
            60..75 => self.answer(),
            75..80 => self.catalog(),
            80..85 => self.read(),
            85..90 => self.save(),
            90..94 => self.crash(),
            94..98 => {
                self.wire.clear();
                self.answers.clear();
                self.pipeline.stream_lost();
            }
            _ => self.now_ms += 10_000,
        }
    }

    /// Lets everything settle without faults, in a bounded number of steps.
    fn settle(&mut self) {
        self.faults = false;
        for _ in 0..40_000 {
            self.step();
            self.now_ms += 20;
            let told = self.next == self.script.items.len();
            if told && self.pipeline.is_idle() && self.saved.get() > self.script.end {
                return;
            }
        }
        let stuck: Vec<_> =
            self.pipeline.collections().iter().map(|c| (c.phase(), c.floor(), c.due())).collect();
        panic!(
            "not settled: saved {}, told {} of {}, {stuck:?}",
            self.saved,
            self.next,
            self.script.items.len()
        );
    }

    fn documents(&self) -> BTreeMap<String, BTreeMap<u64, BTreeMap<String, Option<u8>>>> {
        let live = self.ledger.collections.values().filter(|c| c.dropped_at.is_none());
        live.map(|coll| {
            let definition =
                coll.generations.last().and_then(|g| g.definition.as_ref()).expect("a generation");
            let docs = coll.docs.iter().filter_map(|(id, doc)| Some((*id, plain(doc.fields.as_ref()?))));
            (definition.name.clone(), docs.collect())
        })
        .collect()
    }
}

fn plain(fields: &BTreeMap<String, FieldData>) -> BTreeMap<String, Option<u8>> {
    let value = |data: &FieldData| match &data.value {
        Some(field_data::Value::AtomicValue(atomic)) => match atomic.value {
            Some(atomic_value::Value::Uint64Value(n)) => Some(u8::try_from(n).expect("small")),
            _ => None,
        },
        other => panic!("not atomic: {other:?}"),
    };
    fields.iter().filter(|(name, _)| *name != "id").map(|(name, data)| (name.clone(), value(data))).collect()
}

fn not_now(batch: &MutationBatch) -> MutationAck {
    let breach = Breach::new(SfErrorCode::SfRateLimited, "", "slow down");
    let failure = MutationFailure { error: Some(breach.to_proto()), ..MutationFailure::default() };
    MutationAck {
        collection: batch.collection.clone(),
        batch_id: batch.batch_id.clone(),
        stream_identity: batch.stream_identity.clone(),
        outcome: Some(Outcome::Failure(failure)),
        ..MutationAck::default()
    }
}

fn start(ledger: &Ledger, epoch: u64, at: ResolvedTs) -> Pipeline {
    let (collections, held, seen_epoch) = ledger.snapshot();
    let options = options();
    let known = collections.into_iter().map(|c| Known::new(c).expect("compiles")).collect();
    let shared = Shared {
        resolver: SchemaResolver::new(&options),
        options,
        cluster: ClusterId(1),
        epoch: SourceEpoch::new(epoch.max(seen_epoch + 1)),
        held: held.into_iter().map(|(key, ts)| (key, Held { resolved: ResolvedTs::new(ts) })).collect(),
    };
    Pipeline::new(shared, known, at)
}

#[test]
fn whatever_fails_on_the_way_the_documents_are_the_tables() {
    let mut replays = 0;
    let seeds = std::env::var("TIDEGATE_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        for _ in 0..800 {
            world.step();
        }
        world.settle();
        assert_eq!(world.documents(), world.script.expected(), "seed {seed}");
        replays += world.ledger.replays;
    }
    assert!(replays > 0, "no run ever repeated a batch: the faults do nothing");
}
