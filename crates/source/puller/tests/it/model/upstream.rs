//! The stores' side of the model: transactions, the change feed, and what goes wrong with them.
//!
//! The stores behave as `reference/cdc-protocol.md` §4–§7 says, with as much disorder as it allows: the scan
//! interleaves with live rows, rows of one command are shuffled, and live rows may flow before the scan's
//! snapshot is taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Op, RawChange, RegionId, StartTs};
use tidegate_pd::Region;
use tidegate_puller::failure::Failure;
use tidegate_puller::ids::RegistrationId;
use tidegate_puller::row::{Prewrite, Row};
use tidegate_puller::span_core::Registration;

use super::{
    Downstream, KEYS, Lock, Request, STORES, Scan, Shard, Txn, Version, Wire, World, peer, raw, region,
    txn_key,
};

impl World {
    // Transactions.

    pub(super) fn tick_tso(&mut self) -> u64 {
        self.tso += 1;
        self.tso
    }

    pub(super) fn value(&mut self) -> (Op, Bytes) {
        self.next_value += 1;
        match self.rng.u8(0..8) {
            0 => (Op::Delete, Bytes::new()),
            1 => (Op::Put, Bytes::new()),
            _ => (Op::Put, Bytes::from(format!("v{}", self.next_value))),
        }
    }

    pub(super) fn step_txn(&mut self) {
        match self.rng.u8(0..10) {
            0..3 => self.begin(),
            3..6 => self.prewrite(),
            6..8 => self.commit(),
            8 => self.roll_back(),
            _ => self.one_phase(),
        }
    }

    pub(super) fn begin(&mut self) {
        if self.txns.len() >= 4 {
            return;
        }
        let start_ts = self.tick_tso();
        let keys: BTreeSet<u8> = (0..self.rng.usize(1..4)).map(|_| self.rng.u8(0..KEYS)).collect();
        let unlocked = keys.into_iter().collect();
        self.txns.push(Txn { start_ts, unlocked, locked: Vec::new(), commit_ts: None });
    }

