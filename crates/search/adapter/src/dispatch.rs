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

    /// Whether sending the same again can help: the gateway says "not now", or it lost the thread exactly
    /// where the oldest unacknowledged batch continues.
    fn retryable(&self, failure: &MutationFailure, breach: &Breach) -> bool {
        match breach.code() {
            SfErrorCode::SfRateLimited | SfErrorCode::SfUnavailable => true,
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
