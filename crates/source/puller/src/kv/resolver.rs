//! Deciding what became of a transaction whose lock is in the way
//! (`reference/tikv-kv-protocol.md` §7.5–§7.7, §9).

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_core::{CommitTs, StartTs, Ts};
use tidegate_proto::kvrpcpb::{self, LockInfo};

use super::client::KvClient;
use crate::PullerError;

type Stub = tidegate_proto::tikvpb::tikv_client::TikvClient<tonic::transport::Channel>;

/// From this many locks of one transaction on, its whole region is resolved by one scan on the store; the
/// Java client draws the line here.
const WHOLE_REGION_FROM: usize = 16;

/// What happened to the locks handed in.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Locks that are gone now.
    pub(super) resolved: usize,
    /// Locks whose transaction lives.
    pub(super) alive: usize,
    /// Living transactions that will commit above the caller's timestamp, so that it may read past them.
    pub(super) pushed: Vec<StartTs>,
}

/// The fate of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Committed(CommitTs),
    RolledBack,
    Alive,
    Pushed,
}

/// Resolves locks for one caller.
pub(super) struct Resolver {
    kv: KvClient,
    /// The reader's timestamp; zero for a change feed, which must not push anybody.
    caller: Ts,
    fates: HashMap<StartTs, Fate>,
}

impl Resolver {
    pub(super) fn new(kv: KvClient, caller: Ts) -> Self {
        Self { kv, caller, fates: HashMap::new() }
    }

    /// Resolves those of `locks` (of one region) whose transaction is over or expired. Locks that neither
    /// readers nor change feeds wait for are left alone.
    pub(super) async fn resolve(&mut self, locks: Vec<LockInfo>) -> Result<Settled, PullerError> {
        let mut settled = Settled::default();
        let mut over: HashMap<(StartTs, Option<CommitTs>), Vec<Bytes>> = HashMap::new();
        for lock in locks.into_iter().filter(holds) {
            let start_ts = StartTs::new(lock.lock_version);
            let key = lock.key.clone();
            match self.fate(&lock).await? {
                Fate::Committed(commit_ts) => over.entry((start_ts, Some(commit_ts))).or_default().push(key),
                Fate::RolledBack => over.entry((start_ts, None)).or_default().push(key),
                Fate::Alive => settled.alive += 1,
                Fate::Pushed => settled.pushed.push(start_ts),
            }
        }
        for ((start_ts, commit_ts), keys) in over {
            settled.resolved += keys.len();
            self.finish(start_ts, commit_ts, keys).await?;
        }
        Ok(settled)
    }

    async fn fate(&mut self, lock: &LockInfo) -> Result<Fate, PullerError> {
        let start_ts = StartTs::new(lock.lock_version);
        if let Some(known) = self.fates.get(&start_ts) {
            return Ok(known.clone());
        }
        let fate = self.ask(lock).await?;
        self.fates.insert(start_ts, fate.clone());
        Ok(fate)
    }

    async fn ask(&self, lock: &LockInfo) -> Result<Fate, PullerError> {
        let now = self.kv.pd().tso().await?;
        let status = match self.status(lock, now, Ask::default()).await? {
            Ok(status) => status,
            // The primary is not there (yet): its prewrite may still be under way.
            Err(error) if error.txn_not_found.is_some() => {
                if !expired(lock, now) {
                    return Ok(Fate::Alive);
                }
                let roll_back = Ask { rollback_if_not_exist: true, ..Ask::default() };
                self.status(lock, now, roll_back).await?.map_err(|error| refused(lock, &error))?
            }
            Err(error) => return Err(refused(lock, &error)),
        };
        match &status.lock_info {
            Some(primary) if primary.use_async_commit && status.lock_ttl > 0 && expired(primary, now) => {
                self.finish_async(lock, primary, now).await
            }
            _ => Ok(fate_of(&status)),
        }
    }

