//! Locks that dead transactions left behind, over real gRPC.

use std::time::Duration;

use bytes::Bytes;
use tidegate_codec::key::{table_span, to_region_key};
use tidegate_core::Ts;
use tidegate_pd::PdClient;
use tidegate_playground::{Playground, PlaygroundOptions, Write};
use tidegate_proto::kvrpcpb::{self, CommitRequest, Mutation, Op, PrewriteRequest};
use tidegate_proto::metapb;
use tidegate_proto::tikvpb::tikv_client::TikvClient;
use tidegate_puller::Subscribe;
use tidegate_puller::kv::SnapshotReader;
use tonic::transport::Channel;

use crate::support::{Collected, TABLE, connect, row};

/// A transaction that is steered call by call.
struct Txn<'a> {
    pd: &'a PdClient,
    start_ts: Ts,
    primary: Vec<u8>,
    secondaries: Vec<Vec<u8>>,
    ttl_ms: u64,
    async_commit: bool,
}

impl<'a> Txn<'a> {
    async fn begin(pd: &'a PdClient, keys: &[i64], ttl_ms: u64) -> Self {
        let start_ts = pd.tso().await.expect("a timestamp");
        let mut keys = keys.iter().map(|id| row(*id));
        let primary = keys.next().expect("a primary");
        Self { pd, start_ts, primary, secondaries: keys.collect(), ttl_ms, async_commit: false }
    }

    async fn at(&self, key: &[u8]) -> (TikvClient<Channel>, kvrpcpb::Context) {
        let region = self.pd.region_of(&to_region_key(key)).await.expect("PD answers").expect("a region");
        let leader = region.leader.expect("a leader");
        let store = self.pd.store(leader.store_id).await.expect("a store");
        let client =
            TikvClient::connect(format!("http://{}", store.address)).await.expect("the store answers");
        let epoch = metapb::RegionEpoch { conf_ver: region.epoch.conf_ver, version: region.epoch.version };
        let peer =
            metapb::Peer { id: leader.id.get(), store_id: leader.store_id.get(), ..Default::default() };
        let context = kvrpcpb::Context {
            region_id: region.id.get(),
            region_epoch: Some(epoch),
            peer: Some(peer),
            ..Default::default()
        };
        (client, context)
    }

    async fn prewrite(&self, key: &[u8], value: &'static str) {
        let (mut client, context) = self.at(key).await;
        let mutation = Mutation {
            op: Op::Put.into(),
            key: Bytes::copy_from_slice(key),
            value: Bytes::from_static(value.as_bytes()),
            ..Default::default()
        };
        let is_primary = key == self.primary;
        let secondaries = self.secondaries.iter().map(|key| Bytes::copy_from_slice(key)).collect();
        let request = PrewriteRequest {
            context: Some(context),
            mutations: vec![mutation],
            primary_lock: Bytes::copy_from_slice(&self.primary),
            start_version: self.start_ts.get(),
            lock_ttl: self.ttl_ms,
            txn_size: 2,
            min_commit_ts: self.start_ts.get() + 1,
            use_async_commit: self.async_commit,
            secondaries: if self.async_commit && is_primary { secondaries } else { Vec::new() },
            ..Default::default()
        };
        let response = client.kv_prewrite(request).await.expect("an answer").into_inner();
        assert!(response.region_error.is_none() && response.errors.is_empty(), "{response:?}");
    }

    async fn commit(&self, key: &[u8]) -> Ts {
        let commit_ts = self.pd.tso().await.expect("a timestamp");
        let (mut client, context) = self.at(key).await;
        let request = CommitRequest {
            context: Some(context),
            start_version: self.start_ts.get(),
            keys: vec![Bytes::copy_from_slice(key)],
            commit_version: commit_ts.get(),
            ..Default::default()
        };
        let response = client.kv_commit(request).await.expect("an answer").into_inner();
        assert!(response.region_error.is_none() && response.error.is_none(), "{response:?}");
        commit_ts
    }
}

async fn open() -> (Playground, PdClient, tidegate_puller::PullerHandle) {
    let playground = Playground::start(PlaygroundOptions::default()).await.expect("free ports");
    playground.split(&row(50)).expect("a new boundary");
    playground.commit(vec![Write::put(row(1), "old"), Write::put(row(99), "old")]).expect("free");
    let (pd, puller) = connect(&playground).await;
    (playground, pd, puller)
}

