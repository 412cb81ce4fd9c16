//! The DDL fence and the checkpoints (`spec/mini-cdc.md` §5.2–§5.4): progress of every live table, their
//! minimum, and when the next checkpoint is due. Pure; works for fixed and for followed table sets.

use std::collections::BTreeSet;
use std::time::Duration;

use hashbrown::HashMap;
use thiserror::Error;
use tidegate_core::{MonoTime, ResolvedTs, TableId};
use tidegate_invariants::check_invariant;

use crate::checkpoint::Checkpoint;

/// Progress of the live tables and of the schema store.
///
/// The fence is the minimum over the live tables; without any it is the schema store's own progress, so that
/// a followed set that starts empty still sees the DDL that creates its first table.
#[derive(Debug)]
pub struct Fence {
    tables: HashMap<TableId, Live>,
    /// Every live table by its progress: the first is the fence. A set, so that thousands of tables cost a
    /// logarithm per report and not a scan.
    by_progress: BTreeSet<(ResolvedTs, TableId)>,
    /// Live tables without a first report of their own.
    silent: usize,
    schema: ResolvedTs,
    pace: Pace,
}

#[derive(Debug)]
struct Live {
    /// What counts in the fence.
    resolved: ResolvedTs,
    /// Whether `resolved` is the table's own report, or still the place where it joined.
    reported: bool,
    /// Below it the table's own reports say nothing: it joined with rows from before this.
    joined: ResolvedTs,
}

/// Spaces checkpoints out and keeps them monotonic.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    last: Option<(MonoTime, ResolvedTs)>,
    /// Something moved since the last checkpoint.
    moved: bool,
}

impl Fence {
    /// A fence without tables, at `start`; checkpoints at least `interval` apart.
    pub fn new(start: ResolvedTs, interval: Duration) -> Self {
        Self {
            tables: HashMap::new(),
            by_progress: BTreeSet::new(),
            silent: 0,
            schema: start,
            pace: Pace { interval, last: None, moved: false },
        }
    }

    /// Adds a table whose rows at or below `joined` are all delivered already, or do not exist. Reports of
    /// its own count from there on. `false` if it is live already.
    pub fn join(&mut self, table: TableId, joined: ResolvedTs) -> bool {
        if self.tables.contains_key(&table) {
            return false;
        }
        self.tables.insert(table, Live { resolved: joined, reported: false, joined });
        self.by_progress.insert((joined, table));
        self.silent += 1;
        true
    }

    /// Removes a table; `false` if it was not live.
    pub fn leave(&mut self, table: TableId) -> bool {
        let Some(live) = self.tables.remove(&table) else { return false };
        self.by_progress.remove(&(live.resolved, table));
        self.silent -= usize::from(!live.reported);
        true
    }

    /// A table's report: all its rows at or below `resolved` were delivered. Reports of tables that are not
    /// live are ignored, as those still on their way when a table leaves.
    ///
    /// # Errors
    /// A report below an earlier one (I3).
    pub fn report(&mut self, table: TableId, resolved: ResolvedTs) -> Result<(), FenceError> {
        let Some(live) = self.tables.get_mut(&table) else { return Ok(()) };
        if resolved < live.joined {
            return Ok(());
        }
        if !check_invariant!(I3, resolved >= live.resolved, "table {table} went back to {resolved}") {
            return Err(FenceError::Regression { table, from: live.resolved, to: resolved });
        }
        self.by_progress.remove(&(live.resolved, table));
        self.by_progress.insert((resolved, table));
        self.silent -= usize::from(!live.reported);
        (live.resolved, live.reported) = (resolved, true);
        self.pace.moved = true;
        Ok(())
    }

    /// The schema store's progress; never goes back.
    pub fn report_schema(&mut self, resolved: ResolvedTs) {
        if resolved > self.schema {
            self.schema = resolved;
            self.pace.moved = true;
        }
    }

    /// A DDL event was delivered, which raises the horizon of the next checkpoint.
    pub fn ddl_delivered(&mut self) {
        self.pace.moved = true;
    }

    /// DDL events at or below it may be delivered: all rows at or below it have been.
    pub fn fence(&self) -> ResolvedTs {
        self.by_progress.first().map_or(self.schema, |&(resolved, _)| resolved.min(self.schema))
    }

    /// Whether `table` is live.
    pub fn is_live(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }

    /// The live tables, in no order.
    pub fn live(&self) -> impl Iterator<Item = TableId> + '_ {
        self.tables.keys().copied()
    }

    /// Where a live table joined.
    pub fn joined(&self, table: TableId) -> Option<ResolvedTs> {
        self.tables.get(&table).map(|live| live.joined)
    }

    /// Whether every live table has reported.
    pub const fn all_reported(&self) -> bool {
        self.silent == 0
    }

    /// A live table that has not reported yet, if there is one. Looks through the tables.
    pub fn silent(&self) -> Option<TableId> {
        self.tables.iter().find(|(_, live)| !live.reported).map(|(&table, _)| table)
    }

    /// When the next checkpoint may be emitted; `None` while nothing moved.
    pub fn checkpoint_due(&self) -> Option<MonoTime> {
        let due = self.pace.last.map_or(MonoTime::default(), |(at, _)| at.after(self.pace.interval));
        self.pace.moved.then_some(due)
    }

    /// The checkpoint to emit at `now`, if one is due. No entry passes `horizon`, the highest timestamp with
    /// all DDL delivered: a consumer that seals rows by checkpoints would otherwise seal a row before the
    /// DDL that precedes it (I7).
    ///
    /// # Errors
    /// A checkpoint below the last one (I4).
    pub fn checkpoint(
        &mut self,
        horizon: ResolvedTs,
        now: MonoTime,
    ) -> Result<Option<Checkpoint>, FenceError> {
        if self.checkpoint_due().is_none_or(|due| now < due) {
            return Ok(None);
        }
        self.pace.moved = false;
        let global = self.fence().min(horizon);
        let last = self.pace.last.map_or(ResolvedTs::ZERO, |(_, last)| last);
        if !check_invariant!(I4, global >= last, "checkpoint went back from {last} to {global}") {
            return Err(FenceError::CheckpointRegression { from: last, to: global });
        }
        self.pace.last = Some((now, global));
        let tables = self.tables.iter().filter(|(_, live)| live.reported);
        Ok(Some(Checkpoint::new(global, tables.map(|(&id, live)| (id, live.resolved.min(horizon))))))
    }

    /// The last checkpoint's position; `None` before the first.
    pub fn position(&self) -> Option<ResolvedTs> {
        self.pace.last.map(|(_, global)| global)
    }
}

/// Progress that went back: rows below a promise may still come, so nothing can be trusted any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A table's resolved timestamp went back.
    #[error("the resolved timestamp of table {table} went back from {from} to {to}")]
    Regression {
        /// The table.
        table: TableId,
        /// Where it was.
        from: ResolvedTs,
        /// What was reported.
        to: ResolvedTs,
    },
    /// The minimum over the tables went back.
    #[error("the checkpoint went back from {from} to {to}")]
    CheckpointRegression {
        /// The last checkpoint.
        from: ResolvedTs,
        /// What it would have become.
        to: ResolvedTs,
    },
}

#[cfg(test)]
mod tests;
