//! The reorder buffer of one partition, keyed by `(commit_ts, callback ordinal)`.

use std::collections::BTreeMap;

use hashbrown::HashSet;
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

    /// Takes the rows at or below `upto` in canonical order, and counts the second copies left out.
    pub(super) fn take_upto(&mut self, upto: CommitTs) -> (Vec<(CommitTs, T)>, u64) {
        let rest = self.rows.split_off(&(upto.next(), 0));
        let taken = std::mem::replace(&mut self.rows, rest);
        let taken: Vec<_> = taken.into_iter().map(|((commit_ts, _), row)| (commit_ts, row)).collect();
        self.bytes -= taken.iter().map(|(_, row)| row.size_bytes()).sum::<usize>();
        without_copies(taken)
    }
}

/// Keeps the first of the rows with equal commit timestamp and key.
fn without_copies<T: BridgeRow>(mut rows: Vec<(CommitTs, T)>) -> (Vec<(CommitTs, T)>, u64) {
    let copies = copies(&rows);
    let dropped = u64::try_from(copies.len()).unwrap_or(u64::MAX);
    let mut copies = copies.into_iter().peekable();
    if copies.peek().is_some() {
        let mut at = 0..;
        rows.retain(|_| at.next().is_some_and(|at| copies.next_if_eq(&at).is_none()));
    }
    (rows, dropped)
}

/// Indexes of rows that repeat an earlier one, ascending.
fn copies<T: BridgeRow>(rows: &[(CommitTs, T)]) -> Vec<usize> {
    let mut copies = Vec::new();
    let mut seen = HashSet::new();
    let mut start = 0;
    for commit in rows.chunk_by(|(a, _), (b, _)| a == b) {
        seen.clear();
        // Most transactions touch one row of a table, and one row repeats nothing.
        if commit.len() > 1 {
            let repeats = commit.iter().enumerate().filter(|(_, (_, row))| !seen.insert(row.key()));
            copies.extend(repeats.map(|(i, _)| start + i));
        }
        start += commit.len();
    }
    copies
}
