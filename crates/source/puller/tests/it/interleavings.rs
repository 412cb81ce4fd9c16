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
fn a_quiet_world_needs_one_registration_for_each_region() {
    let (registrations, _) = run(0..200, 100, Disorder::NONE);
    assert_eq!(registrations, 200 * 3);
}
