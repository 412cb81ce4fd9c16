//! The position in the DDL history (`spec/mini-cdc.md` §7): fetched events wait here until the fence lets
//! them pass, and none is ever skipped.

use std::collections::VecDeque;

use thiserror::Error;
use tidegate_core::{CommitTs, ResolvedTs, Ts};

/// An event with a place in the DDL history.
pub trait Finished {
    /// Commit timestamp of the job's done row.
    fn finished_ts(&self) -> CommitTs;
}

/// The DDL cursor. Pure: the runtime feeds it what the schema store answered and asks what may be delivered.
#[derive(Debug)]
pub struct DdlCursor<E> {
    /// Everything at or below it was delivered; the next fetch starts after it.
    cursor: Ts,
    /// Fetched and not delivered yet, ascending. At most the poll limit.
    pending: VecDeque<E>,
    /// No event in `(cursor, known]` exists besides `pending`.
    known: Ts,
}

impl<E: Finished> DdlCursor<E> {
    /// A cursor that has seen everything up to `start`.
    pub fn new(start: Ts) -> Self {
        Self { cursor: start, pending: VecDeque::new(), known: start }
    }

    /// Where to fetch from, when a fetch makes sense: everything fetched is delivered, and the schema store
    /// has moved past what is known.
    pub fn fetch_from(&self, schema: ResolvedTs) -> Option<Ts> {
        (self.pending.is_empty() && schema.ts() > self.known).then_some(self.cursor)
    }

    /// Takes the answer of a fetch from [`DdlCursor::fetch_from`]: `events` and the store's own `next`.
    ///
    /// # Errors
    /// An answer that does not move forward: continuing would repeat or lose a DDL.
    pub fn fetched(&mut self, events: Vec<E>, next: Ts) -> Result<(), CursorError> {
        let mut last = self.cursor;
        for (i, event) in events.iter().enumerate() {
            let finished = event.finished_ts().ts();
            if finished < last || (i == 0 && finished == last) {
                return Err(CursorError::Order { after: last, finished });
            }
            last = finished;
        }
        if next < last {
            return Err(CursorError::Next { last, next });
        }
        self.pending = events.into();
        self.known = self.known.max(next);
        Ok(())
    }

    /// The next event to deliver, if `fence` has reached it. The cursor moves to it: the caller delivers it
    /// or stops for good.
    pub fn pop(&mut self, fence: ResolvedTs) -> Option<E> {
        let finished = self.pending.front()?.finished_ts().ts();
        if finished > fence.ts() {
            return None;
        }
        self.cursor = finished;
        self.pending.pop_front()
    }

    /// Moves the cursor over a stretch without events, but never past `fence`: a fetch that crossed the
    /// fence must be fetched again from the last delivered event.
    pub fn settle(&mut self, fence: ResolvedTs) {
        if self.pending.is_empty() && self.known <= fence.ts() {
            self.cursor = self.cursor.max(self.known);
        }
    }

    /// The highest timestamp at or below which every DDL event has been delivered. Checkpoints stay at or
    /// below it (I4, I7).
    pub fn horizon(&self) -> ResolvedTs {
        let horizon = match self.pending.front() {
            Some(event) => event.finished_ts().ts().prev(),
            None => self.known,
        };
        horizon.as_resolved()
    }

    /// The cursor: everything at or below it was delivered.
    pub const fn position(&self) -> Ts {
        self.cursor
    }

    /// The events that wait, in order; so that tables they add can be opened ahead.
    pub fn waiting(&self) -> impl Iterator<Item = &E> {
        self.pending.iter()
    }
}

