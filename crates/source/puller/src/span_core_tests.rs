//! Single rules of the span core. What they give together is tested over random interleavings in the crate's
//! integration tests.

use super::*;
use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Op, PeerId};
use tidegate_pd::Peer;

use crate::row::{Prewrite, TxnKey};

/// A core under test, with everything it said.
struct Run {
    core: SpanCore,
    now: MonoTime,
    said: Vec<Output>,
}

impl Run {
    /// A subscription to all keys after 10.
    fn new() -> Self {
        Self::with(config(Span::all(), 10))
    }

    fn with(config: SpanConfig) -> Self {
        let now = MonoTime::from_ms(1_000);
        let mut run = Self { core: SpanCore::new(config, now), now, said: Vec::new() };
        run.feed(Input::Tick(None));
        run
    }

    fn feed(&mut self, input: Input) {
        self.core.step(input, self.now, &mut self.said);
        self.core.flush(&mut self.said);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.feed(Input::Tick(None));
    }

    /// What it said since the last look.
    fn said(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.said)
    }

    fn registered(&mut self) -> Vec<Registration> {
        let register = |output| match output {
            Output::Register(registration) => Some(registration),
            _ => None,
        };
        self.said().into_iter().filter_map(register).collect()
    }

    /// Lets PD answer all that is asked.
    fn answer(&mut self, regions: &[Region]) {
        let said = self.said();
        for output in said {
            match output {
                Output::Find(find) => {
                    let overlaps = |region: &&Region| region.span.intersect(&find.span).is_some();
                    let found = regions.iter().filter(overlaps).cloned().collect();
                    self.feed(Input::Found(find, found));
                }
                other => self.said.push(other),
            }
        }
    }

    /// The registration of a core whose only region is the whole, after its scan.
    fn live() -> (Self, Registration) {
        let mut run = Self::new();
        run.answer(&[whole(1)]);
        let registration = run.registered().pop().expect("one region");
        run.feed(Input::Rows(registration.id, vec![Row::Initialized]));
        (run, registration)
    }

    fn resolve(&mut self, registration: &Registration, ts: u64) {
        self.feed(Input::Resolved(ResolvedTs::new(ts), vec![registration.id]));
    }

    fn resolved(&self) -> Vec<u64> {
        let resolved = |output: &Output| match output {
            Output::Resolved(ts) => Some(ts.get()),
            _ => None,
        };
        self.said.iter().filter_map(resolved).collect()
    }

    fn stopped(&self) -> Option<&PullerError> {
        self.said.iter().find_map(|output| match output {
            Output::Stop(error) => Some(error),
            _ => None,
        })
    }
}

fn config(span: Span, start_ts: u64) -> SpanConfig {
    let start_ts = StartTs::new(start_ts);
    SpanConfig { id: SubscriptionId(1), span, start_ts, held_bytes_max: 1_000, seed: 3 }
}

fn peer(store: u64) -> Peer {
    Peer { id: PeerId(100 + store), store_id: StoreId(store) }
}

fn region(id: u64, start: &'static str, end: &'static str, version: u64) -> Region {
    Region {
        id: RegionId(id),
        span: Span::new(start, end),
        epoch: RegionEpoch { conf_ver: 1, version },
        leader: Some(peer(1)),
        peers: vec![peer(1), peer(2)],
    }
}

fn whole(version: u64) -> Region {
    region(2, "", "", version)
}

fn txn(start: u64) -> TxnKey {
    TxnKey { start_ts: StartTs::new(start), key: Bytes::from_static(b"k") }
}

fn prewrite(start: u64, value: &'static str) -> Row {
    let value = Bytes::from_static(value.as_bytes());
    Row::Prewrite(txn(start), Prewrite { op: Op::Put, value, old_value: Bytes::new(), generation: 0 })
}

fn commit(start: u64, commit: u64) -> Row {
    Row::Commit(txn(start), CommitTs::new(commit))
}

#[test]
fn the_first_resolved_timestamp_says_that_the_scan_is_complete_and_may_equal_the_start() {
    let (run, _) = Run::live();
    assert_eq!(run.resolved(), [10]);
}

#[test]
fn nothing_is_resolved_while_a_part_of_the_span_is_unknown_or_not_scanned() {
    let mut run = Run::new();
    run.answer(&[region(2, "", "m", 1)]);
    let first = run.registered().pop().expect("one region");
    run.feed(Input::Rows(first.id, vec![Row::Initialized]));
    run.resolve(&first, 50);
    assert_eq!(run.resolved(), [] as [u64; 0], "no region is known for the other half");
    run.pass(Duration::from_secs(3));
    run.answer(&[region(2, "", "m", 1), region(3, "m", "", 1)]);
    let second = run.registered().pop().expect("the other half");
    run.resolve(&second, 60);
    assert_eq!(run.resolved(), [] as [u64; 0], "resolved before the end of its scan counts nothing");
    run.feed(Input::Rows(second.id, vec![Row::Initialized]));
    run.resolve(&second, 40);
    assert_eq!(run.resolved(), [10, 40]);
}

