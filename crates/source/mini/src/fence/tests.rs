use proptest::prelude::*;

use super::*;

const A: TableId = TableId(1);
const B: TableId = TableId(2);
const INTERVAL: Duration = Duration::from_millis(50);

fn ts(ts: u64) -> ResolvedTs {
    ResolvedTs::new(ts)
}

fn fence_with(tables: &[TableId]) -> Fence {
    let mut fence = Fence::new(ts(10), INTERVAL);
    for &table in tables {
        assert!(fence.join(table, ts(10)));
    }
    fence.report_schema(ts(1000));
    fence
}

fn checkpoint_at(fence: &mut Fence, horizon: u64, ms: u64) -> Option<Checkpoint> {
    fence.checkpoint(ts(horizon), MonoTime::from_ms(ms)).expect("nothing went back")
}

#[test]
fn the_fence_is_the_minimum_over_all_live_tables() {
    let mut fence = fence_with(&[A, B]);
    fence.report(A, ts(30)).expect("forward");
    assert_eq!(fence.fence(), ts(10), "table 2 has reported nothing");
    fence.report(B, ts(20)).expect("forward");
    assert_eq!(fence.fence(), ts(20));
    fence.report(B, ts(40)).expect("forward");
    assert_eq!(fence.fence(), ts(30));
}

#[test]
fn the_fence_never_passes_the_schema_store() {
    let mut fence = Fence::new(ts(10), INTERVAL);
    fence.join(A, ts(10));
    fence.report(A, ts(90)).expect("forward");
    fence.report_schema(ts(50));
    assert_eq!(fence.fence(), ts(50));
}

#[test]
fn without_live_tables_the_schema_store_alone_is_the_fence() {
    let mut fence = Fence::new(ts(10), INTERVAL);
    fence.report_schema(ts(70));
    assert_eq!(fence.fence(), ts(70));
    let checkpoint = checkpoint_at(&mut fence, 70, 0).expect("the schema moved");
    assert_eq!((checkpoint.global(), checkpoint.tables().len()), (ts(70), 0));
}

#[test]
fn a_table_that_leaves_no_longer_holds_the_fence() {
    let mut fence = fence_with(&[A, B]);
    fence.report(A, ts(30)).expect("forward");
    assert!(fence.leave(B) && !fence.leave(B));
    assert_eq!(fence.fence(), ts(30));
    fence.report(B, ts(12)).expect("a late report of a table that left is ignored");
}

#[test]
fn a_table_counts_from_where_it_joined_and_is_reported_only_from_its_own_progress() {
    let mut fence = fence_with(&[A]);
    fence.report(A, ts(30)).expect("forward");
    assert!(fence.join(B, ts(29)) && !fence.join(B, ts(29)));
    assert_eq!((fence.fence(), fence.silent()), (ts(29), Some(B)));
    fence.report(B, ts(25)).expect("it reads rows from before it joined");
    assert_eq!(checkpoint_at(&mut fence, 100, 0).expect("due").table(B), None);
    fence.report(B, ts(31)).expect("forward");
    assert_eq!(fence.silent(), None);
    let checkpoint = checkpoint_at(&mut fence, 100, 50).expect("due");
    assert_eq!((checkpoint.global(), checkpoint.table(B)), (ts(30), Some(ts(31))));
}

#[test]
fn a_checkpoint_stays_below_the_next_undelivered_ddl_for_every_table() {
    let mut fence = fence_with(&[A, B]);
    fence.report(A, ts(30)).expect("forward");
    fence.report(B, ts(50)).expect("forward");
    let checkpoint = checkpoint_at(&mut fence, 24, 0).expect("due");
    assert_eq!(checkpoint, Checkpoint::new(ts(24), [(A, ts(24)), (B, ts(24))]));
}

