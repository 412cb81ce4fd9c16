use bytes::Bytes;
use proptest::prelude::*;
use tidegate_core::{CommitTs, Span, StartTs, Ts};

use super::*;

fn mutation(op: MutationOp, key: &'static str, value: &'static str) -> Mutation {
    Mutation {
        op,
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(value.as_bytes()),
        assertion: Assertion::None,
        pessimistic: PessimisticAction::Skip,
        expected_for_update_ts: None,
    }
}

fn put(key: &'static str, value: &'static str) -> Mutation {
    mutation(MutationOp::Put, key, value)
}

fn optimistic(start_ts: u64, mutations: Vec<Mutation>) -> Prewrite {
    Prewrite {
        primary: mutations[0].key.clone(),
        txn_size: u64::try_from(mutations.len()).expect("few"),
        mutations,
        start_ts: StartTs::new(start_ts),
        ttl_ms: 3_000,
        skip_constraint_check: false,
        for_update_ts: Ts::ZERO,
        min_commit_ts: CommitTs::ZERO,
        max_commit_ts: CommitTs::ZERO,
        async_commit: false,
        secondaries: Vec::new(),
        one_phase: false,
        assertion_level: AssertionLevel::Off,
        is_retry: false,
        txn_source: 0,
    }
}

fn commit(engine: &mut Engine, keys: &[&'static str], start_ts: u64, commit_ts: u64) -> Result<(), TxnError> {
    let keys = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
    engine.commit(&Commit { keys, start_ts: StartTs::new(start_ts), commit_ts: CommitTs::new(commit_ts) })
}

fn write(engine: &mut Engine, key: &'static str, value: &'static str, start_ts: u64, commit_ts: u64) {
    engine.prewrite(&optimistic(start_ts, vec![put(key, value)])).expect("no conflict");
    commit(engine, &[key], start_ts, commit_ts).expect("just locked");
}

fn read(engine: &mut Engine, key: &str, ts: u64) -> Result<Option<Bytes>, TxnError> {
    let found = engine.get(key.as_bytes(), &ReadView::at(Ts::new(ts)))?;
    Ok(found.map(|found| found.value))
}

fn check(start_ts: u64, primary: &'static str) -> CheckStatus {
    CheckStatus {
        primary: Bytes::from_static(primary.as_bytes()),
        start_ts: StartTs::new(start_ts),
        caller_start_ts: Ts::ZERO,
        current_ts: Ts::ZERO,
        rollback_if_not_exist: false,
        force_sync_commit: false,
        resolving_pessimistic_lock: false,
        verify_is_primary: false,
    }
}

fn only(errors: Vec<TxnError>) -> TxnError {
    let [error] = <[TxnError; 1]>::try_from(errors).expect("one error");
    error
}

#[test]
fn a_snapshot_sees_what_was_committed_up_to_it_and_waits_for_older_locks() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    engine.prewrite(&optimistic(30, vec![put("k", "2")])).expect("no conflict");
    assert_eq!(read(&mut engine, "k", 19).expect("older than the lock"), None);
    assert_eq!(read(&mut engine, "k", 29).expect("older than the lock"), Some(Bytes::from("1")));
    assert!(matches!(read(&mut engine, "k", 30), Err(TxnError::Locked(_))));
    commit(&mut engine, &["k"], 30, 40).expect("locked");
    assert_eq!(read(&mut engine, "k", 39).expect("no lock"), Some(Bytes::from("1")));
    assert_eq!(read(&mut engine, "k", 40).expect("no lock"), Some(Bytes::from("2")));
}

#[test]
fn reading_the_newest_passes_its_own_primary_lock_but_no_other() {
    // reference/tikv-kv-protocol.md §7.1: V == u64::MAX and key == L.primary.
    let mut engine = Engine::default();
    engine.prewrite(&optimistic(10, vec![put("p", "1"), put("s", "1")])).expect("no conflict");
    assert_eq!(read(&mut engine, "p", u64::MAX).expect("its primary"), None);
    assert!(matches!(read(&mut engine, "s", u64::MAX), Err(TxnError::Locked(_))));
}

