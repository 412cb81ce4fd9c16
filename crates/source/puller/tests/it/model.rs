//! A small world: transactions over sixteen keys, regions on three stores that split, merge and move, a PD
//! that lags, streams that break, and one subscription under test. Everything is decided by one seed.
//!
//! The stores behave as `reference/cdc-protocol.md` §4–§7 says, with as much disorder as it allows: the scan
//! interleaves with live rows, rows of one command are shuffled, and live rows may flow before the scan's
//! snapshot is taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{
    CommitTs, MonoTime, Op, PeerId, RawChange, RegionId, ResolvedTs, Span, StartTs, StoreId,
};
use tidegate_pd::{Peer, Region, RegionEpoch};
use tidegate_puller::failure::Failure;
use tidegate_puller::ids::{RegistrationId, SubscriptionId};
use tidegate_puller::row::{Prewrite, Row, TxnKey};
use tidegate_puller::span_core::{Find, Input, Output, Registration, SpanConfig, SpanCore};

const KEYS: u8 = 16;
const STORES: u64 = 3;
/// Region, store and errors: how long a healed world may take to be caught up, in its own time.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
struct Lock {
    start_ts: u64,
    op: Op,
    value: Bytes,
}

#[derive(Clone, Debug)]
struct Version {
    start_ts: u64,
    commit_ts: u64,
    op: Op,
    value: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Key {
    lock: Option<Lock>,
    /// In commit order.
    versions: Vec<Version>,
}

impl Key {
    /// The value before `commit_ts`.
    fn old(&self, commit_ts: u64) -> Bytes {
        let before = self.versions.iter().rev().find(|version| version.commit_ts < commit_ts);
        before.map(|version| version.value.clone()).unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
struct Txn {
    start_ts: u64,
    unlocked: Vec<u8>,
    locked: Vec<u8>,
    commit_ts: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Shard {
    id: u64,
    start: u8,
    end: u8,
    version: u64,
    leader: u64,
}

#[derive(Debug)]
enum Scan {
    Attached,
    Running(VecDeque<Row>),
    Over,
}

#[derive(Debug)]
struct Downstream {
    registration: Registration,
    scan: Scan,
    /// Its store lost the leadership and does not know yet: nothing flows any more, the error is still to come.
    deposed: bool,
}

impl Downstream {
    fn is_scanning(&self) -> bool {
        !matches!(self.scan, Scan::Over)
    }
}

#[derive(Debug)]
enum Wire {
    Rows(RegistrationId, Vec<Row>),
    Resolved(u64, Vec<RegistrationId>),
    Failed(RegistrationId, Failure),
}

#[derive(Debug)]
enum Request {
    Register(Registration),
    Withdraw(Registration),
}

/// Which disorder a world has; all of it by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disorder {
    /// Splits, merges and leader moves.
    pub(crate) regions: bool,
    /// Errors and broken streams.
    pub(crate) errors: bool,
    /// PD shows regions as they were a while ago.
    pub(crate) pd_lag: bool,
    /// The subscription covers only a part of the keys, cutting through regions.
    pub(crate) part: bool,
}

impl Disorder {
    pub(crate) const ALL: Self = Self { regions: true, errors: true, pd_lag: true, part: true };
    pub(crate) const NONE: Self = Self { regions: false, errors: false, pd_lag: false, part: false };
}

pub(crate) struct World {
    rng: fastrand::Rng,
    disorder: Disorder,
    now: MonoTime,
    tso: u64,
    next_value: u64,
    keys: Vec<Key>,
    txns: Vec<Txn>,
    shards: Vec<Shard>,
    next_region: u64,
    pd: Vec<Shard>,
    downstreams: Vec<Downstream>,
    wires: BTreeMap<u64, VecDeque<Wire>>,
    requests: BTreeMap<u64, VecDeque<Request>>,
    /// Registrations that the client believes to exist, by store.
    open: BTreeMap<u64, BTreeSet<RegistrationId>>,
    finds: Vec<Find>,
    core: SpanCore,
    range: (u8, u8),
    start_ts: u64,
    delivered: BTreeMap<(u8, u64, u64), (Op, Bytes, Bytes)>,
    resolved: Option<u64>,
    /// A store left a rollback out; its prewrite may be held for as long as the registration lives.
    silent_rollbacks: bool,
    pub(crate) registrations: usize,
    pub(crate) changes: usize,
}

fn bound(key: u8) -> Bytes {
    if key == 0 || key == KEYS { Bytes::new() } else { Bytes::from(to_region_key(&[key])) }
}

fn raw(key: u8) -> Bytes {
    Bytes::from(vec![key])
}

fn txn_key(start_ts: u64, key: u8) -> TxnKey {
    TxnKey { start_ts: StartTs::new(start_ts), key: raw(key) }
}

impl World {
    pub(crate) fn new(seed: u64, disorder: Disorder) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let range = if disorder.part && rng.bool() { (rng.u8(1..6), rng.u8(9..KEYS)) } else { (0, KEYS) };
        let cuts = [0, 5, 9, KEYS];
        let shards: Vec<Shard> = (0..3)
            .map(|at| Shard {
                id: 2 + at as u64,
                start: cuts[at],
                end: cuts[at + 1],
                version: 1,
                leader: 1 + at as u64,
            })
            .collect();
        let mut world = Self {
            disorder,
            now: MonoTime::from_ms(1_000),
            tso: 100,
            next_value: 0,
            keys: vec![Key::default(); usize::from(KEYS)],
            txns: Vec::new(),
            pd: shards.clone(),
            shards,
            next_region: 10,
            downstreams: Vec::new(),
            wires: BTreeMap::new(),
            requests: BTreeMap::new(),
            open: BTreeMap::new(),
            finds: Vec::new(),
            core: SpanCore::new(config(seed, range, 0), MonoTime::default()),
            range,
            start_ts: 0,
            delivered: BTreeMap::new(),
            resolved: None,
            silent_rollbacks: false,
            registrations: 0,
            changes: 0,
            rng,
        };
        // Some history before the subscription begins, with locks left standing.
        for _ in 0..world.rng.usize(0..30) {
            world.step_txn();
        }
        world.start_ts = world.rng.u64(100..=world.tso);
        world.core = SpanCore::new(config(seed, range, world.start_ts), world.now);
        world.feed(Input::Tick(None));
        world
    }

    /// Runs some steps of disorder, heals the world, and checks that the subscription catches up completely.
    pub(crate) fn run(mut self, steps: usize) -> Self {
        for _ in 0..steps {
            self.step();
        }
        self.heal();
        self.catch_up();
        self.compare();
        self
    }

    fn step(&mut self) {
        match self.rng.u8(0..100) {
            0..30 => self.step_txn(),
            30..55 => self.deliver_some(),
            55..65 => self.serve_requests(1),
            65..75 => self.scan_some(),
            75..80 => self.resolve(),
            80..84 => self.answer_find(),
            84..92 => self.advance_time(),
            92..96 if self.disorder.regions => self.change_regions(),
            96..100 if self.disorder.errors => self.break_something(),
            _ => self.deliver_some(),
        }
    }

    // Transactions.

    fn tick_tso(&mut self) -> u64 {
        self.tso += 1;
        self.tso
    }

    fn value(&mut self) -> (Op, Bytes) {
        self.next_value += 1;
        match self.rng.u8(0..8) {
            0 => (Op::Delete, Bytes::new()),
            1 => (Op::Put, Bytes::new()),
            _ => (Op::Put, Bytes::from(format!("v{}", self.next_value))),
        }
    }

    fn step_txn(&mut self) {
        match self.rng.u8(0..10) {
            0..3 => self.begin(),
            3..6 => self.prewrite(),
            6..8 => self.commit(),
            8 => self.roll_back(),
            _ => self.one_phase(),
        }
    }

    fn begin(&mut self) {
        if self.txns.len() >= 4 {
            return;
        }
        let start_ts = self.tick_tso();
        let keys: BTreeSet<u8> = (0..self.rng.usize(1..4)).map(|_| self.rng.u8(0..KEYS)).collect();
        let unlocked = keys.into_iter().collect();
        self.txns.push(Txn { start_ts, unlocked, locked: Vec::new(), commit_ts: None });
    }

    fn pick_txn(&mut self, wanted: impl Fn(&Txn) -> bool) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.txns.len()).filter(|at| wanted(&self.txns[*at])).collect();
        (!candidates.is_empty()).then(|| candidates[self.rng.usize(0..candidates.len())])
    }

