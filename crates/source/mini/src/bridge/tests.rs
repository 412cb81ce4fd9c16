use proptest::prelude::*;

use super::*;

const A: TableId = TableId(7);
const B: TableId = TableId(8);
const NOW: MonoTime = MonoTime::from_ms(0);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    key: &'static str,
    presence: Option<Presence>,
}

impl BridgeRow for Row {
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn size_bytes(&self) -> usize {
        10
    }

    fn presence(&self) -> Option<Presence> {
        self.presence
    }
}

fn row(key: &'static str) -> Row {
    Row { key, presence: None }
}

fn limits() -> BridgeLimits {
    BridgeLimits {
        partition_rows_max: 3,
        partition_bytes_max: 1000,
        total_bytes_max: 1000,
        window: Duration::from_secs(1),
    }
}

fn bridge(tables: &[TableId]) -> Bridge<Row> {
    let mut bridge = Bridge::new(None, limits(), SourceEpoch::FIRST);
    assert!(tables.iter().all(|&table| bridge.open(table)));
    bridge
}

fn offer(bridge: &mut Bridge<Row>, table: TableId, commit_ts: u64, key: &'static str) {
    let admitted = bridge.offer(table, CommitTs::new(commit_ts), row(key), NOW);
    assert_eq!(admitted, Ok(Admitted::Buffered));
}

fn checkpoint(tables: &[(TableId, u64)]) -> Checkpoint {
    let tables: Vec<_> = tables.iter().map(|&(table, ts)| (table, ResolvedTs::new(ts))).collect();
    let global = tables.iter().map(|&(_, ts)| ts).min().unwrap_or_default();
    Checkpoint::new(global, tables)
}