#[test]
fn resolved_timestamps_that_repeat_or_go_back_are_ignored() {
    let (mut run, registration) = Run::live();
    for ts in [30, 30, 20, 0, 31] {
        run.resolve(&registration, ts);
    }
    assert_eq!(run.resolved(), [10, 30, 31]);
}

#[test]
fn changes_come_before_the_timestamp_that_covers_them() {
    let (mut run, registration) = Run::live();
    run.said();
    run.core.step(
        Input::Rows(registration.id, vec![prewrite(20, "v"), commit(20, 25)]),
        run.now,
        &mut run.said,
    );
    run.core.step(Input::Resolved(ResolvedTs::new(26), vec![registration.id]), run.now, &mut run.said);
    run.core.flush(&mut run.said);
    let [Output::Changes(changes), Output::Resolved(ts)] = &run.said[..] else { panic!("{:?}", run.said) };
    assert_eq!((changes.len(), ts.get()), (1, 26));
}

#[test]
fn a_new_leader_is_asked_at_once_and_for_what_is_not_yet_resolved() {
    let (mut run, registration) = Run::live();
    run.resolve(&registration, 50);
    run.feed(Input::Failed(registration.id, Failure::NotLeader(Some(peer(2)))));
    run.pass(Duration::from_millis(50));
    let again = run.registered().pop().expect("registered again");
    assert_eq!((again.store_id, again.checkpoint), (StoreId(2), ResolvedTs::new(50)));
    assert!(again.id > registration.id);
}

#[test]
fn two_stores_that_name_each_other_are_not_asked_for_ever() {
    // Each registration is refused with the other store as a hint. PD must be asked before long.
    let mut run = Run::new();
    run.answer(&[whole(1)]);
    let mut registration = run.registered().pop().expect("one region");
    for _ in 0..=HINTS_MAX {
        let other = peer(3 - registration.store_id.get());
        run.feed(Input::Failed(registration.id, Failure::NotLeader(Some(other))));
        run.pass(Duration::from_secs(2));
        match run.said().pop() {
            Some(Output::Find(_)) => return,
            Some(Output::Register(again)) => registration = again,
            other => panic!("{other:?}"),
        }
    }
    panic!("hints are followed for ever");
}

#[test]
fn a_store_that_is_not_the_leader_is_asked_fewer_than_a_hundred_times_in_a_minute() {
    // A recording shows a public client sending 8,881 requests in seconds in this situation.
    let mut run = Run::new();
    let mut requests = 0;
    for _ in 0..60_000 / 5 {
        run.answer(&[whole(1)]);
        for registration in run.registered() {
            requests += 1;
            run.feed(Input::Failed(registration.id, Failure::NotLeader(None)));
        }
        run.pass(Duration::from_millis(5));
    }
    assert!((10..100).contains(&requests), "{requests} requests");
}

#[test]
fn a_region_that_fails_soon_after_each_scan_is_scanned_less_and_less_often() {
    let (mut run, mut registration) = Run::live();
    let mut scans = 0;
    for _ in 0..60_000 / 5 {
        run.said();
        run.feed(Input::Failed(registration.id, Failure::Congested));
        run.pass(Duration::from_millis(5));
        if let Some(again) = run.registered().pop() {
            scans += 1;
            run.feed(Input::Rows(again.id, vec![Row::Initialized]));
            registration = again;
        }
    }
    assert!((10..100).contains(&scans), "{scans} scans in a minute");
    // After a while of peace a failure is a first one again.
    run.pass(GOOD_REGISTRATION);
    run.feed(Input::Failed(registration.id, Failure::Congested));
    run.pass(Duration::from_millis(50));
    assert_eq!(run.registered().len(), 1);
}

#[test]
fn a_busy_store_gets_the_pause_it_asked_for() {
    let (mut run, registration) = Run::live();
    run.feed(Input::Failed(registration.id, Failure::Busy(Duration::from_secs(7))));
    run.pass(Duration::from_millis(6_999));
    assert_eq!(run.registered(), []);
    run.pass(Duration::from_millis(1));
    assert_eq!(run.registered().len(), 1);
}

