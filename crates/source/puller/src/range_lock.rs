//! Who is registered for which keys, and how far each key range is resolved
//! (`reference/cdc-protocol.md` §10).
//!
//! The span is always cut into pieces without gaps. A piece is either free or held by one region; both know
//! the timestamp up to which their keys are complete. Because that timestamp stays with the keys when regions
//! split, merge and move, the span's resolved timestamp cannot go back.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_core::span::end_before;
use tidegate_core::{RegionId, ResolvedTs, Span};

use crate::frontier::Frontier;

#[derive(Clone, Debug)]
struct Piece {
    end: Bytes,
    resolved: ResolvedTs,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    region_id: RegionId,
    version: u64,
}

/// The outcome of [`RangeLock::lock`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The range is held now; everything up to this timestamp is already complete in all of it.
    Held(ResolvedTs),
    /// A registration at least as new holds part of the range: what PD said is old. The parts that are free
    /// are to be looked up again; none, if the same registration exists already.
    Stale(Vec<Span>),
    /// Older registrations hold part of the range, and will fail: the region merged or moved. The parts that
    /// are free are to be looked up again later; these regions are in the way.
    Wait(Vec<Span>, Vec<RegionId>),
}

/// The pieces of one subscription's span.
#[derive(Clone, Debug)]
pub struct RangeLock {
    /// By start key; consecutive pieces touch.
    pieces: BTreeMap<Bytes, Piece>,
    /// Start key of the piece that a region holds.
    held: HashMap<RegionId, Bytes>,
    frontier: Frontier,
}

impl RangeLock {
    /// All of `span` free, and complete up to `resolved`.
    pub fn new(span: &Span, resolved: ResolvedTs) -> Self {
        let mut lock = Self { pieces: BTreeMap::new(), held: HashMap::new(), frontier: Frontier::default() };
        lock.insert(span.clone(), resolved, None);
        lock
    }

    /// The timestamp up to which all keys of the span are complete.
    pub fn resolved(&self) -> ResolvedTs {
        self.frontier.min().expect("a span is cut into at least one piece")
    }

    /// How many pieces are held, and how many are free.
    pub fn counts(&self) -> (usize, usize) {
        (self.held.len(), self.pieces.len() - self.held.len())
    }