    async fn status(
        &self,
        lock: &LockInfo,
        now: Ts,
        ask: Ask,
    ) -> Result<Result<kvrpcpb::CheckTxnStatusResponse, kvrpcpb::KeyError>, PullerError> {
        let make = |context| kvrpcpb::CheckTxnStatusRequest {
            context: Some(context),
            primary_key: lock.primary_lock.clone(),
            lock_ts: lock.lock_version,
            caller_start_ts: self.caller.get(),
            current_ts: now.get(),
            rollback_if_not_exist: ask.rollback_if_not_exist,
            force_sync_commit: ask.force_sync_commit,
            ..Default::default()
        };
        let call = |mut client: Stub, request| async move { client.kv_check_txn_status(request).await };
        let (mut response, _) = self.kv.at_key(&lock.primary_lock, &[], make, call).await?;
        Ok(match response.error.take() {
            Some(error) => Err(error),
            None => Ok(response),
        })
    }

    /// An async-commit transaction whose owner is gone is committed if and only if all its keys are locked.
    async fn finish_async(&self, lock: &LockInfo, primary: &LockInfo, now: Ts) -> Result<Fate, PullerError> {
        let mut commit_ts = primary.min_commit_ts;
        let mut fate = None;
        for key in &primary.secondaries {
            let response = self.check_secondary(key, lock.lock_version).await?;
            match response.locks.first() {
                Some(secondary) if secondary.use_async_commit => {
                    commit_ts = commit_ts.max(secondary.min_commit_ts)
                }
                Some(_) => return self.force_sync(lock, now).await,
                None if response.commit_ts != 0 => {
                    fate = Some(Fate::Committed(CommitTs::new(response.commit_ts)))
                }
                None => fate = Some(Fate::RolledBack),
            }
            if fate.is_some() {
                break;
            }
        }
        let fate = fate.unwrap_or(Fate::Committed(CommitTs::new(commit_ts)));
        let outcome = match &fate {
            Fate::Committed(ts) => Some(*ts),
            _ => None,
        };
        // The primary last: as long as its lock stands, others find the same way here.
        for key in primary.secondaries.iter().chain([&lock.primary_lock]) {
            self.finish(StartTs::new(lock.lock_version), outcome, vec![key.clone()]).await?;
        }
        Ok(fate)
    }

    /// A secondary without the async mark: the transaction fell back to two phases, and its primary decides.
    async fn force_sync(&self, lock: &LockInfo, now: Ts) -> Result<Fate, PullerError> {
        let ask = Ask { force_sync_commit: true, ..Ask::default() };
        let status = self.status(lock, now, ask).await?.map_err(|error| refused(lock, &error))?;
        Ok(fate_of(&status))
    }

    async fn check_secondary(
        &self,
        key: &Bytes,
        start_version: u64,
    ) -> Result<kvrpcpb::CheckSecondaryLocksResponse, PullerError> {
        let make = |context| kvrpcpb::CheckSecondaryLocksRequest {
            context: Some(context),
            keys: vec![key.clone()],
            start_version,
        };
        let call = |mut client: Stub, request| async move { client.kv_check_secondary_locks(request).await };
        let (response, _) = self.kv.at_key(key, &[], make, call).await?;
        match response.error {
            None => Ok(response),
            Some(error) => Err(PullerError::Read { detail: format!("secondary lock: {}", reason(&error)) }),
        }
    }

