//! GC safe points and barriers as PD keeps them (`reference/pd-protocol.md` §8): one table for both
//! generations of callers. Pure.

use std::collections::BTreeMap;

use tidegate_core::{MonoTime, Ts};

/// The RFC code that clients look for in the text of a refused barrier.
const BEHIND: &str = "PD:gc:ErrGCBarrierTSBehindTxnSafePoint";
/// Barriers of one state; real clusters hold a few dozen.
const BARRIERS_MAX: usize = 10_000;
/// The legacy service that owns the safe point itself.
pub(crate) const GC_WORKER: &str = "gc_worker";
/// The legacy service whose barrier holds in all keyspaces.
pub(crate) const NATIVE_BR: &str = "native_br";

/// A named hold on the safe point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    pub(crate) ts: Ts,
    /// `None`: never.
    pub(crate) expires: Option<MonoTime>,
}

impl Barrier {
    fn is_live(&self, now: MonoTime) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Seconds left, rounded up; the largest number for "never".
    pub(crate) fn ttl_seconds(&self, now: MonoTime) -> i64 {
        self.expires.map_or(i64::MAX, |expires| {
            let left = expires.since(now);
            i64::try_from(left.as_secs())
                .unwrap_or(i64::MAX)
                .saturating_add(i64::from(left.subsec_nanos() > 0))
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GcError {
    #[error("ttl of a GC barrier must be positive, got {0}")]
    Ttl(i64),
    #[error("barrier id {0:?} is empty or reserved")]
    BarrierId(String),
    #[error("[{BEHIND}] a GC barrier at {barrier} is already behind the txn safe point {safe_point}")]
    BehindSafePoint { barrier: Ts, safe_point: Ts },
    #[error("decreasing the txn safe point from {current} to {target} is not allowed")]
    TxnDecreases { current: Ts, target: Ts },
    #[error("GC safe point {target} must lie between {current} and the txn safe point {txn}")]
    GcOutOfRange { current: Ts, txn: Ts, target: Ts },
    #[error("{BARRIERS_MAX} GC barriers exist already")]
    TooMany,
}

/// The outcome of advancing the txn safe point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advanced {
    pub(crate) old: Ts,
    pub(crate) new: Ts,
    /// What held it below its target.
    pub(crate) blocker: Option<String>,
}

/// The safe points of one keyspace, or of everything that shares the unified state.
#[derive(Clone, Debug, Default)]
pub(crate) struct GcState {
    pub(crate) txn_safe_point: Ts,
    pub(crate) gc_safe_point: Ts,
    barriers: BTreeMap<String, Barrier>,
}

/// What `service` gets back from the legacy call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegacyAnswer {
    pub(crate) service: String,
    pub(crate) ttl_seconds: i64,
    pub(crate) min_safe_point: Ts,
}

impl GcState {
    /// A state below which nothing can be read.
    pub(crate) fn new(safe_point: Ts) -> Self {
        Self { txn_safe_point: safe_point, gc_safe_point: safe_point, barriers: BTreeMap::new() }
    }

    /// Barriers that have not expired, by id.
    pub(crate) fn barriers(&self, now: MonoTime) -> impl Iterator<Item = (&str, &Barrier)> {
        self.barriers.iter().filter(move |(_, b)| b.is_live(now)).map(|(id, barrier)| (id.as_str(), barrier))
    }

    /// Sets or replaces a barrier.
    pub(crate) fn set_barrier(
        &mut self,
        id: &str,
        ts: Ts,
        ttl_seconds: i64,
        now: MonoTime,
    ) -> Result<Barrier, GcError> {
        if ttl_seconds <= 0 {
            return Err(GcError::Ttl(ttl_seconds));
        }
        if id.is_empty() || id == GC_WORKER {
            return Err(GcError::BarrierId(id.to_owned()));
        }
        if ts < self.txn_safe_point {
            return Err(GcError::BehindSafePoint { barrier: ts, safe_point: self.txn_safe_point });
        }
        self.barriers.retain(|_, barrier| barrier.is_live(now));
        if self.barriers.len() >= BARRIERS_MAX {
            return Err(GcError::TooMany);
        }
        let seconds = u64::try_from(ttl_seconds).unwrap_or_default();
        let expires = (ttl_seconds != i64::MAX).then(|| now.after(std::time::Duration::from_secs(seconds)));
        let barrier = Barrier { ts, expires };
        self.barriers.insert(id.to_owned(), barrier.clone());
        Ok(barrier)
    }

    pub(crate) fn delete_barrier(&mut self, id: &str) -> Option<Barrier> {
        self.barriers.remove(id)
    }

    /// Advances the txn safe point as far as barriers, including `others` of wider scope, allow.
    pub(crate) fn advance_txn(
        &mut self,
        target: Ts,
        others: &Self,
        now: MonoTime,
    ) -> Result<Advanced, GcError> {
        let old = self.txn_safe_point;
        if target < old {
            return Err(GcError::TxnDecreases { current: old, target });
        }
        let lowest = self.barriers(now).chain(others.barriers(now)).min_by_key(|(_, barrier)| barrier.ts);
        let (new, blocker) = match lowest {
            Some((id, barrier)) if barrier.ts < target => (barrier.ts.max(old), Some(id.to_owned())),
            _ => (target, None),
        };
        self.txn_safe_point = new;
        Ok(Advanced { old, new, blocker })
    }

    /// Advances the GC safe point; returns the one before.
    pub(crate) fn advance_gc(&mut self, target: Ts) -> Result<Ts, GcError> {
        let (current, txn) = (self.gc_safe_point, self.txn_safe_point);
        if target < current || target > txn {
            return Err(GcError::GcOutOfRange { current, txn, target });
        }
        self.gc_safe_point = target;
        Ok(current)
    }

    /// The old service safe point call, which today maps onto barriers. A refusal shows only in the answer.
    pub(crate) fn legacy(
        &mut self,
        service: &str,
        ttl_seconds: i64,
        ts: Ts,
        others: &Self,
        now: MonoTime,
    ) -> Result<LegacyAnswer, GcError> {
        let answer = |service: &str, min_safe_point| LegacyAnswer {
            service: service.to_owned(),
            ttl_seconds: i64::MAX,
            min_safe_point,
        };
        if service == GC_WORKER {
            if ttl_seconds != i64::MAX {
                return Err(GcError::Ttl(ttl_seconds));
            }
            let advanced = self.advance_txn(ts.max(self.txn_safe_point), others, now)?;
            return Ok(answer(advanced.blocker.as_deref().unwrap_or(GC_WORKER), advanced.new));
        }
        if ttl_seconds <= 0 {
            self.delete_barrier(service);
        } else {
            match self.set_barrier(service, ts, ttl_seconds, now) {
                Ok(_) | Err(GcError::BehindSafePoint { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(answer(GC_WORKER, self.txn_safe_point))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: MonoTime = MonoTime::from_ms(0);

    fn at_100() -> GcState {
        GcState::new(Ts::new(100))
    }

    #[test]
    fn a_barrier_holds_the_safe_point_until_it_expires() {
        let (mut state, others) = (at_100(), GcState::default());
        state.set_barrier("feed", Ts::new(150), 10, T0).expect("above the safe point");
        let blocked = state.advance_txn(Ts::new(200), &others, MonoTime::from_ms(9_999)).expect("not lower");
        assert_eq!(blocked, Advanced { old: Ts::new(100), new: Ts::new(150), blocker: Some("feed".into()) });
        let free = state.advance_txn(Ts::new(200), &others, MonoTime::from_ms(10_000)).expect("not lower");
        assert_eq!(free, Advanced { old: Ts::new(150), new: Ts::new(200), blocker: None });
    }

    #[test]
    fn barriers_are_refused_with_the_reason() {
        let mut state = at_100();
        assert_eq!(state.set_barrier("feed", Ts::new(150), 0, T0), Err(GcError::Ttl(0)));
        assert_eq!(state.set_barrier("", Ts::new(150), 1, T0), Err(GcError::BarrierId(String::new())));
        let behind = state.set_barrier("feed", Ts::new(99), 1, T0).expect_err("below the safe point");
        assert!(behind.to_string().contains("PD:gc:ErrGCBarrierTSBehindTxnSafePoint"));
    }

    #[test]
    fn a_legacy_hold_below_the_safe_point_is_an_answer_and_no_error() {
        let (mut state, others) = (at_100(), GcState::default());
        let refused = state.legacy("feed", 60, Ts::new(99), &others, T0).expect("an answer");
        assert_eq!((refused.service.as_str(), refused.min_safe_point), ("gc_worker", Ts::new(100)));
        assert_eq!(state.barriers(T0).count(), 0);
        state.legacy("feed", 60, Ts::new(120), &others, T0).expect("an answer");
        let worker = state.legacy(GC_WORKER, i64::MAX, Ts::new(200), &others, T0).expect("an answer");
        assert_eq!((worker.service.as_str(), worker.min_safe_point), ("feed", Ts::new(120)));
        state.legacy("feed", 0, Ts::MAX, &others, T0).expect("an answer");
        assert_eq!(state.barriers(T0).count(), 0);
    }

    #[test]
    fn a_barrier_of_all_keyspaces_holds_each() {
        let mut global = GcState::default();
        global.set_barrier("backup", Ts::new(120), i64::MAX, T0).expect("above zero");
        let advanced = at_100().advance_txn(Ts::new(200), &global, T0).expect("not lower");
        assert_eq!((advanced.new, advanced.blocker), (Ts::new(120), Some("backup".into())));
        assert_eq!(global.barriers(T0).next().map(|(_, b)| b.ttl_seconds(T0)), Some(i64::MAX));
    }

    #[test]
    fn the_gc_safe_point_follows_but_never_passes_the_txn_safe_point() {
        let mut state = at_100();
        assert!(state.advance_gc(Ts::new(101)).is_err());
        state.advance_txn(Ts::new(200), &GcState::default(), T0).expect("not lower");
        assert_eq!(state.advance_gc(Ts::new(150)), Ok(Ts::new(100)));
        assert!(state.advance_gc(Ts::new(140)).is_err());
    }
}
