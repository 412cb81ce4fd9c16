//! The catalogue of invariants (`ARCHITECTURE.md`) and the macro that checks them.
//!
//! The same predicate runs in tests, in simulation and in production. In tests and simulation a breach
//! panics. In production it is counted and logged as an error, and the caller that could diverge silently
//! stops: [`check_invariant!`] evaluates to whether the condition held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An invariant of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Invariant {
    /// No committed change at or below a checkpoint is missing downstream.
    I1,
    /// Changes of one key are delivered in commit order.
    I2,
    /// A span's resolved timestamp never goes back, and no change at or below it comes later.
    I3,
    /// A checkpoint never goes back and never passes the resolved timestamp.
    I4,
    /// One effective epoch per partition: a stale writer's batch is refused at the target.
    I5,
    /// A row is decoded with the schema in force at its commit timestamp − 1.
    I6,
    /// Each DDL takes effect once, after all rows at or below its timestamp and before all later ones.
    I7,
    /// The GC barrier held in PD never exceeds the oldest checkpoint still needed.
    I8,
    /// Memory and disk stay inside their configured bounds.
    I9,
    /// What was acknowledged survives a crash.
    I10,
    /// No secret and no row value appears in a log, metric label or file name.
    I11,
    /// `safe_ts` of a collection is never above the applied timestamp of any partition and modality.
    I12,
    /// A replayed batch gets the receipt of the first; the same key with another fingerprint is refused.
    I13,
    /// A deleted document stays deleted under any replay of older mutations.
    I14,
}

const COUNT: usize = 14;
static BREACHES: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
static PANIC: AtomicBool = AtomicBool::new(cfg!(debug_assertions));

/// Chooses whether a breach panics (tests, simulation) or is counted and logged (production). Builds with
/// debug assertions panic unless told otherwise.
pub fn panic_on_breach(panic: bool) {
    PANIC.store(panic, Ordering::Relaxed);
}

/// How often `invariant` was breached in this process.
pub fn breaches(invariant: Invariant) -> u64 {
    BREACHES.get(invariant as usize).map_or(0, |n| n.load(Ordering::Relaxed))
}

/// Records a breach. Called by [`check_invariant!`]; `detail` must hold positions and ids, never row values.
#[expect(clippy::panic, reason = "a breach in a test must end the test")]
pub fn report(invariant: Invariant, detail: std::fmt::Arguments<'_>) {
    if let Some(n) = BREACHES.get(invariant as usize) {
        n.fetch_add(1, Ordering::Relaxed);
    }
    tracing::error!(?invariant, %detail, "invariant broken");
    if PANIC.load(Ordering::Relaxed) {
        panic!("invariant {invariant:?} broken: {detail}");
    }
}

/// Checks an invariant of the catalogue: `check_invariant!(I3, resolved >= last, "span {id}")`. Evaluates to
/// whether it held, so that production code can stop where going on would diverge silently.
#[macro_export]
macro_rules! check_invariant {
    ($id:ident, $cond:expr, $($detail:tt)+) => {{
        let held: bool = $cond;
        if !held {
            $crate::report($crate::Invariant::$id, ::std::format_args!($($detail)+));
        }
        held
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_is_counted_and_reported_to_the_caller() {
        let before = breaches(Invariant::I9);
        panic_on_breach(false);
        assert!(!check_invariant!(I9, 1 > 2, "queue of {} bytes", 7));
        panic_on_breach(true);
        assert!(check_invariant!(I9, 2 > 1, "never shown"));
        assert_eq!(breaches(Invariant::I9), before + 1);
    }
}
