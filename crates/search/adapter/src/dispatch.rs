//! DispatchScheduler: what of a partition's batches is sent when, and what an answer means.
//!
//! One [`Lane`] per partition. Batches go out in order, a few unanswered at a time, and are answered in
//! order. A batch that has to be sent again goes out exactly as before, together with everything after it.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_contract::{Breach, SfErrorCode};
use tidegate_core::{MonoTime, ResolvedTs};
use tidegate_proto::searchfabric::v1::{
    MutationAck, MutationFailure, MutationSuccess, mutation_ack::Outcome,
};

use crate::backoff::Backoff;
use crate::batch::SealedBatch;
use crate::options::DispatchLimits;

/// The outgoing side of one partition.
#[derive(Debug)]
pub struct Lane {
    /// Sealed and not acknowledged, oldest first; the first `sent` of them are out.
    batches: VecDeque<SealedBatch>,
    sent: usize,
    /// What is out on the current stream, in sending order: the numbers of first entries, and whether the
    /// answer still counts. An answer to an earlier attempt does not.
    unanswered: VecDeque<(u64, bool)>,
    window_max: usize,
    window: usize,
    backoff: Backoff,
    /// Not before this.
    paused_until: Option<MonoTime>,
    bytes: usize,
    retries: u64,
    last_error: Option<Breach>,
}

/// What an answer means.
#[derive(Debug, PartialEq)]
pub enum Answered {
    /// These batches are durable, oldest first.
    Acknowledged(Vec<SealedBatch>, MutationSuccess),
    /// The partition sends again after a pause.
    Retry,
    /// The answer belongs to an attempt that is over.
    Stale,
    /// The gateway refuses for good.
    Refused(Breach, MutationFailure),
}

impl Lane {
    /// An idle lane; `seed` spreads its retries.
    pub fn new(limits: &DispatchLimits, seed: u64) -> Self {
        Self {
            batches: VecDeque::new(),
            sent: 0,
            unanswered: VecDeque::new(),
            window_max: limits.partition_in_flight_max,
            window: limits.partition_in_flight_max,
            backoff: Backoff::new(limits.backoff_min, limits.backoff_max, seed),
            paused_until: None,
            bytes: 0,
            retries: 0,
            last_error: None,
        }
    }

    /// Adds a batch behind the others.
    pub fn enqueue(&mut self, batch: SealedBatch) {
        self.bytes += batch.bytes;
        self.batches.push_back(batch);
    }

    /// The next batch to send at `now`, if the window is open.
    pub fn poll(&mut self, now: MonoTime) -> Option<&SealedBatch> {
        if self.unanswered.len() >= self.window || self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        self.paused_until = None;
        let batch = self.batches.get(self.sent)?;
        self.sent += 1;
        self.unanswered.push_back((batch.first_seq, true));
        Some(batch)
    }

    /// When [`Lane::poll`] may have something although nothing else happens.
    pub fn due(&self) -> Option<MonoTime> {
        self.paused_until.filter(|_| self.sent < self.batches.len())
    }

    /// The stream broke: everything unacknowledged is sent again on the next one.
    pub fn stream_lost(&mut self) {
        self.unanswered.clear();
        self.sent = 0;
        self.retries += u64::from(!self.batches.is_empty());
    }

    /// Takes an answer.
    pub fn answer(&mut self, ack: MutationAck, now: MonoTime) -> Answered {
        let Some((seq, counts)) = self.unanswered.pop_front() else { return Answered::Stale };
        let pause = ack.pacing.as_ref().map_or(0, |pacing| pacing.delay_ms);
        if let Some(window) = ack.pacing.as_ref().and_then(|p| usize::try_from(p.in_flight_batches_max).ok())
        {
            self.window = if window == 0 { self.window_max } else { window.min(self.window_max) };
        }
        let pause = Duration::from_millis(u64::from(pause));
        match ack.outcome {
            // What is durable is durable, whichever attempt the answer belongs to.
            Some(Outcome::Success(success)) => self.acknowledged(seq, success, pause, now),
            _ if !counts => Answered::Stale,
            Some(Outcome::Failure(failure)) => self.failed(failure, pause, now),
            None => self.failed(MutationFailure::default(), pause, now),
        }
    }