#[test]
fn all_locked_keys_are_reported_and_nothing_is_written() {
    let mut engine = Engine::default();
    engine.prewrite(&optimistic(10, vec![put("a", "1"), put("c", "1")])).expect("no conflict");
    let errors = engine
        .prewrite(&optimistic(20, vec![put("a", "2"), put("b", "2"), put("c", "2")]))
        .expect_err("two keys are locked");
    assert_eq!(errors.len(), 2);
    assert_eq!(read(&mut engine, "b", 100).expect("not locked"), None);
}

#[test]
fn a_newer_record_of_any_kind_conflicts_an_optimistic_prewrite() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    let conflict = only(engine.prewrite(&optimistic(15, vec![put("k", "2")])).expect_err("too old"));
    assert!(matches!(
        conflict,
        TxnError::Conflict { reason: ConflictReason::Optimistic, conflict_commit_ts, .. }
            if conflict_commit_ts == CommitTs::new(20)
    ));
    engine.batch_rollback(&[Bytes::from("k")], StartTs::new(50)).expect("never written");
    let conflict = only(engine.prewrite(&optimistic(40, vec![put("k", "2")])).expect_err("a newer rollback"));
    assert!(matches!(conflict, TxnError::Conflict { .. }));
}

#[test]
fn prewrite_and_commit_may_be_repeated_at_any_time() {
    let mut engine = Engine::default();
    let request = optimistic(10, vec![put("k", "1")]);
    engine.prewrite(&request).expect("no conflict");
    engine.prewrite(&request).expect("its own lock");
    commit(&mut engine, &["k"], 10, 20).expect("locked");
    commit(&mut engine, &["k"], 10, 20).expect("already committed");
    write(&mut engine, "k", "2", 30, 40);
    let late = engine.prewrite(&request).expect("committed long ago");
    assert_eq!(late.min_commit_ts, CommitTs::new(20));
}

#[test]
fn a_rollback_defeats_a_late_prewrite_and_a_late_commit() {
    let mut engine = Engine::default();
    engine.prewrite(&optimistic(10, vec![put("k", "1")])).expect("no conflict");
    engine.batch_rollback(&[Bytes::from("k")], StartTs::new(10)).expect("not committed");
    let late = only(engine.prewrite(&optimistic(10, vec![put("k", "1")])).expect_err("rolled back"));
    assert!(matches!(late, TxnError::Conflict { reason: ConflictReason::SelfRolledBack, .. }));
    assert!(matches!(commit(&mut engine, &["k"], 10, 20), Err(TxnError::TxnLockNotFound { .. })));
    write(&mut engine, "k", "2", 30, 40);
    let refused = engine.batch_rollback(&[Bytes::from("k")], StartTs::new(30)).expect_err("committed");
    assert!(matches!(refused, TxnError::Committed { commit_ts, .. } if commit_ts == CommitTs::new(40)));
}

#[test]
fn unprotected_rollbacks_collapse_and_protected_ones_stay() {
    let mut engine = Engine::default();
    engine.prewrite(&optimistic(5, vec![put("p", "1"), put("k", "1")])).expect("no conflict");
    let keys = [Bytes::from("p"), Bytes::from("k")];
    engine.batch_rollback(&keys, StartTs::new(5)).expect("not committed");
    engine.batch_rollback(&keys, StartTs::new(6)).expect("not committed");
    // On the secondary the older record gave way; on the primary it must stay.
    assert_eq!(engine.outcome(&to_key("k"), StartTs::new(5)), Outcome::Unknown);
    assert_eq!(engine.outcome(&to_key("p"), StartTs::new(5)), Outcome::RolledBack);
}

fn to_key(raw: &str) -> Vec<u8> {
    tidegate_codec::key::to_region_key(raw.as_bytes())
}

