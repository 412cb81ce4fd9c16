//! The reorder buffer of one partition, keyed by `(commit_ts, callback ordinal)`.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tidegate_core::CommitTs;

use super::{BridgeLimits, BridgeRow};

#[derive(Debug)]
pub(super) struct Buffer<T> {
    rows: BTreeMap<(CommitTs, u64), T>,
    bytes: usize,
    /// Counts callbacks; breaks ties inside a commit timestamp.
    ordinal: u64,
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), bytes: 0, ordinal: 0 }
    }
}

impl<T: BridgeRow> Buffer<T> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn fits(&self, bytes: usize, limits: &BridgeLimits) -> bool {
        self.rows.len() < limits.partition_rows_max
            && self.bytes.saturating_add(bytes) <= limits.partition_bytes_max
    }

    pub(super) fn push(&mut self, commit_ts: CommitTs, row: T) {
        self.bytes += row.size_bytes();
        self.ordinal += 1;
        self.rows.insert((commit_ts, self.ordinal), row);
    }

    /// Takes the rows at or below `upto` in canonical order.
    pub(super) fn take_upto(&mut self, upto: CommitTs) -> Result<Taken<T>, MissingOldValue> {
        let rest = self.rows.split_off(&(upto.next(), 0));
        let taken = std::mem::replace(&mut self.rows, rest);
        let mut rows: Vec<_> = taken.into_iter().map(|((commit_ts, _), row)| (commit_ts, row)).collect();
        self.bytes -= rows.iter().map(|(_, row)| row.size_bytes()).sum::<usize>();
        let copies = copies(&rows)?;
        let duplicates = u64::try_from(copies.len()).unwrap_or(u64::MAX);
        remove(&mut rows, copies);
        Ok(Taken { rows, duplicates })
    }
}

/// What was sealed.
pub(super) struct Taken<T> {
    pub(super) rows: Vec<(CommitTs, T)>,
    /// Second copies that were left out.
    pub(super) duplicates: u64,
}

/// A row that says its key was absent, although the row before left it present.
pub(super) struct MissingOldValue(pub(super) CommitTs);

/// Indexes of rows that are second copies, ascending. All versions of a key between two seals are here, so
/// that consecutive ones must agree on whether the key was present.
fn copies<T: BridgeRow>(rows: &[(CommitTs, T)]) -> Result<Vec<usize>, MissingOldValue> {
    let mut copies = Vec::new();
    if rows.len() < 2 {
        return Ok(copies);
    }
    let mut last = HashMap::with_capacity(rows.len());
    for (i, (commit_ts, row)) in rows.iter().enumerate() {
        let presence = row.presence();
        match last.insert(row.key(), (*commit_ts, presence)) {
            Some((earlier, _)) if earlier == *commit_ts => copies.push(i),
            Some((_, Some(before))) if before.after && presence.is_some_and(|now| !now.before) => {
                return Err(MissingOldValue(*commit_ts));
            }
            _ => {}
        }
    }
    Ok(copies)
}

/// Removes the rows at `copies`, ascending.
fn remove<T>(rows: &mut Vec<T>, copies: Vec<usize>) {
    let mut copies = copies.into_iter().peekable();
    if copies.peek().is_some() {
        let mut at = 0..;
        rows.retain(|_| at.next().is_some_and(|at| copies.next_if_eq(&at).is_none()));
    }
}
