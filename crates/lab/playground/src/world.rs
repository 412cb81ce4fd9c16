//! The whole upstream as one state: engine, regions, oracle, safe points and feeds, which change together or
//! not at all. Pure; the servers hold it under a lock and tell it the time.

mod access;
mod control;
mod streams;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_codec::key::to_region_key;
use tidegate_core::{ClusterId, CommitTs, KeyspaceId, MonoTime, RegionId, Span, StoreId, Ts};
use tidegate_testkit::{History, Version};

pub(crate) use streams::ScanProgress;

use crate::engine::{ChangeRow, Commit, Engine, Mutation, MutationOp, Prewrite, TxnError};
use crate::feed::{FeedLimits, FeedQueue, Feeds, Quota, StreamId};
use crate::keyspace::Keyspace;
use crate::oracle::Oracle;
use crate::safepoint::GcState;
use crate::topology::Topology;

/// The two clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// For timestamps.
    pub(crate) wall_ms: u64,
    /// For deadlines.
    pub(crate) mono: MonoTime,
}

/// The GC states of a cluster.
pub(crate) struct GcTable {
    /// Everything without safe points of its own.
    pub(crate) unified: GcState,
    /// Holds barriers only.
    pub(crate) global: GcState,
    pub(crate) own: HashMap<KeyspaceId, GcState>,
}

/// A recorded part that is still to happen.
#[derive(Default)]
pub(crate) struct Replay {
    log: std::collections::VecDeque<Version>,
}

/// A write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a raw key.
    Put {
        /// The raw key.
        key: Bytes,
        /// Its new value.
        value: Bytes,
    },
    /// Deletes a raw key.
    Delete {
        /// The raw key.
        key: Bytes,
    },
}

impl Write {
    /// Sets `key` to `value`.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::Put { key: key.into(), value: value.into() }
    }

    /// Deletes `key`.
    pub fn delete(key: impl Into<Bytes>) -> Self {
        Self::Delete { key: key.into() }
    }

    fn mutation(self) -> Mutation {
        let (op, key, value) = match self {
            Self::Put { key, value } => (MutationOp::Put, key, value),
            Self::Delete { key } => (MutationOp::Delete, key, Bytes::new()),
        };
        Mutation {
            op,
            key,
            value,
            assertion: Default::default(),
            pessimistic: Default::default(),
            expected_for_update_ts: None,
        }
    }
}

/// Everything the upstream is.
pub(crate) struct World {
    pub(crate) cluster_id: ClusterId,
    pub(crate) engine: Engine,
    pub(crate) topology: Topology,
    pub(crate) gc: GcTable,
    pub(crate) keyspaces: Vec<Keyspace>,
    pub(crate) external_ts: Ts,
    oracle: Oracle,
    replay: Replay,
    feeds: Feeds,
    queues: HashMap<StreamId, Arc<FeedQueue>>,
    quotas: HashMap<StoreId, Arc<Quota>>,
    feed_limits: FeedLimits,
    resolved_held: bool,
}

/// What a world begins with.
pub(crate) struct Genesis {
    pub(crate) cluster_id: ClusterId,
    pub(crate) topology: Topology,
    pub(crate) oracle: Oracle,
    /// Nothing below it can be read.
    pub(crate) safe_point: Ts,
    pub(crate) keyspaces: Vec<Keyspace>,
    pub(crate) feed_limits: FeedLimits,
}

impl World {
    pub(crate) fn new(genesis: Genesis) -> Self {
        let Genesis { cluster_id, topology, oracle, safe_point, keyspaces, feed_limits } = genesis;
        let quota = |store: StoreId| (store, Quota::new(feed_limits.queue_bytes_max));
        let own = keyspaces.iter().filter(|keyspace| keyspace.own_gc);
        Self {
            cluster_id,
            engine: Engine::default(),
            gc: GcTable {
                unified: GcState::new(safe_point),
                global: GcState::default(),
                own: own.map(|keyspace| (keyspace.id, GcState::new(safe_point))).collect(),
            },
            keyspaces,
            external_ts: Ts::ZERO,
            oracle,
            replay: Replay::default(),
            feeds: Feeds::default(),
            queues: HashMap::new(),
            quotas: topology.stores().map(|store| quota(store.id)).collect(),
            topology,
            feed_limits,
            resolved_held: false,
        }
    }

    /// Loads a history: what was committed up to `live_after` is there from the beginning, the rest will
    /// happen as the oracle passes it.
    pub(crate) fn load(&mut self, history: History, live_after: Ts) {
        for version in history.base {
            self.engine.load(&version);
        }
        for version in history.log {
            if version.commit_ts.ts() <= live_after {
                self.engine.load(&version);
            } else {
                self.replay.log.push_back(version);
            }
        }
    }