#[test]
fn a_rollback_at_a_commits_position_leaves_both_outcomes_readable() {
    // An async commit's timestamp may equal another transaction's start: the record stands for both.
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    engine.cleanup(&Bytes::from("k"), StartTs::new(20), Ts::ZERO).expect("never written");
    assert_eq!(engine.outcome(&to_key("k"), StartTs::new(10)), Outcome::Committed(CommitTs::new(20)));
    assert_eq!(engine.outcome(&to_key("k"), StartTs::new(20)), Outcome::RolledBack);
    // The other order: the rollback falls on a lock that later commits at its position.
    engine.prewrite(&optimistic(30, vec![put("k", "2")])).expect("no conflict");
    engine.cleanup(&Bytes::from("k"), StartTs::new(40), Ts::ZERO).expect("never written");
    commit(&mut engine, &["k"], 30, 40).expect("locked");
    assert_eq!(engine.outcome(&to_key("k"), StartTs::new(30)), Outcome::Committed(CommitTs::new(40)));
    assert_eq!(engine.outcome(&to_key("k"), StartTs::new(40)), Outcome::RolledBack);
}

#[test]
fn async_commit_stays_above_every_reader_and_falls_back_above_its_maximum() {
    let mut engine = Engine::default();
    engine.raise_max_ts(Ts::new(100));
    let mut request = optimistic(10, vec![put("k", "1")]);
    request.async_commit = true;
    assert_eq!(engine.prewrite(&request).expect("no conflict").min_commit_ts, CommitTs::new(101));
    assert!(matches!(
        commit(&mut engine, &["k"], 10, 100),
        Err(TxnError::CommitTsExpired { min_commit_ts, .. }) if min_commit_ts == CommitTs::new(101)
    ));
    commit(&mut engine, &["k"], 10, 101).expect("at the minimum");

    let mut bounded = optimistic(110, vec![put("j", "1")]);
    (bounded.one_phase, bounded.max_commit_ts) = (true, CommitTs::new(110));
    assert_eq!(engine.prewrite(&bounded).expect("falls back"), Default::default());
    commit(&mut engine, &["j"], 110, 120).expect("an ordinary lock");
}

#[test]
fn one_phase_commits_at_once_and_shows_committed_rows_only() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    engine.take_observed();
    let mut request = optimistic(30, vec![put("k", "2")]);
    request.one_phase = true;
    let commit_ts = engine.prewrite(&request).expect("no conflict").one_phase_commit_ts;
    assert!(commit_ts > CommitTs::new(30));
    let rows = engine.take_observed();
    let [row] = &rows[..] else { panic!("one row, not {rows:?}") };
    assert_eq!((row.kind, row.commit_ts), (RowKind::Committed, commit_ts));
    assert_eq!((&row.value[..], &row.old_value[..]), (&b"2"[..], &b"1"[..]));
}

#[test]
fn an_expired_primary_is_rolled_back_and_a_live_one_is_pushed() {
    let mut engine = Engine::default();
    let start = Ts::from_parts(1_000, 0);
    let mut request = optimistic(start.get(), vec![put("p", "1")]);
    request.min_commit_ts = start.next().as_commit();
    engine.prewrite(&request).expect("no conflict");
    let caller = Ts::from_parts(2_000, 0);
    let mut status = check(start.get(), "p");
    // 3 s to live: at exactly start + ttl it is still alive.
    (status.caller_start_ts, status.current_ts) = (caller, Ts::from_parts(4_000, 0));
    let Ok(TxnStatus::Alive(lock, action)) = engine.check_status(&status) else { panic!("alive") };
    assert_eq!(
        (lock.min_commit_ts, action),
        (Ts::from_parts(4_000, 0).as_commit(), StatusAction::MinCommitTsPushed)
    );
    assert!(engine.take_observed().iter().filter(|row| row.kind == RowKind::Prewrite).count() == 1);

    status.current_ts = Ts::from_parts(4_001, 0);
    assert!(matches!(
        engine.check_status(&status),
        Ok(TxnStatus::RolledBack(StatusAction::TtlExpireRollback))
    ));
    let rows = engine.take_observed();
    assert_eq!(rows.iter().map(|row| row.kind).collect::<Vec<_>>(), [RowKind::Rollback]);
}

