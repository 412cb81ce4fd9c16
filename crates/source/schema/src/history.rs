//! What one physical table looked like over time.

use std::sync::Arc;

use tidegate_codec::{meta::TableInfo, row::TableLayout};
use tidegate_core::{SchemaId, TableId, Ts};

use crate::SchemaError;

/// One version of a physical table, shared and read-only.
#[derive(Debug)]
pub struct TableVersion {
    /// The physical id: of a partition, or of an unpartitioned table.
    pub id: TableId,
    /// The logical id.
    pub table_id: TableId,
    /// The database.
    pub schema_id: SchemaId,
    /// The database's name.
    pub schema: Arc<str>,
    /// When it came into force: finished timestamp of its DDL, or the snapshot's timestamp.
    pub from: Ts,
    /// From when on rows can be in this form. Before `from` for the new partitions of TRUNCATE PARTITION,
    /// which take rows before that job is finished; else the same.
    pub rows_from: Ts,
    /// The table, with everything needed to decode its rows.
    pub layout: Arc<TableLayout>,
}

impl TableVersion {
    /// The table's metadata.
    pub fn info(&self) -> &TableInfo {
        self.layout.table()
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        self.info().name.as_str()
    }
}

/// A version and how long the answer holds.
#[derive(Clone, Debug)]
pub struct TableAt {
    /// The version in force.
    pub version: Arc<TableVersion>,
    /// Up to when (inclusive) it is known to be in force: until its successor, or as far as the store has
    /// come. Asking again for a timestamp up to this one gives the same answer.
    pub through: Ts,
}

impl TableAt {
    /// Whether this is the answer for `ts`, too.
    pub fn covers(&self, ts: Ts) -> bool {
        self.version.rows_from <= ts && ts <= self.through
    }
}

#[derive(Clone, Debug)]
enum Step {
    Version(Arc<TableVersion>),
    Deleted(Ts),
}

impl Step {
    fn from(&self) -> Ts {
        match self {
            Self::Version(version) => version.from,
            Self::Deleted(at) => *at,
        }
    }

    fn rows_from(&self) -> Ts {
        match self {
            Self::Version(version) => version.rows_from,
            Self::Deleted(at) => *at,
        }
    }
}

/// The versions of one physical id, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct VersionHistory {
    steps: Vec<Step>,
}

impl VersionHistory {
    pub(crate) fn push(&mut self, version: Arc<TableVersion>) {
        self.steps.push(Step::Version(version));
    }

    pub(crate) fn delete(&mut self, at: Ts) {
        self.steps.push(Step::Deleted(at));
    }

    /// The version that rows at `ts` have. `resolved` bounds what may be shown.
    pub(crate) fn at(&self, id: TableId, ts: Ts, resolved: Ts) -> Result<TableAt, SchemaError> {
        let end = self.steps.partition_point(|step| step.rows_from() <= ts && step.from() <= resolved);
        match end.checked_sub(1).and_then(|newest| self.steps.get(newest)) {
            None => Err(SchemaError::NeverExisted { table_id: id, ts }),
            Some(Step::Deleted(at)) => Err(SchemaError::Deleted { table_id: id, at: *at, ts }),
            Some(Step::Version(version)) => {
                let successor = self.steps.get(end).map_or(Ts::MAX, Step::rows_from);
                Ok(TableAt { version: version.clone(), through: successor.prev().min(resolved) })
            }
        }
    }

    /// The version that the table itself has at `ts`: other than for its rows, early ones do not count.
    pub(crate) fn in_force_at(&self, ts: Ts) -> Option<&Arc<TableVersion>> {
        let end = self.steps.partition_point(|step| step.from() <= ts);
        match self.steps.get(end.checked_sub(1)?)? {
            Step::Version(version) => Some(version),
            Step::Deleted(_) => None,
        }
    }

    /// Forgets what no question at or above `oldest` can reach. Whether nothing is left.
    pub(crate) fn forget_before(&mut self, oldest: Ts) -> bool {
        let known = self.steps.partition_point(|step| step.from() <= oldest);
        self.steps.drain(..known.saturating_sub(1));
        matches!(self.steps.as_slice(), [] | [Step::Deleted(_)])
    }
}
