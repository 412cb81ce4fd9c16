//! Bringing recorded versions in: as if they had always been there, or as if they happened now.

use bytes::Bytes;
use tidegate_codec::key::to_region_key;
use tidegate_core::{CommitTs, Op, Span, StartTs, Ts};
use tidegate_testkit as testkit;

use super::{Applied, Engine, KeyState, Lock, LockKind, Version, VersionKind, bounds};

/// A transaction whose client is gone must not hold the recording back; recorded locks live only between two
/// steps of a replay.
const REPLAY_TTL_MS: u64 = 3_000;

impl Engine {
    /// Adds a version that was committed before the engine started. Feeds see it only by scanning.
    pub(crate) fn load(&mut self, version: &testkit::Version) {
        let encoded = Bytes::from(to_region_key(&version.key));
        let state = self.keys.entry(encoded).or_insert_with(|| KeyState::new(version.key.clone()));
        state.insert(Version {
            kind: match version.op {
                Op::Put => VersionKind::Put,
                Op::Delete => VersionKind::Delete,
            },
            start_ts: version.start_ts,
            commit_ts: version.commit_ts,
            value: version.value.clone(),
            txn_source: 0,
            overlapped_rollback: false,
            applied: Applied::default(),
            prewritten: Applied::default(),
        });
    }

    /// Locks a recorded transaction's keys. What was recorded happened: a lock in the way is rolled back.
    pub(crate) fn prewrite_recorded(&mut self, versions: &[&testkit::Version], primary: &Bytes) {
        self.next_applied();
        for version in versions {
            let encoded = Bytes::from(to_region_key(&version.key));
            if let Some(other) = self.lock(&encoded).map(|lock| lock.start_ts) {
                self.roll_back(&encoded, &version.key, other, true);
            }
            let lock = Lock {
                kind: match version.op {
                    Op::Put => LockKind::Put,
                    Op::Delete => LockKind::Delete,
                },
                primary: primary.clone(),
                start_ts: version.start_ts,
                ttl_ms: REPLAY_TTL_MS,
                value: version.value.clone(),
                // So that its row's old value is the version before, whatever kind of transaction it was.
                for_update_ts: version.commit_ts.ts().prev(),
                txn_size: 1,
                min_commit_ts: CommitTs::ZERO,
                async_commit: false,
                secondaries: Vec::new(),
                rolled_back: Vec::new(),
                txn_source: 0,
                prewritten: self.applied,
            };
            self.observe_prewrite(&encoded, &version.key, &lock);
            self.put_lock(encoded, &version.key, lock);
        }
    }

    /// Every committed put and delete of an encoded span with `above < commit ts <= to`, in commit order.
    pub(crate) fn committed(&self, span: &Span, above: Ts, to: Ts) -> Vec<testkit::Version> {
        let mut versions: Vec<_> = self
            .keys
            .range::<[u8], _>(bounds(span))
            .flat_map(|(_, state)| state.versions.iter().map(move |version| (state, version)))
            .filter(|(_, v)| v.is_data() && v.commit_ts.ts() > above && v.commit_ts.ts() <= to)
            .map(|(state, version)| exported(&state.raw, version))
            .collect();
        versions.sort_by(|a, b| order(a).cmp(&order(b)));
        versions
    }

    /// The newest version at `ts` of every key of an encoded span, deletes left out, in commit order.
    pub(crate) fn snapshot(&self, span: &Span, ts: Ts) -> Vec<testkit::Version> {
        let mut versions: Vec<_> = self
            .keys
            .range::<[u8], _>(bounds(span))
            .filter_map(|(_, state)| Some(exported(&state.raw, state.visible_at(ts)?)))
            .collect();
        versions.sort_by(|a, b| order(a).cmp(&order(b)));
        versions
    }
}

fn order(version: &testkit::Version) -> (CommitTs, StartTs, &[u8]) {
    (version.commit_ts, version.start_ts, &version.key)
}

fn exported(raw: &Bytes, version: &Version) -> testkit::Version {
    testkit::Version {
        op: if version.kind == VersionKind::Put { Op::Put } else { Op::Delete },
        key: raw.clone(),
        value: version.value.clone(),
        start_ts: version.start_ts,
        commit_ts: version.commit_ts,
    }
}