#[test]
fn a_missing_primary_is_only_rolled_back_on_request() {
    let mut engine = Engine::default();
    let mut status = check(10, "p");
    assert!(matches!(engine.check_status(&status), Err(TxnError::TxnNotFound { .. })));
    status.rollback_if_not_exist = true;
    assert!(matches!(
        engine.check_status(&status),
        Ok(TxnStatus::RolledBack(StatusAction::LockNotExistRollback))
    ));
    let late = only(engine.prewrite(&optimistic(10, vec![put("p", "1")])).expect_err("rolled back"));
    assert!(matches!(late, TxnError::Conflict { reason: ConflictReason::SelfRolledBack, .. }));
}

#[test]
fn secondaries_of_an_async_commit_are_all_locked_or_decided() {
    let mut engine = Engine::default();
    let mut request = optimistic(10, vec![put("p", "1"), put("s", "1")]);
    (request.async_commit, request.secondaries) = (true, vec![Bytes::from("s")]);
    engine.prewrite(&request).expect("no conflict");
    let start_ts = StartTs::new(10);
    let locked = engine.check_secondaries(&[Bytes::from("s")], start_ts);
    assert!(matches!(locked, SecondaryStatus::Locked(locks) if locks.len() == 1 && locks[0].async_commit));
    let missing = engine.check_secondaries(&[Bytes::from("other")], start_ts);
    assert!(matches!(missing, SecondaryStatus::RolledBack));
    // The answer was made true: the key can no longer be locked by that transaction.
    let late = optimistic(10, vec![put("other", "1")]);
    assert!(engine.prewrite(&late).is_err());
}

#[test]
fn resolving_a_span_leaves_other_transactions_alone() {
    let mut engine = Engine::default();
    engine.prewrite(&optimistic(10, vec![put("a", "1"), put("b", "1")])).expect("no conflict");
    engine.prewrite(&optimistic(11, vec![put("c", "2")])).expect("no conflict");
    let ten = StartTs::new(10);
    engine.resolve_span(&Span::all(), |start_ts| (start_ts == ten).then_some(Some(CommitTs::new(20))));
    assert_eq!(read(&mut engine, "a", 20).expect("committed"), Some(Bytes::from("1")));
    assert_eq!(read(&mut engine, "b", 20).expect("committed"), Some(Bytes::from("1")));
    assert!(matches!(read(&mut engine, "c", 20), Err(TxnError::Locked(_))));
    let scan = LockScan { max_ts: Ts::new(11), span: Span::all(), limit: 10 };
    assert_eq!(engine.scan_locks(&scan).len(), 1);
    let below = LockScan { max_ts: Ts::new(10), ..scan };
    assert_eq!(engine.scan_locks(&below).len(), 0);
}

#[test]
fn a_pessimistic_lock_turns_into_a_prewrite_and_is_invisible_to_feeds() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    engine.take_observed();
    let mut lock = PessimisticLock {
        keys: vec![(Bytes::from("k"), false)],
        primary: Bytes::from("k"),
        start_ts: StartTs::new(15),
        ttl_ms: 3_000,
        for_update_ts: Ts::new(19),
        min_commit_ts: CommitTs::ZERO,
        lock_only_if_exists: false,
        force: false,
    };
    let conflict = engine.pessimistic_lock(&lock).expect_err("a newer version");
    assert!(matches!(conflict, TxnError::Conflict { reason: ConflictReason::PessimisticRetry, .. }));
    lock.for_update_ts = Ts::new(25);
    let locked = engine.pessimistic_lock(&lock).expect("up to date");
    assert_eq!(locked[0].value.as_deref(), Some(&b"1"[..]));
    assert!(engine.take_observed().is_empty());
    assert_eq!(engine.oldest_lock(&Span::all()), None);
    assert_eq!(read(&mut engine, "k", 100).expect("readers pass"), Some(Bytes::from("1")));

    let mut request = optimistic(15, vec![put("k", "2")]);
    request.for_update_ts = Ts::new(25);
    request.mutations[0].pessimistic = PessimisticAction::DoPessimisticCheck;
    engine.prewrite(&request).expect("its own lock");
    let rows = engine.take_observed();
    assert_eq!((rows[0].kind, &rows[0].old_value[..]), (RowKind::Prewrite, &b"1"[..]));
    assert_eq!(engine.oldest_lock(&Span::all()), Some(StartTs::new(15)));
    commit(&mut engine, &["k"], 15, 30).expect("locked");
    assert_eq!(read(&mut engine, "k", 30).expect("committed"), Some(Bytes::from("2")));
}

