//! Looking for locks of dead transactions that hold a span's resolved timestamp
//! (`reference/cdc-protocol.md` §15).

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_core::{KeyspaceId, Span, Ts};
use tidegate_pd::{PdClient, Region};
use tidegate_proto::kvrpcpb::{self, LockInfo};
use tokio::sync::mpsc;

use super::client::{KvClient, key_after, nearer_end, raw_bound};
use super::resolver::Resolver;
use crate::PullerError;
use crate::metrics::Counters;

type Stub = tidegate_proto::tikvpb::tikv_client::TikvClient<tonic::transport::Channel>;

/// Checks that may wait. One more is left out: it will be asked for again ten seconds later.
pub(crate) const CHECKS_MAX: usize = 1024;
/// Locks per call.
const PAGE: u32 = 1024;

/// A range to be checked.
#[derive(Debug)]
pub(crate) struct LockCheck {
    /// Encoded keys.
    pub(crate) span: Span,
    /// Locks at or below this timestamp are looked at.
    pub(crate) ts: Ts,
    pub(crate) keyspace: Option<KeyspaceId>,
}

/// Works checks off one by one: they are rare, and must not load the stores.
pub(crate) async fn serve(pd: PdClient, mut checks: mpsc::Receiver<LockCheck>, counters: Arc<Counters>) {
    let mut clients: HashMap<Option<KeyspaceId>, KvClient> = HashMap::new();
    while let Some(check) = checks.recv().await {
        let client =
            clients.entry(check.keyspace).or_insert_with(|| KvClient::new(pd.clone(), check.keyspace));
        match run(client, &check).await {
            Ok(0) => {}
            Ok(resolved) => {
                counters.locks_resolved(resolved);
                tracing::info!(resolved, span = ?check.span, ts = %check.ts, "resolved dead locks");
            }
            Err(error) => tracing::warn!(%error, span = ?check.span, "could not check for dead locks"),
        }
    }
}

/// Goes through the regions of the range. Returns how many locks were resolved.
async fn run(kv: &KvClient, check: &LockCheck) -> Result<usize, PullerError> {
    let (mut start, end) = (raw_bound(&check.span.start)?, raw_bound(&check.span.end)?);
    // A change feed pushes nobody: whoever lives will commit or be looked at again.
    let mut resolver = Resolver::new(kv.clone(), Ts::ZERO);
    let mut resolved = 0;
    loop {
        let (locks, region) = scan_locks(kv, &start, &end, check.ts).await?;
        let last = locks.last().map(|lock| lock.key.clone());
        let full = locks.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
        let settled = resolver.resolve(locks).await?;
        resolved += settled.resolved;
        let region_end = nearer_end(raw_bound(&region.span.end)?, &end);
        start = match last {
            // While a transaction lives, what lies behind it in the region has to wait for the next check.
            Some(last) if full && settled.alive == 0 => key_after(&last),
            _ if region_end == end => return Ok(resolved),
            _ => region_end,
        };
    }
}

async fn scan_locks(
    kv: &KvClient,
    start: &Bytes,
    end: &Bytes,
    ts: Ts,
) -> Result<(Vec<LockInfo>, Region), PullerError> {
    let make = |context| kvrpcpb::ScanLockRequest {
        context: Some(context),
        max_version: ts.get(),
        start_key: start.clone(),
        end_key: end.clone(),
        limit: PAGE,
    };
    let call = |mut client: Stub, request| async move { client.kv_scan_lock(request).await };
    let (response, region) = kv.at_key(start, &[], make, call).await?;
    // An error means a lock in the leader's memory: that transaction is being written this moment.
    let locks = if response.error.is_some() { Vec::new() } else { response.locks };
    Ok((locks, region))
}