#[test]
fn the_regions_that_a_split_names_are_registered_without_asking_pd() {
    let (mut run, registration) = Run::live();
    run.resolve(&registration, 50);
    run.said();
    let parts = vec![region(9, "", "m", 2), region(2, "m", "", 2)];
    run.feed(Input::Failed(registration.id, Failure::EpochNotMatch(parts)));
    let registered = run.registered();
    let spans: Vec<&Span> = registered.iter().map(|registration| &registration.span).collect();
    assert_eq!(spans, [&Span::new("", "m"), &Span::new("m", "")]);
    assert!(registered.iter().all(|registration| registration.checkpoint == ResolvedTs::new(50)));
}

#[test]
fn regions_of_an_epoch_error_that_are_not_newer_are_not_believed() {
    let (mut run, registration) = Run::live();
    run.said();
    run.feed(Input::Failed(registration.id, Failure::EpochNotMatch(vec![whole(1)])));
    assert_eq!(run.registered(), []);
    run.pass(Duration::from_millis(50));
    assert!(matches!(run.said()[..], [Output::Find(_)]), "PD is asked instead");
}

#[test]
fn tiflow_10157_a_merge_that_pd_shows_first_waits_for_the_old_registration_and_then_goes_on() {
    let mut run = Run::new();
    run.answer(&[region(2, "", "m", 1), region(3, "m", "", 1)]);
    let [left, right] = &run.registered()[..] else { panic!("two regions") };
    for registration in [left, right] {
        run.feed(Input::Rows(registration.id, vec![Row::Initialized]));
        run.resolve(registration, 40);
    }
    // Only the right one hears of the merge; PD shows the merged region already.
    run.feed(Input::Failed(right.id, Failure::EpochNotMatch(Vec::new())));
    let merged = region(2, "", "", 3);
    for _ in 0..10 {
        run.pass(Duration::from_millis(500));
        run.answer(std::slice::from_ref(&merged));
    }
    assert_eq!(run.registered(), [], "one region cannot be registered twice");
    run.feed(Input::Failed(left.id, Failure::EpochNotMatch(Vec::new())));
    run.pass(Duration::from_secs(2));
    run.answer(&[merged]);
    let [whole] = &run.registered()[..] else { panic!("the merged region") };
    assert_eq!((whole.span.clone(), whole.checkpoint), (Span::all(), ResolvedTs::new(40)));
}

#[test]
fn tiflow_11335_a_registration_that_the_store_never_ends_does_not_hold_a_merge_up_for_ever() {
    let mut run = Run::new();
    run.answer(&[region(2, "", "m", 1), region(3, "m", "", 1)]);
    let [left, right] = &run.registered()[..] else { panic!("two regions") };
    run.feed(Input::Failed(right.id, Failure::RegionNotFound));
    let merged = region(2, "", "", 3);
    let begin = run.now;
    loop {
        run.pass(Duration::from_millis(500));
        run.answer(std::slice::from_ref(&merged));
        let said = run.said();
        let withdrawn =
            said.iter().any(|output| matches!(output, Output::Withdraw(gone) if gone.id == left.id));
        let again = said.iter().find_map(|output| match output {
            Output::Register(registration) => Some(registration.clone()),
            _ => None,
        });
        run.said.extend(said.into_iter().filter(|output| matches!(output, Output::Find(_))));
        assert!(run.now.since(begin) < Duration::from_secs(30), "progress within 30 s");
        assert!(!withdrawn || run.now.since(begin) >= SUPERSEDED_AFTER);
        if let Some(again) = again {
            assert_eq!(again.span, Span::all());
            assert_ne!(
                again.request_id, left.request_id,
                "late events of the withdrawn one carry the old id"
            );
            return;
        }
    }
}

#[test]
fn tikv_14099_a_deposed_leader_is_not_believed_any_more() {
    let (mut run, old) = Run::live();
    run.resolve(&old, 30);
    run.feed(Input::Failed(old.id, Failure::NotLeader(Some(peer(2)))));
    run.pass(Duration::from_millis(50));
    let new = run.registered().pop().expect("registered at the new leader");
    run.resolve(&old, 90);
    run.feed(Input::Rows(old.id, vec![prewrite(20, "stale"), commit(20, 95)]));
    assert!(run.said().is_empty(), "nothing of the old registration counts");
    run.feed(Input::Rows(new.id, vec![Row::Initialized]));
    run.resolve(&new, 40);
    assert_eq!(run.resolved(), [40]);
}