#[test]
fn garbage_collection_keeps_what_snapshots_from_the_safe_point_on_read() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    write(&mut engine, "k", "2", 30, 40);
    write(&mut engine, "gone", "1", 10, 20);
    engine.prewrite(&optimistic(25, vec![mutation(MutationOp::Delete, "gone", "")])).expect("no conflict");
    commit(&mut engine, &["gone"], 25, 30).expect("locked");
    engine.collect_garbage(Ts::new(35));
    assert_eq!(engine.key_count(), 1);
    assert_eq!(read(&mut engine, "k", 35).expect("kept"), Some(Bytes::from("1")));
    assert_eq!(read(&mut engine, "k", 40).expect("kept"), Some(Bytes::from("2")));
}

fn scan_all(engine: &Engine, checkpoint: u64) -> Vec<ChangeRow> {
    let mut scan = FeedScan::new(Span::all(), Ts::new(checkpoint), engine.applied());
    let mut rows = Vec::new();
    while !engine.feed_scan_step(&mut scan, rows.len() + 1, 1, &mut rows) {}
    rows
}

#[test]
fn a_scan_shows_locks_and_newer_versions_newest_first() {
    let mut engine = Engine::default();
    write(&mut engine, "k", "1", 10, 20);
    write(&mut engine, "k", "2", 30, 40);
    write(&mut engine, "k", "3", 50, 60);
    engine.prewrite(&optimistic(5, vec![put("l", "9")])).expect("no conflict");
    let rows: Vec<_> = scan_all(&engine, 20)
        .into_iter()
        .map(|row| (row.kind, row.commit_ts.get(), row.value, row.old_value))
        .collect();
    let bytes = Bytes::from_static;
    assert_eq!(
        rows,
        [
            (RowKind::Committed, 60, bytes(b"3"), bytes(b"2")),
            (RowKind::Committed, 40, bytes(b"2"), bytes(b"1")),
            (RowKind::Prewrite, 0, bytes(b"9"), bytes(b"")),
        ]
    );
}

#[test]
fn a_scan_does_not_see_what_was_applied_after_its_snapshot() {
    let mut engine = Engine::default();
    write(&mut engine, "a", "1", 10, 20);
    engine.prewrite(&optimistic(25, vec![put("b", "1")])).expect("no conflict");
    let mut scan = FeedScan::new(Span::all(), Ts::ZERO, engine.applied());
    // After the snapshot: b is committed, a is written again, c is new.
    commit(&mut engine, &["b"], 25, 30).expect("locked");
    write(&mut engine, "a", "2", 40, 50);
    write(&mut engine, "c", "1", 40, 51);
    let mut rows = Vec::new();
    assert!(engine.feed_scan_step(&mut scan, usize::MAX, usize::MAX, &mut rows));
    let seen: Vec<_> = rows.iter().map(|row| (row.kind, &row.key[..], row.start_ts.get())).collect();
    // b was a lock at the snapshot; its commit comes by the live feed.
    assert_eq!(seen, [(RowKind::Committed, &b"a"[..], 10), (RowKind::Prewrite, &b"b"[..], 25)]);
}