    /// Turns locks of one region into versions, or removes them.
    async fn finish(
        &self,
        start_ts: StartTs,
        commit_ts: Option<CommitTs>,
        keys: Vec<Bytes>,
    ) -> Result<(), PullerError> {
        let Some(first) = keys.first().cloned() else { return Ok(()) };
        let keys = if keys.len() >= WHOLE_REGION_FROM { Vec::new() } else { keys };
        let make = |context| kvrpcpb::ResolveLockRequest {
            context: Some(context),
            start_version: start_ts.get(),
            commit_version: commit_ts.map_or(0, CommitTs::get),
            keys: keys.clone(),
            ..Default::default()
        };
        let call = |mut client: Stub, request| async move { client.kv_resolve_lock(request).await };
        let (response, _) = self.kv.at_key(&first, &[], make, call).await?;
        match response.error {
            None => Ok(()),
            Some(error) => {
                let detail = format!("cannot resolve locks of transaction {start_ts}: {}", reason(&error));
                Err(PullerError::Read { detail })
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Ask {
    rollback_if_not_exist: bool,
    force_sync_commit: bool,
}

/// Only these are waited for; pessimistic, shared and plain locks are not
/// (`reference/tikv-kv-protocol.md` §7.1, `reference/cdc-protocol.md` §5).
fn holds(lock: &LockInfo) -> bool {
    matches!(lock.lock_type(), kvrpcpb::Op::Put | kvrpcpb::Op::Del | kvrpcpb::Op::Insert)
}

fn expired(lock: &LockInfo, now: Ts) -> bool {
    Ts::new(lock.lock_version).physical_ms().saturating_add(lock.lock_ttl) < now.physical_ms()
}

fn fate_of(status: &kvrpcpb::CheckTxnStatusResponse) -> Fate {
    let pushed = status.action() == kvrpcpb::Action::MinCommitTsPushed;
    match (status.lock_ttl, status.commit_version) {
        (0, 0) => Fate::RolledBack,
        (0, commit_ts) => Fate::Committed(CommitTs::new(commit_ts)),
        _ if pushed => Fate::Pushed,
        _ => Fate::Alive,
    }
}

fn refused(lock: &LockInfo, error: &kvrpcpb::KeyError) -> PullerError {
    let detail = format!("status of transaction {}: {}", lock.lock_version, reason(error));
    PullerError::Read { detail }
}

/// An error's kind and words, without keys and values.
fn reason(error: &kvrpcpb::KeyError) -> String {
    match error {
        _ if error.locked.is_some() => "a key is locked".into(),
        _ if error.primary_mismatch.is_some() => "the primary key does not match".into(),
        _ if !error.abort.is_empty() => error.abort.clone(),
        _ if !error.retryable.is_empty() => error.retryable.clone(),
        _ => "an error without a reason".into(),
    }
}

/// The lock in a read's error.
pub(super) fn lock_of(error: kvrpcpb::KeyError) -> Result<LockInfo, PullerError> {
    let other = reason(&error);
    error.locked.ok_or(PullerError::Read { detail: other })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(lock_ttl: u64, commit_version: u64, action: kvrpcpb::Action) -> Fate {
        let action = action.into();
        fate_of(&kvrpcpb::CheckTxnStatusResponse { lock_ttl, commit_version, action, ..Default::default() })
    }

    #[test]
    fn a_status_is_read_as_the_protocol_says() {
        use kvrpcpb::Action;
        assert_eq!(status(0, 0, Action::LockNotExistRollback), Fate::RolledBack);
        assert_eq!(status(0, 9, Action::NoAction), Fate::Committed(CommitTs::new(9)));
        assert_eq!(status(100, 0, Action::NoAction), Fate::Alive);
        assert_eq!(status(100, 0, Action::MinCommitTsPushed), Fate::Pushed);
    }

    #[test]
    fn a_lock_lives_through_the_last_millisecond_of_its_time() {
        // Started at 1,000 ms, lives 500 ms: at 1,500 it lives, at 1,501 it is expired (strictly less).
        let lock =
            LockInfo { lock_version: Ts::from_parts(1_000, 3).get(), lock_ttl: 500, ..Default::default() };
        assert!(!expired(&lock, Ts::from_parts(1_500, 9)));
        assert!(expired(&lock, Ts::from_parts(1_501, 0)));
    }

    #[test]
    fn only_locks_with_data_are_waited_for() {
        use kvrpcpb::Op;
        for (op, waited) in
            [(Op::Put, true), (Op::Del, true), (Op::PessimisticLock, false), (Op::Lock, false)]
        {
            assert_eq!(holds(&LockInfo { lock_type: op.into(), ..Default::default() }), waited, "{op:?}");
        }
    }
}
