//! One source partition: its writer's epoch, its place in the stream, its progress.

use std::collections::BTreeMap;

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::{CommitTs, ResolvedTs, StartTs};
use tidegate_proto::searchfabric::v1::{Modality, PartitionDisposition, StreamCursor};

use super::batch::{Batch, Entry, Progress};

/// What is durably known of a source partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its name.
    pub(crate) name: String,
    /// Its number within its collection; documents remember their writer by it.
    pub(crate) number: u32,
    /// Rows at or below it are not part of the stream.
    pub(crate) start: StartTs,
    /// The DDL that brought it into the collection.
    pub(crate) since: CommitTs,
    /// The DDL that took it out, and what happened to its documents.
    pub(crate) retired: Option<(CommitTs, PartitionDisposition)>,
    /// The newest writer's epoch; 0 before the first.
    pub(crate) epoch: u64,
    /// The last entry of that epoch.
    pub(crate) seq: u64,
    /// The largest timestamp seen in that prefix.
    pub(crate) largest: CommitTs,
    /// What the current epoch has promised.
    pub(crate) promised: ResolvedTs,
    /// What any epoch has promised; never goes back.
    pub(crate) resolved: ResolvedTs,
    /// Progress of modalities that lag behind `resolved`; never goes back.
    pub(crate) marks: BTreeMap<i32, ResolvedTs>,
    /// Rows that changed a document.
    pub(crate) rows_applied: u64,
}

/// Why a batch is refused, with what its producer needs to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The rule that was broken.
    pub(crate) breach: Breach,
    /// Where to continue.
    pub(crate) restart: Option<Box<StreamCursor>>,
    /// Where the batch's schema generation ended.
    pub(crate) invalidated_at: Option<CommitTs>,
    /// The epoch in force.
    pub(crate) epoch: u64,
}

impl Refusal {
    /// A refusal that says where the partition stands.
    pub(crate) fn at(partition: &Partition, breach: Breach) -> Self {
        let restart = Some(Box::new(partition.cursor()));
        Self { breach, restart, invalidated_at: None, epoch: partition.epoch }
    }
}

impl From<Breach> for Refusal {
    fn from(breach: Breach) -> Self {
        Self { breach, restart: None, invalidated_at: None, epoch: 0 }
    }
}

impl Partition {
    /// A partition of which nothing has been heard.
    pub(crate) fn new(name: String, number: u32, start: StartTs, since: CommitTs) -> Self {
        Self {
            name,
            number,
            start,
            since,
            retired: None,
            epoch: 0,
            seq: 0,
            largest: CommitTs::ZERO,
            promised: ResolvedTs::ZERO,
            resolved: ResolvedTs::ZERO,
            marks: BTreeMap::new(),
            rows_applied: 0,
        }
    }

    /// The acknowledged prefix.
    pub(crate) fn cursor(&self) -> StreamCursor {
        StreamCursor {
            source_partition: self.name.clone(),
            source_epoch: self.epoch,
            source_seq: self.seq,
            commit_ts: self.largest.get(),
        }
    }

    /// Up to where a modality holds everything of this partition. Before the first mark, the partition has
    /// contributed nothing below the DDL that brought it in.
    pub(crate) fn applied(&self, modality: Modality) -> ResolvedTs {
        let floor = self.since.prev().ts().as_resolved();
        let mark = self.marks.get(&modality.into()).copied().unwrap_or(self.resolved);
        mark.min(self.resolved).max(floor)
    }

    /// Whether a batch continues the stream. `floor` is the DDL that began the batch's generation, which its
    /// rows must lie above unless the partition is new in it.
    pub(crate) fn admit(&self, batch: &Batch, floor: CommitTs) -> Result<(), Refusal> {
        let admitted = self.admit_epoch(batch).and_then(|()| self.admit_timestamps(batch, floor));
        admitted.map_err(|breach| Refusal::at(self, breach))
    }

    fn admit_epoch(&self, batch: &Batch) -> Result<(), Breach> {
        if batch.epoch < self.epoch {
            let detail = format!("epoch {} is over, epoch {} is in force", batch.epoch, self.epoch);
            return Err(Breach::new(SfErrorCode::SfStaleEpoch, "stream_identity.source_epoch", detail));
        }
        let expected = if batch.epoch > self.epoch { 1 } else { self.seq.saturating_add(1) };
        if batch.seq != expected {
            let detail = format!("is {}, expected {expected} in epoch {}", batch.seq, batch.epoch);
            return Err(Breach::new(SfErrorCode::SfSequenceGap, "stream_identity.source_seq", detail));
        }
        Ok(())
    }

    fn admit_timestamps(&self, batch: &Batch, floor: CommitTs) -> Result<(), Breach> {
        // A row at the DDL's own timestamp belongs to the old generation, or was read again under the new
        // one.
        let floor = if self.since == floor { CommitTs::ZERO } else { floor.prev() };
        let floor = floor.max(self.start.ts().as_commit());
        let mut promised = if batch.epoch > self.epoch { ResolvedTs::ZERO } else { self.promised };
        for (index, entry) in batch.entries.iter().enumerate() {
            match entry {
                Entry::Row(row) if row.version <= floor => {
                    return Err(order(
                        index,
                        format!("{} is not above the stream's start {floor}", row.version),
                    ));
                }
                Entry::Row(row) if row.version.ts() <= promised.ts() => {
                    return Err(order(
                        index,
                        format!("{} is not above the promised {promised}", row.version),
                    ));
                }
                Entry::Progress(progress) if progress.resolved < promised => {
                    let detail = format!("is {}, below the earlier {promised}", progress.resolved);
                    let path = format!("entries[{index}].progress_mark.resolved_ts");
                    return Err(Breach::new(SfErrorCode::SfWatermarkRegression, path, detail));
                }
                Entry::Progress(progress) => promised = progress.resolved,
                Entry::Row(_) | Entry::Barrier(_) | Entry::Bad(_) => {}
            }
        }
        Ok(())
    }

    /// Moves on over an admitted batch.
    pub(crate) fn advance(&mut self, batch: &Batch) {
        if batch.epoch > self.epoch {
            (self.epoch, self.promised, self.largest) = (batch.epoch, ResolvedTs::ZERO, CommitTs::ZERO);
        }
        self.seq = batch.last_seq();
        self.largest = self.largest.max(batch.largest_ts());
        for entry in &batch.entries {
            if let Entry::Progress(progress) = entry {
                self.progress(progress);
            }
        }
    }

    fn progress(&mut self, progress: &Progress) {
        self.promised = progress.resolved;
        if progress.marks.is_empty() && progress.resolved >= self.resolved {
            self.marks.clear();
        }
        for (modality, at) in &progress.marks {
            let before = self.applied(*modality);
            self.marks.insert((*modality).into(), before.max(*at));
        }
        self.resolved = self.resolved.max(progress.resolved);
    }
}

fn order(index: usize, detail: String) -> Breach {
    let path = format!("entries[{index}].row_mutation.commit_ts");
    Breach::new(SfErrorCode::SfOrderViolation, path, detail)
}