/// One step of a random schedule over few keys and transactions.
#[derive(Clone, Debug)]
enum Step {
    Prewrite { txn: u64, keys: Vec<usize>, one_phase: bool },
    Commit { txn: u64 },
    Rollback { txn: u64 },
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let txn = 0..12_u64;
    let keys = proptest::sample::subsequence((0..NAMES.len()).collect::<Vec<_>>(), 1..=3);
    let step = prop_oneof![
        4 => (txn.clone(), keys, any::<bool>())
            .prop_map(|(txn, keys, one_phase)| Step::Prewrite { txn, keys, one_phase }),
        4 => txn.clone().prop_map(|txn| Step::Commit { txn }),
        2 => txn.prop_map(|txn| Step::Rollback { txn }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a transaction of the schedule has done so far.
#[derive(Clone, Debug, Default)]
struct Txn {
    start_ts: u64,
    keys: Vec<usize>,
    locked: bool,
}

proptest! {
    /// A transaction is visible on all of its keys or on none, whatever order requests arrive in, and what
    /// feeds were shown (live rows and a scan) is what is committed.
    #[test]
    fn transactions_are_atomic_and_feeds_complete_under_any_schedule(steps in steps()) {
        let mut engine = Engine::default();
        let mut clock = 100;
        let mut txns: std::collections::BTreeMap<u64, Txn> = Default::default();
        let mut shown = std::collections::BTreeSet::new();
        let mut committed: std::collections::BTreeMap<u64, (u64, Vec<usize>)> = Default::default();
        let mut rolled_back = std::collections::BTreeSet::new();
        for step in steps {
            clock += 10;
            match step {
                Step::Prewrite { txn, keys, one_phase } => {
                    let new = Txn { start_ts: clock, keys, locked: false };
                    let state = txns.entry(txn).or_insert(new);
                    let value = ["v0", "v1", "v2"][usize::try_from(txn % 3).expect("small")];
                    let mutations = state.keys.iter().map(|k| put(NAMES[*k], value)).collect();
                    let mut request = optimistic(state.start_ts, mutations);
                    request.one_phase = one_phase;
                    engine.raise_max_ts(Ts::new(clock));
                    if let Ok(done) = engine.prewrite(&request) {
                        prop_assert!(!rolled_back.contains(&txn));
                        let at_once = done.one_phase_commit_ts.get();
                        if at_once != 0 && !committed.contains_key(&txn) {
                            committed.insert(txn, (at_once, state.keys.clone()));
                            clock = clock.max(at_once);
                        }
                        state.locked = true;
                    }
                }
                Step::Commit { txn } => {
                    let Some(state) = txns.get(&txn).filter(|state| state.locked) else { continue };
                    let keys: Vec<_> = state.keys.iter().map(|k| NAMES[*k]).collect();
                    let done = commit(&mut engine, &keys, state.start_ts, clock).is_ok();
                    prop_assert_eq!(done, !rolled_back.contains(&txn));
                    if done {
                        committed.entry(txn).or_insert((clock, state.keys.clone()));
                    }
                }
                Step::Rollback { txn } => {
                    let Some(state) = txns.get(&txn) else { continue };
                    let keys: Vec<_> = state.keys.iter().map(|k| Bytes::from(NAMES[*k])).collect();
                    let start_ts = StartTs::new(state.start_ts);
                    let done = engine.batch_rollback(&keys, start_ts).is_ok();
                    prop_assert_eq!(done, !committed.contains_key(&txn));
                    if done {
                        rolled_back.insert(txn);
                    }
                }
            }
            for row in engine.take_observed() {
                if row.commit_ts > CommitTs::ZERO {
                    shown.insert((row.key.clone(), row.start_ts, row.commit_ts));
                }
            }
        }
        let expected: std::collections::BTreeSet<_> = committed
            .iter()
            .flat_map(|(txn, (commit_ts, keys))| {
                let start_ts = StartTs::new(txns[txn].start_ts);
                keys.iter().map(move |k| (Bytes::from(NAMES[*k]), start_ts, CommitTs::new(*commit_ts)))
            })
            .collect();
        prop_assert_eq!(&shown, &expected);
        let scanned: std::collections::BTreeSet<_> = scan_all(&engine, 0)
            .into_iter()
            .filter(|row| row.kind == RowKind::Committed)
            .map(|row| (row.key, row.start_ts, row.commit_ts))
            .collect();
        prop_assert_eq!(&scanned, &expected);
    }
}
