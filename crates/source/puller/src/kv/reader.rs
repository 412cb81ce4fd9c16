//! Snapshots of raw keys at a timestamp.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{KeyspaceId, StartTs, Ts};
use tidegate_pd::PdClient;
use tidegate_proto::kvrpcpb;
use tokio::time::{Instant, sleep};

use super::client::{KvClient, key_after, nearer_end, raw_bound};
use super::resolver::{Resolver, lock_of};
use crate::PullerError;

/// Pairs per call of a whole scan.
const PAGE: u32 = 1024;
/// How long a read waits for the locks of living transactions in all. Their owners push them on every few
/// seconds, so what stays longer is a very long transaction.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);
/// Pause before a read that met a living lock is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvPair {
    /// The raw key (with the keyspace prefix on an API V2 cluster).
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// Reads consistent snapshots from the stores, following region changes and resolving locks left behind by
/// dead transactions (`reference/tikv-kv-protocol.md` §7.1, §9).
#[derive(Clone, Debug)]
pub struct SnapshotReader {
    kv: KvClient,
}

/// What one call brought.
struct Page {
    pairs: Vec<KvPair>,
    next: Option<Bytes>,
}

/// Locks met by one read, and how long it has been waiting for them.
struct LockWait {
    ignored: Vec<StartTs>,
    deadline: Instant,
}

impl SnapshotReader {
    /// A reader; `keyspace` is `None` on a classic cluster.
    pub fn new(pd: PdClient, keyspace: Option<KeyspaceId>) -> Self {
        Self { kv: KvClient::new(pd, keyspace) }
    }

    /// All pairs with `start <= key < end` (raw keys; an empty end is plus infinity) as of `ts`, ascending.
    pub async fn scan(&self, start: &[u8], end: &[u8], ts: Ts) -> Result<Vec<KvPair>, PullerError> {
        let mut next = Some(Bytes::copy_from_slice(start));
        let mut all = Vec::new();
        while let Some(from) = next {
            let (pairs, rest) = self.scan_page(&from, end, ts, PAGE).await?;
            all.extend(pairs);
            next = rest;
        }
        Ok(all)
    }

    /// One page of [`SnapshotReader::scan`]: at most `limit` pairs of one region, possibly none, and the raw
    /// key to go on from, `None` at the end of the range.
    pub async fn scan_page(
        &self,
        start: &[u8],
        end: &[u8],
        ts: Ts,
        limit: u32,
    ) -> Result<(Vec<KvPair>, Option<Bytes>), PullerError> {
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        if !end.is_empty() && start >= end {
            return Ok((Vec::new(), None));
        }
        let mut wait = LockWait::new();
        loop {
            match self.try_page(&start, &end, ts, limit.max(1), &wait).await? {
                Ok(page) => return Ok((page.pairs, page.next)),
                Err(locks) => wait.settle(&self.kv, locks, ts).await?,
            }
        }
    }

    /// The value of one raw key as of `ts`; `None` if there is none.
    pub async fn get(&self, key: &[u8], ts: Ts) -> Result<Option<Bytes>, PullerError> {
        let raw = Bytes::copy_from_slice(key);
        let mut wait = LockWait::new();
        loop {
            let make = |context| kvrpcpb::GetRequest {
                context: Some(context),
                key: raw.clone(),
                version: ts.get(),
                ..Default::default()
            };
            let call = |mut client: Stub, request| async move { client.kv_get(request).await };
            let (response, _) = self.kv.at_key(key, &wait.ignored, make, call).await?;
            match response.error {
                None => return Ok((!response.not_found).then_some(response.value)),
                Some(error) => wait.settle(&self.kv, vec![lock_of(error)?], ts).await?,
            }
        }
    }

    /// A page, or the locks that are in its way.
    async fn try_page(
        &self,
        start: &Bytes,
        end: &Bytes,
        ts: Ts,
        limit: u32,
        wait: &LockWait,
    ) -> Result<Result<Page, Vec<kvrpcpb::LockInfo>>, PullerError> {
        let make = |context| kvrpcpb::ScanRequest {
            context: Some(context),
            start_key: start.clone(),
            end_key: end.clone(),
            limit,
            version: ts.get(),
            ..Default::default()
        };
        let call = |mut client: Stub, request| async move { client.kv_scan(request).await };
        let (response, region) = self.kv.at_key(start, &wait.ignored, make, call).await?;
        let mut locks = Vec::new();
        if let Some(error) = response.error {
            locks.push(lock_of(error)?);
        }
        let mut pairs = Vec::with_capacity(response.pairs.len());
        for pair in response.pairs {
            match pair.error {
                None => pairs.push(KvPair { key: pair.key, value: pair.value }),
                Some(error) => locks.push(lock_of(error)?),
            }
        }
        if !locks.is_empty() {
            return Ok(Err(locks));
        }
        let region_end = nearer_end(raw_bound(&region.span.end)?, end);
        let full = pairs.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = match pairs.last() {
            Some(last) if full => Some(key_after(&last.key)),
            _ if region_end == *end => None,
            _ => Some(region_end),
        };
        Ok(Ok(Page { pairs, next }))
    }
}

type Stub = tidegate_proto::tikvpb::tikv_client::TikvClient<tonic::transport::Channel>;

impl LockWait {
    fn new() -> Self {
        Self { ignored: Vec::new(), deadline: Instant::now() + LOCK_WAIT_MAX }
    }

    /// Resolves what can be resolved; remembers transactions that will commit above `ts` and may be ignored;
    /// waits a little if others live.
    async fn settle(
        &mut self,
        kv: &KvClient,
        locks: Vec<kvrpcpb::LockInfo>,
        ts: Ts,
    ) -> Result<(), PullerError> {
        let example = locks.first().map_or(0, |lock| lock.lock_version);
        let settled = Resolver::new(kv.clone(), ts).resolve(locks).await?;
        self.ignored.extend(settled.pushed);
        if settled.alive == 0 {
            return Ok(());
        }
        if Instant::now() >= self.deadline {
            let detail = format!("transaction {example} holds a lock below {ts} and does not end");
            return Err(PullerError::Read { detail });
        }
        sleep(LOCK_PAUSE).await;
        Ok(())
    }
}
