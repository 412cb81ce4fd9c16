//! Each rule and trap of `reference/cdc-protocol.md` §12 and §20 on its own. Property tests over random
//! interleavings stand in the crate's integration tests.

use super::*;

const REGION: RegionId = RegionId(7);

/// A matcher under test: starts after 10, nothing resolved beyond it.
struct Run {
    matcher: Matcher,
    resolved: ResolvedTs,
    out: Vec<RawChange>,
}

impl Run {
    fn new() -> Self {
        Self {
            matcher: Matcher::new(REGION, StartTs::new(10)),
            resolved: ResolvedTs::new(10),
            out: Vec::new(),
        }
    }

    fn initialized() -> Self {
        Self::new().feed([Row::Initialized])
    }

    fn feed<const N: usize>(mut self, rows: [Row; N]) -> Self {
        for row in rows {
            self.try_feed(row).expect("a legal row");
        }
        self
    }

    fn try_feed(&mut self, row: Row) -> Result<(), MatchError> {
        self.matcher.step(row, self.resolved, &mut self.out)
    }

    /// Emitted changes as (op, key, value, old value, start, commit).
    fn emitted(&self) -> Vec<(Op, &str, &str, &str, u64, u64)> {
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        let tuple = |c: &'_ RawChange| (c.op, c.start_ts.get(), c.commit_ts.get());
        self.out
            .iter()
            .map(|change| {
                let (op, start, commit) = tuple(change);
                (op, text(&change.key), text(&change.value), text(&change.old_value), start, commit)
            })
            .collect()
    }
}

fn txn(start: u64, key: &'static str) -> TxnKey {
    TxnKey { start_ts: StartTs::new(start), key: Bytes::from_static(key.as_bytes()) }
}

fn put(start: u64, key: &'static str, value: &'static str) -> Row {
    generation(start, key, value, 0)
}

fn generation(start: u64, key: &'static str, value: &'static str, generation: u64) -> Row {
    let (value, old_value) = (Bytes::from_static(value.as_bytes()), Bytes::from_static(b"old"));
    Row::Prewrite(txn(start, key), Prewrite { op: Op::Put, value, old_value, generation })
}

fn delete(start: u64, key: &'static str) -> Row {
    let (value, old_value) = (Bytes::new(), Bytes::from_static(b"old"));
    Row::Prewrite(txn(start, key), Prewrite { op: Op::Delete, value, old_value, generation: 0 })
}

fn commit(start: u64, key: &'static str, commit: u64) -> Row {
    Row::Commit(txn(start, key), CommitTs::new(commit))
}

fn rollback(start: u64, key: &'static str) -> Row {
    Row::Rollback(txn(start, key))
}

fn committed(start: u64, key: &'static str, value: &'static str, commit: u64) -> Row {
    let TxnKey { start_ts, key } = txn(start, key);
    Row::Committed(RawChange {
        op: Op::Put,
        key,
        value: Bytes::from_static(value.as_bytes()),
        old_value: Bytes::new(),
        start_ts,
        commit_ts: CommitTs::new(commit),
        region_id: REGION,
    })
}

#[test]
fn value_and_old_value_come_from_the_prewrite() {
    let run = Run::initialized().feed([put(20, "a", "1"), commit(20, "a", 25)]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "old", 20, 25)]);
    assert_eq!((run.matcher.held_prewrites(), run.matcher.held_bytes()), (0, 0));
}

#[test]
fn the_operation_decides_between_put_and_delete_and_not_the_value() {
    let run = Run::initialized().feed([
        put(20, "a", ""),
        commit(20, "a", 25),
        delete(26, "a"),
        commit(26, "a", 27),
    ]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "", "old", 20, 25), (Op::Delete, "a", "", "old", 26, 27)]);
}

#[test]
fn a_commit_before_its_prewrite_waits_for_the_end_of_the_scan() {
    let run = Run::new().feed([commit(20, "a", 25), put(20, "a", "1")]);
    assert_eq!(run.emitted(), []);
    let run = run.feed([Row::Initialized]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "old", 20, 25)]);
}

#[test]
fn an_early_commit_that_the_scan_covered_is_dropped() {
    let run = Run::new().feed([commit(20, "a", 25), committed(20, "a", "1", 25), Row::Initialized]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "", 20, 25)]);
}

