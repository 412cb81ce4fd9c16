//! A small world: transactions over sixteen keys, regions on three stores that split, merge and move, a PD
//! that lags, streams that break, and one subscription under test. Everything is decided by one seed.
//!
//! [`upstream`] is the stores' side, this file the client's, the world's clockwork and the checks.

mod upstream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{MonoTime, Op, PeerId, RawChange, RegionId, ResolvedTs, Span, StartTs, StoreId};
use tidegate_pd::{Peer, Region, RegionEpoch};
use tidegate_puller::failure::Failure;
use tidegate_puller::ids::{RegistrationId, SubscriptionId};
use tidegate_puller::row::{Row, TxnKey};
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
    /// Its store lost the leadership and does not know yet: nothing flows any more, the error is still to
    /// come.
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