#[test]
fn flink_cdc_1282_data_goes_on_with_the_resolved_timestamp_after_a_leader_transfer() {
    let (mut run, old) = Run::live();
    run.resolve(&old, 30);
    // Rows that the old leader sent and that are not yet resolved come again from the new one.
    run.feed(Input::Rows(old.id, vec![prewrite(31, "v")]));
    run.feed(Input::Failed(old.id, Failure::NotLeader(Some(peer(2)))));
    run.pass(Duration::from_millis(50));
    let new = run.registered().pop().expect("registered at the new leader");
    run.resolve(&new, 99);
    assert_eq!(run.resolved(), [] as [u64; 0], "not before its scan");
    run.feed(Input::Rows(new.id, vec![commit(31, 35), prewrite(31, "v"), Row::Initialized]));
    run.resolve(&new, 36);
    let [Output::Scanned(..), Output::Changes(changes), Output::Resolved(ts)] = &run.said[..] else {
        panic!("{:?}", run.said)
    };
    assert_eq!((changes[0].commit_ts, ts.get()), (CommitTs::new(35), 36));
}

#[test]
fn tikv_16526_a_version_below_what_was_resolved_ends_the_subscription_loudly() {
    let (mut run, registration) = Run::live();
    run.feed(Input::Rows(registration.id, vec![prewrite(20, "v")]));
    run.resolve(&registration, 30);
    run.feed(Input::Rows(registration.id, vec![commit(20, 25)]));
    assert!(matches!(run.stopped(), Some(PullerError::Protocol { detail }) if detail.contains("25")));
    run.said();
    run.resolve(&registration, 99);
    assert!(run.said().is_empty(), "and nothing comes after it");
}

#[test]
fn a_commit_whose_prewrite_is_missing_makes_the_region_be_scanned_again() {
    let (mut run, registration) = Run::live();
    run.resolve(&registration, 15);
    run.said();
    run.feed(Input::Rows(registration.id, vec![commit(20, 25)]));
    assert!(matches!(&run.said()[..], [Output::Withdraw(gone)] if gone.id == registration.id));
    run.pass(Duration::from_millis(50));
    let again = run.registered().pop().expect("registered again");
    assert_eq!(again.checkpoint, ResolvedTs::new(15));
    assert_ne!(again.request_id, registration.request_id);
}

#[test]
fn a_duplicate_registration_is_withdrawn_and_made_again_under_another_id() {
    let mut run = Run::new();
    run.answer(&[whole(1)]);
    let registration = run.registered().pop().expect("one region");
    run.feed(Input::Failed(registration.id, Failure::Duplicate));
    assert!(
        matches!(&run.said()[..], [Output::Withdraw(gone)] if gone.request_id == registration.request_id)
    );
    run.pass(Duration::from_millis(50));
    assert_ne!(run.registered().pop().expect("again").request_id, registration.request_id);
}

#[test]
fn more_uncommitted_data_than_allowed_is_let_go_and_read_again_when_it_may_be_committed() {
    let (mut run, registration) = Run::live();
    let large: &'static str = Box::leak("x".repeat(1_001).into_boxed_str());
    run.said();
    run.feed(Input::Rows(registration.id, vec![prewrite(20, large)]));
    assert!(matches!(&run.said()[..], [Output::Withdraw(_)]));
    assert_eq!(run.core.status().held_bytes, 0);
    run.pass(HEAVY_PAUSE - Duration::from_millis(1));
    assert_eq!(run.registered(), []);
    run.pass(Duration::from_millis(1));
    assert_eq!(run.registered().len(), 1);
}

#[test]
fn errors_that_no_retry_can_heal_end_the_subscription() {
    let version = Failure::StoreVersion { version: "6.1.0".into(), required: "at least 7.5".into() };
    let mismatch = Failure::ClusterMismatch(tidegate_core::ClusterId(9));
    for failure in
        [Failure::Incompatible("9.9.9".into()), version, mismatch, Failure::Malformed("row".into())]
    {
        let mut run = Run::new();
        run.answer(&[whole(1)]);
        let registration = run.registered().pop().expect("one region");
        run.feed(Input::Failed(registration.id, failure.clone()));
        assert!(run.stopped().is_some(), "{failure:?}");
    }
}