#[test]
fn a_version_that_the_scan_reports_whole_is_not_matched_with_a_prewrite_that_lost_its_value() {
    let run = Run::new().feed([
        put(20, "a", ""),
        commit(20, "a", 25),
        committed(20, "a", "1", 25),
        Row::Initialized,
    ]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "", 20, 25)]);
    assert_eq!(run.matcher.held_prewrites(), 0);
}

#[test]
fn tiflow_5468_an_empty_prewrite_is_not_matched_during_the_scan() {
    // The live prewrite carries no value (the lock was rewritten); the scan brings the value later.
    let run = Run::new().feed([put(20, "a", ""), commit(20, "a", 25), put(20, "a", "1")]);
    assert_eq!(run.emitted(), []);
    assert_eq!(run.feed([Row::Initialized]).emitted(), [(Op::Put, "a", "1", "old", 20, 25)]);
}

#[test]
fn a_delete_committed_during_the_scan_comes_at_its_end() {
    let run = Run::new().feed([delete(20, "a"), commit(20, "a", 25)]);
    assert_eq!(run.emitted(), []);
    assert_eq!(run.feed([Row::Initialized]).emitted(), [(Op::Delete, "a", "", "old", 20, 25)]);
}

#[test]
fn a_lock_written_again_without_its_value_does_not_hide_the_value() {
    let run = Run::initialized().feed([put(20, "a", "1"), put(20, "a", ""), commit(20, "a", 25)]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "old", 20, 25)]);
    let run = Run::initialized().feed([delete(20, "a"), delete(20, "a"), commit(20, "a", 25)]);
    assert_eq!(run.emitted(), [(Op::Delete, "a", "", "old", 20, 25)]);
}

#[test]
fn a_prewrite_repeated_by_a_pessimistic_retry_replaces_the_first() {
    let run = Run::initialized().feed([put(20, "a", "1"), put(20, "a", "2"), commit(20, "a", 25)]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "2", "old", 20, 25)]);
}

#[test]
fn the_highest_generation_of_a_pipelined_transaction_wins_whatever_the_order() {
    let run = Run::initialized().feed([
        generation(20, "a", "3", 3),
        generation(20, "a", "2", 2),
        commit(20, "a", 25),
    ]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "3", "old", 20, 25)]);
}

#[test]
fn a_generation_is_not_matched_during_the_scan() {
    let run =
        Run::new().feed([generation(20, "a", "1", 1), commit(20, "a", 25), generation(20, "a", "2", 2)]);
    assert_eq!(run.emitted(), []);
    assert_eq!(run.feed([Row::Initialized]).emitted(), [(Op::Put, "a", "2", "old", 20, 25)]);
}

#[test]
fn a_rollback_removes_the_prewrite_and_may_come_without_one() {
    let run = Run::initialized().feed([put(20, "a", "1"), rollback(20, "a"), rollback(21, "b")]);
    assert_eq!((run.emitted(), run.matcher.held_prewrites(), run.matcher.held_bytes()), (vec![], 0, 0));
}

#[test]
fn a_rollback_during_the_scan_beats_a_later_prewrite_of_the_scan() {
    let run = Run::new().feed([rollback(20, "a"), put(20, "a", "1"), Row::Initialized]);
    assert_eq!(run.matcher.held_prewrites(), 0);
}

#[test]
fn a_prewrite_that_the_scan_reports_after_its_commit_was_matched_is_not_kept_for_ever() {
    let run = Run::new().feed([put(20, "a", "1"), commit(20, "a", 25), put(20, "a", "1"), Row::Initialized]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "old", 20, 25)]);
    assert_eq!((run.matcher.held_prewrites(), run.matcher.held_bytes()), (0, 0));
}

#[test]
fn commits_at_or_below_the_start_are_matched_and_dropped() {
    // A transaction from before the start whose secondary key is committed late: normal, and no change for
    // us.
    let run = Run::new().feed([put(5, "a", "1"), commit(5, "a", 10), Row::Initialized, put(6, "b", "1")]);
    let run = run.feed([commit(6, "b", 9), commit(7, "c", 8)]);
    assert_eq!((run.emitted(), run.matcher.held_prewrites()), (vec![], 0));
}

#[test]
fn early_commits_at_or_below_the_start_are_dropped_at_the_end_of_the_scan() {
    let run = Run::new().feed([commit(5, "a", 10), put(5, "a", "1"), Row::Initialized]);
    assert_eq!((run.emitted(), run.matcher.held_prewrites()), (vec![], 0));
}

#[test]
fn committed_rows_at_or_below_the_start_are_dropped() {
    assert_eq!(Run::new().feed([committed(5, "a", "1", 10)]).emitted(), []);
}

