//! The whole pure puller over random interleavings: its output must be the committed history above the start,
//! and I1 and I3 must hold whenever a timestamp is resolved (the model checks both at every step).

use crate::model::{Disorder, World};

/// Runs seeds one by one; a failing one is named, so that it can be run alone.
fn run(seeds: std::ops::Range<u64>, steps: usize, disorder: Disorder) -> (usize, usize) {
    let (mut registrations, mut changes) = (0, 0);
    for seed in seeds {
        let result = std::panic::catch_unwind(|| {
            let world = World::new(seed, disorder).run(steps);
            (world.registrations, world.changes)
        });
        let Ok((made, received)) = result else { panic!("seed {seed} with {disorder:?} failed, see above") };
        registrations += made;
        changes += received;
    }
    (registrations, changes)
}

#[test]
fn ten_thousand_interleavings_of_everything_at_once_give_the_committed_history() {
    let (registrations, changes) = run(0..10_000, 150, Disorder::ALL);
    // Each world begins with three regions; disorder must have made many more registrations necessary.
    assert!(registrations > 60_000, "{registrations} registrations");
    assert!(changes > 50_000, "{changes} changes");
}

#[test]
#[ignore = "a long run by hand: set TIDEGATE_SEEDS to the number of interleavings"]
fn as_many_interleavings_as_asked_for_give_the_committed_history() {
    let count = std::env::var("TIDEGATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let (registrations, changes) = run(1_000_000..1_000_000 + count, 250, Disorder::ALL);
    println!("{count} interleavings, {registrations} registrations, {changes} changes");
}

#[test]
fn a_quiet_world_needs_one_registration_for_each_region() {
    let (registrations, _) = run(0..200, 100, Disorder::NONE);
    assert_eq!(registrations, 200 * 3);
}

/// The resolved-ts battery: public bugs of other change feeds, each in the kind of disorder that showed it.
/// The model checks at every resolved timestamp that nothing at or below it is missing (I1), that nothing at
/// or below it comes later (I3), and in the end that the world is caught up within 30 seconds of its own
/// time.
macro_rules! battery {
    ($($name:ident: $seeds:expr, $disorder:expr;)*) => {
        $(#[test]
        fn $name() {
            run($seeds, 150, $disorder);
        })*
    };
}

const QUIET: Disorder = Disorder::NONE;
const ERRORS: Disorder = Disorder { errors: true, ..Disorder::NONE };
const REGIONS: Disorder = Disorder { regions: true, ..Disorder::NONE };

battery! {
    // Rows of transactions that conflict or retry while their region is scanned, or scanned again.
    tikv_12717_and_tiflow_5468_no_row_is_lost_between_scan_and_live_stream: 20_000..21_000, ERRORS;
    // A subscription to part of a region must not be resolved past locks in that part.
    tikv_16526_a_part_of_a_region_is_resolved_as_its_own_locks_allow: 21_000..22_000,
        Disorder { part: true, ..REGIONS };
    // Merges and leader moves make stores report smaller resolved timestamps.
    tiflow_873_the_resolved_timestamp_does_not_go_back_over_merges_and_leader_moves: 22_000..23_000, REGIONS;
    // Two leaders of a region are alive.
    tikv_14099_a_deposed_leader_does_no_harm: 23_000..24_000, Disorder { pd_lag: true, ..REGIONS };
    // Streams are cut in the middle of scans again and again.
    tiflow_3265_no_row_is_lost_when_scans_are_cut: 24_000..25_000, ERRORS;
    // PD shows old regions after splits and merges.
    tiflow_10157_and_11335_progress_goes_on_after_splits_and_merges: 25_000..26_000,
        Disorder { pd_lag: true, ..REGIONS };
    // What was lost with a stream comes again, although later timestamps were resolved elsewhere.
    ticdc_2474_a_row_that_was_lost_with_its_stream_is_not_taken_for_stale: 26_000..27_000,
        Disorder { errors: true, ..REGIONS };
    // A table with more than one region.
    flink_cdc_1159_every_region_of_a_span_is_read: 27_000..28_000, QUIET;
    // Data must go on where resolved timestamps do.
    flink_cdc_1282_and_1755_data_goes_on_after_leader_moves: 28_000..29_000, REGIONS;
}