#[test]
fn only_a_span_that_stands_still_and_lags_is_checked_for_dead_locks_and_not_too_often() {
    let start = Ts::from_parts(1_000_000, 0);
    let mut run = Run::with(config(Span::all(), start.get()));
    run.answer(&[whole(1)]);
    let registration = run.registered().pop().expect("one region");
    run.feed(Input::Rows(registration.id, vec![Row::Initialized]));
    run.said();
    let tick = |run: &mut Run, passed_ms: u64, pd_ms: u64| {
        run.now = run.now.after(Duration::from_millis(passed_ms));
        run.feed(Input::Tick(Some(Ts::from_parts(pd_ms, 0))));
        run.said().len()
    };
    assert_eq!(tick(&mut run, 3_999, 1_010_000), 0, "it moved less than four seconds ago");
    assert_eq!(tick(&mut run, 1_000, 1_003_999), 0, "it lags less than four seconds");
    run.feed(Input::Tick(Some(Ts::from_parts(1_010_000, 0))));
    assert!(matches!(run.said()[..], [Output::ResolveLocks(_, ts)] if ts == Ts::from_parts(1_004_000, 0)));
    assert_eq!(tick(&mut run, 9_999, 1_010_000), 0, "checked less than ten seconds ago");
    assert_eq!(tick(&mut run, 1, 1_010_000), 1);
    run.resolve(&registration, Ts::from_parts(1_009_000, 0).get());
    run.said();
    assert_eq!(tick(&mut run, 10_000, 1_012_000), 0, "it has caught up");
}

#[test]
fn only_the_part_of_a_region_inside_the_span_is_registered_and_believed() {
    let span = Span::new(to_region_key(b"b"), to_region_key(b"m"));
    let mut run = Run::with(config(span.clone(), 10));
    run.answer(&[whole(1)]);
    let registration = run.registered().pop().expect("one region");
    assert_eq!(registration.span, span);
    let outside = |key: &'static [u8]| {
        let key = Bytes::from_static(key);
        let prewrite = Prewrite { op: Op::Put, value: key.clone(), old_value: Bytes::new(), generation: 0 };
        Row::Prewrite(TxnKey { start_ts: StartTs::new(20), key }, prewrite)
    };
    // Servers before 7.0 send the whole region.
    run.feed(Input::Rows(registration.id, vec![outside(b"a"), outside(b"m"), prewrite(20, "v")]));
    assert_eq!(run.core.status().held_bytes, "k".len() + "v".len());
}

#[test]
fn many_holes_are_looked_up_in_few_calls() {
    let hole = |n: u8| Find { span: Span::new(vec![n * 2], vec![n * 2 + 1]), attempts: u32::from(n) };
    let merged = merge((0..100).rev().map(hole).collect(), 8);
    assert!(merged.len() <= 8);
    assert_eq!(merged[0].span.start, vec![0]);
    for n in 0..100 {
        assert!(merged.iter().any(|find| find.span.covers(&hole(n).span) && find.attempts >= u32::from(n)));
    }
}

#[test]
fn touching_ranges_become_one_and_others_stay_apart() {
    let find = |start: &'static str, end: &'static str| Find { span: Span::new(start, end), attempts: 1 };
    let merged = merge(vec![find("m", ""), find("a", "c"), find("c", "e"), find("p", "q")], 8);
    assert_eq!(merged, [find("a", "e"), find("m", "")]);
}

#[test]
fn a_subscription_close_to_the_present_goes_first_and_stays_important() {
    let mut run = Run::with(config(Span::all(), Ts::from_parts(1_000_000, 0).get()));
    run.feed(Input::Tick(Some(Ts::from_parts(1_000_000 + HIGH_PRIORITY_LAG_MS, 0))));
    run.answer(&[whole(1)]);
    let registration = run.registered().pop().expect("one region");
    assert_eq!(registration.priority, Priority::Low);
    run.feed(Input::Tick(Some(Ts::from_parts(1_000_000 + HIGH_PRIORITY_LAG_MS - 1, 0))));
    for (pd_ms, wanted) in [(1_500_000, Priority::High), (9_500_000, Priority::High)] {
        run.feed(Input::Tick(Some(Ts::from_parts(pd_ms, 0))));
        let id = *run.core.registered.keys().next().expect("registered");
        run.feed(Input::Failed(id, Failure::Congested));
        run.pass(Duration::from_secs(2));
        assert_eq!(run.registered().pop().expect("again").priority, wanted);
    }
}

#[test]
fn pd_answering_nothing_is_asked_again_with_growing_pauses() {
    let mut run = Run::new();
    let mut asked = 0;
    for _ in 0..10_000 / 10 {
        let said = run.said();
        asked += said.len();
        for output in said {
            let Output::Find(find) = output else { panic!("{output:?}") };
            run.feed(Input::Found(find, Vec::new()));
        }
        run.pass(Duration::from_millis(10));
    }
    // 50 + 100 + … + 1,600 ms and then 2 s each: about ten times in ten seconds, and never silent.
    assert!((8..20).contains(&asked), "{asked}");
}