#[test]
fn a_prewrite_from_before_the_start_with_a_commit_after_it_counts() {
    let run = Run::new().feed([put(5, "a", "1"), Row::Initialized, commit(5, "a", 11)]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "1", "old", 5, 11)]);
}

#[test]
fn a_version_at_or_below_the_resolved_timestamp_is_an_error() {
    let mut run = Run::initialized().feed([put(20, "a", "1"), put(21, "b", "1")]);
    run.resolved = ResolvedTs::new(30);
    let error = run.try_feed(commit(20, "a", 30)).unwrap_err();
    assert!(matches!(error, MatchError::BelowResolved { commit_ts, resolved, .. }
        if commit_ts == CommitTs::new(30) && resolved == ResolvedTs::new(30)));
    assert!(run.try_feed(committed(22, "c", "1", 29)).is_err());
    assert!(run.try_feed(commit(21, "b", 31)).is_ok());
}

#[test]
fn a_commit_without_prewrite_after_the_scan_is_an_error() {
    let error = Run::initialized().try_feed(commit(20, "a", 25)).unwrap_err();
    let (start_ts, commit_ts) = (StartTs::new(20), CommitTs::new(25));
    assert_eq!(error, MatchError::PrewriteMissing { region_id: REGION, start_ts, commit_ts });
}

#[test]
fn a_commit_without_prewrite_at_or_below_the_resolved_timestamp_is_the_worse_error() {
    // Scanning the region again would not bring it back.
    let mut run = Run::initialized();
    run.resolved = ResolvedTs::new(30);
    assert!(matches!(run.try_feed(commit(20, "a", 25)), Err(MatchError::BelowResolved { .. })));
}

#[test]
fn prewrites_that_ended_without_a_word_are_swept_once_they_are_many() {
    let mut run = Run::initialized();
    for start in 0..100 {
        run.try_feed(put(20 + start, "a", "value")).expect("a legal row");
    }
    let one = "a".len() + "value".len() + "old".len();
    assert_eq!(run.matcher.held_bytes(), 100 * one);
    // A lock that started at 90 may still hold the resolved timestamp at 90; those below are gone.
    run.matcher.sweep(ResolvedTs::new(90));
    assert_eq!((run.matcher.held_prewrites(), run.matcher.held_bytes()), (30, 30 * one));
    run.matcher.sweep(ResolvedTs::new(110));
    assert_eq!(run.matcher.held_prewrites(), 30, "few are left alone");
}

#[test]
fn the_same_key_of_two_transactions_is_told_apart() {
    let run = Run::initialized().feed([
        put(20, "a", "1"),
        rollback(20, "a"),
        put(22, "a", "2"),
        commit(22, "a", 25),
    ]);
    assert_eq!(run.emitted(), [(Op::Put, "a", "2", "old", 22, 25)]);
}

#[test]
fn one_phase_commits_arrive_whole_and_duplicates_of_the_scan_are_passed_on() {
    let row = || committed(20, "a", "1", 21);
    let run = Run::new().feed([row(), row(), Row::Initialized, committed(30, "a", "2", 31)]);
    let once = (Op::Put, "a", "1", "", 20, 21);
    assert_eq!(run.emitted(), [once, once, (Op::Put, "a", "2", "", 30, 31)]);
}

#[test]
fn live_rows_are_passed_on_without_copying_their_bytes() {
    let message = Bytes::from(b"key-and-value".to_vec());
    let (key, value) = (message.slice(0..3), message.slice(8..));
    let txn = TxnKey { start_ts: StartTs::new(20), key };
    let prewrite = Prewrite { op: Op::Put, value, old_value: Bytes::new(), generation: 0 };
    let run =
        Run::initialized().feed([Row::Prewrite(txn.clone(), prewrite), Row::Commit(txn, CommitTs::new(21))]);
    assert!(message.as_ptr_range().contains(&run.out[0].value.as_ptr()));
}

#[test]
fn a_scanned_prewrite_does_not_keep_the_whole_message_alive() {
    let message = Bytes::from(vec![b'x'; 1 << 20]);
    let txn = TxnKey { start_ts: StartTs::new(20), key: message.slice(0..3) };
    let prewrite =
        Prewrite { op: Op::Put, value: message.slice(3..9), old_value: Bytes::new(), generation: 0 };
    let _run = Run::new().feed([Row::Prewrite(txn, prewrite)]);
    assert!(message.is_unique());
}
