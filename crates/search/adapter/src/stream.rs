//! One source partition's way to the gateway: batch builder, lane and watermarks together.

use tidegate_core::{CommitTs, MonoTime, ResolvedTs, Ts};
use tidegate_invariants::check_invariant;
use tidegate_proto::searchfabric::v1::{MutationAck, MutationSuccess, RowMutation, StreamCursor};

use crate::batch::{BatchBuilder, SealedBatch, StreamName};
use crate::dispatch::{Answered, Lane};
use crate::lineage::Generation;
use crate::options::{BatchLimits, DispatchLimits};

/// What the gateway held of a partition when the adapter started, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Every row at or below it is durable there: replaying it would change nothing.
    pub resolved: ResolvedTs,
}

/// The stream of one partition.
#[derive(Debug)]
pub struct Stream {
    name: StreamName,
    builder: BatchBuilder,
    lane: Lane,
    window: usize,
    held: ResolvedTs,
    acked: ResolvedTs,
    promised: ResolvedTs,
    /// Progress that waits until the lane has room, so that a slow gateway gets few marks instead of many.
    pending: Option<ResolvedTs>,
    cursor: Option<StreamCursor>,
    success: Option<MutationSuccess>,
    counts: StreamCounts,
}

/// What happened in a stream since the adapter started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Rows acknowledged.
    pub rows_acked: u64,
    /// Batches acknowledged.
    pub batches_acked: u64,
    /// Rows not sent, because the gateway held them already.
    pub rows_replayed: u64,
    /// Progress not sent, because the gateway was further already.
    pub progress_discarded: u64,
}

/// What an answer brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Fences whose barrier is acknowledged.
    pub barriers: Vec<String>,
    /// Whether a checkpoint moved.
    pub moved: bool,
}

impl Stream {
    /// A stream whose first entry has the number `next_seq`. Progress counts as acknowledged up to `from`, or
    /// up to what the gateway holds.
    pub fn new(
        name: StreamName,
        generation: &Generation,
        from: ResolvedTs,
        held: Held,
        next_seq: u64,
        batch: BatchLimits,
        dispatch: &DispatchLimits,
    ) -> Self {
        let seed =
            name.partition.as_str().bytes().fold(0u64, |n, b| n.wrapping_mul(31).wrapping_add(b.into()));
        let acked = from.max(held.resolved);
        Self {
            builder: BatchBuilder::new(name.clone(), next_seq, batch, generation),
            name,
            lane: Lane::new(dispatch, seed),
            window: dispatch.partition_in_flight_max,
            held: held.resolved,
            acked,
            promised: acked,
            pending: None,
            cursor: None,
            success: None,
            counts: StreamCounts::default(),
        }
    }

    /// Whether a row is already durable at the gateway.
    pub fn holds(&mut self, commit_ts: CommitTs) -> bool {
        let held = commit_ts.ts() <= self.held.ts();
        self.counts.rows_replayed += u64::from(held);
        held
    }

    /// Adds a mutation.
    pub fn row(&mut self, row: RowMutation) {
        let sealed = self.builder.row(row);
        self.enqueue(sealed);
    }

    /// Adds progress. Older progress is discarded and counted; progress that is promised already is merged.
    pub fn progress(&mut self, resolved: ResolvedTs) {
        if resolved < self.acked {
            self.counts.progress_discarded += 1;
        }
        if resolved <= self.promised {
            return;
        }
        self.pending = Some(resolved);
        if self.lane.depth() < self.window {
            self.flush_progress();
        }
    }

    fn flush_progress(&mut self) {
        if let Some(resolved) = self.pending.take() {
            self.promised = resolved;
            let sealed = self.builder.progress(resolved);
            self.enqueue(sealed);
        }
    }

    /// Ends the partition's part of a generation.
    pub fn barrier(&mut self, ddl_ts: Ts, fence_id: &str) {
        self.flush_progress();
        let sealed = self.builder.barrier(ddl_ts, fence_id);
        self.enqueue(sealed);
    }

    /// Whether the gateway held everything at or below `ts` when the adapter started.
    pub fn held(&self, ts: Ts) -> bool {
        ts <= self.held.ts()
    }

    /// Number of the next entry.
    pub const fn next_seq(&self) -> u64 {
        self.builder.next_seq()
    }

    /// Goes on under another generation, after a barrier.
    pub fn switch(&mut self, generation: &Generation) {
        self.builder.switch(generation);
    }

    fn enqueue(&mut self, sealed: Option<SealedBatch>) {
        if let Some(sealed) = sealed {
            self.lane.enqueue(sealed);
        }
    }

    /// The next batch to send, if there is one.
    pub fn poll(&mut self, now: MonoTime) -> Option<&SealedBatch> {
        self.lane.poll(now)
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// The gateway refuses for good.
    pub fn answer(&mut self, ack: MutationAck, now: MonoTime) -> Result<Acked, tidegate_contract::Breach> {
        match self.lane.answer(ack, now) {
            Answered::Acknowledged(batches, success) => Ok(self.acknowledged(batches, success)),
            Answered::Retry | Answered::Stale => Ok(Acked::default()),
            Answered::Refused(breach, _) => Err(breach),
        }
    }

    fn acknowledged(&mut self, batches: Vec<SealedBatch>, success: MutationSuccess) -> Acked {
        let mut acked = Acked { moved: true, ..Acked::default() };
        for batch in batches {
            self.counts.rows_acked += batch.rows;
            self.counts.batches_acked += 1;
            if let Some(progress) = batch.progress {
                check_invariant!(
                    I4,
                    progress >= self.acked,
                    "{} went back to {progress}",
                    self.name.partition
                );
                self.acked = self.acked.max(progress);
            }
            acked.barriers.extend(batch.barrier);
        }
        self.builder.resume_token(&success.resume_token);
        self.cursor.clone_from(&success.acked_cursor);
        self.success = Some(success);
        if self.lane.depth() < self.window {
            self.flush_progress();
        }
        acked
    }

    /// The stream to the gateway broke.
    pub fn stream_lost(&mut self) {
        self.lane.stream_lost();
    }

    /// Everything of the source at or below it is durable at the gateway.
    pub const fn acked(&self) -> ResolvedTs {
        self.acked
    }

    /// The newest acknowledged position; `None` before the first.
    pub const fn cursor(&self) -> Option<&StreamCursor> {
        self.cursor.as_ref()
    }

    /// The newest acknowledgement; `None` before the first.
    pub const fn last_success(&self) -> Option<&MutationSuccess> {
        self.success.as_ref()
    }

    /// Who this stream is.
    pub const fn name(&self) -> &StreamName {
        &self.name
    }

    /// The outgoing side, to look at.
    pub const fn lane(&self) -> &Lane {
        &self.lane
    }

    /// What happened so far.
    pub const fn counts(&self) -> StreamCounts {
        self.counts
    }

    /// Bytes of rows that are not acknowledged.
    pub const fn bytes(&self) -> usize {
        self.lane.bytes() + self.builder.open_bytes()
    }
}
