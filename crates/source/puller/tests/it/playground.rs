//! The puller against the playground, over real gRPC.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::{record_range, table_span};
use tidegate_core::{CommitTs, Op, RawChange, ResolvedTs, Span, StartTs, StoreId, TableId, Ts};
use tidegate_pd::{PdClient, PdOptions};
use tidegate_playground::{FeedFault, Playground, PlaygroundOptions, Write};
use tidegate_puller::kv::SnapshotReader;
use tidegate_puller::{Puller, PullerError, PullerHandle, PullerOptions, SpanEvent, Subscribe, Subscription};
use tidegate_testkit::{History, data};

/// Longer than anything here takes; only to end a hanging test.
const PATIENCE: Duration = Duration::from_secs(60);

type Id = (Bytes, StartTs, CommitTs);
type Content = (Op, Bytes, Bytes);
type Versions = BTreeMap<Id, Content>;

/// What a subscription yielded, checked on the way.
#[derive(Default)]
struct Collected {
    versions: Versions,
    resolved: ResolvedTs,
}

impl Collected {
    fn take(&mut self, changes: Vec<RawChange>) {
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
    async fn follow(&mut self, subscription: &mut Subscription, target: Ts) {
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

async fn connect(playground: &Playground) -> (PdClient, PullerHandle) {
    let pd = PdClient::connect(PdOptions::new([playground.pd_endpoint()])).await.expect("PD answers");
    let puller = Puller::start(pd.clone(), PullerOptions::default());
    (pd, puller)
}

async fn bank(regions: usize, live_after: Option<Ts>, speed: f64) -> (Playground, History) {
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
fn recorded(history: &History, table: i64, start: Ts) -> Versions {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_catches_up_with_a_recorded_history_over_many_regions() {
    let (playground, history) = bank(40, None, 1.0).await;
    let (_, puller) = connect(&playground).await;
    let start = history.header.base_ts;
    for table in [320, 322] {
        let span = table_span(None, TableId(table));
        let mut subscription = puller.subscribe(Subscribe::new(span, start.as_start()));
        let mut collected = Collected::default();
        collected.follow(&mut subscription, history.header.end_ts).await;
        let wanted = recorded(&history, table, start);
        assert!(wanted.len() > 100, "the recording is not empty");
        assert!(collected.versions == wanted, "table {table}");
    }
    puller.stop().await;
    playground.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flink_cdc_1206_nothing_is_lost_where_the_scan_meets_the_live_stream() {
    let probe = data::history("bank").expect("recorded data");
    let middle = probe.log[probe.log.len() / 2].commit_ts.ts();
    let (playground, history) = bank(10, Some(middle), 10.0).await;
    let (_, puller) = connect(&playground).await;
    let span = table_span(None, TableId(320));
    let mut subscription = puller.subscribe(Subscribe::new(span, history.header.base_ts.as_start()));
    let mut collected = Collected::default();
    collected.follow(&mut subscription, history.header.end_ts).await;
    assert!(collected.versions == recorded(&history, 320, history.header.base_ts));
    playground.stop().await;
}