async fn value(reader: &SnapshotReader, id: i64, ts: Ts) -> Option<Bytes> {
    reader.get(&row(id), ts).await.expect("readable")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_finishes_what_a_dead_transaction_left_behind() {
    let (_playground, pd, _) = open().await;
    let reader = SnapshotReader::new(pd.clone(), None);
    // Committed at its primary, dead before its secondary: the secondary is committed.
    let txn = Txn::begin(&pd, &[1, 99], 1).await;
    txn.prewrite(&row(1), "new").await;
    txn.prewrite(&row(99), "new").await;
    txn.commit(&row(1)).await;
    let now = pd.tso().await.expect("a timestamp");
    assert_eq!(value(&reader, 99, now).await.as_deref(), Some(&b"new"[..]));
    // Dead before its primary was committed: rolled back.
    let txn = Txn::begin(&pd, &[1, 99], 1).await;
    txn.prewrite(&row(1), "never").await;
    txn.prewrite(&row(99), "never").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let now = pd.tso().await.expect("a timestamp");
    let pairs = reader.scan(&row(0), &row(100), now).await.expect("readable");
    assert_eq!(pairs.len(), 2);
    assert!(pairs.iter().all(|pair| pair.value == "new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_async_commit_transaction_is_committed_if_all_its_keys_are_locked_and_not_otherwise() {
    let (_playground, pd, _) = open().await;
    let reader = SnapshotReader::new(pd.clone(), None);
    for (both, expected) in [(true, "new"), (false, "old")] {
        let txn = Txn { async_commit: true, ..Txn::begin(&pd, &[1, 99], 1).await };
        let keys = [(1, true), (99, both)];
        for (id, _) in keys.into_iter().filter(|(_, locked)| *locked) {
            txn.prewrite(&row(id), if both { "new" } else { "never" }).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = pd.tso().await.expect("a timestamp");
        let expected = if both { expected } else { "new" };
        assert_eq!(value(&reader, 1, now).await.as_deref(), Some(expected.as_bytes()), "both locked: {both}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_passes_a_living_transaction_that_will_commit_later() {
    let (_playground, pd, _) = open().await;
    let reader = SnapshotReader::new(pd.clone(), None);
    let txn = Txn::begin(&pd, &[1], 60_000).await;
    txn.prewrite(&row(1), "new").await;
    let now = pd.tso().await.expect("a timestamp");
    assert_eq!(value(&reader, 1, now).await.as_deref(), Some(&b"old"[..]));
    let commit_ts = txn.commit(&row(1)).await;
    assert_eq!(value(&reader, 1, now).await.as_deref(), Some(&b"old"[..]), "a snapshot does not change");
    assert_eq!(value(&reader, 1, commit_ts).await.as_deref(), Some(&b"new"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_dead_transaction_does_not_hold_the_resolved_timestamp_for_ever() {
    let (playground, pd, puller) = open().await;
    let mut subscription = puller.subscribe(Subscribe::new(table_span(None, TABLE), Ts::new(1).as_start()));
    let mut collected = Collected::default();
    collected.follow(&mut subscription, playground.now()).await;
    let txn = Txn::begin(&pd, &[1, 99], 1).await;
    txn.prewrite(&row(1), "half").await;
    txn.prewrite(&row(99), "half").await;
    let commit_ts = txn.commit(&row(1)).await;
    // The secondary's lock stands; only the puller itself can get it out of the way.
    collected.follow(&mut subscription, commit_ts).await;
    let found = collected.versions.keys().filter(|(_, _, commit)| commit.ts() == commit_ts).count();
    assert_eq!(found, 2, "both keys of the transaction");
    assert_eq!(puller.metrics().locks_resolved, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_living_transaction_is_left_alone() {
    let (playground, pd, puller) = open().await;
    let mut subscription = puller.subscribe(Subscribe::new(table_span(None, TABLE), Ts::new(1).as_start()));
    let mut collected = Collected::default();
    let txn = Txn::begin(&pd, &[1], 60_000).await;
    txn.prewrite(&row(1), "new").await;
    // Longer than it takes until a standing span is checked for locks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let commit_ts = txn.commit(&row(1)).await;
    collected.follow(&mut subscription, playground.now()).await;
    assert!(collected.versions.keys().any(|(_, _, commit)| commit.ts() == commit_ts));
    assert_eq!(puller.metrics().locks_resolved, 0);
}
