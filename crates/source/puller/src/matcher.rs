//! Pairing prewrites with commits, for one registration of one region (`reference/cdc-protocol.md` §12).
//!
//! Until the region is initialised, rows of the incremental scan and rows of live writes interleave freely.
//! So a commit may come before its prewrite, or for a version that the scan also reports whole. Such commits
//! wait for [`Row::Initialized`]; those still unmatched then were covered by the scan. After it a prewrite
//! always comes first.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tidegate_core::{CommitTs, Op, RawChange, RegionId, ResolvedTs, StartTs};

use crate::row::{Prewrite, Row, TxnKey};

/// Up to this many prewrites nothing is swept: the rare rollback that a store leaves out costs less than
/// looking for it.
const SWEEP_FROM: usize = 64;
/// Room for this many prewrites is kept when none is left; a larger map is given back.
const IDLE_CAPACITY_MAX: usize = 1024;

/// What the rows of a region must never do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// A version at or below what the region had promised to be complete: data was lost before, or will be.
    #[error("region {region_id} had resolved {resolved} and now commits at {commit_ts} (start {start_ts})")]
    BelowResolved {
        /// The region.
        region_id: RegionId,
        /// The transaction.
        start_ts: StartTs,
        /// Its commit.
        commit_ts: CommitTs,
        /// What was promised.
        resolved: ResolvedTs,
    },
    /// A commit without its prewrite, after the scan. Scanning the region again finds the version whole.
    #[error(
        "region {region_id} reports a commit at {commit_ts} without the prewrite (started at {start_ts})"
    )]
    PrewriteMissing {
        /// The region.
        region_id: RegionId,
        /// The transaction.
        start_ts: StartTs,
        /// Its commit.
        commit_ts: CommitTs,
    },
}

/// The matcher of one registration. A new registration of the same region needs a new one: it scans the locks
/// again.
#[derive(Debug)]
pub struct Matcher {
    region_id: RegionId,
    start_ts: StartTs,
    initialized: bool,
    prewrites: HashMap<TxnKey, Prewrite>,
    /// Commits that came before their prewrite's last word; only until the region is initialised. Ordered, so
    /// that a run can be repeated exactly.
    early_commits: BTreeMap<TxnKey, CommitTs>,
    /// Transactions that are over; a prewrite that the scan still reports must not outlive the scan. Only
    /// until the region is initialised.
    settled: Vec<TxnKey>,
    held_bytes: usize,
    /// How many prewrites make the next sweep worth while.
    sweep_at: usize,
}

impl Matcher {
    /// A matcher for a registration of `region_id`; versions up to `start_ts` are not wanted.
    pub fn new(region_id: RegionId, start_ts: StartTs) -> Self {
        Self {
            region_id,
            start_ts,
            initialized: false,
            prewrites: HashMap::new(),
            early_commits: BTreeMap::new(),
            settled: Vec::new(),
            held_bytes: 0,
            sweep_at: SWEEP_FROM,
        }
    }

    /// Whether the incremental scan is over.
    pub fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// Bytes of keys and values that wait for their commit.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// How many prewrites wait for their commit.
    pub fn held_prewrites(&self) -> usize {
        self.prewrites.len()
    }

    /// Takes one row and appends what it completes to `out`. `resolved` is what the region has resolved so
    /// far: nothing at or below it may come.
    pub fn step(
        &mut self,
        row: Row,
        resolved: ResolvedTs,
        out: &mut Vec<RawChange>,
    ) -> Result<(), MatchError> {
        match row {
            Row::Committed(change) => {
                self.cover(&change);
                self.emit(change, resolved, out)
            }
            Row::Prewrite(txn, prewrite) => {
                self.put(txn, prewrite);
                Ok(())
            }
            Row::Commit(txn, commit_ts) => self.commit(txn, commit_ts, resolved, out),
            Row::Rollback(txn) => {
                self.rollback(txn);
                Ok(())
            }
            Row::Initialized => self.initialize(resolved, out),
        }
    }

    fn put(&mut self, txn: TxnKey, prewrite: Prewrite) {
        // During the scan a prewrite may have to wait long while its message holds megabytes of other rows:
        // keep a copy of its own bytes instead of the message. Live messages are small.
        let (txn, prewrite) =
            if self.initialized { (txn, prewrite) } else { (txn.detach(), prewrite.detach()) };
        match self.prewrites.entry(txn) {
            Entry::Vacant(entry) => {
                self.held_bytes += size(entry.key(), &prewrite);
                entry.insert(prewrite);
            }
            Entry::Occupied(mut entry) => {
                // A lock written again without its value (heartbeat) must not hide the value, and an older
                // generation of a pipelined transaction must not hide a newer one.
                if prewrite.value.is_empty() || prewrite.generation < entry.get().generation {
                    return;
                }
                self.held_bytes -= size(entry.key(), entry.get());
                self.held_bytes += size(entry.key(), &prewrite);
                entry.insert(prewrite);
            }
        }
    }

