//! What the tests over the playground share.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::{Handle, record_key, record_range};
use tidegate_core::{CommitTs, Op, RawChange, ResolvedTs, StartTs, TableId, Ts};
use tidegate_pd::{PdClient, PdOptions};
use tidegate_playground::{Playground, PlaygroundOptions};
use tidegate_puller::{Puller, PullerHandle, PullerOptions, SpanEvent, Subscription};
use tidegate_testkit::{History, data};

/// Longer than anything here takes; only to end a hanging test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Id = (Bytes, StartTs, CommitTs);
pub(crate) type Content = (Op, Bytes, Bytes);
pub(crate) type Versions = BTreeMap<Id, Content>;

/// What a subscription yielded, checked on the way.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) versions: Versions,
    pub(crate) resolved: ResolvedTs,
}

impl Collected {
    pub(crate) fn take(&mut self, changes: Vec<RawChange>) {
        for change in changes {
            assert!(
                change.commit_ts.ts() > self.resolved.ts(),
                "I3: {} after {}",
                change.commit_ts,
                self.resolved
            );
            let content = (change.op, change.value, change.old_value);
            let id = (change.key, change.start_ts, change.commit_ts);
            let first = self.versions.entry(id).or_insert_with(|| content.clone());
            assert_eq!(*first, content);
        }
    }

    /// Follows a subscription until it is resolved to `target`.
    pub(crate) async fn follow(&mut self, subscription: &mut Subscription, target: Ts) {
        let following = async {
            while self.resolved.ts() < target {
                match subscription.next().await.expect("the subscription lives").expect("no error") {
                    SpanEvent::Changes(changes) => self.take(changes),
                    SpanEvent::Resolved(ts) => {
                        assert!(ts >= self.resolved, "I3: {ts} after {}", self.resolved);
                        self.resolved = ts;
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, following).await.expect("resolved in time");
    }
}

pub(crate) async fn connect(playground: &Playground) -> (PdClient, PullerHandle) {
    let pd = PdClient::connect(PdOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    let puller = Puller::start(pd.clone(), PullerOptions::default());
    (pd, puller)
}

pub(crate) async fn bank(regions: usize, live_after: Option<Ts>, speed: f64) -> (Playground, History) {
    let history = data::history("bank").expect("recorded data");
    let options = PlaygroundOptions {
        history: Some(history.clone()),
        regions,
        live_after,
        speed,
        ..PlaygroundOptions::default()
    };
    (Playground::start(options).await.expect("free ports"), history)
}

/// The recorded versions in a span above `start`, with the old value that follows from the version before.
pub(crate) fn recorded(history: &History, table: i64, start: Ts) -> Versions {
    let (begin, end) = record_range(None, TableId(table));
    let mut newest: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut versions = Versions::new();
    let inside = |key: &Bytes| key.as_ref() >= begin.as_slice() && key.as_ref() < end.as_slice();
    for version in history.log.iter().filter(|version| inside(&version.key)) {
        let old = newest.insert(version.key.clone(), version.value.clone()).unwrap_or_default();
        if version.commit_ts.ts() > start {
            let id = (version.key.clone(), version.start_ts, version.commit_ts);
            versions.insert(id, (version.op, version.value.clone(), old));
        }
    }
    versions
}

/// The made-up table that tests write to.
pub(crate) const TABLE: TableId = TableId(900);

/// A row key of it.
pub(crate) fn row(id: i64) -> Vec<u8> {
    record_key(None, TABLE, &Handle::Int(id))
}