    pub(super) fn pick_txn(&mut self, wanted: impl Fn(&Txn) -> bool) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.txns.len()).filter(|at| wanted(&self.txns[*at])).collect();
        (!candidates.is_empty()).then(|| candidates[self.rng.usize(0..candidates.len())])
    }

    pub(super) fn prewrite(&mut self) {
        let Some(at) = self.pick_txn(|txn| txn.commit_ts.is_none()) else { return };
        let start_ts = self.txns[at].start_ts;
        let repeat = self.rng.u8(0..6) == 0 && !self.txns[at].locked.is_empty();
        if repeat {
            return self.rewrite_lock(at);
        }
        let keys = std::mem::take(&mut self.txns[at].unlocked);
        let mut rows = Vec::new();
        for key in keys {
            if self.keys[usize::from(key)].lock.is_some() || self.rng.u8(0..4) == 0 {
                // Locked by another transaction, or not this time.
                self.txns[at].unlocked.push(key);
                continue;
            }
            let (op, value) = self.value();
            let old_value = self.keys[usize::from(key)].old(u64::MAX);
            self.keys[usize::from(key)].lock = Some(Lock { start_ts, op, value: value.clone() });
            self.txns[at].locked.push(key);
            let prewrite = Prewrite { op, value, old_value, generation: 0 };
            rows.push((key, Row::Prewrite(txn_key(start_ts, key), prewrite)));
        }
        self.emit(rows);
    }

    /// A lock is written again: with another value by a pessimistic retry, or with the same by a heartbeat.
    /// Stores show the latter for deletes; old ones also for puts, without the value.
    pub(super) fn rewrite_lock(&mut self, at: usize) {
        let start_ts = self.txns[at].start_ts;
        let key = self.txns[at].locked[0];
        let (op, value) = self.value();
        let old_value = self.keys[usize::from(key)].old(u64::MAX);
        let lock = self.keys[usize::from(key)].lock.as_mut().expect("the transaction holds it");
        let prewrite = if !value.is_empty() && !self.downstreams.iter().any(Downstream::is_scanning) {
            // While a scan is under way its older value could come after this one, and no client could tell
            // which is which. A real retry takes longer than that.
            *lock = Lock { start_ts, op, value: value.clone() };
            Prewrite { op, value, old_value, generation: 0 }
        } else if lock.op == Op::Delete {
            Prewrite { op: Op::Delete, value: Bytes::new(), old_value, generation: 0 }
        } else if !lock.value.is_empty() {
            Prewrite { op: Op::Put, value: Bytes::new(), old_value: Bytes::new(), generation: 0 }
        } else {
            return;
        };
        self.emit(vec![(key, Row::Prewrite(txn_key(start_ts, key), prewrite))]);
    }

    pub(super) fn commit(&mut self) {
        let Some(at) = self.pick_txn(|txn| txn.unlocked.is_empty() && !txn.locked.is_empty()) else { return };
        if self.txns[at].commit_ts.is_none() {
            let commit_ts = self.tick_tso();
            self.txns[at].commit_ts = Some(commit_ts);
        }
        let (start_ts, commit_ts) = (self.txns[at].start_ts, self.txns[at].commit_ts.expect("set above"));
        // The primary is there; secondaries follow whenever.
        let count = self.rng.usize(1..=self.txns[at].locked.len());
        let keys: Vec<u8> = self.txns[at].locked.drain(..count).collect();
        let mut rows = Vec::new();
        for key in keys {
            let state = &mut self.keys[usize::from(key)];
            let Lock { op, value, .. } = state.lock.take().expect("held until now");
            state.versions.push(Version { start_ts, commit_ts, op, value });
            rows.push((key, Row::Commit(txn_key(start_ts, key), CommitTs::new(commit_ts))));
        }
        self.emit(rows);
        self.txns.retain(|txn| !(txn.unlocked.is_empty() && txn.locked.is_empty()));
    }

    pub(super) fn roll_back(&mut self) {
        let Some(at) = self.pick_txn(|txn| txn.commit_ts.is_none()) else { return };
        let txn = self.txns.swap_remove(at);
        let rows = txn.locked.iter().map(|key| {
            self.keys[usize::from(*key)].lock = None;
            (*key, Row::Rollback(txn_key(txn.start_ts, *key)))
        });
        let mut rows: Vec<_> = rows.collect();
        // A rollback may come for a key that was never locked, and may be left out (unprotected overlap).
        rows.extend(txn.unlocked.iter().map(|key| (*key, Row::Rollback(txn_key(txn.start_ts, *key)))));
        if self.rng.u8(0..8) > 0 {
            self.emit(rows);
        } else {
            self.silent_rollbacks = true;
        }
    }

    pub(super) fn one_phase(&mut self) {
        let key = self.rng.u8(0..KEYS);
        if self.keys[usize::from(key)].lock.is_some() {
            return;
        }
        let (start_ts, commit_ts) = (self.tick_tso(), self.tick_tso());
        let (op, value) = self.value();
        self.keys[usize::from(key)].versions.push(Version { start_ts, commit_ts, op, value });
        let row = self.committed(key, self.keys[usize::from(key)].versions.len() - 1);
        self.emit(vec![(key, row)]);
    }

    pub(super) fn committed(&self, key: u8, at: usize) -> Row {
        let state = &self.keys[usize::from(key)];
        let version = &state.versions[at];
        Row::Committed(RawChange {
            op: version.op,
            key: raw(key),
            value: version.value.clone(),
            old_value: state.old(version.commit_ts),
            start_ts: StartTs::new(version.start_ts),
            commit_ts: CommitTs::new(version.commit_ts),
            region_id: RegionId(0),
        })
    }

    // The stores' side of the feed.

    pub(super) fn shard_of(&self, key: u8) -> Shard {
        *self
            .shards
            .iter()
            .find(|shard| shard.start <= key && key < shard.end)
            .expect("every key has a region")
    }

    pub(super) fn send(&mut self, store: u64, wire: Wire) {
        self.wires.entry(store).or_default().push_back(wire);
    }

    /// Sends rows to whoever observes their regions; one event per region, in any order inside.
    pub(super) fn emit(&mut self, mut rows: Vec<(u8, Row)>) {
        self.rng.shuffle(&mut rows);
        let mut events = Vec::new();
        for down in self.downstreams.iter().filter(|down| !down.deposed) {
            let span = &down.registration.span;
            let mine = |key: u8| {
                self.shard_of(key).id == down.registration.region_id.get()
                    && span.contains(&to_region_key(&[key]))
            };
            let rows: Vec<Row> =
                rows.iter().filter(|(key, _)| mine(*key)).map(|(_, row)| row.clone()).collect();
            if !rows.is_empty() {
                events.push((down.registration.store_id.get(), Wire::Rows(down.registration.id, rows)));
            }
        }
        events.into_iter().for_each(|(store, wire)| self.send(store, wire));
    }

    pub(super) fn serve_requests(&mut self, count: usize) {
        for store in 1..=STORES {
            for _ in 0..count {
                let Some(request) = self.requests.entry(store).or_default().pop_front() else { break };
                match request {
                    Request::Register(registration) => self.register(store, registration),
                    Request::Withdraw(gone) => self.downstreams.retain(|down| {
                        (down.registration.request_id, down.registration.region_id)
                            != (gone.request_id, gone.region_id)
                    }),
                }
            }
        }
    }

    pub(super) fn register(&mut self, store: u64, registration: Registration) {
        let id = registration.id;
        let shard = self.shards.iter().find(|shard| shard.id == registration.region_id.get()).copied();
        let failure = match shard {
            None => Some(Failure::RegionNotFound),
            Some(shard) if shard.leader != store => {
                Some(Failure::NotLeader(self.rng.bool().then(|| peer(shard.leader))))
            }
            Some(shard) if shard.version != registration.epoch.version => {
                Some(Failure::EpochNotMatch(self.current_regions(shard)))
            }
            Some(_) if self.disorder.errors && self.rng.u8(0..10) == 0 => Some(self.refusal()),
            Some(_) => None,
        };
        if let Some(failure) = failure {
            return self.send(store, Wire::Failed(id, failure));
        }
        let same = |down: &Downstream| {
            down.registration.request_id == registration.request_id
                && down.registration.region_id == registration.region_id
                && down.registration.store_id == registration.store_id
        };
        assert!(!self.downstreams.iter().any(same), "registered twice: {registration:?}");
        self.downstreams.push(Downstream { registration, scan: Scan::Attached, deposed: false });
    }

    pub(super) fn refusal(&mut self) -> Failure {
        match self.rng.u8(0..3) {
            0 => Failure::Busy(Duration::from_millis(self.rng.u64(0..300))),
            1 => Failure::Congested,
            _ => Failure::Unknown,
        }
    }

    /// After a split the regions that cover the old range; a merge names none.
    pub(super) fn current_regions(&mut self, shard: Shard) -> Vec<Region> {
        if self.rng.bool() {
            return Vec::new();
        }
        let near = self.shards.iter().filter(|other| other.version == shard.version);
        near.map(|shard| region(*shard)).collect()
    }

    pub(super) fn scan_some(&mut self) {
        for at in 0..self.downstreams.len() {
            if self.rng.bool() && !self.downstreams[at].deposed {
                self.scan_step(at);
            }
        }
    }

    pub(super) fn scan_step(&mut self, at: usize) {
        let (id, store) =
            (self.downstreams[at].registration.id, self.downstreams[at].registration.store_id.get());
        let rows = match &mut self.downstreams[at].scan {
            Scan::Over => return,
            Scan::Attached => {
                let rows = self.snapshot(&self.downstreams[at].registration);
                self.downstreams[at].scan = Scan::Running(rows);
                return;
            }
            Scan::Running(rows) => {
                let count = self.rng.usize(1..5).min(rows.len());
                rows.drain(..count).collect::<Vec<_>>()
            }
        };
        let over = matches!(&self.downstreams[at].scan, Scan::Running(rows) if rows.is_empty());
        let mut rows = rows;
        if over {
            rows.push(Row::Initialized);
            self.downstreams[at].scan = Scan::Over;
        }
        self.send(store, Wire::Rows(id, rows));
    }

    /// Per key its lock, then its versions, newest first.
    pub(super) fn snapshot(&self, registration: &Registration) -> VecDeque<Row> {
        let mut rows = VecDeque::new();
        for key in (0..KEYS).filter(|key| registration.span.contains(&to_region_key(&[*key]))) {
            let state = &self.keys[usize::from(key)];
            if let Some(Lock { start_ts, op, value }) = state.lock.clone() {
                let prewrite = Prewrite { op, value, old_value: state.old(u64::MAX), generation: 0 };
                rows.push_back(Row::Prewrite(txn_key(start_ts, key), prewrite));
            }
            let wanted = |at: &usize| state.versions[*at].commit_ts > registration.checkpoint.get();
            let versions = (0..state.versions.len()).rev().filter(wanted);
            rows.extend(versions.map(|at| self.committed(key, at)));
        }
        rows
    }

    /// Each leader says how far it is resolved: up to now, or to the oldest lock in the observed range.
    pub(super) fn resolve(&mut self) {
        let now = self.tick_tso();
        let mut batches: BTreeMap<(u64, u64), Vec<RegistrationId>> = BTreeMap::new();
        for down in self.downstreams.iter().filter(|down| !down.deposed && !down.is_scanning()) {
            let in_range = |key: &u8| down.registration.span.contains(&to_region_key(&[*key]));
            let locks =
                (0..KEYS).filter(in_range).filter_map(|key| self.keys[usize::from(key)].lock.as_ref());
            let resolved = locks.map(|lock| lock.start_ts).min().unwrap_or(now);
            let batch = batches.entry((down.registration.store_id.get(), resolved)).or_default();
            batch.push(down.registration.id);
        }
        for ((store, resolved), ids) in batches {
            self.send(store, Wire::Resolved(resolved, ids));
        }
    }

    // What goes wrong.

    pub(super) fn end_region(&mut self, region: u64, failure: &Failure) {
        let mut ended = Vec::new();
        self.downstreams.retain(|down| {
            let gone = down.registration.region_id.get() == region;
            if gone {
                ended.push((down.registration.store_id.get(), down.registration.id));
            }
            !gone
        });
        for (store, id) in ended {
            self.send(store, Wire::Failed(id, failure.clone()));
        }
    }

    pub(super) fn change_regions(&mut self) {
        let at = self.rng.usize(0..self.shards.len());
        match self.rng.u8(0..3) {
            0 => self.split(at),
            1 => self.merge(at),
            _ => self.move_leader(at),
        }
        if !self.disorder.pd_lag || self.rng.bool() {
            self.pd = self.shards.clone();
        }
    }

    pub(super) fn split(&mut self, at: usize) {
        let shard = self.shards[at];
        if shard.end - shard.start < 2 {
            return;
        }
        let middle = self.rng.u8(shard.start + 1..shard.end);
        self.next_region += 1;
        let version = shard.version + 1;
        // The right part keeps the id.
        let left = Shard { id: self.next_region, end: middle, version, ..shard };
        self.shards[at] = Shard { start: middle, version, ..shard };
        self.shards.insert(at, left);
        let regions =
            if self.rng.bool() { vec![region(left), region(self.shards[at + 1])] } else { Vec::new() };
        self.end_region(shard.id, &Failure::EpochNotMatch(regions));
    }

    pub(super) fn merge(&mut self, at: usize) {
        if at + 1 >= self.shards.len() {
            return;
        }
        let (left, right) = (self.shards[at], self.shards[at + 1]);
        let version = left.version.max(right.version) + 1;
        let source_is_left = self.rng.bool();
        let target = if source_is_left { right } else { left };
        self.shards[at] = Shard { start: left.start, end: right.end, version, ..target };
        self.shards.remove(at + 1);
        for id in [left.id, right.id] {
            let failure =
                if self.rng.bool() { Failure::EpochNotMatch(Vec::new()) } else { Failure::RegionNotFound };
            self.end_region(id, &failure);
        }
    }

    pub(super) fn move_leader(&mut self, at: usize) {
        let leader = self.rng.u64(1..=STORES);
        let shard = &mut self.shards[at];
        if shard.leader == leader {
            return;
        }
        shard.leader = leader;
        let id = shard.id;
        if self.rng.bool() {
            // The old leader does not know yet: two are alive.
            let mine = |down: &&mut Downstream| down.registration.region_id.get() == id;
            self.downstreams.iter_mut().filter(mine).for_each(|down| down.deposed = true);
        } else {
            let hint = self.rng.bool().then(|| peer(leader));
            self.end_region(id, &Failure::NotLeader(hint));
        }
    }

    pub(super) fn break_something(&mut self) {
        match self.rng.u8(0..4) {
            0 | 1 => {
                let store = self.rng.u64(1..=STORES);
                self.break_stream(store);
            }
            2 => {
                if !self.downstreams.is_empty() {
                    let at = self.rng.usize(0..self.downstreams.len());
                    let region = self.downstreams[at].registration.region_id.get();
                    let failure = self.refusal();
                    self.end_region(region, &failure);
                }
            }
            _ => self.depose(),
        }
    }

    /// Deposed leaders learn of it.
    pub(super) fn depose(&mut self) {
        let deposed: BTreeSet<u64> = self
            .downstreams
            .iter()
            .filter(|down| down.deposed)
            .map(|down| down.registration.region_id.get())
            .collect();
        for region in deposed {
            self.end_region(region, &Failure::NotLeader(None));
        }
    }

    /// What was received stays received, the rest is lost, and everybody on the stream hears of it.
    pub(super) fn break_stream(&mut self, store: u64) {
        self.downstreams.retain(|down| down.registration.store_id.get() != store);
        self.requests.remove(&store);
        let wires = self.wires.entry(store).or_default();
        let kept = self.rng.usize(0..=wires.len());
        wires.truncate(kept);
        let mut open = self.open.get(&store).cloned().unwrap_or_default();
        for wire in wires.iter() {
            if let Wire::Failed(id, _) = wire {
                open.remove(id);
            }
        }
        wires.extend(open.into_iter().map(|id| Wire::Failed(id, Failure::StreamBroken)));
    }
}