#[test]
fn checkpoints_are_coalesced_and_the_latest_state_is_always_emitted() {
    let mut fence = fence_with(&[A]);
    fence.report(A, ts(20)).expect("forward");
    assert_eq!(checkpoint_at(&mut fence, 100, 0).expect("first").global(), ts(20));
    assert_eq!(fence.checkpoint_due(), None, "nothing moved since");
    fence.report(A, ts(21)).expect("forward");
    fence.report(A, ts(22)).expect("forward");
    assert_eq!(checkpoint_at(&mut fence, 100, 49), None);
    assert_eq!(fence.checkpoint_due(), Some(MonoTime::from_ms(50)));
    assert_eq!(checkpoint_at(&mut fence, 100, 50).expect("due").global(), ts(22));
}

#[test]
#[should_panic(expected = "I3")]
fn a_table_that_goes_back_breaks_the_invariant() {
    let mut fence = fence_with(&[A]);
    fence.report(A, ts(20)).expect("forward");
    let _ = fence.report(A, ts(19));
}

#[test]
#[should_panic(expected = "I4")]
fn a_checkpoint_that_would_go_back_breaks_the_invariant() {
    let mut fence = fence_with(&[A]);
    fence.report(A, ts(20)).expect("forward");
    assert!(checkpoint_at(&mut fence, 100, 0).is_some());
    fence.join(B, ts(5));
    fence.ddl_delivered();
    let _ = fence.checkpoint(ts(100), MonoTime::from_ms(50));
}

#[derive(Clone, Debug)]
enum Move {
    Join(i64),
    Leave(i64),
    Report(i64, u64),
    Schema(u64),
    Horizon(u64),
    Tick(u64),
}

fn moves() -> impl Strategy<Value = Move> {
    prop_oneof![
        (1_i64..6).prop_map(Move::Join),
        (1_i64..6).prop_map(Move::Leave),
        (1_i64..6, 0_u64..20).prop_map(|(t, by)| Move::Report(t, by)),
        (0_u64..20).prop_map(Move::Schema),
        (0_u64..20).prop_map(Move::Horizon),
        (0_u64..60).prop_map(Move::Tick),
    ]
}

proptest! {
    /// Tables join at or above the last checkpoint, as the runtime has them do; everything else is arbitrary.
    #[test]
    fn checkpoints_never_go_back_never_pass_a_table_the_schema_or_the_horizon(
        steps in prop::collection::vec(moves(), 1..200),
    ) {
        let mut fence = Fence::new(ts(10), INTERVAL);
        let mut model: std::collections::BTreeMap<i64, u64> = std::collections::BTreeMap::new();
        let (mut schema, mut horizon, mut now, mut last, mut last_at) = (10, 10, 0, 10, None);
        for step in steps {
            match step {
                Move::Join(t) => {
                    if fence.join(TableId(t), ts(horizon)) { model.insert(t, horizon); }
                }
                Move::Leave(t) => prop_assert_eq!(fence.leave(TableId(t)), model.remove(&t).is_some()),
                Move::Report(t, by) => {
                    let to = model.get(&t).copied().unwrap_or(1) + by;
                    fence.report(TableId(t), ts(to)).expect("forward");
                    if let Some(at) = model.get_mut(&t) { *at = to; }
                }
                Move::Schema(by) => { schema += by; fence.report_schema(ts(schema)); }
                Move::Horizon(by) => horizon = schema.min(horizon + by),
                Move::Tick(by) => now += by,
            }
            let lowest = model.values().copied().min().unwrap_or(schema).min(schema);
            prop_assert_eq!(fence.fence(), ts(lowest));
            if let Some(checkpoint) = checkpoint_at(&mut fence, horizon, now) {
                let global = checkpoint.global().get();
                prop_assert!(global >= last && global == lowest.min(horizon));
                prop_assert!(last_at.is_none_or(|at| now - at >= 50));
                for (table, resolved) in checkpoint.tables() {
                    prop_assert!(resolved.get() <= model[&table.get()] && resolved.get() <= horizon);
                }
                (last, last_at) = (global, Some(now));
            }
        }
    }
}