    fn acknowledged(
        &mut self,
        seq: u64,
        success: MutationSuccess,
        pause: Duration,
        now: MonoTime,
    ) -> Answered {
        self.backoff.succeed();
        self.last_error = None;
        if !pause.is_zero() {
            self.paused_until = Some(now.after(pause));
        }
        // Answers are in order, so this acknowledges the first batch; after a reconnection perhaps also ones
        // before it, whose answers were lost.
        let covered = self.batches.iter().take_while(|batch| batch.first_seq <= seq).count();
        let done: Vec<SealedBatch> = self.batches.drain(..covered).collect();
        self.sent = self.sent.saturating_sub(covered);
        self.bytes -= done.iter().map(|batch| batch.bytes).sum::<usize>();
        if done.is_empty() { Answered::Stale } else { Answered::Acknowledged(done, success) }
    }

    fn failed(&mut self, failure: MutationFailure, pause: Duration, now: MonoTime) -> Answered {
        let breach: Breach = failure.error.clone().unwrap_or_default().into();
        if !self.retryable(&failure, &breach) {
            return Answered::Refused(breach, failure);
        }
        self.last_error = Some(breach);
        self.retries += 1;
        self.paused_until = Some(self.backoff.fail(now, pause));
        self.sent = 0;
        for (_, counts) in &mut self.unanswered {
            *counts = false;
        }
        Answered::Retry
    }

    /// Whether sending the same again can help: the gateway says "not now", or its storage must be reopened
    /// first, or it lost the thread exactly where the oldest unacknowledged batch continues.
    fn retryable(&self, failure: &MutationFailure, breach: &Breach) -> bool {
        match breach.code() {
            SfErrorCode::SfRateLimited | SfErrorCode::SfUnavailable | SfErrorCode::SfStoragePoisoned => true,
            SfErrorCode::SfSequenceGap => {
                let expected =
                    failure.restart_cursor.as_ref().map(|cursor| cursor.source_seq.saturating_add(1));
                self.batches.front().is_some_and(|batch| Some(batch.first_seq) == expected)
            }
            _ => false,
        }
    }

    /// Whether everything was acknowledged.
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes sealed and not acknowledged.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Batches sealed and not acknowledged.
    pub fn depth(&self) -> usize {
        self.batches.len()
    }

    /// Batches out and not answered.
    pub fn in_flight(&self) -> usize {
        self.unanswered.len()
    }

    /// How often something was sent again.
    pub const fn retries(&self) -> u64 {
        self.retries
    }

    /// Why the last attempt failed; `None` after a success.
    pub const fn last_error(&self) -> Option<&Breach> {
        self.last_error.as_ref()
    }