    fn commit(
        &mut self,
        txn: TxnKey,
        commit_ts: CommitTs,
        resolved: ResolvedTs,
        out: &mut Vec<RawChange>,
    ) -> Result<(), MatchError> {
        if let Some(prewrite) = self.take(&txn) {
            if !self.initialized {
                self.settled.push(txn.detach());
            }
            return self.emit(self.change(txn, prewrite, commit_ts), resolved, out);
        }
        if !self.initialized {
            self.early_commits.insert(txn.detach(), commit_ts);
            return Ok(());
        }
        let (region_id, start_ts) = (self.region_id, txn.start_ts);
        if commit_ts.ts() <= self.start_ts.ts() {
            Ok(())
        } else if commit_ts.ts() <= resolved.ts() {
            // Scanning again would not find it: the scan begins at what is resolved.
            Err(MatchError::BelowResolved { region_id, start_ts, commit_ts, resolved })
        } else {
            Err(MatchError::PrewriteMissing { region_id, start_ts, commit_ts })
        }
    }

    /// Forgets prewrites whose lock is gone without a word (a store may leave an unprotected rollback out): a
    /// lock holds the resolved timestamp at its start, so what started below `resolved` has ended. Does
    /// nothing while there are few.
    pub fn sweep(&mut self, resolved: ResolvedTs) {
        if self.prewrites.len() < self.sweep_at {
            return;
        }
        let held_bytes = &mut self.held_bytes;
        self.prewrites.retain(|txn, prewrite| {
            let lives = txn.start_ts.ts() >= resolved.ts();
            if !lives {
                *held_bytes -= size(txn, prewrite);
            }
            lives
        });
        self.sweep_at = (self.prewrites.len() * 2).max(SWEEP_FROM);
    }

    /// A version that the scan reports whole needs no matching: what waits for it may know less, as a lock
    /// rewritten without its value does.
    fn cover(&mut self, change: &RawChange) {
        if self.early_commits.is_empty() {
            return;
        }
        let txn = TxnKey { start_ts: change.start_ts, key: change.key.clone() };
        if self.early_commits.remove(&txn).is_some() {
            self.remove(&txn);
        }
    }

    /// The prewrite to be committed. Before the end of the scan one without a value, or of a pipelined
    /// transaction, may not be the last word: matching it early once turned an update into a delete
    /// (tiflow#5468).
    fn take(&mut self, txn: &TxnKey) -> Option<Prewrite> {
        let found = self.prewrites.get(txn)?;
        if !self.initialized && (found.value.is_empty() || found.generation > 0) {
            return None;
        }
        self.remove(txn)
    }

    fn remove(&mut self, txn: &TxnKey) -> Option<Prewrite> {
        let prewrite = self.prewrites.remove(txn)?;
        self.held_bytes -= size(txn, &prewrite);
        if self.prewrites.is_empty() && self.prewrites.capacity() > IDLE_CAPACITY_MAX {
            self.prewrites = HashMap::new();
        }
        Some(prewrite)
    }

    fn rollback(&mut self, txn: TxnKey) {
        if self.initialized {
            // Absent is fine: the server filters some prewrites, and not their rollback.
            self.remove(&txn);
        } else {
            self.settled.push(txn.detach());
        }
    }

    fn initialize(&mut self, resolved: ResolvedTs, out: &mut Vec<RawChange>) -> Result<(), MatchError> {
        self.initialized = true;
        for (txn, commit_ts) in std::mem::take(&mut self.early_commits) {
            if let Some(prewrite) = self.remove(&txn) {
                self.emit(self.change(txn, prewrite, commit_ts), resolved, out)?;
            }
        }
        for txn in std::mem::take(&mut self.settled) {
            self.remove(&txn);
        }
        Ok(())
    }

    fn change(&self, txn: TxnKey, prewrite: Prewrite, commit_ts: CommitTs) -> RawChange {
        let TxnKey { start_ts, key } = txn;
        let Prewrite { op, value, old_value, .. } = prewrite;
        RawChange { op, key, value, old_value, start_ts, commit_ts, region_id: self.region_id }
    }

    /// Appends a version, unless it is not wanted. The order of the two checks matters: a late commit of a
    /// transaction from before the start is normal, one below the promise is not.
    fn emit(
        &self,
        mut change: RawChange,
        resolved: ResolvedTs,
        out: &mut Vec<RawChange>,
    ) -> Result<(), MatchError> {
        if change.commit_ts.ts() <= self.start_ts.ts() {
            return Ok(());
        }
        if change.commit_ts.ts() <= resolved.ts() {
            let RawChange { start_ts, commit_ts, .. } = change;
            return Err(MatchError::BelowResolved {
                region_id: self.region_id,
                start_ts,
                commit_ts,
                resolved,
            });
        }
        if change.op == Op::Delete {
            // Whatever bytes a server left there, a delete has no value.
            change.value = Bytes::new();
        }
        out.push(change);
        Ok(())
    }
}

impl TxnKey {
    fn detach(&self) -> Self {
        Self { start_ts: self.start_ts, key: Bytes::copy_from_slice(&self.key) }
    }
}

impl Prewrite {
    fn detach(&self) -> Self {
        let (value, old_value) =
            (Bytes::copy_from_slice(&self.value), Bytes::copy_from_slice(&self.old_value));
        Self { op: self.op, value, old_value, generation: self.generation }
    }
}

fn size(txn: &TxnKey, prewrite: &Prewrite) -> usize {
    txn.key.len() + prewrite.value.len() + prewrite.old_value.len()
}

#[cfg(test)]
#[path = "matcher_tests.rs"]
mod tests;