    /// The free pieces, in key order.
    pub fn free(&self) -> impl Iterator<Item = Span> + '_ {
        self.pieces
            .iter()
            .filter(|(_, piece)| piece.held.is_none())
            .map(|(start, piece)| Span::new(start.clone(), piece.end.clone()))
    }

    /// What a region has resolved in the range it holds; `None` if it holds none.
    pub fn resolved_of(&self, region_id: RegionId) -> Option<ResolvedTs> {
        let piece = self.pieces.get(self.held.get(&region_id)?)?;
        Some(piece.resolved)
    }

    /// Tries to hold `range` (which must lie inside the span) for a region in the given version of its epoch.
    pub fn lock(&mut self, range: &Span, region_id: RegionId, version: u64) -> Lock {
        let overlapping = self.overlapping(range);
        let mut holders: Vec<Held> = overlapping.iter().filter_map(|(_, piece)| piece.held).collect();
        // A region whose range moved may hold a range elsewhere; one region can be registered only once.
        let elsewhere = self.held.get(&region_id).and_then(|start| self.pieces.get(start)?.held);
        holders.extend(elsewhere.filter(|held| !holders.contains(held)));
        if holders.is_empty() {
            return Lock::Held(self.take(range, &overlapping, Held { region_id, version }));
        }
        let free = overlapping.iter().filter(|(_, piece)| piece.held.is_none());
        let free: Vec<Span> = free.filter_map(|(start, piece)| cut(start, piece, range)).collect();
        if holders.iter().any(|held| held.version >= version) {
            return Lock::Stale(free);
        }
        Lock::Wait(free, holders.iter().map(|held| held.region_id).collect())
    }

    /// Lets go of what `region_id` holds. Returns the range and the timestamp up to which it is complete;
    /// `None` if the region holds nothing.
    pub fn unlock(&mut self, region_id: RegionId) -> Option<(Span, ResolvedTs)> {
        let start = self.held.remove(&region_id)?;
        let piece = self.pieces.get_mut(&start)?;
        piece.held = None;
        Some((Span::new(start, piece.end.clone()), piece.resolved))
    }

    /// Moves what `region_id` holds up to `resolved`. A timestamp that is not above the present one is
    /// ignored: a new registration may report an older lock (tiflow#873). Returns whether it moved.
    pub fn advance(&mut self, region_id: RegionId, resolved: ResolvedTs) -> bool {
        let piece = self.held.get(&region_id).and_then(|start| self.pieces.get_mut(start));
        let Some(piece) = piece.filter(|piece| piece.resolved < resolved) else { return false };
        self.frontier.advance(piece.resolved, resolved);
        piece.resolved = resolved;
        true
    }

    fn overlapping(&self, range: &Span) -> Vec<(Bytes, Piece)> {
        let first = self.pieces.range(..=range.start.clone()).next_back();
        let from = first.map_or_else(|| range.start.clone(), |(start, _)| start.clone());
        self.pieces
            .range(from..)
            .take_while(|(start, _)| range.end.is_empty() || **start < range.end)
            .filter(|(_, piece)| piece.end.is_empty() || piece.end > range.start)
            .map(|(start, piece)| (start.clone(), piece.clone()))
            .collect()
    }

    /// Replaces the free pieces that overlap `range` by one held piece, leaving what sticks out at both ends.
    fn take(&mut self, range: &Span, overlapping: &[(Bytes, Piece)], held: Held) -> ResolvedTs {
        let mut resolved = ResolvedTs::MAX;
        for (start, piece) in overlapping {
            self.pieces.remove(start);
            self.frontier.remove(piece.resolved);
            resolved = resolved.min(piece.resolved);
            if *start < range.start {
                self.insert(Span::new(start.clone(), range.start.clone()), piece.resolved, None);
            }
            if end_before(&range.end, &piece.end) {
                self.insert(Span::new(range.end.clone(), piece.end.clone()), piece.resolved, None);
            }
        }
        self.insert(range.clone(), resolved, Some(held));
        self.held.insert(held.region_id, range.start.clone());
        resolved
    }

    fn insert(&mut self, span: Span, resolved: ResolvedTs, held: Option<Held>) {
        self.frontier.insert(resolved);
        self.pieces.insert(span.start, Piece { end: span.end, resolved, held });
    }
}