/// Sequence number, commit timestamp and key.
type Shape = (u64, u64, &'static str);

fn shape(runs: &[SealedRun<Row>]) -> Vec<(TableId, Vec<Shape>)> {
    let rows = |run: &SealedRun<Row>| {
        run.rows.iter().map(|r| (r.seq.get(), r.commit_ts.get(), r.row.key)).collect::<Vec<_>>()
    };
    runs.iter().map(|run| (run.table, rows(run))).collect()
}

#[test]
fn one_table_path_is_one_source_partition_named_after_keyspace_and_physical_table() {
    assert_eq!(SourcePartition::of(None, A).as_str(), "table:7");
    assert_eq!(SourcePartition::of(Some(KeyspaceId(3)), A).as_str(), "keyspace:3/table:7");
    let mut bridge = Bridge::new(Some(KeyspaceId(3)), limits(), SourceEpoch::FIRST);
    assert!(bridge.open(A) && !bridge.open(A));
    offer(&mut bridge, A, 5, "k");
    let runs = bridge.checkpoint(&checkpoint(&[(A, 5)])).expect("forward");
    assert_eq!(runs[0].partition.as_str(), "keyspace:3/table:7");
}

#[test]
fn sequence_numbers_follow_commit_order_and_inside_a_commit_the_order_of_callbacks() {
    let mut bridge = bridge(&[A]);
    offer(&mut bridge, A, 30, "late");
    offer(&mut bridge, A, 20, "second");
    offer(&mut bridge, A, 20, "first of the alphabet, third of the callbacks");
    let runs = bridge.checkpoint(&checkpoint(&[(A, 30)])).expect("forward");
    let expect =
        vec![(1, 20, "second"), (2, 20, "first of the alphabet, third of the callbacks"), (3, 30, "late")];
    assert_eq!(shape(&runs), vec![(A, expect)]);
    assert_eq!(runs[0].first_seq, SourceSeq::FIRST);
}

#[test]
fn only_a_checkpoint_of_the_own_partition_seals_and_sequences_go_on_over_seals() {
    let mut bridge = bridge(&[A, B]);
    offer(&mut bridge, A, 20, "a");
    offer(&mut bridge, A, 40, "b");
    offer(&mut bridge, B, 20, "c");
    assert_eq!(bridge.checkpoint(&checkpoint(&[(A, 19), (B, 10)])), Ok(vec![]));
    let runs = bridge.checkpoint(&checkpoint(&[(A, 39), (B, 10)])).expect("forward");
    assert_eq!(shape(&runs), vec![(A, vec![(1, 20, "a")])]);
    let runs = bridge.checkpoint(&checkpoint(&[(A, 40), (B, 40)])).expect("forward");
    assert_eq!(shape(&runs), vec![(A, vec![(2, 40, "b")]), (B, vec![(1, 20, "c")])]);
}

#[test]
fn a_ddl_seals_the_rows_at_or_below_it_of_the_paths_it_touches() {
    let mut bridge = bridge(&[A, B]);
    offer(&mut bridge, A, 20, "before");
    offer(&mut bridge, A, 21, "after");
    offer(&mut bridge, B, 20, "elsewhere");
    let runs = bridge.ddl(CommitTs::new(20), DdlScope::Tables(&[A])).expect("old values are there");
    assert_eq!(shape(&runs), vec![(A, vec![(1, 20, "before")])]);
    let runs = bridge.ddl(CommitTs::new(20), DdlScope::All).expect("old values are there");
    assert_eq!(shape(&runs), vec![(B, vec![(1, 20, "elsewhere")])]);
    assert_eq!((bridge.epoch(), bridge.buffered_rows()), (SourceEpoch::FIRST, 1));
}

#[test]
fn a_row_at_or_below_a_seal_is_an_anomaly() {
    let mut bridge = bridge(&[A]);
    bridge.ddl(CommitTs::new(20), DdlScope::All).expect("old values are there");
    let late = BridgeError::LateRow { table: A, commit_ts: CommitTs::new(20), sealed: ResolvedTs::new(20) };
    assert_eq!(bridge.offer(A, CommitTs::new(20), row("k"), NOW), Err(late));
}

#[test]
fn a_full_buffer_gives_rows_back_and_takes_them_again_after_a_seal() {
    let mut bridge = bridge(&[A]);
    for key in ["a", "b", "c"] {
        offer(&mut bridge, A, 20, key);
    }
    let until = MonoTime::from_ms(1000);
    let full = Ok(Admitted::Full { row: row("d"), until });
    assert_eq!(bridge.offer(A, CommitTs::new(30), row("d"), NOW), full);
    bridge.checkpoint(&checkpoint(&[(A, 20)])).expect("forward");
    let later = MonoTime::from_ms(2000);
    assert_eq!(bridge.offer(A, CommitTs::new(30), row("d"), later), Ok(Admitted::Buffered));
}

#[test]
fn without_a_seal_in_the_window_the_buffer_overflows_and_no_unsealed_row_was_given_out() {
    let mut bridge = bridge(&[A]);
    for key in ["a", "b", "c"] {
        offer(&mut bridge, A, 20, key);
    }
    let at =
        |bridge: &mut Bridge<Row>, ms| bridge.offer(A, CommitTs::new(30), row("d"), MonoTime::from_ms(ms));
    assert!(matches!(at(&mut bridge, 0), Ok(Admitted::Full { .. })));
    assert_eq!(bridge.checkpoint(&checkpoint(&[(A, 19)])), Ok(vec![]), "pressure seals nothing");
    assert!(matches!(at(&mut bridge, 999), Ok(Admitted::Full { .. })));
    let overflow = BridgeError::Overflow { table: A, rows: 3, bytes: 30, total_bytes: 30 };
    assert_eq!(at(&mut bridge, 1000), Err(overflow));
}

#[test]
fn bytes_bound_a_partition_and_all_partitions_together() {
    let bounds = BridgeLimits { partition_bytes_max: 20, total_bytes_max: 30, ..limits() };
    let mut bridge = Bridge::new(None, bounds, SourceEpoch::FIRST);
    assert!(bridge.open(A) && bridge.open(B));
    offer(&mut bridge, A, 20, "a");
    offer(&mut bridge, A, 20, "b");
    let third = bridge.offer(A, CommitTs::new(20), row("c"), NOW);
    assert!(matches!(third, Ok(Admitted::Full { .. })), "20 bytes are the partition's limit");
    offer(&mut bridge, B, 20, "a");
    let fourth = bridge.offer(B, CommitTs::new(20), row("b"), NOW);
    assert!(matches!(fourth, Ok(Admitted::Full { .. })), "30 bytes are the limit of all");
    assert_eq!(bridge.close(A), 2);
    assert_eq!((bridge.buffered_bytes(), bridge.buffered_rows()), (10, 1));
    offer(&mut bridge, B, 20, "b");
}

#[test]
fn a_row_delivered_twice_is_sealed_once() {
    let mut bridge = bridge(&[A]);
    offer(&mut bridge, A, 20, "k");
    offer(&mut bridge, A, 21, "k");
    offer(&mut bridge, A, 20, "k");
    let runs = bridge.checkpoint(&checkpoint(&[(A, 21)])).expect("forward");
    assert_eq!(shape(&runs), vec![(A, vec![(1, 20, "k"), (2, 21, "k")])]);
    assert_eq!((bridge.duplicates(), bridge.buffered_bytes()), (1, 0));
}

#[test]
fn an_update_without_its_old_value_is_an_anomaly_when_the_row_is_known_to_exist() {
    let change = |before, after| Row { key: "k", presence: Some(Presence { before, after }) };
    let (insert, update, delete) = (change(false, true), change(true, true), change(true, false));
    let seal = |changes: &[(u64, &Row)]| {
        let mut bridge = bridge(&[A]);
        for &(ts, row) in changes {
            let admitted = bridge.offer(A, CommitTs::new(ts), row.clone(), NOW);
            assert_eq!(admitted, Ok(Admitted::Buffered));
        }
        bridge.checkpoint(&checkpoint(&[(A, 30)])).map(|runs| runs[0].rows.len())
    };
    assert_eq!(seal(&[(20, &insert), (21, &update), (22, &delete)]), Ok(3));
    assert_eq!(
        seal(&[(22, &insert), (21, &delete), (20, &update)]),
        Ok(3),
        "callbacks may come newest first"
    );
    assert_eq!(seal(&[(20, &insert), (20, &insert)]), Ok(1), "a second copy is no second insert");
    let missing = |ts| Err(BridgeError::MissingOldValue { table: A, commit_ts: CommitTs::new(ts) });
    assert_eq!(seal(&[(20, &insert), (21, &insert)]), missing(21));
    assert_eq!(seal(&[(21, &insert), (20, &update)]), missing(21));
}

#[test]
fn checkpoints_that_go_back_are_an_anomaly() {
    let mut bridge = bridge(&[A, B]);
    bridge.checkpoint(&checkpoint(&[(A, 30), (B, 20)])).expect("forward");
    let back = BridgeError::GlobalRegression { from: ResolvedTs::new(20), to: ResolvedTs::new(19) };
    assert_eq!(bridge.checkpoint(&checkpoint(&[(A, 30), (B, 19)])), Err(back));
    let back = BridgeError::Regression { table: A, from: ResolvedTs::new(30), to: ResolvedTs::new(29) };
    assert_eq!(bridge.checkpoint(&checkpoint(&[(A, 29), (B, 20)])), Err(back));
}

#[test]
fn only_a_restart_begins_a_new_epoch_and_new_sequences() {
    let mut bridge = bridge(&[A]);
    offer(&mut bridge, A, 20, "a");
    bridge.checkpoint(&checkpoint(&[(A, 20)])).expect("forward");
    bridge.ddl(CommitTs::new(25), DdlScope::All).expect("old values are there");
    assert_eq!(bridge.epoch(), SourceEpoch::FIRST);
    bridge.restart();
    offer(&mut bridge, A, 20, "a");
    let runs = bridge.checkpoint(&checkpoint(&[(A, 20)])).expect("forward");
    assert_eq!((runs[0].epoch, runs[0].first_seq), (SourceEpoch::new(2), SourceSeq::FIRST));
}

#[test]
fn rows_of_an_unknown_path_are_refused() {
    let refused = bridge(&[A]).offer(B, CommitTs::new(20), row("k"), NOW);
    assert_eq!(refused, Err(BridgeError::UnknownPartition { table: B }));
}

/// A step of a random run: rows come for one of two tables, above what was sealed; seals come in between.
#[derive(Clone, Debug)]
enum Step {
    Row { table: bool, above: u64, key: usize },
    Checkpoint { a: u64, b: u64 },
    Ddl { all: bool, by: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<bool>(), 1_u64..20, 0_usize..4)
            .prop_map(|(table, above, key)| Step::Row { table, above, key }),
        1 => (0_u64..10, 0_u64..10).prop_map(|(a, b)| Step::Checkpoint { a, b }),
        1 => (any::<bool>(), 0_u64..10).prop_map(|(all, by)| Step::Ddl { all, by }),
    ];
    prop::collection::vec(step, 1..150)
}