    fn prewrite(&mut self) {
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

    /// A lock is written again: with another value by a pessimistic retry, or with the same by a heartbeat. Stores
    /// show the latter for deletes; old ones also for puts, without the value.
    fn rewrite_lock(&mut self, at: usize) {
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

    fn commit(&mut self) {
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

    fn roll_back(&mut self) {
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

    fn one_phase(&mut self) {
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

    fn committed(&self, key: u8, at: usize) -> Row {
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

    fn shard_of(&self, key: u8) -> Shard {
        *self
            .shards
            .iter()
            .find(|shard| shard.start <= key && key < shard.end)
            .expect("every key has a region")
    }

    fn send(&mut self, store: u64, wire: Wire) {
        self.wires.entry(store).or_default().push_back(wire);
    }

    /// Sends rows to whoever observes their regions; one event per region, in any order inside.
    fn emit(&mut self, mut rows: Vec<(u8, Row)>) {
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

    fn serve_requests(&mut self, count: usize) {
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

    fn register(&mut self, store: u64, registration: Registration) {
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

    fn refusal(&mut self) -> Failure {
        match self.rng.u8(0..3) {
            0 => Failure::Busy(Duration::from_millis(self.rng.u64(0..300))),
            1 => Failure::Congested,
            _ => Failure::Unknown,
        }
    }

    /// After a split the regions that cover the old range; a merge names none.
    fn current_regions(&mut self, shard: Shard) -> Vec<Region> {
        if self.rng.bool() {
            return Vec::new();
        }
        let near = self.shards.iter().filter(|other| other.version == shard.version);
        near.map(|shard| region(*shard)).collect()
    }

    fn scan_some(&mut self) {
        for at in 0..self.downstreams.len() {
            if self.rng.bool() && !self.downstreams[at].deposed {
                self.scan_step(at);
            }
        }
    }

    fn scan_step(&mut self, at: usize) {
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
    fn snapshot(&self, registration: &Registration) -> VecDeque<Row> {
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
    fn resolve(&mut self) {
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

    fn end_region(&mut self, region: u64, failure: &Failure) {
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

    fn change_regions(&mut self) {
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

    fn split(&mut self, at: usize) {
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

    fn merge(&mut self, at: usize) {
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

    fn move_leader(&mut self, at: usize) {
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

    fn break_something(&mut self) {
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
    fn depose(&mut self) {
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
    fn break_stream(&mut self, store: u64) {
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

    // The client's side.

    fn deliver_some(&mut self) {
        let store = self.rng.u64(1..=STORES);
        let count = self.rng.usize(1..6);
        self.deliver(store, count);
    }

    fn deliver(&mut self, store: u64, count: usize) {
        for _ in 0..count {
            let Some(wire) = self.wires.entry(store).or_default().pop_front() else { break };
            let input = match wire {
                Wire::Rows(id, rows) => Input::Rows(id, rows),
                Wire::Resolved(ts, ids) => Input::Resolved(ResolvedTs::new(ts), ids),
                Wire::Failed(id, failure) => {
                    self.open.entry(store).or_default().remove(&id);
                    Input::Failed(id, failure)
                }
            };
            self.feed(input);
        }
    }

    fn answer_find(&mut self) {
        if self.finds.is_empty() {
            return;
        }
        let find = self.finds.swap_remove(self.rng.usize(0..self.finds.len()));
        let regions = self.pd.iter().map(|shard| region(*shard));
        let mut regions: Vec<Region> =
            regions.filter(|region| region.span.intersect(&find.span).is_some()).collect();
        if self.disorder.errors {
            match self.rng.u8(0..12) {
                0 => regions.clear(),
                1 => regions.truncate(1),
                2 => regions.iter_mut().for_each(|region| region.leader = None),
                _ => {}
            }
        }
        self.feed(Input::Found(find, regions));
    }

    fn advance_time(&mut self) {
        let by = self.rng.u64(1..400);
        self.now = self.now.after(Duration::from_millis(by));
        self.feed(Input::Tick(None));
    }

    fn feed(&mut self, input: Input) {
        let mut outputs = Vec::new();
        self.core.step(input, self.now, &mut outputs);
        if self.rng.u8(0..3) > 0 {
            self.core.flush(&mut outputs);
        }
        outputs.into_iter().for_each(|output| self.take(output));
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Find(find) => self.finds.push(find),
            Output::Register(registration) => {
                self.registrations += 1;
                let store = registration.store_id.get();
                self.open.entry(store).or_default().insert(registration.id);
                self.requests.entry(store).or_default().push_back(Request::Register(registration));
            }
            Output::Withdraw(registration) => {
                let store = registration.store_id.get();
                self.open.entry(store).or_default().remove(&registration.id);
                self.requests.entry(store).or_default().push_back(Request::Withdraw(registration));
            }
            Output::Changes(changes) => changes.iter().for_each(|change| self.receive(change)),
            Output::Resolved(ts) => self.receive_resolved(ts.get()),
            Output::Stop(error) => panic!("the subscription ended: {error}"),
            Output::Scanned(..) | Output::ResolveLocks(..) | Output::OwnStreams => {}
        }
    }

    fn receive(&mut self, change: &RawChange) {
        self.changes += 1;
        let key = change.key[0];
        assert!(self.range.0 <= key && key < self.range.1, "key {key} was not asked for");
        let floor = self.resolved.unwrap_or(self.start_ts).max(self.start_ts);
        assert!(change.commit_ts.get() > floor, "I3: commit {} after resolved {floor}", change.commit_ts);
        let content = (change.op, change.value.clone(), change.old_value.clone());
        let id = (key, change.start_ts.get(), change.commit_ts.get());
        let first = self.delivered.entry(id).or_insert_with(|| content.clone());
        assert_eq!(*first, content, "one version with two contents: {id:?}");
    }

    fn receive_resolved(&mut self, ts: u64) {
        assert!(self.resolved.is_none_or(|last| ts > last), "I3: resolved {ts} after {:?}", self.resolved);
        assert!(ts >= self.start_ts);
        self.resolved = Some(ts);
        // I1: everything committed up to here has been delivered, with its content.
        for (id, content) in self.history(ts) {
            assert_eq!(self.delivered.get(&id), Some(&content), "I1: version {id:?} at resolved {ts}");
        }
    }

    /// The committed versions in the subscription's range above its start and up to `until`.
    fn history(&self, until: u64) -> BTreeMap<(u8, u64, u64), (Op, Bytes, Bytes)> {
        let mut history = BTreeMap::new();
        for key in self.range.0..self.range.1 {
            let state = &self.keys[usize::from(key)];
            for version in &state.versions {
                if version.commit_ts > self.start_ts && version.commit_ts <= until {
                    let id = (key, version.start_ts, version.commit_ts);
                    history.insert(id, (version.op, version.value.clone(), state.old(version.commit_ts)));
                }
            }
        }
        history
    }

    // The end.

    /// Faults stop and transactions end.
    fn heal(&mut self) {
        self.disorder = Disorder { part: self.disorder.part, ..Disorder::NONE };
        self.depose();
        self.pd = self.shards.clone();
        for _ in 0..10_000 {
            if self.txns.is_empty() {
                break;
            }
            match self.txns.iter().any(|txn| txn.commit_ts.is_some()) {
                true => self.commit(),
                false if self.rng.bool() => self.commit(),
                false => self.roll_back(),
            }
        }
        assert!(self.keys.iter().all(|key| key.lock.is_none()), "the world must come to rest");
    }

    fn catch_up(&mut self) {
        let target = self.tick_tso();
        let deadline = self.now.after(CATCH_UP_MAX);
        while self.resolved.is_none_or(|resolved| resolved < target) {
            assert!(self.now < deadline, "not caught up in time: {:?}", self.core.status());
            self.now = self.now.after(Duration::from_millis(50));
            self.feed(Input::Tick(None));
            while !self.finds.is_empty() {
                self.answer_find();
            }
            self.serve_requests(usize::MAX);
            for _ in 0..4 {
                (0..self.downstreams.len()).for_each(|at| self.scan_step(at));
            }
            self.resolve();
            (1..=STORES).for_each(|store| self.deliver(store, usize::MAX));
        }
    }

    fn compare(&self) {
        assert_eq!(self.delivered, self.history(u64::MAX), "the output is the committed history");
        let status = self.core.status();
        assert_eq!((status.pieces_free, status.regions_scanning), (0, 0));
        assert!(status.held_bytes == 0 || self.silent_rollbacks, "nothing is left of ended transactions");
    }
}

fn config(seed: u64, range: (u8, u8), start_ts: u64) -> SpanConfig {
    SpanConfig {
        id: SubscriptionId(1),
        span: Span::new(bound(range.0), bound(range.1)),
        start_ts: StartTs::new(start_ts),
        held_bytes_max: 1 << 20,
        seed,
    }
}

fn peer(store: u64) -> Peer {
    Peer { id: PeerId(100 + store), store_id: StoreId(store) }
}

fn region(shard: Shard) -> Region {
    Region {
        id: RegionId(shard.id),
        span: Span::new(bound(shard.start), bound(shard.end)),
        epoch: RegionEpoch { conf_ver: 1, version: shard.version },
        leader: Some(peer(shard.leader)),
        peers: (1..=STORES).map(peer).collect(),
    }
}