/// The schema store's answer contradicts its contract.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CursorError {
    /// Events that are not in order, or not after the cursor.
    #[error("the schema store returned a ddl event finished at {finished} after {after}")]
    Order {
        /// The position before it.
        after: Ts,
        /// The event's own position.
        finished: Ts,
    },
    /// A continuation before the events it follows.
    #[error("the schema store would continue at {next}, before its own event at {last}")]
    Next {
        /// Last event of the answer, or the cursor.
        last: Ts,
        /// Where the answer says to continue.
        next: Ts,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Finished for u64 {
        fn finished_ts(&self) -> CommitTs {
            CommitTs::new(*self)
        }
    }

    fn resolved(ts: u64) -> ResolvedTs {
        ResolvedTs::new(ts)
    }

    #[test]
    fn a_batch_that_crosses_the_fence_is_delivered_up_to_it_and_the_cursor_does_not_skip() {
        let mut cursor = DdlCursor::new(Ts::new(10));
        cursor.fetched(vec![20_u64, 30, 40], Ts::new(50)).expect("in order");
        assert_eq!(cursor.pop(resolved(30)), Some(20));
        assert_eq!(cursor.pop(resolved(30)), Some(30));
        assert_eq!(cursor.pop(resolved(30)), None);
        cursor.settle(resolved(30));
        assert_eq!(cursor.position(), Ts::new(30));
        assert_eq!(cursor.fetch_from(resolved(99)), None, "40 is still waiting");
    }

    #[test]
    fn the_cursor_jumps_to_next_only_when_the_fence_has_reached_it() {
        let mut cursor = DdlCursor::<u64>::new(Ts::new(10));
        cursor.fetched(vec![20], Ts::new(50)).expect("in order");
        assert_eq!(cursor.pop(resolved(49)), Some(20));
        cursor.settle(resolved(49));
        assert_eq!(cursor.position(), Ts::new(20));
        cursor.settle(resolved(50));
        assert_eq!(cursor.position(), Ts::new(50));
    }

    #[test]
    fn the_horizon_stays_below_the_next_event_that_was_not_delivered() {
        let mut cursor = DdlCursor::new(Ts::new(10));
        cursor.fetched(vec![20_u64], Ts::new(50)).expect("in order");
        assert_eq!(cursor.horizon(), resolved(19));
        cursor.pop(resolved(20)).expect("the fence has reached it");
        assert_eq!(cursor.horizon(), resolved(50));
    }

    #[test]
    fn an_answer_that_goes_back_is_an_error() {
        let mut cursor = DdlCursor::new(Ts::new(10));
        let order =
            |after, finished| CursorError::Order { after: Ts::new(after), finished: Ts::new(finished) };
        assert_eq!(cursor.fetched(vec![10_u64], Ts::new(50)), Err(order(10, 10)));
        assert_eq!(cursor.fetched(vec![30, 20], Ts::new(50)), Err(order(30, 20)));
        let next = CursorError::Next { last: Ts::new(30), next: Ts::new(29) };
        assert_eq!(cursor.fetched(vec![30], Ts::new(29)), Err(next));
    }

    /// A store with all events of `history`, resolved at `resolved`, that answers as
    /// `reference/tidb-schema-and-ddl.md` §8.4 says.
    fn answer(history: &[u64], start: Ts, resolved: u64, limit: usize) -> (Vec<u64>, Ts) {
        let after = history.iter().copied().filter(|&e| e > start.get() && e <= resolved);
        let events: Vec<u64> = after.take(limit).collect();
        let next = if events.len() == limit { events.last().copied().unwrap_or(0) } else { resolved };
        (events, Ts::new(next))
    }

    proptest! {
        #[test]
        fn every_event_is_delivered_once_and_in_order_and_never_before_the_fence(
            gaps in prop::collection::vec(1_u64..20, 0..60),
            limit in 1_usize..8,
            steps in prop::collection::vec((0_u64..30, 0_u64..30), 1..120),
        ) {
            let history: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
            let mut cursor = DdlCursor::new(Ts::ZERO);
            let (mut schema, mut fence, mut delivered) = (0, 0, Vec::new());
            for (more_schema, more_fence) in steps {
                (schema, fence) = (schema + more_schema, fence + more_fence);
                loop {
                    if let Some(from) = cursor.fetch_from(resolved(schema)) {
                        let (events, next) = answer(&history, from, schema, limit);
                        cursor.fetched(events, next).expect("the answer is in order");
                    }
                    let before = delivered.len();
                    while let Some(event) = cursor.pop(resolved(fence)) {
                        prop_assert!(event <= fence);
                        delivered.push(event);
                    }
                    cursor.settle(resolved(fence));
                    if delivered.len() == before { break; }
                }
                let horizon = cursor.horizon().get();
                let below: Vec<u64> = history.iter().copied().filter(|&e| e <= horizon).collect();
                prop_assert!(delivered.starts_with(&below), "an event at or below {horizon} is missing");
                let expect: Vec<u64> = history.iter().copied().filter(|&e| e <= fence.min(schema)).collect();
                prop_assert_eq!(&delivered, &expect);
            }
        }
    }
}