const KEYS: [&str; 4] = ["w", "x", "y", "z"];

proptest! {
    /// Whatever order rows and seals come in, each partition gives out exactly its rows at or below the
    /// seals, once each, by commit timestamp, numbered 1, 2, 3 without gaps.
    #[test]
    fn sealed_rows_are_complete_ordered_and_numbered_without_gaps(steps in steps()) {
        let mut bridge = Bridge::new(None, BridgeLimits::default(), SourceEpoch::FIRST);
        for table in [A, B] { bridge.open(table); }
        let mut sealed = [0_u64; 2];
        let mut offered: [Vec<(u64, &str)>; 2] = Default::default();
        let mut given: [Vec<(u64, &str)>; 2] = Default::default();
        let mut next_seq = [1_u64; 2];
        for step in steps {
            let runs = match step {
                Step::Row { table, above, key } => {
                    let i = usize::from(table);
                    let commit_ts = sealed[i] + above;
                    offer(&mut bridge, [A, B][i], commit_ts, KEYS[key]);
                    offered[i].push((commit_ts, KEYS[key]));
                    vec![]
                }
                Step::Checkpoint { a, b } => {
                    sealed = [sealed[0] + a, sealed[1] + b];
                    let tables = [(A, ResolvedTs::new(sealed[0])), (B, ResolvedTs::new(sealed[1]))];
                    bridge.checkpoint(&Checkpoint::new(ResolvedTs::ZERO, tables)).expect("forward")
                }
                Step::Ddl { all, by } => {
                    let at = sealed[0] + by;
                    sealed = [at, if all { sealed[1].max(at) } else { sealed[1] }];
                    let scope = if all { DdlScope::All } else { DdlScope::Tables(&[A]) };
                    bridge.ddl(CommitTs::new(at), scope).expect("no presence is told")
                }
            };
            for run in runs {
                let i = usize::from(run.table == B);
                for row in &run.rows {
                    prop_assert_eq!(row.seq.get(), next_seq[i]);
                    next_seq[i] += 1;
                    given[i].push((row.commit_ts.get(), row.row.key));
                }
            }
            for i in 0..2 {
                let mut expect: Vec<(u64, &str)> = Vec::new();
                for &(ts, key) in offered[i].iter().filter(|&&(ts, _)| ts <= sealed[i]) {
                    if !expect.contains(&(ts, key)) { expect.push((ts, key)); }
                }
                expect.sort_by_key(|&(ts, _)| ts);
                prop_assert_eq!(&given[i], &expect);
            }
        }
    }
}