fn cut(start: &Bytes, piece: &Piece, range: &Span) -> Option<Span> {
    Span::new(start.clone(), piece.end.clone()).intersect(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(start: &'static str, end: &'static str) -> Span {
        Span::new(start, end)
    }

    fn at(ts: u64) -> ResolvedTs {
        ResolvedTs::new(ts)
    }

    fn new(start: &'static str, end: &'static str) -> RangeLock {
        RangeLock::new(&span(start, end), at(10))
    }

    #[test]
    fn a_free_range_is_held_at_the_timestamp_it_is_complete_to() {
        let mut lock = new("a", "z");
        assert_eq!(lock.lock(&span("c", "f"), RegionId(1), 5), Lock::Held(at(10)));
        assert_eq!(lock.free().collect::<Vec<_>>(), [span("a", "c"), span("f", "z")]);
        assert!(lock.advance(RegionId(1), at(20)));
        assert_eq!((lock.resolved(), lock.unlock(RegionId(1))), (at(10), Some((span("c", "f"), at(20)))));
    }

    #[test]
    fn tiflow_873_a_smaller_resolved_timestamp_after_a_merge_is_ignored() {
        let mut lock = new("a", "");
        for (range, region, ts) in [(span("a", "m"), 1, 30), (span("m", ""), 2, 40)] {
            assert_eq!(lock.lock(&range, RegionId(region), 5), Lock::Held(at(10)));
            assert!(lock.advance(RegionId(region), at(ts)));
        }
        assert_eq!(lock.resolved(), at(30));
        lock.unlock(RegionId(1));
        lock.unlock(RegionId(2));
        // The merged region resolves both parts from the smaller of the two.
        assert_eq!(lock.lock(&span("a", ""), RegionId(2), 7), Lock::Held(at(30)));
        assert!(!lock.advance(RegionId(2), at(12)), "an old lock found by the new registration");
        assert_eq!(lock.resolved(), at(30));
    }

    #[test]
    fn both_halves_of_a_split_go_on_from_where_the_whole_was() {
        let mut lock = new("a", "");
        lock.lock(&span("a", ""), RegionId(1), 5);
        lock.advance(RegionId(1), at(50));
        lock.unlock(RegionId(1));
        assert_eq!(lock.lock(&span("a", "m"), RegionId(9), 6), Lock::Held(at(50)));
        assert_eq!(lock.lock(&span("m", ""), RegionId(1), 6), Lock::Held(at(50)));
    }

    #[test]
    fn what_pd_said_is_stale_if_a_registration_at_least_as_new_is_in_the_way() {
        let mut lock = new("a", "z");
        lock.lock(&span("c", "f"), RegionId(1), 5);
        assert_eq!(
            lock.lock(&span("a", "h"), RegionId(2), 5),
            Lock::Stale(vec![span("a", "c"), span("f", "h")]),
            "only what nobody holds is looked up again"
        );
        assert_eq!(
            lock.lock(&span("c", "f"), RegionId(1), 5),
            Lock::Stale(vec![]),
            "the very same registration"
        );
    }

    #[test]
    fn a_merged_region_waits_for_the_older_registration_of_its_neighbour() {
        let mut lock = new("a", "z");
        lock.lock(&span("c", "f"), RegionId(1), 5);
        let waits = lock.lock(&span("a", "z"), RegionId(2), 6);
        assert_eq!(waits, Lock::Wait(vec![span("a", "c"), span("f", "z")], vec![RegionId(1)]));
        lock.unlock(RegionId(1));
        assert_eq!(lock.lock(&span("a", "z"), RegionId(2), 6), Lock::Held(at(10)));
    }

    #[test]
    fn a_region_that_holds_a_range_elsewhere_cannot_hold_a_second_one() {
        let mut lock = new("a", "z");
        lock.lock(&span("a", "c"), RegionId(1), 5);
        assert_eq!(lock.lock(&span("m", "p"), RegionId(1), 5), Lock::Stale(vec![span("m", "p")]));
        assert_eq!(
            lock.lock(&span("m", "p"), RegionId(1), 6),
            Lock::Wait(vec![span("m", "p")], vec![RegionId(1)])
        );
    }

    #[test]
    fn an_unbounded_region_inside_an_unbounded_span_covers_it_to_the_end() {
        let mut lock = new("", "");
        assert_eq!(lock.lock(&span("", ""), RegionId(1), 1), Lock::Held(at(10)));
        assert_eq!(lock.counts(), (1, 0));
    }

    /// Pieces must always touch, cover the span, and be known to the index; resolved never goes back.
    fn check(lock: &RangeLock, whole: &Span) -> Result<(), TestCaseError> {
        let mut next = whole.start.clone();
        for (start, piece) in &lock.pieces {
            prop_assert_eq!(start, &next);
            next = piece.end.clone();
            if let Some(held) = piece.held {
                prop_assert_eq!(lock.held.get(&held.region_id), Some(start));
            }
        }
        prop_assert_eq!(next, whole.end.clone());
        let least = lock.pieces.values().map(|piece| piece.resolved).min();
        prop_assert_eq!(Some(lock.resolved()), least);
        Ok(())
    }

    fn key(n: u8) -> Bytes {
        if n == 0 || n == 20 { Bytes::new() } else { Bytes::from(vec![n]) }
    }

    proptest! {
        #[test]
        fn any_sequence_of_steps_keeps_the_span_whole_and_its_resolved_timestamp_moving_up(
            steps in prop::collection::vec(
                (0_u8..3, 0_u8..20, 1_u8..=20, 1_u64..6, 1_u64..8, 10_u64..99),
                1..200,
            )
        ) {
            let whole = Span::all();
            let mut lock = RangeLock::new(&whole, at(10));
            let mut last = lock.resolved();
            for (kind, a, b, region, version, ts) in steps {
                let region = RegionId(region);
                match kind {
                    0 if a < b => drop(lock.lock(&Span::new(key(a), key(b)), region, version)),
                    1 => drop(lock.unlock(region)),
                    _ => drop(lock.advance(region, at(ts))),
                }
                check(&lock, &whole)?;
                prop_assert!(lock.resolved() >= last);
                last = lock.resolved();
            }
        }
    }
}