    /// The largest progress promised by anything in the lane.
    pub fn promised(&self) -> Option<ResolvedTs> {
        self.batches.iter().rev().find_map(|batch| batch.progress)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_proto::searchfabric::v1::{MutationBatch, PacingHint, SfError, StreamCursor};

    use super::*;

    fn batch(seq: u64) -> SealedBatch {
        SealedBatch {
            message: MutationBatch::default(),
            first_seq: seq,
            next_seq: seq + 1,
            rows: 1,
            bytes: 10,
            progress: None,
            barrier: None,
        }
    }

    fn lane(batches: u64) -> Lane {
        let limits = DispatchLimits { partition_in_flight_max: 2, ..DispatchLimits::default() };
        let mut lane = Lane::new(&limits, 7);
        (1..=batches).for_each(|seq| lane.enqueue(batch(seq)));
        lane
    }

    fn sent(lane: &mut Lane, at_ms: u64) -> Vec<u64> {
        std::iter::from_fn(|| lane.poll(MonoTime::from_ms(at_ms)).map(|b| b.first_seq)).collect()
    }

    fn success() -> MutationAck {
        MutationAck { outcome: Some(Outcome::Success(MutationSuccess::default())), ..MutationAck::default() }
    }

    fn failure(code: SfErrorCode, expected_seq: Option<u64>) -> MutationAck {
        let failure = MutationFailure {
            error: Some(SfError { code: code.into(), ..SfError::default() }),
            restart_cursor: expected_seq
                .map(|seq| StreamCursor { source_seq: seq - 1, ..StreamCursor::default() }),
            ..MutationFailure::default()
        };
        MutationAck { outcome: Some(Outcome::Failure(failure)), ..MutationAck::default() }
    }

    fn acked(lane: &mut Lane, ack: MutationAck, at_ms: u64) -> Vec<u64> {
        match lane.answer(ack, MonoTime::from_ms(at_ms)) {
            Answered::Acknowledged(batches, _) => batches.iter().map(|b| b.first_seq).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_window_of_unanswered_batches_is_out_in_order() {
        let mut lane = lane(4);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        assert_eq!(acked(&mut lane, success(), 0), [1]);
        assert_eq!(sent(&mut lane, 0), [3]);
        assert_eq!((lane.depth(), lane.bytes(), lane.in_flight()), (3, 30, 2));
    }

    #[test]
    fn not_now_sends_the_same_and_everything_after_it_again_after_a_pause() {
        let mut lane = lane(3);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        let busy = failure(SfErrorCode::SfRateLimited, Some(1));
        assert_eq!(lane.answer(busy, MonoTime::from_ms(0)), Answered::Retry);
        assert_eq!(sent(&mut lane, 0), [0; 0], "it waits");
        // The second batch of the first attempt finds a gap; its answer is about an attempt that is over.
        let gap = failure(SfErrorCode::SfSequenceGap, Some(1));
        assert_eq!(lane.answer(gap, MonoTime::from_ms(1)), Answered::Stale);
        assert_eq!(sent(&mut lane, 200), [1, 2]);
        assert_eq!((acked(&mut lane, success(), 200), lane.retries()), (vec![1], 1));
    }

    #[test]
    fn the_gateway_decides_how_long_the_pause_is_and_how_wide_the_window() {
        let mut lane = lane(3);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        let pacing = Some(PacingHint { delay_ms: 700, in_flight_batches_max: 1 });
        assert_eq!(acked(&mut lane, MutationAck { pacing, ..success() }, 0), [1]);
        assert_eq!(acked(&mut lane, MutationAck { pacing, ..success() }, 0), [2]);
        assert_eq!(sent(&mut lane, 699), [0; 0]);
        assert_eq!(sent(&mut lane, 700), [3]);
    }

    #[test]
    fn what_became_durable_although_a_retry_was_under_way_counts_once() {
        let mut lane = lane(2);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        lane.answer(failure(SfErrorCode::SfUnavailable, None), MonoTime::from_ms(0));
        // The old attempt of batch 2 cannot have succeeded without batch 1, so both are there.
        assert_eq!(acked(&mut lane, success(), 1), [1, 2]);
        assert!(lane.is_idle());
        assert_eq!(sent(&mut lane, 1000), [0; 0]);
    }

    #[test]
    fn a_broken_stream_sends_everything_again_at_once() {
        let mut lane = lane(2);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        lane.stream_lost();
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        assert_eq!(acked(&mut lane, success(), 0), [1]);
    }

    #[test]
    fn a_gap_that_the_lane_can_fill_is_filled_and_any_other_is_final() {
        let mut lane = lane(2);
        assert_eq!(sent(&mut lane, 0), [1, 2]);
        let fillable = failure(SfErrorCode::SfSequenceGap, Some(1));
        assert_eq!(lane.answer(fillable, MonoTime::from_ms(0)), Answered::Retry);
        lane.stream_lost();
        assert_eq!(sent(&mut lane, 5000), [1, 2]);
        let foreign = failure(SfErrorCode::SfSequenceGap, Some(40));
        assert!(matches!(lane.answer(foreign, MonoTime::from_ms(5000)), Answered::Refused(..)));
    }

    #[test]
    fn a_refusal_is_final() {
        let mut lane = lane(1);
        assert_eq!(sent(&mut lane, 0), [1]);
        let stale = failure(SfErrorCode::SfStaleEpoch, None);
        let answered = lane.answer(stale, MonoTime::from_ms(0));
        assert!(
            matches!(answered, Answered::Refused(breach, _) if breach.code() == SfErrorCode::SfStaleEpoch)
        );
    }

    #[test]
    fn an_answer_to_nothing_is_stale() {
        assert_eq!(lane(0).answer(success(), MonoTime::from_ms(0)), Answered::Stale);
    }
}