    /// The last of `count` fresh timestamps. Whatever was recorded up to it has happened before it is handed
    /// out: so a reader at it sees all of that, and no resolved timestamp can pass it.
    pub(crate) fn timestamp(&mut self, now: Now, count: u64) -> Ts {
        let ts = self.oracle.allocate(now.wall_ms, count);
        self.replay_to(ts);
        ts
    }

    /// Recorded versions that have not happened yet.
    pub(crate) fn replay_pending(&self) -> usize {
        self.replay.log.len()
    }

    fn replay_to(&mut self, ts: Ts) {
        while let Some(first) = self.replay.log.front().filter(|version| version.commit_ts.ts() <= ts) {
            let (start_ts, commit_ts) = (first.start_ts, first.commit_ts);
            let same = |v: &&Version| v.start_ts == start_ts && v.commit_ts == commit_ts;
            let count = self.replay.log.iter().take_while(same).count();
            let transaction: Vec<Version> = self.replay.log.drain(..count).collect();
            self.replay_transaction(&transaction, commit_ts);
        }
    }

    fn replay_transaction(&mut self, versions: &[Version], commit_ts: CommitTs) {
        let Some(first) = versions.first() else { return };
        let references: Vec<&Version> = versions.iter().collect();
        self.engine.prewrite_recorded(&references, &first.key);
        self.dispatch();
        let keys = versions.iter().map(|version| version.key.clone()).collect();
        let outcome = self.engine.commit(&Commit { keys, start_ts: first.start_ts, commit_ts });
        debug_assert!(outcome.is_ok(), "a lock just written can be committed: {outcome:?}");
        self.dispatch();
    }

    /// Runs a whole transaction: prewrite, a commit timestamp, commit.
    pub(crate) fn commit(&mut self, writes: Vec<Write>, now: Now) -> Result<CommitTs, TxnError> {
        let mutations: Vec<Mutation> = writes.into_iter().map(Write::mutation).collect();
        let keys: Vec<Bytes> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let start_ts = self.timestamp(now, 1).as_start();
        let Some(primary) = keys.first().cloned() else { return Ok(start_ts.ts().as_commit()) };
        let prewrite = own_transaction(mutations, primary, start_ts);
        if let Err(mut errors) = self.engine.prewrite(&prewrite) {
            return Err(errors.swap_remove(0));
        }
        self.dispatch();
        let commit_ts = self.timestamp(now, 1).as_commit();
        self.engine.commit(&Commit { keys, start_ts, commit_ts })?;
        self.dispatch();
        Ok(commit_ts)
    }

    /// Shows feeds what the last command did, region by region.
    pub(crate) fn dispatch(&mut self) {
        let rows = self.engine.take_observed();
        if self.feeds.is_idle() {
            return;
        }
        let mut groups: Vec<(RegionId, Vec<&ChangeRow>)> = Vec::new();
        for row in &rows {
            let Some(region) = self.topology.region_of(&row.encoded).map(|region| region.id) else {
                continue;
            };
            match groups.iter_mut().find(|(id, _)| *id == region) {
                Some((_, group)) => group.push(row),
                None => groups.push((region, vec![row])),
            }
        }
        for (region, group) in groups {
            self.feeds.observe(region, &group);
        }
        self.flush();
    }

    /// The history so far, in the format it is loaded from: metadata as of the GC safe point, and everything
    /// since.
    pub(crate) fn export(&self, name: &str) -> History {
        let (base_ts, end_ts) = (self.gc.unified.gc_safe_point, self.oracle.last());
        let meta = Span::new(to_region_key(b"m"), to_region_key(b"n"));
        History {
            header: tidegate_testkit::Header {
                name: name.to_owned(),
                cluster_id: self.cluster_id,
                base_ts,
                end_ts,
            },
            base: self.engine.snapshot(&meta, base_ts),
            log: self.engine.committed(&Span::all(), base_ts, end_ts),
        }
    }
}

/// Long enough for anything that happens under one lock.
const OWN_TTL_MS: u64 = 3_000;

fn own_transaction(mutations: Vec<Mutation>, primary: Bytes, start_ts: tidegate_core::StartTs) -> Prewrite {
    Prewrite {
        txn_size: u64::try_from(mutations.len()).unwrap_or(u64::MAX),
        mutations,
        primary,
        start_ts,
        ttl_ms: OWN_TTL_MS,
        skip_constraint_check: false,
        for_update_ts: Ts::ZERO,
        min_commit_ts: CommitTs::ZERO,
        max_commit_ts: CommitTs::ZERO,
        async_commit: false,
        secondaries: Vec::new(),
        one_phase: false,
        assertion_level: Default::default(),
        is_retry: false,
        txn_source: 0,
    }
}
